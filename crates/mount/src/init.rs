//! Options of the negotiation with the kernel when a mount begins.

use std::num::NonZero;
use std::thread;
use std::time::Duration;

use pelago_fuse::init::{Capabilities, InitOptions};
use pelago_wire::limits;

/// Lifetime of names, their absence and attributes in the kernel's cache. The server's own mount
/// sees every change of its programs, and gets the changes by others (`kernel_cache`).
pub const TTL: Duration = Duration::from_secs(3600);

/// Longest lifetime in the kernel's cache of names and attributes under a lease. The kernel counts
/// only the time in which the machine is awake, and a lease also ends while it sleeps.
pub const LEASED_TTL: Duration = Duration::from_secs(2);

/// Longest time that a program may take to install an entry, after its reply was written.
pub(crate) const INSTALLS: Duration = Duration::from_secs(1);

/// Lifetime in the kernel's cache of the attributes of an entry, while other sessions exist and
/// there are no leases. A change by another session waits for as long if an entry on its way to the
/// kernel is never installed, so it is shorter than what clients wait for an answer.
pub(crate) const ENTRY_TTL: Duration = Duration::from_secs(8);

/// Limit of concurrent requests for which no process waits (readahead, RELEASE).
const BACKGROUND: u16 = 64;
/// Limit of readahead in bytes; the kernel offers less by default.
const READAHEAD_BYTES: u32 = 1 << 20;
/// Limit of readahead in bytes for a process with little memory. Each request that reads ahead
/// takes as much in the mount, and in the server if that is another process; several are under way
/// for each reader.
const SMALL_READAHEAD_BYTES: u32 = 128 << 10;

/// Wanted capabilities, each with its reason. Never `WRITEBACK_CACHE`: Linux enables no passthrough
/// beside it, and it hides changes of other clients. Never `ATOMIC_O_TRUNC`: the kernel notices
/// that a program is being executed (`ETXTBSY`) only after an open with `O_RDONLY | O_TRUNC`, which
/// would have truncated it by then.
const WANTED: [Capabilities; 14] = [
    // Reads of one file run concurrently.
    Capabilities::ASYNC_READ,
    // The kernel drops the pages of a file if its size or mtime has changed.
    Capabilities::AUTO_INVAL_DATA,
    // Listings have attributes. Never `READDIRPLUS_AUTO`: the kernel then requests those of the
    // first names only, until a program has requested others one by one.
    Capabilities::DO_READDIRPLUS,
    // Lookups and listings of one directory run concurrently.
    Capabilities::PARALLEL_DIROPS,
    // Since 7.33 (Linux 5.13) each request says whether it clears setuid and setgid bits, so that
    // the kernel reads no attribute before a write.
    Capabilities::HANDLE_KILLPRIV_V2,
    // The kernel checks access control lists; the server keeps modes consistent with them.
    Capabilities::POSIX_ACL,
    // The server applies the umask, because a default access control list overrides it.
    Capabilities::DONT_MASK,
    // The target of a symbolic link never changes.
    Capabilities::CACHE_SYMLINKS,
    // Large direct I/O is split into concurrent requests.
    Capabilities::ASYNC_DIO,
    // File handles (NFS) stay valid after the kernel has forgotten the file.
    Capabilities::EXPORT_SUPPORT,
    // Locks exclude the programs of other mounts too (decision 13). At a close Linux sends no
    // unlock: FLUSH alone says that the `fcntl` locks of a process have ended. So no open gets
    // `FOPEN_NOFLUSH`, which would leave them set.
    Capabilities::POSIX_LOCKS,
    Capabilities::FLOCK_LOCKS,
    // Files opened for direct I/O can be mapped (7.39, Linux 6.6); an older kernel refuses shared
    // mappings of them.
    Capabilities::DIRECT_IO_ALLOW_MMAP,
    Capabilities::MAX_PAGES,
];

/// Returns the options of the negotiation. With `passthrough` the kernel shall accept descriptors
/// of files. Our mount then counts as stacked on the file system of those files, which must not be
/// stacked itself (`max_stack_depth` 1): on an overlay the lease that shows whether a file is still
/// mapped (`pelago_store::os`) is granted although a mapping lives.
pub(crate) fn init_options(passthrough: bool, max_readahead: u32) -> InitOptions {
    let wanted = WANTED.iter().fold(0, |all, one| all | one.0);
    let max_write = u32::try_from(limits::IO_BYTES).expect("a request is far below 4 GiB");
    InitOptions {
        capabilities: Capabilities(wanted),
        max_write,
        max_readahead,
        max_background: BACKGROUND,
        passthrough,
    }
}

/// Returns how many bytes the kernel shall read ahead in a file. A limit of the inode table below
/// the default means that the process shall take little memory.
pub(crate) const fn readahead_bytes(inode_table_bytes: u64) -> u32 {
    if inode_table_bytes < limits::INODE_TABLE_BYTES as u64 {
        SMALL_READAHEAD_BYTES
    } else {
        READAHEAD_BYTES
    }
}

/// Returns the number of threads that read requests: one for each processor, at least two, so that
/// a blocked one does not stop the mount, and at most four, since more of them only contend.
pub(crate) fn event_loops() -> usize {
    thread::available_parallelism().map_or(2, NonZero::get).clamp(2, 4)
}
