//! Delivery of files from memory: an extent is read once for all clients that want it, and each
//! client gets next what is there. Clients in order also take what the page cache has.
//!
//! [`pelago_proto::deliver`] decides; [`Delivery`] is its driver, and has the bytes. What is sent
//! is written from memory: a [`Piece`] refers to a block, and counts as *lent* to the socket until
//! the last reference is dropped.

pub(crate) use client::{Client, Piece};
pub(crate) use driver::Delivery;

mod buffers;
mod client;
mod driver;
mod extent;
mod source;
mod state;
#[cfg(test)]
mod tests;
