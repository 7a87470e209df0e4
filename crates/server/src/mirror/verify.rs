//! The verification of a mirror: whether it has the rows and the bytes of the volume.
//!
//! Rows are compared with the snapshot of a cut right after the mirror has that cut. Content files
//! are compared in slices between two groups: a file that has not changed since the last cut is as
//! the mirror must have it. One that changes meanwhile is tried again later, and named at the end
//! if it never stood still. The questions are those of a resync, in a group that is given up, so
//! nothing changes at the mirror.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};

use pelago_data::ContentKey;
use pelago_store::content::FileAccess;
use pelago_store::key::Key;
use pelago_store::report::{content_failed, table_failed};
use pelago_wire::{InodeId, Time};

use super::Mirror;
use super::group::SendError;
use super::resync::{Comparing, KnownFile};
use crate::digests::content_of;

/// Blocks that are compared in one slice: groups wait for it, some tenths of a second.
const SLICE_BLOCKS: u64 = 32;
/// Blocks in one question, as in a resync.
const ASKED_BLOCKS: u64 = 16;
/// Content files of one slice: each takes a question, sixteen of which are under way at once.
const SLICE_FILES: usize = 64;
/// How often a file is compared that changes meanwhile, or that one end cannot read.
const TRIES: u32 = 3;
/// The most files that wait for another try. More are named as if they always changed.
const WAITING: usize = 1 << 16;
/// The most names of each list of a result.
const NAMES: usize = 1000;
/// The most folders above a name.
const DEPTH: usize = 4096;

/// The state or result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Number of rows that were compared.
    pub rows: u64,
    /// Number of content files that were compared.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Paths of what the mirror has otherwise, at most 1,000.
    pub differing: Vec<String>,
    /// Number of all that the mirror has otherwise.
    pub differences: u64,
    /// Paths of files that changed at each try, at most 1,000.
    pub changing: Vec<String>,
    /// The time of its end; `None` while it goes on.
    pub finished: Option<Time>,
}

/// A verification under way.
#[derive(Debug)]
pub(super) struct Verification {
    /// What differs is sent again.
    repairs: bool,
    stage: Stage,
    /// Files that have changed meanwhile.
    again: VecDeque<Tried>,
    result: Verified,
}

#[derive(Debug)]
enum Stage {
    /// The rows of the next cut are compared.
    Rows,
    /// Content files are compared, those of the rows from this key on.
    Contents { from: Vec<u8> },
    /// Files that have changed meanwhile are compared again.
    Again,
}

/// A content file, and the blocks of it that are compared next.
#[derive(Debug, Clone)]
struct Tried {
    key: ContentKey,
    row_key: Vec<u8>,
    first: u64,
    /// How often it has changed meanwhile.
    tries: u32,
    /// How often the comparison has failed, of this file or of another one in the same slice.
    failures: u32,
    /// The group that the mirror had when it was tried. Before the next one it has still changed.
    tried_at: Option<u64>,
}

/// Rows that differ.
#[derive(Debug, Default)]
pub(super) struct DifferingRows {
    count: u64,
    /// The keys of the first ones.
    keys: Vec<Vec<u8>>,
}

