//! Mounting, and the end of it.
//!
//! As root we open the device and call `mount` ourselves; as anybody else `fusermount3` does, which
//! is setuid and hands the device over. At the end only what was mounted here is unmounted,
//! whatever else is at that path by then.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};
use pelago_fuse::{Filesystem, Session, SessionOptions};
use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::adapter::Adapter;
use crate::init::{event_loops, init_options};
use crate::inodes::Inodes;
use crate::mountinfo::{self, Liveness};
use crate::mounting::device::Attached;
use crate::passthrough::{NoPassthrough, Passthrough};
use crate::state::Preferences;
use pelago_client::Files;

mod device;

/// What to mount and how.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// An empty directory.
    pub mount_point: PathBuf,
    /// What `df` and `mount` show as the source.
    pub fs_name: String,
    /// Take no changes.
    pub read_only: bool,
    /// Which reads change the time of the last read.
    pub atime: Atime,
    /// What counts on the mount; only root may want any of it.
    pub trusts: Trusts,
    /// Reach the bytes of files by descriptors, where the files are on this machine and the kernel
    /// takes them; [`Mount::passthrough`] says what came of it.
    pub passthrough: bool,
    /// Bytes of the table of inodes; beyond them the kernel is asked to forget some.
    pub inode_table_bytes: u64,
}

/// Which reads change the time of the last read of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Atime {
    /// Those that tell something new (`relatime`): the first after a change, and one a day.
    #[default]
    Relative,
    /// None (`noatime`).
    Never,
    /// All (`strictatime`). They go past the kernel's pages, so that each is seen.
    Always,
}

/// What of a volume's files counts on its mount; nothing unless told otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trusts {
    /// setuid and setgid bits and capabilities of programs (`suid`).
    pub suid: bool,
    /// Devices (`dev`).
    pub dev: bool,
}

/// Why a mount did not come about.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// There is no such path.
    #[error("the mount point {} does not exist", .0.display())]
    PointMissing(PathBuf),
    /// Something else than a directory.
    #[error("the mount point {} is not a directory", .0.display())]
    PointNotDirectory(PathBuf),
    /// A directory with names in it, which the mount would hide.
    #[error("the mount point {} is not empty", .0.display())]
    PointNotEmpty(PathBuf),
    /// Something is mounted there.
    #[error("{source_name} is mounted on {} already", .point.display())]
    PointBusy {
        /// Where.
        point: PathBuf,
        /// What the mount calls itself.
        source_name: String,
    },
    /// What is mounted there has lost its process: unmount it first.
    #[error("the mount on {} is dead: its process ended without unmounting", .0.display())]
    PointDead(PathBuf),
    /// The kernel has no FUSE, or there is no `/dev/fuse`.
    #[error(
        "there is no /dev/fuse: the kernel's FUSE module is not loaded, or a container hides it"
    )]
    NoDevice,
    /// Not allowed to mount, or to mount there.
    #[error("no permission to mount on {}", .0.display())]
    NoPermission(PathBuf),
    /// We are not root, and the helper that mounts for others is not installed.
    #[error("fusermount3 is not installed, and only root can mount without it")]
    NoHelper,
    /// The helper refused for another reason.
    #[error("fusermount3 refused: {says}")]
    Helper {
        /// Its own words.
        says: String,
    },
    /// Anything else the kernel says.
    #[error("the kernel refused the mount")]
    Kernel(#[source] io::Error),
}

/// Why a mount did not end.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Processes have files open there; [`crate::busy::mount_users`] names them.
    #[error("{} is in use", .0.display())]
    Busy(PathBuf),
    /// Not ours to unmount.
    #[error("no permission to unmount {}", .0.display())]
    NoPermission(PathBuf),
    /// Anything else.
    #[error("{} cannot be unmounted", .point.display())]
    Kernel {
        /// Where.
        point: PathBuf,
        /// What the kernel or the helper said.
        #[source]
        source: io::Error,
    },
}

/// A mount that serves requests until it is unmounted, by us or by anybody. Dropped before that, it
/// is detached: gone from the tree at once, gone altogether when the last file in it is closed.
pub struct Mount {
    attached: Attached,
    end: Arc<End>,
    passthrough: Arc<Passthrough>,
    inodes: Arc<Inodes>,
}

/// Mounts `files`.
///
/// # Errors
/// [`MountError`]; then nothing is mounted.
pub fn mount(files: Arc<dyn Files>, options: &MountOptions) -> Result<Mount, MountError> {
    mount_at(files, options, Point::named(&options.mount_point)?)
}

