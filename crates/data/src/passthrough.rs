//! Passthrough: the kernel reads and writes the content file of an open itself (decision 4).

pub(crate) mod observer;
pub(crate) mod open;
pub(crate) mod pending_close;
pub(crate) mod placement;
pub(crate) mod probe;
pub(crate) mod shared_write;
