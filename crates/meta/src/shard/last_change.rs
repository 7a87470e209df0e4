//! The last change of a node, for the question how far it has come.

use pelago_store::key;
use pelago_store::report::table_failed;
use pelago_store::rows::{Stamp, stamp_of};
use pelago_wire::{Error, FileKind, Generation, Handle, InodeId};

use super::Shard;
use crate::row_cache::RowLocation;

/// The last change of a node that its rows have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastChange {
    /// The node.
    pub ino: InodeId,
    /// Its content file, if its bytes are in one.
    pub content: Option<Generation>,
    /// The stamp of the batch; `None` if the rows do not have the last change of a directory yet.
    pub stamp: Option<Stamp>,
    /// The epoch of the shard: what an earlier one has written is safe.
    pub epoch: u32,
}

impl Shard {
    /// Returns the last change of a node that its rows have: of a directory, of its names too. What
    /// a program has written to an open file may be in none.
    ///
    /// # Errors
    /// `Stale` if there is no such node; errors of the table.
    pub fn last_change(&self, handle: Handle) -> Result<LastChange, Error> {
        let mut locked = self.lock();
        let node = locked.node(handle)?;
        let ino = node.rnode.ino;
        let stamp_at = |row_key: &[u8]| {
            let value = self.table.get(row_key);
            let value = value.map_err(|error| table_failed("reading a stamp", &error))?;
            Ok::<_, Error>(value.and_then(|value| stamp_of(&value)).unwrap_or_default())
        };
        let mut stamp = Some(match &node.location {
            RowLocation::Name { dir, hash, name } => {
                stamp_at(&key::name(*dir, *hash, name.as_bytes()))?
            }
            RowLocation::Own | RowLocation::Elsewhere => stamp_at(&key::inode(ino))?,
        });
        if node.rnode.kind == FileKind::Directory {
            let directories = &locked.state.directories;
            let is_behind = directories.get(ino).is_some_and(|found| found.needs_recount)
                || directories.changed().contains(&ino);
            let names = stamp_at(&key::partition(ino, 0))?;
            stamp = stamp.map(|own| own.max(names)).filter(|_| !is_behind);
        }
        let content = node.rnode.generation.filter(|_| node.rnode.flags.has_content);
        let epoch = locked.next_stamp().epoch;
        Ok(LastChange { ino, content, stamp, epoch })
    }
}
