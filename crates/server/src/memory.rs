//! How the memory of a server is divided. `docs/limits.md` has the table.

use pelago_store::table::fjall;
use pelago_wire::limits;

/// Bytes that the parts of a server may take, each for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The engine's block cache and memtables.
    pub table: u64,
    /// The row caches.
    pub rows: u64,
    /// The fingerprint filters.
    pub filters: u64,
    /// Bytes of open files that are not in content files yet.
    pub opens: u64,
    /// The client's table of inodes, where the client is in this process.
    pub inodes: u64,
}

/// One limit and how much of it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Whose limit: its name in [`pelago_wire::limits`].
    pub name: &'static str,
    /// Bytes that may be used.
    pub limit: u64,
    /// Bytes that are used.
    pub used: u64,
}

/// Bytes of all limits together unless told otherwise: 160 MiB.
pub const MEMORY_BYTES: u64 = (limits::TABLE_MEMORY_BYTES
    + limits::ROW_CACHE_BYTES
    + limits::FILTER_BYTES
    + limits::OPEN_BYTES
    + limits::INODE_TABLE_BYTES) as u64;

/// Returns the bytes of the client's table of inodes where all limits together are `total` bytes.
#[must_use]
pub fn inode_table_bytes(total: u64) -> u64 {
    Memory::of(total).inodes
}

/// The engine cannot live with less.
const LEAST_TABLE_BYTES: u64 = 8 << 20;

impl Memory {
    /// Divides `total` bytes as the named limits divide [`MEMORY_BYTES`].
    #[must_use]
    pub(crate) fn of(total: u64) -> Self {
        let share = |limit: usize| {
            let exact = u128::from(total) * limit as u128 / u128::from(MEMORY_BYTES);
            u64::try_from(exact).unwrap_or(u64::MAX)
        };
        Self {
            table: share(limits::TABLE_MEMORY_BYTES).max(LEAST_TABLE_BYTES),
            rows: share(limits::ROW_CACHE_BYTES),
            filters: share(limits::FILTER_BYTES),
            opens: share(limits::OPEN_BYTES),
            inodes: share(limits::INODE_TABLE_BYTES),
        }
    }

    /// What the table is opened with.
    #[must_use]
    pub(crate) const fn table_options(&self) -> fjall::Options {
        fjall::Options { memory_bytes: self.table }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_the_default() {
        let memory = Memory::of(MEMORY_BYTES);
        assert_eq!(MEMORY_BYTES, 160 << 20);
        assert_eq!(memory.table, limits::TABLE_MEMORY_BYTES as u64);
        assert_eq!(memory.rows, limits::ROW_CACHE_BYTES as u64);
        assert_eq!(memory.filters, limits::FILTER_BYTES as u64);
        assert_eq!(memory.opens, limits::OPEN_BYTES as u64);
        assert_eq!(memory.inodes, limits::INODE_TABLE_BYTES as u64);
        assert_eq!(Memory::of(0).table, LEAST_TABLE_BYTES);
        let least = Memory::of(limits::LEAST_MEMORY_BYTES);
        assert_eq!(least.table, LEAST_TABLE_BYTES, "the least total gives the table its least");
        let Memory { table, rows, filters, opens, inodes } = least;
        assert_eq!(table + rows + filters + opens + inodes, limits::LEAST_MEMORY_BYTES);
    }
}
