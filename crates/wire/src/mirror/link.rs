//! The two ends of the connection between a primary and its mirror, as each sees the other.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::{GroupState, PrimaryRun};

/// A connection of a primary to its mirror. Its methods block.
pub trait MirrorLink: Send {
    /// Sends the body of one part. It may be buffered until [`MirrorLink::receive`].
    ///
    /// # Errors
    /// [`LinkError`]: the connection has ended.
    fn send(&mut self, body: &[u8]) -> Result<(), LinkError>;

    /// Sends the buffered parts, and waits for the next message of the mirror.
    ///
    /// # Errors
    /// [`LinkError`]: the connection has ended.
    fn receive(&mut self) -> Result<GroupState, LinkError>;

    /// Returns a function that ends the connection from another thread, so that no thread waits for
    /// it any more.
    fn closer(&self) -> CloseLink;

    /// Returns a count that grows as long as the other end takes what is sent. On a slow line a
    /// part takes seconds, and so do those that are buffered: an end that takes them is not silent.
    fn taken(&self) -> TakenCount {
        TakenCount::default()
    }
}

/// A count of what the other end of a connection has taken, in units of the connection. Any thread
/// may read it.
pub type TakenCount = Arc<AtomicU64>;

/// Ends a connection.
pub type CloseLink = Box<dyn FnOnce() + Send>;

/// The reason for which there is no connection to a mirror.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// It was lost, or could not be made: a later try may succeed.
    #[error("{0}")]
    Lost(String),
    /// The mirror takes no group of this primary until a person changes something.
    #[error("{0}")]
    Refused(String),
    /// The mirror was promoted: there is another primary.
    #[error("the mirror was promoted, and has the reign {reign}")]
    Replaced {
        /// The reign of the other primary.
        reign: u64,
    },
}

/// The mirrors that a server keeps, of any number of volumes.
pub trait Mirrors: Send + Sync {
    /// Takes a primary with this Ed25519 key, which the caller has found in its list, or refuses
    /// it. An earlier connection of the same volume takes no group any more.
    ///
    /// # Errors
    /// [`OfferRefused`].
    fn offer(
        &self,
        volume: [u8; 16],
        reign: u64,
        run: PrimaryRun,
        via: Via,
    ) -> Result<Box<dyn Groups>, OfferRefused>;
}

/// The other end of a connection of a mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// The primary itself.
    Primary,
    /// A relay, which passes on what the primary has sent. The primary may be gone.
    Relay,
}

/// The reason for which a mirror refuses the offer of a primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OfferRefused {
    /// The mirror was promoted, and has this reign.
    NotPrimary(u64),
    /// Another reason, for people.
    Failed(String),
}

/// The receiver of the groups of one connection. Its methods block.
pub trait Groups: Send {
    /// Returns the answer to the offer.
    fn ready(&self) -> GroupState;

    /// Takes the body of a part. Returns the answer to it, if it has one.
    ///
    /// # Errors
    /// A message for people if it cannot be kept, or is no part of a group: the connection ends.
    fn take(&mut self, body: &[u8]) -> Result<Option<GroupState>, String>;

    /// Carries out the group that was answered with `Safe`. Called after the answer was sent.
    ///
    /// # Errors
    /// A message for people: the connection ends. The group is carried out after the next start.
    fn carry_out(&mut self) -> Result<(), String>;
}
