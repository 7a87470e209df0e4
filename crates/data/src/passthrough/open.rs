//! Which way an open reaches the bytes, and handing out descriptors of content files.

use std::io;
use std::sync::Arc;

use pelago_wire::{Backing, Code, DataPath, Entry, Error, Handle, InodeId, OpenFlags, OpenId};

use crate::blocking::{MayBlock, OpError};
use crate::inode::{Inode, InodeState};
use crate::io_permits::IoPermit;
use crate::open_files::{OpenFiles, Opening};
use crate::open_table::PathKind;
use crate::passthrough::observer::Observer;
use crate::passthrough::placement::Passthrough;
use crate::read::missing;
use pelago_meta::shard;

impl OpenFiles {
    /// OpenFiles a file that has a content file, for somebody who can use a descriptor of it. Where
    /// that cannot be now, the way is by requests.
    ///
    /// # Errors
    /// As [`OpenFiles::open`].
    pub(crate) fn open_outside(
        &self,
        handle: Handle,
        flags: OpenFlags,
        may_block: MayBlock,
    ) -> Result<Opening, OpError> {
        if flags.sync && flags.write && may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let _slot = self.expect_quick(handle.ino, may_block)?;
        let (file, _) = self.enter(handle, flags.write)?;
        let mut state = file.wait();
        match self.find_way(&file, &mut state, flags) {
            Ok(opening) => Ok(opening),
            Err(error) => {
                self.leave(&file, state, flags.write)?;
                Err(error.into())
            }
        }
    }

    fn find_way(
        &self,
        file: &Arc<Inode>,
        state: &mut InodeState,
        flags: OpenFlags,
    ) -> Result<Opening, Error> {
        self.load(file, state)?;
        if flags.truncate {
            self.empty(file, state, flags)?;
        }
        let ino = file.handle.ino;
        // What a kernel writes by itself to a file in error, nobody knows to be written again.
        let passes = !self.marks.is_failed(ino) || self.known.outside(ino) > 0;
        if state.has_content()
            && passes
            && let Some(open) = self.known.number(file, flags, PathKind::Passthrough)
        {
            // Its writes do not come here: it loses now what the first would take.
            let killed = match flags.write && flags.kill_privileges && !flags.truncate {
                true => self.kill_privileges(file),
                false => Ok(()),
            };
            let given = killed.and_then(|()| self.give(file, state, flags)).and_then(|backing| {
                let path = DataPath::Passthrough(backing);
                match self.shard.attr(file.handle) {
                    Ok(attr) => Ok(Opening { open, attr, path }),
                    Err(error) => {
                        self.come_back(file, state, flags);
                        Err(error)
                    }
                }
            });
            if given.is_err() {
                self.known.forget(open);
            }
            return given;
        }
        // Before it has its number: who is answered that it failed ends nothing.
        let attr = self.shard.attr(file.handle)?;
        // Whoever goes outside holds the lock of the state: of the two ways one is free.
        let open = self.known.number(file, flags, PathKind::Cached).ok_or(Code::Bug)?;
        Ok(Opening { open, attr, path: DataPath::Cached })
    }

    /// Whether descriptors are handed out at all.
    pub(crate) fn passes(&self) -> bool {
        self.options.can_pass && self.options.passthrough != Passthrough::Never
    }

    /// Whether a file that is made in this directory begins with a content file.
    pub(crate) fn begins_with_content(&self, dir: InodeId, flags: OpenFlags) -> bool {
        match self.options.passthrough {
            Passthrough::Never => false,
            Passthrough::Auto => {
                flags.passthrough && self.passes() && self.sizes.lock().are_large(dir)
            }
            Passthrough::Always => true,
        }
    }

    /// A file was written and closed.
    pub(crate) fn note_size(&self, file: &Inode, state: &InodeState) {
        if let Some(dir) = file.folder
            && self.passes()
        {
            self.sizes.lock().closed(dir, state.size);
        }
    }

    /// The right to make a content file.
    pub(crate) fn expect_content(
        &self,
        flags: OpenFlags,
        may_block: MayBlock,
    ) -> Result<Option<IoPermit<'_>>, OpError> {
        match flags.sync && may_block == MayBlock::No {
            true => Err(OpError::WouldBlock),
            false => self.slot(may_block),
        }
    }

    /// OpenFiles a file that was just made, with a content file; where there can be none, it begins
    /// in memory all the same.
    ///
    /// # Errors
    /// Where the table or the medium fails.
    pub(crate) fn made_with_content(
        &self,
        mut entry: Entry,
        file: Inode,
        flags: OpenFlags,
    ) -> Result<(Entry, OpenId, DataPath), Error> {
        let handle = entry.handle;
        let file = self.known.enter(handle.ino, flags.write, || file);
        let mut state = file.wait();
        let outside = flags.passthrough && self.passes();
        let found = match self.begin_content(&file, &mut state, !outside) {
            Ok(()) if outside => self.find_way(&file, &mut state, flags),
            begun => {
                if let Err(error) = begun {
                    tracing::debug!(ino = %handle.ino, %error, "a file begins in memory");
                }
                self.shard.attr(handle).and_then(|attr| {
                    let open = self.known.number(&file, flags, PathKind::by_requests(flags));
                    let open = open.ok_or(Code::Bug)?;
                    Ok(Opening { open, attr, path: DataPath::Cached })
                })
            }
        };
        match found {
            Ok(Opening { open, attr, path }) => {
                entry.attr = attr;
                Ok((entry, open, path))
            }
            Err(error) => {
                self.leave(&file, state, flags.write)?;
                Err(error)
            }
        }
    }

    /// The descriptor of a content file, for one more who is counted already; before somebody gets
    /// it to write, the mark stands, and the file is changing.
    pub(crate) fn give(
        &self,
        file: &Inode,
        state: &mut InodeState,
        flags: OpenFlags,
    ) -> Result<Backing, Error> {
        let outside = self.see_outside(file, state)?;
        let content = match outside.content() {
            Some(content) => content,
            None => self.open_to_read(file, state)?,
        };
        outside.open(&content);
        if flags.write {
            self.begin_changing(file, state, &outside, false)?;
            if flags.sync {
                // Whoever writes makes bytes safe, not the name of their file.
                self.sync_name(&content)?;
            }
        }
        if flags.read && !flags.no_atime {
            self.expect_reads(file, &outside);
            outside.add_reader();
        }
        Ok(content.backing())
    }

    /// Who sees what is done to the content file from now on.
    pub(crate) fn see_outside(
        &self,
        file: &Inode,
        state: &mut InodeState,
    ) -> Result<Arc<Observer>, Error> {
        if let Some(outside) = &state.outside {
            return Ok(Arc::clone(outside));
        }
        // Nobody asks for a content file that there is not.
        let generation = state.bytes.generation().ok_or(Code::Bug)?;
        let ino = file.handle.ino;
        let outside = Observer::new(&self.content, ino, generation);
        let outside = outside.map_err(|error| match error.source.kind() {
            io::ErrorKind::NotFound => missing(ino),
            _ => self.refused(&error),
        })?;
        state.outside = Some(Arc::clone(&outside));
        let seen = Arc::clone(&outside) as Arc<dyn shard::AttrSource>;
        self.shard.set_attr_source(ino, Some(seen));
        Ok(outside)
    }
}
