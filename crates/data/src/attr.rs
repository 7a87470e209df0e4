//! Changes of file attributes, in the row, the open inode and the content file.

use pelago_meta::reply_cache::OpContext;
use pelago_meta::shard::WritingRow;
use pelago_wire::{Attr, Code, Error, Handle, SetAttr};

use crate::blocking::{MayBlock, OpError};
use crate::inode_guard::InodeGuard;
use crate::open_files::OpenFiles;
use crate::open_key::OpenKey;

impl OpenFiles {
    /// Changes attributes; size and times also in the content file. A truncation without an open is
    /// committed when this returns. `op` is the request, for the batch that changes the row.
    ///
    /// # Errors
    /// Those of `Shard::set_attr`; `BadOpen`, `IsDirectory`, `Invalid`, `FileTooLarge`, `NoSpace`;
    /// [`OpError::WouldBlock`].
    pub fn set_attr(
        &self,
        handle: Handle,
        open: Option<OpenKey>,
        set: &SetAttr,
        op: OpContext,
        may_block: MayBlock,
    ) -> Result<Attr, OpError> {
        if let (Some(open), Some(_)) = (open, set.size)
            && !self.opens.get(open)?.flags.write
        {
            return Err(Code::BadOpen.into());
        }
        if !self.concerns_bytes(handle, set) {
            let attr = self.shard.set_attr(handle, set, op)?;
            if let Some(inode) = self.opens.inode(handle.ino) {
                inode.invalidate_atime();
            }
            return Ok(attr);
        }
        let _permit = match set.size {
            Some(_) => self.io_permit_to_change(handle.ino, may_block)?,
            None => self.io_permit_for(handle.ino, may_block)?,
        };
        let (inode, _) = self.enter(handle, true)?;
        let changed = self.lock(&inode).set_attr(open.is_some(), set, op);
        let released = self.lock(&inode).release(true);
        let attr = changed?;
        released?;
        Ok(attr)
    }

    /// Returns whether a change of attributes concerns more than the row.
    fn concerns_bytes(&self, handle: Handle, set: &SetAttr) -> bool {
        let ino = handle.ino;
        match set {
            SetAttr { size: Some(_), .. } => true,
            SetAttr { mtime: Some(_), .. } => {
                self.writing.contains(ino) || self.opens.inode(ino).is_some()
            }
            SetAttr { atime: Some(_), .. } => self.opens.passthrough_opens(ino) > 0,
            _ => false,
        }
    }
}

impl InodeGuard<'_> {
    fn set_attr(mut self, through_open: bool, set: &SetAttr, op: OpContext) -> Result<Attr, Error> {
        let files = self.files;
        self.load()?;
        if let Some(size) = set.size {
            self.truncate(size)?;
        }
        let rest = SetAttr { size: None, ..*set };
        if through_open && rest.is_empty() {
            return files.shard.attr(self.handle());
        }
        self.commit(WritingRow::Keep)?;
        if rest.is_empty() {
            return files.shard.attr(self.handle());
        }
        if let Some(observer) = &self.state.observer {
            // Before the row: the observed times are never older than those of the row.
            let timed = observer.set_times(&rest, op.now, self.inode.has_external_writers());
            timed.map_err(|error| files.disk.failed(&error))?;
        }
        let attr = files.shard.set_attr(self.handle(), &rest, op)?;
        self.inode.invalidate_atime();
        if self.inode.has_external_writers() {
            return Ok(attr);
        }
        self.state.mtime = attr.mtime;
        self.state.ctime = attr.ctime;
        let has_row = files.writing.contains(attr.ino);
        if rest.mtime.is_some() && self.state.has_content() && has_row {
            let content = self.open_content()?;
            let timed = content.set_times(None, Some(attr.mtime));
            timed.map_err(|error| files.disk.failed(&error))?;
            let key = (attr.ino, content.generation());
            files.changes.note(key, &(0..0), self.state.size);
        }
        Ok(attr)
    }
}
