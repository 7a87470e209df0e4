//! The state of a client's session, for its process.

use std::time::{Duration, Instant};

use pelago_wire::{Attr, SessionId};

/// The state of a client's session, for `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteStatus {
    /// The session's id; `None` before the first.
    pub session: Option<SessionId>,
    /// True if there is a connection.
    pub connected: bool,
    /// The version of the protocol; `None` before the first session.
    pub wire: Option<u16>,
    /// The smoothed time of a round trip; `None` before the first ping was answered.
    pub round_trip: Option<Duration>,
    /// The time since the server was heard last.
    pub silent: Duration,
    /// Requests that were not answered.
    pub waiting: usize,
    /// Mutations that were answered and are not safe.
    pub kept: usize,
    /// Connections that were made.
    pub connections: u64,
    /// Requests that were sent, without repetitions.
    pub requests: u64,
    /// File locks that programs held and that were lost with a session or with the server.
    pub locks_lost: u64,
}

/// A callback that gets the attributes of a directory in which a request has changed a name, and
/// when the request began, before the caller gets the answer.
pub type OnDir = Box<dyn Fn(Attr, Instant) + Send + Sync>;
