//! Opens of files, and their FLUSH and RELEASE.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pelago_meta::shard::{NewInode, WritingRow};
use pelago_store::clock;
use pelago_wire::{
    Attr, Code, Context, DataPath, Entry, Error, FileKind, Handle, Name, NewMode, OpenFlags,
    OpenId, RecordedPeer, SessionId,
};

use crate::blocking::{MayBlock, OpError};
use crate::inode::Inode;
use crate::inode_guard::InodeGuard;
use crate::open_files::OpenFiles;
use crate::open_key::OpenKey;
use crate::open_table::PathKind;

/// The result of an open.
#[derive(Debug)]
pub struct Opening {
    /// The attributes of the file after the open.
    pub attr: Attr,
    /// The data path of the open.
    pub path: DataPath,
}

impl OpenFiles {
    /// Creates an ordinary file and opens it.
    ///
    /// # Errors
    /// Those of `Shard::create`; `TooManyOpen`; `Invalid` if the session's number is in use;
    /// [`OpError::WouldBlock`].
    pub fn create(
        &self,
        context: &Context,
        open: OpenId,
        dir: Handle,
        name: &Name,
        mode: NewMode,
        flags: OpenFlags,
        may_block: MayBlock,
    ) -> Result<(Entry, DataPath), OpError> {
        let new = NewInode::file(mode);
        let now = clock::of_request(context);
        let create = || self.shard.create_open(context, dir, name, new, now);
        self.open_created(OpenKey::of(context, open), dir, flags, may_block, create)
    }

    /// Creates an ordinary file without a name and opens it.
    ///
    /// # Errors
    /// Those of `Shard::create_unnamed`; `TooManyOpen`; `Invalid` if the session's number is in
    /// use; [`OpError::WouldBlock`].
    pub fn create_unnamed(
        &self,
        context: &Context,
        open: OpenId,
        dir: Handle,
        mode: NewMode,
        flags: OpenFlags,
        may_block: MayBlock,
    ) -> Result<(Entry, DataPath), OpError> {
        let new = NewInode::file(mode);
        let create = || self.shard.create_unnamed(context, dir, new, clock::of_request(context));
        self.open_created(OpenKey::of(context, open), dir, flags, may_block, create)
    }

    /// Opens the file that `create` creates in `dir`, and that is open in the shard.
    fn open_created(
        &self,
        open: OpenKey,
        dir: Handle,
        flags: OpenFlags,
        may_block: MayBlock,
        create: impl FnOnce() -> Result<Entry, Error>,
    ) -> Result<(Entry, DataPath), OpError> {
        self.opens.check_room(open)?;
        let with_content = self.placement.begins_with_content(dir.ino, flags);
        let _permit = match with_content {
            true if flags.sync && may_block == MayBlock::No => return Err(OpError::WouldBlock),
            true => self.io_permit(may_block)?,
            false => None,
        };
        let entry = create()?;
        let inode = Inode::created(&entry, dir.ino, &self.memory);
        if with_content {
            return Ok(self.open_with_content(open, entry, inode, flags)?);
        }
        let (inode, inserted) = self.opens.insert_created(open, inode, flags);
        if let Err(error) = inserted {
            self.lock(&inode).release(flags.write)?;
            return Err(error.into());
        }
        // The inode is new, so that no other open can refuse this one its path.
        Ok((entry, DataPath::Cached))
    }

    /// Opens an ordinary file.
    ///
    /// # Errors
    /// `Stale`, `IsDirectory`, `Invalid` for another kind of file or a number that is in use,
    /// `TooManyOpen`; [`OpError::WouldBlock`].
    pub fn open(
        &self,
        open: OpenKey,
        handle: Handle,
        flags: OpenFlags,
        may_block: MayBlock,
    ) -> Result<Opening, OpError> {
        self.opens.check_room(open)?;
        // The server does not count the bytes that a kernel writes to a descriptor, so no open to
        // write is by passthrough while the disk is nearly full.
        let must_count = flags.write && self.disk.space.is_short();
        let may_pass = flags.passthrough && self.placement.passes() && !must_count;
        if may_pass && self.shard.has_content(handle)? {
            return self.open_passthrough(open, handle, flags, may_block);
        }
        let _permit =
            if flags.truncate { self.io_permit_to_change(handle.ino, may_block)? } else { None };
        let (inode, mut attr) = self.enter(handle, flags.write)?;
        if flags.truncate {
            let mut guard = self.lock(&inode);
            match guard.load().and_then(|()| guard.truncate_at_open(flags)) {
                Ok(truncated) => attr = truncated,
                Err(error) => {
                    guard.release(flags.write)?;
                    return Err(error.into());
                }
            }
        }
        let insert = |path| match self.opens.insert(open, &inode, flags, path) {
            Ok(inserted) => Ok(inserted),
            Err(error) => self.lock(&inode).release(flags.write).and(Err(error)),
        };
        if insert(PathKind::by_requests(flags))? {
            return Ok(Opening { attr, path: path_by_requests(&inode) });
        }
        if must_count && insert(PathKind::Direct)? {
            // Other opens are by passthrough: the kernel may keep no pages of the file.
            return Ok(Opening { attr, path: DataPath::Direct });
        }
        // The file has got its content file meanwhile, and was opened by passthrough.
        self.lock(&inode).release(flags.write)?;
        self.open_passthrough(open, handle, flags, may_block)
    }

