//! RENAME, over a file that a program may be about to open.
//!
//! Linux resolves a path first and opens the inode later. If a rename removes the last name of that
//! inode in between, the server would have forgotten it, and the open would fail although the name
//! existed at every moment. Linux resolves the path a second time after `ESTALE`, but not a third
//! time. So a replaced file is retained until the kernel forgets it. (After an unlink the kernel
//! resolves the path again, and finds that the name does not exist.)
//!
//! A mount of another process or machine retains nothing: its server holds a file that a session's
//! rename replaces, for as long as an open may be on its way. A file that the kernel has open needs
//! neither: that open keeps it.

use std::sync::Arc;

use pelago_client::{At, Renamed};
use pelago_fuse::Reply;
use pelago_wire::{Context, Entry, Error, FileKind, OpenFlags, RenameFlags, Touched};

use crate::find::HiddenName;
use crate::late_names::touched_name;
use crate::name_changes::unless_hidden;
use crate::notices::DirEntryKey;
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
    /// Retains the file that will be replaced, unless there is none or the server holds it, and
    /// renames.
    pub(crate) fn start(self) {
        let lifetimes = &self.state.lifetimes;
        let is_retained = lifetimes.keeps_everything() && !lifetimes.is_elsewhere(self.to.dir.ino);
        if !self.how.replaces() || !is_retained {
            return self.perform(None);
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

    fn perform(self, retained: Option<Retained>) {
        let Self { state, context, from, to, how, mut reply } = self;
        let files = state.files.clone();
        let is_one = from.dir.ino == to.dir.ino;
        let changes =
            [state.begin_change(&from), if is_one { None } else { state.begin_change(&to) }];
        state.lifetimes.moves(&from, &to);
        // A recall of the new name may come before the reply.
        state.lifetimes.moves_elsewhere([&from, &to]);
        let is_unleased = state.lifetimes.is_unleased_elsewhere([&from, &to]);
        let hidden_from = HiddenName::of(&from);
        let hidden_to = HiddenName::of(&to);
        let old_name = from.clone();
        let new_name = to.clone();
        let answer = files.rename(&context, from, to, how);
        // The kernel may have looked the old name up once more before the rename was sent.
        state.lifetimes.moves_elsewhere([&old_name, &new_name]);
        answer.then(move |result| {
            changes.into_iter().for_each(|change| state.end_change(change));
            let nodes = result.as_ref().ok().map(|Renamed { moved, replaced }| {
                [Some(moved.ino), replaced.as_ref().map(|replaced| replaced.handle.ino)]
            });
            // If the program was killed, the kernel has dropped both names and perhaps forgotten
            // the replaced file: no FORGET would release it.
            let retained = if reply.claim() { retained } else { state.not_retained(retained) };
            let renamed = state.renamed(result, retained, how, &old_name, &new_name);
            if let (Ok(()), Some(hidden)) = (renamed, hidden_to) {
                state.find.replaced(hidden);
            }
            let renamed = renamed.map_err(|error| unless_hidden(error, hidden_from));
            let names = [&old_name, &new_name];
            state.lifetimes.moves_elsewhere(names);
            let left = match renamed {
                Ok(()) if is_unleased => state.moved_unleased(names),
                Ok(()) | Err(_) => Vec::new(),
            };
            state.done(renamed, reply, || {
                let nodes = nodes.into_iter().flatten().flatten().map(Touched::Node);
                names.into_iter().map(touched_name).chain(nodes).collect()
            });
            if !left.is_empty() {
                state.invalidate_names(left);
            }
            if nodes.is_some_and(|[_, replaced]| replaced.is_some()) {
                state.has_removed();
            }
        });
    }
}

impl State {
    /// Invalidates all names after this mount has moved one of these, if it has a lifetime: the
    /// server is perhaps not told of changes of the new name. Called before the reply to the
    /// rename. Returns what is to be invalidated after it, because the notice was not possible.
    fn moved_unleased(&self, names: [&At; 2]) -> Vec<DirEntryKey> {
        if !self.lifetimes.keeps_elsewhere(names) {
            return Vec::new();
        }
        match self.invalidate_all_names.get().is_some_and(|invalidate| invalidate()) {
            true => Vec::new(),
            false => names.map(DirEntryKey::from).to_vec(),
        }
    }

    fn renamed(
        &self,
        result: Result<Renamed, Error>,
        retained: Option<Retained>,
        how: RenameFlags,
        from: &At,
        to: &At,
    ) -> Result<(), Error> {
        let replaced = match result {
            Ok(Renamed { moved, replaced }) => {
                self.inodes.moved(moved);
                self.is_at(moved, to);
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
                match how {
                    RenameFlags::Exchange => self.is_at(replaced.handle, from),
                    RenameFlags::Replace
                    | RenameFlags::NoReplace
                    | RenameFlags::Whiteout { .. } => {
                        self.lost_a_name(replaced.handle.ino, to);
                    }
                }
                self.changed([replaced.handle.ino]);
                self.release_retained(self.unlinked.retain(replaced.attr, retained));
            }
            None => self.release_retained(retained),
        }
        Ok(())
    }

    /// Releases a retained file. Returns `None`.
    fn not_retained(&self, retained: Option<Retained>) -> Option<Retained> {
        self.release_retained(retained);
        None
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
