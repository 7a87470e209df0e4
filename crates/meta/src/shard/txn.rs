//! The transaction of one operation: its batch, and the changes of memory that follow the batch.
//!
//! The functions of an operation collect both in a [`Txn`]. [`Txn::commit`] writes the batch, and
//! only then changes memory, so that a failed write leaves both as they were (I-1).

use std::ops::{Deref, DerefMut};

use pelago_store::key;
use pelago_store::rows::{NameRow, Orphan, ParentPointer, Row, Stamp};
use pelago_store::table::Batch;
use pelago_wire::{Code, Error, FileKind, Handle, InodeId, Name, NameHash, Reply, SessionId, Time};

use super::feed::Feed;
use super::locked::Locked;
use super::removed::{GoneFile, RemovedFiles};
use super::tag_changes::TagChanges;
use super::{Shard, State};
use crate::directory::Directory;
use crate::reply_cache::{ExpectedNodes, OpContext, ReplyStored, RequestKey};
use crate::row_cache::{Named, Node, RowLocation};
use crate::unsafe_changes::{Access, Subject};

/// A name in a directory, with its hash.
#[derive(Debug, Clone)]
pub(super) struct DirEntryKey {
    pub(super) dir: InodeId,
    pub(super) hash: NameHash,
    pub(super) name: Name,
}

impl DirEntryKey {
    /// Returns the key of the name's row.
    pub(super) fn row_key(&self) -> Vec<u8> {
        key::name(self.dir, self.hash, self.name.as_bytes())
    }

    /// Returns the location of an rnode that is embedded in the name's row.
    pub(super) fn location(&self) -> RowLocation {
        RowLocation::Name { dir: self.dir, hash: self.hash, name: self.name.clone() }
    }

    /// Returns the same as [`DirEntryKey::location`], without a copy of the name.
    pub(super) fn into_location(self) -> RowLocation {
        RowLocation::Name { dir: self.dir, hash: self.hash, name: self.name }
    }

    /// Returns the key of the parent pointer from an inode to this name.
    pub(super) fn parent_pointer(&self, ino: InodeId) -> Vec<u8> {
        key::parent_pointer(ino, self.dir, self.hash, self.name.as_bytes())
    }
}

impl Shard {
    /// Takes the lock for an operation that writes.
    #[inline]
    pub(super) fn begin(&self, op: impl Into<OpContext>) -> Txn<'_> {
        Txn::new(self.lock(), op.into(), USUAL_CHANGES)
    }

    /// Takes the lock for an operation that removes a name, perhaps the last one of a file.
    #[inline]
    pub(super) fn begin_removal(&self, op: OpContext) -> Txn<'_> {
        Txn::new(self.lock(), op, CHANGES_OF_REMOVAL)
    }

    /// Takes the lock for a batch that is no operation of a session: a batch of a worker, of the
    /// group commit, or of the commit of an open file.
    pub(super) fn begin_upkeep(&self) -> Txn<'_> {
        Txn::new(self.lock(), OpContext::UPKEEP, 0)
    }

    /// Returns the key of a name in a directory.
    pub(super) fn entry_key(&self, dir: InodeId, name: &Name) -> DirEntryKey {
        DirEntryKey { dir, hash: self.hasher.hash(name.as_bytes()), name: name.clone() }
    }
}

/// An operation under way: the locked shard, and the batch that the operation has collected.
pub(super) struct Txn<'a> {
    locked: Locked<'a>,
    pub(super) batch: Batch,
    /// The stamp of every row in the batch.
    stamp: Stamp,
    /// The time of the changes of this operation.
    pub(super) now: Time,
    /// The request whose reply is stored with the batch.
    request_key: Option<RequestKey>,
    /// The value of [`OpContext::author`].
    author: Option<SessionId>,
    /// The value of [`OpContext::invalidations`].
    invalidations: Option<u64>,
    /// The value of [`OpContext::expected`].
    expected: Option<ExpectedNodes>,
    /// Changes of memory, in the order in which they are made.
    changes: Vec<MemoryChange>,
    /// Directories whose `dirty` flag is in the batch.
    flagged: Vec<InodeId>,
    /// Counts of the tags that the batch changes.
    pub(super) tags: TagChanges,
}

