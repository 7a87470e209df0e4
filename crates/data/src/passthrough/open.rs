//! Opens by passthrough, or by requests if passthrough is not possible.

use std::io;
use std::sync::Arc;

use pelago_meta::shard::AttrSource;
use pelago_store::content::FileAccess;
use pelago_wire::{Backing, Code, DataPath, Entry, Error, Handle, OpenFlags};

use crate::blocking::{MayBlock, OpError};
use crate::inode::Inode;
use crate::inode_guard::InodeGuard;
use crate::open::Opening;
use crate::open_content::content_missing;
use crate::open_files::OpenFiles;
use crate::open_key::OpenKey;
use crate::open_table::PathKind;
use crate::passthrough::observer::Observer;

impl OpenFiles {
    /// Opens a file that has a content file, for a caller that can use a descriptor of it. If
    /// passthrough is not possible now, the open is by requests.
    ///
    /// # Errors
    /// Those of [`OpenFiles::open`].
    pub(crate) fn open_passthrough(
        &self,
        open: OpenKey,
        handle: Handle,
        flags: OpenFlags,
        may_block: MayBlock,
    ) -> Result<Opening, OpError> {
        if flags.sync && flags.write && may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let _permit = self.io_permit_for(handle.ino, may_block)?;
        let (inode, _) = self.enter(handle, flags.write)?;
        let mut guard = self.lock(&inode);
        if flags.write && may_block == MayBlock::No && self.is_pinned(handle.ino) {
            guard.release(true)?;
            return Err(OpError::WouldBlock);
        }
        match guard.choose_path(open, flags) {
            Ok(opening) => Ok(opening),
            Err(error) => {
                guard.release(flags.write)?;
                Err(error.into())
            }
        }
    }

    /// Opens a file that was just created, with a content file. If that fails, the file begins in
    /// memory.
    ///
    /// # Errors
    /// If the table or the disk fails.
    pub(crate) fn open_with_content(
        &self,
        open: OpenKey,
        mut entry: Entry,
        inode: Inode,
        flags: OpenFlags,
    ) -> Result<(Entry, DataPath), Error> {
        let handle = entry.handle;
        let inode = self.opens.enter(handle.ino, flags.write, || inode);
        let mut guard = self.lock(&inode);
        let passes = flags.passthrough && self.placement.passes();
        // `InodeGuard::grant` gives the kernel a descriptor that is open to read only.
        let access = if passes { FileAccess::Read } else { FileAccess::ReadWrite };
        let opened = match guard.begin_with_content(access) {
            Ok(()) if passes => guard.choose_path(open, flags),
            begun => {
                if let Err(error) = begun {
                    tracing::debug!(ino = %handle.ino, %error, "a new file begins in memory");
                }
                guard.open_by_requests(open, flags, PathKind::by_requests(flags))
            }
        };
        match opened {
            Ok(Opening { attr, path }) => {
                entry.attr = attr;
                Ok((entry, path))
            }
            Err(error) => {
                guard.release(flags.write)?;
                Err(error)
            }
        }
    }
}

impl InodeGuard<'_> {
    /// Opens the file by passthrough if that is possible now, else by requests.
    fn choose_path(&mut self, open: OpenKey, flags: OpenFlags) -> Result<Opening, Error> {
        let opens = &self.files.opens;
        let ino = self.ino();
        self.load()?;
        if flags.truncate {
            self.truncate_at_open(flags)?;
        }
        // The server must see the writes to a file in error; a kernel with a descriptor hides them.
        let in_error = self.files.writing.is_in_error(ino);
        // Pinned bytes are copied only when the file changes, and need no copy if it is emptied
        // first: the kernel opens a file and then truncates it.
        let keeps = flags.write && self.files.is_pinned(ino);
        let passes = !(in_error || keeps) || opens.passthrough_opens(ino) > 0;
        if self.state.has_content()
            && passes
            && opens.insert(open, self.inode, flags, PathKind::Passthrough)?
        {
            let opened = self.finish_passthrough_open(flags);
            if opened.is_err() {
                opens.remove(open);
            }
            return opened;
        }
        // Linux fails an open with `EIO` while the inode is open by the other path. Passthrough
        // opens are counted under the lock of the state, which we hold: if passthrough was refused,
        // this path is free.
        self.open_by_requests(open, flags, PathKind::Cached)
    }

    /// Adds an open by requests to the table.
    fn open_by_requests(
        &self,
        open: OpenKey,
        flags: OpenFlags,
        path: PathKind,
    ) -> Result<Opening, Error> {
        // The attributes come first: an open that fails must leave nothing to release.
        let attr = self.files.shard.attr(self.handle())?;
        match self.files.opens.insert(open, self.inode, flags, path)? {
            true => Ok(Opening { attr, path: DataPath::Cached }),
            false => Err(Code::Bug.into()),
        }
    }

    /// Finishes an open by passthrough that is in the table.
    fn finish_passthrough_open(&mut self, flags: OpenFlags) -> Result<Opening, Error> {
        if flags.write && flags.kill_privileges && !flags.truncate {
            // The writes are no requests: the bits that the first write would clear are cleared
            // now.
            self.kill_privileges()?;
        }
        let path = DataPath::Passthrough(self.grant(flags)?);
        match self.files.shard.attr(self.handle()) {
            Ok(attr) => Ok(Opening { attr, path }),
            Err(error) => {
                self.passthrough_closed(flags);
                Err(error)
            }
        }
    }

    /// Returns the descriptor of the content file for an open that is counted already. For an open
    /// to write, the `writing` row exists and the file has external writers when this returns.
    fn grant(&mut self, flags: OpenFlags) -> Result<Backing, Error> {
        let observer = self.observe()?;
        let content = match observer.content() {
            Some(content) => content,
            None => self.open_content_to_read()?,
        };
        observer.open(&content);
        if flags.write {
            self.begin_external_writes(&observer, false)?;
            if flags.sync {
                // The kernel syncs the bytes that it writes, but not the name of the file.
                self.files.sync_name(&content)?;
            }
        }
        if flags.read && !flags.no_atime {
            self.prepare_passthrough_read(&observer);
            observer.add_reader();
        }
        Ok(content.backing())
    }

    /// Undoes [`InodeGuard::grant`] for an open that has no id any more.
    pub(crate) fn passthrough_closed(&self, flags: OpenFlags) {
        let Some(observer) = &self.state.observer else { return };
        if flags.read && !flags.no_atime {
            // A read of the attributes makes the shard record the reads.
            if self.files.shard.attr(self.handle()).is_ok() {
                self.inode.note_atime_uncommitted();
            }
            observer.remove_reader();
        }
    }

    /// Returns the observer of the content file; it starts now if there is none.
    ///
    /// # Errors
    /// `Corrupt` if the content file is missing; if the disk fails.
    pub(crate) fn observe(&mut self) -> Result<Arc<Observer>, Error> {
        if let Some(observer) = &self.state.observer {
            return Ok(Arc::clone(observer));
        }
        let disk = &self.files.disk;
        let ino = self.ino();
        // Callers have checked that the bytes are in a content file.
        let generation = self.state.bytes.generation().ok_or(Code::Bug)?;
        let observer = Observer::new(&disk.content, ino, generation);
        let observer = observer.map_err(|error| match error.source.kind() {
            io::ErrorKind::NotFound => content_missing(ino),
            _ => disk.failed(&error),
        })?;
        self.state.observer = Some(Arc::clone(&observer));
        let source = Arc::clone(&observer) as Arc<dyn AttrSource>;
        self.files.shard.set_attr_source(ino, Some(source));
        Ok(observer)
    }
}
