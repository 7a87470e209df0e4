//! Requests for names that need more than the shard: open files, disk space, or a search.

use std::sync::Arc;

use pelago_data::{MayBlock, OpError};
use pelago_meta::reply_cache::OpContext;
use pelago_meta::shard::{Move, NewInode, Page, Removed};
use pelago_search::Searched;
use pelago_store::clock;
use pelago_wire::{
    Code, Entry, Error, FileKind, Handle, InodeId, Name, NewMode, Operation, RenameFlags, Reply,
    Search, Tags,
};

use super::execute::{Executor, entry};
use super::{Dispatcher, OpResult, Outcome, Parts};
use crate::policy::{Asker, Guest};
use crate::replaced::ReplacedFile;

impl Dispatcher {
    /// Forgets a removed file to which the kernel of the server's own mount refers no more; see
    /// [`Service::forgotten`](pelago_wire::Service::forgotten).
    pub(super) fn forget_removed(&self, removed: InodeId) {
        let Parts { shard, notify_orphans, .. } = &self.parts;
        // The kernels of other sessions may still refer to it.
        if !self.others.any() && shard.forget_removed(removed) {
            notify_orphans();
        }
    }
}

impl Executor<'_> {
    /// Finds a file by its inode id alone. All names are scanned only for an id that was allocated.
    pub(super) fn find(&self, ino: InodeId) -> OpResult {
        let shard = &self.parts.shard;
        match shard.entry(Handle::own(ino)) {
            Err(error) if error.code == Code::Stale && shard.has_issued(ino) => {
                Ok(Outcome::WhenFound(ino))
            }
            found => entry(found),
        }
    }

    pub(super) fn make_dir(&self, dir: Handle, name: &Name, mode: NewMode) -> OpResult {
        self.make(dir, name, NewInode::directory(mode))
    }

    pub(super) fn symlink(&self, dir: Handle, name: &Name, target: &[u8]) -> OpResult {
        self.make(dir, name, NewInode::symlink(target.to_vec()))
    }

    fn make(&self, dir: Handle, name: &Name, new: NewInode) -> OpResult {
        entry(self.parts.shard.create(
            self.context,
            dir,
            name,
            new,
            clock::of_request(self.context),
        ))
    }

    pub(super) fn make_node(&self, dir: Handle, name: &Name, new: NewInode) -> OpResult {
        if matches!(new.kind, FileKind::Directory | FileKind::Symlink) {
            return Err(Code::Invalid.into());
        }
        self.make(dir, name, new)
    }

    pub(super) fn removed(&self, removed: Result<Removed, Error>) -> OpResult {
        let removed = removed?;
        self.notify_removed(removed);
        Ok(Reply::Removed(removed.attr).into())
    }

    /// Notifies the worker `orphans` of a removal, unless the worker will look by itself.
    fn notify_removed(&self, removed: Removed) {
        let Parts { shard, notify_orphans, .. } = self.parts;
        if removed.orphaned || shard.has_removed_news() {
            notify_orphans();
        }
    }

    pub(super) fn list(&self, page: Page<'_>) -> OpResult {
        let (entries, end) = self.parts.shard.list(page)?;
        Ok(Reply::Listed { entries, end }.into())
    }

    /// Measures the disk space. It may block.
    pub(super) fn stat_fs(&self) -> OpResult {
        match self.may_block {
            MayBlock::No => Err(OpError::WouldBlock),
            MayBlock::Yes => Ok(Reply::Volume(self.parts.space.measure()?).into()),
        }
    }

    /// Searches the tree below a directory. It reads many rows and texts, so it may block.
    pub(super) fn search(&self, dir: Handle, search: &Search) -> OpResult {
        let Parts { shard, content, index, .. } = self.parts;
        match self.may_block {
            MayBlock::No => Err(OpError::WouldBlock),
            MayBlock::Yes => {
                let searched = Searched { shard, content, index };
                let page = match self.asking_guest()? {
                    Some(guest) => self.search_as(&guest, Operation::Search, |view| {
                        searched.page_for_guest(self.context, dir, search, view)
                    })?,
                    None => searched.page(self.context, dir, search)?,
                };
                Ok(Reply::Found(page).into())
            }
        }
    }

    /// Finds keys or values of tags. It reads many rows, so it may block.
    pub(super) fn tags(&self, dir: Handle, tags: &Tags) -> OpResult {
        match self.may_block {
            MayBlock::No => Err(OpError::WouldBlock),
            MayBlock::Yes => {
                let Parts { shard, .. } = self.parts;
                let page = match self.asking_guest()? {
                    Some(guest) => self.search_as(&guest, Operation::Tags, |view| {
                        pelago_search::tags_for_guest(shard, self.context, dir, tags, view)
                    })?,
                    None => pelago_search::tags(shard, self.context, dir, tags)?,
                };
                Ok(Reply::Tagged(page).into())
            }
        }
    }

    /// Returns the guest whose request this is; `None` for another session's.
    ///
    /// # Errors
    /// `Stale` for a guest whose client has not come back.
    fn asking_guest(&self) -> Result<Option<Arc<Guest>>, Error> {
        match self.parts.policy.asker(self.context.session) {
            Asker::Trusted => Ok(None),
            Asker::Guest(guest) => Ok(Some(guest)),
            Asker::AbsentGuest => Err(Code::Stale.into()),
        }
    }

    /// Adds a name. An unnamed file is committed first, so that the name never appears without the
    /// bytes, even after a crash.
    pub(super) fn link(&self, node: Handle, dir: Handle, name: &Name) -> OpResult {
        let Parts { shard, opens, .. } = self.parts;
        opens.commit_unnamed(node, self.may_block)?;
        entry(shard.link(node, dir, name, self.op_context()))
    }

    /// Renames a file. If it replaces another one, the new bytes become safe before the old ones
    /// may be removed.
    pub(super) fn rename(&self, wanted: Move<'_>, flags: RenameFlags) -> OpResult {
        let Parts { shard, opens, durability, .. } = self.parts;
        let invalidations = durability.invalidations();
        let writeback_errors = durability.writeback_errors.count() > 0;
        if flags.replaces() && (opens.any_unsafe() || opens.count() > 0 || writeback_errors) {
            self.sync_source(&wanted)?;
        }
        // If the table was reopened since, the bytes that were made safe above may be lost: then
        // the shard refuses the rename.
        let op = OpContext { invalidations: Some(invalidations), ..self.op_context() };
        let held = match flags.replaces() {
            true => self.hold_target(&wanted)?,
            false => None,
        };
        let renamed = match self.may_block {
            MayBlock::No => shard.rename_at_once(self.context, wanted, flags, op).transpose(),
            MayBlock::Yes => Some(shard.rename(self.context, wanted, flags, op)),
        };
        if let Some(held) = held {
            let renamed = renamed.and_then(Result::ok);
            let replaced = renamed.and_then(|renamed| renamed.replaced);
            self.parts.replaced.settle(held, replaced.map(|removed| removed.attr.ino));
        }
        let renamed = renamed.ok_or(OpError::WouldBlock)??;
        if let Some(removed) = renamed.replaced {
            self.notify_removed(removed);
        }
        Ok(renamed.reply().into())
    }

    /// Holds open the file that a rename of another session is about to replace, if it has no other
    /// name. The server's own mount does that by itself.
    fn hold_target(&self, wanted: &Move<'_>) -> Result<Option<ReplacedFile>, OpError> {
        let Parts { shard, replaced, space, .. } = self.parts;
        if self.is_own() || space.is_short() || !replaced.has_room() {
            return Ok(None);
        }
        let Ok(Entry { handle, attr }) = shard.lookup(wanted.to_dir, wanted.to) else {
            return Ok(None);
        };
        match (attr.links, attr.kind) {
            (1, FileKind::Regular) => match replaced.open(handle, self.may_block) {
                Err(OpError::WouldBlock) => Err(OpError::WouldBlock),
                opened => Ok(opened.ok()),
            },
            (1, FileKind::Symlink) => {
                let target = shard.read_link(handle).ok();
                Ok(target.map(|target| ReplacedFile::symlink(handle.ino, target)))
            }
            _ => Ok(None),
        }
    }

    /// Returns the target of a symbolic link, even if it was just replaced.
    pub(super) fn read_link(&self, node: Handle) -> Result<Vec<u8>, Error> {
        match self.parts.shard.read_link(node) {
            Err(error) if error.code == Code::Stale => {
                self.parts.replaced.target(node.ino).ok_or(error)
            }
            found => found,
        }
    }

    /// Makes the bytes of the renamed file safe, if it replaces another one.
    fn sync_source(&self, wanted: &Move<'_>) -> Result<(), OpError> {
        let Parts { shard, opens, .. } = self.parts;
        let source = match shard.lookup(wanted.from_dir, wanted.from) {
            // A directory of another site has no bytes.
            Err(error) if error.code == Code::Elsewhere => return Ok(()),
            found => found?.handle,
        };
        match shard.lookup(wanted.to_dir, wanted.to) {
            Err(error) if error.code == Code::NotFound => return Ok(()),
            target => target?,
        };
        opens.check_unreported_error(source.ino)?;
        if !opens.is_unsafe(source.ino) {
            return opens.commit_open(source.ino, self.may_block);
        }
        match self.may_block {
            MayBlock::No => Err(OpError::WouldBlock),
            MayBlock::Yes => Ok(opens.make_safe(source)?),
        }
    }
}
