//! Changes that are applied together or not at all.

/// Longest key a table takes, in bytes. The shortest is one byte.
pub const MAX_KEY_BYTES: usize = u16::MAX as usize;

/// One change of a [`Batch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The row at the key becomes the value.
    Put(Vec<u8>, Vec<u8>),
    /// No row is at the key afterwards; that there was none before is no error.
    Delete(Vec<u8>),
}

impl Change {
    /// The key it is about.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Put(key, _) | Self::Delete(key) => key,
        }
    }
}

/// Changes in the order in which they were added; a later one of the same key wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    changes: Vec<Change>,
    bytes: usize,
    frees: bool,
}

impl Batch {
    /// No change yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The row at `key` becomes `value`.
    ///
    /// # Panics
    /// If `key` is empty or longer than [`MAX_KEY_BYTES`]: no row of ours has such a key.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        assert!((1..=MAX_KEY_BYTES).contains(&key.len()), "a key has 1 to 65,535 bytes");
        self.bytes += key.len() + value.len();
        self.changes.push(Change::Put(key, value));
    }

    /// No row is at `key` afterwards.
    ///
    /// # Panics
    /// As [`Batch::put`].
    pub fn delete(&mut self, key: Vec<u8>) {
        assert!((1..=MAX_KEY_BYTES).contains(&key.len()), "a key has 1 to 65,535 bytes");
        self.bytes += key.len();
        self.changes.push(Change::Delete(key));
    }

    /// This batch frees space, or the table cannot be used without it: on a full medium it may
    /// have the blocks that no other batch gets.
    pub fn set_frees(&mut self) {
        self.frees = true;
    }

    /// Whether it frees space.
    #[must_use]
    pub fn frees(&self) -> bool {
        self.frees
    }

    /// The changes, first to last.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Bytes of all keys and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}
