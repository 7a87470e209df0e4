//! Mounting and unmounting.
//!
//! Root opens the device and calls `mount` itself. For other users `fusermount3` does, which is
//! setuid and sends the device over a socket. At the end only our own mount is unmounted, whatever
//! else is mounted at that path by then.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::{fmt, fs, io, thread};

use parking_lot::{Condvar, Mutex};
use pelago_client::Files;
use pelago_fuse::{Filesystem, NoRing, RequestPath, RingUse, Session, SessionOptions};
use pelago_wire::{DirectoryCache, LocalCache};

use crate::adapter::Adapter;
use crate::dir_attrs::DirAttrs;
use crate::dispatch::Dispatch;
use crate::find::Find;
use crate::init::{event_loops, init_options, readahead_bytes};
use crate::inodes::Inodes;
use crate::kernel_cache::KernelCache;
use crate::mountinfo::MountEntry;
use crate::notices::Notices;
use crate::options::{IoUring, MountOptions};
use crate::passthrough::{NoPassthrough, Passthrough};
use crate::state::Preferences;

pub use error::{MountError, UnmountError};

use device::Attached;
use point::Point;

mod device;
mod error;
mod point;

/// A mount that serves requests until it is unmounted, by this process or another. If dropped
/// before that, it is detached: it leaves the tree at once, and ends when the last file in it is
/// closed.
pub struct Mount {
    attached: Attached,
    end: Arc<End>,
    path: RequestPath,
    passthrough: Arc<Passthrough>,
    inodes: Arc<Inodes>,
    /// `None` if the mount is not over [`Files`], as the next field.
    cache: Option<Arc<KernelCache>>,
    find: Option<Arc<Find>>,
}

/// Mounts `files` on the mount point of `options`.
///
/// # Errors
/// [`MountError`]; then nothing is mounted.
pub fn mount(files: Files, options: &MountOptions) -> Result<Mount, MountError> {
    mount_at(files, options, Point::named(&options.mount_point)?)
}

/// Mounts `files` over an open directory, wherever its path leads by now. The mount point in
/// `options` is ignored.
///
/// # Errors
/// [`MountError`]; then nothing is mounted.
pub fn mount_over(
    files: Files,
    options: &MountOptions,
    directory: BorrowedFd<'_>,
) -> Result<Mount, MountError> {
    let directory = directory.try_clone_to_owned().map_err(MountError::Kernel)?;
    mount_at(files, options, Point::opened(directory)?)
}

fn mount_at(files: Files, options: &MountOptions, point: Point) -> Result<Mount, MountError> {
    let preferences = Preferences {
        atime: options.atime,
        passthrough: uses_passthrough(options),
        inode_table_bytes: options.inode_table_bytes,
        keeps: options.keeps.clone(),
    };
    let adapter = Adapter::new(files, preferences);
    let state = Arc::clone(adapter.state());
    let passthrough = Arc::clone(&state.passthrough);
    let inodes = Arc::clone(&state.inodes);
    let of_session = Arc::clone(&state);
    let begin = move |session: &Session| of_session.begin(session);
    let dispatch = Arc::new(Dispatch(adapter));
    let mut mount = start(dispatch, options, point, passthrough, inodes, begin)?;
    mount.find = Some(Arc::clone(&state.find));
    mount.cache = Some(Arc::new(KernelCache::new(&state, mount.point().to_owned())));
    Ok(mount)
}

/// Returns whether the kernel gets descriptors: only if it sees each change, or gets a notice of
/// it.
const fn uses_passthrough(options: &MountOptions) -> bool {
    options.passthrough && options.keeps.site().is_some()
}

/// Mounts any FUSE file system with our options, for the null file system of benchmarks.
///
/// # Errors
/// [`MountError`]; then nothing is mounted.
pub fn serve(filesystem: Arc<dyn Filesystem>, options: &MountOptions) -> Result<Mount, MountError> {
    let point = Point::named(&options.mount_point)?;
    let passthrough = Arc::new(Passthrough::new());
    start(filesystem, options, point, passthrough, Arc::default(), |_| Ok(()))
}

/// Attaches the device and serves it. `begin` runs before the first request is read.
fn start(
    filesystem: Arc<dyn Filesystem>,
    options: &MountOptions,
    point: Point,
    passthrough: Arc<Passthrough>,
    inodes: Arc<Inodes>,
    begin: impl FnOnce(&Session) -> io::Result<()>,
) -> Result<Mount, MountError> {
    let (attached, descriptor) = device::attach(point, options)?;
    let readahead = readahead_bytes(options.inode_table_bytes);
    let how = SessionOptions {
        threads: event_loops(),
        clone_device: !attached.by_helper,
        ring: match options.io_uring {
            IoUring::Auto => RingUse::IfFaster,
            IoUring::Always => RingUse::IfOffered,
            IoUring::Never => RingUse::Never,
        },
        init_options: init_options(uses_passthrough(options), readahead),
    };
    let started = Session::start(descriptor, how).map_err(MountError::Kernel).and_then(|session| {
        if options.io_uring == IoUring::Always {
            session.request_path().ring().map_err(MountError::NoRing)?;
        }
        begin(&session).map_err(MountError::Kernel)?;
        let end = Arc::new(End::default());
        let path = session.request_path().clone();
        let reported = Arc::clone(&end);
        let thread = thread::Builder::new().name("fuse".to_owned());
        let spawned = thread.spawn(move || reported.report(session.run(filesystem)));
        spawned.map_err(MountError::Kernel)?;
        Ok((end, path))
    });
    match started {
        Ok((end, path)) => {
            attached.read_ahead(readahead);
            // Linux takes uid 0 for the owner of the top directory until it has requested its
            // attributes once, and with `default_permissions` refuses changes by other users.
            if let Err(error) = fs::metadata(&attached.point) {
                tracing::warn!(%error, "the root of the mount cannot be read");
            }
            Ok(Mount { attached, end, path, passthrough, inodes, cache: None, find: None })
        }
        Err(error) => {
            if let Err(left) = attached.detach() {
                tracing::warn!(%left, "the mount stays: `umount -l` removes it");
            }
            Err(error)
        }
    }
}

