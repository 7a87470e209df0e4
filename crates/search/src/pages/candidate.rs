//! A file that is compared with a query. Facts that its row does not have are read when they are
//! needed.

use std::borrow::Cow;
use std::cell::OnceCell;

use pelago_find::{Candidate, has_words, text};
use pelago_store::rows::Rnode;
use pelago_wire::xattr::TAG_PREFIX;
use pelago_wire::{Attr, Code, FileKind, Handle, Time};

use super::Searched;
use super::reading::Reading;
use crate::text::first_bytes;

/// A file that the process may read, by one of its names.
pub(super) struct File<'a> {
    reading: &'a Reading<'a>,
    name: &'a [u8],
    handle: Handle,
    rnode: &'a Rnode,
    /// Words that its text is known to have.
    known: &'a [String],
    attr: OnceCell<Attr>,
    /// True if the position of the file is found before its present state is read.
    is_watched: bool,
}

impl<'a> File<'a> {
    /// Returns a file.
    pub(super) const fn new(
        reading: &'a Reading<'a>,
        name: &'a [u8],
        handle: Handle,
        rnode: &'a Rnode,
        known: &'a [String],
        is_watched: bool,
    ) -> Self {
        Self { reading, name, handle, rnode, known, attr: OnceCell::new(), is_watched }
    }

    /// Returns the size and the times as they are now: those of directories and of open files are
    /// in memory.
    fn attr(&self) -> &Attr {
        self.attr.get_or_init(|| {
            let shard = self.reading.searched.shard;
            let row = self.rnode.attr();
            if shard.attrs_are_in_row(row.ino, row.kind) {
                return row;
            }
            self.watch();
            match shard.attr(self.handle) {
                Ok(attr) => attr,
                // The file was removed after the snapshot was taken.
                Err(error) if error.code == Code::Stale => row,
                Err(error) => self.reading.keep_failure(Err(error)).unwrap_or(row),
            }
        })
    }

    fn watch(&self) {
        if self.is_watched {
            self.reading.find_position(self.handle);
        }
    }
}

impl Candidate for File<'_> {
    fn name(&self) -> &[u8] {
        self.name
    }

    fn kind(&self) -> FileKind {
        self.rnode.kind
    }

    fn size(&self) -> u64 {
        self.attr().size
    }

    fn mtime(&self) -> Time {
        self.attr().mtime
    }

    fn uid(&self) -> u32 {
        self.rnode.uid
    }

    fn tag(&self, key: &str) -> Option<Cow<'_, [u8]>> {
        let name = [TAG_PREFIX.as_bytes(), key.as_bytes()].concat();
        self.reading.keep_failure(self.reading.tree.xattr(self.rnode, &name)).map(Cow::Owned)
    }

    fn has_text(&self, words: &[String]) -> bool {
        if self.rnode.kind != FileKind::Regular {
            return false;
        }
        if words.iter().all(|word| self.known.contains(word)) {
            return true;
        }
        self.reading.count_text();
        self.watch();
        let Searched { content, .. } = self.reading.searched;
        let bytes = first_bytes(self.reading.tree, content, self.rnode);
        let bytes = self.reading.keep_failure(bytes).unwrap_or_default();
        text(&bytes).is_some_and(|text| has_words(text, words))
    }

    fn uid_of(&self, name: &str) -> Option<u32> {
        self.reading.users.uid_of(name)
    }
}
