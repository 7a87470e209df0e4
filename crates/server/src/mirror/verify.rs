//! The verification of a mirror: whether it has the rows and the bytes of the volume.
//!
//! Rows are compared with the snapshot of a cut right after the mirror has that cut. Content files
//! are compared in slices between two groups: a file that has not changed since the last cut is as
//! the mirror must have it. One that changes meanwhile is tried again later, and named at the end
//! if it never stood still. The questions are those of a resync, in a group that is given up, so
//! nothing changes at the mirror.

use std::ops::{ControlFlow, Range};

use pelago_store::report::table_failed;
use pelago_store::table::TableRead;
use pelago_wire::{Error, Handle, InodeId, Time};

use super::Mirror;
use super::content::{ASKED_BLOCKS, KnownFile};
use super::group::SendError;
use super::resync::Comparing;
use crate::digests::content_of;
use names::{Places, add_name};
use scope::Scope;
use waiting::{SLICE_FILES, Tried, Waiting};

mod names;
mod scope;
mod waiting;

/// Blocks that are compared in one slice: groups wait for it, some tenths of a second.
const SLICE_BLOCKS: u64 = 32;
/// How often a file is compared that changes meanwhile, or that one end cannot read.
const TRIES: u32 = 3;
/// The most files that wait for another try. More are named as if they always changed.
const WAITING: usize = 1 << 16;

/// The most rows that differ whose files are looked for.
const DIFFERING: usize = 1 << 14;
/// Content files that are looked at for those of a slice, which may be few in a small folder.
const SCANNED: usize = 64 * SLICE_FILES;

/// The state or result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// The file or folder that it is about, with all below it; `None` means all of the volume.
    pub below: Option<InodeId>,
    /// Number of rows that were compared: all of the volume.
    pub rows: u64,
    /// Number of content files that were compared.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Paths of what the mirror has otherwise, at most 1,000.
    pub differing: Vec<String>,
    /// Number of all that the mirror has otherwise.
    pub differences: u64,
    /// What differs is sent again.
    pub repairs: bool,
    /// Paths of files that changed at each try, at most 1,000.
    pub changing: Vec<String>,
    /// The time of its end; `None` while it goes on.
    pub finished: Option<Time>,
}

/// A verification that is to begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    repairs: bool,
    below: Option<InodeId>,
}

/// A verification under way.
#[derive(Debug)]
pub(super) struct Verification {
    /// What differs is sent again.
    repairs: bool,
    scope: Scope,
    stage: Stage,
    /// Files that are compared later.
    waiting: Waiting,
    result: Verified,
}

#[derive(Debug)]
enum Stage {
    /// The rows of the next cut are compared.
    Rows,
    /// Content files are compared, those of the rows from this key on.
    Contents { from: Vec<u8> },
    /// The files that wait are compared.
    Waiting,
}

/// Rows that differ, or have rows behind them that only the mirror has.
#[derive(Debug, Default)]
pub(super) struct DifferingRows {
    /// The keys of the first ones, each with that of the next row.
    keys: Vec<(Vec<u8>, Vec<u8>)>,
    /// Number of those that come after them.
    more: u64,
}

impl DifferingRows {
    pub(super) fn add(&mut self, row_key: Vec<u8>, next: Vec<u8>) {
        match self.keys.len() < DIFFERING {
            true => self.keys.push((row_key, next)),
            false => self.more += 1,
        }
    }
}

/// The state of a verification after a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// There is more to compare.
    GoesOn,
    /// What is left has changed since the last group.
    WaitsForGroup,
    Ended,
}

/// A file of a slice.
enum InSlice {
    /// These blocks of it are compared.
    Asked { known: KnownFile, blocks: Range<u64> },
    /// It is not compared now, for this reason.
    NotAsked(Outcome),
}

/// The outcome of a slice for one of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The slice had no room for its blocks.
    NoRoom,
    /// It was removed.
    Gone,
    /// It has changed meanwhile.
    Changed,
    /// The mirror has other bytes; it has this size here.
    Differs { size: u64 },
    /// It is equal so far; the next blocks are those from this one on.
    GoesOn { first: u64 },
    /// It is equal, and has this size.
    Equal { size: u64 },
}

