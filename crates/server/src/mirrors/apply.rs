//! The application of a group's parts to a mirror.
//!
//! A group is applied from the spool, and again from its beginning after a kill; the second time
//! has the same result. The row with the group's number is written last.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use pelago_data::ContentKey;
use pelago_store::content::{ContentFile, FileAccess};
use pelago_store::key::{self, Key, RowKind, VolumeRow};
use pelago_store::rows::{MirrorRow, Orphan, Row, Stamp};
use pelago_store::spool::Spool;
use pelago_store::table::Batch;
use pelago_store::volume::Format;
use pelago_wire::mirror::{GroupPart, RowChange, VolumeFile};
use pelago_wire::{AllocateMode, Generation, InodeId, Time, limits};

use super::error::MirrorError;
use super::image::Image;
use crate::digests::content_of;

/// Zeros that are written for a hole if the file system cannot punch one.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Rows of a range that are deleted together.
const GONE_ROWS: usize = 10_000;

/// The state of a group that is being applied.
#[derive(Default)]
pub(super) struct Applier {
    content: Option<OpenContent>,
    /// Content files that are written but not safe yet.
    unsynced: Vec<(InodeId, Generation)>,
    unsynced_bytes: u64,
    /// Rows that are not written to the table yet.
    batch: Batch,
    /// Files whose orphan rows are deleted, each with the generation in its row.
    orphans: BTreeMap<InodeId, Generation>,
}

/// The content file to which the next parts belong.
struct OpenContent {
    file: ContentFile,
    size: u64,
    mtime: Time,
}

/// Carries out the group in the spool. A second time has the same result.
pub(super) fn carry_out(
    image: &mut Image,
    spool: &mut Spool,
    row: &MirrorRow,
) -> Result<(), MirrorError> {
    let mut applier = Applier::default();
    let mut files = Vec::new();
    let mut has_ranges = false;
    for body in spool.bodies()? {
        match GroupPart::decode(&body?)? {
            GroupPart::Rows(_) => {}
            GroupPart::Range { .. } => has_ranges = true,
            // After the content. They fit in memory: only the last one of each kind counts.
            GroupPart::File { file, bytes } => {
                files.retain(|(earlier, _)| *earlier != file);
                files.push((file, bytes));
            }
            part => applier.take(image, part)?,
        }
    }
    applier.sync_content(image)?;
    for (file, bytes) in files {
        image.take_file(file, bytes.as_deref())?;
    }
    if has_ranges {
        // Before any row is changed: a second time finds the same files.
        remove_replaced_contents(image, spool)?;
    }
    for body in spool.bodies()? {
        match GroupPart::decode(&body?)? {
            GroupPart::Rows(rows) => {
                if std::mem::take(&mut has_ranges) {
                    // A range may have had the same keys, and a batch has each of them once.
                    image.write(&std::mem::take(&mut applier.batch))?;
                }
                applier.take_rows(image, rows)?;
            }
            GroupPart::Range { from, until, rows } => {
                applier.take_range(image, &from, &until, rows)?;
            }
            _ => {}
        }
    }
    applier.finish(image, Some(row))
}

impl Applier {
    /// Carries out a part at once.
    pub(super) fn take(&mut self, image: &mut Image, part: GroupPart) -> Result<(), MirrorError> {
        match part {
            GroupPart::Rows(rows) => self.take_rows(image, rows),
            GroupPart::Range { from, until, rows } => self.take_range(image, &from, &until, rows),
            GroupPart::Content { ino, generation, size, mtime } => {
                self.close_content()?;
                if self.unsynced.len() >= limits::GROUP_FILES {
                    self.sync_content(image)?;
                }
                let file = match image.content.open_file(ino, generation, FileAccess::ReadWrite)? {
                    Some(file) => file,
                    None => image.content.create(ino, generation)?,
                };
                file.truncate(size)?;
                self.unsynced.push((ino, generation));
                self.content = Some(OpenContent { file, size, mtime });
                Ok(())
            }
            GroupPart::Bytes { offset, bytes } => self.write(image, offset, &bytes),
            GroupPart::Hole { offset, length } => self.punch(offset, length),
            GroupPart::File { file, bytes } => image.take_file(file, bytes.as_deref()),
            GroupPart::Offer { .. }
            | GroupPart::Begin { .. }
            | GroupPart::End { .. }
            | GroupPart::Abort
            | GroupPart::Compare(_)
            | GroupPart::Contents(_)
            | GroupPart::Blocks(_)
            | GroupPart::Ping
            | GroupPart::HandOver
            | GroupPart::Datagrams
            | GroupPart::RelayKey => Ok(()),
        }
    }

