//! What was answered to a request that its client repeats because it may be lost.

use crate::attr::Time;
use crate::codec::ReplyStamp;
use crate::id::Handle;

/// The answer to a change that was done and not safe when the server's run ended, as far as a
/// repetition must agree with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// The stamp of the answer: the place of the change among all others.
    pub stamp: ReplyStamp,
    /// The inode that the change has made, or whose bytes it has written.
    pub node: Option<Handle>,
    /// The time that the change has shown.
    pub time: Option<Time>,
}
