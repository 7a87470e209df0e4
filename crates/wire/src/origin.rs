//! The origins of mutations that the server of a site passes on to another one.

use crate::id::SessionId;

/// The origin of a mutation that the server of a site passes on to another one: its number in the
/// session of the client that has sent it. That session outlives the one between the two servers,
/// so that a repetition is recognized after a restart of either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The session: on the wire that of the client at the server of its site. The home of the node
    /// has a session of its own for it, and puts that here.
    pub session: SessionId,
    /// The number of the mutation there, from 1.
    pub mutation: u64,
    /// The newest mutation there up to which the client has all answers.
    pub acknowledged: u64,
    /// The server of its site may have passed it on before, in an earlier run or epoch.
    pub may_be_repeated: bool,
}