/// A change of memory that follows the batch.
enum MemoryChange {
    NameAdded(DirEntryKey, Named),
    NameRemoved(DirEntryKey, FileKind),
    NodeChanged(Node),
    NodeRemoved(InodeId),
    /// A file that can be brought back for a while.
    FileRemoved(GoneFile),
    /// A directory, and its parent.
    DirectoryMade(InodeId, InodeId),
    DirectoryRemoved(InodeId),
    /// A directory, and its new parent.
    DirectoryMoved(InodeId, InodeId),
    DirectoryTimeSet(InodeId, Time),
    /// A directory, and whether it is closed.
    DirectoryClosed(InodeId, bool),
    ReplyStored(ReplyStored),
}

/// The changes of memory by most operations on names: a name and a node, or two names.
pub(super) const USUAL_CHANGES: usize = 2;
/// The changes of memory by a removal: the name, the node, and the files that can be brought back.
const CHANGES_OF_REMOVAL: usize = 3;

impl<'a> Deref for Txn<'a> {
    type Target = Locked<'a>;

    fn deref(&self) -> &Locked<'a> {
        &self.locked
    }
}

impl<'a> DerefMut for Txn<'a> {
    fn deref_mut(&mut self) -> &mut Locked<'a> {
        &mut self.locked
    }
}

impl<'a> Txn<'a> {
    /// Begins an operation on a locked shard. `changes`: the number of changes of memory for which
    /// space is allocated.
    #[inline]
    pub(super) fn new(locked: Locked<'a>, op: OpContext, changes: usize) -> Self {
        let OpContext { now, request_key, author, invalidations, expected } = op;
        Self {
            batch: Batch::new(),
            stamp: locked.next_stamp(),
            locked,
            now,
            request_key,
            author,
            invalidations,
            expected,
            changes: Vec::with_capacity(changes),
            flagged: Vec::new(),
            tags: TagChanges::default(),
        }
    }

    /// Checks that the names lead to the announced inodes.
    ///
    /// # Errors
    /// `Busy`.
    #[inline]
    pub(super) fn expect(&self, first: InodeId, second: Option<InodeId>) -> Result<(), Error> {
        match self.expected {
            Some(expected) if expected != (ExpectedNodes { first: Some(first), second }) => {
                Err(Code::Busy.into())
            }
            _ => Ok(()),
        }
    }

