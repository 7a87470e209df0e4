//! Rights of a registered descriptor, with which the kernel writes on our behalf.
//!
//! Linux writes a registered descriptor with the rights of the thread that registered it. With the
//! rights of root, every program could use the blocks that a file system reserves for root (on ext4
//! a twentieth), and exceed quotas. So a descriptor is registered as an ordinary user who has only
//! the privilege that the ioctl needs (`CAP_SYS_ADMIN`).

use std::io;

use rustix::process::{Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_res_uid,
};

/// The user id of `nobody`, who owns no files.
const NOBODY: u32 = 65534;

/// Runs `call` on this thread with the rights of an ordinary user and `CAP_SYS_ADMIN`, if this
/// process has that. If it may not change its user id, `call` runs with the rights it has.
pub(crate) fn as_unprivileged<T>(call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = match capabilities(None) {
        Ok(before) if geteuid().is_root() => before,
        _ => return call(),
    };
    if set_thread_res_uid(None, Uid::from_raw(NOBODY), None).is_err() {
        return call();
    }
    let effective = before.effective & CapabilitySet::SYS_ADMIN;
    let narrowed = set_capabilities(None, CapabilitySets { effective, ..before });
    let done = narrowed.map_err(io::Error::from).and_then(|()| call());
    let back = set_thread_res_uid(None, Uid::ROOT, None);
    let back = back.and_then(|()| set_capabilities(None, before));
    back.expect("a thread may restore the rights in its permitted set");
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_has_one_privilege_and_the_thread_gets_all_back() {
        if !geteuid().is_root() {
            println!("skipped: needs root to have rights to lose");
            return;
        }
        let before = capabilities(None).unwrap();
        let during = as_unprivileged(|| Ok((geteuid(), capabilities(None)?))).unwrap();
        assert_eq!(during.0, Uid::from_raw(NOBODY));
        assert_eq!(during.1.effective, before.effective & CapabilitySet::SYS_ADMIN);
        assert!(!during.1.effective.contains(CapabilitySet::SYS_RESOURCE));
        assert!(geteuid().is_root());
        assert_eq!(capabilities(None).unwrap(), before);
        let failed: io::Result<()> = as_unprivileged(|| Err(io::ErrorKind::Other.into()));
        assert!(failed.is_err());
        assert_eq!(capabilities(None).unwrap(), before);
    }
}
