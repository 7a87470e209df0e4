//! Commits of an open file: its bytes, size and times go to its rows.

use pelago_store::key;
use pelago_store::rows::{self, Orphan, Writing};
use pelago_wire::{Attr, Error, Generation, Handle, InodeId, Reply, Time};

use super::txn::Txn;
use super::{LiveAttrs, Shard};
use crate::reply_cache::{OpContext, RequestKey};
use crate::row_cache::Node;

/// A commit of an open file.
#[derive(Debug, Clone, Copy)]
pub struct BytesChange<'a> {
    /// Size, blocks and times; `None` keeps those of the row.
    pub live: Option<LiveAttrs>,
    /// Time of the last read; `None` keeps that of the row, or writes the time that waits for the
    /// next group commit.
    pub atime: Option<Time>,
    /// The change of the inline bytes.
    pub inline: InlineBytes<'a>,
    /// The content file that has the bytes from now on; `None` keeps that of the row.
    pub generation: Option<Generation>,
    /// The change of the site that has the bytes.
    pub place: BytesPlace,
    /// The change of the `writing` row.
    pub writing_row: WritingRow,
    /// True if setuid is cleared, and setgid if the group may execute, as by a write without
    /// privilege.
    pub kill_privileges: bool,
    /// The append that changed the bytes; its reply is stored.
    pub append: Option<Appended>,
}

/// An append, and the position of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The request.
    pub request_key: RequestKey,
    /// The offset of the first byte.
    pub at: u64,
    /// The number of bytes that were written.
    pub bytes: u64,
}

impl Appended {
    /// Returns the reply that is stored.
    const fn reply(&self) -> Reply {
        Reply::Written { bytes: self.bytes, size: self.at.saturating_add(self.bytes) }
    }

    /// Returns the append that has this stored reply.
    #[must_use]
    pub fn of_reply(request_key: RequestKey, reply: &Reply) -> Option<Self> {
        match *reply {
            Reply::Written { bytes, size } => {
                size.checked_sub(bytes).map(|at| Self { request_key, at, bytes })
            }
            _ => None,
        }
    }
}

/// The change of a file's inline bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InlineBytes<'a> {
    /// No change.
    Keep,
    /// They are replaced by these, all bytes of the file.
    Put(&'a [u8]),
    /// They are deleted, because the file is empty or its bytes are in a content file.
    Delete,
}

/// The change of the site that has a file's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BytesPlace {
    /// No change.
    Keep,
    /// They are here from now on.
    Here,
    /// They are in this node of another site. A content file that there was has none any more.
    At(InodeId),
}

/// The change of a file's `writing` row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritingRow {
    /// No change.
    Keep,
    /// It is written, for the content file of this change, else for that of the row.
    Put,
    /// It is deleted, because the bytes are safe and no program writes them.
    Delete,
}

