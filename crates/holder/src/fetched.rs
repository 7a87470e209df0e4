//! Bytes of files that were fetched under leases, in blocks, without I/O: which blocks a read
//! needs, which ones are fetched ahead of it, and which ones are dropped.
//!
//! A small file is fetched whole and kept. Of a large one that is read in order, more and more
//! blocks are fetched ahead, so that a line with a long delay is used whole. Their number falls
//! when replies take long: recalls, and the answers that lengthen leases, come after them.
//!
//! All blocks of a file count as leased until [`Fetched::end`].

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::time::Duration;

use pelago_wire::{InodeId, limits};

const BLOCK: usize = limits::FETCH_BLOCK_BYTES;
/// A file of at most so many bytes is fetched in any order, and kept.
const SMALL: u64 = 1 << 20;
/// Blocks that are fetched ahead of a read, at most.
const AHEAD: usize = limits::FETCH_AHEAD_BYTES / BLOCK;
/// Blocks under way for all files, at most; a read may have one more.
const UNDER_WAY: usize = limits::FETCHED_BYTES / BLOCK;
/// A reply that takes so much longer than twice the fastest one is late.
const PATIENCE: Duration = Duration::from_millis(200);

/// The fetched bytes of all files. `W` is a read that waits for a block.
pub(crate) struct Fetched<W> {
    files: HashMap<InodeId, File>,
    /// The blocks under way, by their numbers.
    flights: HashMap<u64, Flight<W>>,
    /// Bytes that are here, of all files.
    bytes: usize,
    last_number: u64,
    /// Counts the reads: the file that was read last has the highest count.
    reads: u64,
    line: Line,
}

/// The pace of the line.
struct Line {
    /// The time of the fastest reply.
    fastest: Duration,
    /// Blocks that may be fetched ahead.
    most: usize,
}

struct File {
    size: u64,
    blocks: BTreeMap<u64, Block>,
    /// The end of the last read.
    next: u64,
    /// Blocks to fetch ahead; 0 if reads do not continue each other.
    ahead: usize,
    /// The value of [`Fetched::reads`] at the last read.
    read: u64,
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
    /// The lease on the file has not ended since.
    is_leased: bool,
    waiting: Vec<W>,
}

/// A read of a range of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) ino: InodeId,
    pub(crate) offset: u64,
    pub(crate) size: usize,
}

/// A request for a block, which is to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

/// The way of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadPath {
    /// It is answered with these bytes, which end early at the end of the file.
    Here(Vec<u8>),
    /// It waits for the block with this number.
    Waits(u64),
    /// It goes to the server: its bytes are not worth a block.
    ToServer,
}

/// The end of a flight.
pub(crate) struct Landed<W> {
    /// The reads that wait for the block.
    pub(crate) waiting: Vec<W>,
    /// The block is here. If not, the reads go to the server.
    pub(crate) is_here: bool,
}

impl<W> Default for Fetched<W> {
    fn default() -> Self {
        Self {
            files: HashMap::new(),
            flights: HashMap::new(),
            bytes: 0,
            last_number: 0,
            reads: 0,
            line: Line { fastest: Duration::MAX, most: AHEAD },
        }
    }
}

impl<W> Fetched<W> {
    /// Returns the size of a file of which something is here or under way, under a lease.
    pub(crate) fn size(&self, ino: InodeId) -> Option<u64> {
        self.files.get(&ino).map(|file| file.size)
    }

    /// Returns the bytes of a read, if all of them are here and nothing is to be fetched.
    pub(crate) fn take(&mut self, range: Range) -> Option<Vec<u8>> {
        let most = self.line.most;
        let reads = self.next_read();
        let file = self.files.get_mut(&range.ino)?;
        if file.misses_ahead(range, most) {
            return None;
        }
        let bytes = file.range(range)?;
        file.note(range, reads);
        Some(bytes)
    }

