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

/// How long one read or write of the socket may take.
const SILENCE: Duration = Duration::from_secs(20);
