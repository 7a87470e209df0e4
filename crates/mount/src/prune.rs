//! Asking the kernel to forget inodes, so that the table of them keeps its limit.
//!
//! Only the kernel can take an entry away: it may use the number at any time until it forgets it.
//! Since Linux 6.18 it can be asked (FUSE_NOTIFY_PRUNE); it forgets what nothing but its cache of
//! names refers to, and sends FORGET for each. A file that is open, or that a process stands in,
//! stays. An older kernel is asked once; the table then follows that kernel's own cache, which the
//! kernel makes smaller when memory is short.

use std::io;
use std::sync::Arc;
use std::thread::{self, Builder};
use std::time::Duration;

use pelago_fuse::Notifier;
use pelago_fuse::ids::NodeId;

use crate::inodes::Inodes;

/// Nodes of one question; the kernel copies as many at a time.
const NODES: usize = 512;
/// Parts of the table that are asked for one after the other, until there is room.
const PARTS: usize = 8;
/// How often all of it is asked for before what is left counts as in use.
const ROUNDS: u32 = 4;
/// How long FORGET may be on its way before the next part is asked for, looked at so often.
const LOOK: Duration = Duration::from_millis(1);
const LOOKS: u32 = 20;

/// Asks from a thread of its own: who notices that the table is full may be answering a request.
pub(crate) fn start(inodes: &Arc<Inodes>, kernel: &Notifier) {
    let (of_thread, kernel) = (Arc::clone(inodes), kernel.clone());
    let ask = move || {
        if let Err(error) = ask_for_room(&of_thread, &kernel) {
            tracing::info!(%error, "the kernel forgets inodes in its own time");
        }
        of_thread.end_sweep();
    };
    if let Err(error) = Builder::new().name("forget".to_owned()).spawn(ask) {
        tracing::warn!(%error, "the kernel is not asked to forget inodes");
        inodes.end_sweep();
    }
}

/// Asks for one part of the table after the other until there is room.
fn ask_for_room(inodes: &Inodes, kernel: &Notifier) -> io::Result<()> {
    for _ in 0..ROUNDS {
        for part in 0..PARTS {
            ask(inodes, kernel, part)?;
            for _ in 0..LOOKS {
                if inodes.has_room() {
                    return Ok(());
                }
                thread::sleep(LOOK);
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
