//! Counters of an HTTP server.

/// Bytes and clients of an HTTP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HttpTraffic {
    /// Bytes of files that were read from the disk, as far as the kernel reports it.
    pub disk_bytes: u64,
    /// Bytes of files that were sent to clients.
    pub served_bytes: u64,
    /// Extents that were read; each read serves all clients that want the extent.
    pub extents_read: u64,
    /// Extents that are in memory now.
    pub extents_in_memory: u64,
    /// Clients that wait for a read now.
    pub askers: u64,
    /// Clients that get extents from memory now.
    pub clients: u64,
    /// Files that are being delivered to these clients.
    pub files: u64,
}
