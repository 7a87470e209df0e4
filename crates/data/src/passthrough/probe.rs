//! A probe that finds out whether passthrough is possible here.

use std::io;

use pelago_store::content::ContentStore;
use pelago_store::os;
use rustix::thread::{CapabilitySet, capabilities};

use crate::passthrough::placement::Passthrough;

/// The availability of passthrough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassthroughStatus {
    /// It is available to callers that can use descriptors.
    Available,
    /// The user has switched it off.
    Refused,
    /// The server may not give a descriptor to the kernel: it lacks `CAP_SYS_ADMIN`.
    NoRight,
    /// The file system of the volume's folder cannot tell whether a process still writes a file: it
    /// has no leases, or its leases ignore mappings (overlayfs).
    NoLeases,
}

/// Finds out whether the file system can tell if a process still writes a file. Also handles the
/// signals that may come with such checks.
///
/// # Errors
/// If signals cannot be handled.
pub fn can_detect_writers(content: &ContentStore) -> io::Result<bool> {
    if content.is_shared() {
        // A lease says nothing about the processes of other machines.
        return Ok(false);
    }
    // A lease that a program's open breaks sends SIGIO, which ends a process without a handler.
    os::handle_lease_signals()?;
    let detected = content.can_detect_writers();
    Ok(detected.unwrap_or_else(|error| {
        let source = &error.source;
        tracing::debug!(%error, %source, "the disk cannot tell whether a process writes a file");
        false
    }))
}

/// Finds out whether files are opened by passthrough; `can_detect_writers` is the result of
/// [`can_detect_writers`].
#[must_use]
pub fn probe(chosen: Passthrough, can_detect_writers: bool) -> PassthroughStatus {
    let has_right =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    match chosen {
        Passthrough::Never => PassthroughStatus::Refused,
        _ if !has_right => PassthroughStatus::NoRight,
        _ if !can_detect_writers => PassthroughStatus::NoLeases,
        _ => PassthroughStatus::Available,
    }
}
