//! Nudges: requests of our own, after whose replies the kernel gives slots to requests that wait.

use crate::bytes::Layout;
use crate::device::Device;
use crate::ids::NodeId;

/// `FUSE_NOTIFY_RETRIEVE`.
const RETRIEVE: i32 = 5;
/// The least number of a nudge: even as all numbers of requests, and above all that Linux gives.
const LEAST_NUMBER: u64 = 1 << 62;

/// State of the nudges of a queue: whether requests may wait in the kernel although it has slots.
///
/// Linux gives a slot to a request that waits only after a reply (COMMIT_AND_FETCH), never when a
/// slot is first offered (REGISTER). So if requests that last have all slots of the kernel, and
/// others were offered since, a request from before would wait until a later request was answered.
/// A nudge is a request of our own that is answered at once: a notice FUSE_NOTIFY_RETRIEVE for no
/// bytes of a file makes the kernel send it.
///
/// If every slot is taken, the nudge waits as well. It is freed by the next reply, or by the nudge
/// that the next offered slot causes.
#[derive(Debug, Default)]
pub(super) struct Nudge {
    /// Slots were offered, and since then no slot stayed free after its reply.
    is_due: bool,
    /// The nudge for the last offer was sent.
    is_sent: bool,
    /// Count of nudges, from which their numbers are made.
    count: u64,
    /// A regular file that the kernel refers to: Linux takes the notice for no other inode.
    file: Option<NodeId>,
}

impl Nudge {
    /// Records that slots were offered.
    pub(super) const fn offered(&mut self) {
        self.is_due = true;
        self.is_sent = false;
    }

    /// Records that a slot stayed free after its reply: no request waits.
    pub(super) const fn none_waits(&mut self) {
        self.is_due = false;
    }

    /// Records a request about a regular file.
    pub(super) const fn seen(&mut self, file: NodeId) {
        self.file = Some(file);
    }

    /// Returns whether the request with this number is a nudge.
    pub(super) const fn is(number: u64) -> bool {
        number >= LEAST_NUMBER
    }

    /// Sends a nudge if one is due. Its request comes by the queue of this thread's processor.
    pub(super) fn send(&mut self, device: &Device) {
        let Some(file) = self.file.filter(|_| self.is_due && !self.is_sent) else { return };
        self.is_sent = true;
        self.count += 1;
        let notice = retrieve(LEAST_NUMBER + 2 * self.count, file);
        if let Err(error) = device.notify(RETRIEVE, &[&notice]) {
            // The kernel has forgotten this file; the next one may serve.
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
