//! External writes: files that programs may write without requests, from the first descriptor that
//! is handed out to write until the kernel reports that no process can write any more.

use pelago_meta::shard::WritingRow;
use pelago_wire::{Error, Handle, InodeId};

use crate::inode::{Bytes, Uncommitted};
use crate::inode_guard::InodeGuard;
use crate::open_files::OpenFiles;
use crate::passthrough::observer::Observer;

impl OpenFiles {
    /// Resumes external writes of a file with a `writing` row, which a program still writes since
    /// an earlier run of the server. Its close is pending afterwards.
    ///
    /// # Errors
    /// Those of [`OpenFiles::open`].
    pub fn resume_external_writes(&self, handle: Handle) -> Result<(), Error> {
        let (inode, _) = self.enter(handle, true)?;
        let mut guard = self.lock(&inode);
        let resumed = guard.load().and_then(|()| {
            let observer = guard.observe()?;
            guard.begin_external_writes(&observer, true)
        });
        let released = guard.release(true);
        match resumed {
            Err(error) => released.and(Err(error)),
            Ok(()) => released,
        }
    }

    /// Returns whether programs may write any file without requests.
    #[must_use]
    pub fn any_external_writers(&self) -> bool {
        self.pending_closes() > 0
            || self.opens.inodes().iter().any(|inode| inode.has_external_writers())
    }

    /// Returns the files that programs may still write without requests, after the last request.
    /// Their `writing` rows must stay.
    pub fn externally_written(&self) -> Vec<InodeId> {
        let inodes = self.opens.inodes();
        let may_be_written = inodes.iter().filter(|inode| {
            self.lock(inode).end_external_writes();
            inode.has_external_writers()
        });
        may_be_written.map(|inode| inode.handle.ino).collect()
    }
}

impl InodeGuard<'_> {
    /// Begins external writes: from now on size and times are those of the content file. With
    /// `has_written` a program may have written it before this call: then the present bytes count
    /// as new.
    ///
    /// # Errors
    /// If the table or the disk fails.
    pub(crate) fn begin_external_writes(
        &mut self,
        observer: &Observer,
        has_written: bool,
    ) -> Result<(), Error> {
        if self.inode.has_external_writers() {
            return Ok(());
        }
        // After this the row has all values, and the content file has the same modification time.
        self.commit(WritingRow::Keep)?;
        let disk = &self.files.disk;
        let content = observer.borrow_content().map_err(|error| disk.failed(&error))?;
        self.write_writing_row(&content)?;
        self.keep_pinned();
        let measured = content.stat().map_err(|error| disk.failed(&error))?;
        observer.begin(measured, self.state.live(), has_written);
        self.inode.set_external_writers(true);
        Ok(())
    }

    /// Measures the content file if programs may write it without requests; else does nothing.
    pub(crate) fn refresh(&mut self) {
        if !self.inode.has_external_writers() {
            return;
        }
        let observed = self.state.observer.as_ref().and_then(|observer| observer.observe());
        let Some((live, moved)) = observed else { return };
        let state = &mut *self.state;
        state.size = live.size;
        state.blocks = live.blocks;
        state.mtime = live.mtime;
        state.ctime = live.ctime;
        if moved {
            self.inode.invalidate_atime();
            state.uncommitted.add(Uncommitted::Attr);
            state.writeback.note_change();
        }
    }

    /// Measures the content file before its row is written, so that the row gets the attributes
    /// that a program would read now: the change time is later than the last one that was read,
    /// even if the disk's clock has not advanced.
    pub(crate) fn refresh_for_commit(&mut self) {
        if self.inode.has_external_writers() {
            // A read of the attributes advances the change time. If the row was deleted, the commit
            // fails.
            let _shown = self.files.shard.attr(self.handle());
        }
        self.refresh();
    }

    /// Ends external writes when the last writer leaves, if the kernel reports that no process can
    /// write the content file any more.
    pub(crate) fn end_external_writes(&mut self) {
        let Some(observer) = self.state.observer.clone() else { return };
        if let Bytes::ContentOpen(content) = &self.state.bytes
            && content.is_writable()
        {
            // Our own descriptor to write would count as a writer.
            let generation = content.generation();
            self.state.bytes = match observer.content() {
                Some(content) => Bytes::ContentOpen(content),
                None => {
                    self.files.writing.interrupt_watch(self.ino());
                    Bytes::ContentClosed(generation)
                }
            };
        }
        if observer.has_writers() {
            return;
        }
        // After the kernel's reply: this sees the last write.
        self.refresh_for_commit();
        // The commit removes these attributes again. Without a commit they would hide the
        // attributes that another opener sets.
        let live = self.state.is_uncommitted().then(|| self.state.live());
        self.files.shard.set_live_attrs(self.ino(), live);
        observer.end();
        self.inode.set_external_writers(false);
        // A sync that ran meanwhile may have missed the last write.
        self.state.writeback.note_change();
    }

    /// Closes the content file of a file that has no open left but may still be written, so that
    /// any number of such files uses no descriptors.
    pub(crate) fn park(&mut self) {
        if self.files.opens.passthrough_opens(self.ino()) > 0 {
            return;
        }
        if let Some(observer) = &self.state.observer {
            observer.close();
        }
        if let Bytes::ContentOpen(content) = &self.state.bytes {
            self.state.bytes = Bytes::ContentClosed(content.generation());
        }
        // The program with the mapping may never sync the file.
        self.files.writing.interrupt_watch(self.ino());
    }

    /// Stops observing the content file after the last passthrough open and the last external
    /// writer: from then on every change is a request.
    pub(crate) fn stop_observing(&mut self) {
        let ino = self.ino();
        if self.state.observer.is_some()
            && !self.inode.has_external_writers()
            && self.files.opens.passthrough_opens(ino) == 0
        {
            self.files.shard.set_attr_source(ino, None);
            self.state.observer = None;
        }
    }
}