impl Mount {
    /// Returns the mount point, absolute and without symbolic links.
    #[must_use]
    pub fn point(&self) -> &Path {
        &self.attached.point
    }

    /// Returns the mount as the mount table had it when it was made; `None` if it was not there.
    #[must_use]
    pub const fn entry(&self) -> Option<&MountEntry> {
        self.attached.entry.as_ref()
    }

    /// Returns whether the mount uses passthrough, which may end while it serves.
    ///
    /// # Errors
    /// The reason why not.
    pub fn passthrough(&self) -> Result<(), NoPassthrough> {
        self.passthrough.state()
    }

    /// Returns whether requests come over io_uring.
    ///
    /// # Errors
    /// Why they come by the device.
    pub fn ring(&self) -> Result<(), NoRing> {
        self.path.ring()
    }

    /// Returns how many hidden files and folders of queries the kernel knows.
    #[must_use]
    pub fn hidden_files(&self) -> usize {
        self.find.as_ref().map_or(0, |find| find.count())
    }

    /// Returns the table of inodes that the kernel knows.
    #[must_use]
    pub fn inodes(&self) -> &Inodes {
        &self.inodes
    }

    /// Returns the kernel's cache below this mount, to which the server in the same process, or the
    /// holder of leases, reports changes by other sessions. `None` if the mount is not over
    /// [`Files`].
    #[must_use]
    pub fn local_cache(&self) -> Option<Arc<dyn LocalCache>> {
        self.cache.as_ref().map(|cache| Arc::clone(cache) as Arc<dyn LocalCache>)
    }

    /// Returns the kernel's cache of directories of other sites below this mount, to which the
    /// server of a site reports their changes. `None` if the mount is not over [`Files`].
    #[must_use]
    pub fn directory_cache(&self) -> Option<Arc<dyn DirectoryCache>> {
        self.cache.as_ref().map(|cache| Arc::clone(cache) as Arc<dyn DirectoryCache>)
    }

    /// Returns the table for attributes of directories that come with replies to changes: the
    /// client that gets these replies fills it. `None` if the mount is not over [`Files`].
    #[must_use]
    pub fn dir_attrs(&self) -> Option<Arc<DirAttrs>> {
        self.cache.as_ref().and_then(|cache| cache.dir_attrs())
    }

    /// Returns how many notices were sent because other sessions have changed something.
    #[must_use]
    pub fn notices(&self) -> Notices {
        self.cache.as_ref().map(|cache| cache.notices()).unwrap_or_default()
    }

    /// Unmounts, unless a process uses the mount. All written bytes have reached [`Files`] then.
    ///
    /// # Errors
    /// [`UnmountError`]; then it is still mounted.
    pub fn unmount(&self) -> Result<(), UnmountError> {
        if self.has_ended() { self.attached.clear() } else { self.attached.unmount() }
    }

    /// Removes the mount from the tree, in use or not (`umount -l`). Open files stay usable until
    /// they are closed; only then [`Mount::wait`] returns.
    ///
    /// # Errors
    /// [`UnmountError`], never [`UnmountError::Busy`].
    pub fn detach(&self) -> Result<(), UnmountError> {
        if self.has_ended() { self.attached.clear() } else { self.attached.detach() }
    }

    /// Waits until the mount has ended, by whatever unmount. Several threads may wait.
    ///
    /// # Errors
    /// If requests of the kernel could no longer be read.
    pub fn wait(&self) -> io::Result<()> {
        self.end.wait()
    }

    /// Returns whether the mount has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.end.result.lock().is_some()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.detach() {
            tracing::warn!(%error, "a mount stays: `umount -l` removes it");
        }
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mount({})", self.point().display())
    }
}

/// The result of a session, once it has ended. Its lock is a leaf.
#[derive(Default)]
struct End {
    result: Mutex<Option<Result<(), Option<i32>>>>,
    ended: Condvar,
}

impl End {
    fn report(&self, result: io::Result<()>) {
        *self.result.lock() = Some(result.map_err(|error| error.raw_os_error()));
        self.ended.notify_all();
    }

    fn wait(&self) -> io::Result<()> {
        let mut result = self.result.lock();
        loop {
            match *result {
                Some(Ok(())) => return Ok(()),
                Some(Err(Some(number))) => return Err(io::Error::from_raw_os_error(number)),
                Some(Err(None)) => return Err(io::Error::other("the event loop failed")),
                None => self.ended.wait(&mut result),
            }
        }
    }
}
