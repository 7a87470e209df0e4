//! Whether files can be handed out as descriptors here.

use std::io;

use pelago_store::content::ContentStore;
use pelago_store::os;
use rustix::thread::{CapabilitySet, capabilities};

use crate::passthrough::placement::Passthrough;

/// Whether files are handed out as descriptors to who can use them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassthroughStatus {
    /// They are.
    Available,
    /// Somebody chose that they are not.
    Refused,
    /// The server has not the right to give a descriptor to the kernel (`CAP_SYS_ADMIN`).
    NoRight,
    /// Below the volume's folder nobody can tell who still writes a file: its file system has no
    /// leases, or they do not see mappings.
    NoLeases,
}

/// Whether the medium tells who still writes a file. From then on the signals that come with
/// asking do no harm.
///
/// # Errors
/// Where signals cannot be handled.
pub fn can_detect_writers(content: &ContentStore) -> io::Result<bool> {
    os::handle_lease_signals()?;
    let told = content.can_detect_writers();
    Ok(told.unwrap_or_else(|error| {
        tracing::debug!(%error, source = %error.source, "nobody can tell who writes a file");
        false
    }))
}

/// Whether files are handed out.
pub fn probe(chosen: Passthrough, tells: bool) -> PassthroughStatus {
    let has_right =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    match chosen {
        Passthrough::Never => PassthroughStatus::Refused,
        _ if !has_right => PassthroughStatus::NoRight,
        _ if !tells => PassthroughStatus::NoLeases,
        _ => PassthroughStatus::Available,
    }
}
