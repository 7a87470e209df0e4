//! Batches: changes that a table applies together or not at all.

/// Greatest length of a key, in bytes. The least is one byte.
pub const MAX_KEY_BYTES: usize = u16::MAX as usize;

/// One change of a [`Batch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Writes the row with this key and this value.
    Put(Vec<u8>, Vec<u8>),
    /// Deletes the row with this key, if there is one.
    Delete(Vec<u8>),
}

impl Change {
    /// Returns the key of the row.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Put(key, _) | Self::Delete(key) => key,
        }
    }
}

/// Changes in the order in which they were added. Of two changes of one key the later wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    changes: Vec<Change>,
    bytes: usize,
    may_use_reserve: bool,
}

impl Batch {
    /// Returns an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a write of a row.
    ///
    /// # Panics
    /// If `key` is empty or longer than [`MAX_KEY_BYTES`]. No key of [`crate::key`] is.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        assert!((1..=MAX_KEY_BYTES).contains(&key.len()), "a key has 1 to 65,535 bytes");
        self.bytes += key.len() + value.len();
        self.changes.push(Change::Put(key, value));
    }

    /// Adds the deletion of a row, which need not exist.
    ///
    /// # Panics
    /// As [`Batch::put`].
    pub fn delete(&mut self, key: Vec<u8>) {
        assert!((1..=MAX_KEY_BYTES).contains(&key.len()), "a key has 1 to 65,535 bytes");
        self.bytes += key.len();
        self.changes.push(Change::Delete(key));
    }

    /// Lets the batch use the last free blocks of a full disk, which other batches must leave.
    /// For batches that free space, and for those without which the table cannot be used.
    pub fn allow_reserve(&mut self) {
        self.may_use_reserve = true;
    }

    /// Returns whether [`Batch::allow_reserve`] was called.
    #[must_use]
    pub fn may_use_reserve(&self) -> bool {
        self.may_use_reserve
    }

    /// Returns the changes in the order in which they were added.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Returns the length of all keys and values together, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether the batch has no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}
