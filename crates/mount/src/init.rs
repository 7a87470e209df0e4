//! What is agreed with the kernel when a mount begins.

use std::num::NonZero;
use std::thread;
use std::time::Duration;

use pelago_fuse::init::{Capabilities, InitOptions};
use pelago_wire::limits;

/// How long the kernel may keep names, their absence and attributes. One mount sees every change,
/// so that nothing grows old; this becomes the lease time left as soon as there are leases.
pub const TTL: Duration = Duration::from_secs(3600);

/// Requests that the kernel sends ahead without a process waiting for each (readahead, release).
const BACKGROUND: u16 = 64;
/// The most the kernel may read ahead, in bytes; it offers less unless told otherwise.
const READAHEAD_BYTES: u32 = 1 << 20;

/// Each with its reason. Never `WRITEBACK_CACHE`: it excludes passthrough and hides changes made
/// elsewhere. No locks: the kernel's own are right for one mount.
/// Never `ATOMIC_O_TRUNC`: the kernel finds that a program is being executed (`ETXTBSY`) behind an
/// open with `O_RDONLY | O_TRUNC`, which would have emptied it by then.
const WANTED: [Capabilities; 12] = [
    // Reads of one file at the same time.
    Capabilities::ASYNC_READ,
    // Pages go when size or time of a file turn out to be others than the kernel thought.
    Capabilities::AUTO_INVAL_DATA,
    // Listings bring attributes. Never `READDIRPLUS_AUTO`: the kernel then wants none but for the
    // first names, until somebody has asked for those of others one by one.
    Capabilities::DO_READDIRPLUS,
    // Lookups and listings of one directory at the same time.
    Capabilities::PARALLEL_DIROPS,
    // We clear setuid bits when told to, and the kernel asks for no attribute before each write.
    Capabilities::HANDLE_KILLPRIV_V2,
    // The kernel asks us for access control lists and checks them; we keep modes in step with them.
    Capabilities::POSIX_ACL,
    // What is made comes with the umask, which a default access control list overrules.
    Capabilities::DONT_MASK,
    // A link never changes what it says.
    Capabilities::CACHE_SYMLINKS,
    // Large direct reads and writes are split and sent at once.
    Capabilities::ASYNC_DIO,
    // File handles lead to files that the kernel has forgotten.
    Capabilities::EXPORT_SUPPORT,
    // What may not be kept can be mapped all the same.
    Capabilities::DIRECT_IO_ALLOW_MMAP,
    Capabilities::MAX_PAGES,
];

/// What to ask the kernel for; it gives what it has. With `passthrough`, that it may be given
/// descriptors of files: our mount then counts as one above what holds the bytes, which must not be
/// such a one itself, for on an overlay nobody can tell whether a file is still mapped.
pub(crate) fn init_options(passthrough: bool) -> InitOptions {
    let wanted = WANTED.iter().fold(0, |all, one| all | one.0);
    let max_write = u32::try_from(limits::IO_BYTES).expect("a request is far below 4 GiB");
    InitOptions {
        capabilities: Capabilities(wanted),
        max_write,
        max_readahead: READAHEAD_BYTES,
        max_background: BACKGROUND,
        passthrough,
    }
}

/// Threads that take requests: as many as processors, two at least, so that one that is held up
/// does not stop the mount, and four at the most, beyond which they only contend.
pub(crate) fn event_loops() -> usize {
    thread::available_parallelism().map_or(2, NonZero::get).clamp(2, 4)
}
