//! The disk below as the measure, and other users.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::statfs;
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use crate::harness::volume::folder;
use crate::on_mount;

/// `EXT4_SUPER_MAGIC`.
const EXT4: u64 = 0xEF53;

/// Somebody without privilege.
pub(crate) const NOBODY: u32 = 65_534;

/// Runs `work` on a mount, and in a folder beside it where that is ext4: what a test expects of the
/// one is what it finds on the other, so that the test cannot be wrong together with the product.
pub(crate) fn on_both(work: impl Fn(&Path)) {
    let run = |root: &Path| {
        // Whatever the umask is: others come in.
        fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
        work(root);
    };
    let (_folder, below) = folder();
    if is_ext4(&below) {
        run(&below);
    }
    on_mount(run);
}

/// Whether the disk that holds this path is ext4: how large a file can be is up to the disk.
pub(crate) fn is_ext4(path: &Path) -> bool {
    u64::try_from(statfs(path).unwrap().f_type) == Ok(EXT4)
}

/// Whether a test may become somebody else.
pub(crate) fn can_be_others() -> bool {
    let may = geteuid().is_root();
    if !may {
        println!("skipped: needs root to be somebody else");
    }
    may
}

/// What `work` answers when a thread of this user runs it.
pub(crate) fn as_user<T: Send>(user: u32, groups: &[u32], work: impl FnOnce() -> T + Send) -> T {
    let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let run = || {
        set_thread_groups(&groups).unwrap();
        set_thread_gid(Gid::from_raw(user)).unwrap();
        set_thread_uid(Uid::from_raw(user)).unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}

pub(crate) fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    as_user(NOBODY, &[], work)
}

/// A directory that others reach though the way to it is closed to them: through a descriptor.
pub(crate) struct Door {
    pub(crate) file: File,
}

impl Door {
    pub(crate) fn to(dir: &Path) -> Self {
        Self::of(File::open(dir).unwrap())
    }

    /// A way to a file that is open, whether it has a name or not.
    pub(crate) fn of(file: File) -> Self {
        Self { file }
    }

    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}
