//! The primary's end of a relay.

use super::{Record, RelayReport};
use crate::mirror::{CloseLink, LinkError};

/// The answer of a relay to an offer.
pub enum RelayAnswer {
    /// It takes the groups of the run.
    Ready(Box<dyn OfferedRelay>),
    /// It still has so many groups of another run, and takes none of this one before the mirror has
    /// them.
    Undelivered(u64),
}

/// A relay that takes the groups of a run, before the first one is sent.
pub trait OfferedRelay: Send {
    /// Returns the number of the last group of the run that it has had whole; 0 if none.
    fn last(&self) -> u64;

    /// Begins to send records, sealed with the key of the run.
    ///
    /// # Errors
    /// [`LinkError::Lost`] if the system has no thread for the reports.
    fn begin(
        self: Box<Self>,
        key: [u8; 32],
        on_report: OnReport,
    ) -> Result<Box<dyn RelayLink>, LinkError>;
}

/// A connection of a primary to its relay. Its methods block.
pub trait RelayLink: Send {
    /// Sends a record, whose `sealed` bytes are the body of a part until this seals them. They may
    /// be buffered until the last record of the group.
    ///
    /// # Errors
    /// [`LinkError`]: the connection has ended.
    fn send(&mut self, record: Record) -> Result<(), LinkError>;

    /// Asks for a sign of life: a report that is [`super::RelaySays::Ready`].
    ///
    /// # Errors
    /// [`LinkError`]: the connection has ended.
    fn ping(&mut self) -> Result<(), LinkError>;

    /// Returns a function that ends the connection from another thread.
    fn closer(&self) -> CloseLink;
}

/// Called by another thread with each report of a relay, and once with the reason for which no
/// more come.
pub type OnReport = Box<dyn FnMut(Result<RelayReport, LinkError>) + Send>;
