//! Files of this site whose bytes are at another one: in a node there, which has no name.
//!
//! Such a file has its size and times here, and no byte. Its reads are sent to the other site by
//! the caller; here they fail, as all else that needs the bytes.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pelago_meta::shard::{BytesChange, BytesPlace, InlineBytes, LiveAttrs, Shard, WritingRow};
use pelago_store::clock;
use pelago_store::content::{ContentFile, FileAccess};
use pelago_wire::{Attr, Code, Error, Generation, Handle, InodeId, PlaceFlags, Time, limits};

use crate::content_file::OpenContent;
use crate::inode::{Bytes, Uncommitted};
use crate::inode_guard::InodeGuard;
use crate::open_files::OpenFiles;
use crate::open_key::OpenKey;

/// The place of the bytes of a file at another site, and what the file is with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewPlace {
    /// The node of the other site that has the bytes.
    pub node: InodeId,
    /// The size in bytes.
    pub size: u64,
    /// The time of the last change of the bytes; zero keeps that of the file.
    pub mtime: Time,
    /// The `mtime` that the file had, empty, when the first of the bytes was written.
    pub since: Time,
    /// The claim of the other site about them.
    pub flags: PlaceFlags,
}

impl OpenFiles {
    /// Returns whether any file that was opened in this run may have its bytes at another site.
    #[must_use]
    pub fn may_have_bytes_elsewhere(&self) -> bool {
        self.has_elsewhere.load(Ordering::Acquire)
    }

    /// Returns the node of another site that has the bytes of the file of an open; `None` if they
    /// are here. May read a row.
    ///
    /// # Errors
    /// `BadOpen`; if the table or the disk fails.
    pub fn bytes_at(&self, open: OpenKey) -> Result<Option<InodeId>, Error> {
        let opened = self.opens.get(open)?;
        let mut guard = self.lock(&opened.inode);
        guard.load()?;
        Ok(guard.bytes_elsewhere())
    }

    /// Records that the bytes of a file are at another site, in a node that has them from the first
    /// to the last. Without effect if that is known.
    ///
    /// # Errors
    /// `Exists` if the file has got other bytes since; `Busy` if a program has a descriptor of the
    /// content file; `FileTooLarge`; `Stale`; `NotSupported` in a shared store; if the table fails.
    pub fn set_bytes_at(&self, handle: Handle, place: &NewPlace) -> Result<Attr, Error> {
        if self.disk.content.is_shared() {
            return Err(Code::NotSupported.into());
        }
        if place.size > limits::FILE_BYTES {
            return Err(Code::FileTooLarge.into());
        }
        self.has_elsewhere.store(true, Ordering::Release);
        let (inode, attr) = self.enter(handle, false)?;
        let mut guard = self.lock(&inode);
        let set = guard.load().and_then(|()| guard.set_bytes_at(place, attr));
        guard.release(false)?;
        set
    }

    /// Takes the bytes of a file home: `fill` writes all of them into a new content file. The file
    /// has that from then on, once it is safe, and the same times.
    ///
    /// # Errors
    /// Those of `fill`; `Exists` if the bytes are no more in this node; `Stale`; if the disk or the
    /// table fails.
    pub fn bring_home(
        &self,
        handle: Handle,
        from: InodeId,
        fill: &mut dyn FnMut(&ContentFile) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (inode, _) = self.enter(handle, false)?;
        let mut guard = self.lock(&inode);
        if let Err(error) = guard.load().and_then(|()| guard.expect_bytes_in(from)) {
            guard.release(false)?;
            return Err(error);
        }
        let next = Shard::next_generation(guard.state.generation);
        // The file may be emptied and written meanwhile: no other content file gets this number.
        guard.state.generation = Some(next);
        drop(guard);
        let (brought, may_be_named) = match self.filled_content(handle.ino, next, fill) {
            Ok(content) => {
                let taken = self.lock(&inode).take_home(from, Some(content));
                // After an error of the table the row that names it may be there nevertheless.
                let is_of_table = |error: &Error| matches!(error.code, Code::Io | Code::Corrupt);
                let may_be_named = taken.as_ref().is_err_and(is_of_table);
                (taken, may_be_named)
            }
            Err(error) => (Err(error), false),
        };
        if brought.is_err() && !may_be_named && !self.disk.content.is_shared() {
            drop(self.disk.content.remove(handle.ino, next));
        }
        self.lock(&inode).release(false)?;
        brought
    }

