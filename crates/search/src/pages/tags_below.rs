//! The keys of tags, and the values of one key, of the files below a directory, by a walk.
//!
//! The rows of tags are those of the whole volume, so that a search in them takes as long as there
//! are files with a tag, granted or not. The walk reads the directory, and what is below it.

use std::collections::BTreeSet;

use pelago_store::rows::Rnode;
use pelago_wire::xattr::{TAG_PREFIX, tag_key};
use pelago_wire::{Error, FileKind, InodeId, Tags, limits};

use super::tags::check_key;
use super::viewer::Viewer;
use super::walk::node;
use crate::undamaged::undamaged;

/// Most entries of a directory that are read at once.
const ENTRIES_AT_ONCE: usize = 128;

/// A walk through a directory and all below it that collects tags.
pub(super) struct TagWalk<'a> {
    viewer: &'a Viewer<'a>,
    /// Directories that were found and not read yet.
    dirs: Vec<InodeId>,
    /// The first keys or values so far: one more than an answer has.
    found: BTreeSet<Vec<u8>>,
    /// The rest of the work, in names.
    left: u32,
}

impl<'a> TagWalk<'a> {
    /// Returns a walk below a directory.
    pub(super) fn below(viewer: &'a Viewer<'a>, scope: InodeId) -> Self {
        let left = limits::GUEST_TAG_NAMES;
        Self { viewer, dirs: vec![scope], found: BTreeSet::new(), left }
    }

    /// Returns the first [`limits::TAG_PARTS`] keys or values, and whether there may be more.
    ///
    /// # Errors
    /// `Invalid` for a key that no tag can have, and if a row cannot be read.
    pub(super) fn find(mut self, tags: &Tags) -> Result<(Vec<Vec<u8>>, bool), Error> {
        check_key(tags)?;
        while let Some(dir) = self.dirs.pop() {
            if !self.read(dir, tags)? {
                break;
            }
        }
        let more = self.left == 0 || self.found.len() > limits::TAG_PARTS;
        Ok((self.found.into_iter().take(limits::TAG_PARTS).collect(), more))
    }

    /// Reads a directory. Returns whether work is left.
    fn read(&mut self, dir: InodeId, tags: &Tags) -> Result<bool, Error> {
        let tree = self.viewer.tree;
        let mut behind: Option<Vec<u8>> = None;
        loop {
            let entries = tree.entries(dir, behind.as_deref(), ENTRIES_AT_ONCE)?;
            let Some(last) = entries.last() else { return Ok(true) };
            behind = Some(last.name.as_bytes().to_vec());
            for entry in entries {
                if self.left == 0 {
                    return Ok(false);
                }
                let Some((handle, rnode)) = node(tree, dir, entry.hash, &entry.row)? else {
                    self.left -= 1;
                    continue;
                };
                let may_read = self.viewer.may_read(handle, &rnode)?;
                if self.viewer.decides_elsewhere() {
                    self.left = 0;
                    return Ok(false);
                }
                self.left = self.left.saturating_sub(1 + self.viewer.take_work());
                if may_read {
                    undamaged(self.collect(&rnode, tags).map(Some))?;
                    if rnode.kind == FileKind::Directory {
                        self.dirs.push(rnode.ino);
                    }
                }
            }
        }
    }

    /// Adds the keys of a file, or its value of the key.
    fn collect(&mut self, rnode: &Rnode, tags: &Tags) -> Result<(), Error> {
        let tree = self.viewer.tree;
        let Some(key) = &tags.key else {
            let names = tree.xattr_names(rnode)?;
            let keys = names.split(|byte| *byte == 0).filter_map(tag_key);
            keys.for_each(|key| self.add(key.as_bytes(), tags));
            return Ok(());
        };
        let name = [TAG_PREFIX.as_bytes(), key].concat();
        match tree.xattr(rnode, &name)? {
            Some(value) if value.len() <= limits::TAG_PART_BYTES => self.add(&value, tags),
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, part: &[u8], tags: &Tags) {
        if part.starts_with(&tags.prefix) && !self.found.contains(part) {
            self.found.insert(part.to_vec());
            if self.found.len() > limits::TAG_PARTS + 1 {
                self.found.pop_last();
            }
        }
    }
}
