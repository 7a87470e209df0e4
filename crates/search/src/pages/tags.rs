//! The keys of tags, and the values of one key, of the files below a directory.
//!
//! The rows of tags are in the order of keys, values and files. So a scan steps from one key or
//! value to the next, and reads files of each until it finds one that the asker may read. A key or
//! a value without such a file is passed over, whatever number of rows it has: neither the parts
//! nor `more` depend on it. With a limit of the rows for one answer, `more` would depend on hidden
//! rows. So the work is bounded only by the rows of the tags that begin with the prefix; it is done
//! on a thread of the asker's share of the pool.

use std::ops::ControlFlow;

use pelago_meta::row_cache::Node;
use pelago_meta::tree::TagPart;
use pelago_store::key::{self, KeyRange};
use pelago_wire::xattr::is_tag_key;
use pelago_wire::{Code, Error, Handle, InodeId, Tags, limits};

use super::places::Places;
use super::viewer::Viewer;
use crate::undamaged::undamaged;

/// A search for tags.
pub(super) struct TagSearch<'a> {
    viewer: &'a Viewer<'a>,
    places: Places,
}

impl<'a> TagSearch<'a> {
    /// Returns a search below a directory.
    pub(super) fn below(viewer: &'a Viewer<'a>, scope: InodeId) -> Self {
        Self { viewer, places: Places::below(scope) }
    }

    /// Returns the first [`limits::TAG_PARTS`] keys or values, and whether the asker may see more.
    ///
    /// # Errors
    /// `Invalid` for a key that no tag can have, and if a row cannot be read.
    pub(super) fn find(mut self, tags: &Tags) -> Result<(Vec<Vec<u8>>, bool), Error> {
        let Some(mut rest) = rows(tags)? else { return Ok((Vec::new(), false)) };
        let tree = self.viewer.tree;
        let mut found = Vec::new();
        loop {
            let part = match &tags.key {
                None => tree.first_tag_key(&rest)?,
                Some(_) => tree.first_tag_value(&rest)?,
            };
            let Some(TagPart { bytes, rows }) = part else { return Ok((found, false)) };
            rest.from.clone_from(&rows.to);
            if let Some(bytes) = bytes
                && self.is_seen(&rows)?
            {
                if found.len() == limits::TAG_PARTS {
                    return Ok((found, true));
                }
                found.push(bytes);
            }
        }
    }

    /// Returns whether the asker may read a file of one of these rows.
    fn is_seen(&mut self, rows: &KeyRange) -> Result<bool, Error> {
        let tree = self.viewer.tree;
        let mut seen = Ok(false);
        tree.visit_tagged(rows, |handle| {
            seen = self.sees(handle);
            if matches!(seen, Ok(false)) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        seen
    }

    /// Returns whether the asker may read a file by one of its names below the directory.
    fn sees(&mut self, handle: Handle) -> Result<bool, Error> {
        let Some(node) = undamaged(self.viewer.tree.node(handle))? else { return Ok(false) };
        Ok(self.viewer.may_read(node.handle(), &node.rnode)? && self.has_place(&node)?)
    }

    fn has_place(&mut self, node: &Node) -> Result<bool, Error> {
        let mut place = Ok(None);
        self.viewer.tree.names(node, |dir, _| {
            place = self.places.of(self.viewer, dir);
            if matches!(place, Ok(None)) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        Ok(place?.is_some())
    }
}

/// Checks that a tag can have the key.
///
/// # Errors
/// `Invalid`.
pub(super) fn check_key(tags: &Tags) -> Result<(), Error> {
    match &tags.key {
        Some(key) if tag_text(key).is_none() => Err(Code::Invalid.into()),
        _ => Ok(()),
    }
}

/// Returns the text of a key of a tag.
fn tag_text(key: &[u8]) -> Option<&str> {
    str::from_utf8(key).ok().filter(|key| is_tag_key(key))
}

/// Returns the rows of all keys or values with the prefix; `None` if no key can begin with it.
fn rows(tags: &Tags) -> Result<Option<KeyRange>, Error> {
    if let Some(key) = &tags.key {
        let key = tag_text(key).ok_or(Code::Invalid)?;
        return Ok(Some(key::tag_values(key, &tags.prefix)));
    }
    Ok(match tags.prefix.as_slice() {
        b"" => Some(key::tag_keys("")),
        prefix => tag_text(prefix).map(key::tag_keys),
    })
}
