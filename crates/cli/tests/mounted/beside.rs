//! Comparison with the disk below, and other users.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use pelago_wire::limits;
use rustix::fs::{Mode, OFlags, open, statfs};
use rustix::process::{Gid, Resource, Rlimit, Uid, geteuid, getrlimit, setrlimit};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use crate::harness::program::until;
use crate::harness::volume::{Volume, folder};
use crate::mounted::on_mount;

/// `EXT4_SUPER_MAGIC`.
const EXT4: u64 = 0xEF53;

/// An unprivileged user.
pub(crate) const NOBODY: u32 = 65_534;

/// Runs `work` on a mount, and if the disk below is ext4, in a folder beside it. A test that passes
/// on both cannot share an error with the product.
pub(crate) fn on_both(work: impl Fn(&Path)) {
    let run = |root: &Path| {
        // Accessible to other users, independent of the umask.
        fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
        work(root);
    };
    let (_folder, below) = folder();
    if is_ext4(&below) {
        run(&below);
    }
    on_mount(run);
}

/// Returns whether this path is on ext4.
pub(crate) fn is_ext4(path: &Path) -> bool {
    u64::try_from(statfs(path).unwrap().f_type) == Ok(EXT4)
}

/// Returns whether a test may switch to another user.
pub(crate) fn can_be_others() -> bool {
    let may = geteuid().is_root();
    if !may {
        println!("skipped: needs root to be another user");
    }
    may
}

/// Runs `work` in a thread of this user and returns its value.
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

/// Returns a path to a directory, through a descriptor, that other users can reach although the
/// path to it is closed to them.
pub(crate) struct Door {
    pub(crate) file: File,
}

impl Door {
    pub(crate) fn to(dir: &Path) -> Self {
        Self::of(File::open(dir).unwrap())
    }

    /// Returns a path to an open file, which may have no name.
    pub(crate) fn of(file: File) -> Self {
        Self { file }
    }

    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

/// Removes files that descriptors of `O_PATH` hold, one more than a mount opens for that. Returns
/// the descriptors; the file of the first one is gone.
pub(crate) fn one_more_than_is_held(volume: &Volume) -> Vec<Door> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let paths: Vec<PathBuf> =
        (0..=limits::HELD_INODES).map(|number| volume.files().join(number.to_string())).collect();
    paths.iter().for_each(|path| fs::write(path, "x").unwrap());
    volume.wait_until_closed();
    let hold = |path: &PathBuf| open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let doors: Vec<Door> = paths.iter().map(|path| Door::of(File::from(hold(path)))).collect();
    let held = || volume.run("status", &["--json"]).expect_success().json()["open_files"].as_u64();
    fs::remove_file(&paths[0]).unwrap();
    until("the first one is held", || held() == Some(1));
    paths[1..].iter().for_each(|path| fs::remove_file(path).unwrap());
    until("the first one is gone", || File::open(doors[0].path()).is_err());
    doors
}
