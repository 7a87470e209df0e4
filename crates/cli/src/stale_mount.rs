//! Unmounts mounts whose process is gone.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::geteuid;

/// Detaches a mount from the tree without asking the process behind it, like `umount -l`.
///
/// # Errors
/// The kernel's error as root; what `fusermount3` printed as another user.
pub(crate) fn detach(point: &Path) -> io::Result<()> {
    if geteuid().is_root() {
        return Ok(unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?);
    }
    let mut helper = Command::new("fusermount3");
    helper.args(["-u", "-z", "--"]).arg(point).env("LC_ALL", "C").stdin(Stdio::null());
    let output = helper.output()?;
    if output.status.success() {
        return Ok(());
    }
    let says = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(says.trim().to_owned()))
}
