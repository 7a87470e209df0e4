//! Mounts of the file system.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fuser::{BackgroundSession, Config, MountOption, Session};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::geteuid;

use crate::control::Control;
use crate::driver::Driver;
use crate::model::Model;

/// A mount, which is detached when it is dropped; files that are open in it stay usable until they
/// are closed.
#[derive(Debug)]
pub struct Lossfs {
    point: PathBuf,
    control: Control,
    _session: BackgroundSession,
}

impl Lossfs {
    /// Mounts `model` on the empty directory `point`.
    ///
    /// # Errors
    /// If the system refuses the mount.
    pub fn mount(point: &Path, model: Model) -> io::Result<Self> {
        let control = Control::new(model);
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("lossfs".to_owned())];
        let session = Session::new(Driver::new(control.clone()), point, &config)?.spawn()?;
        Ok(Self { point: point.to_owned(), control, _session: session })
    }

    /// Returns the mount point.
    #[must_use]
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Returns the controls of the file system.
    #[must_use]
    pub const fn control(&self) -> &Control {
        &self.control
    }
}

impl Drop for Lossfs {
    /// Detaches, because an unmount would wait until all files are closed.
    fn drop(&mut self) {
        if geteuid().is_root() {
            let _gone = unmount(&self.point, UnmountFlags::DETACH);
        } else {
            let mut helper = Command::new("fusermount3");
            helper.args(["-u", "-z", "--"]).arg(&self.point).stdin(Stdio::null());
            let _gone = helper.status();
        }
    }
}
