//! What a server counts.

/// Bytes and clients of an HTTP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HttpTraffic {
    /// Bytes of files that were read from the disk, as far as the kernel tells.
    pub disk_bytes: u64,
    /// Bytes of files that were given to clients.
    pub served_bytes: u64,
    /// Extents that were read, each for all clients that want it.
    pub extents_read: u64,
    /// Extents that are in memory now.
    pub extents_in_memory: u64,
    /// Clients that ask for a read now.
    pub askers: u64,
    /// Clients that get extents from memory now.
    pub clients: u64,
    /// Files of which they get them.
    pub files: u64,
}
