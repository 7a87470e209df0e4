//! State of passthrough on a mount, with the reason if it is off.
//!
//! The options of the mount must want it, and the negotiation with the kernel must grant it. Then a
//! temporary file is registered, because only that shows whether this process has the right: Linux
//! wants `CAP_SYS_ADMIN` in the initial user namespace. A lasting failure at a later open turns
//! passthrough off for the mount.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, io};

use parking_lot::Mutex;
use pelago_fuse::device::Device;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::geteuid;

/// The reason why a mount does not use passthrough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPassthrough {
    /// The options of the mount did not want it.
    #[error("passthrough is not wanted")]
    NotWanted,
    /// The process is not root.
    #[error("passthrough needs root")]
    NotRoot,
    /// The process is root in a container, which does not suffice.
    #[error("passthrough needs root outside of any container")]
    Contained,
    /// The kernel is too old, or built without it.
    #[error("this kernel has no FUSE passthrough, which came with Linux 6.9")]
    NotInKernel,
    /// The kernel refuses descriptors of content files, with this errno.
    #[error("the kernel refuses passthrough: {0}")]
    Refused(Errno),
}

/// The state of passthrough on a mount. Its lock is a leaf.
pub(crate) struct Passthrough {
    is_on: AtomicBool,
    why_not: Mutex<NoPassthrough>,
}

impl Passthrough {
    /// Returns the state before the negotiation: off.
    pub(crate) fn new() -> Self {
        let why_not = Mutex::new(NoPassthrough::NotWanted);
        Self { is_on: AtomicBool::new(false), why_not }
    }

    /// Returns whether opens may ask for descriptors.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Returns `Ok` if passthrough is on, else the reason why not.
    pub(crate) fn state(&self) -> Result<(), NoPassthrough> {
        if self.is_on() { Ok(()) } else { Err(*self.why_not.lock()) }
    }

    /// Turns passthrough off.
    pub(crate) fn refuse(&self, why_not: NoPassthrough) {
        *self.why_not.lock() = why_not;
        self.is_on.store(false, Ordering::Release);
    }

    /// Turns passthrough on if a temporary file can be registered with the kernel.
    pub(crate) fn try_on(&self, device: &Arc<Device>) {
        let tried = memfd_create("pelago-passthrough", MemfdFlags::CLOEXEC)
            .map_err(io::Error::from)
            .and_then(|file| device.open_backing(file.as_fd()));
        match tried {
            Ok(_) => self.is_on.store(true, Ordering::Release),
            Err(error) => self.refuse(why(&error)),
        }
    }

    /// Handles the errno of a refused descriptor. If the kernel will refuse all others too, turns
    /// passthrough off and returns true.
    pub(crate) fn turn_off_if_lasting(&self, error: &io::Error) -> bool {
        let lasting = [Errno::PERM, Errno::NOTTY, Errno::LOOP, Errno::OPNOTSUPP, Errno::INVAL];
        let lasts = Errno::from_io_error(error).is_some_and(|errno| lasting.contains(&errno));
        if !lasts {
            tracing::debug!(%error, "the kernel refused the descriptor of a file");
            return false;
        }
        let mut why_not = self.why_not.lock();
        if self.is_on.swap(false, Ordering::AcqRel) {
            *why_not = why(error);
            tracing::warn!(%error, "the kernel refuses descriptors: no passthrough");
        }
        true
    }
}

impl fmt::Debug for Passthrough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.state())
    }
}

fn why(error: &io::Error) -> NoPassthrough {
    match Errno::from_io_error(error) {
        Some(Errno::PERM) if geteuid().is_root() => NoPassthrough::Contained,
        Some(Errno::PERM) => NoPassthrough::NotRoot,
        Some(Errno::NOTTY) | None => NoPassthrough::NotInKernel,
        Some(errno) => NoPassthrough::Refused(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_refusal_turns_passthrough_off_and_another_does_not() {
        let passthrough = Passthrough::new();
        assert_eq!(passthrough.state(), Err(NoPassthrough::NotWanted));
        passthrough.is_on.store(true, Ordering::Release);
        assert!(!passthrough.turn_off_if_lasting(&Errno::NOMEM.into()));
        assert_eq!(passthrough.state(), Ok(()));
        assert!(passthrough.turn_off_if_lasting(&Errno::LOOP.into()));
        assert_eq!(passthrough.state(), Err(NoPassthrough::Refused(Errno::LOOP)));
        assert!(passthrough.turn_off_if_lasting(&Errno::PERM.into()));
        assert_eq!(passthrough.state(), Err(NoPassthrough::Refused(Errno::LOOP)));
    }

    #[test]
    fn a_process_that_is_not_root_learns_that() {
        let why = why(&Errno::PERM.into()).to_string();
        assert!(why.starts_with("passthrough needs root"), "{why}");
    }
}
