//! Requests for names: what the shard needs from open files, and the other way round.

use pelago_wire::{Code, Error, FileKind, Handle, InodeId, Name, NewMode, RenameFlags, Reply};

use super::carry_out::{Call, entry};
use super::{Answer, Answered, Parts};
use pelago_data::{MayBlock, OpError};
use pelago_meta::reply_cache::OpContext;
use pelago_meta::shard::{Move, NewNode, Page, Removed};
use pelago_store::clock;

impl Call<'_> {
    /// Finds a file of which only the number is known.
    pub(super) fn find(&self, ino: InodeId) -> Answered {
        let shard = &self.parts.shard;
        match shard.found(Handle::own(ino)) {
            Err(error) if error.code == Code::Stale && shard.gave_out(ino) => {
                Ok(Answer::WhenFound(ino))
            }
            found => entry(found),
        }
    }

    pub(super) fn make_dir(&self, dir: Handle, name: &Name, mode: NewMode) -> Answered {
        self.make(dir, name, NewNode::directory(mode))
    }

    pub(super) fn symlink(&self, dir: Handle, name: &Name, target: &[u8]) -> Answered {
        self.make(dir, name, NewNode::symlink(target.to_vec()))
    }

    fn make(&self, dir: Handle, name: &Name, new: NewNode) -> Answered {
        entry(self.parts.shard.create(self.context, dir, name, new, false, clock::now()))
    }

    pub(super) fn make_node(&self, dir: Handle, name: &Name, new: NewNode) -> Answered {
        if matches!(new.kind, FileKind::Directory | FileKind::Symlink) {
            return Err(Code::Invalid.into());
        }
        self.make(dir, name, new)
    }

    pub(super) fn removed(&self, removed: Result<Removed, Error>) -> Answered {
        let removed = removed?;
        if removed.orphaned {
            (self.parts.reap)();
        }
        Ok(Reply::Removed(removed.attr).into())
    }

    pub(super) fn list(&self, page: Page<'_>) -> Answered {
        let (entries, end) = self.parts.shard.list(page)?;
        Ok(Reply::Listed { entries, end }.into())
    }

    /// Measures the space of the volume, which reads the disk.
    pub(super) fn stat_fs(&self) -> Answered {
        match self.may_block {
            MayBlock::No => Err(OpError::WouldBlock),
            MayBlock::Yes => Ok(Reply::Volume(self.parts.space.measure()?).into()),
        }
    }

    /// Adds a name. A file without one is committed first, so that a program that finds the name
    /// finds the bytes too, after a crash as well.
    pub(super) fn link(&self, node: Handle, dir: Handle, name: &Name) -> Answered {
        let Parts { shard, opens, .. } = self.parts;
        opens.commit_unnamed(node, self.may_block)?;
        entry(shard.link(node, dir, name, self.asked()))
    }

    /// Renames. Over an existing file the new bytes must be safe before the old ones can go.
    pub(super) fn rename(&self, wanted: Move<'_>, flags: RenameFlags) -> Answered {
        let Parts { shard, opens, durability, .. } = self.parts;
        let invalidations = durability.invalidations();
        let writeback_errors = durability.writeback_errors.count() > 0;
        if flags.replaces() && (opens.any_unsafe() || opens.count() > 0 || writeback_errors) {
            self.secure(&wanted)?;
        }
        // The bytes that were made safe above may have been lost since.
        let asked = OpContext { invalidations: Some(invalidations), ..self.asked() };
        let renamed = match self.may_block {
            MayBlock::No => shard.rename_at_once(self.context, wanted, flags, asked)?,
            MayBlock::Yes => Some(shard.rename(self.context, wanted, flags, asked)?),
        };
        let renamed = renamed.ok_or(OpError::WouldBlock)?;
        if renamed.replaced.is_some_and(|removed| removed.orphaned) {
            (self.parts.reap)();
        }
        Ok(renamed.reply().into())
    }

    /// Makes the bytes of the file that is renamed safe, if it replaces another one.
    fn secure(&self, wanted: &Move<'_>) -> Result<(), OpError> {
        let Parts { shard, opens, .. } = self.parts;
        let source = shard.lookup(wanted.from_dir, wanted.from)?.handle;
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
