//! The records that a relay keeps, as its connections see them.

use super::RelayOffer;

/// The spools of a relay, one for each volume.
pub trait RelaySpools: Send + Sync {
    /// Returns the volumes of which records are kept, each with the offer under which they came.
    ///
    /// # Errors
    /// A message for people.
    fn kept(&self) -> Result<Vec<([u8; 16], RelayOffer)>, String>;

    /// Opens the spool of a volume for the records of an offer. Records of another run are removed:
    /// the caller has found that the mirror has them. Records of the same run stay; those after
    /// the last whole group are removed.
    ///
    /// # Errors
    /// A message for people.
    fn open(&self, volume: [u8; 16], offer: &RelayOffer) -> Result<Box<dyn RelaySpool>, String>;
}

/// The records of one volume, of one run of its primary, in the order in which they came.
pub trait RelaySpool: Send {
    /// Returns the number of the last group that is whole here or was; 0 if none.
    fn last_group(&self) -> u64;

    /// Returns whether there is room for a record.
    fn has_room(&self) -> bool;

    /// Adds the body of a record.
    ///
    /// # Errors
    /// A message for people: nothing was added.
    fn append(&mut self, body: &[u8]) -> Result<(), String>;

    /// Removes the records after the last whole group.
    ///
    /// # Errors
    /// A message for people.
    fn drop_partial(&mut self) -> Result<(), String>;

    /// Returns the place of the first record of the groups after this one.
    fn place_after(&self, group: u64) -> SpoolPlace;

    /// Returns the record at a place; `None` if none is there yet.
    ///
    /// # Errors
    /// A message for people.
    fn read(&mut self, place: SpoolPlace) -> Result<Option<KeptRecord>, String>;

    /// Removes the records of this group and all earlier ones: the mirror has them.
    ///
    /// # Errors
    /// A message for people.
    fn remove_until(&mut self, group: u64) -> Result<(), String>;

    /// Returns the bytes that are kept, and the number of whole groups.
    fn kept(&self) -> (u64, u64);
}

/// The place of a record in a spool: bytes since the spool was opened for its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct SpoolPlace(pub u64);

/// A record that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptRecord {
    /// The body of the message, as it came.
    pub body: Vec<u8>,
    /// The place of the next record.
    pub next: SpoolPlace,
}
