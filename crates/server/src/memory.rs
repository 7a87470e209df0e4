//! The division of a server's memory. `docs/limits.md` has the table.

use pelago_store::table::fjall;
use pelago_wire::limits;

/// The limit in bytes for the memory of each part of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryLimits {
    /// The engine's block cache and memtables.
    pub table: u64,
    /// The row cache.
    pub rows: u64,
    /// The fingerprint filters.
    pub filters: u64,
    /// Bytes of open files that are in no content file yet.
    pub opens: u64,
    /// The client's table of inodes, if the client is in this process.
    pub inodes: u64,
}

/// A limit of memory, and how much of it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// The limit's name in [`pelago_wire::limits`].
    pub name: &'static str,
    /// Bytes that may be used.
    pub limit: u64,
    /// Bytes that are used.
    pub used: u64,
}

/// The default of all limits together in bytes: 160 MiB.
pub const MEMORY_BYTES: u64 = (limits::TABLE_MEMORY_BYTES
    + limits::ROW_CACHE_BYTES
    + limits::FILTER_BYTES
    + limits::OPEN_BYTES
    + limits::INODE_TABLE_BYTES) as u64;

/// Returns the limit in bytes of the client's table of inodes, if all limits together are `total`
/// bytes.
#[must_use]
pub fn inode_table_bytes(total: u64) -> u64 {
    MemoryLimits::of(total).inodes
}

/// Returns the limit of leases of all sessions together, if all memory limits together are `total`
/// bytes.
///
/// The memory of leases is not part of these limits, so a small process has few leases: one with
/// limits of 48 MiB must run in 64 MiB.
#[must_use]
pub(crate) fn most_leases(total: u64) -> usize {
    if total >= MEMORY_BYTES {
        return limits::LEASES;
    }
    let share = total.saturating_sub(limits::LEAST_MEMORY_BYTES) / 20 / LEASE_BYTES;
    usize::try_from(share).unwrap_or(limits::LEASES).clamp(1, limits::LEASES)
}

/// Returns how many nodes of another server, and how many names, a process caches under leases, if
/// all memory limits together are `total` bytes. Their memory is no part of these, as with leases
/// that a server grants.
#[must_use]
pub fn most_facts(total: u64) -> usize {
    if total >= MEMORY_BYTES {
        return limits::HOLDER_NODES;
    }
    let share = total.saturating_sub(limits::LEAST_MEMORY_BYTES) / 10 / FACT_BYTES;
    usize::try_from(share).unwrap_or(limits::HOLDER_NODES).clamp(1024, limits::HOLDER_NODES)
}

/// Returns the limits of what is fetched from other sites, if all memory limits together are
/// `total` bytes. Its memory is no part of these, as with [`most_leases`].
#[must_use]
pub(crate) fn fetch_limits(total: u64) -> FetchLimits {
    match total >= MEMORY_BYTES {
        true => FetchLimits {
            bytes: limits::FETCHED_BYTES,
            copy_jobs: limits::COPY_JOBS,
            copied_files: limits::COPIED_FILES,
            facts: most_facts(total),
        },
        false => {
            let bytes = limits::FETCH_AHEAD_BYTES / 2;
            let spare = total.saturating_sub(limits::LEAST_MEMORY_BYTES) / 20 / COPIED_FILE_BYTES;
            FetchLimits {
                bytes,
                copy_jobs: bytes / limits::FETCH_BLOCK_BYTES,
                copied_files: usize::try_from(spare).unwrap_or(1).clamp(1, limits::COPIED_FILES),
                facts: most_facts(total),
            }
        }
    }
}

/// The limits of what is fetched from another site.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FetchLimits {
    /// Bytes in memory of each other site.
    pub bytes: usize,
    /// Blocks that wait to be written as copies.
    pub copy_jobs: usize,
    /// Files of which there are copies.
    pub copied_files: usize,
    /// Nodes of each other site, and names.
    pub facts: usize,
}

/// The memory that a file takes of which there are copies: 680 bytes were measured with one block,
/// in an office that had read 20,000 small files of another one.
const COPIED_FILE_BYTES: u64 = 700;