impl DifferingRows {
    pub(super) fn add(&mut self, row_key: Vec<u8>) {
        self.count += 1;
        if self.keys.len() < NAMES {
            self.keys.push(row_key);
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

/// A range of blocks of a file that is being compared.
struct Slice {
    tried: Tried,
    known: KnownFile,
    blocks: Range<u64>,
}

impl Verification {
    pub(super) fn new(repairs: bool) -> Self {
        let result = Verified::default();
        Self { repairs, stage: Stage::Rows, again: VecDeque::new(), result }
    }

    /// Returns whether the rows of the next cut are to be compared.
    pub(super) const fn wants_rows(&self) -> bool {
        matches!(self.stage, Stage::Rows)
    }

    /// Records the rows that differ, of so many. Returns whether they are to be sent again.
    pub(super) fn end_rows(
        &mut self,
        mirror: &Mirror,
        rows: u64,
        differing: &DifferingRows,
    ) -> bool {
        for row_key in &differing.keys {
            add_name(&mut self.result.differing, mirror, row_key);
        }
        self.result.differences += differing.count;
        self.result.rows = rows;
        self.stage = Stage::Contents { from: Vec::new() };
        self.repairs && differing.count > 0
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
        add_name(&mut self.result.differing, mirror, row_key);
    }

    /// Returns whether it waits for nothing but a group.
    pub(super) fn waits_for_group(&self, group: u64) -> bool {
        let is_tried = |tried: &Tried| tried.tried_at == Some(group);
        matches!(self.stage, Stage::Again)
            && !self.again.is_empty()
            && self.again.iter().all(is_tried)
    }

    /// Returns the next content files that are to be compared; none if all that is left has been
    /// tried since this group.
    fn next_files(&mut self, mirror: &Mirror, group: u64) -> Result<Vec<Tried>, SendError> {
        let is_due = |tried: &Tried| tried.tried_at != Some(group);
        let due = self.again.iter().filter(|tried| is_due(tried)).take(SLICE_FILES).count();
        let is_scanning = matches!(self.stage, Stage::Contents { .. });
        // Those that wait are few: they are tried again when they fill a slice.
        if due < SLICE_FILES && is_scanning {
            let files = self.scan(mirror)?;
            if !files.is_empty() {
                return Ok(files);
            }
        }
        let mut files = Vec::new();
        for tried in std::mem::take(&mut self.again) {
            // After a failure alone, so that the file which fails is found.
            let fits = match files.first() {
                None => true,
                Some(Tried { failures: 1.., .. }) => false,
                Some(_) => tried.failures == 0 && files.len() < SLICE_FILES,
            };
            if fits && is_due(&tried) {
                files.push(tried);
            } else {
                self.again.push_back(tried);
            }
        }
        Ok(files)
    }

    /// Returns the content files of the next rows.
    fn scan(&mut self, mirror: &Mirror) -> Result<Vec<Tried>, SendError> {
        let Stage::Contents { from } = &self.stage else { return Ok(Vec::new()) };
        let mut files = Vec::new();
        let mut next = None;
        let scanned = mirror.parts.table.scan(from, &[], &mut |row_key, value| {
            if files.len() == SLICE_FILES {
                next = Some(row_key.to_vec());
                return ControlFlow::Break(());
            }
            if let Some(key) = content_of(row_key, value) {
                let row_key = row_key.to_vec();
                let tried = Tried { key, row_key, first: 0, tries: 0, failures: 0, tried_at: None };
                files.push(tried);
            }
            ControlFlow::Continue(())
        });
        scanned.map_err(|error| table_failed("verifying the mirror", &error))?;
        self.stage = next.map_or(Stage::Again, |from| Stage::Contents { from });
        Ok(files)
    }

    /// Has a file that has changed compared again, from its start, after the next group.
    fn retry(&mut self, mirror: &Mirror, tried: Tried, group: u64) {
        let tries = tried.tries + 1;
        match tries < TRIES && self.again.len() < WAITING {
            true => {
                self.again.push_back(Tried { first: 0, tries, tried_at: Some(group), ..tried });
            }
            false => add_name(&mut self.result.changing, mirror, &tried.row_key),
        }
    }

    /// Has the files of a slice that failed compared again, one by one; one that fails each time
    /// differs, as far as anybody can tell.
    fn note_failure(&mut self, mirror: &Mirror, files: Vec<Tried>) {
        for tried in files {
            let failures = tried.failures + 1;
            match failures < TRIES {
                true => self.again.push_front(Tried { failures, ..tried }),
                false => self.note_difference(mirror, &tried.row_key),
            }
        }
    }

    /// Opens the files, and takes the blocks of each that are compared in this slice.
    fn slices(
        &mut self,
        mirror: &Mirror,
        files: Vec<Tried>,
        group: u64,
    ) -> Result<Vec<Slice>, SendError> {
        let mut left = SLICE_BLOCKS;
        let mut slices = Vec::new();
        for mut tried in files {
            if left == 0 {
                self.again.push_front(tried);
                continue;
            }
            if mirror.parts.opens.changes().is_changed(tried.key) {
                self.retry(mirror, tried, group);
                continue;
            }
            let (ino, generation) = tried.key;
            let opened = mirror.parts.content.open_file(ino, generation, FileAccess::Read);
            // It may have been removed.
            let Some(file) = opened.map_err(|error| content_failed(&error))? else { continue };
            let known = KnownFile::new(tried.key, file)?;
            if known.blocks() < tried.first {
                // It was cut meanwhile.
                tried.first = 0;
            }
            // The block beyond the end is empty at the mirror too, unless its file is longer.
            let end = known.blocks() + 1;
            let until = end.min(tried.first + left.min(ASKED_BLOCKS));
            left -= until - tried.first;
            slices.push(Slice { blocks: tried.first..until, tried, known });
        }
        Ok(slices)
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
            return Ok(match self.again.is_empty() {
                true => Step::Ended,
                false => Step::WaitsForGroup,
            });
        }
        let attempted = files.clone();
        let waiting = self.again.clone();
        let compared = self.compare(mirror, comparing, files, group);
        if compared.is_err() {
            self.again = waiting;
            self.note_failure(mirror, attempted);
        }
        compared.map(|()| Step::GoesOn)
    }

    fn compare(
        &mut self,
        mirror: &Mirror,
        comparing: &mut Comparing<'_, '_>,
        files: Vec<Tried>,
        group: u64,
    ) -> Result<(), SendError> {
        let slices = self.slices(mirror, files, group)?;
        let asked = slices.iter().map(|slice| slice.known.question(slice.blocks.clone()));
        let mut differ = comparing.ask(asked)?.into_iter();
        for Slice { tried, known, blocks } in slices {
            let count = (blocks.end - blocks.start) as usize;
            // All answers of this file are taken.
            let differs = differ.by_ref().take(count).filter(|differs| *differs).count() > 0;
            // A write is announced before it changes a byte.
            if mirror.parts.opens.changes().is_changed(tried.key) {
                self.retry(mirror, tried, group);
            } else if differs {
                self.differs(mirror, &tried, &known)?;
            } else if blocks.end <= known.blocks() {
                self.again.push_front(Tried { first: blocks.end, ..tried });
            } else {
                self.result.files += 1;
                self.result.bytes += known.size()?;
            }
        }
        Ok(())
    }

    /// Records that the mirror has another content file, if its row still names it: the changes of
    /// one that was removed are forgotten.
    fn differs(
        &mut self,
        mirror: &Mirror,
        tried: &Tried,
        known: &KnownFile,
    ) -> Result<(), SendError> {
        let row = mirror.parts.table.get(&tried.row_key);
        let row = row.map_err(|error| table_failed("verifying the mirror", &error))?;
        if row.and_then(|value| content_of(&tried.row_key, &value)) != Some(tried.key) {
            return Ok(());
        }
        self.note_difference(mirror, &tried.row_key);
        if self.repairs {
            let (ino, generation) = tried.key;
            mirror.parts.opens.mirror_again(ino, generation, known.size()?);
        }
        Ok(())
    }
}

impl Mirror {
    /// Begins to compare the mirror with the volume. With `repairs` what differs is sent again.
    /// Returns false if a verification is under way already.
    pub(crate) fn begin_verification(&self, repairs: bool) -> bool {
        let mut state = self.state.lock();
        let goes_on = state.verified.as_ref().is_some_and(|verified| verified.finished.is_none());
        if goes_on || state.wanted_verification.is_some() {
            return false;
        }
        state.wanted_verification = Some(repairs);
        state.verified = Some(Verified::default());
        self.changed.notify_all();
        true
    }

    /// Returns the state of the last verification; `None` if there was none.
    pub(crate) fn verified(&self) -> Option<Verified> {
        self.state.lock().verified.clone()
    }
}

/// Adds the path of the file to which a row belongs, unless there are many.
fn add_name(names: &mut Vec<String>, mirror: &Mirror, row_key: &[u8]) {
    if names.len() < NAMES {
        let name = path_of(mirror, row_key);
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
}

/// Returns the path of the file to which a row belongs, from the root of the volume; if it has
/// none, its number, or the kind of the row.
fn path_of(mirror: &Mirror, row_key: &[u8]) -> String {
    let (dir, last) = match Key::parse(row_key) {
        Some(Key::Name { dir, name, .. }) => (dir, String::from_utf8_lossy(name).into_owned()),
        Some(
            Key::Inode { ino }
            | Key::Moved { ino }
            | Key::ParentPointer { ino, .. }
            | Key::Inline { ino }
            | Key::Xattr { ino, .. }
            | Key::XattrNames { ino }
            | Key::Tag { ino, .. }
            | Key::Orphan { ino },
        ) => (ino, String::new()),
        // Those of the volume as a whole.
        Some(_) | None => {
            return format!("a row of kind {}", row_key.first().copied().unwrap_or(0));
        }
    };
    let mut names = vec![last];
    let mut here = dir;
    while here != InodeId::ROOT {
        match mirror.parts.shard.name_of_dir(here) {
            Ok((above, Some(name))) if names.len() < DEPTH => {
                names.push(String::from_utf8_lossy(name.as_bytes()).into_owned());
                here = above;
            }
            Ok(_) | Err(_) => return format!("inode {}", dir.raw()),
        }
    }
    names.push(String::new());
    names.reverse();
    let path = names.join("/");
    match path.strip_suffix('/') {
        Some("") => "/".to_owned(),
        Some(stripped) => stripped.to_owned(),
        None => path,
    }
}