    /// Returns a new content file into which `fill` has written, once it is safe.
    fn filled_content(
        &self,
        ino: InodeId,
        generation: Generation,
        fill: &mut dyn FnMut(&ContentFile) -> Result<(), Error>,
    ) -> Result<Arc<OpenContent>, Error> {
        let permit = self.take_fd_permit(ino)?;
        let made = self.disk.content.create(ino, generation);
        let file = made.map_err(|error| self.disk.failed(&error))?;
        fill(&file)?;
        file.sync(false).map_err(|error| self.disk.failed(&error))?;
        self.sync_name(&file)?;
        Ok(OpenContent::new(file, FileAccess::ReadWrite, permit))
    }

    /// Records that the other site writes nothing into the node any more that has the bytes of a
    /// file: until [`OpenFiles::end_giving`] the file can be emptied.
    pub fn begin_giving(&self, file: InodeId, node: InodeId) {
        self.given.lock().insert(file, node);
    }

    /// Ends what [`OpenFiles::begin_giving`] began.
    pub fn end_giving(&self, file: InodeId) {
        self.given.lock().remove(&file);
    }
}

impl InodeGuard<'_> {
    /// Returns the node of another site that has the bytes of a loaded file.
    pub(crate) fn bytes_elsewhere(&self) -> Option<InodeId> {
        match self.state.bytes {
            Bytes::Elsewhere(node) => Some(node),
            Bytes::Unloaded
            | Bytes::Inline
            | Bytes::Memory(_)
            | Bytes::ContentClosed(_)
            | Bytes::ContentOpen(_) => None,
        }
    }

    /// Checks that the bytes of a loaded file are here.
    ///
    /// # Errors
    /// `HostDown` if they are at another site.
    pub(crate) fn expect_bytes_here(&self) -> Result<(), Error> {
        match self.bytes_elsewhere() {
            Some(_) => Err(Code::HostDown.into()),
            None => Ok(()),
        }
    }

    fn expect_bytes_in(&self, node: InodeId) -> Result<(), Error> {
        match self.bytes_elsewhere() == Some(node) {
            true => Ok(()),
            false => Err(Code::Exists.into()),
        }
    }

    /// Empties a file whose bytes are at another site, if nothing is written there any more.
    ///
    /// # Errors
    /// `HostDown` if it may be; if the table fails.
    pub(crate) fn empty_elsewhere(&mut self, node: InodeId) -> Result<(), Error> {
        match self.files.given.lock().get(&self.ino()) == Some(&node) {
            true => self.take_home(node, None),
            false => Err(Code::HostDown.into()),
        }
    }

    /// Decides whether the file gets this place. `attr`: what it is now.
    ///
    /// # Errors
    /// `Exists`, `Busy`.
    fn admit_place(&mut self, place: &NewPlace, attr: &Attr) -> Result<(), Error> {
        match self.bytes_elsewhere() {
            Some(known) if known == place.node => return Ok(()),
            Some(_) => return Err(Code::Exists.into()),
            None if place.flags.asks || place.flags.given => return Err(Code::Exists.into()),
            None if self.state.size > 0 || attr.mtime != place.since => {
                return Err(Code::Exists.into());
            }
            None => {}
        }
        // A program that has a descriptor would read and write the emptied content file.
        self.stop_observing();
        match self.state.observer {
            Some(_) => Err(Code::Busy.into()),
            None => Ok(()),
        }
    }

    fn set_bytes_at(&mut self, place: &NewPlace, attr: Attr) -> Result<Attr, Error> {
        self.admit_place(place, &attr)?;
        let NewPlace { node, size, flags, .. } = *place;
        let is_new_time = place.mtime != Time::default();
        let mtime = if is_new_time { place.mtime } else { self.state.mtime };
        let is_known = self.bytes_elsewhere() == Some(node)
            && size == self.state.size
            && mtime == self.state.mtime
            && !flags.kill_privileges;
        if flags.asks || is_known {
            return Ok(attr);
        }
        let files = self.files;
        let ino = self.ino();
        let before = self.state.bytes.generation();
        let now = clock::now();
        let live =
            LiveAttrs { size, mtime, ctime: now.max(self.state.ctime.next()), ..self.state.live() };
        self.state.bytes = Bytes::Elsewhere(node);
        self.state.size = size;
        self.state.mtime = live.mtime;
        self.state.ctime = live.ctime;
        let change = BytesChange {
            live: Some(self.state.live()),
            inline: InlineBytes::Delete,
            place: BytesPlace::At(node),
            writing_row: if before.is_some() { WritingRow::Delete } else { WritingRow::Keep },
            kill_privileges: flags.kill_privileges,
            ..BytesChange::NOTHING
        };
        let written = self.write_row(&change);
        if written.is_err() {
            // The row says where the bytes are, or will after the table was opened again.
            self.state.bytes = Bytes::Unloaded;
            return written;
        }
        let state = &mut *self.state;
        state.uncommitted = Uncommitted::Nothing;
        state.has_inline_row = false;
        state.count_memory();
        files.dirty.remove(ino);
        if let Some(generation) = before {
            if mem::take(&mut self.state.writeback.has_row) {
                files.writing.remove(ino);
            }
            drop(files.pins.take(ino));
            drop(files.writing.take_kept(ino));
            files.content_removed(ino, generation);
            self.remove_when_safe(generation);
        }
        self.inode.invalidate_atime();
        written
    }

    /// Records that the bytes are here, in this content file; for `None` that the file is empty.
    fn take_home(&mut self, from: InodeId, content: Option<Arc<OpenContent>>) -> Result<(), Error> {
        self.expect_bytes_in(from)?;
        let size = match &content {
            Some(content) => {
                let measured = content.stat().map_err(|error| self.files.disk.failed(&error))?;
                self.state.blocks = measured.blocks;
                measured.size
            }
            None => 0,
        };
        let is_other_size = size != self.state.size;
        let generation = content.as_ref().map(|content| content.generation());
        let before = mem::replace(&mut self.state.size, size);
        if is_other_size || content.is_none() {
            self.state.touch(clock::now());
        }
        let mut live = self.state.live();
        live.blocks = if content.is_some() { self.state.blocks } else { 0 };
        let change = BytesChange {
            live: Some(live),
            generation,
            place: BytesPlace::Here,
            ..BytesChange::NOTHING
        };
        if let Err(error) = self.write_row(&change) {
            self.state.size = before;
            // The row says where the bytes are, or will after the table was opened again.
            self.state.bytes = Bytes::Unloaded;
            return Err(error);
        }
        self.state.uncommitted = Uncommitted::Nothing;
        self.state.bytes = match content {
            Some(content) => {
                self.state.generation = generation;
                Bytes::ContentOpen(content)
            }
            None => Bytes::Memory(Vec::new()),
        };
        self.inode.invalidate_atime();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pelago_meta::reply_cache::OpContext;
    use pelago_wire::{Context, OpenFlags, SetAttr};

    use super::*;
    use crate::blocking::MayBlock;
    use crate::testing::{READ, READ_WRITE, Rig, pattern};

    const LARGE: usize = 100_000;

    fn node(counter: u64) -> InodeId {
        InodeId::new(7, 0, counter).unwrap()
    }

    fn place(rig: &Rig, handle: Handle) -> NewPlace {
        let since = rig.shard.attr(handle).unwrap().mtime;
        let mtime = Time { seconds: since.seconds + 10, nanos: 5 };
        NewPlace { node: node(1), size: LARGE as u64, mtime, since, flags: PlaceFlags::default() }
    }

    #[test]
    fn a_file_whose_bytes_are_elsewhere_shows_its_size_and_no_byte() {
        let rig = Rig::new();
        let (entry, open) = rig.create("f");
        let place = place(&rig, entry.handle);
        let attr = rig.files.set_bytes_at(entry.handle, &place).unwrap();
        assert_eq!((attr.size, attr.mtime), (LARGE as u64, place.mtime));
        assert_eq!(rig.files.bytes_at(open), Ok(Some(node(1))));
        assert_eq!(rig.read(open, 0, 10), Err(Code::HostDown));
        assert_eq!(rig.write(open, 0, b"new").map(drop), Err(Code::HostDown));
        rig.close(open);
        // Again, with more bytes, and as a question.
        let more = NewPlace { size: 2 * LARGE as u64, ..place };
        assert_eq!(rig.files.set_bytes_at(entry.handle, &more).unwrap().size, more.size);
        let flags = PlaceFlags { asks: true, ..more.flags };
        let asked = NewPlace { size: 0, mtime: Time::default(), flags, ..more };
        let attr = rig.files.set_bytes_at(entry.handle, &asked).unwrap();
        assert_eq!((attr.size, attr.mtime), (more.size, place.mtime));
        let other = NewPlace { node: node(2), ..more };
        let refused = rig.files.set_bytes_at(entry.handle, &other);
        assert_eq!(refused.map_err(|error| error.code), Err(Code::Exists));
    }

    #[test]
    fn other_bytes_are_not_passed_over() {
        let rig = Rig::new();
        let (entry, open) = rig.create("f");
        let place = place(&rig, entry.handle);
        rig.write(open, 0, b"new").unwrap();
        let refused = |rig: &Rig| {
            let set = rig.files.set_bytes_at(entry.handle, &place);
            set.map_err(|error| error.code).map(drop)
        };
        assert_eq!(refused(&rig), Err(Code::Exists));
        // It was emptied again since.
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        let op = OpContext::by(&Context::direct(0, 0), clock::now());
        rig.files.set_attr(entry.handle, Some(open), &set, op, MayBlock::Yes).unwrap();
        assert_eq!(refused(&rig), Err(Code::Exists));
        rig.close(open);
    }

    /// A large file was emptied: its content file goes, once that is safe.
    #[test]
    fn an_emptied_file_leaves_no_content_file_behind() {
        let rig = Rig::new();
        let entry = rig.file("f", &pattern(LARGE));
        let truncating = OpenFlags { truncate: true, ..READ_WRITE };
        let open = rig.open(entry.handle, truncating).unwrap();
        let place = place(&rig, entry.handle);
        rig.files.set_bytes_at(entry.handle, &place).unwrap();
        rig.close(open);
        assert!(!rig.has_writing_row(entry.handle));
        assert_eq!(rig.content_files(), 1);
        rig.commit_all();
        assert_eq!(rig.content_files(), 0);
    }

    #[test]
    fn bytes_come_home_into_a_content_file() {
        let rig = Rig::new();
        let (entry, open) = rig.create("f");
        let place = place(&rig, entry.handle);
        rig.files.set_bytes_at(entry.handle, &place).unwrap();
        let failed = rig.files.bring_home(entry.handle, node(1), &mut |_| Err(Code::Io.into()));
        assert_eq!(failed.map_err(|error| error.code), Err(Code::Io));
        assert_eq!((rig.content_files(), rig.files.bytes_at(open)), (0, Ok(Some(node(1)))));
        let mut fill = |content: &ContentFile| {
            content.write_at(&pattern(LARGE), 0).unwrap();
            Ok(())
        };
        let wrong = rig.files.bring_home(entry.handle, node(2), &mut fill);
        assert_eq!(wrong.map_err(|error| error.code), Err(Code::Exists));
        rig.files.bring_home(entry.handle, node(1), &mut fill).unwrap();
        assert_eq!(rig.files.bytes_at(open), Ok(None));
        assert_eq!(rig.read(open, 0, LARGE as u32).unwrap(), pattern(LARGE));
        let attr = rig.shard.attr(entry.handle).unwrap();
        assert_eq!((attr.size, attr.mtime), (LARGE as u64, place.mtime));
        rig.write(open, 0, b"new").unwrap();
        rig.close(open);
        let reading = rig.open(entry.handle, READ).unwrap();
        assert_eq!(rig.read(reading, 0, 3).unwrap(), b"new");
        rig.close(reading);
    }

    /// A given node is not the place of a file that has got others, even if it is as empty again.
    #[test]
    fn what_was_given_comes_not_back() {
        let rig = Rig::new();
        let (entry, open) = rig.create("f");
        let place = place(&rig, entry.handle);
        let given = NewPlace { flags: PlaceFlags { given: true, ..place.flags }, ..place };
        let told = |place: &NewPlace| {
            rig.files.set_bytes_at(entry.handle, place).map_err(|error| error.code).map(drop)
        };
        assert_eq!(told(&given), Err(Code::Exists));
        assert_eq!(told(&place), Ok(()));
        assert_eq!(told(&NewPlace { size: 7, ..given }), Ok(()));
        assert_eq!(rig.shard.attr(entry.handle).unwrap().size, 7);
        let endless = NewPlace { size: limits::FILE_BYTES + 1, ..place };
        assert_eq!(told(&endless), Err(Code::FileTooLarge));
        rig.close(open);
    }

    /// A user who may not keep the set-id bits has written.
    #[test]
    fn a_write_elsewhere_clears_the_set_id_bits() {
        let rig = Rig::new();
        let (entry, open) = rig.create("f");
        let set = SetAttr { mode: Some(0o6755), ..SetAttr::default() };
        let op = OpContext::by(&Context::direct(0, 0), clock::now());
        rig.files.set_attr(entry.handle, None, &set, op, MayBlock::Yes).unwrap();
        let place = place(&rig, entry.handle);
        assert_eq!(rig.files.set_bytes_at(entry.handle, &place).unwrap().mode, 0o6755);
        let flags = PlaceFlags { kill_privileges: true, ..place.flags };
        let killed = NewPlace { flags, ..place };
        assert_eq!(rig.files.set_bytes_at(entry.handle, &killed).unwrap().mode, 0o755);
        rig.close(open);
    }

    /// The bytes that come then are in another content file than the new ones.
    #[test]
    fn a_file_is_emptied_and_written_while_its_bytes_come_home() {
        let rig = Rig::new();
        let (entry, open) = rig.create("f");
        rig.files.set_bytes_at(entry.handle, &place(&rig, entry.handle)).unwrap();
        let new = vec![7; LARGE];
        let mut fill = |content: &ContentFile| {
            rig.files.begin_giving(entry.handle.ino, node(1));
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            let op = OpContext::by(&Context::direct(0, 0), clock::now());
            rig.files.set_attr(entry.handle, None, &set, op, MayBlock::Yes).unwrap();
            rig.files.end_giving(entry.handle.ino);
            rig.write(open, 0, &new).unwrap();
            content.write_at(&pattern(LARGE), 0).unwrap();
            Ok(())
        };
        let brought = rig.files.bring_home(entry.handle, node(1), &mut fill);
        assert_eq!(brought.map_err(|error| error.code), Err(Code::Exists));
        assert!(rig.read(open, 0, LARGE as u32).unwrap() == new);
        rig.close(open);
        rig.commit_all();
        assert_eq!(rig.content_files(), 1);
        let reading = rig.open(entry.handle, READ).unwrap();
        assert!(rig.read(reading, 0, LARGE as u32).unwrap() == new);
        rig.close(reading);
    }

    #[test]
    fn what_is_emptied_has_no_bytes_elsewhere() {
        let rig = Rig::new();
        let (entry, open) = rig.create("f");
        rig.files.set_bytes_at(entry.handle, &place(&rig, entry.handle)).unwrap();
        let empty = || {
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            let op = OpContext::by(&Context::direct(0, 0), clock::now());
            rig.files.set_attr(entry.handle, None, &set, op, MayBlock::Yes)
        };
        assert!(empty().is_err(), "it may be written there");
        rig.files.begin_giving(entry.handle.ino, node(2));
        assert!(empty().is_err(), "that is another node");
        rig.files.begin_giving(entry.handle.ino, node(1));
        empty().unwrap();
        rig.files.end_giving(entry.handle.ino);
        assert_eq!(rig.files.bytes_at(open), Ok(None));
        assert_eq!(rig.shard.attr(entry.handle).unwrap().size, 0);
        rig.write(open, 0, b"new").unwrap();
        rig.close(open);
    }
}
