//! Dirty bytes: the writes of programs that the server does not have yet.
//!
//! While the session has the lease on the bytes of a file, a write to it is buffered here. Writes
//! that continue each other become one chunk. A chunk is sent after
//! [`limits::WRITE_BEHIND_MILLIS`], when it is as long as a request may be, or when a request waits
//! for it; of two chunks that overlap the second is sent after the reply to the first.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem;
use std::time::Duration;

use pelago_wire::{InodeId, OpenId, Request, Then, WriteEra, WriteFlags, limits};

use crate::caller::Caller;

/// The bytes that one request carries.
const CHUNK_BYTES: usize = limits::IO_BYTES;
/// Requests with dirty bytes that are under way at a time.
const AT_ONCE: usize = 32;
/// Chunks of one file that may wait. Beyond that the oldest one is sent.
const CHUNKS: usize = 64;
/// The time in which the server should take all dirty bytes, so that a recall of the lease on them
/// is answered within a term. It is shorter for a session with shorter leases.
const FLUSH_TIME: Duration = Duration::from_secs(limits::TERM_SECONDS * 2 / 5);
/// The bytes of the smallest request by which the server's pace is measured.
const PACE_BYTES: usize = 64 << 10;
/// The bytes that may be dirty however slow the server is, if they may take [`FLUSH_TIME`]; as many
/// before its pace is known.
const LEAST_BYTES: usize = 1 << 20;

/// As [`LEAST_BYTES`], if requests have a deadline.
const LEAST_BYTES_BY_DEADLINE: usize = 128 << 10;

/// The dirty bytes of all files.
pub(crate) struct Dirty {
    files: HashMap<InodeId, File>,
    /// Files with bytes that are not sent yet.
    unsent: BTreeSet<InodeId>,
    /// Dirty bytes of all files, with those of requests under way.
    bytes: usize,
    /// The bound of `bytes`, by the pace of the server.
    limit: usize,
    /// At most [`FLUSH_TIME`].
    flush_time: Duration,
    /// Requests fail after a time, so they are small while the server is slow, or its pace unknown.
    has_deadline: bool,
    /// Chunks of all files, with those of requests under way.
    chunks: usize,
    under_way: UnderWay,
    last_number: u64,
}

/// The requests under way.
#[derive(Default)]
struct UnderWay {
    count: usize,
    bytes: usize,
}

/// A file on whose bytes the session has the lease, or had it when the dirty ones were written.
#[derive(Default)]
struct File {
    is_leased: bool,
    /// All leases have ended since: other sessions may have changed the file, although it is dirty
    /// here.
    is_lost: bool,
    /// The era of the lease under which the dirty bytes were written.
    era: Option<WriteEra>,
    /// The size of the file, with the dirty bytes.
    size: u64,
    /// Dirty bytes.
    bytes: usize,
    /// In the order of the writes.
    unsent: VecDeque<Chunk>,
    sent: Vec<SentChunk>,
    /// Callbacks that wait until nothing is dirty.
    waiting: Vec<Then>,
}

/// Bytes that are sent with one request.
struct Chunk {
    by: Writer,
    offset: u64,
    bytes: Vec<u8>,
    /// When its first write was buffered.
    since: Duration,
    /// The request commits the file, too.
    commit: bool,
}

/// The writer of bytes: one request carries those of one writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) open: OpenId,
    pub(crate) caller: Caller,
    pub(crate) kill_privileges: bool,
}

/// The bytes of a request under way.
struct SentChunk {
    number: u64,
    offset: u64,
    bytes: usize,
    at: Duration,
}

/// A request that is to be sent.
pub(crate) struct Send {
    pub(crate) ino: InodeId,
    pub(crate) number: u64,
    pub(crate) by: Writer,
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
    commit: bool,
    era: Option<WriteEra>,
}

/// The result of [`Dirty::write`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Buffered {
    /// The bytes are a new chunk. The file has this size now.
    New { size: u64 },
    /// The bytes are in the last chunk.
    Joined { size: u64 },
    /// There is no room until the server has taken bytes.
    Full,
}

