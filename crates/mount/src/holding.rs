//! Opens of unlinked files that the kernel still refers to; see [`HeldInodes`].
//!
//! [`HeldInodes`]: crate::held_inodes::HeldInodes

use std::sync::Arc;

use pelago_client::Opened;
use pelago_fuse::Notifier;
use pelago_fuse::ids::NodeId;
use pelago_wire::{Attr, Context, FileKind, InodeId, OpenFlags, Touched};

use crate::held_inodes::{ChangedInode, HeldInode, Remover};
use crate::kernel_cache::invalidate;
use crate::open_ids::OpenPath;
use crate::prune;
use crate::state::State;
use crate::unlinked::Retained;

/// Ticks from the change of a name to the first request for the file's count of names.
const FIRST: u32 = 2;
/// Limit of such requests for one file; each comes after twice as many ticks as the one before.
const QUESTIONS: u32 = 5;

impl State {
    /// Wakes the thread that looks at unlinked files, because names were removed.
    pub(crate) fn has_removed(self: &Arc<Self>) {
        self.held_inodes.wake(|looks| {
            let state = Arc::downgrade(self);
            let look = move |prunes| {
                let state = state.upgrade()?;
                let any_more = state.look_at_held();
                if prunes {
                    state.prune_held();
                }
                Some(any_more)
            };
            pelago_threads::spawn("fuse-held", move || looks.run(look)).map(drop)
        });
    }

    /// Records inodes that others have perhaps unlinked, or are about to unlink, by these changes.
    /// `known`: nodes of the changes that the kernel still has after their invalidation.
    pub(crate) fn note_known(self: &Arc<Self>, changes: &[Touched], known: &[InodeId]) {
        let dirs = changes.iter().filter_map(|change| match change {
            Touched::Name { dir, .. } => Some(*dir),
            Touched::Node(_) | Touched::Bytes(_) => None,
        });
        let dirs: Vec<InodeId> = dirs.collect();
        let mut files = known.iter().filter(|ino| !dirs.contains(ino)).peekable();
        if dirs.is_empty() || files.peek().is_none() {
            return;
        }
        let due = self.unlinked.tick() + FIRST;
        self.held_inodes.add(files.map(|ino| ChangedInode { ino: *ino, due, questions: 0 }));
        self.has_removed();
    }

    /// Opens the unlinked files that the kernel has not forgotten in time. Returns whether more
    /// will be left to look at. Waits for no reply.
    fn look_at_held(self: &Arc<Self>) -> bool {
        let tick = self.unlinked.next_tick();
        let (unlinked, more_unlinked) = self.unlinked.due(tick);
        for ino in unlinked {
            // If the program of a removal was killed, the removal may end after the kernel's
            // FORGET, and no second FORGET comes.
            match self.kernel.get() {
                Some(kernel) if !invalidate(kernel, ino) => {
                    self.forget_unlinked(ino);
                }
                Some(_) | None => self.hold(ino, Remover::This),
            }
        }
        let (changed, more_changed) = self.held_inodes.due(tick);
        if let Some(kernel) = self.kernel.get()
            && !changed.is_empty()
        {
            let nodes: Vec<NodeId> = changed.iter().map(|inode| NodeId(inode.ino.raw())).collect();
            prune::ask_for(kernel, &nodes);
            for inode in changed {
                self.ask_for_names(kernel, inode);
            }
        }
        more_unlinked || more_changed
    }

    /// Asks the server how many names an inode has, if the kernel still has the inode.
    fn ask_for_names(self: &Arc<Self>, kernel: &Notifier, changed: ChangedInode) {
        if !invalidate(kernel, changed.ino) {
            return;
        }
        let state = Arc::clone(self);
        let handle = self.inodes.handle(changed.ino);
        let asked = self.files.get_attr(&Context::direct(0, 0), handle);
        asked.then(move |found| match found {
            Ok(attr) if attr.kind != FileKind::Regular => {}
            Ok(attr) if attr.links == 0 => state.is_removed(&attr),
            Ok(_) => state.ask_again(changed),
            Err(error) => tracing::debug!(%error, ino = changed.ino.raw(), "a held file is gone"),
        });
    }

    /// Asks later once more, for an inode that still has a name: without a lease, the removal may
    /// be about to come, and no message will report it.
    fn ask_again(self: &Arc<Self>, changed: ChangedInode) {
        let ChangedInode { ino, questions, .. } = changed;
        let questions = questions + 1;
        let is_informed =
            self.lifetimes.keeps_everything() || !self.lifetimes.keeps_nothing_of(ino);
        if is_informed || questions == QUESTIONS {
            return;
        }
        let due = self.unlinked.tick() + (FIRST << questions);
        self.held_inodes.add([ChangedInode { ino, due, questions }].into_iter());
        self.has_removed();
    }

    /// Opens a file that others have removed, if the kernel still has it.
    fn is_removed(self: &Arc<Self>, attr: &Attr) {
        self.unlinked.add_looked_at(*attr);
        // A FORGET from here on removes the inode from `unlinked`.
        match self.kernel.get().is_some_and(|kernel| invalidate(kernel, attr.ino)) {
            true => self.hold(attr.ino, Remover::Other),
            false => self.forget_unlinked(attr.ino),
        }
    }

    /// Releases the file or target that was retained of an unlinked inode, after FORGET.
    pub(crate) fn forget_unlinked(&self, ino: InodeId) {
        let Some(forgotten) = self.unlinked.forget(ino) else { return };
        self.release_retained(forgotten.retained);
        if forgotten.is_file {
            self.files.forgotten(ino);
        }
    }

    /// Opens an unlinked file until the kernel forgets it.
    fn hold(self: &Arc<Self>, ino: InodeId, by: Remover) {
        // The kernel does not know of this open, so any data path will do.
        let passthrough = self.passthrough.is_on();
        let read = OpenFlags { read: true, passthrough, ..OpenFlags::default() };
        let state = Arc::clone(self);
        let handle = self.inodes.handle(ino);
        self.files.open(&Context::direct(0, 0), handle, read).then(move |opened| match opened {
            Ok(opened) => state.is_held(HeldInode { ino, by }, &opened),
            Err(error) => tracing::debug!(%error, ino = ino.raw(), "a held file is gone"),
        });
    }

    fn is_held(&self, held: HeldInode, opened: &Opened) {
        let Opened { open, attr, .. } = opened;
        self.open_ids.add(*open, OpenPath::Cached, false);
        if attr.links > 0 || !self.unlinked.hold(held.ino, *open) {
            return self.release_retained(Some(Retained::Open(*open)));
        }
        let is_held = |ino| self.unlinked.is_held(ino);
        for oldest in self.held_inodes.opened(held, is_held) {
            self.release_retained(self.unlinked.let_go(oldest));
        }
    }

    /// Asks the kernel to forget files that others have removed: those that only its cache of names
    /// still refers to.
    fn prune_held(&self) {
        let held = self.held_inodes.removed_by_others(|ino| self.unlinked.is_held(ino));
        let held: Vec<NodeId> = held.into_iter().map(|ino| NodeId(ino.raw())).collect();
        if let Some(kernel) = self.kernel.get() {
            prune::ask_for(kernel, &held);
        }
    }
}
