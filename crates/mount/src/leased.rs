//! Pages of files and listings in a mount under leases: the kernel uses them only while the
//! attributes are under a lease, and drops them if they may be of another version.

use std::sync::Arc;

use pelago_fuse::ids::FileId;
use pelago_fuse::{Header, Reply, reply};
use pelago_wire::{Attr, Error, InodeId, Touched};

use crate::attr;
use crate::page_versions::Pages;
use crate::state::State;

impl State {
    /// Counts an open with pages of a file or directory. Pages of another version are stale from
    /// then on. Returns `None` if no page may be used.
    pub(crate) fn open_pages(&self, found: &Attr) -> Option<Pages> {
        self.lifetimes.leased_version(found)?;
        let pages = self.page_versions.open(found)?;
        if pages == Pages::Other {
            self.stale_pages.add(found.ino, 0, u64::MAX);
        }
        Some(pages)
    }

    /// Counts the end of an open with pages.
    pub(crate) fn close_pages(&self, ino: InodeId) {
        if self.lifetimes.is_leased() {
            self.page_versions.close(ino);
        }
    }

    /// Forgets the versions of an inode that the kernel has forgotten.
    pub(crate) fn forget_pages(&self, ino: InodeId) {
        if self.lifetimes.is_leased() {
            self.page_versions.forget(ino);
        }
    }

    /// Marks the pages of an open file as stale, if the attributes that are about to be sent may
    /// belong to other bytes and the kernel would not notice it. Then they get no lifetime.
    pub(crate) fn compare_pages(&self, found: &mut Result<Attr, Error>) {
        if let Ok(found) = found
            && self.lifetimes.is_leased()
            && self.page_versions.compare(found, self.lifetimes.leased_version(found))
        {
            self.stale_pages.add(found.ino, 0, u64::MAX);
            found.volatile = true;
        }
    }

    /// Returns whether attributes that are about to be sent with an entry may have a lifetime: not
    /// if they may belong to other bytes than the pages, and the kernel would not notice it.
    pub(crate) fn entry_holds(&self, found: &Attr) -> bool {
        !self.lifetimes.is_leased() || self.page_versions.compare_entry(found)
    }

    /// Records that attributes which were compared did not reach the kernel.
    pub(crate) fn not_delivered(&self, ino: InodeId) {
        if self.lifetimes.is_leased() {
            self.page_versions.not_delivered(ino);
        }
    }

    /// Records attributes that are about to be sent, and that the kernel takes without a look at
    /// its pages.
    pub(crate) fn sent_changed(&self, changed: &Attr) {
        if self.lifetimes.is_leased() {
            self.page_versions.sent(changed);
        }
    }

    /// Drops held attributes and page versions of nodes that others change, unless the kernel keeps
    /// everything.
    pub(crate) fn others_change(&self, changes: &[Touched]) {
        if self.lifetimes.keeps_everything() {
            return;
        }
        for change in changes {
            match change {
                Touched::Node(ino) | Touched::Bytes(ino) | Touched::Name { dir: ino, .. } => {
                    self.page_versions.bypass(*ino);
                    self.changed([*ino]);
                }
            }
        }
    }

    /// Opens a directory. The kernel keeps a listing under a lease if it is of the present version,
    /// by the attributes that the holder of the lease answers.
    pub(crate) fn open_dir(self: &Arc<Self>, header: &Header, mut reply: Reply<reply::Opened>) {
        let dir = attr::ino(header.node);
        let losses = self.files.losses();
        if !self.lifetimes.is_leased() || self.lifetimes.keeps_nothing_of(dir) {
            let is_informed =
                self.lifetimes.keeps_everything() && !self.lifetimes.is_elsewhere(dir);
            let pages = is_informed.then_some(Pages::Same);
            return reply.ok(&self.streams.open(dir, losses, pages));
        }
        let state = Arc::clone(self);
        let answer = self.files.get_attr(&self.context(header), self.handle(header.node));
        answer.then(move |found| {
            let pages = found.ok().and_then(|found| state.open_pages(&found));
            let shared = Arc::clone(&state);
            let go = move || match reply.claim() {
                true => reply.ok(&state.streams.open(dir, losses, pages)),
                // Its caller was killed, and no RELEASEDIR will come.
                false if pages.is_some() => state.close_pages(dir),
                false => {}
            };
            shared.stale_pages.when_clean(dir, go);
        });
    }

    /// Records that a directory is listed. Called before the server is asked and again before the
    /// reply, because pages may be dropped in between.
    pub(crate) fn list_pages(&self, dir: InodeId) {
        if self.lifetimes.is_leased() {
            self.page_versions.listed(dir);
        }
    }

    /// Closes a directory.
    pub(crate) fn close_dir(&self, header: &Header, file: FileId) {
        if self.streams.close(file) {
            self.close_pages(attr::ino(header.node));
        }
    }
}