impl Verification {
    pub(super) fn new(wanted: Wanted) -> Self {
        let Wanted { repairs, below } = wanted;
        let scope = below.map_or(Scope::Volume, Scope::Below);
        let result = Verified { below, repairs, ..Verified::default() };
        Self { repairs, scope, stage: Stage::Rows, waiting: Waiting::default(), result }
    }

    /// Returns whether the rows of the next cut are to be compared.
    pub(super) const fn wants_rows(&self) -> bool {
        matches!(self.stage, Stage::Rows)
    }

    /// Records which rows of this snapshot differ, of so many. Returns whether they are to be sent
    /// again.
    pub(super) fn end_rows(
        &mut self,
        mirror: &Mirror,
        snapshot: &dyn TableRead,
        rows: u64,
        differing: &DifferingRows,
    ) -> Result<bool, SendError> {
        let keys = differing.keys.iter().flat_map(|(row_key, next)| [&**row_key, &**next]);
        let places = Places::of(mirror, snapshot, keys)?;
        let mut count = differing.more;
        for (row_key, next) in &differing.keys {
            // What only the mirror has may belong to either row beside it.
            for beside in [row_key, next] {
                if self.scope.has_row(mirror, &places, beside)? {
                    count += 1;
                    add_name(&mut self.result.differing, mirror, &places, beside);
                    break;
                }
            }
        }
        self.result.differences += count;
        self.result.rows = rows;
        self.stage = Stage::Contents { from: Vec::new() };
        Ok(self.repairs && count > 0)
    }

    /// Returns the state, or with its time the result.
    pub(super) fn result(&mut self, finished: Option<Time>) -> Verified {
        self.result.finished = finished;
        // Rows are in the order of hashes of names.
        self.result.differing.sort();
        self.result.changing.sort();
        self.result.clone()
    }

    fn note_difference(&mut self, mirror: &Mirror, row_key: &[u8]) {
        self.result.differences += 1;
        add_name(&mut self.result.differing, mirror, &Places::default(), row_key);
    }

    /// Returns whether it waits for nothing but a group, if the mirror has this one.
    pub(super) fn waits_for_group(&mut self, group: u64) -> bool {
        self.waiting.note_group(group);
        let is_scanned = matches!(self.stage, Stage::Waiting);
        is_scanned && self.waiting.due() == 0 && self.waiting.len() > 0
    }

    /// Returns the next content files that are to be compared; none if all that is left has been
    /// tried since this group.
    fn next_files(&mut self, mirror: &Mirror, group: u64) -> Result<Vec<Tried>, SendError> {
        self.waiting.note_group(group);
        let is_scanning = matches!(self.stage, Stage::Contents { .. });
        // Those that wait are few: they are tried again when they fill a slice.
        if self.waiting.due() < SLICE_FILES && is_scanning {
            let files = self.scan(mirror)?;
            if !files.is_empty() {
                return Ok(files);
            }
        }
        Ok(self.waiting.take())
    }

    /// Returns the content files of the next rows; none if there are no more, or none of the next
    /// ones is to be compared.
    fn scan(&mut self, mirror: &Mirror) -> Result<Vec<Tried>, SendError> {
        let Stage::Contents { from } = &self.stage else { return Ok(Vec::new()) };
        let most = match self.scope {
            Scope::Volume => SLICE_FILES,
            Scope::Below(_) => SCANNED,
        };
        let mut found = Vec::new();
        let mut next = None;
        let scanned = mirror.parts.table.scan(from, &[], &mut |row_key, value| {
            if found.len() == most {
                next = Some(row_key.to_vec());
                return ControlFlow::Break(());
            }
            if let Some(key) = content_of(row_key, value) {
                found.push(Tried::new(key, row_key.to_vec()));
            }
            ControlFlow::Continue(())
        });
        scanned.map_err(|error| table_failed("verifying the mirror", &error))?;
        let mut files = Vec::new();
        for tried in found {
            if files.len() == SLICE_FILES {
                next = Some(tried.row_key);
                break;
            }
            if self.scope.has_file(mirror, &tried.row_key, tried.key.0)? {
                files.push(tried);
            }
        }
        self.stage = next.map_or(Stage::Waiting, |from| Stage::Contents { from });
        Ok(files)
    }

