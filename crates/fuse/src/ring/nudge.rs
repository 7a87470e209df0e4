//! Requests of our own, behind which the kernel looks for those that wait.

use crate::Errno;
use crate::bytes::Layout;
use crate::device::Device;
use crate::ids::NodeId;

/// `FUSE_NOTIFY_RETRIEVE`.
const RETRIEVE: i32 = 5;
/// The number of a nudge: even as all numbers, and larger than any that the kernel gives.
pub(super) const NUMBER: u64 = 1 << 62;

/// Whether requests may wait in the kernel although it has slots.
///
/// It gives a slot to a request that waits only behind a reply, and not when a slot is offered
/// first. So if the only slots that it had are kept, and others were offered since, requests from
/// before would wait until one of a later caller was answered. A nudge is a request of our own.
#[derive(Debug, Default)]
pub(super) struct Nudge {
    /// Slots were offered, and none since was free behind its reply.
    pub(super) is_due: bool,
    pub(super) is_under_way: bool,
}

/// Has the kernel put a request into the queue of this processor: the reply to it would be the
/// pages of the root that the kernel has, and it is asked for none.
///
/// # Errors
/// The kernel's errno.
pub(super) fn send(device: &Device) -> Result<(), Errno> {
    device.notify(RETRIEVE, &[&retrieve(NUMBER)])
}

/// Encodes `fuse_notify_retrieve_out` for no bytes of the root.
fn retrieve(number: u64) -> [u8; 32] {
    *Layout::new().u64(number).u64(NodeId::ROOT.0).padding(16).done()
}