/// Mounts `files` over a directory that is open, whatever its path leads to by now. The mount point
/// of the options is not looked at.
///
/// # Errors
/// [`MountError`]; then nothing is mounted.
pub fn mount_over(
    files: Arc<dyn Files>,
    options: &MountOptions,
    directory: BorrowedFd<'_>,
) -> Result<Mount, MountError> {
    let directory = directory.try_clone_to_owned().map_err(MountError::Kernel)?;
    mount_at(files, options, Point::opened(directory)?)
}

fn mount_at(
    files: Arc<dyn Files>,
    options: &MountOptions,
    point: Point,
) -> Result<Mount, MountError> {
    let MountOptions { atime, passthrough, inode_table_bytes, .. } = *options;
    let preferences = Preferences { atime, passthrough, inode_table_bytes };
    let adapter = Adapter::new(files, preferences);
    let state = Arc::clone(adapter.state());
    let shown = (Arc::clone(&state.passthrough), Arc::clone(&state.inodes));
    start(Arc::new(adapter), options, point, shown, move |session| state.begin(session))
}

/// Mounts any FUSE file system in the way ours is mounted; for the null file system of the
/// benchmarks.
///
/// # Errors
/// [`MountError`]; then nothing is mounted.
pub fn serve(filesystem: Arc<dyn Filesystem>, options: &MountOptions) -> Result<Mount, MountError> {
    let point = Point::named(&options.mount_point)?;
    let shown = (Arc::new(Passthrough::new()), Arc::new(Inodes::default()));
    start(filesystem, options, point, shown, |_| Ok(()))
}

/// `begin` hears of the session before the first request is read.
fn start(
    filesystem: Arc<dyn Filesystem>,
    options: &MountOptions,
    point: Point,
    (passthrough, inodes): (Arc<Passthrough>, Arc<Inodes>),
    begin: impl FnOnce(&Session) -> io::Result<()>,
) -> Result<Mount, MountError> {
    let (attached, descriptor) = device::attach(point, options)?;
    let how = SessionOptions {
        threads: event_loops(),
        clone_device: !attached.by_helper,
        init_options: init_options(options.passthrough),
    };
    let started = Session::start(descriptor, how).and_then(|session| {
        begin(&session)?;
        let end = Arc::new(End::default());
        let reported = Arc::clone(&end);
        thread::Builder::new()
            .name("fuse".to_owned())
            .spawn(move || reported.report(session.run(filesystem)))?;
        Ok(end)
    });
    match started {
        Ok(end) => {
            attached.read_further_ahead();
            // Until the kernel has asked once, it takes the directory for root's, and lets nobody
            // else change it.
            if let Err(error) = fs::metadata(&attached.point) {
                tracing::warn!(%error, "the mount does not answer");
            }
            Ok(Mount { attached, end, passthrough, inodes })
        }
        Err(error) => {
            if let Err(left) = attached.detach() {
                tracing::warn!(%left, "a mount that could not be served stays behind");
            }
            Err(MountError::Kernel(error))
        }
    }
}

impl Mount {
    /// Where it is mounted, absolute and without symbolic links.
    #[must_use]
    pub fn point(&self) -> &Path {
        &self.attached.point
    }

    /// Whether the bytes of files are reached by descriptors, or why not. It may end while the
    /// mount serves.
    ///
    /// # Errors
    /// Why not.
    pub fn passthrough(&self) -> Result<(), NoPassthrough> {
        self.passthrough.state()
    }

    /// The table of the inodes that the kernel knows.
    #[must_use]
    pub fn inodes(&self) -> &Inodes {
        &self.inodes
    }

    /// Unmounts, unless somebody uses it. Everything that was written has reached [`Files`] then.
    ///
    /// # Errors
    /// [`UnmountError`]; then it is still mounted.
    pub fn unmount(&self) -> Result<(), UnmountError> {
        if self.has_ended() { self.attached.clear() } else { self.attached.unmount() }
    }

    /// Takes it out of the tree, in use or not. What is open stays usable until it is closed; only
    /// then [`Mount::wait`] returns.
    ///
    /// # Errors
    /// [`UnmountError`], never [`UnmountError::Busy`].
    pub fn detach(&self) -> Result<(), UnmountError> {
        if self.has_ended() { self.attached.clear() } else { self.attached.detach() }
    }

