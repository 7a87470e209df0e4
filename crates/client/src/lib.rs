//! The client: the trait [`Files`], through which every program reaches a volume.
//!
//! [`Files`] has one method for each request of the wire. Gateways, benchmarks, tests and
//! `pelago-mount` call it and nothing else; [`ServiceFiles`] implements it over a server. An
//! operation returns a [`Pending`]: ready at once, or completed later by another thread. So callers
//! need neither block nor be asynchronous.
//!
//! Errors are numbered codes inside; [`errno`] has the one total mapping to errno.

#![forbid(unsafe_code)]

pub use files::{
    At, ByteRange, Created, FilePos, Files, Listing, NewNode, Opened, Removed, Renamed, Written,
    Xattr,
};
pub use pending::{Completer, Pending};
pub use service_files::ServiceFiles;

pub mod errno;
mod files;
mod pending;
mod service_files;
