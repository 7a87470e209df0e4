//! Dirty bytes: programs have written them, and the server does not have them yet.
//!
//! While the session has the lease on the bytes of a file, a write to it is answered here. Writes
//! that continue each other become one. They are sent after [`limits::WRITE_BEHIND_MILLIS`], once
//! there are enough of them, or when something waits for them; those that overlap one after the
//! other.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem;
use std::time::Duration;

use pelago_wire::{InodeId, OpenId, Request, Then, WriteEra, WriteFlags, limits};

/// Bytes that one request carries.
const CHUNK_BYTES: usize = limits::IO_BYTES;
/// Requests under way at a time.
const AT_ONCE: usize = 32;
/// Writes of one file that do not continue each other.
const CHUNKS: usize = 64;
/// What a slow server is sent may take this long, so that a recall is answered within a term.
const PATIENCE: Duration = Duration::from_secs(limits::TERM_SECONDS * 2 / 5);
/// A request with fewer bytes does not tell the server's pace.
const TELLING_BYTES: usize = 64 << 10;
/// So many bytes may be dirty, however slow the server is.
const LEAST_BYTES: usize = 1 << 20;

/// The dirty bytes of all files.
pub(crate) struct Dirty {
    files: HashMap<InodeId, File>,
    /// Files with bytes that are not sent yet.
    unsent: BTreeSet<InodeId>,
    /// Bytes of all files, those on their way included, and how many there may be.
    bytes: usize,
    limit: usize,
    /// Chunks of all files, those on their way included.
    chunks: usize,
    /// Requests under way.
    under_way: usize,
    last_number: u64,
}

/// A file on whose bytes the session has the lease, or had it when some were written.
#[derive(Default)]
struct File {
    is_leased: bool,
    /// All leases have ended since: others may have changed the file, whatever is dirty here.
    is_lost: bool,
    /// The era of the lease under which what is dirty was written.
    era: Option<WriteEra>,
    /// Its size, in bytes, with those that are dirty.
    size: u64,
    bytes: usize,
    unsent: VecDeque<Chunk>,
    sent: Vec<Sent>,
    /// What waits until nothing is dirty.
    waiting: Vec<Then>,
}

/// Bytes that are sent with one request.
struct Chunk {
    by: Writer,
    offset: u64,
    bytes: Vec<u8>,
    since: Duration,
    commit: bool,
}

/// Who writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) open: OpenId,
    /// User and group.
    pub(crate) caller: (u32, u32),
    pub(crate) kill_privileges: bool,
}

/// A request under way.
struct Sent {
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

/// What became of a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It is dirty. The file is that large now.
    New { size: u64 },
    /// As `New`, and the bytes continue others.
    Joined { size: u64 },
    /// There is no room until bytes were sent.
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
            chunks: 0,
            under_way: 0,
            last_number: 0,
        }
    }
}

impl Dirty {
    /// The session has the lease on the bytes of a file of this size.
    pub(crate) fn lease(&mut self, ino: InodeId, era: WriteEra, size: u64) {
        let file = self.files.entry(ino).or_default();
        if !file.is_leased && file.is_clean() {
            file.is_leased = true;
            file.era = Some(era);
            file.size = size;
        }
    }

