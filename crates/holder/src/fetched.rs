//! Bytes of files that were fetched under leases, in blocks, without I/O: which blocks a read
//! needs, which ones are fetched ahead of it, and which ones are dropped.
//!
//! A small file is fetched in any order, and kept. Of a large one that is read in order through an
//! open, more and more blocks are fetched ahead, so that a line with a long delay is used whole.
//! Blocks of it that all its readers have passed are dropped.
//!
//! All blocks of a file count as leased until [`Fetched::end`].

mod pace;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use pelago_wire::{InodeId, OpenId, limits};

use self::pace::Pace;
use crate::copies::FileVersion;

const BLOCK: usize = limits::FETCH_BLOCK_BYTES;
/// A file of at most so many bytes is fetched in any order, and kept.
const SMALL: u64 = 1 << 20;
/// Blocks under way for all files, at most.
const UNDER_WAY: usize = limits::FETCH_AHEAD_BYTES / BLOCK;

/// The fetched bytes of all files. `W` is a read that waits for a block.
pub(crate) struct Fetched<W> {
    files: HashMap<InodeId, File>,
    /// The files by the count of their last read: the first one was read least recently.
    by_read: BTreeMap<u64, InodeId>,
    /// The blocks under way, by their numbers.
    flights: HashMap<u64, Flight<W>>,
    /// Bytes that are here, of all files, and how many may be.
    bytes: usize,
    most_bytes: usize,
    /// Blocks under way that no read waits for, at most.
    most_ahead: usize,
    last_number: u64,
    /// Counts the leases on files.
    leases: u64,
    /// Counts the reads.
    reads: u64,
    pace: Pace,
}

struct File {
    size: u64,
    /// The version of its bytes, if it is known.
    version: Option<FileVersion>,
    /// The number of the lease.
    lease: u64,
    blocks: BTreeMap<u64, Block>,
    /// Bytes that are here.
    bytes: usize,
    /// The places of the reads through each open.
    cursors: HashMap<OpenId, Cursor>,
    /// The value of [`Fetched::reads`] at the last read.
    read: u64,
}

/// The place of the reads through an open.
#[derive(Default)]
struct Cursor {
    /// The offset of the last read.
    last: u64,
    /// The end of the last read.
    next: u64,
    /// Blocks to fetch ahead; 0 if reads do not continue each other.
    ahead: usize,
}

enum Block {
    /// It is fetched by the request with this number.
    UnderWay(u64),
    Here(Vec<u8>),
}

/// A block that is under way.
struct Flight<W> {
    ino: InodeId,
    block: u64,
    bytes: usize,
    since: Duration,
    /// The number of blocks that were under way on the line when it was requested, with it; 0
    /// before that.
    beside: usize,
    /// The lease on the file has not ended since.
    is_leased: bool,
    waiting: Vec<W>,
}

/// A read of a range of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) ino: InodeId,
    pub(crate) open: OpenId,
    pub(crate) offset: u64,
    pub(crate) size: usize,
}

/// A request for a block, which is to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    /// The version of the file, if it is known.
    pub(crate) version: Option<FileVersion>,
    /// The number of the lease on the file.
    pub(crate) lease: u64,
}

impl Fetch {
    /// Returns the number of the block in its file.
    pub(crate) const fn block(&self) -> u64 {
        self.offset / BLOCK as u64
    }
}

/// The end of a flight.
#[derive(Debug)]
pub(crate) enum Landing {
    /// The server has sent these bytes.
    Sent(Vec<u8>),
    /// They are a copy, which was here.
    Copied(Vec<u8>),
    /// It has failed.
    Failed,
}

/// The way of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadPath {
    /// It is answered with these bytes, which end early at the end of the file.
    Here(Vec<u8>),
    /// It waits for the block with this number.
    Waits(u64),
    /// It goes to the server: its bytes are not worth a block, or too much is under way.
    ToServer,
}

