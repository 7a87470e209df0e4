//! Removal of mounts whose process is gone, or was killed and cannot end.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use pelago_mount::connection;
use pelago_mount::mountinfo::{self, FS_TYPE, MountEntry};
use pelago_store::volume;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::geteuid;

use crate::{control, dying, locate};

/// Ends the connection of a mount, so that programs and threads that wait for it get errors, and
/// detaches it.
///
/// # Errors
/// As [`detach`].
pub(crate) fn remove(mount: &MountEntry) -> io::Result<()> {
    abort(mount);
    let topmost = mountinfo::at(&mount.point)?;
    // A forced end of the connection may have unmounted it.
    if topmost.is_some_and(|found| found.id == mount.id) { detach(&mount.point) } else { Ok(()) }
}

/// Detaches a mount from the tree without a request to its process, like `umount -l`.
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

/// Returns the Pelago mount on this point, if it is the topmost mount there and its process is gone
/// or dying.
pub(crate) fn dead_at(point: &Path) -> Option<MountEntry> {
    let mount = mountinfo::at(point).ok()??;
    if mount.fs_type != FS_TYPE {
        return None;
    }
    let is_dying = locate::served_from(&mount).is_some_and(|dir| server_is_dying(&dir));
    // A mount with a dying process hangs, and must not be probed.
    (is_dying || mountinfo::is_dead(point)).then_some(mount)
}

/// Returns whether the process that serves a folder, of a volume or of a mount, was killed and has
/// not ended yet. Such a process still has its files open.
pub(crate) fn server_is_dying(dir: &Path) -> bool {
    let pid = match control::server_pid(dir) {
        Ok(pid) => pid,
        // It does not listen yet, or no longer.
        Err(_) => volume::lock_holder(dir),
    };
    pid.is_some_and(dying::is_dying)
}

/// Ends the connections of the mounts that a dying process serves from a folder, so that the
/// process can end.
pub(crate) fn free(dir: &Path) {
    locate::mounts_of(dir).iter().for_each(abort);
}

fn abort(mount: &MountEntry) {
    let point = mount.point.display();
    match connection::abort(mount) {
        Ok(()) => tracing::info!(%point, "the requests of a dead mount are ended"),
        Err(error) => tracing::warn!(%point, %error, "a dead mount may keep programs waiting"),
    }
}
