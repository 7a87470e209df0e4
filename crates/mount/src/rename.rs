//! Renaming over what somebody may be about to open.
//!
//! The kernel resolves a path first and opens what it found later. Where a rename takes the last
//! name of that file in between, the server would have forgotten it, and the open would fail
//! although at no moment there was no file under the name. So what a rename replaces is kept until
//! the kernel does not refer to it any more. (Where it was unlinked the kernel looks up the path
//! once more, and finds that it is not there.)

use std::sync::Arc;

use pelago_fuse::Reply;
use pelago_wire::{Context, Entry, Error, FileKind, OpenFlags, RenameFlags};

use crate::attr;
use crate::open_ids::OpenPath;
use crate::state::State;
use crate::unlinked::Retained;
use pelago_client::{At, Renamed};

/// A RENAME on its way.
pub(crate) struct Renaming {
    pub(crate) state: Arc<State>,
    pub(crate) context: Context,
    pub(crate) from: At,
    pub(crate) to: At,
    pub(crate) how: RenameFlags,
    pub(crate) reply: Reply<()>,
}

impl Renaming {
    /// Looks whether something will be replaced, and renames.
    pub(crate) fn start(self) {
        if !self.how.replaces() {
            return self.perform(None);
        }
        let state = Arc::clone(&self.state);
        state.files.lookup(&self.context, self.to.clone()).then(move |found| match found {
            Ok(target) if target.attr.links == 1 => self.keep(&target),
            _ => self.perform(None),
        });
    }

    /// Keeps what will be replaced; where that fails it is renamed all the same.
    fn keep(self, target: &Entry) {
        let files = Arc::clone(&self.state.files);
        match target.attr.kind {
            FileKind::Regular => {
                // The kernel knows nothing of this open, so any path to its bytes will do.
                let passthrough = self.state.passthrough.is_on();
                let read = OpenFlags { read: true, passthrough, ..OpenFlags::default() };
                let opened = files.open(&self.context, target.handle, read);
                opened.then(move |opened| {
                    let open = opened.ok().map(|opened| opened.open);
                    if let Some(open) = open {
                        self.state.open_ids.add(open, OpenPath::Daemon);
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

    fn perform(self, kept: Option<Retained>) {
        let Self { state, context, from, to, how, reply } = self;
        let files = Arc::clone(&state.files);
        files.rename(&context, from, to, how).then(move |result| {
            match state.renamed(result, kept) {
                Ok(()) => reply.ok(&()),
                Err(error) => reply.error(attr::error(error)),
            }
        });
    }
}

impl State {
    fn renamed(&self, result: Result<Renamed, Error>, kept: Option<Retained>) -> Result<(), Error> {
        let replaced = match result {
            Ok(Renamed { moved, replaced }) => {
                self.inodes.moved(moved);
                replaced
            }
            Err(error) => {
                self.release_retained(kept);
                return Err(error);
            }
        };
        match replaced {
            Some(replaced) => {
                self.inodes.moved(replaced.handle);
                self.release_retained(self.unlinked.retain(replaced.attr, kept));
            }
            None => self.release_retained(kept),
        }
        Ok(())
    }

    /// What was kept is not needed any more.
    pub(crate) fn release_retained(&self, kept: Option<Retained>) {
        let Some(Retained::Open(open)) = kept else { return };
        let _known = self.open_ids.remove(open);
        self.files.release(&Context::direct(0, 0), open).then(move |released| {
            if let Err(error) = released {
                tracing::debug!(%error, "a file that was replaced");
            }
        });
    }
}
