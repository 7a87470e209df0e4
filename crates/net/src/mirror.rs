//! The connection between the primary of a volume and its mirror: TLS over TCP with threads that
//! block, one for each connection.
//!
//! There is no session. The primary names its volume, its reign and its run, and then sends groups
//! as fast as the mirror takes them; `docs/protocol.md`, 3.3, has the messages. An end that does
//! not answer in time, or is gone, ends the connection; the primary makes another one.
//!
//! With [`Datagrams`] the groups travel in UDP datagrams beside the connection, which survive
//! losses without a question; the messages of the mirror come over the connection all the same.

use std::time::Duration;

pub use connection::MirrorConnection;
pub use datagrams::{DatagramStatus, Datagrams};
pub use pelago_proto::fec::RepairMode;
pub use relay::{RelayConnection, RelayServer, RelayStatus};
pub use server::MirrorServer;

mod connection;
mod datagrams;
mod dial;
mod frames;
mod listener;
mod relay;
mod server;

/// The longest time of one read or write of the socket: the other end may be syncing a disk. A
/// machine that is gone is noticed earlier ([`KEEPALIVE_TIMEOUT`]).
const IO_TIMEOUT: Duration = Duration::from_secs(600);
/// The time after which the kernel gives up a machine that confirms nothing. It is longer than the
/// receive window of a mirror stays full while the mirror syncs.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(60);
/// The time in which a primary may read the reason for which its group was not stored: it may still
/// be sending.
const FAILURE_LINGER: Duration = Duration::from_secs(20);
