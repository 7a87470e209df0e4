//! A file of which a query is asked. What is not in its row is read once it is needed.

use std::borrow::Cow;
use std::cell::OnceCell;

use pelago_find::{Candidate, has_words, text};
use pelago_store::report::content_failed;
use pelago_store::rows::Rnode;
use pelago_wire::xattr::TAG_PREFIX;
use pelago_wire::{Attr, Code, Error, FileKind, Handle, Time, limits};

use super::reading::Reading;

/// A file that the process may read, by one of its names.
pub(super) struct File<'a> {
    reading: &'a Reading<'a>,
    name: &'a [u8],
    handle: Handle,
    rnode: &'a Rnode,
    attr: OnceCell<Attr>,
}

impl<'a> File<'a> {
    /// Returns a file.
    pub(super) const fn new(
        reading: &'a Reading<'a>,
        name: &'a [u8],
        handle: Handle,
        rnode: &'a Rnode,
    ) -> Self {
        Self { reading, name, handle, rnode, attr: OnceCell::new() }
    }

    /// Returns size and times as they are now. Those of directories and open files are in memory.
    fn attr(&self) -> &Attr {
        self.attr.get_or_init(|| {
            let (shard, row) = (self.reading.searched.shard, self.rnode.attr());
            if shard.attrs_are_in_row(row.ino, row.kind) {
                return row;
            }
            match shard.attr(self.handle) {
                Ok(attr) => attr,
                // It was removed after the snapshot was taken.
                Err(error) if error.code == Code::Stale => row,
                Err(error) => self.reading.keep_failure(Err(error)).unwrap_or(row),
            }
        })
    }

    /// Returns the first bytes of the file; `None` if it has none, or if they are gone.
    fn first_bytes(&self) -> Result<Option<Vec<u8>>, Error> {
        let Rnode { ino, flags, generation, .. } = *self.rnode;
        if flags.inline {
            return self.reading.tree.inline(ino);
        }
        let Some(generation) = generation.filter(|_| flags.has_content) else { return Ok(None) };
        let opened = self.reading.searched.content.open_file(ino, generation, false);
        // A newer version has its place by now.
        let Some(file) = opened.map_err(|error| content_failed(&error))? else { return Ok(None) };
        let mut bytes = vec![0; limits::TEXT_SEARCHED_BYTES];
        let read = file.read_at(&mut bytes, 0).map_err(|error| content_failed(&error))?;
        bytes.truncate(read);
        Ok(Some(bytes))
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
        self.reading.count_text();
        let bytes = self.reading.keep_failure(self.first_bytes()).unwrap_or_default();
        text(&bytes).is_some_and(|text| has_words(text, words))
    }

    fn uid_of(&self, name: &str) -> Option<u32> {
        self.reading.users.uid_of(name)
    }
}
