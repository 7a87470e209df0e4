//! Slots: memory for one request and its reply, and its present owner.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::layout::{self, ADDED, HEADERS_BYTES};
use super::memory::Memory;
use super::shared::{Answered, Payload, Shared};
use crate::Errno;
use crate::device::{Device, negative};

/// Memory for one request and its reply.
///
/// While the kernel has the slot, nothing here touches its memory. From the completion of its
/// command on, the memory belongs to the queue, and its payload to the one reply to the request. A
/// slot is shared (`Arc`), so a reply that comes after the end of the ring still has its memory.
#[derive(Debug)]
pub(crate) struct Slot {
    number: usize,
    memory: Memory,
    shared: Arc<Shared>,
    /// The number by which the kernel finds the request (`commit_id`).
    commit: AtomicU64,
    /// The number of the request; zero once it is claimed, [`FILLING`] while the reply is written
    /// to its room in the slot.
    request: AtomicU64,
    /// A call reads the payload of the request, so the reply must be kept elsewhere.
    is_read: AtomicBool,
}

/// A number that no request has.
const FILLING: u64 = u64::MAX;

/// The room for a reply in a slot while it is filled: the request cannot be claimed meanwhile.
struct Filling<'a> {
    slot: &'a Slot,
    request: u64,
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        self.slot.request.store(self.request, Ordering::Release);
    }
}

