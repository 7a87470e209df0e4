//! Destination of a reply: the descriptor or the slot of a ring that brought the request. Linux
//! finds a request only there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Errno;
use crate::device::Device;
use crate::ring::slot::Slot;

/// The descriptor or slot that brought a request, and takes its reply.
#[derive(Debug, Clone)]
pub(crate) enum ReplyTo {
    /// A descriptor of the device.
    Device(Arc<FromDevice>),
    /// The slot of a ring.
    Ring(Arc<Slot>),
}

/// A request that was read from a descriptor of the device.
#[derive(Debug)]
pub(crate) struct FromDevice {
    device: Arc<Device>,
    /// The number of the request; zero once the request is claimed.
    request: AtomicU64,
    /// The request was begun before the file system is called with it, and may have a reply.
    is_parked: bool,
}

impl ReplyTo {
    /// Returns the destination for one request that is read from a descriptor.
    pub(crate) fn device_of(device: &Arc<Device>) -> Self {
        Self::from_device(device, 0, false)
    }

    /// Returns the destination for a request that was read from a descriptor, and waits for a
    /// thread that carries it out.
    pub(crate) fn parked(device: &Arc<Device>, unique: u64) -> Self {
        Self::from_device(device, unique, true)
    }

    fn from_device(device: &Arc<Device>, unique: u64, is_parked: bool) -> Self {
        let device = Arc::clone(device);
        let request = AtomicU64::new(unique);
        Self::Device(Arc::new(FromDevice { device, request, is_parked }))
    }

    /// Replaces this destination for the next request from the device, if the last request still
    /// waits for its reply. Returns whether it does. If not, old references to it are harmless:
    /// they ask for a number that no other request has.
    pub(crate) fn renew(&mut self) -> bool {
        match self {
            Self::Device(from) if from.request.load(Ordering::Acquire) != 0 => {
                *self = Self::device_of(&from.device);
                true
            }
            Self::Device(_) | Self::Ring(_) => false,
        }
    }

    /// Records that a request with this number waits for its reply from now on. A parked request,
    /// and that of a ring, do so already.
    pub(crate) fn begin(&self, unique: u64) {
        match self {
            Self::Device(from) if from.is_parked => {}
            Self::Device(from) => from.request.store(unique, Ordering::Release),
            Self::Ring(_) => {}
        }
    }

    /// Returns whether this request waits and is not claimed yet.
    pub(crate) fn has(&self, unique: u64) -> bool {
        match self {
            Self::Device(from) => from.request.load(Ordering::Relaxed) == unique,
            Self::Ring(slot) => slot.has(unique),
        }
    }

    /// Claims this request: only the claimer may send its reply. Returns `false` if it was claimed
    /// before.
    pub(crate) fn claim(&self, unique: u64) -> bool {
        match self {
            Self::Device(from) => {
                let state = &from.request;
                state.compare_exchange(unique, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            }
            Self::Ring(slot) => slot.claim(unique),
        }
    }

    /// Returns a descriptor of the device, on which content files are registered.
    pub(crate) fn device(&self) -> &Arc<Device> {
        match self {
            Self::Device(from) => &from.device,
            Self::Ring(slot) => slot.device(),
        }
    }

    /// Calls `fill` with the memory of the reply to this request, if it has any before it is sent.
    pub(crate) fn with_room<T>(
        &mut self,
        unique: u64,
        fill: impl FnOnce(Option<&mut [u8]>) -> T,
    ) -> T {
        match self {
            Self::Device(_) => fill(None),
            Self::Ring(slot) => slot.with_room(unique, fill),
        }
    }

    /// Sends a reply whose bytes are in its memory. Only the claimer may call it.
    pub(crate) fn send_room(&self, unique: u64, bytes: usize) {
        match self {
            Self::Device(from) => send(&from.device, unique, Some(Errno::IO), &[]),
            Self::Ring(slot) => slot.answer_room(unique, bytes),
        }
    }

    /// Sends a reply. Only the claimer may call it. If the request was aborted or the mount is
    /// gone, no process waits for it. If the kernel refuses the reply, the caller gets an error
    /// instead.
    pub(crate) fn send(&self, unique: u64, errno: Option<Errno>, payload: &[u8]) {
        match self {
            Self::Device(from) => send(&from.device, unique, errno, payload),
            Self::Ring(slot) => slot.answer(unique, errno, payload),
        }
    }
}

fn send(device: &Device, unique: u64, errno: Option<Errno>, payload: &[u8]) {
    match device.answer(unique, errno, payload) {
        Ok(()) => {}
        Err(error @ (Errno::NOENT | Errno::NODEV | Errno::PERM)) => {
            tracing::debug!(%error, unique, "the kernel no longer waits for this reply");
        }
        Err(error) => {
            let instead = device.answer(unique, Some(Errno::IO), &[]).is_ok();
            tracing::warn!(%error, unique, instead, "the kernel refused a reply");
        }
    }
}
