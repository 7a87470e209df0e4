//! Keys of tags, and values of one key, that files below a directory have.
//!
//! The rows of tags are in the order of keys, values and files. So a scan steps from one key or
//! value to the next, and reads as many files of each as it takes to find one that the asker may
//! read. What has none is passed over, however much that is: neither the parts nor `more` tell
//! whether it exists. A limit of the rows for one answer would, because `more` would then depend on
//! hidden rows. So the work is bounded by the rows of tags that begin alike, on a thread of the
//! asker's share of the pool.

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

    /// Returns the first [`limits::TAG_PARTS`] keys or values, and whether there are more that the
    /// asker may know.
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
        Ok(self.viewer.may_read(&node.rnode)? && self.has_place(&node)?)
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

/// Returns the rows of all keys or values that begin alike; `None` if none can.
fn rows(tags: &Tags) -> Result<Option<KeyRange>, Error> {
    let text = |bytes| str::from_utf8(bytes).ok().filter(|key| is_tag_key(key));
    if let Some(key) = &tags.key {
        let key = text(key).ok_or(Code::Invalid)?;
        return Ok(Some(key::tag_values(key, &tags.prefix)));
    }
    Ok(match tags.prefix.as_slice() {
        b"" => Some(key::tag_keys("")),
        prefix => text(prefix).map(key::tag_keys),
    })
}