impl Send {
    /// Returns the request, whose bulk are the bytes.
    pub(crate) const fn request(&self) -> Request {
        let Writer { open, kill_privileges, .. } = self.by;
        let behind = self.era;
        let commit = self.commit;
        let flags = WriteFlags { append: false, behind, commit, kill_privileges };
        Request::Write { open, offset: self.offset, flags }
    }
}

impl Default for Dirty {
    fn default() -> Self {
        Self {
            files: HashMap::new(),
            unsent: BTreeSet::new(),
            bytes: 0,
            limit: LEAST_BYTES,
            flush_time: FLUSH_TIME,
            has_deadline: false,
            chunks: 0,
            under_way: UnderWay::default(),
            last_number: 0,
        }
    }
}

impl Dirty {
    /// Sets the time that leases last, of which the server may need two fifths to take the bytes.
    pub(crate) fn set_lease_time(&mut self, lease: Duration) {
        self.flush_time = FLUSH_TIME.min(lease * 2 / 5);
    }

    /// Sets the time after which a request fails: its bytes are sent in a part of it.
    pub(crate) fn set_deadline(&mut self, deadline: Duration) {
        self.has_deadline = true;
        self.flush_time = self.flush_time.min(deadline / 4);
        self.limit = LEAST_BYTES_BY_DEADLINE;
    }

    /// Returns whether a write has more bytes than may be dirty: the server is slow. With a
    /// deadline it is sent in parts.
    pub(crate) const fn is_too_large(&self, bytes: usize) -> bool {
        bytes > self.limit && !self.has_deadline
    }

    /// Returns the bytes that one request carries, at most.
    fn most_of_request(&self) -> usize {
        match self.has_deadline {
            true => (self.limit / 4).clamp(PACE_BYTES, CHUNK_BYTES),
            false => CHUNK_BYTES,
        }
    }

    /// Records that the session has the lease on the bytes of a file of this size.
    pub(crate) fn lease(&mut self, ino: InodeId, era: WriteEra, size: u64) {
        let file = self.files.entry(ino).or_default();
        if !file.is_leased && file.is_clean() {
            file.is_leased = true;
            file.era = Some(era);
            file.size = size;
        }
    }

