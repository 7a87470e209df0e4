//! Files that may match a query, in the order of their inode numbers.

use std::vec;

use pelago_meta::tree::Tree;
use pelago_wire::{Error, Handle, InodeId};

/// Rows of tags that are read at once.
const ROWS_AT_ONCE: usize = 1024;

/// Files that may match, each at least once, in the order of their inode numbers. A handle has the
/// place where the file once was.
pub(super) enum Candidates<'a> {
    /// The files with a tag.
    Tagged(Tagged<'a>),
    /// A list of files.
    Sorted(vec::IntoIter<Handle>),
    /// The files of several candidates, with the next file of each.
    Merged(Vec<(Self, Option<Handle>)>),
}

/// The files with a tag, of which some are read at a time.
pub(super) struct Tagged<'a> {
    key: &'a str,
    value: &'a [u8],
    read: vec::IntoIter<Handle>,
    /// The inode number from which on rows are read next; `None` after the last row.
    from: Option<InodeId>,
}

impl<'a> Candidates<'a> {
    /// Returns the files with a tag, from an inode number on.
    pub(super) fn tagged(key: &'a str, value: &'a [u8], from: InodeId) -> Self {
        Self::Tagged(Tagged { key, value, read: Vec::new().into_iter(), from: Some(from) })
    }

    /// Returns the files of a list, from an inode number on.
    pub(super) fn sorted(mut files: Vec<Handle>, from: InodeId) -> Self {
        files.retain(|file| file.ino >= from);
        files.sort_unstable_by_key(|file| file.ino);
        Self::Sorted(files.into_iter())
    }

    /// Returns the files of several candidates.
    ///
    /// # Errors
    /// If a row cannot be read.
    pub(super) fn merged(tree: &Tree, parts: Vec<Self>) -> Result<Self, Error> {
        let first = |mut part: Self| part.next(tree).map(|file| (part, file));
        parts.into_iter().map(first).collect::<Result<_, _>>().map(Self::Merged)
    }

    /// Returns the next file.
    ///
    /// # Errors
    /// If a row cannot be read.
    pub(super) fn next(&mut self, tree: &Tree) -> Result<Option<Handle>, Error> {
        match self {
            Self::Tagged(tagged) => tagged.next(tree),
            Self::Sorted(files) => Ok(files.next()),
            Self::Merged(parts) => {
                let waiting = parts.iter_mut().filter(|(_, file)| file.is_some());
                let least = waiting.min_by_key(|(_, file)| file.map(|file| file.ino));
                let Some((part, file)) = least else { return Ok(None) };
                Ok(std::mem::replace(file, part.next(tree)?))
            }
        }
    }
}

impl Tagged<'_> {
    fn next(&mut self, tree: &Tree) -> Result<Option<Handle>, Error> {
        if let Some(file) = self.read.next() {
            return Ok(Some(file));
        }
        let Some(from) = self.from.take() else { return Ok(None) };
        let read = tree.tagged(self.key, self.value, from, ROWS_AT_ONCE)?;
        if read.len() == ROWS_AT_ONCE {
            let last = read.last().and_then(|last| last.ino.raw().checked_add(1));
            self.from = last.map(InodeId::from_raw);
        }
        self.read = read.into_iter();
        Ok(self.read.next())
    }
}
