//! Requests for open files and their bytes.

use pelago_wire::{
    AllocateMode, Code, DataPath, Entry, Handle, Name, NewMode, OpenFlags, OpenId, Reply, SetAttr,
};

use super::carry_out::Call;
use super::{Answer, Answered, Told};
use pelago_data::{Allocate, Copy, Opening, Write, Written};
use pelago_meta::reply_cache::RequestKey;

/// A place in an open file: the file, and bytes from its start.
type Offset = (OpenId, u64);

impl Call<'_> {
    pub(super) fn create(
        &self,
        dir: Handle,
        name: &Name,
        mode: NewMode,
        flags: OpenFlags,
    ) -> Answered {
        let (opens, may_block) = (&self.parts.opens, self.may_block);
        let created = opens.create(self.context, (dir, name), mode, flags, may_block)?;
        Ok(made(created, flags))
    }

    pub(super) fn create_unnamed(&self, dir: Handle, mode: NewMode, flags: OpenFlags) -> Answered {
        let (opens, may_block) = (&self.parts.opens, self.may_block);
        let created = opens.create_unnamed(self.context, dir, mode, flags, may_block)?;
        Ok(made(created, flags))
    }

    /// Sets attributes. A session other than the direct one sets rows alone, so that its reply can
    /// be stored with them.
    pub(super) fn set_attr(&self, node: Handle, open: Option<OpenId>, set: &SetAttr) -> Answered {
        let attr = if RequestKey::of(self.context).is_some() {
            self.parts.shard.set_attr(node, set, self.asked())?
        } else {
            self.parts.opens.set_attr(node, open, set, self.may_block)?
        };
        Ok(Reply::Attr(attr).into())
    }

    pub(super) fn open(&self, node: Handle, flags: OpenFlags) -> Answered {
        // The request does not say whether setuid and setgid bits survive writes by a descriptor.
        let kill_privileges = flags.kill_privileges || (flags.passthrough && !self.is_root());
        let asked = OpenFlags { kill_privileges, ..flags };
        let Opening { open, attr, path } = self.parts.opens.open(node, asked, self.may_block)?;
        let passes = matches!(path, DataPath::Passthrough(_));
        Ok(opened(Reply::Opened { open, attr, path }, passes, flags))
    }

    pub(super) fn fsync(&self, open: OpenId, data_only: bool) -> Answered {
        self.parts.opens.fsync(open, data_only, self.may_block)?;
        Ok(Answer::WhenSafe(Reply::Done, Told::Open(open)))
    }

    pub(super) fn fsync_dir(&self, dir: Handle, since: Option<u64>) -> Answered {
        self.parts.shard.attr(dir)?;
        if self.parts.durability.writeback_errors.report(dir.ino, since) {
            return Err(Code::Io.into());
        }
        Ok(Answer::WhenSafe(Reply::Done, Told::Directory(dir.ino)))
    }

    pub(super) fn write(&self, (open, offset): Offset, kill_privileges: bool) -> Answered {
        let write = Write { offset, bytes: self.bytes, kill_privileges };
        Ok(written(self.parts.opens.write(open, write, self.may_block)?, open))
    }

    pub(super) fn allocate(
        &self,
        (open, offset): Offset,
        length: u64,
        mode: AllocateMode,
    ) -> Answered {
        let asked = Allocate { offset, length, mode, kill_privileges: !self.is_root() };
        let sync = self.parts.opens.allocate(open, asked, self.may_block)?;
        Ok(if sync { Answer::WhenSafe(Reply::Done, Told::Open(open)) } else { Reply::Done.into() })
    }

    pub(super) fn copy(&self, from: Offset, to: Offset, length: u64) -> Answered {
        let kill_privileges = !self.is_root();
        let ((from, from_offset), (to, to_offset)) = (from, to);
        let copy = Copy { from, from_offset, to, to_offset, length, kill_privileges };
        Ok(written(self.parts.opens.copy_range(copy, self.may_block)?, to))
    }

    /// Changes by other users take setuid and setgid bits away if the kernel does not say who may
    /// keep them.
    const fn is_root(&self) -> bool {
        self.context.uid == 0
    }
}

fn made((entry, open, path): (Entry, OpenId, DataPath), flags: OpenFlags) -> Answer {
    let passes = matches!(path, DataPath::Passthrough(_));
    opened(Reply::Created { entry, open, path }, passes, flags)
}

/// A program that writes synchronously past the server relies on the `writing` row to be safe. If
/// that fails, the program never has the file open.
fn opened(reply: Reply, passes: bool, flags: OpenFlags) -> Answer {
    if passes && flags.write && flags.sync {
        Answer::WhenSafe(reply, Told::Nothing)
    } else {
        reply.into()
    }
}

fn written(written: Written, open: OpenId) -> Answer {
    let reply = Reply::Written { bytes: written.bytes, size: written.size };
    if written.sync { Answer::WhenSafe(reply, Told::Open(open)) } else { Answer::Now(reply) }
}
