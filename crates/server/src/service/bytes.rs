//! Requests for open files and their bytes.

use std::time::{Duration, Instant};

use pelago_data::{Allocate, Copy, MayBlock, OpError, OpenKey, Opening, Write, Written};
use pelago_meta::reply_cache::RequestKey;
use pelago_meta::shard::Appended;
use pelago_wire::{
    AllocateMode, Code, DataPath, Entry, Handle, Name, NewMode, OpenFlags, OpenId, Reply, SeekFrom,
    SessionId, SetAttr, WriteFlags, limits,
};

use super::execute::Executor;
use super::{ErrorReport, OpResult, Outcome};

/// Bytes of a block that is hashed.
const BLOCK: u64 = limits::FETCH_BLOCK_BYTES as u64;

/// The time after which no more blocks are hashed for one request.
const HASHING: Duration = Duration::from_secs(1);

impl Executor<'_> {
    pub(super) fn create(
        &self,
        dir: Handle,
        name: &Name,
        mode: NewMode,
        open: OpenId,
        flags: OpenFlags,
    ) -> OpResult {
        let flags = self.permitted(flags);
        let opens = &self.parts.opens;
        let (entry, path) =
            opens.create(self.context, open, dir, name, mode, flags, self.may_block)?;
        Ok(created(entry, path, flags))
    }

    pub(super) fn create_unnamed(
        &self,
        dir: Handle,
        mode: NewMode,
        open: OpenId,
        flags: OpenFlags,
    ) -> OpResult {
        let flags = self.permitted(flags);
        let opens = &self.parts.opens;
        let (entry, path) =
            opens.create_unnamed(self.context, open, dir, mode, flags, self.may_block)?;
        Ok(created(entry, path, flags))
    }

    pub(super) fn set_attr(&self, node: Handle, open: Option<OpenId>, set: &SetAttr) -> OpResult {
        let open = open.map(|open| self.key(open));
        let attr = self.parts.opens.set_attr(node, open, set, self.op_context(), self.may_block)?;
        let reply = Reply::Attr(attr);
        match (set.size, open) {
            (None, _) => {}
            (_, Some(open)) => drop(self.journal(open, &reply)?),
            (_, None) if self.is_own() => {}
            // The change is committed already.
            (_, None) => self.parts.shard.store_reply(self.context, &reply)?,
        }
        Ok(reply.into())
    }

    pub(super) fn open(&self, node: Handle, open: OpenId, flags: OpenFlags) -> OpResult {
        let key = self.key(open);
        let flags = self.permitted(flags);
        // The kernel does not report writes by a descriptor, so the bits are cleared when the
        // descriptor is passed.
        let kill_privileges = flags.kill_privileges || (flags.passthrough && !self.is_root());
        let how = OpenFlags { kill_privileges, ..flags };
        let Opening { attr, path } = self.parts.opens.open(key, node, how, self.may_block)?;
        if flags.truncate
            && let Err(error) = self.journal(key, &Reply::Opened { attr, path: DataPath::Cached })
        {
            self.end_failed_open(key);
            return Err(error);
        }
        let passes = matches!(path, DataPath::Passthrough(_));
        Ok(opened(Reply::Opened { attr, path }, passes, flags))
    }

    /// Releases an open whose request failed after it was made: its client will not release it.
    fn end_failed_open(&self, key: OpenKey) {
        if let Err(error) = self.parts.opens.release(key, MayBlock::Yes) {
            tracing::warn!(?error, "a file whose open failed is not committed yet");
        }
    }

    pub(super) fn reopen(&self, node: Handle, open: OpenId, flags: OpenFlags) -> OpResult {
        let Opening { attr, path } = self.open_again(node, open, flags)?;
        Ok(Reply::Opened { attr, path }.into())
    }

    /// Opens a file again under a number that the client has used before, if it is not open.
    pub(super) fn open_again(
        &self,
        node: Handle,
        open: OpenId,
        flags: OpenFlags,
    ) -> Result<Opening, OpError> {
        let key = self.key(open);
        let flags = self.permitted(flags);
        self.parts.opens.open_again(key, node, flags, self.may_block)
    }

    /// Commits bytes that a request of another session has put into memory, and stores the reply:
    /// its client may outlive this process, while the server's own mount does not. Bytes in a
    /// content file are not committed: clients drop them at the reply. Returns whether bytes were
    /// committed.
    fn journal(&self, open: OpenKey, reply: &Reply) -> Result<bool, OpError> {
        let is_in_rows = !self.is_own() && self.parts.opens.commit_memory(open)?;
        if is_in_rows {
            self.parts.shard.store_reply(self.context, reply)?;
        }
        Ok(is_in_rows)
    }

    /// Returns whether the request comes from the server's own mount.
    pub(super) fn is_own(&self) -> bool {
        self.context.session == SessionId::DIRECT
    }

    pub(super) fn fsync_dir(&self, dir: Handle, since: Option<u64>) -> OpResult {
        self.parts.shard.attr(dir)?;
        if self.is_guest.get() {
            return Ok(self.synced_dir(dir, ErrorReport::Untracked));
        }
        if self.parts.durability.writeback_errors.report(dir.ino, since) {
            return Err(Code::Io.into());
        }
        Ok(self.synced_dir(dir, ErrorReport::Directory(dir.ino)))
    }

    pub(super) fn read(&self, open: OpenId, offset: u64, size: u32) -> OpResult {
        let bytes = self.parts.opens.read(
            self.key(open),
            offset,
            size,
            self.may_block,
            self.room.take(),
        )?;
        Ok(Reply::Data(bytes).into())
    }

    /// Hashes blocks of a file for another site's server. Always on a thread of the pool: many
    /// blocks are read for one answer.
    pub(super) fn hashes(&self, open: OpenId, offset: u64, blocks: u32) -> OpResult {
        if self.parts.sites.of_session(self.context.session).is_none() {
            return Err(Code::AccessDenied.into());
        }
        let is_too_many = blocks as usize > limits::HASHED_BLOCKS;
        if blocks == 0 || is_too_many || !offset.is_multiple_of(BLOCK) {
            return Err(Code::Invalid.into());
        }
        let key = self.key(open);
        if self.parts.opens.has_writers(self.parts.opens.inode_of(key)?) {
            return Err(Code::Busy.into());
        }
        if self.may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let began = Instant::now();
        let mut hashes = Vec::with_capacity(blocks as usize);
        let mut room = vec![0; limits::FETCH_BLOCK_BYTES];
        for block in 0..u64::from(blocks) {
            let at = offset.saturating_add(block * BLOCK);
            let size = BLOCK as u32;
            let read = self.parts.opens.read(key, at, size, MayBlock::Yes, Some(&mut room));
            let read = read.map_err(|error| match error {
                // The answer that a read would get here is that of a line which is cut.
                OpError::Failed(error) if error.code == Code::HostDown => Code::Elsewhere.into(),
                error => error,
            })?;
            let bytes = read.room_bytes().map_or(read.as_bytes(), |length| &room[..length]);
            if bytes.is_empty() {
                break;
            }
            if began.elapsed() >= HASHING && !hashes.is_empty() {
                // The others are fetched: the reader waits.
                break;
            }
            hashes.push(*blake3::hash(bytes).as_bytes());
        }
        Ok(Reply::Hashes(hashes).into())
    }

    pub(super) fn seek(&self, open: OpenId, from: SeekFrom) -> OpResult {
        let offset = self.parts.opens.seek(self.key(open), from, self.may_block)?;
        Ok(Reply::Offset(offset).into())
    }

    pub(super) fn write(&self, open: OpenId, offset: u64, flags: WriteFlags) -> OpResult {
        let WriteFlags { append, kill_privileges, commit, .. } = flags;
        let write = Write { offset, append, once: None, bytes: self.bytes, kill_privileges };
        if let Some(request_key) = RequestKey::of(self.context).filter(|_| append) {
            return self.append_once(self.key(open), write, request_key);
        }
        let open = self.key(open);
        let done = self.parts.opens.write(open, write, self.may_block)?;
        self.journal(open, &reply_to(&done))?;
        if commit {
            self.parts.opens.flush(open, self.may_block)?;
        }
        Ok(self.written(done, open))
    }

    /// Appends to a file. If the request was or may have been carried out before, the bytes are
    /// written again to the same offset, and the reply is the same.
    fn append_once(&self, open: OpenKey, write: Write<'_>, request_key: RequestKey) -> OpResult {
        let Some(reply) = self.parts.shard.cached_reply(&request_key)? else {
            return self.write_placed(open, Write { once: Some(request_key), ..write });
        };
        if self.parts.grace.is_over() {
            // The session came back too late: others may have appended at that offset.
            return Err(Code::Io.into());
        }
        let append = Appended::of_reply(request_key, &reply).ok_or(Code::Corrupt)?;
        let length = usize::try_from(append.bytes).unwrap_or(usize::MAX);
        let bytes = write.bytes.get(..length).ok_or(Code::Corrupt)?;
        let again = Write { offset: append.at, append: false, bytes, ..write };
        match self.write_placed(open, again)? {
            Outcome::Reply(_) => Ok(reply.into()),
            Outcome::WhenSafe(_, report) => Ok(Outcome::WhenSafe(reply, report)),
            Outcome::WhenMirrored(awaited, _, report) => {
                Ok(Outcome::WhenMirrored(awaited, reply, report))
            }
            other => Ok(other),
        }
    }

    /// Writes the bytes of an append, whose reply is stored with the bytes or was stored before.
    fn write_placed(&self, open: OpenKey, write: Write<'_>) -> OpResult {
        let done = self.parts.opens.write(open, write, self.may_block)?;
        self.parts.opens.commit_memory(open)?;
        Ok(self.written(done, open))
    }

    pub(super) fn allocate(
        &self,
        open: OpenKey,
        offset: u64,
        length: u64,
        mode: AllocateMode,
    ) -> OpResult {
        let range = Allocate { offset, length, mode, kill_privileges: !self.is_root() };
        let sync = self.parts.opens.allocate(open, range, self.may_block)?;
        self.journal(open, &Reply::Done)?;
        Ok(if sync { self.synced(Reply::Done, open) } else { Reply::Done.into() })
    }

    pub(super) fn copy(
        &self,
        from: OpenKey,
        from_offset: u64,
        to: OpenKey,
        to_offset: u64,
        length: u64,
    ) -> OpResult {
        let kill_privileges = !self.is_root();
        let copy = Copy { from, from_offset, to, to_offset, length, kill_privileges };
        let mut done = self.parts.opens.copy_range(copy, self.may_block)?;
        // A client could not repeat the copy, because the source may have other bytes by then: so
        // it is answered when it is safe.
        done.sync |= self.journal(to, &reply_to(&done))?;
        Ok(self.written(done, to))
    }

    fn written(&self, written: Written, open: OpenKey) -> Outcome {
        let reply = reply_to(&written);
        match written.sync {
            true => self.synced(reply, open),
            false => reply.into(),
        }
    }

    /// Returns the key of an open of the caller's session.
    pub(super) const fn key(&self, open: OpenId) -> OpenKey {
        OpenKey::of(self.context, open)
    }

    /// Returns the flags of an open, without passthrough for other sessions: a descriptor can be
    /// used in this process only.
    fn permitted(&self, flags: OpenFlags) -> OpenFlags {
        OpenFlags { passthrough: flags.passthrough && self.is_own(), ..flags }
    }

    /// Returns whether setuid and setgid bits stay when the caller changes a file, for requests in
    /// which the kernel does not say so.
    const fn is_root(&self) -> bool {
        self.context.uid == 0 && !self.is_guest.get()
    }
}

fn created(entry: Entry, path: DataPath, flags: OpenFlags) -> Outcome {
    let passes = matches!(path, DataPath::Passthrough(_));
    opened(Reply::Created { entry, path }, passes, flags)
}

/// Returns the outcome of an open. If a program will write synchronously by a descriptor, which the
/// server does not see, the `writing` row must be safe before the program has the file open.
fn opened(reply: Reply, passes: bool, flags: OpenFlags) -> Outcome {
    if passes && flags.write && flags.sync {
        Outcome::WhenSafe(reply, ErrorReport::Untracked)
    } else {
        reply.into()
    }
}

fn reply_to(written: &Written) -> Reply {
    Reply::Written { bytes: written.bytes, size: written.size }
}
