//! Pruning: the kernel is asked to forget inodes, so that the inode table stays within its limit.
//!
//! The mount must not drop an entry by itself: the kernel may use the node id at any time until it
//! forgets it. Linux 6.18 and later can be asked to forget (FUSE_NOTIFY_PRUNE): it forgets the
//! inodes that only its cache of names refers to, and sends FORGET for each. An open file or a
//! current directory stays. An older kernel answers `EINVAL`, and the next sweep comes only after
//! the table has grown: its size then follows the kernel's own cache, which shrinks if memory is
//! short.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pelago_fuse::Notifier;
use pelago_fuse::ids::NodeId;

use crate::inodes::Inodes;

/// Nodes of one notice; the kernel copies as many at a time.
const NODES: usize = 512;
/// Parts of the table, which are pruned one after the other until there is room.
const PARTS: usize = 8;
/// Passes over the whole table before what is left counts as in use.
const ROUNDS: u32 = 4;
/// Time to wait for FORGET before the next part, in steps.
const WAIT_STEP: Duration = Duration::from_millis(1);
const WAIT_STEPS: u32 = 20;

/// Starts a sweep on a thread of its own, because the caller may be answering a request.
pub(crate) fn start(inodes: &Arc<Inodes>, kernel: &Notifier) {
    let of_thread = Arc::clone(inodes);
    let kernel = kernel.clone();
    let ask = move || {
        if let Err(error) = make_room(&of_thread, &kernel) {
            tracing::info!(%error, "no pruning: the inode table may exceed its limit");
        }
        of_thread.end_sweep();
    };
    if let Err(error) = pelago_threads::spawn("forget", ask) {
        tracing::warn!(%error, "no pruning: the inode table may exceed its limit");
        inodes.end_sweep();
    }
}

/// Asks the kernel to forget those of these inodes that only its cache of names refers to. An older
/// kernel does nothing.
pub(crate) fn ask_for(kernel: &Notifier, nodes: &[NodeId]) {
    for part in nodes.chunks(NODES) {
        if let Err(error) = kernel.prune(part) {
            tracing::debug!(%error, "no pruning");
        }
    }
}

/// Prunes one part of the table after the other until there is room.
fn make_room(inodes: &Inodes, kernel: &Notifier) -> io::Result<()> {
    for _ in 0..ROUNDS {
        for part in 0..PARTS {
            ask(inodes, kernel, part)?;
            for _ in 0..WAIT_STEPS {
                if inodes.has_room() {
                    return Ok(());
                }
                thread::sleep(WAIT_STEP);
            }
        }
    }
    Ok(())
}

fn ask(inodes: &Inodes, kernel: &Notifier, part: usize) -> io::Result<()> {
    let mut nodes = Vec::with_capacity(NODES);
    for stripe in 0..Inodes::STRIPES {
        for ino in inodes.part_of_stripe(stripe, part, PARTS) {
            nodes.push(NodeId(ino.raw()));
            if nodes.len() == NODES {
                kernel.prune(&nodes)?;
                nodes.clear();
            }
        }
    }
    if nodes.is_empty() { Ok(()) } else { kernel.prune(&nodes) }
}
