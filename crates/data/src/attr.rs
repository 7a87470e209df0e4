//! Attributes of files: those that their bytes have, too.

use pelago_wire::{Attr, Code, Error, Handle, OpenId, SetAttr};

use crate::blocking::{MayBlock, OpError};
use crate::inode::Inode;
use crate::open_files::OpenFiles;
use pelago_meta::shard::WritingRow;
use pelago_store::clock;

impl OpenFiles {
    /// Changes attributes; size and times also where the bytes are. Whoever truncates without
    /// having the file open finds that committed when this returns.
    ///
    /// # Errors
    /// As [`Shard::set_attr`]; `BadOpen`, `IsDirectory`, `Invalid`, `FileTooLarge`, `NoSpace`;
    /// [`OpError::WouldBlock`].
    pub fn set_attr(
        &self,
        handle: Handle,
        open: Option<OpenId>,
        set: &SetAttr,
        may_block: MayBlock,
    ) -> Result<Attr, OpError> {
        if let (Some(open), Some(_)) = (open, set.size)
            && !self.known.get(open)?.flags.write
        {
            return Err(Code::BadOpen.into());
        }
        let ino = handle.ino;
        let is_known = || self.marks.is_unsafe(ino) || self.known.file(ino).is_some();
        let is_ours = match set {
            SetAttr { size: Some(_), .. } => true,
            SetAttr { mtime: Some(_), .. } => is_known(),
            SetAttr { atime: Some(_), .. } => self.known.outside(ino) > 0,
            _ => false,
        };
        if !is_ours {
            let attr = self.shard.set_attr(handle, set, clock::now())?;
            self.forget_read(ino);
            return Ok(attr);
        }
        let _slot = self.expect_quick(ino, may_block)?;
        let (file, _) = self.enter(handle, true)?;
        let changed = self.change(&file, open.is_some(), set);
        let left = self.leave(&file, file.wait(), true);
        let attr = changed?;
        left?;
        Ok(attr)
    }

    fn change(&self, file: &Inode, through_open: bool, set: &SetAttr) -> Result<Attr, Error> {
        let mut state = file.wait();
        self.load(file, &mut state)?;
        if let Some(size) = set.size {
            self.truncate(file, &mut state, size)?;
        }
        let rest = SetAttr { size: None, ..*set };
        if through_open && rest.is_empty() {
            return self.shard.attr(file.handle);
        }
        self.commit(file, &mut state, WritingRow::Keep)?;
        if rest.is_empty() {
            return self.shard.attr(file.handle);
        }
        let now = clock::now();
        if let Some(outside) = &state.outside {
            // Before the row: what is seen there is never behind it.
            let timed = outside.set_times(&rest, now, file.has_external_writers());
            timed.map_err(|error| self.refused(&error))?;
        }
        let attr = self.shard.set_attr(file.handle, &rest, now)?;
        file.changed();
        if file.has_external_writers() {
            return Ok(attr);
        }
        (state.mtime, state.ctime) = (attr.mtime, attr.ctime);
        if rest.mtime.is_some() && state.has_content() && self.marks.is_unsafe(attr.ino) {
            let content = self.open_content(file, &mut state)?;
            let timed = content.set_times(None, Some(attr.mtime));
            timed.map_err(|error| self.refused(&error))?;
        }
        Ok(attr)
    }
}
