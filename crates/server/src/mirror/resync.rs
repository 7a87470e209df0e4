//! The comparison of a volume with what its mirror has.
//!
//! Ranges of rows are compared by their hashes, and those that differ in smaller pieces, down to
//! single rows. Of the files whose rows differ, and of those that are being written, the content is
//! compared by the hashes of blocks. What differs is sent, read while programs change it: the
//! changes since the snapshot, which complete it, are sent after it in the same group.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;

use pelago_data::ContentKey;
use pelago_store::key::{self, Key, RowKind};
use pelago_store::report::table_failed;
use pelago_store::rows::{Row as _, Writing};
use pelago_store::table::{Snapshot, TableRead, Visitor};
use pelago_wire::mirror::{ComparedRange, GroupPart, RowChange};
use pelago_wire::{Code, limits};

use super::content::{ASKED_BLOCKS, KnownFile};
use super::group::{GroupSender, Question, SendError};
use super::{Mirror, MirrorPhase};
use crate::digests::{RowDigest, block_range, content_of};

/// Rows of the ranges that are compared first.
const RANGE_ROWS: usize = 4096;
/// Rows of the pieces of a range that differs, and then of a piece that differs.
const PIECE_ROWS: [usize; 2] = [64, 1];
/// Ranges that are compared together: one round trip, and two more if any of them differs.
const RANGES: usize = 16;
/// Ranges in one question: those with the longest keys fit a frame.
const ASKED_RANGES: usize = 64;
/// Content files that are compared together.
const FILES: usize = 64;
/// Blocks of one content file that are compared together.
const BLOCKS: u64 = 4096;
/// Content files whose rows may be equal although their bytes are not, that are remembered because
/// they have been compared. More are compared again if their rows differ.
const REMEMBERED: usize = 1 << 16;
/// Questions that are sent before the first of them is answered. Their answers fit the buffers of
/// the connection, so neither end waits for the other one to read.
const QUESTIONS: usize = 16;
/// Bytes of content below which a file is sent and not compared.
const SMALL_BYTES: u64 = 32 << 10;

/// A range of keys.
struct Span {
    from: Vec<u8>,
    /// Empty if no key comes after it.
    until: Vec<u8>,
}

/// A comparison under way.
pub(super) struct Comparing<'a, 'b> {
    mirror: &'a Mirror,
    group: &'a mut GroupSender<'b>,
    snapshot: &'a dyn TableRead,
    rows: u64,
    /// Files that were being written, which are compared already.
    compared: BTreeSet<ContentKey>,
}

/// Sends what the mirror has otherwise than this snapshot of the rows, and than the content files.
pub(super) fn send_differences(
    mirror: &Mirror,
    group: &mut GroupSender<'_>,
    snapshot: &Snapshot,
) -> Result<(), SendError> {
    let mut comparing = Comparing::new(mirror, group, &**snapshot);
    let written = comparing.written_files()?;
    written.chunks(FILES).try_for_each(|keys| comparing.contents(keys))?;
    comparing.compared = written.into_iter().take(REMEMBERED).collect();
    let mut next = Some(Vec::new());
    while let Some(from) = next {
        let all = Span { from, until: Vec::new() };
        let (ranges, left) = comparing.split(all, RANGE_ROWS, RANGES)?;
        comparing.ranges(ranges)?;
        next = left;
        comparing.show_progress()?;
    }
    Ok(())
}

impl<'a, 'b> Comparing<'a, 'b> {
    /// Returns the comparison of these rows, and of the content files.
    pub(super) const fn new(
        mirror: &'a Mirror,
        group: &'a mut GroupSender<'b>,
        snapshot: &'a dyn TableRead,
    ) -> Self {
        Self { mirror, group, snapshot, rows: 0, compared: BTreeSet::new() }
    }

    /// Returns the number of rows that were compared.
    pub(super) const fn rows(&self) -> u64 {
        self.rows
    }

    /// Compares all rows. Calls `visit` with the key of each row that differs, or has rows behind
    /// it that only the mirror has, and that of the next row; an empty one says that there is none.
    pub(super) fn differing_keys(
        &mut self,
        visit: &mut dyn FnMut(Vec<u8>, Vec<u8>),
    ) -> Result<(), SendError> {
        let mut next = Some(Vec::new());
        while let Some(from) = next {
            let all = Span { from, until: Vec::new() };
            let (ranges, left) = self.split(all, RANGE_ROWS, RANGES)?;
            for span in self.differing_rows(ranges)? {
                let mut first = Vec::new();
                self.scan(&span.from, &span.until, &mut |row_key, _| {
                    if !key::is_mirrored(row_key) {
                        return ControlFlow::Continue(());
                    }
                    first = row_key.to_vec();
                    ControlFlow::Break(())
                })?;
                visit(first, span.until);
            }
            next = left;
        }
        Ok(())
    }

