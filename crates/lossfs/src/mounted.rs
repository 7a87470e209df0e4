//! A mounted file system, for as long as it is held.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fuser::{BackgroundSession, Config, MountOption, Session};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::geteuid;

use crate::control::Control;
use crate::driver::Driver;
use crate::model::Model;

/// A mount. When it is dropped it is gone from the tree; what is open in it still answers until it
/// is closed.
#[derive(Debug)]
pub struct Lossfs {
    point: PathBuf,
    control: Control,
    _session: BackgroundSession,
}

impl Lossfs {
    /// Mounts what there is in `model` on the empty folder `point`.
    ///
    /// # Errors
    /// Where the system does not let us.
    pub fn mount(point: &Path, model: Model) -> io::Result<Self> {
        let control = Control::new(model);
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("lossfs".to_owned())];
        let session = Session::new(Driver::new(control.clone()), point, &config)?.spawn()?;
        Ok(Self { point: point.to_owned(), control, _session: session })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// How to reach it.
    #[must_use]
    pub const fn control(&self) -> &Control {
        &self.control
    }
}

impl Drop for Lossfs {
    /// The session would wait for those who have files open.
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
