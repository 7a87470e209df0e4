//! The thread that invalidates inodes which the kernel is about to install.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use parking_lot::MutexGuard;
use pelago_wire::InodeId;

use super::work::Work;
use super::{Invalidator, invalidate, started};
use crate::installing;

impl Invalidator {
    /// Starts the thread, unless it runs. Returns whether it does.
    pub(super) fn start_installer(self: &Arc<Self>, work: &mut MutexGuard<'_, Work>) -> bool {
        if !work.installs {
            let invalidator = Arc::clone(self);
            let install = move || invalidator.install();
            work.installs = started(pelago_threads::spawn("fuse-nodes", install));
        }
        work.installs
    }

    /// Invalidates inodes once the kernel has installed them, until the end. It is a thread of its
    /// own because names wait for locks that programs hold, and inodes only for the kernel.
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
            let (installed, left): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|inode| self.is_installed(inode.ino, inode.since));
            let is_any = !installed.is_empty();
            work = self.work.lock();
            work.installing.extend(left);
            let ready = installed.iter().filter_map(|inode| work.inode_invalidated(inode.change));
            let ready: Vec<_> = ready.collect();
            MutexGuard::unlocked(&mut work, || {
                ready.into_iter().for_each(|then| then());
                if !is_any {
                    // The kernel sends no message when it has installed an inode.
                    thread::sleep(pause);
                }
            });
            pause = (2 * pause).min(installing::LONGEST_PAUSE);
        }
    }

    /// Invalidates an inode. Returns whether no entry of it is on its way any more.
    fn is_installed(&self, ino: InodeId, since: Instant) -> bool {
        let Some(state) = self.state.upgrade() else { return true };
        let Some(kernel) = state.kernel.get() else { return true };
        installing::is_over(&state, ino, since, |ino| invalidate(kernel, ino))
    }
}
