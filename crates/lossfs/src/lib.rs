//! A file system that loses what was not synced, for tests of software above it.
//!
//! It keeps everything in memory twice: as programs see it, and as it is on the disk. Written bytes
//! and changes of names are pending between the two until they are synced. If the power fails
//! ([`Model::after_crash`]), pending changes are lost, or some of them survive in an order that no
//! file system promises.
//!
//! - `fsync` of a file makes its bytes and its size safe; its *name* is safe only after `fsync` of
//!   the directory, which is stricter than most file systems are.
//! - A rename happens whole or not at all.
//! - `sync` and `syncfs` make nothing safe: they do not reach a FUSE file system.
//! - After a failed `fsync`, reads return the written bytes, but they are not on the disk. Each
//!   descriptor that was open then gets the error once; the next `fsync` does not report them, as
//!   on Linux.
//!
//! A test may also fail one call, found by counting: the n-th of a kind in a class of files
//! ([`Control::inject`]), once or from there on, with an error or as a short read or write.
//!
//! [`Model`] is a state machine without I/O; `driver` carries out the kernel's requests on it. With
//! [`Control`] a test cuts the power, injects errors, or limits the space of a mounted file system.

#![forbid(unsafe_code)]

pub use control::{Control, Fault, Moment};
pub use model::{Model, Names, Survival};
pub use mounted::Lossfs;
pub use operation::Operation;
pub use plan::{Call, Counting, Failure, Injection, Sorter};
pub use random::Random;

mod clock;
mod control;
mod driver;
mod errors;
mod model;
mod mounted;
mod operation;
mod plan;
mod random;
