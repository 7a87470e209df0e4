//! The options of a table.

/// Settings of a [`super::FjallTable`]. They are not stored: each open may choose others.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Memory for the block cache and the memtables, in bytes. 96 MiB by default, at least 8 MiB.
    pub memory_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { memory_bytes: 96 << 20 }
    }
}

impl Options {
    /// Returns the size of the block cache, in bytes.
    pub(super) fn cache_bytes(&self) -> u64 {
        self.memory_bytes.max(8 << 20) / 3
    }

    /// Returns the journal bytes after which a memtable is sealed. Up to two and a half times as
    /// many may be in memory.
    pub(super) fn seal_bytes(&self) -> u64 {
        (self.memory_bytes.max(8 << 20) / 6).min(32 << 20)
    }
}