    /// Makes the group safe, with the row that says which group the mirror has.
    pub(super) fn finish(
        &mut self,
        image: &mut Image,
        row: Option<&MirrorRow>,
    ) -> Result<(), MirrorError> {
        self.sync_content(image)?;
        if !self.orphans.is_empty() {
            // Before the row with the number: after a kill in between, the group is carried out
            // again, and its content removed.
            image.write(&std::mem::take(&mut self.batch))?;
            image.persist()?;
            self.remove_orphans(image)?;
        }
        if let Some(row) = row {
            let value = row.encode(Stamp::default());
            self.batch.put(key::volume_row(VolumeRow::Mirror), value);
        }
        image.write(&std::mem::take(&mut self.batch))?;
        image.persist()
    }

    /// Makes the content files safe that were written.
    pub(super) fn sync_content(&mut self, image: &Image) -> Result<(), MirrorError> {
        self.close_content()?;
        if !self.unsynced.is_empty() {
            image.content.sync_files(&self.unsynced)?;
        }
        self.unsynced.clear();
        self.unsynced_bytes = 0;
        Ok(())
    }

    fn take_rows(&mut self, image: &Image, rows: Vec<RowChange>) -> Result<(), MirrorError> {
        self.close_content()?;
        for RowChange { key, value } in rows {
            match value {
                Some(value) => self.batch.put(key, value),
                None => {
                    self.record_orphan(image, &key)?;
                    self.batch.delete(key);
                }
            }
            if self.batch.bytes() >= limits::GROUP_BATCH_BYTES {
                image.write(&std::mem::take(&mut self.batch))?;
            }
        }
        Ok(())
    }

    /// Makes these rows the only ones of a range.
    fn take_range(
        &mut self,
        image: &Image,
        from: &[u8],
        until: &[u8],
        rows: Vec<RowChange>,
    ) -> Result<(), MirrorError> {
        let mut start = Some(from.to_vec());
        while let Some(from) = start.take() {
            let mut gone = Vec::new();
            image.scan(&from, until, &mut |row_key, _| {
                if gone.len() == GONE_ROWS {
                    start = Some(row_key.to_vec());
                    return ControlFlow::Break(());
                }
                // A batch has each key once.
                if key::is_mirrored(row_key) && !rows.iter().any(|row| row.key == row_key) {
                    gone.push(RowChange { key: row_key.to_vec(), value: None });
                }
                ControlFlow::Continue(())
            })?;
            self.take_rows(image, gone)?;
        }
        self.take_rows(image, rows)
    }

    /// Records the content of a file whose orphan row is deleted, which is removed later.
    fn record_orphan(&mut self, image: &Image, row: &[u8]) -> Result<(), MirrorError> {
        let Some(Key::Orphan { ino }) = Key::parse(row) else { return Ok(()) };
        if self.orphans.len() >= limits::GROUP_FILES {
            return Ok(());
        }
        // The mirror has no row if the file lost its name within this group.
        let value = image.get(row)?;
        let orphan = value.as_deref().and_then(|value| Orphan::decode(value).ok());
        let generation = orphan.and_then(|(_, orphan)| orphan.generation);
        self.orphans.insert(ino, generation.unwrap_or(Generation::FIRST));
        Ok(())
    }