    /// Decides the way of a read of a file of this size, and which blocks are to be fetched.
    pub(crate) fn read(
        &mut self,
        range: Range,
        size: u64,
        now: Duration,
    ) -> (ReadPath, Vec<Fetch>) {
        let reads = self.next_read();
        let file = self.files.entry(range.ino).or_insert_with(|| File::new(size));
        let end = range.offset.saturating_add(range.size as u64).min(size);
        // The last read comes again after it has waited.
        let continues = [range.offset, end].contains(&file.next) || range.offset == 0;
        let misses_ahead = file.misses_ahead(range, self.line.most);
        file.note(range, reads);
        if !continues && size > SMALL {
            file.ahead = 0;
            return match file.range(range) {
                Some(bytes) => (ReadPath::Here(bytes), Vec::new()),
                None => (ReadPath::ToServer, Vec::new()),
            };
        }
        let wanted = range.offset / BLOCK as u64..end.div_ceil(BLOCK as u64);
        let is_missing = |file: &File, block: u64| !file.blocks.contains_key(&block);
        if misses_ahead {
            file.ahead = (2 * file.ahead).clamp(1, self.line.most);
        }
        let most = file.ahead.min(self.line.most) as u64;
        let ahead = wanted.end.saturating_add(most).min(size.div_ceil(BLOCK as u64));
        let mut fetches = Vec::new();
        for block in wanted.start..ahead {
            let is_wanted = block < wanted.end;
            if !is_missing(file, block) || (!is_wanted && self.flights.len() >= UNDER_WAY) {
                continue;
            }
            self.last_number += 1;
            let number = self.last_number;
            let offset = block * BLOCK as u64;
            let bytes = usize::try_from(size - offset).unwrap_or(BLOCK).min(BLOCK);
            file.blocks.insert(block, Block::UnderWay(number));
            let flight = Flight {
                ino: range.ino,
                block,
                bytes,
                since: now,
                is_leased: true,
                waiting: Vec::new(),
            };
            self.flights.insert(number, flight);
            fetches.push(Fetch { number, offset, bytes });
        }
        let under_way = wanted.clone().find_map(|block| match file.blocks.get(&block) {
            Some(Block::UnderWay(number)) => Some(*number),
            Some(Block::Here(_)) | None => None,
        });
        let answer = match (under_way, file.range(range)) {
            (Some(number), _) => ReadPath::Waits(number),
            (None, Some(bytes)) => ReadPath::Here(bytes),
            (None, None) => ReadPath::ToServer,
        };
        if size > SMALL {
            self.bytes -= file.drop_before(wanted.start);
        }
        (answer, fetches)
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

    /// Records the reply with a block; `None` for an error.
    pub(crate) fn land(&mut self, number: u64, bytes: Option<Vec<u8>>, now: Duration) -> Landed<W> {
        let Some(flight) = self.flights.remove(&number) else {
            return Landed { waiting: Vec::new(), is_here: false };
        };
        let Flight { ino, block, bytes: asked, since, is_leased, waiting } = flight;
        self.line.note(now.saturating_sub(since));
        let file = self.files.get_mut(&ino).filter(|_| is_leased);
        // A shorter reply would be of a file that has changed.
        let whole = bytes.filter(|bytes| bytes.len() == asked);
        let is_here = file.is_some() && whole.is_some();
        match (file, whole) {
            (Some(file), Some(bytes)) => {
                self.bytes += bytes.len();
                file.blocks.insert(block, Block::Here(bytes));
            }
            (Some(file), None) => drop(file.blocks.remove(&block)),
            (None, _) => {}
        }
        self.make_room(ino);
        Landed { waiting, is_here }
    }

    /// Ends the lease on a file: what is here is dropped, and what is under way will be.
    pub(crate) fn end(&mut self, ino: InodeId) {
        let Some(file) = self.files.remove(&ino) else { return };
        self.bytes -= file.bytes();
        for flight in self.flights.values_mut().filter(|flight| flight.ino == ino) {
            flight.is_leased = false;
        }
    }

    /// Ends the leases on all files.
    pub(crate) fn end_all(&mut self) {
        self.files.clear();
        self.bytes = 0;
        self.flights.values_mut().for_each(|flight| flight.is_leased = false);
    }

    /// Drops the bytes of files that were read least recently, except those of this one, and then
    /// files of which nothing is here.
    fn make_room(&mut self, except: InodeId) {
        while self.bytes > limits::FETCHED_BYTES || self.files.len() > limits::FETCHED_FILES {
            let others = self.files.iter().filter(|(ino, _)| **ino != except);
            let Some((oldest, _)) = others.min_by_key(|(_, file)| file.read) else { return };
            let oldest = *oldest;
            self.end(oldest);
        }
    }

    fn next_read(&mut self) -> u64 {
        self.reads += 1;
        self.reads
    }
}

impl Line {
    /// Records the time of a reply.
    fn note(&mut self, took: Duration) {
        self.fastest = self.fastest.min(took);
        self.most = match took > 2 * self.fastest + PATIENCE {
            true => (self.most / 2).max(1),
            false => (self.most + 1).min(AHEAD),
        };
    }
}

impl File {
    const fn new(size: u64) -> Self {
        Self { size, blocks: BTreeMap::new(), next: 0, ahead: 0, read: 0 }
    }

    fn note(&mut self, range: Range, read: u64) {
        self.next = range.offset.saturating_add(range.size as u64).min(self.size);
        self.read = read;
    }

    /// Returns whether a read that continues the one before is so near to what is missing that more
    /// is to be fetched.
    fn misses_ahead(&self, Range { offset, size, .. }: Range, most: usize) -> bool {
        let end = offset.saturating_add(size as u64).min(self.size);
        let near = end.div_ceil(BLOCK as u64) + (self.ahead.min(most) as u64 / 2).max(1);
        offset > 0
            && self.next == offset
            && near.min(self.size.div_ceil(BLOCK as u64))
                > self.blocks.keys().next_back().map_or(0, |last| last + 1)
    }

    /// Returns the bytes of a range, if all of them are here.
    fn range(&self, Range { offset, size, .. }: Range) -> Option<Vec<u8>> {
        let end = offset.saturating_add(size as u64).min(self.size);
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

    /// Drops the blocks before this one. Returns their bytes.
    fn drop_before(&mut self, block: u64) -> usize {
        let later = self.blocks.split_off(&block);
        let before = mem::replace(&mut self.blocks, later);
        let dropped = before.iter().filter(|(_, block)| matches!(block, Block::Here(_)));
        let bytes = dropped.map(|(_, block)| block.bytes()).sum();
        // What is under way lands later.
        let under_way = before.into_iter().filter(|(_, it)| matches!(it, Block::UnderWay(_)));
        self.blocks.extend(under_way);
        bytes
    }

    fn bytes(&self) -> usize {
        self.blocks.values().map(Block::bytes).sum()
    }
}

impl Block {
    const fn bytes(&self) -> usize {
        match self {
            Self::UnderWay(_) => 0,
            Self::Here(bytes) => bytes.len(),
        }
    }
}

#[cfg(test)]
mod tests;
