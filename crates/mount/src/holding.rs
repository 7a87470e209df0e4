//! Opens what the kernel still has of files without a name; see [`HeldInodes`].
//!
//! [`HeldInodes`]: crate::held_inodes::HeldInodes

use std::sync::Arc;

use pelago_client::Opened;
use pelago_fuse::Notifier;
use pelago_fuse::ids::NodeId;
use pelago_wire::{Attr, Context, FileKind, InodeId, OpenFlags, Touched};

use crate::held_inodes::{HeldInode, Remover, Told};
use crate::kernel_cache::invalidate;
use crate::open_ids::OpenPath;
use crate::prune;
use crate::state::State;
use crate::unlinked::Retained;

/// Ticks from a notice to the question for the names, the first time.
const FIRST: u32 = 2;
/// How often the server is asked, each time after twice as long.
const QUESTIONS: u32 = 5;

impl State {
    /// Has the thread look at what the kernel holds, unless it is about to: names were removed.
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

    /// Others have made these changes, or are about to: perhaps they remove names. `known`: nodes
    /// of them that the kernel has behind the notices.
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
        self.held_inodes.add(files.map(|ino| Told { ino: *ino, due, questions: 0 }));
        self.has_removed();
    }

    /// Opens what the kernel has not forgotten in time. Returns whether there will be more to look
    /// at. Waits for no answer.
    fn look_at_held(self: &Arc<Self>) -> bool {
        let tick = self.unlinked.next_tick();
        let (unlinked, more_unlinked) = self.unlinked.due(tick);
        for ino in unlinked {
            // A removal whose program was killed ends perhaps after the kernel's FORGET, of which
            // there is no second one.
            match self.kernel.get() {
                Some(kernel) if !invalidate(kernel, ino) => {
                    self.forget_unlinked(ino);
                }
                Some(_) | None => self.hold(ino, Remover::This),
            }
        }
        let (told, more_told) = self.held_inodes.due(tick);
        if let Some(kernel) = self.kernel.get()
            && !told.is_empty()
        {
            let nodes: Vec<NodeId> = told.iter().map(|told| NodeId(told.ino.raw())).collect();
            prune::ask_for(kernel, &nodes);
            for told in told {
                self.ask_for_names(kernel, told);
            }
        }
        more_unlinked || more_told
    }

    /// Opens a file that others have removed, if the kernel has it.
    fn ask_for_names(self: &Arc<Self>, kernel: &Notifier, told: Told) {
        if !invalidate(kernel, told.ino) {
            return;
        }
        let state = Arc::clone(self);
        let handle = self.inodes.handle(told.ino);
        let asked = self.files.get_attr(&Context::direct(0, 0), handle);
        asked.then(move |found| match found {
            Ok(attr) if attr.kind != FileKind::Regular => {}
            Ok(attr) if attr.links == 0 => state.is_removed(&attr),
            Ok(_) => state.ask_again(told),
            Err(error) => tracing::debug!(%error, ino = told.ino.raw(), "a held file is gone"),
        });
    }

    /// The name is still there. If nothing says so to the server, it may be about to go.
    fn ask_again(self: &Arc<Self>, told: Told) {
        let Told { ino, questions, .. } = told;
        let questions = questions + 1;
        let is_told = self.lifetimes.keeps_everything() || !self.lifetimes.keeps_nothing_of(ino);
        if is_told || questions == QUESTIONS {
            return;
        }
        let due = self.unlinked.tick() + (FIRST << questions);
        self.held_inodes.add([Told { ino, due, questions }].into_iter());
        self.has_removed();
    }

    fn is_removed(self: &Arc<Self>, attr: &Attr) {
        self.unlinked.add_looked_at(*attr);
        // What it forgets from here on is taken out there.
        match self.kernel.get().is_some_and(|kernel| invalidate(kernel, attr.ino)) {
            true => self.hold(attr.ino, Remover::Other),
            false => self.forget_unlinked(attr.ino),
        }
    }

    /// Releases what was retained of an inode without a name that the kernel has forgotten.
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

    /// Asks the kernel to forget those files that others have removed and nothing holds any more.
    fn prune_held(&self) {
        let told = self.held_inodes.removed_by_others(|ino| self.unlinked.is_held(ino));
        let told: Vec<NodeId> = told.into_iter().map(|ino| NodeId(ino.raw())).collect();
        if let Some(kernel) = self.kernel.get() {
            prune::ask_for(kernel, &told);
        }
    }
}