/// The effect of the end of a flight.
pub(crate) struct Landed<W> {
    /// The reads that wait for the block.
    pub(crate) waiting: Vec<W>,
    /// The block is here.
    pub(crate) is_here: bool,
    /// When it was requested.
    pub(crate) since: Duration,
}

impl<W> Default for Fetched<W> {
    fn default() -> Self {
        Self {
            files: HashMap::new(),
            by_read: BTreeMap::new(),
            flights: HashMap::new(),
            bytes: 0,
            most_bytes: limits::FETCHED_BYTES,
            most_ahead: UNDER_WAY,
            last_number: 0,
            leases: 0,
            reads: 0,
            pace: Pace::default(),
        }
    }
}

impl<W> Fetched<W> {
    /// Sets how many bytes may be here: [`limits::FETCHED_BYTES`] at most. No more than half as
    /// many are fetched ahead at a time.
    pub(crate) fn set_most_bytes(&mut self, bytes: usize) {
        self.most_bytes = bytes.min(limits::FETCHED_BYTES);
        self.most_ahead = (self.most_bytes / BLOCK / 2).clamp(1, UNDER_WAY);
    }

    /// Returns the size of a file that was read under a lease which has not ended.
    pub(crate) fn size(&self, ino: InodeId) -> Option<u64> {
        self.files.get(&ino).map(|file| file.size)
    }

    /// Returns the version of the bytes of such a file, if it is known.
    pub(crate) fn version(&self, ino: InodeId) -> Option<FileVersion> {
        self.files.get(&ino)?.version
    }

    /// Begins with a file of this version, unless it was read before under the same lease.
    pub(crate) fn begin(&mut self, version: FileVersion) {
        let FileVersion { ino, size, .. } = version;
        // Nothing is fetched of an empty file.
        if size > 0 && !self.files.contains_key(&ino) {
            self.file(ino, size).version = Some(version);
        }
    }

    /// Returns whether the lease on a file with this number has not ended.
    pub(crate) fn is_leased(&self, ino: InodeId, lease: u64) -> bool {
        self.files.get(&ino).is_some_and(|file| file.lease == lease)
    }

    fn file(&mut self, ino: InodeId, size: u64) -> &mut File {
        self.files.entry(ino).or_insert_with(|| {
            self.leases += 1;
            File::new(size, self.leases)
        })
    }

    /// Returns the bytes of a read, if all of them are here and nothing is to be fetched.
    pub(crate) fn take(&mut self, range: Range) -> Option<Vec<u8>> {
        let file = self.files.get_mut(&range.ino)?;
        if file.misses_ahead(range) {
            return None;
        }
        let bytes = file.range(range)?;
        file.note(range);
        self.note_read(range.ino);
        Some(bytes)
    }

    /// Decides the way of a read of a file of this size, and which blocks are to be fetched. Of a
    /// read of which there are copies (`is_copied`), it is those that it needs.
    pub(crate) fn read(
        &mut self,
        range: Range,
        size: u64,
        is_copied: bool,
        now: Duration,
    ) -> (ReadPath, Vec<Fetch>) {
        if size == 0 {
            return (ReadPath::Here(Vec::new()), Vec::new());
        }
        let file = self.file(range.ino, size);
        let is_in_order = file.is_in_order(range);
        let misses_ahead = file.misses_ahead(range);
        let stalls = file.stalls(range);
        let wanted = file.blocks_of(range);
        let cursor = file.note(range);
        let fetched = match (is_in_order, size <= SMALL) {
            (_, _) if is_copied => wanted.clone(),
            (false, false) => {
                cursor.ahead = 0;
                0..0
            }
            (_, _) => {
                if stalls {
                    cursor.ahead = (2 * cursor.ahead).min(UNDER_WAY);
                }
                if misses_ahead {
                    cursor.ahead = cursor.ahead.max(1);
                }
                let ahead = wanted.end.saturating_add(cursor.ahead as u64);
                wanted.start..ahead.min(size.div_ceil(BLOCK as u64))
            }
        };
        self.note_read(range.ino);
        let mut fetches = Vec::new();
        for block in fetched {
            let most = match block < wanted.end {
                true => UNDER_WAY,
                false => self.pace.most().min(self.most_ahead),
            };
            if self.flights.len() < most {
                fetches.extend(self.fetch(range.ino, block, now));
            }
        }
        let path = self.path(range);
        self.drop_passed(range.ino);
        self.forget_files(range.ino);
        (path, fetches)
    }

