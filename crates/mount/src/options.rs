//! Options of a mount.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use pelago_wire::{DirectoryLeases, InodeId, LeaseTimes};

/// Options of a mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The mount point, an empty directory.
    pub mount_point: PathBuf,
    /// The source that `df` and `mount` show.
    pub fs_name: String,
    /// True for a read-only mount.
    pub read_only: bool,
    /// Reads that update atime.
    pub atime: Atime,
    /// Trust in the volume's files; only root may trust anything.
    pub trusts: Trusts,
    /// True if passthrough is wanted, if the kernel accepts it; the bytes must be on this machine.
    /// [`crate::Mount::passthrough`] returns the result.
    pub passthrough: bool,
    /// Use of io_uring.
    pub io_uring: IoUring,
    /// Limit of the inode table in bytes, beyond which the kernel is asked to forget inodes.
    pub inode_table_bytes: u64,
    /// Replies that the kernel may keep.
    pub keeps: Keeps,
}

/// Use of io_uring, with a queue and a thread for each processor, instead of the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IoUring {
    /// Used if the kernel offers it and it is faster: [`pelago_fuse::RingUse::IfFaster`].
    Auto,
    /// Used, or the mount fails. If the kernel refuses the queues after the mount, the device
    /// serves.
    Always,
    /// Not used: requests come by the device.
    #[default]
    Never,
}

/// The replies of a mount that the kernel may keep.
#[derive(Clone, Default)]
pub enum Keeps {
    /// Names, attributes, listings and pages, until they change. For the mount in the server's own
    /// process, which gets the changes by others ([`crate::Mount::local_cache`]).
    ///
    /// Nothing is kept of nodes of other sites, as with [`Keeps::Nothing`]: this server does not
    /// get their changes. The server is that of the first site of the volume.
    #[default]
    Everything,
    /// As [`Keeps::Everything`], in the process of the server of this site. Of other sites the
    /// kernel keeps directories: the names that lead to them, and their attributes, for the rest of
    /// the leases that the server has on them, and at most for [`LEASED_TTL`](crate::LEASED_TTL).
    /// The server reports their changes through [`crate::Mount::directory_cache`].
    EverythingOfSite(u16, Arc<dyn DirectoryLeases>),
    /// Nothing: the server is asked every time, and files bypass the page cache. For a mount that
    /// gets no changes by others; it uses no passthrough.
    Nothing,
    /// Replies under a lease, for the rest of the lease and at most for
    /// [`LEASED_TTL`](crate::LEASED_TTL). For a mount over a holder of leases, which reports
    /// recalls through [`crate::Mount::local_cache`]; it uses no passthrough. Replies under no
    /// lease are kept as with [`Keeps::Nothing`].
    ///
    /// The methods of [`LeaseTimes`] are called while a reply is sent, and the methods of that
    /// cache wait for replies that are being sent: so the former must not wait for one of the
    /// latter.
    Leased(Arc<dyn LeaseTimes>),
}

impl Keeps {
    /// Returns the site for whose nodes all replies are kept; `None` if there is none.
    pub(crate) const fn site(&self) -> Option<u16> {
        match self {
            Self::Everything => Some(InodeId::ROOT.site()),
            Self::EverythingOfSite(site, _) => Some(*site),
            Self::Nothing | Self::Leased(_) => None,
        }
    }
}

impl fmt::Debug for Keeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Everything => "Everything",
            Self::EverythingOfSite(..) => "EverythingOfSite",
            Self::Nothing => "Nothing",
            Self::Leased(_) => "Leased",
        })
    }
}

/// The reads of a file that update its atime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Atime {
    /// The first read after a change, and one read a day (`relatime`).
    #[default]
    Relative,
    /// No reads (`noatime`).
    Never,
    /// All reads (`strictatime`). They bypass the page cache, because a read that is served from
    /// pages causes no request.
    Always,
}

/// The trust of a mount in a volume's files; none by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trusts {
    /// The setuid and setgid bits and capabilities of programs (`suid`).
    pub suid: bool,
    /// Device files (`dev`).
    pub dev: bool,
}
