//! Memory of a slot, which the kernel and our threads write in turn.

use std::io::{self, IoSlice};
use std::ptr::{self, NonNull};
use std::slice;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::layout::HEADERS_BYTES;

/// Offset of the list of both parts for the kernel: after the headers.
const PARTS: usize = 512;
/// Offset of the payload, on a page of its own.
const PAYLOAD: usize = 4096;

/// Headers and payload of one request and its reply. Pages that nothing was written to take no
/// memory.
#[derive(Debug)]
pub(super) struct Memory {
    start: NonNull<u8>,
    payload_bytes: usize,
}

// SAFETY: the memory belongs to this value alone and has no tie to a thread.
#[expect(unsafe_code, reason = "a pointer to mapped memory")]
unsafe impl Send for Memory {}
// SAFETY: all methods that read or write it are unsafe, and want that no other does at the time.
#[expect(unsafe_code, reason = "a pointer to mapped memory")]
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps memory for a payload of `payload_bytes` bytes.
    ///
    /// # Errors
    /// Those of `mmap`.
    #[expect(unsafe_code, reason = "memory that outlives all references is mapped by hand")]
    pub(super) fn new(payload_bytes: usize) -> io::Result<Self> {
        let bytes = PAYLOAD + payload_bytes;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, flags)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = Self { start, payload_bytes };
        let parts = [(0, HEADERS_BYTES), (PAYLOAD, payload_bytes)];
        let parts = parts.map(|(at, bytes)| {
            // SAFETY: both ranges are in the mapping, which is zeroed and which only the kernel
            // will read by these.
            IoSlice::new(unsafe { slice::from_raw_parts(memory.at(at), bytes) })
        });
        // SAFETY: the place is in the first page of the mapping, aligned, and used by nothing
        // else; `IoSlice` has the layout of `iovec`.
        unsafe { memory.at(PARTS).cast::<[IoSlice<'_>; 2]>().write(parts) };
        Ok(memory)
    }

    /// Returns the address of the list of both parts (`iovec[2]`).
    pub(super) fn parts(&self) -> u64 {
        self.at(PARTS).addr() as u64
    }

    /// Returns a copy of the headers.
    ///
    /// # Safety
    /// The kernel does not have the memory, and nothing writes it meanwhile.
    #[expect(unsafe_code, reason = "the kernel writes this memory too")]
    pub(super) unsafe fn headers(&self) -> [u8; HEADERS_BYTES] {
        // SAFETY: the headers are in the mapping, and the caller has them for itself.
        unsafe { self.start.as_ptr().cast::<[u8; HEADERS_BYTES]>().read() }
    }

    /// Returns the first bytes of the payload, at most all of them.
    ///
    /// # Safety
    /// The kernel does not have the memory, and nothing writes it while the slice is used.
    #[expect(unsafe_code, reason = "the kernel writes this memory too")]
    pub(super) unsafe fn payload(&self, bytes: usize) -> &[u8] {
        let bytes = bytes.min(self.payload_bytes);
        // SAFETY: the range is in the mapping, and the caller sees that nothing writes it.
        unsafe { slice::from_raw_parts(self.at(PAYLOAD), bytes) }
    }

    /// Returns the payload, all of it.
    ///
    /// # Safety
    /// The kernel does not have the memory, and nothing else uses it while the slice is used.
    #[expect(unsafe_code, reason = "the kernel reads this memory")]
    #[expect(clippy::mut_from_ref, reason = "memory that is shared with the kernel")]
    pub(super) unsafe fn payload_mut(&self) -> &mut [u8] {
        // SAFETY: the range is in the mapping, and the caller has it for itself.
        unsafe { slice::from_raw_parts_mut(self.at(PAYLOAD), self.payload_bytes) }
    }

    /// Returns the limit of the bytes of a payload.
    pub(super) const fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Writes to the headers.
    ///
    /// # Safety
    /// The kernel does not have the memory, and nothing reads or writes the headers meanwhile.
    #[expect(unsafe_code, reason = "the kernel reads this memory")]
    pub(super) unsafe fn put_header(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= HEADERS_BYTES, "beyond the headers");
        // SAFETY: the range is in the headers, which the caller has for itself.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(at), bytes.len()) }
    }

    /// Writes the payload; `false`, and nothing, if it is too long.
    ///
    /// # Safety
    /// The kernel does not have the memory, and nothing reads or writes the payload meanwhile.
    #[expect(unsafe_code, reason = "the kernel reads this memory")]
    pub(super) unsafe fn put_payload(&self, bytes: &[u8]) -> bool {
        if bytes.len() > self.payload_bytes {
            return false;
        }
        // SAFETY: the range is in the mapping, and the caller has the payload for itself.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(PAYLOAD), bytes.len()) }
        true
    }

    /// Gives the pages of the payload back to the system: they are zero afterwards.
    ///
    /// # Safety
    /// Nothing reads or writes the payload meanwhile, nor does the kernel.
    #[expect(unsafe_code, reason = "the kernel writes this memory too")]
    pub(super) unsafe fn give_back(&self) {
        // SAFETY: the range is the payload, page by page, which the caller has for itself.
        let given =
            unsafe { madvise(self.at(PAYLOAD).cast(), self.payload_bytes, Advice::LinuxDontNeed) };
        if let Err(error) = given {
            tracing::debug!(%error, "the pages of a payload stay in memory");
        }
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.start.as_ptr().wrapping_add(offset)
    }
}

impl Drop for Memory {
    #[expect(unsafe_code, reason = "what was mapped by hand is unmapped by hand")]
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's. The kernel writes it only in calls by the thread of
        // the queue, which keeps it until its ring is closed.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), PAYLOAD + self.payload_bytes) };
        if let Err(error) = unmapped {
            tracing::debug!(%error, "the memory of a slot stays");
        }
    }
}
