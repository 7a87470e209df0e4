//! The kernel's control of a connection (`fusectl`).

use std::fs;
use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use crate::DEADLINE;

/// The control of one connection.
pub(crate) struct Connection {
    control: TempDir,
    number: String,
}

/// Aborts a connection after the time that a test may take, so that the test fails instead of
/// waiting for a request for ever.
pub(crate) struct Patience {
    done: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Connection {
    /// Opens the control of the connection of a mount, or prints why not and returns `None`.
    pub(crate) fn of(mount_point: &Path) -> Option<Self> {
        // What the kernel knows: a connection without a server is to be aborted too.
        let known = statx(CWD, mount_point, AtFlags::STATX_DONT_SYNC, StatxFlags::empty());
        let number = known.unwrap().stx_dev_minor.to_string();
        let control = tempfile::tempdir().unwrap();
        match mount("none", control.path(), "fusectl", MountFlags::empty(), None) {
            Ok(()) => Some(Self { control, number }),
            Err(error) => {
                println!("skipped: not here: no control of connections ({error})");
                None
            }
        }
    }

    /// Ends all requests with an error.
    pub(crate) fn abort(&self) -> io::Result<()> {
        fs::write(self.control.path().join(&self.number).join("abort"), b"1")
    }

    /// Returns how many requests wait for a reply; `None` once the connection is gone.
    pub(crate) fn waiting(&self) -> Option<usize> {
        let waiting = self.control.path().join(&self.number).join("waiting");
        fs::read_to_string(waiting).ok()?.trim_end().parse().ok()
    }

    /// Aborts the connection after [`DEADLINE`], unless the value is dropped before.
    pub(crate) fn with_patience(self) -> Patience {
        let (done, is_done) = mpsc::channel();
        let thread = Builder::new().name("patience".to_owned()).spawn(move || {
            if is_done.recv_timeout(DEADLINE) == Err(mpsc::RecvTimeoutError::Timeout) {
                println!("a request is not answered in time: {:?}", self.abort());
            }
        });
        Patience { done: Some(done), thread: Some(thread.unwrap()) }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Err(error) = unmount(self.control.path(), UnmountFlags::DETACH) {
            println!("{} stays mounted: {error}", self.control.path().display());
        }
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        drop(self.done.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()), "no thread of a test panics");
    }
}
