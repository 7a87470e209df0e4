//! What requests share, and the replies that need it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use fuser::{
    Errno, FileHandle, FopenFlags, Generation, INodeNo, ReplyCreate, ReplyEntry, ReplyOpen,
};
use pelago_wire::{
    Code, Context, Entry, Error, FileKind, Handle, InodeId, Name, NameError, OpenFlags,
};

use super::attr;
use super::gone::Gone;
use super::init::TTL;
use super::listing::Streams;
use super::opens::Opens;
use super::writers::{Moment, Writers};
use crate::files::{Created, Files, Opened, Place};
use crate::inodes::Inodes;

/// Nodes are never reused, so one generation serves them all.
pub(crate) const GENERATION: Generation = Generation(0);

/// What requests share; replies that come later hold it.
pub(crate) struct State {
    pub(crate) files: Arc<dyn Files>,
    /// Reading leaves times alone.
    pub(crate) no_atime: bool,
    pub(crate) inodes: Inodes,
    pub(crate) writers: Writers,
    pub(crate) opens: Opens,
    pub(crate) gone: Gone,
    pub(crate) streams: Streams,
}

impl State {
    pub(crate) fn new(files: Arc<dyn Files>, no_atime: bool) -> Self {
        Self {
            files,
            no_atime,
            inodes: Inodes::new(),
            writers: Writers::default(),
            opens: Opens::default(),
            gone: Gone::default(),
            streams: Streams::default(),
        }
    }

    pub(crate) fn handle(&self, node: INodeNo) -> Handle {
        self.inodes.handle(attr::ino(node))
    }

    /// A result, or where the server does not know the node any more what `gone` says of it.
    pub(crate) fn or_gone<T>(
        &self,
        ino: InodeId,
        result: Result<T, Error>,
        known: impl FnOnce(&Gone, InodeId) -> Option<T>,
    ) -> Result<T, Error> {
        match result {
            Err(error) if error.code == Code::Stale => known(&self.gone, ino).ok_or(error),
            result => result,
        }
    }

    pub(crate) fn place(&self, dir: INodeNo, name: &OsStr) -> Result<Place, Errno> {
        match Name::new(name.as_bytes()) {
            Ok(name) => Ok(Place::new(self.handle(dir), name)),
            Err(NameError::TooLong) => Err(Errno::ENAMETOOLONG),
            Err(NameError::NotAName) => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn reply_entry(
        &self,
        asked: Moment,
        entry: Result<Entry, Error>,
        reply: ReplyEntry,
    ) {
        match entry {
            Ok(entry) => {
                self.inodes.learn(entry.handle);
                let ttl = self.writers.ttl(&entry.attr, asked);
                reply.entry_with_ttls(&ttl, &TTL, &attr::attr(&entry.attr), GENERATION);
            }
            Err(error) => reply.error(attr::error(error)),
        }
    }

    pub(crate) fn reply_open(&self, write: bool, opened: Result<Opened, Error>, reply: ReplyOpen) {
        match opened {
            Ok(Opened { open, attr, .. }) => {
                self.opens.add(open);
                if write {
                    self.writers.add(attr.ino);
                }
                reply.opened(FileHandle(open.0), open_flags(write));
            }
            Err(error) => reply.error(attr::error(error)),
        }
    }

    pub(crate) fn reply_created(&self, write: bool, created: &Created, reply: ReplyCreate) {
        self.inodes.learn(created.entry.handle);
        self.opens.add(created.open);
        if write {
            self.writers.add(created.entry.attr.ino);
        }
        // What changes from here on the kernel sees: writes, and the commit that follows them.
        let file = attr::attr(&created.entry.attr);
        reply.created(&TTL, &file, GENERATION, FileHandle(created.open.0), open_flags(write));
    }

    /// CREATE found the name taken: the kernel believed it free, and somebody was faster.
    pub(crate) fn open_existing(
        self: &Arc<Self>,
        context: Context,
        place: Place,
        wanted: OpenFlags,
        reply: ReplyCreate,
    ) {
        let state = Arc::clone(self);
        self.files.lookup(&context, place).then(move |found| {
            let entry = match found {
                Ok(entry) if entry.attr.kind == FileKind::Regular => entry,
                // Gone again, or not a file: at this answer the kernel looks the path up afresh.
                Ok(_) => return reply.error(Errno::ESTALE),
                Err(error) if error.code == Code::NotFound => return reply.error(Errno::ESTALE),
                Err(error) => return reply.error(attr::error(error)),
            };
            let files = Arc::clone(&state.files);
            files.open(&context, entry.handle, wanted).then(move |opened| match opened {
                Ok(Opened { open, attr, path }) => {
                    let entry = Entry { handle: entry.handle, attr };
                    state.reply_created(wanted.write, &Created { entry, open, path }, reply);
                }
                Err(error) => reply.error(attr::error(error)),
            });
        });
    }
}

/// The pages of a file stay when it is opened again: all its changes go through this kernel. Only
/// a descriptor that can write has anything to say when it is closed.
fn open_flags(write: bool) -> FopenFlags {
    if write {
        FopenFlags::FOPEN_KEEP_CACHE
    } else {
        FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH
    }
}
