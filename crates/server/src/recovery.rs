//! Recovery after a crash, before the first request: measures the files that were open for writing,
//! and corrects their rows.
//!
//! Its time depends on the number of those files, not on the size of the volume. A damaged row is
//! counted and skipped; a failure of the table or of a content file ends the start.

use std::ops::ControlFlow;

use pelago_store::content::{self, ContentStat, ContentStore, FileAccess};
use pelago_store::key::{self, Key, RowKind};
use pelago_store::rows::{Row, Writing};
use pelago_store::table::Table;
use pelago_wire::{Code, Generation, Handle, InodeId};

use pelago_meta::shard::{BytesChange, LiveAttrs, Shard, WritingRow};
use pelago_store::clock;
use pelago_store::report::{content_failed, row_damaged, table_failed};

/// The findings of recovery among the files that were open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveryReport {
    /// Files that were measured.
    pub files: u64,
    /// Files among them whose row was older than their bytes.
    pub corrected: u64,
    /// Files among them that have no bytes left: the name of their content file was never safe.
    pub emptied: u64,
    /// Files among them that are shorter than their rows said, for another reason.
    pub shortened: u64,
    /// Files whose `writing` row or row of attributes is damaged.
    pub damaged: u64,
    /// Small files of the volume, such as `format`, that were damaged and are written again.
    pub mended: u64,
}

/// The result of [`measure_written`].
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) report: RecoveryReport,
    /// Files that a process still writes; empty unless the file system below can tell.
    pub(crate) still_written: Vec<Handle>,
}

/// Measures each file with a `writing` row, and corrects its attributes. The `writing` rows stay,
/// because the bytes may not be safe yet. `detects_writers`: the file system below can tell whether
/// a process writes a file. Linux keeps the descriptors of a connection, and mappings through them,
/// when the daemon is killed, and programs go on writing by them. `is_copied`: other sites or a
/// mirror may have copies of the files.
///
/// # Errors
/// A failure of the table or of a content file. A damaged file is counted and skipped.
pub(crate) fn measure_written(
    shard: &Shard,
    table: &dyn Table,
    content: &ContentStore,
    detects_writers: bool,
    is_copied: bool,
) -> Result<Measured, pelago_wire::Error> {
    let mut report = RecoveryReport::default();
    let mut still_written = Vec::new();
    let mut from = key::all(RowKind::Writing).from;
    loop {
        let rows = next_writing_rows(table, &from)?;
        let Some(last) = rows.last() else { return Ok(Measured { report, still_written }) };
        assert!(last.key >= from, "I-5: recovery reads each `writing` row once, in order");
        from.clone_from(&last.key);
        from.push(0);
        for FoundRow { ino, row, .. } in rows {
            let Some(row) = row else {
                report.damaged += 1;
                continue;
            };
            let found = FoundFile { ino, row: &row, is_copied };
            still_written.extend(measure(shard, content, found, detects_writers, &mut report)?);
        }
    }
}

/// Deletes all `writing` rows but those of the files in `keep`: for a clean stop, when the bytes of
/// all other files are safe.
///
/// # Errors
/// A failure of the table.
pub(crate) fn forget_writing_rows(
    shard: &Shard,
    table: &dyn Table,
    keep: &[InodeId],
) -> Result<(), pelago_wire::Error> {
    let mut from = key::all(RowKind::Writing).from;
    loop {
        let rows = next_writing_rows(table, &from)?;
        let Some(last) = rows.last() else { return Ok(()) };
        assert!(last.key >= from, "I-5: recovery reads each `writing` row once, in order");
        from.clone_from(&last.key);
        from.push(0);
        let inos = rows.iter().map(|row| row.ino).filter(|ino| !keep.contains(ino));
        shard.delete_writing_rows(&inos.collect::<Vec<_>>())?;
    }
}

/// Number of rows that are read at a time.
const ROWS_AT_ONCE: usize = 1024;

struct FoundRow {
    key: Vec<u8>,
    ino: InodeId,
    /// `None`: damaged.
    row: Option<Writing>,
}