    /// Writes the batch, then changes memory. Returns the shard, still locked. An empty batch
    /// changes nothing.
    ///
    /// # Errors
    /// If the table fails; `Io` if it was opened again since the operation read what it relies on.
    pub(super) fn commit(self) -> Result<Locked<'a>, Error> {
        let Self {
            mut locked,
            batch,
            stamp,
            now,
            author,
            invalidations,
            changes,
            flagged,
            tags,
            ..
        } = self;
        if batch.is_empty() {
            assert!(changes.is_empty(), "I-1: memory would change without a batch");
            return Ok(locked);
        }
        // The table is opened again under the shard's lock, which is held here.
        if invalidations.is_some_and(|before| before != locked.shard.durability.invalidations()) {
            return Err(Code::Io.into());
        }
        assert!(tags.is_complete(), "I-12: a tag would change without its row");
        assert!(
            stamp.sequence == locked.state.sequence + 1,
            "I-1: another batch was written between the rows of this one and its commit"
        );
        locked.write(&batch)?;
        for dir in flagged {
            locked.state.directories.flagged_dirty(dir);
        }
        if let Some(author) = author
            && !locked.state.replies.is_empty()
        {
            locked.note_unsafe(author, stamp.sequence, &changes);
        }
        if let Some(feed) = &mut locked.state.feed {
            changes.iter().for_each(|change| change.feed(feed));
        }
        let removed = &locked.shard.removed;
        for change in changes {
            locked.state.apply(change, removed, now);
        }
        Ok(locked)
    }

    /// Puts a row into the batch.
    pub(super) fn put<'r>(&mut self, key: Vec<u8>, row: &impl Row<'r>) {
        self.batch.put(key, row.encode(self.stamp));
    }

    /// Deletes a row with the batch.
    pub(super) fn delete(&mut self, key: Vec<u8>) {
        self.batch.delete(key);
    }

    /// Adds the reply to the batch, for a repetition of the same request.
    pub(super) fn store_reply(&mut self, reply: &Reply) {
        if let Some(request_key) = self.request_key {
            let stored = &self.locked.state.replies;
            let safe = self.locked.shard.durability.safe();
            let change = request_key.put(&mut self.batch, reply, self.stamp, stored, safe);
            self.changes.extend(change.map(MemoryChange::ReplyStored));
        }
    }

    /// Adds the reply to an append whose bytes go to a content file. Its client holds the bytes
    /// only until the reply, so it need not know when the row is safe.
    pub(super) fn store_place(&mut self, reply: &Reply) {
        let before = self.changes.len();
        self.store_reply(reply);
        if let Some(MemoryChange::ReplyStored(stored)) = self.changes.get_mut(before) {
            stored.need_not_be_safe();
        }
    }

    /// Takes an id for a new inode. Once per block of ids this writes a batch of its own.
    ///
    /// # Errors
    /// If the table fails; `NoSpace` if the shard has no ids left.
    pub(super) fn take_id(&mut self) -> Result<InodeId, Error> {
        assert!(self.batch.is_empty(), "I-1: an id is taken before the first row of a batch");
        let id = self.locked.take_id()?;
        self.stamp = self.locked.next_stamp();
        Ok(id)
    }

    /// Adds the `dirty` flag of a directory whose names change to the batch, unless the table has
    /// it.
    pub(super) fn flag_dirty(&mut self, dir: InodeId) {
        let Some(directory) = self.locked.state.directories.get(dir) else { return };
        if !directory.is_dirty_in_table && !self.flagged.contains(&dir) {
            self.batch.put(key::partition(dir, 0), directory.row(true).encode(self.stamp));
            self.flagged.push(dir);
        }
    }

    /// Adds a name of a node: its row embeds the rnode or refers to it, as the node's location
    /// says.
    pub(super) fn put_name(&mut self, entry_key: &DirEntryKey, node: &Node) {
        let rnode = &node.rnode;
        let is_embedded = matches!(node.location, RowLocation::Name { .. });
        let row = match is_embedded {
            true => NameRow::Rnode(rnode.clone()),
            false => NameRow::Link { ino: rnode.ino, kind: rnode.kind },
        };
        self.put(entry_key.row_key(), &row);
        if !is_embedded {
            self.put(entry_key.parent_pointer(rnode.ino), &ParentPointer);
        }
        let name = entry_key.name.clone();
        let named = Named { name, ino: rnode.ino, kind: rnode.kind, is_embedded };
        self.changes.push(MemoryChange::NameAdded(entry_key.clone(), named));
    }

    /// Removes a name of a node. `replaced`: true if the batch puts another node under the same
    /// name, so that the row need not be deleted.
    pub(super) fn remove_name(&mut self, entry_key: &DirEntryKey, node: &Node, replaced: bool) {
        if !replaced {
            self.delete(entry_key.row_key());
        }
        if !matches!(node.location, RowLocation::Name { .. }) {
            self.delete(entry_key.parent_pointer(node.rnode.ino));
        }
        self.changes.push(MemoryChange::NameRemoved(entry_key.clone(), node.rnode.kind));
    }

    /// Puts the row of a node, and caches it. A node that is embedded in a name of this batch is
    /// written by [`Txn::put_name`], and needs [`Txn::cache_node`] only.
    pub(super) fn put_node(&mut self, node: Node) {
        put_node(&mut self.batch, &node, self.stamp);
        self.cache_node(node);
    }

    /// Puts the row of a node, and leaves the cache to the caller.
    pub(super) fn put_row_of(&mut self, node: &Node) {
        put_node(&mut self.batch, node, self.stamp);
    }

    /// Puts a node that is or becomes unnamed, together with its orphan row: after a crash, that
    /// row tells the server to remove the file.
    pub(super) fn put_unnamed(&mut self, node: Node) {
        assert!(node.rnode.links == 0, "I-6: an orphan row was written for a file with a name");
        let orphan = Orphan { generation: node.rnode.generation };
        self.put(key::orphan(node.rnode.ino), &orphan);
        self.put_node(node);
    }

    /// Caches a node whose row is in the batch already.
    pub(super) fn cache_node(&mut self, node: Node) {
        self.changes.push(MemoryChange::NodeChanged(node));
    }

    /// Forgets a node whose rows the batch deletes.
    pub(super) fn forget_node(&mut self, ino: InodeId) {
        self.changes.push(MemoryChange::NodeRemoved(ino));
    }

    /// Records a file whose rows the batch deletes, so that it can be brought back.
    pub(super) fn file_removed(&mut self, gone: GoneFile) {
        self.changes.push(MemoryChange::FileRemoved(gone));
    }

    /// Begins the counts of a directory that the batch creates.
    pub(super) fn add_directory(&mut self, ino: InodeId, parent: InodeId) {
        self.changes.push(MemoryChange::DirectoryMade(ino, parent));
    }

    /// Forgets the counts of a directory that the batch removes.
    pub(super) fn forget_directory(&mut self, ino: InodeId) {
        self.changes.push(MemoryChange::DirectoryRemoved(ino));
    }

    /// Records that the batch moves a directory to another parent.
    pub(super) fn move_directory(&mut self, ino: InodeId, parent: InodeId) {
        assert!(ino != parent, "I-11: a directory moves into itself");
        self.changes.push(MemoryChange::DirectoryMoved(ino, parent));
    }

    /// Closes a directory, or opens it again.
    pub(super) fn set_closed(&mut self, ino: InodeId, is_closed: bool) {
        self.changes.push(MemoryChange::DirectoryClosed(ino, is_closed));
    }

    /// Sets the `mtime` of a directory to any time, as `utimensat` does.
    pub(super) fn set_directory_mtime(&mut self, ino: InodeId, mtime: Time) {
        self.changes.push(MemoryChange::DirectoryTimeSet(ino, mtime));
    }
}

