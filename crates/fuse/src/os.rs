//! Three calls on the device that no safe binding has. All `unsafe` of this crate is here.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl, opcode};

/// Of `include/uapi/linux/fuse.h`.
const GROUP: u8 = 229;
const CLONE: Opcode = opcode::read::<u32>(GROUP, 0);
const BACKING_OPEN: Opcode = opcode::write::<BackingMap>(GROUP, 1);
const BACKING_CLOSE: Opcode = opcode::write::<i32>(GROUP, 2);

/// Makes `fresh`, an opened `/dev/fuse`, a further door to the connection of `device`.
///
/// # Errors
/// The kernel's; `EINVAL` where `fresh` has a connection, or `device` none.
#[expect(unsafe_code, reason = "no safe binding knows this call")]
pub(crate) fn join(fresh: BorrowedFd<'_>, device: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the call reads the number of a descriptor from where it is pointed to, and writes
    // nothing; both descriptors are open for the whole call.
    unsafe { ioctl(fresh, Setter::<CLONE, i32>::new(device.as_raw_fd())) }
}

/// Makes `file` known to the kernel; answers the number of it.
///
/// # Errors
/// The kernel's; `EPERM` without `CAP_SYS_ADMIN`, or where it was not agreed on.
#[expect(unsafe_code, reason = "no safe binding knows this call")]
pub(crate) fn open_backing(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<i32, Errno> {
    let map = BackingMap { descriptor: file.as_raw_fd(), flags: 0, padding: 0 };
    // SAFETY: the call reads a map from where it is pointed to, and writes nothing; both
    // descriptors are open for the whole call.
    unsafe { ioctl(device, map) }
}

/// Ends what [`open_backing`] began.
///
/// # Errors
/// The kernel's; `ENOENT` for a number that it does not know.
#[expect(unsafe_code, reason = "no safe binding knows this call")]
pub(crate) fn close_backing(device: BorrowedFd<'_>, number: i32) -> Result<(), Errno> {
    // SAFETY: the call reads a number from where it is pointed to, and writes nothing; the
    // descriptor is open for the whole call.
    unsafe { ioctl(device, Setter::<BACKING_CLOSE, i32>::new(number)) }
}

/// `fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    descriptor: i32,
    flags: u32,
    padding: u64,
}

// SAFETY: `BACKING_OPEN` takes a pointer to a `fuse_backing_map`, which this is, and only reads it;
// it answers by what it returns.
#[expect(unsafe_code, reason = "what a call returns is lost by the patterns there are")]
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

    /// The numbers as the kernel's header makes them.
    #[test]
    fn calls_have_the_kernel_s_numbers() {
        assert_eq!(CLONE, 0x8004_e500);
        assert_eq!(BACKING_OPEN, 0x4010_e501);
        assert_eq!(BACKING_CLOSE, 0x4004_e502);
    }

    /// What is not the device says so, and nothing else happens.
    #[test]
    fn another_file_knows_none_of_them() {
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let null = null.as_fd();
        assert_eq!(join(null, null), Err(Errno::NOTTY));
        assert_eq!(open_backing(null, null), Err(Errno::NOTTY));
        assert_eq!(close_backing(null, 1), Err(Errno::NOTTY));
    }
}