/// The memory of a node's attributes and of its name, in a listing too, by their sizes in hash
/// tables that are three quarters full. Names alone take 200 bytes.
const FACT_BYTES: u64 = 400;

/// The most memory that a lease takes. 300 bytes were measured: an entry in each of two hash tables
/// that have just grown to twice their size, and a list of its holders; 170 in full tables. Its
/// number and its place in the order of grants take 80 more at most, by their sizes.
const LEASE_BYTES: u64 = 380;

/// The least memory in bytes with which the engine works.
const TABLE_BYTES_MIN: u64 = 8 << 20;

/// The most memory that the caches of a small process leave free. A server in a group of 64 MiB had
/// 25 MiB of its own beside its caches, with two far mounts and another office, and 12 MiB of the
/// kernel's for its files.
const MOST_SPARED_BYTES: u64 = 24 << 20;

impl MemoryLimits {
    /// Divides `total` bytes in the proportions of the default limits. Below the default some bytes
    /// are left for memory without a limit of its own, because a control group has little room
    /// above the total.
    #[must_use]
    pub(crate) fn of(total: u64) -> Self {
        let spared = match total < MEMORY_BYTES {
            true => {
                (total.saturating_sub(limits::LEAST_MEMORY_BYTES) / 8 * 7).min(MOST_SPARED_BYTES)
            }
            false => 0,
        };
        let share = |limit: usize| {
            let exact = u128::from(total - spared) * limit as u128 / u128::from(MEMORY_BYTES);
            u64::try_from(exact).unwrap_or(u64::MAX)
        };
        Self {
            table: share(limits::TABLE_MEMORY_BYTES).max(TABLE_BYTES_MIN),
            rows: share(limits::ROW_CACHE_BYTES),
            filters: share(limits::FILTER_BYTES),
            opens: share(limits::OPEN_BYTES),
            inodes: share(limits::INODE_TABLE_BYTES),
        }
    }

    /// Returns the options with which the table is opened.
    #[must_use]
    pub(crate) const fn table_options(&self) -> fjall::Options {
        fjall::Options { memory_bytes: self.table }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_gives_each_part_its_named_limit() {
        assert_eq!(MEMORY_BYTES, 160 << 20);
        let expected = MemoryLimits {
            table: limits::TABLE_MEMORY_BYTES as u64,
            rows: limits::ROW_CACHE_BYTES as u64,
            filters: limits::FILTER_BYTES as u64,
            opens: limits::OPEN_BYTES as u64,
            inodes: limits::INODE_TABLE_BYTES as u64,
        };
        assert_eq!(MemoryLimits::of(MEMORY_BYTES), expected);
    }

    #[test]
    fn the_table_never_gets_less_than_the_engine_needs() {
        assert_eq!(MemoryLimits::of(0).table, TABLE_BYTES_MIN);
    }

    #[test]
    fn a_small_process_leaves_memory_for_what_has_no_limit() {
        let sum = |total| {
            let MemoryLimits { table, rows, filters, opens, inodes } = MemoryLimits::of(total);
            table + rows + filters + opens + inodes
        };
        assert_eq!(sum(48 << 20) >> 20, 23);
        assert_eq!(sum(MEMORY_BYTES - (1 << 20)) >> 20, 135);
        assert_eq!(sum(2 * MEMORY_BYTES), 2 * MEMORY_BYTES);
    }

    #[test]
    fn a_small_process_caches_fewer_facts_of_other_servers() {
        assert_eq!(most_facts(MEMORY_BYTES), limits::HOLDER_NODES);
        assert_eq!(most_facts(48 << 20), 7340);
        assert_eq!(most_facts(0), 1024, "a reply of a listing fits");
    }

    #[test]
    fn the_least_total_is_enough_for_every_part() {
        let MemoryLimits { table, rows, filters, opens, inodes } =
            MemoryLimits::of(limits::LEAST_MEMORY_BYTES);
        assert_eq!(table, TABLE_BYTES_MIN);
        assert_eq!(table + rows + filters + opens + inodes, limits::LEAST_MEMORY_BYTES);
    }
}