impl MemoryChange {
    /// Adds the files that it changes to the feed of the search index; also a directory whose times
    /// change.
    fn feed(&self, feed: &mut Feed) {
        match self {
            Self::NameAdded(key, named) => {
                feed.add(Handle::own(key.dir));
                feed.add(match named.is_embedded {
                    true => Handle::at(named.ino, key.dir, key.hash),
                    false => Handle::own(named.ino),
                });
            }
            Self::NameRemoved(key, _) => feed.add(Handle::own(key.dir)),
            Self::NodeChanged(node) => feed.add(node.handle()),
            Self::NodeRemoved(ino)
            | Self::DirectoryMade(ino, _)
            | Self::DirectoryMoved(ino, _)
            | Self::DirectoryRemoved(ino)
            | Self::DirectoryTimeSet(ino, _) => feed.add(Handle::own(*ino)),
            Self::ReplyStored(_) | Self::FileRemoved(_) | Self::DirectoryClosed(..) => {}
        }
    }

    /// Calls `each` with the subjects on which the change builds, or which it changes.
    fn subjects(&self, mut each: impl FnMut(Subject, Access)) {
        let inode = |ino: &InodeId| Subject::Inode(*ino);
        match self {
            Self::NameAdded(key, named) => {
                each(inode(&key.dir), Access::Read);
                each(Subject::Name(key.dir, key.hash), Access::Write);
                each(inode(&named.ino), Access::Write);
            }
            Self::NameRemoved(key, _) => {
                each(inode(&key.dir), Access::Read);
                each(Subject::Name(key.dir, key.hash), Access::Write);
                each(Subject::FewerNames(key.dir), Access::BlindWrite);
            }
            Self::NodeChanged(node) => each(inode(&node.rnode.ino), Access::Write),
            Self::DirectoryMoved(ino, parent) => {
                each(inode(parent), Access::Read);
                each(inode(ino), Access::Write);
                each(Subject::Tree, Access::Write);
            }
            Self::DirectoryRemoved(ino) => {
                each(Subject::FewerNames(*ino), Access::Read);
                each(inode(ino), Access::Write);
            }
            Self::NodeRemoved(ino)
            | Self::DirectoryMade(ino, _)
            | Self::DirectoryTimeSet(ino, _)
            | Self::DirectoryClosed(ino, _) => each(inode(ino), Access::Write),
            Self::ReplyStored(_) | Self::FileRemoved(_) => {}
        }
    }
}

