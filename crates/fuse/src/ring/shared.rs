//! State that replies share with the thread of their queue, which alone may submit them.

use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};

use crate::bytes::Layout;
use crate::device::Device;

/// The state that replies share with the queue of their slot.
#[derive(Debug)]
pub(super) struct Shared {
    device: Arc<Device>,
    answered: Mutex<Vec<Answered>>,
    /// The thread waits, or is about to.
    is_asleep: AtomicBool,
    has_ended: AtomicBool,
    wake: OwnedFd,
}

/// A reply that the queue is to send.
#[derive(Debug)]
pub(super) struct Answered {
    /// The slot of its request.
    pub(super) slot: usize,
    /// The number of the request.
    pub(super) unique: u64,
    /// Zero or a negative errno.
    pub(super) error: i32,
    pub(super) payload: Payload,
}

/// The payload of a reply.
#[derive(Debug)]
pub(super) enum Payload {
    /// The payload is in the slot and has this number of bytes.
    Written(usize),
    /// The payload is here: a call was still reading the request in the slot.
    Kept(Vec<u8>),
}

impl Shared {
    /// # Errors
    /// Those of the system call.
    pub(super) fn new(device: &Arc<Device>) -> io::Result<Self> {
        Ok(Self {
            device: Arc::clone(device),
            answered: Mutex::default(),
            is_asleep: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub(super) const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Takes a reply for the queue, and wakes its thread.
    pub(super) fn answered(&self, answered: Answered) {
        self.answered.lock().push(answered);
        self.wake();
    }

    /// Ends the thread of the queue.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Takes the replies that are ready.
    pub(super) fn take_answered(&self) -> Vec<Answered> {
        mem::take(&mut *self.answered.lock())
    }

    /// Returns whether the thread may wait: a reply from now on wakes it.
    pub(super) fn fall_asleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::SeqCst);
        self.answered.lock().is_empty() && !self.has_ended()
    }

    /// Records that the thread no longer waits.
    pub(super) fn stay_awake(&self) {
        self.is_asleep.store(false, Ordering::Relaxed);
    }

    /// Returns whether [`Shared::end`] was called.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Returns the descriptor that becomes readable when the thread is woken.
    pub(super) const fn wake_descriptor(&self) -> &OwnedFd {
        &self.wake
    }

    fn wake(&self) {
        if self.is_asleep.swap(false, Ordering::SeqCst)
            && let Err(error) = write(&self.wake, Layout::<8>::new().u64(1).done())
        {
            tracing::error!(%error, "a queue of the ring is not woken");
        }
    }

    /// Resets the descriptor that woke the thread.
    pub(super) fn clear_wake(&self) {
        let mut count = [0; 8];
        if let Err(error) = read(&self.wake, &mut count) {
            tracing::trace!(%error, "nothing woke this queue");
        }
    }
}
