//! Inodes that are open, and what open files know better than their rows.

use pelago_wire::{Attr, Error, Generation, Handle, InodeId, Time};

use super::Shard;
use crate::cache::Node;

/// An inode that is open.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Held {
    /// How often.
    pub opens: u32,
    /// What is not committed yet.
    pub live: Option<Live>,
}

/// Size and times of an open file that its row does not have yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Live {
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes on the medium.
    pub blocks: u64,
    /// Last change of the bytes.
    pub mtime: Time,
    /// Last change of the bytes or of the times; the row's may be later.
    pub ctime: Time,
}

impl Live {
    /// The attributes as they are now.
    #[must_use]
    pub(crate) fn merge(&self, attr: Attr) -> Attr {
        Attr {
            size: self.size,
            blocks: self.blocks,
            mtime: self.mtime,
            ctime: self.ctime.max(attr.ctime),
            ..attr
        }
    }
}

impl Shard {
    /// Holds an inode that is being opened: while it is held its rows stay, whatever happens to its
    /// names. Answers the node as stored.
    ///
    /// # Errors
    /// `Stale` where it is gone.
    pub(crate) fn hold(&self, handle: Handle) -> Result<Node, Error> {
        let mut state = self.lock();
        let node = self.node(&mut state, handle)?;
        state.held.entry(node.rnode.ino).or_default().opens += 1;
        Ok(node)
    }

    /// Lets go of a held inode. Answers whether it has neither name nor holder now, so that its
    /// orphan row can be worked off.
    pub(crate) fn let_go(&self, ino: InodeId) -> bool {
        let mut state = self.lock();
        let Some(held) = state.held.get_mut(&ino) else { return false };
        held.opens -= 1;
        if held.opens > 0 {
            return false;
        }
        state.held.remove(&ino);
        state.rows.node(ino).is_none_or(|node| node.rnode.deleted_at != Time::default())
    }

    /// Whether an inode is held.
    #[cfg(test)]
    pub(crate) fn is_held(&self, ino: InodeId) -> bool {
        self.lock().held.contains_key(&ino)
    }

    /// An open file knows its size and times better than its row, or (`None`) no better any more.
    /// Without effect where it is not held.
    pub(crate) fn set_live(&self, ino: InodeId, live: Option<Live>) {
        if let Some(held) = self.lock().held.get_mut(&ino) {
            held.live = live;
        }
    }

    /// The generation that the next content file of an inode gets.
    #[must_use]
    pub(crate) fn next_generation(last: Option<Generation>) -> Generation {
        last.map_or(Generation::FIRST, |last| Generation(last.0 + 1))
    }
}