    /// Compares some content files. `group`: the last one that the mirror has.
    pub(super) fn compare_some(
        &mut self,
        mirror: &Mirror,
        comparing: &mut Comparing<'_, '_>,
        group: u64,
    ) -> Result<Step, SendError> {
        if mirror.parts.opens.changes().has_more() {
            return Ok(Step::WaitsForGroup);
        }
        let files = self.next_files(mirror, group)?;
        if files.is_empty() {
            let is_scanned = matches!(self.stage, Stage::Waiting);
            return Ok(match self.waiting.len() {
                _ if !is_scanned => Step::GoesOn,
                0 => Step::Ended,
                _ => Step::WaitsForGroup,
            });
        }
        match compare(mirror, comparing, &files) {
            Ok(outcomes) => {
                // Those that are compared next stay in their order.
                for (tried, outcome) in files.into_iter().zip(outcomes).rev() {
                    self.record(mirror, tried, outcome, group);
                }
                Ok(Step::GoesOn)
            }
            Err(error) => {
                self.note_failure(mirror, files);
                Err(error)
            }
        }
    }

    /// Records the outcome of a slice for a file.
    fn record(&mut self, mirror: &Mirror, tried: Tried, outcome: Outcome, group: u64) {
        match outcome {
            Outcome::NoRoom => self.waiting.push_next(tried),
            Outcome::GoesOn { first } => self.waiting.push_next(Tried { first, ..tried }),
            Outcome::Changed => self.retry(mirror, tried, group),
            Outcome::Gone => {}
            Outcome::Differs { size } => {
                self.note_difference(mirror, &tried.row_key);
                if self.repairs {
                    let (ino, generation) = tried.key;
                    mirror.parts.opens.mirror_again(ino, generation, size);
                }
            }
            Outcome::Equal { size } => {
                self.result.files += 1;
                self.result.bytes += size;
            }
        }
    }

    /// Has a file that has changed compared again, from its start, after the next group.
    fn retry(&mut self, mirror: &Mirror, tried: Tried, group: u64) {
        let changes = tried.changes + 1;
        match changes < TRIES && self.waiting.len() < WAITING {
            true => self.waiting.push_changed(Tried { first: 0, changes, ..tried }, group),
            false => {
                let names = &mut self.result.changing;
                add_name(names, mirror, &Places::default(), &tried.row_key);
            }
        }
    }

    /// Has the files of a slice that failed compared again, one by one; one that fails each time
    /// differs, as far as anybody can tell.
    fn note_failure(&mut self, mirror: &Mirror, files: Vec<Tried>) {
        for tried in files.into_iter().rev() {
            let failures = tried.failures + 1;
            match failures < TRIES {
                true => self.waiting.push_next(Tried { failures, ..tried }),
                false => self.note_difference(mirror, &tried.row_key),
            }
        }
    }
}

/// Compares the files of a slice. Returns the outcome for each of them, in their order.
fn compare(
    mirror: &Mirror,
    comparing: &mut Comparing<'_, '_>,
    files: &[Tried],
) -> Result<Vec<Outcome>, SendError> {
    let slices = slices(mirror, files)?;
    let asked = slices.iter().filter_map(|slice| match slice {
        InSlice::Asked { known, blocks } => Some(known.question(blocks.clone())),
        InSlice::NotAsked(_) => None,
    });
    let mut differ = comparing.ask(asked)?.into_iter();
    let outcomes = files.iter().zip(slices).map(|(tried, slice)| match slice {
        InSlice::NotAsked(outcome) => Ok(outcome),
        InSlice::Asked { known, blocks } => {
            let count = (blocks.end - blocks.start) as usize;
            // All answers of this file are taken.
            let differs = differ.by_ref().take(count).filter(|differs| *differs).count() > 0;
            outcome(mirror, tried, &known, blocks.end, differs)
        }
    });
    outcomes.collect()
}

