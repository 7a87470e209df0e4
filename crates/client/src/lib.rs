//! The client: the trait [`Files`] that everybody uses, and the kernel's door to it.
//!
//! [`Files`] has one method for each request of the wire. Gateways, benchmarks, tests and the FUSE
//! adapter speak it and nothing else; [`ServiceFiles`] is what implements it over a server. An
//! operation returns an [`Pending`]: ready at once, or coming later from another thread, so that no
//! caller is forced to block and none is forced to be asynchronous.
//!
//! [`mount`] puts `Files` into the tree of a machine. Errors are numbered codes until the very
//! edge; [`errno`] turns them into errno once, totally.

#![forbid(unsafe_code)]

pub use files::{
    At, ByteRange, Created, FilePos, Files, Listing, NewNode, Opened, Removed, Renamed, Written,
    Xattr,
};
pub use pending::{Completer, Pending};
pub use service_files::ServiceFiles;

mod clock;
pub mod errno;
mod files;
pub mod fuse;
pub mod holders;
pub mod inodes;
pub mod mount;
pub mod mountinfo;
mod pending;
mod service_files;