    /// Shows how far the comparison is.
    ///
    /// # Errors
    /// If the server stops, or more has changed than is kept.
    fn show_progress(&self) -> Result<(), SendError> {
        let phase = MirrorPhase::Comparing { rows: self.rows, sent: self.group.sent() };
        self.mirror.set_phase(phase);
        let parts = &self.mirror.parts;
        let rows = parts.shard.row_risk().unwrap_or_default();
        if rows.has_more || parts.opens.changes().has_more() {
            return Err(SendError::GivenUp);
        }
        expect_running(self.mirror)
    }

    /// Returns the content files with bytes that their rows may not know: their rows may be those
    /// of the mirror.
    fn written_files(&self) -> Result<Vec<ContentKey>, SendError> {
        let range = key::all(RowKind::Writing);
        let mut files = Vec::new();
        self.scan(&range.from, &range.to, &mut |row_key, value| {
            if let (Some(Key::Writing { ino }), Ok((_, row))) =
                (Key::parse(row_key), Writing::decode(value))
            {
                files.push((ino, row.generation));
            }
            ControlFlow::Continue(())
        })?;
        Ok(files)
    }

    fn scan(&self, from: &[u8], until: &[u8], visit: &mut Visitor<'_>) -> Result<(), SendError> {
        let scanned = self.snapshot.scan(from, until, visit);
        Ok(scanned.map_err(|error| table_failed("comparing rows with the mirror", &error))?)
    }

    /// Divides a range into pieces of `rows` rows each, at most `most` pieces, with their hashes.
    /// Returns the start of what is left, if anything is.
    fn split(
        &mut self,
        span: Span,
        rows: usize,
        most: usize,
    ) -> Result<(Vec<ComparedRange>, Option<Vec<u8>>), SendError> {
        let Span { from: start, until: end } = span;
        let mut pieces = Vec::new();
        let mut from = start.clone();
        let mut hash = RowDigest::default();
        let mut count = 0;
        let mut left = None;
        let mut seen = 0;
        self.scan(&start, &end, &mut |row_key, value| {
            if !key::is_mirrored(row_key) {
                return ControlFlow::Continue(());
            }
            if count == rows {
                let hash = std::mem::take(&mut hash).value();
                let until = row_key.to_vec();
                let from = std::mem::replace(&mut from, until.clone());
                pieces.push(ComparedRange { from, until, hash });
                count = 0;
                if pieces.len() == most {
                    left = Some(row_key.to_vec());
                    return ControlFlow::Break(());
                }
            }
            hash.add(row_key, value);
            count += 1;
            seen += 1;
            ControlFlow::Continue(())
        })?;
        if left.is_none() {
            pieces.push(ComparedRange { from, until: end, hash: hash.value() });
        }
        if rows == RANGE_ROWS {
            self.rows += seen;
        }
        Ok((pieces, left))
    }

    /// Compares ranges, and sends the rows that differ and the content of their files.
    fn ranges(&mut self, ranges: Vec<ComparedRange>) -> Result<(), SendError> {
        let mut contents = Vec::new();
        for span in self.differing_rows(ranges)? {
            self.rows_of(span, &mut contents)?;
            if contents.len() >= FILES {
                self.contents(&std::mem::take(&mut contents))?;
                self.show_progress()?;
            }
        }
        self.contents(&contents)
    }

    /// Returns the single rows of these ranges that differ.
    fn differing_rows(&mut self, ranges: Vec<ComparedRange>) -> Result<Vec<Span>, SendError> {
        let mut differing = self.differing(ranges)?;
        for rows in PIECE_ROWS {
            let mut pieces = Vec::new();
            for span in differing {
                pieces.extend(self.split(span, rows, usize::MAX)?.0);
            }
            differing = self.differing(pieces)?;
        }
        Ok(differing)
    }

    /// Returns the ranges in which the mirror has other rows.
    fn differing(&mut self, ranges: Vec<ComparedRange>) -> Result<Vec<Span>, SendError> {
        let questions = ranges.chunks(ASKED_RANGES).map(|ranges| {
            Ok(Question { part: GroupPart::Compare(ranges.to_vec()), count: ranges.len() })
        });
        let differ = self.ask(questions)?;
        let spans = ranges.into_iter().zip(differ).filter(|(_, differs)| *differs);
        Ok(spans.map(|(ComparedRange { from, until, .. }, _)| Span { from, until }).collect())
    }

