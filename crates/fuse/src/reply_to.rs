//! Where the reply to a request goes: back to what brought the request.

use std::sync::Arc;

use crate::Errno;
use crate::device::Device;
use crate::ring::Slot;

/// What brought a request, and takes its reply.
#[derive(Debug, Clone)]
pub(crate) enum ReplyTo {
    /// A descriptor of the device.
    Device(Arc<Device>),
    /// The slot of a ring.
    Ring(Arc<Slot>),
}

impl ReplyTo {
    /// Returns a descriptor of the device, on which files are registered.
    pub(crate) fn device(&self) -> &Arc<Device> {
        match self {
            Self::Device(device) => device,
            Self::Ring(slot) => slot.device(),
        }
    }

    /// Calls `fill` with the memory of the reply, if it has any before it is sent.
    pub(crate) fn with_room<T>(&mut self, fill: impl FnOnce(Option<&mut [u8]>) -> T) -> T {
        match self {
            Self::Device(_) => fill(None),
            Self::Ring(slot) => slot.with_room(fill),
        }
    }

    /// Sends a reply whose bytes are in its memory.
    pub(crate) fn send_room(&self, unique: u64, bytes: usize) {
        match self {
            Self::Device(device) => send(device, unique, Some(Errno::IO), &[]),
            Self::Ring(slot) => slot.answer_room(unique, bytes),
        }
    }

    /// Sends a reply. If the request was aborted or the mount is gone, no process waits for it. If
    /// the kernel refuses the reply, the caller gets an error instead.
    pub(crate) fn send(&self, unique: u64, errno: Option<Errno>, payload: &[u8]) {
        match self {
            Self::Device(device) => send(device, unique, errno, payload),
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
