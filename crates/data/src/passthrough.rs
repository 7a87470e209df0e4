//! Files whose content file the kernel reads and writes itself (decision 4).

pub(crate) mod observer;
pub(crate) mod open;
pub(crate) mod placement;
pub(crate) mod probe;
pub(crate) mod shared_write;
