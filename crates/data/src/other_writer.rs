//! Open files whose rows and content files another writer changes: the groups of a primary, at its
//! mirror. Nothing is written here meanwhile.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use pelago_store::key;
use pelago_store::rows::Rnode;
use pelago_wire::{Code, Error, InodeId};

use crate::content_file::OpenContent;
use crate::inode::{Bytes, Inode};
use crate::open_files::OpenFiles;

/// An open file as it was before a change of its rows. While it exists, the content file stays
/// open.
pub struct HeldFile {
    /// The rnode.
    pub rnode: Rnode,
    /// The value of the inline row, if there is one.
    pub inline: Option<Vec<u8>>,
    _content: Option<Arc<OpenContent>>,
}

impl fmt::Debug for HeldFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeldFile").field(&self.rnode.ino).finish()
    }
}

impl OpenFiles {
    /// Holds open files that may be about to be removed: those of `inos`, or all. Failures are
    /// ignored: such a file cannot be read either.
    #[must_use]
    pub fn hold(&self, inos: Option<&BTreeSet<InodeId>>) -> Vec<HeldFile> {
        let open = self.touched(inos);
        open.iter().filter_map(|inode| self.hold_inode(inode).ok()).collect()
    }

    /// Has open files read their rows again: those of `inos`, or all, except those that have none
    /// any more. Returns these. Files in `kept` have lost their rows before.
    pub fn read_again(
        &self,
        inos: Option<&BTreeSet<InodeId>>,
        kept: &BTreeSet<InodeId>,
    ) -> BTreeSet<InodeId> {
        let mut removed = BTreeSet::new();
        for inode in self.touched(inos) {
            if kept.contains(&inode.handle.ino) {
                continue;
            }
            let found = self.shard.stored_node(inode.handle);
            if found.is_err_and(|error| error.code == Code::Stale) {
                removed.insert(inode.handle.ino);
                continue;
            }
            let mut guard = self.lock(&inode);
            guard.state.bytes = Bytes::Unloaded;
            guard.state.count_memory();
            inode.invalidate_atime();
        }
        removed
    }

    fn touched(&self, inos: Option<&BTreeSet<InodeId>>) -> Vec<Arc<Inode>> {
        match inos {
            None => self.opens.inodes(),
            Some(inos) => inos.iter().filter_map(|ino| self.opens.inode(*ino)).collect(),
        }
    }

    fn hold_inode(&self, inode: &Arc<Inode>) -> Result<HeldFile, Error> {
        let mut guard = self.lock(inode);
        guard.load()?;
        let rnode = self.shard.stored_node(inode.handle)?.rnode;
        let content = match guard.state.has_content() {
            true => Some(guard.open_content()?),
            false => None,
        };
        let inline = match rnode.flags.inline {
            true => self.table.get(&key::inline(rnode.ino)).ok().flatten(),
            false => None,
        };
        Ok(HeldFile { rnode, inline, _content: content })
    }
}