/// Opens the files, and takes the blocks of each that are compared in one slice.
fn slices(mirror: &Mirror, files: &[Tried]) -> Result<Vec<InSlice>, SendError> {
    let mut left = SLICE_BLOCKS;
    let slices = files.iter().map(|tried| {
        if left == 0 {
            return Ok(InSlice::NotAsked(Outcome::NoRoom));
        }
        if mirror.parts.opens.changes().is_changed(tried.key) {
            return Ok(InSlice::NotAsked(Outcome::Changed));
        }
        let Some(known) = KnownFile::of(mirror, tried.key)? else {
            return Ok(InSlice::NotAsked(Outcome::Gone));
        };
        let blocks = blocks_of(tried.first, known.blocks(), left);
        left -= blocks.end - blocks.start;
        Ok(InSlice::Asked { known, blocks })
    });
    slices.collect()
}

/// Returns the blocks that are compared next, at most `left`, of a file that has so many now and is
/// compared up to `first`.
fn blocks_of(first: u64, blocks: u64, left: u64) -> Range<u64> {
    // If it was cut meanwhile, it is compared from its start.
    let first = if blocks < first { 0 } else { first };
    // The block beyond the end is empty at the mirror too, unless its file is longer.
    let end = blocks + 1;
    first..end.min(first + left.min(ASKED_BLOCKS))
}

/// Returns the outcome for a file of which the blocks up to `end` were compared.
fn outcome(
    mirror: &Mirror,
    tried: &Tried,
    known: &KnownFile,
    end: u64,
    differs: bool,
) -> Result<Outcome, SendError> {
    // A write is announced before it changes a byte.
    if mirror.parts.opens.changes().is_changed(tried.key) {
        return Ok(Outcome::Changed);
    }
    if differs {
        // The changes of a file that was removed are forgotten. One that was renamed cannot be told
        // from it: if its new row comes later in the scan, it is compared again.
        return Ok(match is_named(mirror, tried)? {
            true => Outcome::Differs { size: known.size()? },
            false => Outcome::Gone,
        });
    }
    match end <= known.blocks() {
        true => Ok(Outcome::GoesOn { first: end }),
        false => Ok(Outcome::Equal { size: known.size()? }),
    }
}

/// Returns whether the row of a content file still names it.
fn is_named(mirror: &Mirror, tried: &Tried) -> Result<bool, SendError> {
    let row = mirror.parts.table.get(&tried.row_key);
    let row = row.map_err(|error| table_failed("verifying the mirror", &error))?;
    Ok(row.and_then(|value| content_of(&tried.row_key, &value)) == Some(tried.key))
}

impl Mirror {
    /// Begins to compare the mirror with the volume, or with a file or folder of it and all below
    /// that. With `repairs` what differs is sent again. Returns false if a verification is under
    /// way already.
    ///
    /// # Errors
    /// `Stale` if there is no such file or folder; `Elsewhere` if its home is at another site.
    pub(crate) fn begin_verification(
        &self,
        repairs: bool,
        below: Option<InodeId>,
    ) -> Result<bool, Error> {
        if let Some(ino) = below {
            self.parts.shard.placement(Handle::own(ino), false)?;
        }
        let mut state = self.state.lock();
        let goes_on = state.verified.as_ref().is_some_and(|verified| verified.finished.is_none());
        if goes_on || state.wanted_verification.is_some() {
            return Ok(false);
        }
        state.wanted_verification = Some(Wanted { repairs, below });
        state.verified = Some(Verified { below, repairs, ..Verified::default() });
        self.changed.notify_all();
        Ok(true)
    }

    /// Returns the result of the last verification of all of the volume; `None` if there was none.
    pub(crate) fn verified_whole(&self) -> Option<Verified> {
        self.state.lock().verified_whole.clone()
    }

    /// Returns the state of the last verification; `None` if there was none.
    pub(crate) fn verified(&self) -> Option<Verified> {
        self.state.lock().verified.clone()
    }
}
