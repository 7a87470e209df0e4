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
//! - After an `fsync` that failed the bytes are read as written, are not on the medium, and the
//!   next `fsync` says nothing of them, as on Linux.
//!
//! [`Model`] is a state machine without I/O; `driver` carries the kernel's requests to it;
//! [`Control`] is how a test fails the power, the medium, or its space while it is mounted.

#![forbid(unsafe_code)]

pub use control::{Control, Fault, Moment, Operation};
pub use model::{Model, Names, Survival};
pub use mounted::Lossfs;
pub use random::Random;

mod clock;
mod control;
mod driver;
mod model;
mod mounted;
mod random;
