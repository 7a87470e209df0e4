//! All that a holder knows.

use crate::changes::Changes;
use crate::kept::Kept;
use crate::open_files::OpenFiles;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) kept: Kept,
    pub(crate) changes: Changes,
    pub(crate) opens: OpenFiles,
    /// Own removals of names that are under way, and of which it is not known what they lead to.
    pub(crate) blind_removals: usize,
}
