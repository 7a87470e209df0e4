//! The connection between the primary of a volume and its mirror: TLS over TCP with threads that
//! block, one for each connection.
//!
//! There is no session. The primary says which volume it has and what it is, and then sends groups
//! as fast as the mirror takes them; `docs/protocol.md`, 3.3, has the messages.

use std::time::Duration;

pub use connection::MirrorConnection;
pub use server::MirrorServer;

mod connection;
mod frames;
mod server;

/// How long one read or write of the socket may take: the other end may sync a disk meanwhile. A
/// machine that is gone is noticed earlier ([`GONE`]).
const BUSY: Duration = Duration::from_secs(600);
/// How long the system waits for a sign of life of the other machine: longer than a full window
/// while that syncs.
const GONE: Duration = Duration::from_secs(60);
/// How long a primary may take to read why its group was not kept: it may still be sending.
const TOLD: Duration = Duration::from_secs(20);
