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
    /// Chunks of all files, with those of requests under way.
    chunks: usize,
    /// Requests under way.
    under_way: usize,
    last_number: u64,
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
            chunks: 0,
            under_way: 0,
            last_number: 0,
        }
    }
}

impl Dirty {
    /// Sets the time that leases last, of which the server may need two fifths to take the bytes.
    pub(crate) fn set_lease_time(&mut self, lease: Duration) {
        self.flush_time = FLUSH_TIME.min(lease * 2 / 5);
    }

    /// Returns whether a write has more bytes than may be dirty: the server is slow.
    pub(crate) const fn is_too_large(&self, bytes: usize) -> bool {
        bytes > self.limit
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
        if self.chunks == limits::DIRTY_WRITES {
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
        let Some(file) = self.files.get_mut(&ino) else { return false };
        let is_all = file.sent.is_empty() && file.unsent.len() == 1 && file.waiting.is_empty();
        match file.unsent.front_mut().filter(|chunk| is_all && chunk.by.open == open) {
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
        for ino in &self.unsent {
            let Some(file) = self.files.get_mut(ino) else { continue };
            while self.under_way < AT_ONCE
                && let Some(chunk) = file.take_due(now, are_many)
            {
                self.last_number += 1;
                self.under_way += 1;
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
        self.under_way -= 1;
        self.chunks -= 1;
        let Some(file) = self.files.get_mut(&ino) else { return Vec::new() };
        let Some(at) = file.sent.iter().position(|sent| sent.number == number) else {
            return Vec::new();
        };
        let SentChunk { bytes, at, .. } = file.sent.swap_remove(at);
        file.bytes -= bytes;
        self.bytes -= bytes;
        if bytes >= PACE_BYTES {
            self.limit = limit(bytes, now.saturating_sub(at), self.flush_time);
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

impl File {
    fn is_clean(&self) -> bool {
        self.unsent.is_empty() && self.sent.is_empty()
    }

    /// Takes the next chunk if it is due. `are_many`: the chunks of all files are many.
    fn take_due(&mut self, now: Duration, are_many: bool) -> Option<Chunk> {
        let is_wanted =
            !self.waiting.is_empty() || !self.is_leased || self.unsent.len() > CHUNKS || are_many;
        let next = self.unsent.front()?;
        let age = now.saturating_sub(next.since);
        let is_due = is_wanted
            || next.bytes.len() >= CHUNK_BYTES
            || self.bytes + CHUNK_BYTES > limits::DIRTY_FILE_BYTES
            || age >= Duration::from_millis(limits::WRITE_BEHIND_MILLIS);
        // The server carries out requests in any order.
        let is_free = !self.sent.iter().any(|sent| next.overlaps(sent.offset, sent.bytes));
        if is_due && is_free { self.unsent.pop_front() } else { None }
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
/// need `flush_time` for all.
fn limit(bytes: usize, took: Duration, flush_time: Duration) -> usize {
    let within = |bytes: usize, micros: u128| {
        let within = (bytes as u128).saturating_mul(flush_time.as_micros()) / micros.max(1);
        usize::try_from(within).unwrap_or(usize::MAX)
    };
    let least = within(LEAST_BYTES, FLUSH_TIME.as_micros());
    within(bytes, took.as_micros()).clamp(least, limits::DIRTY_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: InodeId = InodeId::from_raw(1);
    const TWO: InodeId = InodeId::from_raw(2);
    const ZERO: Duration = Duration::ZERO;
    const LATER: Duration = Duration::from_millis(limits::WRITE_BEHIND_MILLIS);

    fn by(open: u64) -> Writer {
        Writer { open: OpenId(open), caller: Caller { uid: 0, gid: 0 }, kill_privileges: false }
    }

    fn dirty() -> Dirty {
        let mut dirty = Dirty::default();
        dirty.lease(ONE, WriteEra::FIRST, 0);
        dirty.lease(TWO, WriteEra::FIRST, 0);
        dirty
    }

    fn write(dirty: &mut Dirty, ino: InodeId, offset: u64, bytes: &[u8]) -> Buffered {
        dirty.write(ino, by(1), offset, bytes, ZERO)
    }

    fn sent(dirty: &mut Dirty, now: Duration) -> Vec<(InodeId, u64, Vec<u8>)> {
        let due = dirty.take_due(now);
        due.into_iter().map(|send| (send.ino, send.offset, send.bytes)).collect()
    }

    #[test]
    fn writes_that_continue_each_other_are_one_request_after_a_while() {
        let mut dirty = dirty();
        assert_eq!(write(&mut dirty, ONE, 0, b"abc"), Buffered::New { size: 3 });
        assert_eq!(write(&mut dirty, ONE, 3, b"def"), Buffered::Joined { size: 6 });
        assert_eq!(write(&mut dirty, ONE, 4, b"EFGH"), Buffered::Joined { size: 8 });
        assert_eq!(write(&mut dirty, ONE, 1, b"B"), Buffered::Joined { size: 8 });
        assert_eq!(dirty.next_due(), Some(LATER));
        assert!(sent(&mut dirty, LATER - Duration::from_millis(1)).is_empty());
        assert_eq!(sent(&mut dirty, LATER), [(ONE, 0, b"aBcdEFGH".to_vec())]);
        assert_eq!((dirty.bytes, dirty.next_due()), (8, None), "they are on their way");
        assert_eq!(dirty.all(), [ONE]);
        dirty.answered(ONE, 1, LATER);
        assert_eq!((dirty.bytes, dirty.all(), dirty.size(ONE)), (0, vec![], Some(8)));
    }

    #[test]
    fn other_opens_users_and_places_are_requests_of_their_own() {
        let mut dirty = dirty();
        write(&mut dirty, ONE, 0, b"ab");
        assert_eq!(dirty.write(ONE, by(2), 2, b"c", ZERO), Buffered::New { size: 3 });
        let other = Writer { caller: Caller { uid: 7, gid: 7 }, ..by(2) };
        assert_eq!(dirty.write(ONE, other, 3, b"d", ZERO), Buffered::New { size: 4 });
        assert_eq!(dirty.write(ONE, other, 9, b"e", ZERO), Buffered::New { size: 10 });
        assert_eq!(sent(&mut dirty, LATER).len(), 4);
    }

    /// The server carries requests out in any order.
    #[test]
    fn bytes_that_overlap_go_one_after_the_other() {
        let mut dirty = dirty();
        write(&mut dirty, ONE, 0, b"old");
        assert_eq!(sent(&mut dirty, LATER).len(), 1);
        write(&mut dirty, ONE, 2, b"new");
        write(&mut dirty, ONE, 9, b"behind it");
        assert!(sent(&mut dirty, 2 * LATER).is_empty(), "what it overlaps is on its way");
        dirty.answered(ONE, 1, LATER);
        assert_eq!(sent(&mut dirty, 2 * LATER).len(), 2);
    }

    #[test]
    fn what_waits_for_a_file_has_it_sent_at_once_and_goes_on_after_the_last_answer() {
        let mut dirty = dirty();
        write(&mut dirty, ONE, 0, b"a");
        write(&mut dirty, ONE, 9, b"b");
        write(&mut dirty, TWO, 0, b"c");
        assert!(dirty.flush(ONE, Box::new(|| {})).is_none());
        assert_eq!(sent(&mut dirty, ZERO).len(), 2, "not those of the other file");
        assert!(dirty.answered(ONE, 2, ZERO).is_empty());
        assert_eq!(dirty.answered(ONE, 1, ZERO).len(), 1);
        assert!(dirty.flush(ONE, Box::new(|| {})).is_some(), "nothing is dirty");
        dirty.end_lease(TWO);
        assert_eq!(sent(&mut dirty, ZERO).len(), 1, "without a lease nothing waits");
        assert_eq!(write(&mut dirty, TWO, 1, b"d"), Buffered::Full);
        assert_eq!(dirty.size(TWO), Some(1));
        dirty.answered(TWO, 3, ZERO);
        assert_eq!((dirty.size(TWO), dirty.files.len()), (None, 1));
        dirty.end_all();
        assert_eq!(dirty.files.len(), 0);
    }

    #[test]
    fn the_size_of_a_file_is_not_known_once_all_leases_have_ended() {
        let mut dirty = dirty();
        write(&mut dirty, ONE, 0, b"a");
        dirty.end_all();
        assert_eq!((dirty.size(ONE), dirty.all()), (None, vec![ONE]), "others may write to it");
        assert_eq!(sent(&mut dirty, ZERO).len(), 1);
        dirty.answered(ONE, 1, ZERO);
        dirty.lease(ONE, WriteEra::FIRST, 7);
        assert_eq!(dirty.size(ONE), Some(7));
    }

    #[test]
    fn a_commit_goes_with_bytes_that_are_one_request() {
        let mut dirty = dirty();
        assert!(!dirty.commit(ONE, OpenId(1)), "nothing is dirty");
        write(&mut dirty, ONE, 0, b"a");
        assert!(!dirty.commit(ONE, OpenId(2)), "another open has written them");
        assert!(dirty.commit(ONE, OpenId(1)));
        assert_eq!(write(&mut dirty, ONE, 1, b"b"), Buffered::New { size: 2 }, "it comes behind");
        let due = dirty.take_due(LATER);
        let commits: Vec<bool> = due.iter().map(|send| send.commit).collect();
        assert_eq!(commits, [true, false]);
        write(&mut dirty, ONE, 9, b"c");
        assert!(!dirty.commit(ONE, OpenId(1)), "others are on their way");
    }

    #[test]
    fn dirty_bytes_are_bounded_for_a_file_in_all_and_by_the_pace_of_the_server() {
        let mut dirty = dirty();
        let chunk = vec![0; CHUNK_BYTES];
        let at = |chunks: usize| (chunks * CHUNK_BYTES) as u64;
        assert!(matches!(write(&mut dirty, ONE, 0, &chunk), Buffered::New { .. }));
        assert_eq!(write(&mut dirty, TWO, 0, b"x"), Buffered::Full, "its pace is not known");
        assert_eq!(sent(&mut dirty, ZERO).len(), 1, "a whole request waits for nothing");
        dirty.answered(ONE, 1, Duration::from_millis(10));
        assert_eq!(dirty.limit, limits::DIRTY_BYTES);
        let most = limits::DIRTY_FILE_BYTES / CHUNK_BYTES;
        for chunks in 0..most {
            assert!(matches!(write(&mut dirty, ONE, at(chunks), &chunk), Buffered::New { .. }));
        }
        assert_eq!(write(&mut dirty, ONE, at(most), b"x"), Buffered::Full);
        assert!(matches!(write(&mut dirty, TWO, 0, b"x"), Buffered::New { .. }));
        assert_eq!(sent(&mut dirty, ZERO).len(), most);
        // 1 MiB in 8 s: half of it in the time that a recall may take.
        dirty.answered(ONE, 2, Duration::from_secs(8));
        assert_eq!(dirty.limit, LEAST_BYTES);
        dirty.answered(ONE, 3, Duration::from_secs(2));
        assert_eq!(dirty.limit, 2 * CHUNK_BYTES);
    }

    /// A recall of a short lease is answered in time too. A larger write is awaited.
    #[test]
    fn a_session_with_short_leases_holds_back_less_on_a_slow_link() {
        let mut dirty = dirty();
        dirty.set_lease_time(Duration::from_secs(3));
        let chunk = vec![b'x'; CHUNK_BYTES];
        assert!(!dirty.is_too_large(CHUNK_BYTES), "the pace is not known");
        assert!(matches!(write(&mut dirty, ONE, 0, &chunk), Buffered::New { .. }));
        assert_eq!(sent(&mut dirty, ZERO).len(), 1);
        dirty.answered(ONE, 1, Duration::from_millis(2_400));
        assert_eq!(dirty.limit, CHUNK_BYTES / 2, "half of it in 1.2 s");
        assert!(dirty.is_too_large(CHUNK_BYTES));
        let half = &chunk[..CHUNK_BYTES / 2];
        assert!(matches!(write(&mut dirty, ONE, 0, half), Buffered::New { .. }));
        assert_eq!(sent(&mut dirty, LATER).len(), 1);
        dirty.answered(ONE, 2, LATER + Duration::from_secs(60));
        assert_eq!(dirty.limit, LEAST_BYTES * 3 / 10);
    }

    /// A server of a new epoch takes them as numbered requests, and their number is limited.
    #[test]
    fn writes_of_all_files_are_bounded() {
        let mut dirty = Dirty::default();
        let inode = |number: usize| InodeId::from_raw(1 + number as u64);
        let most = limits::DIRTY_WRITES;
        (0..=most).for_each(|number| dirty.lease(inode(number), WriteEra::FIRST, 0));
        for number in 0..most {
            let buffered = write(&mut dirty, inode(number), 0, b"x");
            assert_eq!(buffered, Buffered::New { size: 1 });
        }
        assert_eq!(write(&mut dirty, inode(most), 0, b"x"), Buffered::Full);
        assert_eq!(dirty.size(inode(most)), Some(0));
        assert_eq!(write(&mut dirty, inode(0), 1, b"y"), Buffered::Joined { size: 2 });
        assert_eq!(sent(&mut dirty, ZERO).len(), AT_ONCE, "they are due, as there are many");
        dirty.answered(inode(0), 1, ZERO);
        assert_eq!(write(&mut dirty, inode(most), 0, b"x"), Buffered::New { size: 1 });
    }

    #[test]
    fn many_writes_that_do_not_continue_each_other_do_not_wait() {
        let mut dirty = dirty();
        for number in 0..=CHUNKS as u64 {
            assert!(sent(&mut dirty, ZERO).is_empty(), "{number}");
            assert_eq!(
                write(&mut dirty, ONE, 2 * number, b"x"),
                Buffered::New { size: 2 * number + 1 }
            );
        }
        assert_eq!(sent(&mut dirty, ZERO).len(), 1, "the oldest one beyond the limit");
    }
}
