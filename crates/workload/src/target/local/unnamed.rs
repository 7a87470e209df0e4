//! Operations on unnamed files, by system calls.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use pelago_wire::OpenFlags;
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::{LocalTarget, bits, file_attr, open_flags, show};
use crate::op::Op;
use crate::target::Outcome;

impl LocalTarget {
    pub(super) fn apply_to_unnamed(&mut self, op: &Op) -> Result<Outcome, Errno> {
        match op {
            Op::CreateUnnamed { slot, dir, mode, flags } => {
                let file = make(&self.dir(dir)?, *mode, *flags)?;
                let outcome = Outcome::Attr(file_attr(&fs::fstat(&file)?));
                self.set_slot(*slot, file);
                Ok(outcome)
            }
            Op::LinkOpen { slot, at } => {
                let dir = self.dir(&at.dir)?;
                link(&self.file(*slot)?, &dir, at.name.as_bytes())?;
                show(&dir, &at.name)
            }
            _ => Err(Errno::NOSYS),
        }
    }
}

/// Returns whether unnamed files can be created in this directory and linked.
pub(super) fn are_supported(root: &OwnedFd) -> Result<bool, Errno> {
    let Ok(file) = make(root, 0o700, OpenFlags::WRITE) else {
        return Ok(false);
    };
    if link(&file, root, b"probe").is_err() {
        return Ok(false);
    }
    fs::unlinkat(root, "probe", AtFlags::empty())?;
    Ok(true)
}

/// Creates an unnamed file with the requested mode, which the umask may have reduced.
fn make(dir: &OwnedFd, mode: u16, flags: OpenFlags) -> Result<OwnedFd, Errno> {
    // Without a name there is no symbolic link to refuse.
    let flags = open_flags(flags) - OFlags::NOFOLLOW;
    let file = fs::openat(dir, ".", flags | OFlags::TMPFILE, Mode::RWXU)?;
    fs::fchmod(&file, bits(mode))?;
    Ok(file)
}

fn link(file: &impl AsFd, dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    fs::linkat(CWD, path, dir, name, AtFlags::SYMLINK_FOLLOW)
}
