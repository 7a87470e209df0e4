//! Sessions on a real mount, with a small file system in memory. If nothing can be mounted, the
//! tests are skipped.

#[cfg(test)]
mod alone;
#[cfg(test)]
mod callers;
#[cfg(test)]
mod connection;
#[cfg(test)]
mod cut_off;
#[cfg(test)]
mod ends;
#[cfg(test)]
mod everyday;
#[cfg(test)]
mod hangs;
#[cfg(test)]
mod held;
#[cfg(test)]
mod later;
#[cfg(test)]
mod lock_table;
#[cfg(test)]
mod locks;
#[cfg(test)]
mod passthrough;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod refused;
#[cfg(test)]
mod stuck;
#[cfg(test)]
mod tree;
#[cfg(test)]
mod unmounts;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pelago_fuse::init::{Capabilities, InitOptions, Negotiated};
use pelago_fuse::{Notifier, RequestPath, RingUse, Session, SessionOptions};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use crate::tree::Tree;

const DEADLINE: Duration = Duration::from_secs(60);
const MAX_WRITE: u32 = 1 << 20;

/// A mount that is detached at the end of its test, in use or not.
struct Mounted {
    folder: TempDir,
    tree: Arc<Tree>,
    notifier: Notifier,
    negotiated: Negotiated,
    path: RequestPath,
    session: Option<JoinHandle<io::Result<()>>>,
}

impl Mounted {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Unmounts, and returns how the session ended.
    fn end(&mut self) -> io::Result<()> {
        // A process that scans `/proc` may keep the mount busy for an instant.
        until(|| unmount(self.folder.path(), UnmountFlags::empty()) != Err(Errno::BUSY));
        let session = self.session.take().expect("a session ends once");
        session.join().expect("the session does not panic")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.session.is_some() && unmount(self.folder.path(), UnmountFlags::DETACH).is_err() {
            println!("{} stays mounted", self.folder.path().display());
        }
    }
}

/// Options of the negotiation, unless a test changes them.
fn init_options() -> InitOptions {
    let wanted = [
        Capabilities::ASYNC_READ,
        Capabilities::PARALLEL_DIROPS,
        Capabilities::DO_READDIRPLUS,
        Capabilities::MAX_PAGES,
    ];
    InitOptions {
        capabilities: Capabilities(wanted.iter().fold(0, |all, one| all | one.0)),
        max_write: MAX_WRITE,
        max_readahead: MAX_WRITE,
        max_background: 16,
        passthrough: false,
    }
}

/// Mounts, or prints why not and returns `None`.
fn mounted() -> Option<Mounted> {
    mounted_with(SessionOptions {
        threads: 2,
        clone_device: true,
        ring: ring_is_wanted(),
        init_options: init_options(),
    })
}

/// Returns whether requests shall come over io_uring: all tests hold either way.
fn ring_is_wanted() -> RingUse {
    match std::env::var_os("PELAGO_FUSE_RING") {
        Some(_) => RingUse::IfOffered,
        None => RingUse::Never,
    }
}

fn mounted_with(options: SessionOptions) -> Option<Mounted> {
    mounted_under(options, || {})
}

/// Mounts, and serves under what `restrict` puts on this thread.
fn mounted_under(options: SessionOptions, restrict: impl FnOnce()) -> Option<Mounted> {
    let folder = tempfile::tempdir().expect("a folder for the mount");
    let device = match attach(folder.path()) {
        Ok(device) => device,
        Err(error) => {
            println!("skipped: not here: needs root and /dev/fuse ({error})");
            return None;
        }
    };
    restrict();
    let session = Session::start(device, options).expect("the kernel negotiates");
    let tree = Arc::new(Tree::new());
    let notifier = session.notifier();
    let negotiated = *session.negotiated();
    let path = session.request_path().clone();
    let filesystem = Arc::clone(&tree);
    let thread = thread::Builder::new().name("session".to_owned());
    let session = thread.spawn(move || session.run(filesystem)).expect("another thread");
    Some(Mounted { folder, tree, notifier, negotiated, path, session: Some(session) })
}

fn attach(folder: &Path) -> io::Result<OwnedFd> {
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse")?;
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions,allow_other,max_read={}",
        device.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
        MAX_WRITE
    );
    let data = CString::new(data).expect("digits and letters");
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("a test", folder, "fuse.pelago-test", flags, data.as_c_str())?;
    Ok(device.into())
}

/// Waits until a condition holds.
fn until(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < DEADLINE, "the condition did not hold in time");
        thread::yield_now();
    }
}
