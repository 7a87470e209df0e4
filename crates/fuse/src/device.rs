//! The device: descriptors, three ioctls, reading and writing.
//!
//! One `read` returns one request, one `writev` sends one reply, and neither is ever split. A reply
//! must be written to the descriptor from which its request was read: the kernel searches for the
//! request there only.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read, writev};

use crate::bytes::Layout;
use crate::{os, rights};

/// Path of the device.
const PATH: &str = "/dev/fuse";
/// Errnos from here on are internal to the kernel: it refuses a reply with one, and the program
/// goes on waiting.
const ERRNO_END: i32 = 512;
/// Bytes of `fuse_out_header`.
pub(crate) const OUT_HEADER_BYTES: usize = 16;
/// Limit of the parts of a message after its header.
const MOST_PARTS: usize = 3;

/// A descriptor of a connection with the kernel. A connection can have several.
#[derive(Debug)]
pub struct Device(OwnedFd);

/// A file descriptor registered with the kernel, which may read and write through it. Dropping it
/// unregisters it; files that are open through it stay open.
#[derive(Debug)]
pub struct Backing {
    id: i32,
    device: Arc<Device>,
}

impl Device {
    /// Wraps an open `/dev/fuse` that is mounted.
    #[must_use]
    pub const fn new(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Registers a descriptor with the kernel, which then uses it with the rights of an ordinary
    /// user. Needs `CAP_SYS_ADMIN` and Linux 6.9.
    ///
    /// # Errors
    /// The errno of the ioctl.
    pub fn open_backing(self: &Arc<Self>, file: BorrowedFd<'_>) -> io::Result<Backing> {
        let id = rights::as_unprivileged(|| Ok(os::open_backing(self.as_fd(), file)?))?;
        Ok(Backing { id, device: Arc::clone(self) })
    }

    /// Opens another descriptor of the same connection. Needs the right to open the device.
    pub(crate) fn duplicate(&self) -> Result<Self, Errno> {
        let fresh = open(PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        os::clone_device(fresh.as_fd(), self.as_fd())?;
        Ok(Self(fresh))
    }

    /// Waits for a request and returns how many bytes it has.
    pub(crate) fn receive(&self, request: &mut [u8]) -> Result<usize, Errno> {
        read(self, request)
    }

    /// Sends the reply to a request: `payload`, or nothing but `errno` if the request failed.
    pub(crate) fn answer(
        &self,
        unique: u64,
        errno: Option<Errno>,
        payload: &[u8],
    ) -> Result<(), Errno> {
        let error = errno.map_or(0, negative);
        let parts = [payload];
        self.send(unique, error, if payload.is_empty() { &[] } else { &parts })
    }

    /// Sends a notice, which is a message that answers no request.
    pub(crate) fn notify(&self, what: i32, parts: &[&[u8]]) -> Result<(), Errno> {
        self.send(0, what, parts)
    }

    fn send(&self, unique: u64, error: i32, parts: &[&[u8]]) -> Result<(), Errno> {
        let body = parts.iter().map(|part| part.len()).sum::<usize>();
        let header = out_header(unique, error, body);
        let mut slices = [IoSlice::new(&[]); 1 + MOST_PARTS];
        slices[0] = IoSlice::new(&header);
        for (slice, part) in slices[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        let sent = writev(self, &slices[..=parts.len()])?;
        if sent == OUT_HEADER_BYTES + body { Ok(()) } else { Err(Errno::IO) }
    }
}

impl Backing {
    /// Returns the backing id, for [`crate::reply::Opened::backing`].
    #[must_use]
    pub const fn id(&self) -> i32 {
        self.id
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // The end of the connection unregisters all its descriptors.
        if let Err(error) = os::close_backing(self.device.as_fd(), self.id) {
            tracing::debug!(%error, id = self.id, "the kernel had dropped a backing file already");
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Encodes `fuse_out_header`. `body` counts the bytes after it; `error` is zero or a negative
/// errno, or the number of a notice if `unique` is zero.
pub(crate) fn out_header(unique: u64, error: i32, body: usize) -> [u8; OUT_HEADER_BYTES] {
    let bytes = u32::try_from(OUT_HEADER_BYTES.saturating_add(body)).unwrap_or(u32::MAX);
    *Layout::new().u32(bytes).i32(error).u64(unique).done()
}

/// Returns the negative number of an errno, or of `EIO` if a program could not see it.
pub(crate) fn negative(errno: Errno) -> i32 {
    let number = errno.raw_os_error();
    if (1..ERRNO_END).contains(&number) { -number } else { -Errno::IO.raw_os_error() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_errno_leaves_a_program_waiting() {
        assert_eq!(negative(Errno::NOENT), -2);
        assert_eq!(negative(Errno::from_raw_os_error(511)), -511);
        assert_eq!(negative(Errno::from_raw_os_error(512)), -5);
        assert_eq!(negative(Errno::from_raw_os_error(4095)), -5);
    }
}
