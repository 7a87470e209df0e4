//! System calls without a safe binding: leases, mappings, and the pages in the page cache. All
//! `unsafe` code of this crate is here.
//!
//! A kernel or a program that was given a content file can write it without a request to us,
//! through descriptors and shared mappings. To learn whether one still can, [`has_writers`] asks
//! for a read lease on a descriptor that is open for reading only: Linux grants none while the file
//! is open for writing, or mapped so. The lease is given back at once. If a program opens the file
//! in that moment, Linux sends SIGIO, which ends a process that has no handler: call
//! [`handle_lease_signals`] first.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

/// The number of cachestat(2), the same on every architecture that we know.
const CACHESTAT: libc::c_long = 451;
/// Length of a mapping, in bytes. Linux maps the whole page.
const MAPPED_BYTES: usize = 1;

/// Installs a handler for SIGIO that does nothing. Programs that this process starts do not inherit
/// it.
///
/// # Errors
/// If the handler cannot be installed.
pub fn handle_lease_signals() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    // Not `SIG_IGN`: programs inherit ignored signals through `exec`.
    let install =
        || match signal_hook::flag::register(libc::SIGIO, Arc::new(AtomicBool::new(false))) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.raw_os_error().unwrap_or(libc::EIO)),
        };
    INSTALLED.get_or_init(install).map_err(io::Error::from_raw_os_error)
}

/// Returns whether the file is open for writing or has a shared writable mapping, in any process.
/// The descriptor must be open for reading only.
///
/// # Errors
/// If the file system has no leases, or the file belongs to another user.
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

#[expect(unsafe_code, reason = "no safe binding has leases")]
fn set_lease(file: impl AsFd, lease: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open for the whole call, and neither number is a pointer.
    match unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_SETLEASE, lease) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns how many pages of a range of a file are in the page cache.
///
/// # Errors
/// If the kernel does not report it: before Linux 6.5, or for this file system.
#[expect(unsafe_code, reason = "no safe binding has cachestat")]
pub fn cached_pages(file: impl AsFd, offset: u64, len: u64) -> io::Result<u64> {
    #[repr(C)]
    struct Range {
        offset: u64,
        len: u64,
    }
    /// The numbers of pages that are cached, dirty, under writeback, evicted, and evicted lately.
    #[repr(C)]
    #[derive(Default)]
    struct Found([u64; 5]);
    // A length of 0 would mean the rest of the file.
    if len == 0 {
        return Ok(0);
    }
    let range = Range { offset, len };
    let mut found = Found::default();
    let descriptor: i32 = file.as_fd().as_raw_fd();
    let flags: u32 = 0;
    let from = ptr::from_ref(&range);
    let to = ptr::from_mut(&mut found);
    // SAFETY: the descriptor is open, and both pointers are to structures of the kernel's layout
    // (cachestat(2)) that outlive the call.
    match unsafe { libc::syscall(CACHESTAT, descriptor, from, to, flags) } {
        0 => Ok(found.0[0]),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A shared writable mapping of the first page of a file, until dropped. It outlives the
/// descriptor: tests and probes use it as a writer without one.
#[derive(Debug)]
pub struct MappedPage {
    page: NonNull<u8>,
}

impl MappedPage {
    /// Maps the first page of a file that is not empty and is open for reading and writing.
    ///
    /// # Errors
    /// If the file cannot be mapped.
    #[expect(unsafe_code, reason = "no safe binding maps a file")]
    pub fn new(file: impl AsFd) -> io::Result<Self> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED;
        let descriptor = file.as_fd().as_raw_fd();
        // SAFETY: a new mapping at an address that Linux chooses touches no memory of ours.
        let page = unsafe { libc::mmap(ptr::null_mut(), MAPPED_BYTES, prot, flags, descriptor, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(page.cast()) {
            Some(page) => Ok(Self { page }),
            None => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }

    /// Writes the first byte of the file, which must not be empty, through the mapping.
    #[expect(unsafe_code, reason = "the byte of a mapping is raw memory")]
    pub fn write(&mut self, byte: u8) {
        // SAFETY: the page is mapped writable until `self` is dropped, and there is no reference
        // into it.
        unsafe { self.page.as_ptr().write_volatile(byte) }
    }
}

impl Drop for MappedPage {
    #[expect(unsafe_code, reason = "no safe binding unmaps a file")]
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, whole, and there is no reference into it.
        let unmapped = unsafe { libc::munmap(self.page.as_ptr().cast(), MAPPED_BYTES) };
        debug_assert_eq!(unmapped, 0, "a mapping of ours can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    /// Descriptors and mappings are found while they exist, and not after that. If the
    /// file system of the temporary folder cannot tell, the test is skipped.
    #[test]
    fn writers_and_mappings_are_seen_until_they_end() {
        handle_lease_signals().unwrap();
        handle_lease_signals().unwrap();
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
        let mut mapped = MappedPage::new(&writer).unwrap();
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
