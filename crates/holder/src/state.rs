//! All that a holder knows.

use pelago_wire::{Context, Done, InodeId, Request};

use crate::changes::Changes;
use crate::dirty::Dirty;
use crate::kept::Kept;
use crate::open_files::OpenFiles;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) kept: Kept,
    pub(crate) changes: Changes,
    pub(crate) opens: OpenFiles,
    pub(crate) dirty: Dirty,
    /// Writes under leases are answered here.
    pub(crate) keeps_writes: bool,
    /// Writes that wait for room.
    pub(crate) full: Vec<FullWrite>,
    /// Files of which written bytes were lost.
    pub(crate) lost_files: Vec<InodeId>,
    /// Own removals of names that are under way, and of which it is not known what they lead to.
    pub(crate) blind_removals: usize,
}

/// A write that waits until others were sent.
pub(crate) struct FullWrite {
    pub(crate) context: Context,
    pub(crate) request: Request,
    pub(crate) bytes: Vec<u8>,
    pub(crate) done: Done,
}
