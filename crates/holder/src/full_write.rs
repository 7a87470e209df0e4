//! A write without room.

use pelago_wire::{Context, Done, Request};

/// A write that waits until others were sent.
pub(crate) struct FullWrite {
    pub(crate) context: Context,
    pub(crate) request: Request,
    pub(crate) bytes: Vec<u8>,
    pub(crate) done: Done,
}
