//! Delivery of files from memory: an extent is read once for all clients that want it, and each
//! client gets next those of its blocks that are in memory. Clients that take a file in order also
//! take blocks from the page cache.
//!
//! [`pelago_proto::deliver`] decides what is read and sent; [`Delivery`] is its driver, and has the
//! bytes. A [`Piece`] refers to a block in memory, which counts as *lent* to the socket until the
//! last reference is dropped.

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
