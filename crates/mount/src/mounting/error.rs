//! Errors of mounting and unmounting.

use std::io;
use std::path::PathBuf;

use pelago_fuse::NoRing;

/// Why mounting failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point does not exist.
    #[error("the mount point {} does not exist", .0.display())]
    PointMissing(PathBuf),
    /// The mount point is not a directory.
    #[error("the mount point {} is not a directory", .0.display())]
    PointNotDirectory(PathBuf),
    /// The mount point has entries, which the mount would hide.
    #[error("the mount point {} is not empty", .0.display())]
    PointNotEmpty(PathBuf),
    /// Another file system is mounted there.
    #[error("{source_name} is mounted on {} already", .point.display())]
    PointBusy {
        /// The mount point.
        point: PathBuf,
        /// The source of the other mount.
        source_name: String,
    },
    /// The process of the mount there is gone; it must be unmounted first.
    #[error("the mount on {} is dead: its process ended without unmounting", .0.display())]
    PointDead(PathBuf),
    /// The kernel has no FUSE, or `/dev/fuse` is missing.
    #[error(
        "there is no /dev/fuse: the kernel's FUSE module is not loaded, or a container hides it"
    )]
    NoDevice,
    /// This user may not mount, or not there.
    #[error("no permission to mount on {}", .0.display())]
    NoPermission(PathBuf),
    /// The user is not root, and `fusermount3` is not installed.
    #[error("fusermount3 is not installed, and only root can mount without it")]
    NoHelper,
    /// `fusermount3` refused for another reason.
    #[error("fusermount3 refused: {says}")]
    Helper {
        /// Its error message.
        says: String,
    },
    /// Requests are to come over io_uring and nothing else, and cannot.
    #[error("requests cannot come over io_uring: {0}")]
    NoRing(#[source] NoRing),
    /// Any other error of the kernel.
    #[error("the kernel refused the mount")]
    Kernel(#[source] io::Error),
}

/// Why unmounting failed.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Processes use the mount; [`crate::busy::mount_users`] finds them.
    #[error("{} is in use", .0.display())]
    Busy(PathBuf),
    /// This user may not unmount it.
    #[error("no permission to unmount {}", .0.display())]
    NoPermission(PathBuf),
    /// Any other error.
    #[error("{} cannot be unmounted", .point.display())]
    Kernel {
        /// The mount point.
        point: PathBuf,
        /// The error of the kernel or of `fusermount3`.
        #[source]
        source: io::Error,
    },
}