    /// Opens an ordinary file under a number under which it was open in an earlier run of the
    /// server, or still is. Truncates nothing.
    ///
    /// # Errors
    /// As [`OpenFiles::open`]; `Invalid` if another file is open under the number.
    pub fn open_again(
        &self,
        open: OpenKey,
        handle: Handle,
        flags: OpenFlags,
        may_block: MayBlock,
    ) -> Result<Opening, OpError> {
        let flags = OpenFlags { truncate: false, kill_privileges: false, ..flags };
        match self.open(open, handle, flags, may_block) {
            Err(OpError::Failed(Error { code: Code::Invalid, .. })) => {}
            opened => return opened,
        }
        let known = self.opens.get(open)?;
        if known.inode.handle.ino != handle.ino {
            return Err(Code::Invalid.into());
        }
        Ok(Opening { attr: self.shard.attr(handle)?, path: path_by_requests(&known.inode) })
    }

    /// Commits the bytes of an open file if they are in memory, and returns whether they are. Bytes
    /// in a content file survive the death of the process without a commit.
    ///
    /// # Errors
    /// `BadOpen`; `Stale`; if the table fails.
    pub fn commit_memory(&self, open: OpenKey) -> Result<bool, Error> {
        let opened = self.opens.get(open)?;
        let mut guard = self.lock(&opened.inode);
        match guard.state.has_content() {
            true => Ok(false),
            false => guard.commit(WritingRow::Keep).map(|()| true),
        }
    }

    /// Commits the bytes that were written through this open, as `close` does for each descriptor.
    ///
    /// # Errors
    /// `BadOpen`; `NoSpace`; if the table or the disk fails; for an open to write, an error of the
    /// file that it has not reported; [`OpError::WouldBlock`].
    pub fn flush(&self, open: OpenKey, may_block: MayBlock) -> Result<(), OpError> {
        let opened = self.opens.get(open)?;
        let mut guard = self.lock_if(&opened.inode, may_block)?;
        guard.refresh();
        let committed = if guard.state.is_uncommitted() {
            let _permit = if guard.state.has_content() { self.io_permit(may_block)? } else { None };
            guard.commit(WritingRow::Keep)
        } else {
            Ok(())
        };
        drop(guard);
        // The close of a reader does not report the error of a writer.
        let error = if opened.flags.write { self.check_errors(open, &opened.inode) } else { None };
        Ok(error.map_or(committed, Err)?)
    }

    /// Ends an open.
    ///
    /// # Errors
    /// Those of [`OpenFiles::flush`]; the open has ended all the same, unless the error is
    /// [`OpError::WouldBlock`].
    pub fn release(&self, open: OpenKey, may_block: MayBlock) -> Result<(), OpError> {
        let opened = self.opens.get(open)?;
        let guard = self.lock_if(&opened.inode, may_block)?;
        let needs_disk = guard.state.has_content() && guard.state.is_uncommitted();
        let _permit = if needs_disk { self.io_permit(may_block)? } else { None };
        if !self.opens.remove(open) {
            return Err(Code::BadOpen.into());
        }
        if opened.path == PathKind::Passthrough {
            guard.passthrough_closed(opened.flags);
        }
        Ok(guard.release(opened.flags.write)?)
    }

    /// Begins a session of this peer: its opens are counted in the share of the peer.
    pub fn begin_session(&self, session: SessionId, peer: RecordedPeer) {
        self.opens.begin_session(session, peer);
    }

    /// Ends all opens of a session that sends no more requests. Blocks on the disk.
    pub fn end_session(&self, session: SessionId) {
        for open in self.opens.opens_of(session) {
            match self.release(open, MayBlock::Yes) {
                Ok(()) => {}
                Err(error) => tracing::warn!(
                    session = session.0,
                    open = open.open.0,
                    ?error,
                    "an open of a session that ended is not committed yet"
                ),
            }
        }
        self.opens.end_session(session);
    }

    /// Adds an opener to an inode. Each opener leaves by [`InodeGuard::release`].
    ///
    /// # Errors
    /// `Stale`, `IsDirectory`, `Invalid` for another kind of file.
    pub(crate) fn enter(&self, handle: Handle, writes: bool) -> Result<(Arc<Inode>, Attr), Error> {
        let (node, attr) = self.shard.acquire(handle)?;
        if node.rnode.bytes_at.is_some() {
            self.has_elsewhere.store(true, Ordering::Release);
        }
        let refused = match node.rnode.kind {
            FileKind::Regular => {
                let make = || {
                    let unseen = self.durability.writeback_errors.take(handle.ino);
                    let unseen = unseen.then(|| Code::Io.into());
                    Inode::stored(node.handle(), &self.memory, unseen)
                };
                return Ok((self.opens.enter(handle.ino, writes, make), attr));
            }
            FileKind::Directory => Code::IsDirectory,
            _ => Code::Invalid,
        };
        if self.shard.release(handle.ino) {
            (self.notify_orphans)();
        }
        Err(refused.into())
    }
}

impl InodeGuard<'_> {
    /// Empties a file that is loaded, as `O_TRUNC` does. Returns its attributes.
    pub(crate) fn truncate_at_open(&mut self, flags: OpenFlags) -> Result<Attr, Error> {
        self.truncate(0)?;
        if flags.kill_privileges {
            self.kill_privileges()?;
        }
        self.files.shard.attr(self.handle())
    }
}

/// Returns the path of an open by requests. While other opens are by passthrough the kernel may
/// keep no pages of the file.
fn path_by_requests(inode: &Inode) -> DataPath {
    if inode.has_external_writers() { DataPath::Direct } else { DataPath::Cached }
}
