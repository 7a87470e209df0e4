//! What is agreed with the kernel when a mount begins.

use std::num::NonZero;
use std::thread;
use std::time::Duration;

use fuser::{InitFlags, KernelConfig};
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
const WANTED: [InitFlags; 10] = [
    // Pages go when size or time of a file turn out to be others than the kernel thought.
    InitFlags::FUSE_AUTO_INVAL_DATA,
    // Listings bring attributes. Never `READDIRPLUS_AUTO`: the kernel then wants none but for the
    // first names, until somebody has asked for those of others one by one. So whoever wants only
    // names makes the kernel know every file of a directory; it would take single entries without
    // attributes (a node of zero), but `fuser` writes one number as the node and as `d_ino`, and
    // programs skip entries whose `d_ino` is zero.
    InitFlags::FUSE_DO_READDIRPLUS,
    // Lookups and listings of one directory at the same time.
    InitFlags::FUSE_PARALLEL_DIROPS,
    // We clear setuid bits when told to, and the kernel asks for no attribute before each write.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    // The kernel asks us for access control lists and checks them; we keep modes in step with them.
    InitFlags::FUSE_POSIX_ACL,
    // What is made comes with the umask, which a default access control list overrules.
    InitFlags::FUSE_DONT_MASK,
    // A link never changes what it says.
    InitFlags::FUSE_CACHE_SYMLINKS,
    // Large direct reads and writes are split and sent at once.
    InitFlags::FUSE_ASYNC_DIO,
    // What may not be kept can be mapped all the same.
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    InitFlags::FUSE_MAX_PAGES,
];

/// Asks the kernel for what we want and it has. The null file system of the benchmarks asks for
/// the same.
pub fn negotiate(config: &mut KernelConfig) {
    let offered = config.capabilities();
    for flag in WANTED {
        if offered.contains(flag) && config.add_capabilities(flag).is_err() {
            tracing::warn!(?flag, "the kernel took back an ability it had offered");
        }
    }
    let write_bytes = u32::try_from(limits::IO_BYTES).expect("a request is far below 4 GiB");
    let settled =
        [config.set_max_write(write_bytes).is_ok(), config.set_max_background(BACKGROUND).is_ok()];
    debug_assert_eq!(settled, [true, true]);
    if let Err(most) = config.set_max_readahead(READAHEAD_BYTES)
        && config.set_max_readahead(most).is_err()
    {
        tracing::debug!(most, "the kernel reads nothing ahead");
    }
}

/// Agrees with the kernel that it may be given descriptors of files; answers whether it can. Our
/// mount then counts as one above what holds the bytes, which must not be such a one itself: on an
/// overlay nobody can tell whether a file is still mapped.
pub(crate) fn negotiate_passthrough(config: &mut KernelConfig) -> bool {
    config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
        && config.set_max_stack_depth(1).is_ok()
}

/// Threads that take requests: as many as processors, two at least, so that one that is held up
/// does not stop the mount, and four at the most, beyond which they only contend.
#[must_use]
pub fn event_loops() -> usize {
    thread::available_parallelism().map_or(2, NonZero::get).clamp(2, 4)
}
