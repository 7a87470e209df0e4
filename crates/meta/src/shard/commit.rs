//! What an open file tells its row when it commits.

use pelago_store::key;
use pelago_store::rows::{self, NameRow, Orphan, Row, Stamp, Writing};
use pelago_store::table::Batch;
use pelago_wire::{Attr, Error, Generation, Handle, Time};

use super::{Live, Shard};
use crate::row_cache::{Node, RowLocation};

/// What a commit says of a file's bytes.
#[derive(Debug, Clone, Copy)]
pub struct BytesChange<'a> {
    /// Size, blocks and times; `None` leaves the row's.
    pub live: Option<Live>,
    /// Last read; `None` leaves the row's.
    pub atime: Option<Time>,
    /// What becomes of the bytes in the table.
    pub inline: Inline<'a>,
    /// The content file that has the bytes from now on; `None` leaves what is.
    pub generation: Option<Generation>,
    /// What becomes of the mark that a content file is being written.
    pub mark: Mark,
    /// Clear setuid, and setgid where the group may execute, as a write by somebody without
    /// privilege does.
    pub kill_privileges: bool,
}

/// What becomes of a file's bytes in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inline<'a> {
    /// They stay as they are, or there are none.
    Keep,
    /// These are all bytes of the file.
    Put(&'a [u8]),
    /// They go: the file is empty, or its bytes are in a content file.
    Delete,
}

/// What becomes of the mark that a content file is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// It stays as it is.
    Keep,
    /// It is set, for the content file of this change or of the row.
    Put,
    /// It goes: the bytes are safe and nobody writes.
    Delete,
}

impl BytesChange<'_> {
    /// A commit that changes nothing yet.
    pub const NOTHING: Self = Self {
        live: None,
        atime: None,
        inline: Inline::Keep,
        generation: None,
        mark: Mark::Keep,
        kill_privileges: false,
    };
}

impl Shard {
    /// Commits what an open file has: afterwards its row is right, and [`Live`] is forgotten.
    /// Answers the attributes and the batch that did it.
    ///
    /// # Errors
    /// `Stale` where the file is gone; where the table fails nothing is changed.
    pub fn commit_bytes(
        &self,
        handle: Handle,
        change: &BytesChange<'_>,
    ) -> Result<(Attr, u64), Error> {
        let mut state = self.lock();
        let mut node = self.node(&mut state, handle)?;
        let stamp = self.stamp(&state);
        let mut batch = Batch::new();
        let read = self.holds.read_at(handle.ino);
        let change = &BytesChange { atime: change.atime.or(read), ..*change };
        if change.frees(&node) {
            batch.allow_reserve();
        }
        if change.apply(&mut node) {
            put_node(&mut batch, &node, stamp);
        }
        change.put_beside(&mut batch, &node, stamp);
        self.write(&mut state, batch)?;
        state.changed.insert(handle.ino);
        self.holds.committed(handle.ino, change.live.is_some());
        let attr = self.attr_of(&state, &node.rnode)?;
        state.rows.put_node(node);
        Ok((attr, state.sequence))
    }
}

impl BytesChange<'_> {
    /// Whether this is a part of cutting a file off: its end, or the mark that comes before.
    fn frees(&self, node: &Node) -> bool {
        let is_shorter = self.live.is_some_and(|live| live.size < node.rnode.size);
        is_shorter || self.mark == Mark::Put && self.generation.is_none()
    }

    /// Changes the row; answers whether anything did.
    fn apply(&self, node: &mut Node) -> bool {
        let rnode = &mut node.rnode;
        let before = rnode.clone();
        if let Some(live) = self.live {
            (rnode.size, rnode.blocks, rnode.mtime) = (live.size, live.blocks, live.mtime);
            rnode.ctime = rnode.ctime.max(live.ctime);
        }
        if let Some(atime) = self.atime {
            rnode.atime = atime;
        }
        match self.inline {
            Inline::Keep => {}
            Inline::Put(_) => rnode.flags.inline = true,
            Inline::Delete => rnode.flags.inline = false,
        }
        if let Some(generation) = self.generation {
            rnode.generation = Some(generation);
            rnode.flags.has_content = true;
        }
        if self.kill_privileges {
            rnode.mode = without_privileges(rnode.mode);
        }
        if *rnode == before {
            return false;
        }
        rnode.version += 1;
        true
    }

    /// The rows beside the rnode.
    fn put_beside(&self, batch: &mut Batch, node: &Node, stamp: Stamp) {
        let ino = node.rnode.ino;
        match self.inline {
            Inline::Keep => {}
            Inline::Put(bytes) => {
                batch.put(key::inline(ino), rows::Inline { bytes }.encode(stamp));
            }
            Inline::Delete => batch.delete(key::inline(ino)),
        }
        if self.generation.is_some() && node.rnode.links == 0 {
            // It has no name any more; whoever removes it finds its content by the orphan row.
            let orphan = Orphan { generation: node.rnode.generation };
            batch.put(key::orphan(ino), orphan.encode(stamp));
        }
        match (self.mark, node.rnode.generation) {
            (Mark::Put, Some(generation)) => {
                let handle = node.handle();
                let mark = Writing { dir: handle.dir, hash: handle.hash, generation };
                batch.put(key::writing(ino), mark.encode(stamp));
            }
            (Mark::Delete, _) => batch.delete(key::writing(ino)),
            (Mark::Keep | Mark::Put, _) => {}
        }
    }
}

/// Puts the row of a node where it stands.
pub(super) fn put_node(batch: &mut Batch, node: &Node, stamp: Stamp) {
    match &node.place {
        RowLocation::Own => batch.put(key::inode(node.rnode.ino), node.rnode.encode(stamp)),
        RowLocation::Name { dir, hash, name } => {
            let row = NameRow::Rnode(node.rnode.clone());
            batch.put(key::name(*dir, *hash, name.as_bytes()), row.encode(stamp));
        }
    }
}

/// The mode after a write by somebody without privilege: setuid goes, and setgid where the group
/// may execute (without that it means mandatory locking and stays), as `should_remove_suid` in
/// Linux.
pub(super) fn without_privileges(mode: u16) -> u16 {
    let without = mode & !0o4000;
    if mode & 0o010 != 0 { without & !0o2000 } else { without }
}
