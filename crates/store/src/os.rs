//! What the system can tell of a file only through calls that no safe binding has.
//!
//! The question is whether anybody still writes a content file that was handed out: descriptors and
//! shared mappings of other programs outlive every request that we see. The system answers it when
//! a read lease is asked for on a descriptor that is open to read: there is none while anybody has
//! the file open for writing, or mapped so. The lease is given back at once; where somebody opens
//! the file in that instant, the system sends SIGIO, which kills who does not expect it:
//! [`expect_lease_signals`] comes first.
//!
//! All `unsafe` of this crate is here.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use rustix::io::Errno;

/// SIGIO no longer ends the process. Programs that it starts do not inherit that.
///
/// # Errors
/// Where the system does not let signals be handled.
pub fn expect_lease_signals() -> io::Result<()> {
    static EXPECTED: OnceLock<Result<(), i32>> = OnceLock::new();
    // A handler, not `SIG_IGN`, which would last through `exec`.
    let expect = || match signal_hook::flag::register(libc::SIGIO, Arc::new(AtomicBool::new(false)))
    {
        Ok(_) => Ok(()),
        Err(error) => Err(error.raw_os_error().unwrap_or(libc::EIO)),
    };
    EXPECTED.get_or_init(expect).map_err(io::Error::from_raw_os_error)
}

/// Whether somebody may still write the file of this descriptor, which is open to read only:
/// through another that is open to write, or a shared mapping.
///
/// # Errors
/// Where the file system has no leases, or the file is not the caller's.
pub fn has_writers(file: impl AsFd) -> io::Result<bool> {
    match set_lease(&file, libc::F_RDLCK) {
        Ok(()) => {
            set_lease(&file, libc::F_UNLCK)?;
            Ok(false)
        }
        Err(error) if error.raw_os_error() == Some(Errno::AGAIN.raw_os_error()) => Ok(true),
        Err(error) => Err(error),
    }
}

#[expect(unsafe_code, reason = "no safe binding knows leases")]
fn set_lease(file: impl AsFd, lease: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open for the whole call, and neither number is a pointer.
    match unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_SETLEASE, lease) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The first page of a file, mapped shared and to write, until dropped. The file may be closed
/// meanwhile; that is what it is for.
#[derive(Debug)]
pub struct Mapped {
    page: NonNull<u8>,
}

impl Mapped {
    /// Maps the file, which has at least one byte and is open to read and write.
    ///
    /// # Errors
    /// Where the system refuses.
    #[expect(unsafe_code, reason = "no safe binding maps a file")]
    pub fn new(file: impl AsFd) -> io::Result<Self> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let descriptor = file.as_fd().as_raw_fd();
        // SAFETY: a new mapping at a place that the system chooses touches no memory of ours.
        let page = unsafe { libc::mmap(ptr::null_mut(), BYTES, prot, flags, descriptor, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(page.cast()) {
            Some(page) => Ok(Self { page }),
            None => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }

    /// Writes the first byte of the file through the mapping. The file is not empty.
    #[expect(unsafe_code, reason = "the byte of a mapping is raw memory")]
    pub fn write(&mut self, byte: u8) {
        // SAFETY: the page is mapped to write until `self` is dropped, and nobody holds a reference
        // into it.
        unsafe { self.page.as_ptr().write_volatile(byte) }
    }
}

impl Drop for Mapped {
    #[expect(unsafe_code, reason = "no safe binding unmaps a file")]
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, whole, and nobody holds a reference into it.
        let unmapped = unsafe { libc::munmap(self.page.as_ptr().cast(), BYTES) };
        debug_assert_eq!(unmapped, 0, "a mapping of ours can be unmapped");
    }
}

/// Bytes that are mapped: within one page, so that the system maps one.
const BYTES: usize = 1;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    /// Descriptors and mappings are found whoever has them, and only while they last. Where the
    /// file system of the temporary folder cannot tell, neither can this test.
    #[test]
    fn writers_and_mappings_are_seen_until_they_end() {
        expect_lease_signals().unwrap();
        expect_lease_signals().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let mut writer = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .unwrap();
        writer.write_all(b"x").unwrap();
        let reader = File::open(&path).unwrap();
        match has_writers(&reader) {
            Ok(found) => assert!(found),
            Err(error) => return println!("skipped: not here: no leases ({error})"),
        }
        let mut mapped = Mapped::new(&writer).unwrap();
        drop(writer);
        if !has_writers(&reader).unwrap() {
            return println!("skipped: not here: mappings are not seen");
        }
        mapped.write(b'y');
        drop(mapped);
        assert!(!has_writers(&reader).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"y");
        let another = File::open(&path).unwrap();
        assert!(!has_writers(&another).unwrap(), "readers do not matter");
    }
}
