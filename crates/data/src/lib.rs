//! The bytes of open files: in memory while a file is small, in a content file from then on.
//!
//! [`open_files`] is the interface; one file of this crate for each group of operations.
//! `passthrough` has what belongs to descriptors that the kernel was given.

#![forbid(unsafe_code)]

pub use blocking::{MayBlock, OpError};
pub use fd_budget::FdBudget;
pub use notify::Notifier;
pub use open_files::{OpenFiles, Opening, Options, Parts, Written};
pub use open_table::Counts;
pub use passthrough::placement::Passthrough;
pub use passthrough::probe::{PassthroughStatus, can_detect_writers, probe};
pub use range_ops::{Allocate, Copy};
pub use space::Space;
pub use write::Write;

mod atime;
mod attr;
mod blocking;
mod buffers;
mod commit;
mod content_file;
mod error_sequence;
mod evict;
mod fd_budget;
mod inode;
mod io_permits;
mod lost_ranges;
mod notify;
mod open_files;
mod open_table;
mod passthrough;
mod range_ops;
mod read;
mod space;
mod sync;
mod write;
mod writing;
