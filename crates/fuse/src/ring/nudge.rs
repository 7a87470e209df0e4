//! Requests of our own, behind which the kernel looks for those that wait.

use crate::bytes::Layout;
use crate::device::Device;
use crate::ids::NodeId;

/// `FUSE_NOTIFY_RETRIEVE`.
const RETRIEVE: i32 = 5;
/// The least number of a nudge: even as all numbers, and larger than any that the kernel gives.
const LEAST_NUMBER: u64 = 1 << 62;

/// Whether requests may wait in the kernel although it has slots.
///
/// It gives a slot to a request that waits only behind a reply, and not when a slot is offered
/// first. So if the only slots that it had are kept, and others were offered since, requests from
/// before would wait until one of a later caller was answered. A nudge is a request of our own.
///
/// It may have to wait too: if all slots were taken before it came. Those are kept or answered, and
/// so either others are offered, which is a reason for another nudge, or a reply does its work.
#[derive(Debug, Default)]
pub(super) struct Nudge {
    /// Slots were offered, and none since was free behind its reply.
    is_due: bool,
    is_sent: bool,
    /// How many there were.
    count: u64,
    /// A regular file that the kernel knew: it takes the notice for no other.
    file: Option<NodeId>,
}

impl Nudge {
    /// Slots were offered.
    pub(super) const fn offered(&mut self) {
        self.is_due = true;
        self.is_sent = false;
    }

    /// A slot was free behind its reply: no request waits.
    pub(super) const fn none_waits(&mut self) {
        self.is_due = false;
    }

    /// There was a request about a regular file.
    pub(super) const fn seen(&mut self, file: NodeId) {
        self.file = Some(file);
    }

    /// Returns whether the request with this number is a nudge.
    pub(super) const fn is(number: u64) -> bool {
        number >= LEAST_NUMBER
    }

    /// Sends a nudge if one is due. It comes by the queue of the processor of this thread.
    pub(super) fn send(&mut self, device: &Device) {
        let Some(file) = self.file.filter(|_| self.is_due && !self.is_sent) else { return };
        self.is_sent = true;
        self.count += 1;
        let notice = retrieve(LEAST_NUMBER + 2 * self.count, file);
        if let Err(error) = device.notify(RETRIEVE, &[&notice]) {
            // The kernel knows this file no longer; the next one may do.
            self.file = None;
            self.is_sent = false;
            tracing::debug!(%error, "requests may wait in the kernel");
        }
    }
}

/// Encodes `fuse_notify_retrieve_out` for no bytes of a file.
fn retrieve(number: u64, file: NodeId) -> [u8; 32] {
    *Layout::new().u64(number).u64(file.0).padding(16).done()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn each_offer_of_slots_has_one_nudge_with_a_number_of_its_own() {
        let (kernel, device) = UnixDatagram::pair().unwrap();
        kernel.set_nonblocking(true).unwrap();
        let device = Device::new(device.into());
        let mut nudge = Nudge::default();
        let sent = |nudge: &mut Nudge| {
            nudge.send(&device);
            let mut notice = [0; 64];
            let bytes = kernel.recv(&mut notice).unwrap_or(0);
            (bytes == 16 + 32).then(|| notice[16..24].to_vec())
        };
        assert_eq!(sent(&mut nudge), None);
        nudge.offered();
        assert_eq!(sent(&mut nudge), None, "no file is known");
        nudge.seen(NodeId(5));
        let first = sent(&mut nudge);
        assert!(first.is_some());
        assert_eq!(sent(&mut nudge), None);
        nudge.offered();
        let second = sent(&mut nudge);
        assert!(second.is_some() && second != first, "also while the first one waits");
        nudge.offered();
        nudge.none_waits();
        assert_eq!(sent(&mut nudge), None);
    }

    #[test]
    fn a_nudge_for_a_file_that_is_gone_is_made_up_for_by_the_next_file() {
        let (kernel, device) = UnixDatagram::pair().unwrap();
        let (gone, refuses) = UnixDatagram::pair().unwrap();
        drop(gone);
        kernel.set_nonblocking(true).unwrap();
        let device = Device::new(device.into());
        let refuses = Device::new(refuses.into());
        let mut nudge = Nudge::default();
        nudge.seen(NodeId(5));
        nudge.offered();
        nudge.send(&refuses);
        nudge.send(&device);
        assert!(kernel.recv(&mut [0; 64]).is_err(), "no other file is known");
        nudge.seen(NodeId(6));
        nudge.send(&device);
        assert!(kernel.recv(&mut [0; 64]).is_ok());
    }
}
