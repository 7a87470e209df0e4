//! The ioctl that makes a TUN device. All `unsafe` of this crate is here.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// `TUNSETIFF` of `include/uapi/linux/if_tun.h`; the size in it is that of an int.
const SET_DEVICE: Opcode = opcode::write::<i32>(b'T', 202);
/// `IFF_TUN | IFF_NO_PI`: IP packets, and nothing in front of them.
const FLAGS: u16 = 0x0001 | 0x1000;
/// Bytes of a name, with a zero at its end.
const NAME_BYTES: usize = 16;

/// `ifreq` with the flags of its union.
#[repr(C)]
struct DeviceRequest {
    name: [u8; NAME_BYTES],
    flags: u16,
    padding: [u8; 22],
}

/// Makes a TUN device of this name, in the network namespace in which `tun`, a newly opened
/// `/dev/net/tun`, was opened. It goes when `tun` is closed.
///
/// # Errors
/// The kernel's errno; `EINVAL` for a name of more than 15 bytes, `EPERM` without `CAP_NET_ADMIN`.
#[expect(unsafe_code, reason = "no crate that is here has a safe binding for this ioctl")]
pub(crate) fn make_device(tun: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let mut request = DeviceRequest { name: [0; NAME_BYTES], flags: FLAGS, padding: [0; 22] };
    if name.len() >= NAME_BYTES {
        return Err(Errno::INVAL);
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the call reads and writes an `ifreq`, which is 40 bytes as the request is, through a
    // pointer to the request; both it and the descriptor live for the whole call.
    unsafe { ioctl(tun, Updater::<SET_DEVICE, DeviceRequest>::new(&mut request)) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn the_ioctl_has_the_number_and_the_size_of_the_kernel_header() {
        assert_eq!(SET_DEVICE, 0x4004_54ca);
        assert_eq!(size_of::<DeviceRequest>(), 40);
    }

    #[test]
    fn another_file_and_a_long_name_are_refused() {
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        assert_eq!(make_device(null.as_fd(), "slow0"), Err(Errno::NOTTY));
        assert_eq!(make_device(null.as_fd(), "a-name-of-16-byt"), Err(Errno::INVAL));
    }
}