    /// Removes the content of files that do not exist any more. A file that was made without a name
    /// and has got one has lost its orphan row too, but has a row of its own.
    fn remove_orphans(&mut self, image: &Image) -> Result<(), MirrorError> {
        for (ino, generation) in std::mem::take(&mut self.orphans) {
            if image.get(&key::inode(ino))?.is_none() && image.get(&key::orphan(ino))?.is_none() {
                image.content.remove(ino, generation)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, image: &Image, offset: u64, bytes: &[u8]) -> Result<(), MirrorError> {
        let Some(content) = &self.content else { return Err(no_content()) };
        let within = content.size.saturating_sub(offset).min(bytes.len() as u64) as usize;
        content.file.write_at(&bytes[..within], offset)?;
        self.unsynced_bytes += within as u64;
        if self.unsynced_bytes >= limits::GROUP_UNSYNCED_BYTES {
            // The next parts belong to the last file, which is not safe then.
            image.content.sync_files(&self.unsynced)?;
            self.unsynced_bytes = 0;
            let last = self.unsynced.pop();
            self.unsynced.clear();
            self.unsynced.extend(last);
        }
        Ok(())
    }

    fn punch(&mut self, offset: u64, length: u64) -> Result<(), MirrorError> {
        let Some(content) = &self.content else { return Err(no_content()) };
        let length = content.size.saturating_sub(offset).min(length);
        if length == 0 {
            return Ok(());
        }
        match content.file.allocate(AllocateMode::PunchHole, offset, length) {
            Err(error) if error.is_unsupported() => {}
            punched => return Ok(punched?),
        }
        let mut done = 0;
        while done < length {
            let piece = (length - done).min(ZEROS.len() as u64);
            content.file.write_at(&ZEROS[..piece as usize], offset + done)?;
            done += piece;
        }
        Ok(())
    }

    fn close_content(&mut self) -> Result<(), MirrorError> {
        if let Some(OpenContent { file, mtime, .. }) = self.content.take() {
            file.set_times(None, Some(mtime))?;
        }
        Ok(())
    }
}

fn no_content() -> MirrorError {
    MirrorError::Unfit("bytes of no content file")
}

/// Removes the content files of rows that the ranges of a group replace, and that no row of the
/// group names.
fn remove_replaced_contents(image: &Image, spool: &mut Spool) -> Result<(), MirrorError> {
    let mut from = Some(Vec::new());
    while let Some(start) = from {
        let (replaced, next) = replaced_contents(image, spool, &start, limits::GROUP_FILES)?;
        for (ino, generation) in replaced {
            image.content.remove(ino, generation)?;
        }
        from = next;
    }
    Ok(())
}

/// Returns the content files of rows from the key `start` on that the ranges of a group replace,
/// and that no row of the group names: of at most `most` rows. Returns the key of the next row, if
/// one follows. The ranges of a group are in the order of their keys.
fn replaced_contents(
    image: &Image,
    spool: &mut Spool,
    start: &[u8],
    most: usize,
) -> Result<(BTreeSet<ContentKey>, Option<Vec<u8>>), MirrorError> {
    let mut replaced = BTreeSet::new();
    let mut next = None;
    for body in spool.bodies()? {
        let GroupPart::Range { from, until, rows } = GroupPart::decode(&body?)? else { continue };
        if !until.is_empty() && until.as_slice() <= start {
            continue;
        }
        let named: Vec<ContentKey> = rows.iter().filter_map(content_of_row).collect();
        image.scan(from.as_slice().max(start), &until, &mut |row_key, value| {
            if replaced.len() == most {
                next = Some(row_key.to_vec());
                return ControlFlow::Break(());
            }
            let content = content_of(row_key, value);
            replaced.extend(content.filter(|content| !named.contains(content)));
            ControlFlow::Continue(())
        })?;
        if next.is_some() {
            break;
        }
    }
    for body in spool.bodies()? {
        if replaced.is_empty() {
            break;
        }
        if let GroupPart::Rows(rows) | GroupPart::Range { rows, .. } = GroupPart::decode(&body?)? {
            for content in rows.iter().filter_map(content_of_row) {
                replaced.remove(&content);
            }
        }
    }
    Ok((replaced, next))
}

fn content_of_row(row: &RowChange) -> Option<ContentKey> {
    content_of(&row.key, row.value.as_deref()?)
}

/// Checks whether a part can be applied to the mirror, before it is put into the spool: every part
/// in the spool must be carried out.
pub(super) fn check(image: &Image, part: &GroupPart) -> Result<(), MirrorError> {
    match part {
        GroupPart::Rows(rows) | GroupPart::Range { rows, .. } => {
            rows.iter().try_for_each(|row| check_key(&row.key))
        }
        GroupPart::File { file, bytes } => check_file(image, *file, bytes.as_deref()),
        GroupPart::Content { .. }
        | GroupPart::Bytes { .. }
        | GroupPart::Hole { .. }
        | GroupPart::Offer { .. }
        | GroupPart::Begin { .. }
        | GroupPart::End { .. }
        | GroupPart::Abort
        | GroupPart::Compare(_)
        | GroupPart::Contents(_)
        | GroupPart::Blocks(_)
        | GroupPart::Ping
        | GroupPart::HandOver
        | GroupPart::Datagrams
        | GroupPart::RelayKey => Ok(()),
    }
}

fn check_file(image: &Image, file: VolumeFile, bytes: Option<&[u8]>) -> Result<(), MirrorError> {
    let fits = match (file, bytes) {
        (VolumeFile::Policy | VolumeFile::Clients | VolumeFile::Keys, _) => true,
        (VolumeFile::Format, Some(bytes)) => {
            Format::decode(bytes).is_ok_and(|format| format.id == image.volume.id())
        }
        (VolumeFile::Seed, Some(bytes)) => image.has_seed(bytes),
        (VolumeFile::Format | VolumeFile::Seed, None) => false,
    };
    match fits {
        true => Ok(()),
        false => Err(MirrorError::Unfit("the format or the seed of another volume")),
    }
}

fn check_key(row: &[u8]) -> Result<(), MirrorError> {
    let is_own = match RowKind::of(row) {
        Some(RowKind::CachedReply | RowKind::Session) => true,
        Some(RowKind::Volume) => Key::parse(row) == Some(Key::Volume { row: VolumeRow::Mirror }),
        Some(_) => false,
        None => return Err(MirrorError::Unfit("a row of a kind that only a newer pelago has")),
    };
    match is_own {
        true => Err(MirrorError::Unfit("a row that each of both has for itself")),
        false => Ok(()),
    }
}