    /// Ends the lease on the bytes of a file: all that are dirty are due.
    pub(crate) fn end_lease(&mut self, ino: InodeId) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.is_leased = false;
            self.forget_clean(ino);
        }
    }

    /// Ends all leases: the size of no file is known any more.
    pub(crate) fn end_all(&mut self) {
        for file in self.files.values_mut() {
            file.is_leased = false;
            file.is_lost = true;
        }
        self.files.retain(|_, file| !file.is_clean());
    }

    /// Returns the era of the lease on the bytes of a file, if the server has all of them.
    pub(crate) fn clean_lease(&self, ino: InodeId) -> Option<WriteEra> {
        self.files.get(&ino).filter(|file| file.is_leased && file.is_clean())?.era
    }

    /// Returns the size of a file, if the session has the lease on its bytes.
    pub(crate) fn leased_size(&self, ino: InodeId) -> Option<u64> {
        self.files.get(&ino).filter(|file| file.is_leased).map(|file| file.size)
    }

    /// Returns the size of a file, if the session has the lease on its bytes, or had it when the
    /// dirty ones were written and has not lost all leases since.
    pub(crate) fn size(&self, ino: InodeId) -> Option<u64> {
        self.files.get(&ino).filter(|file| !file.is_lost).map(|file| file.size)
    }

    /// Returns all files of which the server does not have all bytes.
    pub(crate) fn all(&self) -> Vec<InodeId> {
        if self.bytes == 0 {
            return Vec::new();
        }
        let dirty = self.files.iter().filter(|(_, file)| !file.is_clean());
        dirty.map(|(ino, _)| *ino).collect()
    }

    /// Buffers bytes that a program has written to a file on whose bytes the session has the lease.
    pub(crate) fn write(
        &mut self,
        ino: InodeId,
        by: Writer,
        offset: u64,
        bytes: &[u8],
        now: Duration,
    ) -> Buffered {
        let Some(file) = self.files.get_mut(&ino) else { return Buffered::Full };
        let added = bytes.len();
        let fits = file.bytes + added <= limits::DIRTY_FILE_BYTES
            && (self.bytes + added <= self.limit || self.bytes == 0);
        if !fits || !file.is_leased {
            return Buffered::Full;
        }
        let size = file.size.max(offset + added as u64);
        if let Some(last) = file.unsent.back_mut().filter(|last| last.takes(by, offset, added)) {
            let at = usize::try_from(offset - last.offset).unwrap_or(usize::MAX);
            let over = last.bytes.len().saturating_sub(at).min(added);
            last.bytes[at..at + over].copy_from_slice(&bytes[..over]);
            last.bytes.extend_from_slice(&bytes[over..]);
            file.size = size;
            file.bytes += added - over;
            self.bytes += added - over;
            return Buffered::Joined { size };
        }
        if self.chunks >= limits::DIRTY_WRITES {
            return Buffered::Full;
        }
        file.size = size;
        self.chunks += 1;
        let chunk = Chunk { by, offset, bytes: bytes.to_vec(), since: now, commit: false };
        file.unsent.push_back(chunk);
        file.bytes += added;
        self.bytes += added;
        self.unsent.insert(ino);
        Buffered::New { size }
    }

    /// Makes all dirty bytes of a file due. `then` is called once the server has them, or has
    /// refused them; it is returned if nothing is dirty.
    pub(crate) fn flush(&mut self, ino: InodeId, then: Then) -> Option<Then> {
        match self.files.get_mut(&ino).filter(|file| !file.is_clean()) {
            Some(file) => {
                file.waiting.push(then);
                None
            }
            None => Some(then),
        }
    }

    /// Has the commit of a file go with its dirty bytes, if one request carries all of them.
    /// Returns whether it does.
    pub(crate) fn commit(&mut self, ino: InodeId, open: OpenId) -> bool {
        let most = self.most_of_request();
        let Some(file) = self.files.get_mut(&ino) else { return false };
        let is_all = file.sent.is_empty() && file.unsent.len() == 1 && file.waiting.is_empty();
        let is_it = |chunk: &&mut Chunk| chunk.by.open == open && chunk.bytes.len() <= most;
        match file.unsent.front_mut().filter(|chunk| is_all && is_it(chunk)) {
            Some(chunk) => {
                chunk.commit = true;
                true
            }
            None => false,
        }
    }

    /// Takes the chunks that are to be sent now.
    pub(crate) fn take_due(&mut self, now: Duration) -> Vec<Send> {
        let mut due = Vec::new();
        let mut empty = Vec::new();
        let are_many = self.chunks > limits::DIRTY_WRITES / 2;
        let most = self.most_of_request();
        let limit = if self.has_deadline { self.limit } else { usize::MAX };
        for ino in &self.unsent {
            let Some(file) = self.files.get_mut(ino) else { continue };
            while self.under_way.admits(most, limit)
                && let Some(mut chunk) = file.take_due(now, most, are_many)
            {
                // What is left of the chunk is another one.
                self.chunks += usize::from(file.split(&mut chunk, most));
                self.last_number += 1;
                self.under_way.count += 1;
                self.under_way.bytes += chunk.bytes.len();
                let Chunk { by, offset, bytes, commit, .. } = chunk;
                let number = self.last_number;
                file.sent.push(SentChunk { number, offset, bytes: bytes.len(), at: now });
                let era = file.era;
                due.push(Send { ino: *ino, number, by, offset, bytes, commit, era });
            }
            if file.unsent.is_empty() {
                empty.push(*ino);
            }
        }
        for ino in empty {
            self.unsent.remove(&ino);
        }
        due
    }

    /// Returns when the oldest chunk is due that is not sent yet.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let first = |ino| self.files.get(ino)?.unsent.front().map(|chunk| chunk.since);
        let oldest = self.unsent.iter().filter_map(first).min()?;
        Some(oldest + Duration::from_millis(limits::WRITE_BEHIND_MILLIS))
    }

    /// Handles the reply to a request with dirty bytes. Returns the callbacks that have waited for
    /// it.
    pub(crate) fn answered(&mut self, ino: InodeId, number: u64, now: Duration) -> Vec<Then> {
        self.under_way.count -= 1;
        self.chunks -= 1;
        let Some(file) = self.files.get_mut(&ino) else { return Vec::new() };
        let Some(at) = file.sent.iter().position(|sent| sent.number == number) else {
            return Vec::new();
        };
        let SentChunk { bytes, at, .. } = file.sent.swap_remove(at);
        file.bytes -= bytes;
        self.bytes -= bytes;
        self.under_way.bytes -= bytes;
        if bytes >= PACE_BYTES {
            let least = if self.has_deadline { LEAST_BYTES_BY_DEADLINE } else { LEAST_BYTES };
            self.limit = limit(bytes, now.saturating_sub(at), self.flush_time, least);
        }
        let ready = if file.is_clean() { mem::take(&mut file.waiting) } else { Vec::new() };
        self.forget_clean(ino);
        ready
    }

    fn forget_clean(&mut self, ino: InodeId) {
        if self.files.get(&ino).is_some_and(|file| file.is_clean() && !file.is_leased) {
            self.files.remove(&ino);
        }
    }
}

