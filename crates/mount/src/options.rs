//! Options of a mount.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use pelago_wire::{InodeId, LeaseTimes};

/// Options of a mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The mount point, an empty directory.
    pub mount_point: PathBuf,
    /// The source that `df` and `mount` show.
    pub fs_name: String,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// Which reads update atime.
    pub atime: Atime,
    /// What the mount trusts in the volume's files; only root may trust anything.
    pub trusts: Trusts,
    /// Whether to use passthrough, if the kernel accepts it; the bytes must be on this machine.
    /// [`crate::Mount::passthrough`] returns the result.
    pub passthrough: bool,
    /// Whether requests come over io_uring.
    pub io_uring: IoUring,
    /// Limit of the inode table in bytes, beyond which the kernel is asked to forget inodes.
    pub inode_table_bytes: u64,
    /// What the kernel may keep of what it was answered.
    pub keeps: Keeps,
}

/// Whether requests come over io_uring, with a queue and a thread for each processor, instead of by
/// the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IoUring {
    /// If the kernel offers it, and it is faster: [`pelago_fuse::RingUse::IfFaster`].
    Auto,
    /// Or the mount fails. If the kernel refuses the queues after the mount, the device serves.
    Always,
    /// By the device.
    #[default]
    Never,
}

/// What the kernel may keep of the replies of a mount.
#[derive(Clone, Default)]
pub enum Keeps {
    /// Names, attributes, listings and pages, until they change. For the mount in the server's own
    /// process, which is told of changes by others ([`crate::Mount::local_cache`]).
    ///
    /// Of nodes of other sites nothing is kept, as with [`Keeps::Nothing`]: the server is told of
    /// no change of these. The server is that of the first site of the volume.
    #[default]
    Everything,
    /// As [`Keeps::Everything`], in the process of the server of this site.
    EverythingOfSite(u16),
    /// Nothing: the server is asked every time, and files bypass the page cache. For a mount that
    /// is told of nothing; it uses no passthrough.
    Nothing,
    /// What is under a lease, for as long as that lasts and never longer than
    /// [`LEASED_TTL`](crate::LEASED_TTL). For a mount over an access that keeps answers under
    /// leases, and tells the kernel through [`crate::Mount::local_cache`] what is recalled; it uses
    /// no passthrough. What is under no lease is kept as with [`Keeps::Nothing`].
    ///
    /// The leases are asked while a reply is sent, which the methods of that cache wait for: to
    /// answer, they must not wait for one of these.
    Leased(Arc<dyn LeaseTimes>),
}

impl Keeps {
    /// Returns the site of whose nodes everything is kept; `None` if there is none.
    pub(crate) const fn site(&self) -> Option<u16> {
        match self {
            Self::Everything => Some(InodeId::ROOT.site()),
            Self::EverythingOfSite(site) => Some(*site),
            Self::Nothing | Self::Leased(_) => None,
        }
    }
}

impl fmt::Debug for Keeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Everything => "Everything",
            Self::EverythingOfSite(_) => "EverythingOfSite",
            Self::Nothing => "Nothing",
            Self::Leased(_) => "Leased",
        })
    }
}

/// Which reads of a file update its atime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Atime {
    /// The first read after a change, and one read a day (`relatime`).
    #[default]
    Relative,
    /// No reads (`noatime`).
    Never,
    /// All reads (`strictatime`). They bypass the page cache, so that the server sees each.
    Always,
}

/// What a mount trusts in a volume's files; nothing by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trusts {
    /// The setuid and setgid bits and capabilities of programs (`suid`).
    pub suid: bool,
    /// Device files (`dev`).
    pub dev: bool,
}
