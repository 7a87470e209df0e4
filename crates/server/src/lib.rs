//! A server: directories and files over a table and content files, as [`pelago_wire::Service`].
//!
//! Where things are: `shard` decides about names, attributes and counts, one operation one batch;
//! `open` about the bytes of open files; `router` gives each request its place to run; `commit`
//! makes batches safe; `worker` does what can wait; `recover` and `check` what has to be done
//! before and beside all that.

#![forbid(unsafe_code)]

pub use memory::{MEMORY_BYTES, MemoryUse, inode_table_bytes};
pub use open::Passthrough;
pub use recover::{Owner, RecoverError, Recovered};
pub use server::{Options, Parts, Server, StartError, Step, StopError};
pub use status::{PassthroughStatus, ProgressStatus, SpaceStatus, Status};
pub use worker::{Doing, WorkerStatus};

mod acl;
mod answers;
mod cache;
pub mod check;
mod clock;
mod commit;
mod filter;
mod losses;
mod memory;
mod numbers;
mod open;
mod partition;
mod pool;
mod progress;
mod recover;
mod router;
mod seek;
mod server;
mod shard;
mod space;
mod status;
mod steps;
#[cfg(test)]
mod testing;
mod worker;
