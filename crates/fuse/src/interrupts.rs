//! Interrupts that overtake their request.
//!
//! The kernel sends an interrupt as soon as its request was read, to the thread that reads next. So
//! the file system may get the interrupt before another thread has called it with the request. Such
//! an interrupt is held. The thread that has called the file system with its request delivers it
//! again. If the request is unknown even then, and after a call with any other request, the
//! interrupt goes back to the kernel (`EAGAIN`), which repeats it if the request still waits and
//! drops it otherwise. An interrupt is held at most until the end of the next call, and none is
//! repeated without a call: so threads do not turn in a circle while a request waits.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use crate::Errno;
use crate::device::Device;
use crate::ring::retries::Retries;

/// Limit of the interrupts that are held; each is of a process that waits.
const KEPT: usize = 4096;

/// The interrupts that came too early, and the descriptors of the connection.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    kept: Mutex<Vec<Interrupt>>,
    /// True if any is held, so that a call without one takes no lock.
    any: AtomicBool,
    /// Takes the interrupts if requests come by a ring.
    retries: OnceLock<Arc<Retries>>,
    /// Weak: the kernel ends what was read from a descriptor once that is closed.
    devices: Mutex<Vec<Weak<Device>>>,
}

/// A FUSE_INTERRUPT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interrupt {
    /// Number of the interrupt itself, to which `EAGAIN` is the reply.
    pub(crate) number: u64,
    /// The number of the request whose caller got a signal.
    pub(crate) request: u64,
}

impl Interrupts {
    /// Adds a descriptor of the connection. One that is added twice counts once.
    pub(crate) fn add_device(&self, device: &Arc<Device>) {
        let mut devices = self.devices.lock();
        let device = Arc::downgrade(device);
        if !devices.iter().any(|known| known.ptr_eq(&device)) {
            devices.push(device);
        }
    }

    /// Has interrupts delivered again by `retries`, before the first request.
    pub(crate) fn retry_by(&self, retries: Arc<Retries>) {
        if self.retries.set(retries).is_err() {
            tracing::error!("interrupts are tried again already");
        }
    }

    /// Delivers an interrupt, or holds it if the file system does not know its request. `ask` is
    /// [`Filesystem::interrupt`](crate::Filesystem::interrupt).
    pub(crate) fn received(&self, interrupt: Interrupt, ask: impl Fn(u64) -> bool) {
        if ask(interrupt.request) {
            return;
        }
        if let Some(retries) = self.retries.get() {
            return retries.add(interrupt.request);
        }
        if !self.keep(interrupt) {
            return;
        }
        // If the call with the request ended before the interrupt was held, it has not seen it. The
        // lock of the file system orders the two: if the call came second, it has seen it.
        if ask(interrupt.request) {
            self.take(|kept| kept.retain(|other| *other != interrupt));
        }
    }

    /// Delivers the interrupts that are held for `request`, with which the file system has just
    /// been called. Sends all others back, and those whose request is unknown even now.
    pub(crate) fn called(&self, request: u64, ask: impl Fn(u64) -> bool) {
        // Relaxed: the lock of the file system orders this after the `store` of an interrupt that
        // it was asked about before the call.
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        for interrupt in self.take(mem::take) {
            if interrupt.request != request || !ask(request) {
                self.send_back(interrupt);
            }
        }
    }

    /// Holds an interrupt. Returns whether there was room.
    fn keep(&self, interrupt: Interrupt) -> bool {
        let has_room = self.take(|kept| {
            let has_room = kept.len() < KEPT;
            if has_room {
                kept.push(interrupt);
            }
            has_room
        });
        if !has_room {
            tracing::warn!(?interrupt, "an interrupt is dropped: too many came too early");
        }
        has_room
    }

    /// Changes the interrupts that are held.
    fn take<T>(&self, change: impl FnOnce(&mut Vec<Interrupt>) -> T) -> T {
        let mut kept = self.kept.lock();
        let result = change(&mut kept);
        self.any.store(!kept.is_empty(), Ordering::Relaxed);
        result
    }

    /// Asks the kernel to repeat an interrupt. Linux searches for the request only at the
    /// descriptor from which it was read; if all answer `ENOENT`, the request has its reply.
    fn send_back(&self, interrupt: Interrupt) {
        let devices = self.devices.lock().clone();
        let mut devices = devices.iter().filter_map(Weak::upgrade);
        let again = Some(Errno::AGAIN);
        let is_back = devices.any(|device| device.answer(interrupt.number, again, &[]).is_ok());
        tracing::trace!(?interrupt, is_back, "an interrupt was sent back");
    }
}

#[cfg(test)]
mod tests;