fn next_writing_rows(table: &dyn Table, from: &[u8]) -> Result<Vec<FoundRow>, pelago_wire::Error> {
    let mut rows = Vec::new();
    let visited = table.scan(from, &key::all(RowKind::Writing).to, &mut |key, value| {
        if let Some(Key::Writing { ino }) = Key::parse(key) {
            let row = Writing::decode(value).map_err(|error| row_damaged(key, error));
            let row = row.ok().map(|(_, row)| row);
            rows.push(FoundRow { key: key.to_vec(), ino, row });
        }
        if rows.len() < ROWS_AT_ONCE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    visited.map_err(|error| table_failed("reading `writing` rows", &error))?;
    Ok(rows)
}

/// A file with a `writing` row.
struct FoundFile<'a> {
    ino: InodeId,
    row: &'a Writing,
    /// Other sites or a mirror may have a copy of it.
    is_copied: bool,
}

/// Measures one file and corrects its attributes. Returns its handle if a process still writes it.
fn measure(
    shard: &Shard,
    content: &ContentStore,
    found: FoundFile<'_>,
    detects_writers: bool,
    report: &mut RecoveryReport,
) -> Result<Option<Handle>, pelago_wire::Error> {
    let FoundFile { ino, row, is_copied } = found;
    let forget = || shard.delete_writing_rows(&[ino]).map(|()| None);
    report.files += 1;
    let node = match shard.stored_node(Handle { ino, dir: row.dir, hash: row.hash }) {
        Ok(node) => node,
        // The file was removed. If it has a content file, its orphan row leads there.
        Err(error) if error.code == Code::Stale => return forget(),
        Err(error) if error.code == Code::Corrupt => {
            report.damaged += 1;
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let rnode = &node.rnode;
    if !rnode.flags.has_content || rnode.generation != Some(row.generation) {
        return forget();
    }
    // The last process may have died while it replaced this file with an empty one. In a shared
    // folder no process does that, and the next generation may be another server's.
    if !content.is_shared() {
        let left = content.remove_replacement(ino, row.generation);
        left.map_err(|error| content_failed(&error))?;
    }
    let found = measure_content(content, ino, row.generation, detects_writers);
    let MeasuredFile { stat: measured, is_written, was_missing, generation } =
        found.map_err(|error| content_failed(&error))?;
    let written = is_written.then(|| node.handle());
    if was_missing && rnode.size > 0 {
        report.emptied += 1;
    } else if measured.size < rnode.size {
        report.shortened += 1;
        tracing::warn!(
            %ino, row = rnode.size, content = measured.size, "a file is shorter than its row said"
        );
    }
    // The disk's clock is coarse: a time that users have seen must not go back because of it.
    let is_late = clock::is_late(measured.mtime, rnode.mtime);
    let mtime = if is_late { rnode.mtime } else { measured.mtime };
    let bytes_moved = (rnode.size, rnode.mtime) != (measured.size, mtime);
    let is_other = generation != row.generation;
    // What was not safe may be lost although size and times are as they were: then another site or
    // a mirror must not take its copy for this version, so it gets a time that nothing has shown.
    let is_new_version = bytes_moved || is_copied;
    if !is_new_version && rnode.blocks == measured.blocks && !is_other {
        return Ok(written);
    }
    let later = rnode.ctime.next().max(measured.ctime);
    let ctime = match (is_copied, bytes_moved) {
        (true, _) => later.max(clock::now()),
        (false, true) => later,
        (false, false) => rnode.ctime,
    };
    let live = LiveAttrs { size: measured.size, blocks: measured.blocks, mtime, ctime };
    let change = match is_other {
        // With the row that is there already: such a commit may use the reserve of a full disk.
        false if is_copied => {
            BytesChange { live: Some(live), writing_row: WritingRow::Put, ..BytesChange::NOTHING }
        }
        false => BytesChange { live: Some(live), ..BytesChange::NOTHING },
        true => BytesChange {
            live: Some(live),
            generation: Some(generation),
            writing_row: WritingRow::Put,
            ..BytesChange::NOTHING
        },
    };
    shard.commit_bytes(node.handle(), &change)?;
    report.corrected += u64::from(bytes_moved);
    Ok(written)
}

/// The state of a content file at a start.
struct MeasuredFile {
    stat: ContentStat,
    /// Whether a process still writes it.
    is_written: bool,
    /// True if it was missing, and was made again empty.
    was_missing: bool,
    /// Its generation: a later one than in the row if it was made again in a shared folder.
    generation: Generation,
}

fn measure_content(
    content: &ContentStore,
    ino: InodeId,
    generation: Generation,
    detects_writers: bool,
) -> Result<MeasuredFile, content::Error> {
    if let Some(file) = content.open_file(ino, generation, FileAccess::Read)? {
        // Before `stat`: without a writer at this moment, the size cannot change after it.
        let is_written = detects_writers && {
            file.has_writers().unwrap_or_else(|error| {
                // The file keeps its `writing` row then, and is checked again.
                let source = &error.source;
                tracing::warn!(%ino, %error, %source, "assuming that a process writes this file");
                true
            })
        };
        return Ok(MeasuredFile { stat: file.stat()?, is_written, was_missing: false, generation });
    }
    // The machine died before the content file's name was safe. None of its bytes were synced, so
    // the file is empty, as it would be on any file system.
    tracing::warn!(%ino, "a file has lost bytes that were never synced, and is empty now");
    let file = content.create(ino, generation)?;
    let stat = file.stat()?;
    Ok(MeasuredFile { stat, is_written: false, was_missing: true, generation: file.generation() })
}
