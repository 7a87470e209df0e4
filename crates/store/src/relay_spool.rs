//! The spools of a relay: records of the groups of primaries, until the mirrors have them.
//!
//! Each volume has a folder: a file `offer` with the offer of the primary, and segments, files that
//! only grow. A record has a place, its bytes since the first record of the run; a segment is named
//! by the place of its first record, in 16 hexadecimal digits. `docs/format.md`, 6.5, has the
//! tables.
//!
//! Nothing is synced. The level *network* promises nothing if the machine of the relay is lost, and
//! after the process was killed the kernel still has what was written. A loss of power may cut the
//! newest records: they are found by their sums, and the groups before them stay.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use pelago_wire::limits;
use pelago_wire::relay::{
    KeptRecord, Record, RelayMessage, RelayOffer, RelaySpool, RelaySpools, SpoolPlace,
};
use rustix::fs::OFlags;
use xxhash_rust::xxh3::xxh3_64;

use crate::folder::{Folder, FolderError};
use crate::volume::VolumeId;

/// The name of the file with the offer.
const OFFER: &str = "offer";
/// The name under which it is written.
const NEW_OFFER: &str = "offer.new";
/// The permissions of that file.
const FILE_MODE: u32 = 0o600;
const MAGIC: [u8; 8] = *b"PELRELA\n";
const VERSION: u32 = 1;
/// Bytes of the file of an offer before the message: magic, version, bytes of the message.
const OFFER_HEAD_BYTES: usize = 16;
/// Bytes of the sum behind the message.
const SUM_BYTES: usize = 8;
/// Bytes in front of a record: its length, and the low half of its XXH3.
const RECORD_HEAD_BYTES: usize = 8;

/// A failure of the spool of a relay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelaySpoolError {
    /// A file or folder cannot be opened or removed.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A segment cannot be read or written.
    #[error("{doing} the segment {name} of a relay's spool failed: {source}")]
    Io {
        /// The operation, for a message: "writing".
        doing: &'static str,
        /// The name of the segment.
        name: String,
        /// The error of the system call.
        #[source]
        source: std::io::Error,
    },
    /// A message cannot be encoded.
    #[error("a record of a relay's spool exceeds the limit of a frame")]
    TooLong,
}

/// The spools in a folder.
#[derive(Debug, Clone)]
pub struct SpoolFolder {
    folder: Arc<Folder>,
}

/// The spool of one volume.
#[derive(Debug)]
struct Segments {
    folder: Folder,
    segments: VecDeque<Segment>,
    /// The whole groups that are here, in order.
    groups: VecDeque<KeptGroup>,
    /// The place after the last whole group.
    whole: SpoolPlace,
    /// The place of the next record.
    end: SpoolPlace,
    last_group: u64,
}

#[derive(Debug)]
struct Segment {
    start: SpoolPlace,
    file: File,
}

#[derive(Debug, Clone, Copy)]
struct KeptGroup {
    number: u64,
    start: SpoolPlace,
}

impl SpoolFolder {
    /// Returns the spools in `folder`, a subfolder for each volume.
    #[must_use]
    pub fn new(folder: Folder) -> Self {
        Self { folder: Arc::new(folder) }
    }

    fn read_kept(&self) -> Result<Vec<([u8; 16], RelayOffer)>, RelaySpoolError> {
        let mut kept = Vec::new();
        for name in self.folder.entries()? {
            let Some(volume) = name.to_str().and_then(VolumeId::parse) else { continue };
            let folder = self.folder.open_folder(&name)?;
            if let Some(offer) = read_offer(&folder)? {
                kept.push((volume.0, offer));
            }
        }
        Ok(kept)
    }

    fn open_volume(
        &self,
        volume: [u8; 16],
        offer: &RelayOffer,
    ) -> Result<Segments, RelaySpoolError> {
        let folder = self.folder.create_folder(&VolumeId(volume).to_string())?;
        let kept = read_offer(&folder)?;
        let is_same_run = kept.as_ref().is_some_and(|kept| {
            (kept.reign, kept.run, &kept.mirror) == (offer.reign, offer.run, &offer.mirror)
        });
        if !is_same_run {
            for name in folder.entries()? {
                folder.remove(&name)?;
            }
        }
        if kept.as_ref() != Some(offer) {
            write_offer(&folder, offer)?;
        }
        Segments::open(folder)
    }
}

impl RelaySpools for SpoolFolder {
    fn kept(&self) -> Result<Vec<([u8; 16], RelayOffer)>, String> {
        self.read_kept().map_err(|error| error.to_string())
    }