impl Slot {
    /// Maps the memory of a slot.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub(super) fn new(
        number: usize,
        shared: &Arc<Shared>,
        payload_bytes: usize,
    ) -> io::Result<Self> {
        Ok(Self {
            number,
            memory: Memory::new(payload_bytes)?,
            shared: Arc::clone(shared),
            commit: AtomicU64::new(0),
            request: AtomicU64::new(0),
            is_read: AtomicBool::new(false),
        })
    }

    /// Returns the device of the connection.
    pub(crate) fn device(&self) -> &Arc<Device> {
        self.shared.device()
    }

    /// Replies to the request in the slot: with `payload`, or with nothing but `errno` if it
    /// failed. Once for each request, by the one that has claimed it.
    pub(crate) fn answer(&self, unique: u64, errno: Option<Errno>, payload: &[u8]) {
        self.request.store(0, Ordering::Relaxed);
        let mut error = errno.map_or(0, negative);
        let payload = if self.is_read.load(Ordering::Acquire) {
            Payload::Kept(payload.to_vec())
        } else {
            Payload::Written(self.put(payload, &mut error))
        };
        self.shared.answered(Answered { slot: self.number, unique, error, payload });
    }

    /// Claims this request: only the claimer may reply. Returns `false` if it was claimed before.
    pub(crate) fn claim(&self, request: u64) -> bool {
        let state = &self.request;
        state.compare_exchange(request, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Calls `fill` with the payload, or with `None` if a call reads it or the request was claimed.
    /// Nothing else can reply meanwhile.
    #[expect(unsafe_code, reason = "the kernel writes this memory too")]
    pub(crate) fn with_room<T>(
        &self,
        request: u64,
        fill: impl FnOnce(Option<&mut [u8]>) -> T,
    ) -> T {
        let state = &self.request;
        let begins =
            || state.compare_exchange(request, FILLING, Ordering::Acquire, Ordering::Relaxed);
        if self.is_read.load(Ordering::Acquire) || begins().is_err() {
            return fill(None);
        }
        let _filling = Filling { slot: self, request };
        // SAFETY: the slot has the request, so the kernel does not have it; nothing reads its
        // payload; its one reply, which alone writes there, is borrowed by the caller; and nothing
        // else can answer it until `_filling` is dropped.
        fill(Some(unsafe { self.memory.payload_mut() }))
    }

    /// Replies with the first bytes of the payload, which `with_room` gave. Once for each request,
    /// by the one that has claimed it.
    pub(crate) fn answer_room(&self, unique: u64, bytes: usize) {
        self.request.store(0, Ordering::Relaxed);
        let payload = Payload::Written(self.memory.payload_bytes().min(bytes));
        self.shared.answered(Answered { slot: self.number, unique, error: 0, payload });
    }

    pub(super) const fn number(&self) -> usize {
        self.number
    }

    pub(super) const fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(super) fn commit(&self) -> u64 {
        self.commit.load(Ordering::Relaxed)
    }

    /// Records that the slot has a request with these numbers.
    pub(super) fn begin(&self, request: u64, commit: u64) {
        self.request.store(request, Ordering::Relaxed);
        self.commit.store(commit, Ordering::Relaxed);
    }

    /// Returns whether the slot has this request, and no reply to it.
    pub(crate) fn has(&self, request: u64) -> bool {
        self.request.load(Ordering::Relaxed) == request
    }

    /// Returns the headers of the request that the kernel has put into the slot.
    #[expect(unsafe_code, reason = "the kernel writes this memory too")]
    pub(super) fn headers(&self) -> [u8; HEADERS_BYTES] {
        // SAFETY: only the queue calls this, and only between the completion with the request and
        // the command with its reply; until then only the queue writes the headers.
        unsafe { self.memory.headers() }
    }

    /// Copies the payload of the request to a buffer, which gets its length.
    #[expect(unsafe_code, reason = "the kernel writes this memory too")]
    pub(super) fn copy_payload(&self, bytes: usize, to: &mut Vec<u8>) {
        to.clear();
        // SAFETY: as above; the reply to the request does not exist yet.
        to.extend_from_slice(unsafe { self.memory.payload(bytes) });
    }

    /// Calls `read` with the payload of the request. A reply is stored elsewhere meanwhile. If
    /// there is no reply afterwards, gives the pages of the payload back and returns true.
    #[expect(unsafe_code, reason = "the kernel writes this memory too")]
    pub(super) fn with_payload(
        &self,
        request: u64,
        bytes: usize,
        read: impl FnOnce(&[u8]),
    ) -> bool {
        self.is_read.store(true, Ordering::Release);
        // SAFETY: as above; from the store until the next one no reply is written here.
        read(unsafe { self.memory.payload(bytes) });
        let is_kept = self.has(request);
        if is_kept {
            // SAFETY: as for the payload, which is not read any more.
            unsafe { self.memory.give_back() };
        }
        self.is_read.store(false, Ordering::Release);
        is_kept
    }

    /// Gives the pages of the payload back. Only the queue calls this: while the kernel has the
    /// slot, which writes only in calls by the thread of the queue, or before the file system is
    /// called with its request.
    #[expect(unsafe_code, reason = "the kernel writes this memory too")]
    pub(super) fn give_back(&self) {
        // SAFETY: no call has the request of the slot, so nothing here uses the payload.
        unsafe { self.memory.give_back() };
    }

    /// Writes the headers of a reply, and its payload if that was kept elsewhere. Returns the bytes
    /// of the payload. Only the queue calls this, before the command with the reply.
    #[expect(unsafe_code, reason = "the kernel reads this memory")]
    pub(super) fn finish(&self, answered: Answered) -> usize {
        let Answered { unique, mut error, payload, .. } = answered;
        let bytes = match payload {
            Payload::Written(bytes) => bytes,
            Payload::Kept(payload) => self.put(&payload, &mut error),
        };
        let (header, added) = layout::reply(unique, self.commit(), error, bytes);
        // SAFETY: the slot is not the kernel's, and only the queue touches the headers.
        unsafe {
            self.memory.put_header(0, &header);
            self.memory.put_header(ADDED, &added);
        }
        bytes
    }

    /// Writes the payload of a reply, and returns its bytes. One that is too long becomes `EIO`.
    #[expect(unsafe_code, reason = "the kernel reads this memory")]
    fn put(&self, payload: &[u8], error: &mut i32) -> usize {
        // SAFETY: the slot is not the kernel's, its payload is not read, and there is one reply.
        if unsafe { self.memory.put_payload(payload) } {
            return payload.len();
        }
        tracing::error!(bytes = payload.len(), "a reply is longer than a slot: it becomes EIO");
        *error = negative(Errno::IO);
        0
    }
}
