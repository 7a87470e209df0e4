//! The request that a thread carries out, visible to another thread.
//!
//! A call of the file system may hang, for example with a disk. Its thread can report nothing then.
//! So it publishes each request before the call, by plain stores, which cost next to nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::device::Device;
use crate::operation::Wait;
use crate::reply_to::ReplyTo;
use crate::request::Header;

/// The request of a thread that reads from a descriptor, if it carries one out.
#[derive(Debug)]
pub(crate) struct Hand {
    /// The number of the request; zero between two requests.
    request: AtomicU64,
    /// Thread of its caller, and how that waits. They belong to `request` if that is the same
    /// before and after they are read.
    thread: AtomicU32,
    wait: AtomicU8,
    /// The destination of its reply. A leaf lock.
    to: Mutex<ReplyTo>,
}

/// A request that a thread has in its hands.
#[derive(Debug)]
pub(crate) struct InHand {
    pub(crate) request: u64,
    pub(crate) thread: u32,
    pub(crate) wait: Wait,
    pub(crate) to: ReplyTo,
}

impl Hand {
    /// Returns the empty hand of a thread that reads from a descriptor.
    pub(crate) fn of(device: &Arc<Device>) -> Self {
        Self {
            request: AtomicU64::new(0),
            thread: AtomicU32::new(0),
            wait: AtomicU8::new(OTHER),
            to: Mutex::new(ReplyTo::device_of(device)),
        }
    }

    /// Returns the destination of replies to requests of this thread.
    pub(crate) fn reply_to(&self) -> ReplyTo {
        self.to.lock().clone()
    }

    /// Sets the destination of replies to further requests.
    pub(crate) fn replies_to(&self, to: &ReplyTo) {
        *self.to.lock() = to.clone();
    }

    /// Publishes a request that the thread begins.
    pub(crate) fn takes(&self, header: &Header, wait: Wait) {
        // Release: a thread that sees these values also sees that the last request is over.
        self.thread.store(header.pid, Ordering::Release);
        self.wait.store(number(wait), Ordering::Release);
        self.request.store(header.unique, Ordering::Release);
    }

    /// Records that the call with the request is over.
    pub(crate) fn is_free(&self) {
        self.request.store(0, Ordering::Release);
    }

    /// Returns the number of the request; zero if there is none.
    pub(crate) fn request(&self) -> u64 {
        self.request.load(Ordering::Acquire)
    }

    /// Returns the request with this number, if the thread still has it.
    pub(crate) fn in_hand(&self, request: u64) -> Option<InHand> {
        let thread = self.thread.load(Ordering::Acquire);
        let wait = wait(self.wait.load(Ordering::Acquire));
        let to = self.reply_to();
        (self.request() == request).then_some(InHand { request, thread, wait, to })
    }
}

/// The numbers of [`Wait`] in memory.
const CLOSE: u8 = 0;
const OTHER: u8 = 1;
const WRITE_BACK: u8 = 2;

const fn number(wait: Wait) -> u8 {
    match wait {
        Wait::Close => CLOSE,
        Wait::Other => OTHER,
        Wait::WriteBack => WRITE_BACK,
    }
}

const fn wait(number: u8) -> Wait {
    match number {
        CLOSE => Wait::Close,
        OTHER => Wait::Other,
        _ => Wait::WriteBack,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::ids::NodeId;

    #[test]
    fn a_request_is_seen_until_its_call_is_over() {
        let device = Arc::new(Device::new(File::open("/dev/null").unwrap().into()));
        let hand = Hand::of(&device);
        assert_eq!(hand.request(), 0);
        for kind in [Wait::Close, Wait::Other, Wait::WriteBack] {
            let header = Header { unique: 8, node: NodeId(1), uid: 0, gid: 0, pid: 17 };
            hand.takes(&header, kind);
            assert_eq!(hand.request(), 8);
            let in_hand = hand.in_hand(8).unwrap();
            assert_eq!((in_hand.request, in_hand.thread, in_hand.wait), (8, 17, kind));
            assert!(hand.in_hand(6).is_none());
            hand.is_free();
            assert_eq!(hand.request(), 0);
            assert!(hand.in_hand(8).is_none());
        }
    }
}
