//! The copy of a file's bytes, from its row or from its content file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use pelago_store::content::{ContentFile, ContentStore, FileAccess};
use pelago_store::key;
use pelago_store::rows::{Inline, Rnode};
use pelago_store::table;
use pelago_wire::{InodeId, Time, Whence};

use super::rows::FoundRows;

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes that are given up together if the disk cannot read them.
const PAGE_BYTES: u64 = 4096;

/// Copies the bytes of files.
pub(super) struct Copier<'a> {
    rows: &'a FoundRows,
    content: Option<&'a ContentStore>,
}

/// The bytes of a file, before they are copied.
pub(super) enum Source {
    /// In its row.
    Inline(Vec<u8>),
    /// In its content file.
    Content {
        /// The file.
        file: ContentFile,
        /// Bytes to copy.
        size: u64,
        /// Bytes that the file lacks.
        short: u64,
        /// The time of the last change, of a file that was open for writing: then that of the
        /// content file counts.
        mtime: Option<Time>,
    },
    /// The file has no bytes.
    Empty,
    /// They are lost, for this reason.
    Lost(String),
}

impl<'a> Copier<'a> {
    pub(super) const fn new(rows: &'a FoundRows, content: Option<&'a ContentStore>) -> Self {
        Self { rows, content }
    }

    /// Returns the content files, if their folder can be read.
    pub(super) const fn content(&self) -> Option<&'a ContentStore> {
        self.content
    }

    /// Finds the bytes of a file.
    pub(super) fn source(&self, rnode: &Rnode) -> Result<Source, table::Error> {
        if rnode.flags.inline {
            return self.inline(rnode.ino);
        }
        if let Some(node) = rnode.bytes_at {
            let site = node.site();
            return Ok(Source::Lost(format!("its bytes are at site {site}, in node {node}")));
        }
        let Some(generation) = rnode.generation.filter(|_| rnode.flags.has_content) else {
            return Ok(match rnode.size {
                0 => Source::Empty,
                bytes => Source::Lost(format!("its {bytes} bytes are in no row and no file")),
            });
        };
        let Some(content) = self.content else {
            return Ok(Source::Lost("there are no content files".to_owned()));
        };
        let lost = |error: &dyn std::fmt::Display| Ok(Source::Lost(error.to_string()));
        let file = match content.open_file(rnode.ino, generation, FileAccess::Read) {
            Ok(Some(file)) => file,
            Ok(None) => return lost(&"its content file is missing"),
            Err(error) => return lost(&error),
        };
        let found = match file.stat() {
            Ok(found) => found,
            Err(error) => return lost(&error),
        };
        // A file that was open for writing has the size of its content file, as after a crash.
        let is_measured = self.rows.get(&key::writing(rnode.ino))?.is_some();
        let size = if is_measured { found.size } else { rnode.size.min(found.size) };
        let short = rnode.size.saturating_sub(size);
        let mtime = is_measured.then_some(found.mtime);
        Ok(Source::Content { file, size, short, mtime })
    }

    /// Finds bytes in the row of an inode.
    pub(super) fn inline(&self, ino: InodeId) -> Result<Source, table::Error> {
        Ok(match self.rows.get(&key::inline(ino))?.map(Inline::decode_owned) {
            Some(Ok(bytes)) => Source::Inline(bytes),
            Some(Err(error)) => Source::Lost(format!("the row of its bytes: {error}")),
            None => Source::Lost("the row of its bytes is missing".to_owned()),
        })
    }
}

/// The result of a copy of bytes.
#[derive(Debug, Default)]
pub(super) struct Copied {
    pub(super) bytes: u64,
    /// Bytes that the disk could not read; the copy has zeros there.
    pub(super) unreadable: u64,
}

/// Copies the first `size` bytes of a content file, holes as holes.
///
/// # Errors
/// A failure to write.
pub(super) fn copy(from: &ContentFile, size: u64, to: &File) -> io::Result<Copied> {
    let mut copied = Copied { bytes: size, unreadable: 0 };
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < size {
        // A file system that knows no holes has data everywhere.
        at = match from.seek(at, Whence::Data) {
            Ok(Some(data)) => data.max(at),
            Ok(None) => size,
            Err(_) => at,
        };
        if at >= size {
            break;
        }
        let wanted = (size - at).min(CHUNK_BYTES as u64) as usize;
        match from.read_at(&mut buffer[..wanted], at) {
            Ok(0) => break,
            Ok(read) => {
                to.write_all_at(&buffer[..read], at)?;
                at += read as u64;
            }
            Err(_) => {
                let end = size.min(at + wanted as u64);
                copied.unreadable += copy_pages(from, at, end, to)?;
                at = end;
            }
        }
    }
    to.set_len(size)?;
    Ok(copied)
}

/// Copies each page that the disk can read. Returns the bytes of the others.
fn copy_pages(from: &ContentFile, start: u64, end: u64, to: &File) -> io::Result<u64> {
    let mut unreadable = 0;
    let mut page = [0; PAGE_BYTES as usize];
    let mut at = start;
    while at < end {
        let wanted = (PAGE_BYTES - at % PAGE_BYTES).min(end - at);
        match from.read_at(&mut page[..wanted as usize], at) {
            Ok(read) => to.write_all_at(&page[..read], at)?,
            Err(_) => unreadable += wanted,
        }
        at += wanted;
    }
    Ok(unreadable)
}
