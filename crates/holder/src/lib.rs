//! The holder of leases: a [`Service`] over a [`LeasedService`] that answers from what it keeps.
//!
//! [`Holder`] is the driver: it asks, and is told of recalls. All else does no I/O: `kept` and
//! `listings` are what it keeps, `answers` answers from that, `told` keeps what an answer tells,
//! `changes` decides whether it may, `open_files` has the opens that the server does not know,
//! `dirty` the bytes that it does not have, `writes` decides which bytes are kept back, and
//! `touches` says what a request changes. `reports` tells the server of those opens, and
//! `write_behind` sends those bytes. [`Attached`] is a service below a holder: a directory of a
//! far volume as a tree of its own.
//!
//! [`Service`]: pelago_wire::Service
//! [`LeasedService`]: pelago_wire::LeasedService

#![forbid(unsafe_code)]

pub use attached::Attached;
pub use holder::Holder;

mod answers;
mod attached;
mod changes;
mod clock;
mod countdown;
mod dirty;
mod holder;
mod kept;
mod listings;
mod open_files;
mod recall;
mod reports;
mod state;
mod timer;
mod told;
mod touches;
mod write_behind;
mod writes;