    fn open(&self, volume: [u8; 16], offer: &RelayOffer) -> Result<Box<dyn RelaySpool>, String> {
        match self.open_volume(volume, offer) {
            Ok(segments) => Ok(Box::new(segments)),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Segments {
    /// Reads the segments up to the first record that is damaged, and drops what comes after the
    /// last whole group.
    fn open(folder: Folder) -> Result<Self, RelaySpoolError> {
        let names = folder.entries()?;
        let mut starts: Vec<u64> = names.iter().filter_map(|name| start_of(name)).collect();
        starts.sort_unstable();
        let first = SpoolPlace(starts.first().copied().unwrap_or_default());
        let mut spool = Self {
            folder,
            segments: VecDeque::new(),
            groups: VecDeque::new(),
            whole: first,
            end: first,
            last_group: 0,
        };
        for start in starts.into_iter().map(SpoolPlace) {
            if start != spool.end {
                // The end of the one before is damaged, so nothing after it is of use.
                spool.folder.remove(&name_of(start))?;
                continue;
            }
            let file = spool.folder.open_file(&name_of(start), OFlags::RDWR)?;
            spool.segments.push_back(Segment { start, file });
            while let Some(record) = spool.read_at(spool.end)? {
                let known = spool.end;
                spool.end = record.next;
                if !spool.note(&record.body, known) {
                    spool.end = known;
                    break;
                }
            }
        }
        spool.truncate(spool.whole)?;
        Ok(spool)
    }

    /// Notes a record that is at a place, where the last one ends. Returns false if it is none.
    fn note(&mut self, body: &[u8], at: SpoolPlace) -> bool {
        let Ok(RelayMessage::Record(Record { group, is_last, .. })) = RelayMessage::decode(body)
        else {
            return false;
        };
        if is_last {
            let start = self.whole.min(at);
            self.groups.push_back(KeptGroup { number: group, start });
            self.whole = self.end;
            self.last_group = group;
        }
        true
    }

    fn read_at(&self, place: SpoolPlace) -> Result<Option<KeptRecord>, RelaySpoolError> {
        let holder = self.segments.iter().rev().find(|segment| segment.start <= place);
        let Some(Segment { start, file }) = holder else { return Ok(None) };
        let failed = |source| failed("reading", *start, source);
        let offset = place.0 - start.0;
        let bytes = file.metadata().map_err(failed)?.len();
        if bytes.saturating_sub(offset) < RECORD_HEAD_BYTES as u64 {
            return Ok(None);
        }
        let mut head = [0; RECORD_HEAD_BYTES];
        file.read_exact_at(&mut head, offset).map_err(failed)?;
        let [l0, l1, l2, l3, s0, s1, s2, s3] = head;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        let next = offset + RECORD_HEAD_BYTES as u64 + u64::from(length);
        if length as usize > limits::FRAME_BODY_BYTES || next > bytes {
            return Ok(None);
        }
        let mut body = vec![0; length as usize];
        file.read_exact_at(&mut body, offset + RECORD_HEAD_BYTES as u64).map_err(failed)?;
        let is_whole = checksum(&body) == u32::from_le_bytes([s0, s1, s2, s3]);
        let next = SpoolPlace(start.0 + next);
        Ok(is_whole.then_some(KeptRecord { body, next }))
    }

    fn add(&mut self, body: &[u8]) -> Result<(), RelaySpoolError> {
        if body.len() > limits::FRAME_BODY_BYTES {
            return Err(RelaySpoolError::TooLong);
        }
        let is_full =
            |segment: &Segment| self.end.0 - segment.start.0 >= limits::RELAY_SEGMENT_BYTES;
        if self.segments.back().is_none_or(is_full) {
            let start = self.end;
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
            let file = self.folder.open_file(&name_of(start), flags)?;
            self.segments.push_back(Segment { start, file });
        }
        let Some(Segment { start, file }) = self.segments.back() else { return Ok(()) };
        // A body is shorter than a frame.
        let length = body.len() as u32;
        let mut record = Vec::with_capacity(RECORD_HEAD_BYTES + body.len());
        record.extend_from_slice(&length.to_le_bytes());
        record.extend_from_slice(&checksum(body).to_le_bytes());
        record.extend_from_slice(body);
        let written = file.write_all_at(&record, self.end.0 - start.0);
        written.map_err(|source| failed("writing", *start, source))?;
        let at = self.end;
        self.end = SpoolPlace(at.0 + record.len() as u64);
        if !self.note(body, at) {
            self.truncate(at)?;
            return Err(RelaySpoolError::TooLong);
        }
        Ok(())
    }

    /// Removes all records from a place on.
    fn truncate(&mut self, place: SpoolPlace) -> Result<(), RelaySpoolError> {
        while let Some(last) = self.segments.back()
            && last.start >= place
        {
            self.folder.remove(&name_of(last.start))?;
            self.segments.pop_back();
        }
        if let Some(Segment { start, file }) = self.segments.back() {
            let cut = file.set_len(place.0 - start.0);
            cut.map_err(|source| failed("truncating", *start, source))?;
        }
        self.end = place;
        Ok(())
    }

    fn drop_groups(&mut self, until: u64) -> Result<(), RelaySpoolError> {
        while self.groups.front().is_some_and(|group| group.number <= until) {
            self.groups.pop_front();
        }
        let first = self.groups.front().map_or(self.whole, |group| group.start);
        // The newest segment stays: its name says where the next record is.
        while let Some(next) = self.segments.get(1)
            && next.start <= first
        {
            let Some(oldest) = self.segments.pop_front() else { break };
            self.folder.remove(&name_of(oldest.start))?;
        }
        Ok(())
    }
}

impl RelaySpool for Segments {
    fn last_group(&self) -> u64 {
        self.last_group
    }

    fn has_room(&self) -> bool {
        self.kept().0 < limits::RELAY_SPOOL_BYTES
    }

    fn append(&mut self, body: &[u8]) -> Result<(), String> {
        self.add(body).map_err(|error| error.to_string())
    }

    fn drop_partial(&mut self) -> Result<(), String> {
        self.truncate(self.whole).map_err(|error| error.to_string())
    }

    fn place_after(&self, group: u64) -> SpoolPlace {
        let next = self.groups.iter().find(|kept| kept.number > group);
        next.map_or(self.whole, |kept| kept.start)
    }

    fn read(&mut self, place: SpoolPlace) -> Result<Option<KeptRecord>, String> {
        if place >= self.end {
            return Ok(None);
        }
        match self.read_at(place) {
            Ok(Some(record)) => Ok(Some(record)),
            Ok(None) => Err("a record of the spool is damaged".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn remove_until(&mut self, group: u64) -> Result<(), String> {
        self.drop_groups(group).map_err(|error| error.to_string())
    }

    fn kept(&self) -> (u64, u64) {
        let first = self.groups.front().map_or(self.whole, |group| group.start);
        (self.end.0 - first.0, self.groups.len() as u64)
    }
}

fn read_offer(folder: &Folder) -> Result<Option<RelayOffer>, RelaySpoolError> {
    let file = match folder.open_file(OFFER, OFlags::RDONLY) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = vec![0; OFFER_HEAD_BYTES + SUM_BYTES + limits::HANDSHAKE_BYTES];
    let read = file.read_at(&mut bytes, 0);
    let read = read.map_err(|source| io_failed("reading", OFFER.to_owned(), source))?;
    bytes.truncate(read);
    Ok(decode_offer(&bytes))
}

fn write_offer(folder: &Folder, offer: &RelayOffer) -> Result<(), RelaySpoolError> {
    let message = RelayMessage::Offer(offer.clone()).encode();
    let message = message.map_err(|_| RelaySpoolError::TooLong)?;
    let file = folder.replace_file(NEW_OFFER, FILE_MODE)?;
    let written = file.write_all_at(&encode_offer(&message), 0).and_then(|()| file.sync_all());
    written.map_err(|source| io_failed("writing", NEW_OFFER.to_owned(), source))?;
    folder.rename(NEW_OFFER, OFFER)?;
    Ok(folder.sync()?)
}

fn encode_offer(message: &[u8]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    // An offer is shorter than a handshake.
    out.extend_from_slice(&(message.len() as u32).to_le_bytes());
    out.extend_from_slice(message);
    let sum = xxh3_64(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Decodes the file of an offer; `None` if it is damaged, or of another version.
fn decode_offer(bytes: &[u8]) -> Option<RelayOffer> {
    let (written, sum) = bytes.split_last_chunk::<SUM_BYTES>()?;
    let rest = written.strip_prefix(&MAGIC)?.strip_prefix(&VERSION.to_le_bytes())?;
    let (length, message) = rest.split_first_chunk::<4>()?;
    let is_whole = u32::from_le_bytes(*length) as usize == message.len()
        && u64::from_le_bytes(*sum) == xxh3_64(written);
    match RelayMessage::decode(message).ok()? {
        RelayMessage::Offer(offer) if is_whole => Some(offer),
        RelayMessage::Offer(_)
        | RelayMessage::Record(_)
        | RelayMessage::Ping
        | RelayMessage::Report(_) => None,
    }
}

fn name_of(start: SpoolPlace) -> String {
    format!("{:016x}", start.0)
}

fn start_of(name: &std::ffi::OsStr) -> Option<u64> {
    let name = name.to_str().filter(|name| name.len() == 16)?;
    u64::from_str_radix(name, 16).ok()
}

/// Returns the checksum of a record.
fn checksum(body: &[u8]) -> u32 {
    // XXH3 mixes every bit of the input into the low half too.
    xxh3_64(body) as u32
}

fn failed(doing: &'static str, segment: SpoolPlace, source: std::io::Error) -> RelaySpoolError {
    io_failed(doing, name_of(segment), source)
}

const fn io_failed(doing: &'static str, name: String, source: std::io::Error) -> RelaySpoolError {
    RelaySpoolError::Io { doing, name, source }
}

#[cfg(test)]
mod tests;
