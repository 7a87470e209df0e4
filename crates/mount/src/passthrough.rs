//! Whether a mount reaches the bytes of files by descriptors (passthrough), and why not.
//!
//! It is wanted by whoever mounts, agreed with the kernel, and then tried on a file of no use,
//! because only that shows whether this process may. What is found out later, at an open, ends it
//! for the mount.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pelago_fuse::device::Device;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Why the bytes of files go through this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPassthrough {
    /// Who mounted it did not want anything else.
    #[error("passthrough is not wanted")]
    NotWanted,
    /// Only root may.
    #[error("passthrough needs root")]
    NotRoot,
    /// Root of a container is not enough.
    #[error("passthrough needs root outside of any container")]
    Contained,
    /// Too old, or built without it.
    #[error("this kernel has no FUSE passthrough, which came with Linux 6.9")]
    NotInKernel,
    /// The kernel does not take the medium's descriptors.
    #[error("the kernel refuses passthrough: {0}")]
    Refused(Errno),
}

/// The state of it. Its lock is a leaf.
pub(crate) struct Passthrough {
    is_on: AtomicBool,
    why_not: Mutex<NoPassthrough>,
}

impl Passthrough {
    /// Off, until it was agreed and tried.
    pub(crate) fn new() -> Self {
        let why_not = Mutex::new(NoPassthrough::NotWanted);
        Self { is_on: AtomicBool::new(false), why_not }
    }

    /// Whether to ask for descriptors.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// That it works, or why not.
    pub(crate) fn state(&self) -> Result<(), NoPassthrough> {
        if self.is_on() { Ok(()) } else { Err(*self.why_not.lock()) }
    }

    /// It was not agreed.
    pub(crate) fn refuse(&self, why_not: NoPassthrough) {
        *self.why_not.lock() = why_not;
        self.is_on.store(false, Ordering::Release);
    }

    /// Registers a file of no use with the connection, and takes it back; whether it works shows
    /// whether others will.
    pub(crate) fn try_on(&self, device: &Arc<Device>) {
        let tried = memfd_create("pelago-passthrough", MemfdFlags::CLOEXEC)
            .map_err(io::Error::from)
            .and_then(|file| device.open_backing(file.as_fd()));
        match tried {
            Ok(_) => self.is_on.store(true, Ordering::Release),
            Err(error) => self.refuse(why(&error)),
        }
    }

    /// The kernel did not take a descriptor. Where it will take no other either, this ends it.
    /// Answers whether it is one of those errors.
    pub(crate) fn ends_with(&self, error: &io::Error) -> bool {
        let lasting = [Errno::PERM, Errno::NOTTY, Errno::LOOP, Errno::OPNOTSUPP, Errno::INVAL];
        let lasts = Errno::from_io_error(error).is_some_and(|errno| lasting.contains(&errno));
        if !lasts {
            tracing::debug!(%error, "the kernel did not take a descriptor of a file");
            return false;
        }
        let mut why_not = self.why_not.lock();
        if self.is_on.swap(false, Ordering::AcqRel) {
            *why_not = why(error);
            tracing::warn!(%error, "the kernel takes no descriptors: bytes go through here");
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
    fn what_will_not_pass_ends_it_and_what_may_does_not() {
        let passthrough = Passthrough::new();
        assert_eq!(passthrough.state(), Err(NoPassthrough::NotWanted));
        passthrough.is_on.store(true, Ordering::Release);
        assert!(!passthrough.ends_with(&Errno::NOMEM.into()));
        assert_eq!(passthrough.state(), Ok(()));
        assert!(passthrough.ends_with(&Errno::LOOP.into()));
        assert_eq!(passthrough.state(), Err(NoPassthrough::Refused(Errno::LOOP)));
        assert!(passthrough.ends_with(&Errno::PERM.into()));
        assert_eq!(passthrough.state(), Err(NoPassthrough::Refused(Errno::LOOP)));
    }

    #[test]
    fn who_is_not_root_is_told_so() {
        let why = why(&Errno::PERM.into()).to_string();
        assert!(why.starts_with("passthrough needs root"), "{why}");
    }
}