    /// The lease on the bytes of a file has ended: all that is dirty is sent.
    pub(crate) fn end_lease(&mut self, ino: InodeId) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.is_leased = false;
            self.forget_clean(ino);
        }
    }

    /// All leases have ended.
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

    /// Returns the size of a file, if only this client changes it or has changed it.
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

    /// Keeps bytes that a program has written to a file of which the session has the lease.
    pub(crate) fn write(
        &mut self,
        ino: InodeId,
        by: Writer,
        offset: u64,
        bytes: &[u8],
        now: Duration,
    ) -> Kept {
        let Some(file) = self.files.get_mut(&ino) else { return Kept::Full };
        let added = bytes.len();
        let fits = file.bytes + added <= limits::DIRTY_FILE_BYTES
            && (self.bytes + added <= self.limit || self.bytes == 0);
        if !fits || !file.is_leased {
            return Kept::Full;
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
            return Kept::Joined { size };
        }
        if self.chunks == limits::DIRTY_WRITES {
            return Kept::Full;
        }
        file.size = size;
        self.chunks += 1;
        let chunk = Chunk { by, offset, bytes: bytes.to_vec(), since: now, commit: false };
        file.unsent.push_back(chunk);
        file.bytes += added;
        self.bytes += added;
        self.unsent.insert(ino);
        Kept::New { size }
    }

    /// Has all that is dirty of a file sent, and `then` called once the server has it, or could not
    /// take it. Returns `then` if nothing is dirty.
    pub(crate) fn flush(&mut self, ino: InodeId, then: Then) -> Option<Then> {
        match self.files.get_mut(&ino).filter(|file| !file.is_clean()) {
            Some(file) => {
                file.waiting.push(then);
                None
            }
            None => Some(then),
        }
    }

    /// Has the commit of a file go with its dirty bytes, if one request has all of them. Returns
    /// whether that is so.
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

    /// Takes what is to be sent now.
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
                file.sent.push(Sent { number, offset, bytes: bytes.len(), at: now });
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

    /// Returns when the oldest bytes are to be sent that are not on their way.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let first = |ino| self.files.get(ino)?.unsent.front().map(|chunk| chunk.since);
        let oldest = self.unsent.iter().filter_map(first).min()?;
        Some(oldest + Duration::from_millis(limits::WRITE_BEHIND_MILLIS))
    }

    /// The server has answered a request. Returns what waited for that.
    pub(crate) fn answered(&mut self, ino: InodeId, number: u64, now: Duration) -> Vec<Then> {
        self.under_way -= 1;
        self.chunks -= 1;
        let Some(file) = self.files.get_mut(&ino) else { return Vec::new() };
        let Some(at) = file.sent.iter().position(|sent| sent.number == number) else {
            return Vec::new();
        };
        let Sent { bytes, at, .. } = file.sent.swap_remove(at);
        file.bytes -= bytes;
        self.bytes -= bytes;
        if bytes >= TELLING_BYTES {
            self.limit = limit(bytes, now.saturating_sub(at)).max(LEAST_BYTES);
        }
        let file_is_clean = file.is_clean();
        let ready = if file_is_clean { mem::take(&mut file.waiting) } else { Vec::new() };
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

    /// Takes the next bytes if they are due; `are_many`: there are many of other files.
    fn take_due(&mut self, now: Duration, are_many: bool) -> Option<Chunk> {
        let is_wanted =
            !self.waiting.is_empty() || !self.is_leased || self.unsent.len() > CHUNKS || are_many;
        let next = self.unsent.front()?;
        let age = now.saturating_sub(next.since);
        let is_due = is_wanted
            || next.bytes.len() >= CHUNK_BYTES
            || self.bytes + CHUNK_BYTES > limits::DIRTY_FILE_BYTES
            || age >= Duration::from_millis(limits::WRITE_BEHIND_MILLIS);
        // The server takes requests in any order.
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

/// Returns how many bytes may be dirty if the server took so many in so long.
fn limit(bytes: usize, took: Duration) -> usize {
    let micros = took.as_micros().max(1);
    let within = (bytes as u128).saturating_mul(PATIENCE.as_micros()) / micros;
    usize::try_from(within).unwrap_or(usize::MAX).min(limits::DIRTY_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: InodeId = InodeId::from_raw(1);
    const TWO: InodeId = InodeId::from_raw(2);
    const ZERO: Duration = Duration::ZERO;
    const LATER: Duration = Duration::from_millis(limits::WRITE_BEHIND_MILLIS);

    fn by(open: u64) -> Writer {
        Writer { open: OpenId(open), caller: (0, 0), kill_privileges: false }
    }

    fn dirty() -> Dirty {
        let mut dirty = Dirty::default();
        dirty.lease(ONE, WriteEra::FIRST, 0);
        dirty.lease(TWO, WriteEra::FIRST, 0);
        dirty
    }

    fn write(dirty: &mut Dirty, ino: InodeId, offset: u64, bytes: &[u8]) -> Kept {
        dirty.write(ino, by(1), offset, bytes, ZERO)
    }

    fn sent(dirty: &mut Dirty, now: Duration) -> Vec<(InodeId, u64, Vec<u8>)> {
        let due = dirty.take_due(now);
        due.into_iter().map(|send| (send.ino, send.offset, send.bytes)).collect()
    }

    #[test]
    fn writes_that_continue_each_other_are_one_request_after_a_while() {
        let mut dirty = dirty();
        assert_eq!(write(&mut dirty, ONE, 0, b"abc"), Kept::New { size: 3 });
        assert_eq!(write(&mut dirty, ONE, 3, b"def"), Kept::Joined { size: 6 });
        assert_eq!(write(&mut dirty, ONE, 4, b"EFGH"), Kept::Joined { size: 8 });
        assert_eq!(write(&mut dirty, ONE, 1, b"B"), Kept::Joined { size: 8 });
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
        assert_eq!(dirty.write(ONE, by(2), 2, b"c", ZERO), Kept::New { size: 3 });
        let other = Writer { caller: (7, 7), ..by(2) };
        assert_eq!(dirty.write(ONE, other, 3, b"d", ZERO), Kept::New { size: 4 });
        assert_eq!(dirty.write(ONE, other, 9, b"e", ZERO), Kept::New { size: 10 });
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
        assert_eq!(sent(&mut dirty, ZERO).len(), 1, "without a lease nothing is kept back");
        assert_eq!(write(&mut dirty, TWO, 1, b"d"), Kept::Full);
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
        assert_eq!(write(&mut dirty, ONE, 1, b"b"), Kept::New { size: 2 }, "it comes behind");
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
        assert!(matches!(write(&mut dirty, ONE, 0, &chunk), Kept::New { .. }));
        assert_eq!(write(&mut dirty, TWO, 0, b"x"), Kept::Full, "its pace is not known");
        assert_eq!(sent(&mut dirty, ZERO).len(), 1, "a whole request waits for nothing");
        dirty.answered(ONE, 1, Duration::from_millis(10));
        assert_eq!(dirty.limit, limits::DIRTY_BYTES);
        let most = limits::DIRTY_FILE_BYTES / CHUNK_BYTES;
        for chunks in 0..most {
            assert!(matches!(write(&mut dirty, ONE, at(chunks), &chunk), Kept::New { .. }));
        }
        assert_eq!(write(&mut dirty, ONE, at(most), b"x"), Kept::Full);
        assert!(matches!(write(&mut dirty, TWO, 0, b"x"), Kept::New { .. }));
        assert_eq!(sent(&mut dirty, ZERO).len(), most);
        // 1 MiB in 8 s: half of it in the time that a recall may take.
        dirty.answered(ONE, 2, Duration::from_secs(8));
        assert_eq!(dirty.limit, LEAST_BYTES);
        dirty.answered(ONE, 3, Duration::from_secs(2));
        assert_eq!(dirty.limit, 2 * CHUNK_BYTES);
    }

    /// A server of a new epoch takes them as numbered requests, and only so many.
    #[test]
    fn writes_of_all_files_are_bounded() {
        let mut dirty = Dirty::default();
        let inode = |number: usize| InodeId::from_raw(1 + number as u64);
        let most = limits::DIRTY_WRITES;
        (0..=most).for_each(|number| dirty.lease(inode(number), WriteEra::FIRST, 0));
        for number in 0..most {
            let kept = write(&mut dirty, inode(number), 0, b"x");
            assert_eq!(kept, Kept::New { size: 1 });
        }
        assert_eq!(write(&mut dirty, inode(most), 0, b"x"), Kept::Full);
        assert_eq!(dirty.size(inode(most)), Some(0));
        assert_eq!(write(&mut dirty, inode(0), 1, b"y"), Kept::Joined { size: 2 });
        assert_eq!(sent(&mut dirty, ZERO).len(), AT_ONCE, "they are not kept back any longer");
        dirty.answered(inode(0), 1, ZERO);
        assert_eq!(write(&mut dirty, inode(most), 0, b"x"), Kept::New { size: 1 });
    }

    #[test]
    fn many_writes_that_do_not_continue_each_other_do_not_wait() {
        let mut dirty = dirty();
        for number in 0..=CHUNKS as u64 {
            assert!(sent(&mut dirty, ZERO).is_empty(), "{number}");
            assert_eq!(
                write(&mut dirty, ONE, 2 * number, b"x"),
                Kept::New { size: 2 * number + 1 }
            );
        }
        assert_eq!(sent(&mut dirty, ZERO).len(), 1, "the oldest one beyond the limit");
    }
}
