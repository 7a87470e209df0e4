//! RENAME over a file that a process may be about to open.
//!
//! The kernel resolves a path first and opens the inode later. If a rename removes the last name of
//! that inode in between, the server would have forgotten it, and the open would fail although the
//! name existed at every moment. So a replaced file is retained until the kernel forgets it. (After
//! an unlink the kernel resolves the path again, and finds that the name does not exist.)

use std::sync::Arc;

use parking_lot::Mutex;
use pelago_client::{At, Renamed};
use pelago_fuse::Reply;
use pelago_wire::{Context, Entry, Error, FileKind, InodeId, OpenFlags, OpenId, RenameFlags};

use crate::attr;
use crate::open_ids::OpenPath;
use crate::state::State;
use crate::unlinked::Retained;

/// A RENAME in progress.
pub(crate) struct Renaming {
    pub(crate) state: Arc<State>,
    pub(crate) context: Context,
    pub(crate) from: At,
    pub(crate) to: At,
    pub(crate) how: RenameFlags,
    pub(crate) reply: Reply<()>,
}

impl Renaming {
    /// Retains the file that will be replaced, if there is one, and renames. `target` is that file,
    /// if it is known.
    pub(crate) fn start(self, target: Option<Entry>) {
        if !self.how.replaces() {
            return self.perform(None);
        }
        if let Some(target) = target {
            return match (target.attr.links, target.attr.kind) {
                (1, FileKind::Regular) => self.retain_and_perform(&target),
                (1, _) => self.retain(&target),
                _ => self.perform(None),
            };
        }
        let state = Arc::clone(&self.state);
        state.files.lookup(&self.context, self.to.clone()).then(move |found| match found {
            Ok(target) if target.attr.links == 1 => self.retain(&target),
            _ => self.perform(None),
        });
    }

    /// Retains `target` and renames; if it cannot be retained, the rename happens all the same.
    fn retain(self, target: &Entry) {
        let files = self.state.files.clone();
        match target.attr.kind {
            FileKind::Regular => {
                // The kernel does not know of this open, so any data path will do.
                let passthrough = self.state.passthrough.is_on();
                let read = OpenFlags { read: true, passthrough, ..OpenFlags::default() };
                let opened = files.open(&self.context, target.handle, read);
                opened.then(move |opened| {
                    let open = opened.ok().map(|opened| opened.open);
                    if let Some(open) = open {
                        self.state.open_ids.add(open, OpenPath::Cached, false);
                    }
                    self.perform(open.map(Retained::Open));
                });
            }
            FileKind::Symlink => {
                let read = files.read_link(&self.context, target.handle);
                read.then(move |read| self.perform(read.ok().map(Retained::Target)));
            }
            _ => self.perform(None),
        }
    }

    /// Asks for both at once: the server opens the file first, unless it has to wait for its disk.
    /// Then the file may be gone, as for any program that opens it now.
    fn retain_and_perform(self, target: &Entry) {
        let Self { state, context, from, to, how, reply } = self;
        let dirs = [from.dir.ino, to.dir.ino];
        let read = OpenFlags { read: true, ..OpenFlags::default() };
        let opened = state.files.open(&context, target.handle, read);
        let renamed = state.files.rename(&context, from, to, how);
        let of_open = Arc::new(Mutex::new(BothAnswers {
            state,
            dirs,
            reply: Some(reply),
            opened: None,
            renamed: None,
        }));
        let of_rename = Arc::clone(&of_open);
        opened.then(move |opened| {
            let mut both = of_open.lock();
            both.opened = Some(opened.ok().map(|opened| opened.open));
            both.finish();
        });
        renamed.then(move |renamed| {
            let mut both = of_rename.lock();
            both.renamed = Some(renamed);
            both.finish();
        });
    }

    fn perform(self, retained: Option<Retained>) {
        let Self { state, context, from, to, how, reply } = self;
        let (files, dirs) = (state.files.clone(), [from.dir.ino, to.dir.ino]);
        files.rename(&context, from, to, how).then(move |result| {
            match state.renamed(dirs, result, retained) {
                Ok(()) => reply.ok(&()),
                Err(error) => reply.error(attr::error(error)),
            }
        });
    }
}

/// The answers to an open and to a rename that were asked for at once.
struct BothAnswers {
    state: Arc<State>,
    dirs: [InodeId; 2],
    reply: Option<Reply<()>>,
    opened: Option<Option<OpenId>>,
    renamed: Option<Result<Renamed, Error>>,
}

impl BothAnswers {
    /// Replies if both are there.
    fn finish(&mut self) {
        if self.opened.is_none() || self.renamed.is_none() {
            return;
        }
        let (Some(open), Some(renamed), Some(reply)) =
            (self.opened.take(), self.renamed.take(), self.reply.take())
        else {
            return;
        };
        if let Some(open) = open {
            self.state.open_ids.add(open, OpenPath::Cached, false);
        }
        match self.state.renamed(self.dirs, renamed, open.map(Retained::Open)) {
            Ok(()) => reply.ok(&()),
            Err(error) => reply.error(attr::error(error)),
        }
    }
}

impl State {
    fn renamed(
        &self,
        dirs: [InodeId; 2],
        result: Result<Renamed, Error>,
        retained: Option<Retained>,
    ) -> Result<(), Error> {
        self.changed(dirs);
        let replaced = match result {
            Ok(Renamed { moved, replaced }) => {
                self.inodes.moved(moved);
                self.entry_attrs.changes(moved.ino);
                self.changed([moved.ino]);
                replaced
            }
            Err(error) => {
                self.release_retained(retained);
                return Err(error);
            }
        };
        match replaced {
            Some(replaced) => {
                self.inodes.moved(replaced.handle);
                self.entry_attrs.changes(replaced.handle.ino);
                self.release_retained(self.unlinked.retain(replaced.attr, retained));
            }
            None => self.release_retained(retained),
        }
        Ok(())
    }

    /// Releases a retained file.
    pub(crate) fn release_retained(&self, retained: Option<Retained>) {
        let Some(Retained::Open(open)) = retained else { return };
        let _known = self.open_ids.remove(open);
        self.files.release(&Context::direct(0, 0), open).then(move |released| {
            if let Err(error) = released {
                tracing::debug!(%error, "a replaced file cannot be released");
            }
        });
    }
}