impl Locked<'_> {
    /// Records the session of the changes of a batch, and whether they build on changes of other
    /// sessions.
    fn note_unsafe(&mut self, author: SessionId, sequence: u64, changes: &[MemoryChange]) {
        let safe = self.shard.durability.safe();
        let noted = &mut self.state.unsafe_changes;
        for change in changes {
            change.subjects(|subject, access| {
                noted.note(author, sequence, subject, access, safe);
            });
        }
    }
}

impl State {
    #[inline]
    fn apply(&mut self, change: MemoryChange, removed: &RemovedFiles, now: Time) {
        match change {
            MemoryChange::NameAdded(entry_key, named) => {
                self.changed.insert(entry_key.dir);
                self.changed.insert(named.ino);
                if let Some(directory) = self.directories.get_mut(entry_key.dir) {
                    let is_directory = named.kind == FileKind::Directory;
                    directory.name_added(entry_key.hash, is_directory, now);
                }
                self.rows.put_named(entry_key.dir, entry_key.hash, named);
            }
            MemoryChange::NameRemoved(entry_key, kind) => {
                self.changed.insert(entry_key.dir);
                if let Some(directory) = self.directories.get_mut(entry_key.dir) {
                    let is_directory = kind == FileKind::Directory;
                    directory.name_removed(entry_key.hash, is_directory, now);
                }
                self.rows.remove_named(entry_key.dir, entry_key.hash);
            }
            MemoryChange::NodeChanged(node) => {
                self.changed.insert(node.rnode.ino);
                self.rows.put_node(node);
            }
            MemoryChange::NodeRemoved(ino) => self.rows.remove_node(ino),
            MemoryChange::FileRemoved(gone) => removed.add(gone),
            MemoryChange::DirectoryMade(ino, parent) => {
                self.directories.insert(ino, Directory::empty(now, parent));
            }
            MemoryChange::DirectoryRemoved(ino) => self.directories.remove(ino),
            MemoryChange::DirectoryMoved(ino, parent) => {
                self.directory_moves += 1;
                if let Some(directory) = self.directories.get_mut(ino) {
                    directory.parent = Some(parent);
                }
            }
            MemoryChange::DirectoryClosed(ino, true) => drop(self.closed.insert(ino)),
            MemoryChange::DirectoryClosed(ino, false) => drop(self.closed.remove(&ino)),
            MemoryChange::ReplyStored(stored) => self.replies.apply(stored),
            MemoryChange::DirectoryTimeSet(ino, mtime) => {
                if let Some(directory) = self.directories.get_mut(ino) {
                    directory.mtime = mtime;
                }
            }
        }
    }
}

/// Puts the row of a node at its location.
fn put_node(batch: &mut Batch, node: &Node, stamp: Stamp) {
    match &node.location {
        RowLocation::Own => batch.put(key::inode(node.rnode.ino), node.rnode.encode(stamp)),
        RowLocation::Name { dir, hash, name } => {
            let row = NameRow::Rnode(node.rnode.clone());
            batch.put(key::name(*dir, *hash, name.as_bytes()), row.encode(stamp));
        }
        RowLocation::Elsewhere => {}
    }
}