impl UnderWay {
    /// Returns whether a request with so many bytes may be sent, too, if all may have `limit`. One
    /// may have any number.
    const fn admits(&self, bytes: usize, limit: usize) -> bool {
        self.count < AT_ONCE && (self.count == 0 || self.bytes + bytes <= limit)
    }
}

impl File {
    fn is_clean(&self) -> bool {
        self.unsent.is_empty() && self.sent.is_empty()
    }

    /// Takes the next chunk if it is due. `most`: the bytes of one request. `are_many`: the chunks
    /// of all files are many.
    fn take_due(&mut self, now: Duration, most: usize, are_many: bool) -> Option<Chunk> {
        let is_wanted =
            !self.waiting.is_empty() || !self.is_leased || self.unsent.len() > CHUNKS || are_many;
        let next = self.unsent.front()?;
        let age = now.saturating_sub(next.since);
        let is_due = is_wanted
            || next.bytes.len() >= most
            || self.bytes + CHUNK_BYTES > limits::DIRTY_FILE_BYTES
            || age >= Duration::from_millis(limits::WRITE_BEHIND_MILLIS);
        // The server carries out requests in any order.
        let is_free = !self.sent.iter().any(|sent| next.overlaps(sent.offset, sent.bytes));
        if is_due && is_free { self.unsent.pop_front() } else { None }
    }

    /// Puts back the bytes of a chunk that are too many for one request. Returns whether there were
    /// any.
    fn split(&mut self, chunk: &mut Chunk, most: usize) -> bool {
        // A commit goes with all bytes, also if the server has become slower since.
        if chunk.bytes.len() <= most || chunk.commit {
            return false;
        }
        let rest = chunk.bytes.split_off(most);
        let Chunk { by, offset, since, .. } = *chunk;
        let offset = offset + most as u64;
        self.unsent.push_front(Chunk { by, offset, bytes: rest, since, commit: false });
        true
    }
}

impl Chunk {
    /// Returns whether a write continues these bytes, or overwrites the last of them.
    fn takes(&self, by: Writer, offset: u64, bytes: usize) -> bool {
        let end = self.offset + self.bytes.len() as u64;
        let joined = end.max(offset + bytes as u64) - self.offset;
        self.by == by
            && (self.offset..=end).contains(&offset)
            && joined <= CHUNK_BYTES as u64
            && !self.commit
    }

    const fn overlaps(&self, offset: u64, bytes: usize) -> bool {
        self.offset < offset + bytes as u64 && offset < self.offset + self.bytes.len() as u64
    }
}

/// Returns how many bytes may be dirty, if the server has taken `bytes` in the time `took`, and may
/// need `flush_time` for all: `least` or more, if it may need [`FLUSH_TIME`].
fn limit(bytes: usize, took: Duration, flush_time: Duration, least: usize) -> usize {
    let within = |bytes: usize, micros: u128| {
        let within = (bytes as u128).saturating_mul(flush_time.as_micros()) / micros.max(1);
        usize::try_from(within).unwrap_or(usize::MAX)
    };
    let least = within(least, FLUSH_TIME.as_micros());
    within(bytes, took.as_micros()).clamp(least, limits::DIRTY_BYTES)
}

#[cfg(test)]
mod tests;