    /// Waits until it has ended, whoever unmounts it. May be called by several threads.
    ///
    /// # Errors
    /// Where the requests of the kernel could not be read any more.
    pub fn wait(&self) -> io::Result<()> {
        self.end.wait()
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.end.result.lock().is_some()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.detach() {
            tracing::warn!(%error, "a mount stays behind");
        }
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mount({})", self.point().display())
    }
}

/// The end of a session, once it has come. Its lock is a leaf.
#[derive(Default)]
struct End {
    result: Mutex<Option<Result<(), Option<i32>>>>,
    came: Condvar,
}

impl End {
    fn report(&self, result: io::Result<()>) {
        *self.result.lock() = Some(result.map_err(|error| error.raw_os_error()));
        self.came.notify_all();
    }

    fn wait(&self) -> io::Result<()> {
        let mut result = self.result.lock();
        loop {
            match *result {
                Some(Ok(())) => return Ok(()),
                Some(Err(Some(number))) => return Err(io::Error::from_raw_os_error(number)),
                Some(Err(None)) => return Err(io::Error::other("the event loop failed")),
                None => self.came.wait(&mut result),
            }
        }
    }
}

/// A directory that can be a mount point, open: between the look and the mount its path may come to
/// lead elsewhere.
pub(crate) struct Point {
    /// Its path, absolute and without symbolic links.
    path: PathBuf,
    directory: OwnedFd,
}

impl Point {
    fn named(path: &Path) -> Result<Self, MountError> {
        let resolved = mountinfo::resolve(path).map_err(|error| point_error(path, error))?;
        // A mount that is dead or hangs must not be opened.
        refuse_mounted(&resolved)?;
        // It may be a symbolic link to the directory that is meant.
        let resolved = fs::canonicalize(&resolved).map_err(|error| point_error(path, error))?;
        refuse_mounted(&resolved)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, &resolved, flags, Mode::empty());
        Self::opened(opened.map_err(|error| point_error(path, error.into()))?)
    }

    fn opened(directory: OwnedFd) -> Result<Self, MountError> {
        let path = fs::read_link(way(&directory)).map_err(MountError::Kernel)?;
        refuse_mounted(&path)?;
        let failed = |error: Errno| point_error(&path, error.into());
        for entry in Dir::read_from(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                return Err(MountError::PointNotEmpty(path));
            }
        }
        Ok(Self { path, directory })
    }
}

/// A path that leads to what is open, wherever it is moved.
fn way(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn refuse_mounted(point: &Path) -> Result<(), MountError> {
    let Some(mounted) = mountinfo::at(point).map_err(MountError::Kernel)? else { return Ok(()) };
    if mountinfo::probe(point) == Liveness::Dead {
        return Err(MountError::PointDead(point.to_owned()));
    }
    let source_name = mounted.source.to_string_lossy().into_owned();
    Err(MountError::PointBusy { point: point.to_owned(), source_name })
}

fn point_error(point: &Path, error: io::Error) -> MountError {
    match error.kind() {
        io::ErrorKind::NotFound => MountError::PointMissing(point.to_owned()),
        io::ErrorKind::NotADirectory => MountError::PointNotDirectory(point.to_owned()),
        io::ErrorKind::PermissionDenied => MountError::NoPermission(point.to_owned()),
        io::ErrorKind::NotConnected => MountError::PointDead(point.to_owned()),
        _ => MountError::Kernel(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn checked(path: &Path) -> Result<PathBuf, MountError> {
        Point::named(path).map(|point| point.path)
    }

    #[test]
    fn a_point_must_be_an_empty_directory() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("full/x")).unwrap();
        fs::create_dir(path("empty")).unwrap();
        File::create(path("file")).unwrap();
        assert!(matches!(checked(&path("none")), Err(MountError::PointMissing(_))));
        assert!(matches!(checked(&path("none/x")), Err(MountError::PointMissing(_))));
        assert!(matches!(checked(&path("file")), Err(MountError::PointNotDirectory(_))));
        assert!(matches!(checked(&path("file/x")), Err(MountError::PointNotDirectory(_))));
        assert!(matches!(checked(&path("full")), Err(MountError::PointNotEmpty(_))));
        let expected = fs::canonicalize(path("empty")).unwrap();
        assert_eq!(checked(&path("empty")).unwrap(), expected);
        std::os::unix::fs::symlink("empty", path("link")).unwrap();
        assert_eq!(checked(&path("link")).unwrap(), expected);
        assert!(matches!(checked(Path::new("/")), Err(MountError::PointBusy { .. })));
    }
}
