//! Files without a name, by system calls.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use pelago_wire::OpenFlags;
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::{LocalTarget, bits, open_flags, seen, show};
use crate::op::Op;
use crate::target::Outcome;

impl LocalTarget {
    pub(super) fn use_unnamed(&mut self, op: &Op) -> Result<Outcome, Errno> {
        match op {
            Op::CreateUnnamed { slot, dir, mode, flags } => {
                let file = make(&self.dir(dir)?, *mode, *flags)?;
                let outcome = Outcome::Attr(seen(&fs::fstat(&file)?));
                self.hold(*slot, file);
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

/// Whether there can be such files in this directory, and whether they can get names.
pub(super) fn can_be(root: &OwnedFd) -> Result<bool, Errno> {
    let Ok(file) = make(root, 0o700, OpenFlags { write: true, ..OpenFlags::default() }) else {
        return Ok(false);
    };
    if link(&file, root, b"probe").is_err() {
        return Ok(false);
    }
    fs::unlinkat(root, "probe", AtFlags::empty())?;
    Ok(true)
}

/// It gets the mode that was asked for, whatever the umask is.
fn make(dir: &OwnedFd, mode: u16, flags: OpenFlags) -> Result<OwnedFd, Errno> {
    // To follow no link makes no sense where there is no name.
    let flags = open_flags(flags) - OFlags::NOFOLLOW;
    let file = fs::openat(dir, ".", flags | OFlags::TMPFILE, Mode::RWXU)?;
    fs::fchmod(&file, bits(mode))?;
    Ok(file)
}

fn link(file: &impl AsFd, dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    fs::linkat(CWD, path, dir, name, AtFlags::SYMLINK_FOLLOW)
}