    /// Returns the way of a read whose blocks are fetched, as far as they are worth it.
    fn path(&self, range: Range) -> ReadPath {
        let Some(file) = self.files.get(&range.ino) else { return ReadPath::ToServer };
        let mut waits_for = None;
        for block in file.blocks_of(range) {
            match file.blocks.get(&block) {
                Some(Block::UnderWay(number)) => waits_for = waits_for.or(Some(*number)),
                Some(Block::Here(_)) => {}
                None => return ReadPath::ToServer,
            }
        }
        match waits_for {
            Some(number) => ReadPath::Waits(number),
            None => file.range(range).map_or(ReadPath::ToServer, ReadPath::Here),
        }
    }

    /// Returns the request for a block, unless it is here or under way.
    fn fetch(&mut self, ino: InodeId, block: u64, now: Duration) -> Option<Fetch> {
        let file = self.files.get_mut(&ino).filter(|file| !file.blocks.contains_key(&block))?;
        let version = file.version;
        let lease = file.lease;
        let offset = block * BLOCK as u64;
        let bytes = usize::try_from(file.size - offset).unwrap_or(BLOCK).min(BLOCK);
        self.last_number += 1;
        let number = self.last_number;
        file.blocks.insert(block, Block::UnderWay(number));
        let beside = 0;
        let flight =
            Flight { ino, block, bytes, since: now, beside, is_leased: true, waiting: Vec::new() };
        self.flights.insert(number, flight);
        Some(Fetch { number, offset, bytes, version, lease })
    }

    /// Records that the request for the block with this number is sent to the server now.
    pub(crate) fn note_sent(&mut self, number: u64, now: Duration) {
        let beside = self.flights.values().filter(|flight| flight.beside > 0).count() + 1;
        if let Some(flight) = self.flights.get_mut(&number) {
            flight.since = now;
            flight.beside = beside;
        }
    }

    /// Has a read wait for the block with this number, which [`Fetched::read`] has returned.
    pub(crate) fn wait(&mut self, number: u64, waiting: W) {
        if let Some(flight) = self.flights.get_mut(&number) {
            flight.waiting.push(waiting);
        }
    }

    /// Ends the wait of a read. Returns it if it waits.
    pub(crate) fn cancel(&mut self, is_it: impl Fn(&W) -> bool) -> Option<W> {
        self.flights.values_mut().find_map(|flight| {
            let at = flight.waiting.iter().position(&is_it)?;
            Some(flight.waiting.swap_remove(at))
        })
    }

    /// Records the end of the flight of a block.
    pub(crate) fn land(&mut self, number: u64, landing: Landing, now: Duration) -> Landed<W> {
        let Some(flight) = self.flights.remove(&number) else {
            return Landed { waiting: Vec::new(), is_here: false, since: now };
        };
        let Flight { ino, block, bytes: asked, since, beside, is_leased, waiting } = flight;
        let is_sent = matches!(landing, Landing::Sent(_));
        let bytes = match landing {
            Landing::Sent(bytes) | Landing::Copied(bytes) => Some(bytes),
            Landing::Failed => None,
        };
        // A shorter reply would be of a file that has changed.
        let whole = bytes.filter(|bytes| bytes.len() == asked);
        // A copy says nothing about the line.
        if asked == BLOCK && is_sent && whole.is_some() {
            self.pace.note(since, now, beside);
        }
        let file = self.files.get_mut(&ino).filter(|_| is_leased);
        let is_here = file.is_some() && whole.is_some();
        match (file, whole) {
            (Some(file), Some(bytes)) => {
                self.bytes += bytes.len();
                file.bytes += bytes.len();
                file.blocks.insert(block, Block::Here(bytes));
                self.make_room(ino, block);
            }
            (Some(file), None) => drop(file.blocks.remove(&block)),
            (None, _) => {}
        }
        Landed { waiting, is_here, since }
    }

