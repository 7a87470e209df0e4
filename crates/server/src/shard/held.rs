//! Inodes that are open, and what open files know better than their rows.

use pelago_store::table::Batch;
use pelago_wire::{Attr, Error, Generation, Handle, InodeId, Time};

use super::bytes::put_node;
use super::{Shard, State};
use crate::cache::Node;

/// Seconds after which a read counts again.
pub(crate) const READ_AGAIN: i64 = 24 * 60 * 60;

/// An inode that is open.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Held {
    /// How often.
    pub opens: u32,
    /// What is not committed yet.
    pub live: Option<Live>,
    /// When it was read last, where its row does not say so yet.
    pub atime: Option<Time>,
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

    /// A held file is read. As with `relatime`, that counts only where nobody has read it since it
    /// changed, or for a day. Shown at once, and in the row with its next commit or with
    /// [`Shard::commit_read`]. Answers whether it counts.
    ///
    /// # Errors
    /// `Stale` where it is gone.
    pub(crate) fn read(&self, handle: Handle, now: Time) -> Result<bool, Error> {
        let mut state = self.lock();
        let node = self.node(&mut state, handle)?;
        let attr = self.attr_of(&state, &node.rnode)?;
        let counts = read_counts(&attr, now);
        if counts && let Some(held) = state.held.get_mut(&handle.ino) {
            held.atime = Some(now);
        }
        Ok(counts)
    }

    /// Writes when a held file was read last, where its row does not say so yet. For other servers
    /// it is the same version as before.
    ///
    /// # Errors
    /// `Stale` where it is gone; where the table fails.
    pub(crate) fn commit_read(&self, handle: Handle) -> Result<(), Error> {
        let mut state = self.lock();
        let Some(atime) = state.held.get(&handle.ino).and_then(|held| held.atime) else {
            return Ok(());
        };
        let mut node = self.node(&mut state, handle)?;
        if node.rnode.links > 0 {
            node.rnode.atime = atime;
            let mut batch = Batch::new();
            put_node(&mut batch, &node, self.stamp(&state));
            self.write(&mut state, batch)?;
            state.rows.put_node(node);
        }
        state.read_is_known(handle.ino);
        Ok(())
    }

    /// The generation that the next content file of an inode gets.
    #[must_use]
    pub(crate) fn next_generation(last: Option<Generation>) -> Generation {
        last.map_or(Generation::FIRST, |last| Generation(last.0 + 1))
    }
}

impl State {
    /// The row says when an inode was read last, or somebody has set that.
    pub(super) fn read_is_known(&mut self, ino: InodeId) {
        if let Some(held) = self.held.get_mut(&ino) {
            held.atime = None;
        }
    }
}

/// Whether a read of a file with these attributes counts. Changes that are dated in the future do
/// not make every read count.
pub(crate) fn read_counts(attr: &Attr, now: Time) -> bool {
    let unseen = |change: Time| attr.atime <= change && change < now;
    unseen(attr.mtime) || unseen(attr.ctime) || now.seconds - attr.atime.seconds >= READ_AGAIN
}
