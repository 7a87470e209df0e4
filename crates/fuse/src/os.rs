//! The three ioctls of the device. The other `unsafe` of this crate is that of the
//! ring: its memory and its commands.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl, opcode};

/// The ioctl type in `include/uapi/linux/fuse.h`.
const GROUP: u8 = 229;
const CLONE: Opcode = opcode::read::<u32>(GROUP, 0);
const BACKING_OPEN: Opcode = opcode::write::<BackingMap>(GROUP, 1);
const BACKING_CLOSE: Opcode = opcode::write::<i32>(GROUP, 2);

/// Attaches `fresh`, a newly opened `/dev/fuse`, to the connection of `device`.
///
/// # Errors
/// The kernel's errno; `EINVAL` if `fresh` has a connection, or `device` none.
#[expect(unsafe_code, reason = "no crate has a safe binding for this ioctl")]
pub(crate) fn clone_device(fresh: BorrowedFd<'_>, device: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the call reads a descriptor through the pointer, and writes
    // nothing; both descriptors are open for the whole call.
    unsafe { ioctl(fresh, Setter::<CLONE, i32>::new(device.as_raw_fd())) }
}

/// Registers `file` with the kernel and returns its backing id.
///
/// # Errors
/// The kernel's errno; `EPERM` without `CAP_SYS_ADMIN`, or if passthrough was not negotiated.
#[expect(unsafe_code, reason = "no crate has a safe binding for this ioctl")]
pub(crate) fn open_backing(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<i32, Errno> {
    let map = BackingMap { descriptor: file.as_raw_fd(), flags: 0, padding: 0 };
    // SAFETY: the call reads a map through the pointer, and writes nothing; both
    // descriptors are open for the whole call.
    unsafe { ioctl(device, map) }
}

/// Unregisters the descriptor with this backing id.
///
/// # Errors
/// The kernel's errno; `ENOENT` for an unknown id.
#[expect(unsafe_code, reason = "no crate has a safe binding for this ioctl")]
pub(crate) fn close_backing(device: BorrowedFd<'_>, id: i32) -> Result<(), Errno> {
    // SAFETY: the call reads an id through the pointer, and writes nothing; the
    // descriptor is open for the whole call.
    unsafe { ioctl(device, Setter::<BACKING_CLOSE, i32>::new(id)) }
}

/// `fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    descriptor: i32,
    flags: u32,
    padding: u64,
}

// SAFETY: `BACKING_OPEN` takes a pointer to a `fuse_backing_map`, which this is, and only reads it;
// its result is its return value.
#[expect(unsafe_code, reason = "rustix's ioctl patterns drop the return value")]
unsafe impl Ioctl for BackingMap {
    type Output = i32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        BACKING_OPEN
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut *self).cast()
    }

    unsafe fn output_from_ptr(
        returned: IoctlOutput,
        _map: *mut c_void,
    ) -> rustix::io::Result<Self::Output> {
        Ok(returned)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn ioctls_have_the_numbers_of_the_kernel_header() {
        assert_eq!(CLONE, 0x8004_e500);
        assert_eq!(BACKING_OPEN, 0x4010_e501);
        assert_eq!(BACKING_CLOSE, 0x4004_e502);
    }

    #[test]
    fn a_file_that_is_not_the_device_refuses_all_ioctls() {
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let null = null.as_fd();
        assert_eq!(clone_device(null, null), Err(Errno::NOTTY));
        assert_eq!(open_backing(null, null), Err(Errno::NOTTY));
        assert_eq!(close_backing(null, 1), Err(Errno::NOTTY));
    }
}
