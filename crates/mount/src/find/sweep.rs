//! Sweeps: the kernel is asked to forget hidden files, so that their memory stays in its limit.
//!
//! The kernel caches a name whose lifetime is over until it needs the memory, and with the name it
//! holds the node. A long `ls -l` of a folder of links would fill the table in this way. As for
//! real inodes ([`crate::prune`]), Linux 6.18 forgets the nodes that it is asked to forget, unless
//! a program uses them (FUSE_NOTIFY_PRUNE). An older kernel answers `EINVAL`; there links are
//! invalidated by their names, which takes the lock of their folder, and folders stay as long as
//! the kernel likes.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pelago_fuse::Notifier;
use pelago_fuse::ids::NodeId;
use pelago_wire::InodeId;

use super::nodes::{Node, Nodes};

/// Nodes of one notice; the kernel copies as many at a time.
const NODES: usize = 512;
/// Least time from the end of a sweep to the next one: the nodes that are left may be in use.
const PAUSE: Duration = Duration::from_millis(50);

/// The sweeps of a mount, one after the other.
#[derive(Debug)]
pub(super) struct Sweeps {
    kernel: Notifier,
    is_sweeping: AtomicBool,
}

impl Sweeps {
    pub(super) const fn new(kernel: Notifier) -> Self {
        Self { kernel, is_sweeping: AtomicBool::new(false) }
    }

    /// Starts a sweep, unless one is under way. It runs on a thread of its own: the caller answers
    /// a request, whose program may hold the lock of the folder that the sweep needs.
    pub(super) fn start(self: &Arc<Self>, nodes: &Arc<Nodes>) {
        if self.is_sweeping.swap(true, Ordering::Acquire) {
            return;
        }
        let sweeps = Arc::clone(self);
        let nodes = Arc::clone(nodes);
        let sweep = move || {
            sweeps.sweep(&nodes);
            thread::sleep(PAUSE);
            sweeps.is_sweeping.store(false, Ordering::Release);
        };
        if let Err(error) = pelago_threads::spawn("forget", sweep) {
            tracing::warn!(%error, "the kernel is not asked to forget hidden files");
            self.is_sweeping.store(false, Ordering::Release);
        }
    }

    fn sweep(&self, nodes: &Nodes) {
        let known = nodes.all();
        let numbers: Vec<NodeId> = known.iter().map(|(number, _)| node_id(*number)).collect();
        let pruned: io::Result<()> =
            numbers.chunks(NODES).try_for_each(|some| self.kernel.prune(some));
        if pruned.is_ok() {
            return;
        }
        for (_, node) in known {
            if let Node::Link { folder, name, .. } = &*node {
                // The kernel may have dropped it meanwhile.
                let _unknown = self.kernel.inval_entry(node_id(*folder), OsStr::from_bytes(name));
            }
        }
    }
}

const fn node_id(number: InodeId) -> NodeId {
    NodeId(number.raw())
}