    /// Asks the mirror questions, some of them at the same time. Returns all answers. All that was
    /// asked is answered, also if a question fails.
    pub(super) fn ask(
        &mut self,
        questions: impl Iterator<Item = Result<Question, SendError>>,
    ) -> Result<Vec<bool>, SendError> {
        let mut asked = VecDeque::new();
        let mut differ = Vec::new();
        let mut failed = Ok(());
        for question in questions {
            let Question { part, count } = match question {
                Ok(question) => question,
                Err(error) => {
                    failed = Err(error);
                    break;
                }
            };
            if asked.len() == QUESTIONS
                && let Some(count) = asked.pop_front()
            {
                differ.extend(self.group.answer(count)?);
            }
            if let Err(error) = expect_running(self.mirror).and_then(|()| self.group.ask(&part)) {
                failed = Err(error);
                break;
            }
            asked.push_back(count);
        }
        for count in asked {
            differ.extend(self.group.answer(count)?);
        }
        failed.map(|()| differ)
    }

    /// Sends the rows of a range, and adds the content files that they name.
    fn rows_of(&mut self, span: Span, contents: &mut Vec<ContentKey>) -> Result<(), SendError> {
        let Span { from, until } = span;
        let compared = &self.compared;
        let mut rows = Vec::new();
        self.scan(&from, &until, &mut |row_key, value| {
            if key::is_mirrored(row_key) {
                let content = content_of(row_key, value);
                contents.extend(content.filter(|content| !compared.contains(content)));
                rows.push(RowChange { key: row_key.to_vec(), value: Some(value.to_vec()) });
            }
            ControlFlow::Continue(())
        })?;
        self.group.part(&GroupPart::Range { from, until, rows })
    }

    /// Compares content files, and sends what the mirror has otherwise.
    fn contents(&mut self, keys: &[ContentKey]) -> Result<(), SendError> {
        if keys.is_empty() {
            return Ok(());
        }
        let questions = keys.chunks(limits::COMPARED).map(|keys| {
            Ok(Question { part: GroupPart::Contents(keys.to_vec()), count: keys.len() })
        });
        let is_missing = self.ask(questions)?;
        let mut small = Vec::new();
        let mut large = Vec::new();
        for (key, is_missing) in keys.iter().zip(is_missing) {
            // It may have been removed since the snapshot.
            let Some(known) = KnownFile::of(self.mirror, *key)? else { continue };
            match is_missing || known.size()? <= SMALL_BYTES {
                true => known.send(self.group)?,
                false if known.blocks() > ASKED_BLOCKS => large.push(known),
                false => small.push(known),
            }
        }
        self.blocks(&small)?;
        large.iter().try_for_each(|known| self.windows(known))
    }

    /// Compares the blocks of files with few of them, and sends those that differ.
    fn blocks(&mut self, files: &[KnownFile]) -> Result<(), SendError> {
        let questions = files.iter().map(|known| known.question(0..known.blocks()));
        let mut differ = self.ask(questions)?.into_iter();
        for known in files {
            let size = known.begin(self.group)?;
            let differ: Vec<bool> = differ.by_ref().take(known.blocks() as usize).collect();
            self.differing_blocks(known, 0, &differ, size)?;
        }
        Ok(())
    }

    /// Compares the blocks of a large file, a limited number together, and sends those that differ.
    /// A hole is sent without a question.
    fn windows(&mut self, known: &KnownFile) -> Result<(), SendError> {
        let size = known.begin(self.group)?;
        let block_bytes = limits::COMPARED_BLOCK_BYTES as u64;
        let mut next = 0;
        while next < known.blocks() {
            let hole = known.hole_from(next, size);
            if hole > next {
                let from = next * block_bytes;
                let length = (hole * block_bytes).min(size).saturating_sub(from);
                if length > 0 {
                    self.group.part(&GroupPart::Hole { offset: from, length })?;
                }
                next = hole;
                continue;
            }
            let until = known.blocks().min(next + BLOCKS);
            let starts = (next..until).step_by(ASKED_BLOCKS as usize);
            let questions = starts.map(|at| known.question(at..until.min(at + ASKED_BLOCKS)));
            let differ = self.ask(questions)?;
            self.differing_blocks(known, next, &differ, size)?;
            self.show_progress()?;
            next = until;
        }
        Ok(())
    }

    /// Sends those blocks from `first` on that differ.
    fn differing_blocks(
        &mut self,
        known: &KnownFile,
        first: u64,
        differ: &[bool],
        size: u64,
    ) -> Result<(), SendError> {
        for (block, _) in (first..).zip(differ).filter(|(_, differs)| **differs) {
            known.send_range(self.group, block_range(block, size))?;
        }
        Ok(())
    }
}

/// # Errors
/// If the server stops.
fn expect_running(mirror: &Mirror) -> Result<(), SendError> {
    match mirror.state.lock().has_stopped {
        true => Err(SendError::Primary(Code::Unavailable.into())),
        false => Ok(()),
    }
}
