//! What a server offers to the sessions of other processes, beside their requests.

use crate::id::SessionId;
use crate::service::Service;

/// What a session learns of the server when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// The volume's id.
    pub volume: [u8; 16],
    /// The run of the server; each run has a higher one.
    pub epoch: u32,
    /// Whether every change is refused.
    pub read_only: bool,
}

/// A server of sessions. A session begins before its first request, and ends after its last one
/// was taken; requests that still run then are answered to no one.
pub trait SessionService: Service {
    /// Returns what the server serves.
    fn served(&self) -> Served;

    /// A session begins.
    fn begin_session(&self, session: SessionId);

    /// A session ends: what it has open is released.
    fn end_session(&self, session: SessionId);

    /// Returns the newest sequence that is done, and the newest that is safe.
    fn progress(&self) -> (u64, u64);
}
