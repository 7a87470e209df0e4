//! The holder of leases: a [`Service`] over a [`LeasedService`] that answers from what it keeps.
//!
//! [`Holder`] is the driver: it asks, and is told of recalls. `kept` is what it keeps,
//! `changes` decides whether an answer may be kept, `open_files` has the opens that the server
//! does not know, and `touches` says what a request changes. None of these four does I/O.
//!
//! [`Service`]: pelago_wire::Service
//! [`LeasedService`]: pelago_wire::LeasedService

#![forbid(unsafe_code)]

pub use holder::Holder;

mod changes;
mod clock;
mod holder;
mod kept;
mod open_files;
mod recall;
mod reports;
#[cfg(test)]
mod tests;
mod touches;
