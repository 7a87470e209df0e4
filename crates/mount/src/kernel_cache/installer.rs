//! The thread that invalidates inodes which the kernel is about to install.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use parking_lot::MutexGuard;
use pelago_wire::InodeId;

use super::work::Work;
use super::{Teller, invalidate, started};
use crate::installing;

impl Teller {
    /// Starts the thread, unless it runs. Returns whether it does.
    pub(super) fn start_installer(self: &Arc<Self>, work: &mut MutexGuard<'_, Work>) -> bool {
        if !work.installs {
            let teller = Arc::clone(self);
            let install = move || teller.install();
            work.installs = started(pelago_threads::spawn("fuse-nodes", install));
        }
        work.installs
    }

    /// Invalidates inodes once the kernel has installed them, until the end. Names wait for locks
    /// of programs, and these for nothing but the kernel: so it is a thread of its own.
    fn install(&self) {
        let mut pause = installing::FIRST_PAUSE;
        let mut work = self.work.lock();
        while !work.ended {
            if work.installing.is_empty() {
                pause = installing::FIRST_PAUSE;
                self.installs.wait(&mut work);
                continue;
            }
            let all = std::mem::take(&mut work.installing);
            drop(work);
            let (told, left): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|inode| self.is_installed(inode.ino, inode.since));
            let is_any = !told.is_empty();
            work = self.work.lock();
            work.installing.extend(left);
            let ready = told.iter().filter_map(|inode| work.told_node(inode.change));
            let ready: Vec<_> = ready.collect();
            MutexGuard::unlocked(&mut work, || {
                ready.into_iter().for_each(|then| then());
                if !is_any {
                    // Nothing tells that the kernel has installed an inode.
                    thread::sleep(pause);
                }
            });
            pause = (2 * pause).min(installing::LONGEST_PAUSE);
        }
    }

    /// Invalidates an inode. Returns whether nothing of it is on its way any more.
    fn is_installed(&self, ino: InodeId, since: Instant) -> bool {
        let Some(state) = self.state.upgrade() else { return true };
        let Some(kernel) = state.kernel.get() else { return true };
        installing::is_over(&state, ino, since, |ino| invalidate(kernel, ino))
    }
}
