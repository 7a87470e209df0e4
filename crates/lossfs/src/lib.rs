//! A file system that loses what was not synced, for tests of what lives on it.
//!
//! All is in memory, twice: as programs see it, and as it is on the medium. What is written, and
//! each change of a name, waits between the two until it is synced; when the power fails
//! ([`Model::after_crash`]) it is gone, or some of it is there in an order that nobody promised.
//!
//! - `fsync` of a file makes its bytes and its size safe; its *name* is safe only by `fsync` of the
//!   folder, which is stricter than most file systems are.
//! - A rename happens whole or not at all.
//! - `sync` and `syncfs` make nothing safe: they do not reach a FUSE file system.
//! - After an `fsync` that failed the bytes are read as written and are not on the medium. Each
//!   descriptor that was open then is told once; the next `fsync` says nothing of them, as on
//!   Linux.
//!
//! A test may also fail one call, found by counting: the n-th of a kind in a class of files
//! ([`Control::inject`]), once or from there on, with an error or by half.
//!
//! [`Model`] is a state machine without I/O; `driver` carries the kernel's requests to it;
//! [`Control`] is how a test fails the power, the medium, or its space while it is mounted.

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