    /// Ends the reads through an open.
    pub(crate) fn close(&mut self, ino: InodeId, open: OpenId) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.cursors.remove(&open);
        }
    }

    /// Ends the lease on a file: what is here is dropped, and what is under way will be.
    pub(crate) fn end(&mut self, ino: InodeId) {
        let Some(file) = self.files.remove(&ino) else { return };
        self.by_read.remove(&file.read);
        self.bytes -= file.bytes;
        for flight in self.flights.values_mut().filter(|flight| flight.ino == ino) {
            flight.is_leased = false;
        }
    }

    /// Ends the leases on all files.
    pub(crate) fn end_all(&mut self) {
        self.files.clear();
        self.by_read.clear();
        self.bytes = 0;
        self.flights.values_mut().for_each(|flight| flight.is_leased = false);
    }

    /// Drops bytes while there are too many: those of other files, the least recently read first;
    /// and if this is the only one left, those farthest from its block that has landed.
    fn make_room(&mut self, landed_in: InodeId, landed: u64) {
        let mut others = self.by_read.values().filter(|ino| **ino != landed_in);
        while self.bytes > self.most_bytes {
            let dropped = match others.next() {
                Some(ino) => self.files.get_mut(ino).map(File::drop_all),
                None => self.files.get_mut(&landed_in).and_then(|file| file.drop_farthest(landed)),
            };
            let Some(dropped) = dropped else { return };
            self.bytes -= dropped;
        }
    }

    /// Drops the blocks of a large file that no reader in order will need soon.
    fn drop_passed(&mut self, ino: InodeId) {
        let large = self.files.get_mut(&ino).filter(|file| file.size > SMALL);
        if let Some(file) = large.filter(|file| file.bytes > limits::FETCH_AHEAD_BYTES) {
            self.bytes -= file.drop_passed();
        }
    }

    /// Forgets files that were read least recently, except this one, while there are too many.
    fn forget_files(&mut self, except: InodeId) {
        while self.files.len() > limits::FETCHED_FILES {
            let Some(oldest) = self.by_read.values().find(|ino| **ino != except) else { return };
            self.end(*oldest);
        }
    }

    /// Makes a file the one that was read last.
    fn note_read(&mut self, ino: InodeId) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        self.by_read.remove(&file.read);
        self.reads += 1;
        file.read = self.reads;
        self.by_read.insert(self.reads, ino);
    }
}

impl File {
    fn new(size: u64, lease: u64) -> Self {
        let blocks = BTreeMap::new();
        let cursors = HashMap::new();
        Self { size, version: None, lease, blocks, bytes: 0, cursors, read: 0 }
    }

    /// Moves the cursor of an open after a read.
    fn note(&mut self, range: Range) -> &mut Cursor {
        let end = self.end_of(range);
        let cursor = self.cursors.entry(range.open).or_default();
        cursor.last = range.offset;
        cursor.next = end;
        cursor
    }

    fn end_of(&self, Range { offset, size, .. }: Range) -> u64 {
        offset.saturating_add(size as u64).min(self.size)
    }

    /// Returns the blocks that have the bytes of a read; none after the end of the file.
    fn blocks_of(&self, range: Range) -> std::ops::Range<u64> {
        let end = self.end_of(range);
        match range.offset < end {
            true => range.offset / BLOCK as u64..end.div_ceil(BLOCK as u64),
            false => 0..0,
        }
    }

