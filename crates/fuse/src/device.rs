//! The device: descriptors, three calls, reading and writing.
//!
//! One `read` takes one request, one `writev` brings one answer, and neither is ever split. An
//! answer goes through the door by which its request came: the kernel looks for it there only.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read, writev};

use crate::bytes::Layout;
use crate::{os, rights};

/// The device's place.
const PATH: &str = "/dev/fuse";
/// Programs see errnos below this; the kernel takes no answer with others, and goes on waiting.
const ERRNO_END: i32 = 512;
/// Bytes of `fuse_out_header`.
const OUT_HEADER_BYTES: usize = 16;
/// The most parts of a message behind its header.
const MOST_PARTS: usize = 3;

/// A connection with the kernel, or another door to the same one.
#[derive(Debug)]
pub struct Device(OwnedFd);

/// A descriptor that the kernel knows by a number and may read and write files by. Dropped, the
/// kernel knows it no more; what is open by it stays open.
#[derive(Debug)]
pub struct Backing {
    number: i32,
    device: Arc<Device>,
}

impl Device {
    /// From an open `/dev/fuse` that is mounted.
    #[must_use]
    pub const fn new(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Makes a descriptor known to the kernel, which then uses it with the rights of an ordinary
    /// user. Needs `CAP_SYS_ADMIN` and Linux 6.9.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_backing(self: &Arc<Self>, file: BorrowedFd<'_>) -> io::Result<Backing> {
        let number = rights::as_ordinary(|| Ok(os::open_backing(self.as_fd(), file)?))?;
        Ok(Backing { number, device: Arc::clone(self) })
    }

    /// Another door to the same connection. Needs the right to open the device.
    pub(crate) fn another(&self) -> Result<Self, Errno> {
        let fresh = open(PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        os::join(fresh.as_fd(), self.as_fd())?;
        Ok(Self(fresh))
    }

    /// Waits for a request; answers how many bytes it has.
    pub(crate) fn receive(&self, request: &mut [u8]) -> Result<usize, Errno> {
        read(self, request)
    }

    /// Answers a request; `errno` where it failed, which has no payload.
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

    /// Tells the kernel something that it did not ask for.
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
    /// For [`crate::reply::Opened::backing`].
    #[must_use]
    pub const fn number(&self) -> i32 {
        self.number
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // With the connection go all its backing files.
        if let Err(error) = os::close_backing(self.device.as_fd(), self.number) {
            tracing::debug!(%error, number = self.number, "a backing file was gone already");
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `fuse_out_header`. `body` is the bytes behind it; `error` is zero, or a negative errno, or with
/// `unique` zero what is noticed.
fn out_header(unique: u64, error: i32, body: usize) -> [u8; OUT_HEADER_BYTES] {
    let bytes = u32::try_from(OUT_HEADER_BYTES.saturating_add(body)).unwrap_or(u32::MAX);
    *Layout::new().u32(bytes).i32(error).u64(unique).done()
}

/// As answers say it.
fn negative(errno: Errno) -> i32 {
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
