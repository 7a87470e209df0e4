//! The things that a group changes and that readers of the mirror may have cached.

use std::collections::BTreeSet;

use pelago_store::key::Key;
use pelago_store::rows::{NameRow, Row};
use pelago_store::spool::Spool;
use pelago_wire::mirror::{GroupPart, RowChange};
use pelago_wire::{InodeId, Name, Touched, limits};

use super::error::MirrorError;
use super::image::Image;
use crate::service::groups::GroupTouches;

/// Returns what the group in the spool changes.
pub(super) fn touched(image: &Image, spool: &mut Spool) -> Result<GroupTouches, MirrorError> {
    let mut things = Things::default();
    for body in spool.bodies()? {
        match GroupPart::decode(&body?)? {
            GroupPart::Rows(rows) => {
                for row in &rows {
                    things.take_row(image, row)?;
                }
            }
            GroupPart::Content { ino, .. } => things.add_node(ino),
            GroupPart::Range { .. } => things.are_all = true,
            GroupPart::Offer { .. }
            | GroupPart::Begin { .. }
            | GroupPart::End { .. }
            | GroupPart::Bytes { .. }
            | GroupPart::Hole { .. }
            | GroupPart::File { .. }
            | GroupPart::Abort
            | GroupPart::Compare(_)
            | GroupPart::Contents(_)
            | GroupPart::Blocks(_)
            | GroupPart::Ping
            | GroupPart::Datagrams
            | GroupPart::RelayKey
            | GroupPart::HandOver => {}
        }
        if things.are_all || things.nodes.len() + things.names.len() > limits::GROUP_RECALLS {
            return Ok(GroupTouches::Everything);
        }
    }
    let names = things.names.into_iter().map(|(dir, name)| Touched::Name { dir, name });
    let nodes = things.nodes.into_iter().map(Touched::Node);
    Ok(GroupTouches::Things(nodes.chain(names).collect()))
}

#[derive(Default)]
struct Things {
    nodes: BTreeSet<InodeId>,
    names: BTreeSet<(InodeId, Name)>,
    /// True if they cannot be listed.
    are_all: bool,
}

impl Things {
    fn add_node(&mut self, ino: InodeId) {
        self.nodes.insert(ino);
    }

    fn take_row(&mut self, image: &Image, row: &RowChange) -> Result<(), MirrorError> {
        match Key::parse(&row.key) {
            Some(Key::Name { dir, name, .. }) => {
                self.add_node(dir);
                match Name::new(name) {
                    Ok(name) => drop(self.names.insert((dir, name))),
                    Err(_) => self.are_all = true,
                }
                let old = image.get(&row.key)?;
                for value in old.iter().chain(&row.value) {
                    match NameRow::decode(value) {
                        Ok((_, found)) => self.add_node(found.ino()),
                        Err(_) => self.are_all = true,
                    }
                }
            }
            Some(
                Key::Inode { ino }
                | Key::Moved { ino }
                | Key::ParentPointer { ino, .. }
                | Key::Partition { dir: ino, .. }
                | Key::Orphan { ino }
                | Key::Inline { ino }
                | Key::Xattr { ino, .. }
                | Key::XattrNames { ino },
            ) => self.add_node(ino),
            // No answer to a reader that may be kept has anything of them.
            Some(
                Key::Writing { .. }
                | Key::Tag { .. }
                | Key::CachedReply { .. }
                | Key::Session { .. }
                | Key::Volume { .. }
                | Key::Intent { .. }
                | Key::Site { .. }
                | Key::Revocation { .. }
                | Key::Stay { .. }
                | Key::Ancestry { .. },
            ) => {}
            None => self.are_all = true,
        }
        Ok(())
    }
}