impl BytesChange<'_> {
    /// A commit that changes nothing yet.
    pub const NOTHING: Self = Self {
        live: None,
        atime: None,
        inline: InlineBytes::Keep,
        generation: None,
        place: BytesPlace::Keep,
        writing_row: WritingRow::Keep,
        kill_privileges: false,
        append: None,
    };

    /// Returns whether this commit is part of a truncation: its last step, or the `writing` row
    /// before that.
    fn frees_space(&self, node: &Node) -> bool {
        let is_shorter = self.live.is_some_and(|live| live.size < node.rnode.size);
        is_shorter || self.writing_row == WritingRow::Put && self.generation.is_none()
    }

    /// Changes the rnode. Returns whether it is different now.
    fn apply(&self, node: &mut Node) -> bool {
        let rnode = &mut node.rnode;
        let before = rnode.clone();
        if let Some(live) = self.live {
            rnode.size = live.size;
            rnode.blocks = live.blocks;
            rnode.mtime = live.mtime;
            rnode.ctime = rnode.ctime.max(live.ctime);
        }
        if let Some(atime) = self.atime {
            rnode.atime = atime;
        }
        match self.inline {
            InlineBytes::Keep => {}
            InlineBytes::Put(_) => rnode.flags.inline = true,
            InlineBytes::Delete => rnode.flags.inline = false,
        }
        if let Some(generation) = self.generation {
            rnode.generation = Some(generation);
            rnode.flags.has_content = true;
        }
        match self.place {
            BytesPlace::Keep => {}
            BytesPlace::Here => rnode.bytes_at = None,
            BytesPlace::At(node) => {
                rnode.bytes_at = Some(node);
                rnode.flags.has_content = false;
            }
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

    /// Puts the other rows of the file.
    fn put_beside(&self, txn: &mut Txn<'_>, node: &Node) {
        let ino = node.rnode.ino;
        match self.inline {
            InlineBytes::Keep => {}
            InlineBytes::Put(bytes) => txn.put(key::inline(ino), &rows::Inline { bytes }),
            InlineBytes::Delete => txn.delete(key::inline(ino)),
        }
        if self.generation.is_some() && node.rnode.links == 0 {
            // The worker that removes the file finds its content file by the orphan row.
            txn.put(key::orphan(ino), &Orphan { generation: node.rnode.generation });
        }
        match (self.writing_row, node.rnode.generation) {
            (WritingRow::Put, Some(generation)) => {
                let Handle { dir, hash, .. } = node.handle();
                txn.put(key::writing(ino), &Writing { dir, hash, generation });
            }
            (WritingRow::Delete, _) => txn.delete(key::writing(ino)),
            (WritingRow::Keep | WritingRow::Put, _) => {}
        }
    }
}

/// Commits an open file: afterwards its row is up to date, and its [`LiveAttrs`] are forgotten.
/// Returns the attributes, and the sequence of the batch.
///
/// # Errors
/// `Stale` if the file is gone; if the table fails, and then nothing has changed.
pub(super) fn commit(
    shard: &Shard,
    handle: Handle,
    change: &BytesChange<'_>,
) -> Result<(Attr, u64), Error> {
    let mut txn = begin(shard, change.append.as_ref());
    let mut node = txn.node(handle)?;
    let read_at = shard.open_inodes.read_time(handle.ino);
    let change = &BytesChange { atime: change.atime.or(read_at), ..*change };
    if change.frees_space(&node) {
        txn.batch.allow_reserve();
    }
    let is_changed = change.apply(&mut node);
    if is_changed {
        txn.put_row_of(&node);
    }
    change.put_beside(&mut txn, &node);
    if let Some(append) = &change.append {
        txn.store_reply(&append.reply());
    }
    let mut locked = txn.commit()?;
    locked.state.changed.insert(handle.ino);
    if is_changed {
        locked.feed(node.handle());
    }
    shard.open_inodes.committed(handle.ino, change.live.is_some());
    let attr = locked.attr_of(&node.rnode)?;
    locked.state.rows.put_node(node);
    Ok((attr, locked.state.sequence))
}

/// Stores the reply of an append in a batch of its own; deletes it if the append has written
/// nothing.
///
/// # Errors
/// If the table fails.
pub(super) fn store_append(shard: &Shard, append: &Appended) -> Result<(), Error> {
    let mut txn = begin(shard, Some(append));
    match append.bytes {
        0 => txn.delete(append.request_key.key()),
        _ => txn.store_place(&append.reply()),
    }
    txn.commit().map(drop)
}

fn begin<'a>(shard: &'a Shard, append: Option<&Appended>) -> Txn<'a> {
    let request_key = append.map(|append| append.request_key);
    Txn::new(
        shard.lock(),
        OpContext { request_key, ..OpContext::UPKEEP },
        usize::from(append.is_some()),
    )
}

/// Returns the mode after a write without privilege: without setuid, and without setgid if the
/// group may execute (otherwise that bit means mandatory locking and stays), as
/// `should_remove_suid` in Linux.
#[must_use]
pub fn without_privileges(mode: u16) -> u16 {
    let without = mode & !0o4000;
    if mode & 0o010 != 0 { without & !0o2000 } else { without }
}
