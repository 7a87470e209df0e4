//! The bytes of open files: in memory while a file is small, later in a content file.
//!
//! [`OpenFiles`] is the interface: its public operations take the id of an open or the handle of a
//! file. They lock the inode (`inode_guard`) and continue as methods of the guard, in the file of
//! their topic. `passthrough` is about content files that the kernel reads and writes itself.

#![forbid(unsafe_code)]

pub use blocking::{MayBlock, OpError};
pub use changed_content::{
    ContentChanges, ContentKey, ContentPiece, ContentRisk, CutError, CutReader, read_piece,
};
pub use elsewhere::NewPlace;
pub use fd_budget::FdBudget;
pub use notify::WakeWorker;
pub use open::Opening;
pub use open_files::{OpenFiles, Options, Parts};
pub use open_key::OpenKey;
pub use open_table::Counts;
pub use other_writer::HeldFile;
pub use passthrough::placement::Passthrough;
pub use passthrough::probe::{PassthroughStatus, can_detect_writers, probe};
pub use pins::Pin;
pub use pins::budget::PinLimits;
pub use range_ops::{Allocate, Copy};
pub use space::Space;
pub use write::{Write, Written};

mod atime;
mod attr;
mod blocking;
mod buffers;
mod changed_content;
mod commit;
mod content_file;
mod dirty;
mod disk;
mod elsewhere;
mod error_sequence;
mod evict;
mod fd_budget;
mod inode;
mod inode_guard;
mod io_permits;
mod load;
mod lost_ranges;
mod memory;
mod notify;
mod open;
mod open_content;
mod open_files;
mod open_key;
mod open_table;
mod other_writer;
mod passthrough;
mod pins;
mod range_ops;
mod read;
mod release;
mod renew;
mod space;
mod spill;
mod sync;
mod table_loss;
#[cfg(test)]
mod testing;
mod truncate;
mod write;
mod writeback;
mod writing;
