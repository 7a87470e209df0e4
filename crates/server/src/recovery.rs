//! What is done before a server answers its first request: whose table it is, where numbering goes
//! on, and what became of the files that were being written when the last life ended.
//!
//! Nothing here depends on how many files there are: only on how many were open for writing.

use std::ops::ControlFlow;

use pelago_store::content::{self, ContentStat, ContentStore};
use pelago_store::key::{self, Key, RowKind};
use pelago_store::rows::{Row, Writing};
use pelago_store::table::Table;
use pelago_wire::{Code, Generation, Handle, InodeId};

use pelago_meta::shard::{BytesChange, LiveAttrs, Shard};
use pelago_store::clock;
use pelago_store::report::{row_damaged, table_failed};

/// What was found among the files that were being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Files that were looked at.
    pub files: u64,
    /// Of those, files whose row was behind their bytes.
    pub corrected: u64,
    /// Of those, files whose mark or row is damaged.
    pub damaged: u64,
}

/// Measures every file that was being written, and corrects the rows that are behind. The marks
/// stay: the bytes are not known to be safe. Answers too which of the files somebody still writes,
/// as far as the medium can tell (`tells`).
///
/// # Errors
/// Where the table or the medium fails; a file that is damaged is counted and passed over.
pub(crate) fn measure_written(
    shard: &Shard,
    table: &dyn Table,
    content: &ContentStore,
    tells: bool,
) -> Result<(Recovered, Vec<Handle>), pelago_wire::Error> {
    let mut recovered = Recovered::default();
    let mut written = Vec::new();
    let mut from = key::all(RowKind::Writing).from;
    loop {
        let marks = next_marks(table, &from)?;
        let Some((last, _, _)) = marks.last() else { return Ok((recovered, written)) };
        from.clone_from(last);
        from.push(0);
        for (_, ino, mark) in marks {
            let Some(mark) = mark else {
                recovered.damaged += 1;
                continue;
            };
            let found = measure(shard, content, (ino, &mark), tells, &mut recovered)?;
            written.extend(found);
        }
    }
}

/// Removes all marks but those of files that somebody still writes: before a clean end, when all
/// bytes of all others are safe.
///
/// # Errors
/// Where the table fails.
pub(crate) fn forget_marks(
    shard: &Shard,
    table: &dyn Table,
    written: &[InodeId],
) -> Result<(), pelago_wire::Error> {
    let mut from = key::all(RowKind::Writing).from;
    loop {
        let marks = next_marks(table, &from)?;
        let Some((last, _, _)) = marks.last() else { return Ok(()) };
        from.clone_from(last);
        from.push(0);
        let inos = marks.iter().map(|(_, ino, _)| *ino).filter(|ino| !written.contains(ino));
        shard.delete_writing_rows(&inos.collect::<Vec<_>>())?;
    }
}

/// Marks that are read at a time.
const MARKS: usize = 1024;

type Marked = (Vec<u8>, InodeId, Option<Writing>);

fn next_marks(table: &dyn Table, from: &[u8]) -> Result<Vec<Marked>, pelago_wire::Error> {
    let mut marks = Vec::new();
    let visited = table.scan(from, &key::all(RowKind::Writing).to, &mut |key, value| {
        if let Some(Key::Writing { ino }) = Key::parse(key) {
            let mark = Writing::decode(value).map_err(|error| row_damaged(key, error));
            marks.push((key.to_vec(), ino, mark.ok().map(|(_, mark)| mark)));
        }
        if marks.len() < MARKS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    visited.map_err(|error| table_failed("looking for files being written", &error))?;
    Ok(marks)
}

fn measure(
    shard: &Shard,
    content: &ContentStore,
    (ino, mark): (InodeId, &Writing),
    tells: bool,
    recovered: &mut Recovered,
) -> Result<Option<Handle>, pelago_wire::Error> {
    let forget = || shard.delete_writing_rows(&[ino]).map(|()| None);
    recovered.files += 1;
    let node = match shard.stored_node(Handle { ino, dir: mark.dir, hash: mark.hash }) {
        Ok(node) => node,
        // Its orphan row, or nothing, leads to the content: a leftover of a file that is gone.
        Err(error) if error.code == Code::Stale => return forget(),
        Err(error) if error.code == Code::Corrupt => {
            recovered.damaged += 1;
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let rnode = &node.rnode;
    if !rnode.flags.has_content || rnode.generation != Some(mark.generation) {
        return forget();
    }
    let measured = measure_content(content, ino, mark.generation, tells);
    let (measured, is_written) =
        measured.map_err(|error| pelago_store::report::content_failed(&error))?;
    let written = is_written.then(|| node.handle());
    // A time that was shown is not taken back for the sake of a coarse clock.
    let is_late = clock::is_late(measured.mtime, rnode.mtime);
    let mtime = if is_late { rnode.mtime } else { measured.mtime };
    let bytes_moved = (rnode.size, rnode.mtime) != (measured.size, mtime);
    if !bytes_moved && rnode.blocks == measured.blocks {
        return Ok(written);
    }
    let ctime = if bytes_moved { rnode.ctime.next().max(measured.ctime) } else { rnode.ctime };
    let live = LiveAttrs { size: measured.size, blocks: measured.blocks, mtime, ctime };
    let change = BytesChange { live: Some(live), ..BytesChange::NOTHING };
    shard.commit_bytes(node.handle(), &change)?;
    recovered.corrected += u64::from(bytes_moved);
    Ok(written)
}

fn measure_content(
    content: &ContentStore,
    ino: InodeId,
    generation: Generation,
    tells: bool,
) -> Result<(ContentStat, bool), content::Error> {
    if let Some(file) = content.open_file(ino, generation, false)? {
        // First: what is written behind a `no` is written by nobody.
        let is_written = tells && {
            let answer = file.has_writers();
            answer.unwrap_or_else(|error| {
                // It keeps its mark then, and is asked again.
                tracing::warn!(%error, source = %error.source, "taken as written by somebody");
                true
            })
        };
        return Ok((file.stat()?, is_written));
    }
    // The machine died before the name of the content was safe, and of its bytes nothing was
    // promised: the file is empty, as one of any file system would be.
    tracing::warn!(%ino, "a file has lost what was written to it, and is empty");
    Ok((content.create(ino, generation)?.stat()?, false))
}
