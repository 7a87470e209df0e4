//! The client: [`Files`], through which every program reaches a volume.
//!
//! [`Files`] has one method for each request of a program. Gateways, benchmarks, tests and
//! `pelago-mount` call it and nothing else; below it is any [`pelago_wire::Service`]. An operation
//! returns a [`Pending`]: ready at once, or completed later by another thread. So callers need
//! neither block nor be asynchronous.
//!
//! Errors are numbered codes; [`errno`] has the one total mapping to errno.

#![forbid(unsafe_code)]

pub use files::Files;
pub use pending::{Completer, Pending};
pub use values::{
    At, ByteRange, Created, CreatedWithCredential, FilePos, Listing, NewNode, Opened, Removed,
    Renamed, Written, Xattr,
};

pub mod errno;
mod files;
mod pending;
mod values;
