//! TCP ports that are Unix sockets: guests connect by TCP and TLS, and bytes between two Unix
//! sockets arrive at once, in each run alike.
//!
//! As in [`crate::system`], the functions here replace those of the C library for threads that take
//! turns.

use std::ffi::c_int;
use std::io;
use std::mem::{self, offset_of};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libc::{sa_family_t, sockaddr, sockaddr_in, sockaddr_un, socklen_t};

use crate::original::original;
use crate::turns;

/// The end of the name of a socket that stands for a port.
const SUFFIX: &[u8] = b".port";
/// The folder of these sockets.
static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Says in which folder the sockets are. A later call has no effect.
pub(crate) fn lay(dir: &Path) {
    FOLDER.get_or_init(|| dir.to_path_buf());
}

/// Returns the path of the socket that stands for a port.
pub(crate) fn path(port: u16) -> PathBuf {
    FOLDER.get().map(|dir| dir.join(format!("{port}.port"))).unwrap_or_default()
}

/// Listens on a port. A socket of an earlier run of the server is replaced.
///
/// # Errors
/// The system's.
pub(crate) fn listen(port: u16) -> io::Result<TcpListener> {
    let path = path(port);
    if path.exists() {
        std::fs::remove_file(&path)?;
    }
    Ok(TcpListener::from(OwnedFd::from(UnixListener::bind(path)?)))
}

fn family(family: c_int) -> sa_family_t {
    sa_family_t::try_from(family).unwrap_or(0)
}

/// Returns the address of the socket that stands for a port.
fn socket_of(port: u16) -> sockaddr_un {
    let mut address = sockaddr_un { sun_family: family(libc::AF_UNIX), sun_path: [0; 108] };
    let path = path(port);
    let bytes = path.as_os_str().as_encoded_bytes();
    // One byte stays zero.
    let end = address.sun_path.len() - 1;
    for (to, from) in address.sun_path[..end].iter_mut().zip(bytes) {
        *to = from.cast_signed();
    }
    address
}

fn get_name(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    original!(
        c"getsockname",
        fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int,
        (fd, address, length)
    )
}

/// Returns whether a socket stands for a port.
fn is_port(fd: c_int) -> bool {
    let mut name = sockaddr_un { sun_family: 0, sun_path: [0; 108] };
    let mut length = socklen_t::try_from(size_of::<sockaddr_un>()).unwrap_or(0);
    let failed = get_name(fd, (&raw mut name).cast(), &raw mut length);
    let used = usize::try_from(length).unwrap_or(0);
    let used = used.saturating_sub(offset_of!(sockaddr_un, sun_path));
    let path: Vec<u8> = name.sun_path.iter().take(used).map(|it| it.cast_unsigned()).collect();
    let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
    failed == 0 && name.sun_family == family(libc::AF_UNIX) && path.ends_with(SUFFIX)
}

/// Writes the address of this machine.
///
/// # Safety
/// Both are null, or good for an address of this length.
unsafe fn write_own_address(address: *mut sockaddr, length: *mut socklen_t) {
    // SAFETY: it is a structure of numbers.
    let mut own: sockaddr_in = unsafe { mem::zeroed() };
    own.sin_family = family(libc::AF_INET);
    own.sin_port = 1_u16.to_be();
    own.sin_addr.s_addr = u32::from(Ipv4Addr::LOCALHOST).to_be();
    // SAFETY: as the caller says.
    unsafe {
        if let Some(length) = length.as_mut()
            && !address.is_null()
        {
            let size = size_of::<sockaddr_in>();
            let size = size.min(usize::try_from(*length).unwrap_or(0));
            std::ptr::copy_nonoverlapping((&raw const own).cast::<u8>(), address.cast(), size);
            *length = socklen_t::try_from(size).unwrap_or(0);
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let is_tcp = domain == libc::AF_INET && turns::current().is_some();
    let domain = if is_tcp { libc::AF_UNIX } else { domain };
    original!(c"socket", fn(c_int, c_int, c_int) -> c_int, (domain, kind, protocol))
}

#[unsafe(no_mangle)]
extern "C" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    let call = |address: *const sockaddr, length: socklen_t| {
        original!(c"connect", fn(c_int, *const sockaddr, socklen_t) -> c_int, (fd, address, length))
    };
    // SAFETY: an address begins with its family.
    let is_tcp = unsafe { (*address).sa_family } == family(libc::AF_INET);
    if !is_tcp || turns::current().is_none() {
        return call(address, length);
    }
    // SAFETY: its family says what it is.
    let port = u16::from_be(unsafe { address.cast::<sockaddr_in>().read_unaligned() }.sin_port);
    let socket = socket_of(port);
    let length = socklen_t::try_from(size_of::<sockaddr_un>()).unwrap_or(0);
    call((&raw const socket).cast(), length)
}

#[unsafe(no_mangle)]
extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let tells = turns::current().is_some() && is_port(fd);
    // SAFETY: the caller's.
    let room = unsafe { length.as_ref() }.copied();
    let accepted = original!(
        c"accept4",
        fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int,
        (fd, address, length, flags)
    );
    if tells && accepted >= 0 {
        // SAFETY: the caller's.
        unsafe {
            if let (Some(length), Some(room)) = (length.as_mut(), room) {
                *length = room;
            }
            write_own_address(address, length);
        }
    }
    accepted
}

#[unsafe(no_mangle)]
extern "C" fn getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    if turns::current().is_some() && is_port(fd) {
        // SAFETY: the caller's.
        unsafe { write_own_address(address, length) };
        return 0;
    }
    get_name(fd, address, length)
}