    /// Returns whether a read continues the last one through its open, or begins the file. A read
    /// comes again after it has waited.
    fn is_in_order(&self, range: Range) -> bool {
        let next = self.cursors.get(&range.open).map_or(0, |cursor| cursor.next);
        [range.offset, self.end_of(range)].contains(&next) || range.offset == 0
    }

    /// Returns whether a read that continues the one before is so near to what is missing that more
    /// is to be fetched.
    fn misses_ahead(&self, range: Range) -> bool {
        let Some(cursor) = self.cursors.get(&range.open) else { return false };
        let end = self.end_of(range).div_ceil(BLOCK as u64);
        let near = end + (cursor.ahead as u64 / 2).max(1);
        let mut near = end..near.min(self.size.div_ceil(BLOCK as u64));
        range.offset > 0
            && cursor.next == range.offset
            && near.any(|block| !self.blocks.contains_key(&block))
    }

    /// Returns whether a read that continues the one before must wait although its blocks were
    /// fetched ahead: too few were.
    fn stalls(&self, range: Range) -> bool {
        let continues =
            self.cursors.get(&range.open).is_some_and(|cursor| cursor.next == range.offset);
        let is_here = |block| matches!(self.blocks.get(&block), Some(Block::Here(_)));
        continues && !self.blocks_of(range).all(is_here)
    }

    /// Returns the bytes of a range, if all of them are here.
    fn range(&self, range: Range) -> Option<Vec<u8>> {
        let offset = range.offset;
        let end = self.end_of(range);
        let mut bytes = Vec::with_capacity(usize::try_from(end.saturating_sub(offset)).ok()?);
        let mut at = offset;
        while at < end {
            let Some(Block::Here(block)) = self.blocks.get(&(at / BLOCK as u64)) else {
                return None;
            };
            let from = usize::try_from(at % BLOCK as u64).ok()?;
            let part = block.get(from..)?;
            let left = usize::try_from(end - at).ok()?;
            let part = &part[..part.len().min(left)];
            bytes.extend_from_slice(part);
            at += part.len() as u64;
        }
        Some(bytes)
    }

    /// Drops the bytes of a block, unless it is under way. Returns how many they were.
    fn drop_block(&mut self, block: u64) -> usize {
        let Some(Block::Here(bytes)) = self.blocks.get(&block) else { return 0 };
        let dropped = bytes.len();
        self.blocks.remove(&block);
        self.bytes -= dropped;
        dropped
    }

    /// Drops the blocks that no reader in order will need soon. Returns their bytes.
    fn drop_passed(&mut self) -> usize {
        let reading = self.cursors.values().filter(|cursor| cursor.ahead > 0);
        let soon = reading.map(|cursor| {
            let end = cursor.next / BLOCK as u64 + cursor.ahead as u64;
            cursor.last / BLOCK as u64..=end
        });
        let soon: Vec<_> = soon.collect();
        let is_soon = |block: &u64| soon.iter().any(|soon| soon.contains(block));
        let passed: Vec<u64> =
            self.blocks.keys().filter(|block| !is_soon(block)).copied().collect();
        passed.into_iter().map(|block| self.drop_block(block)).sum()
    }

    /// Drops all blocks. Returns their bytes.
    fn drop_all(&mut self) -> usize {
        // What is under way lands later.
        self.blocks.retain(|_, block| matches!(block, Block::UnderWay(_)));
        std::mem::take(&mut self.bytes)
    }

    /// Drops the block that is farthest from this one. Returns its bytes; `None` if no other block
    /// is here.
    fn drop_farthest(&mut self, from: u64) -> Option<usize> {
        let here = self.blocks.iter().filter(|(_, block)| matches!(block, Block::Here(_)));
        let mut here = here.map(|(block, _)| *block).filter(|block| *block != from);
        let first = here.next()?;
        let last = here.next_back().unwrap_or(first);
        let farthest = if from.abs_diff(first) >= from.abs_diff(last) { first } else { last };
        Some(self.drop_block(farthest))
    }
}

#[cfg(test)]
mod tests;
