//! The primary's end of a relay.

use super::{Record, RelayReport};
use crate::mirror::{CloseLink, LinkError};

/// A connection of a primary to its relay. Its methods block.
pub trait RelayLink: Send {
    /// Sends a record, whose `sealed` bytes are the body of a part until this seals them. They may
    /// be buffered until the last record of the group.
    ///
    /// # Errors
    /// [`LinkError`]: the connection has ended.
    fn send(&mut self, record: Record) -> Result<(), LinkError>;

    /// Returns a function that ends the connection from another thread.
    fn closer(&self) -> CloseLink;
}

/// Called by another thread with each report of a relay, and once with the reason for which no
/// more come.
pub type OnReport = Box<dyn FnMut(Result<RelayReport, LinkError>) + Send>;
