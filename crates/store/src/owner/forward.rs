//! The copy of the last owner's table for the next owner, which opens none of the last owner's
//! files for writing.
//!
//! The owner may still run: it may be stopped in the middle of a write, and go on after the taker
//! has begun to serve. So each file that is ever written again is copied. Sorted runs are not
//! written again: the engine makes each in a new file, syncs it, and only then names it in a
//! version; so they are hard-linked. A later change by the old owner makes or removes names in its
//! own folder only.
//!
//! The order is `flushed`, journals, versions, runs (`table::fjall::carry`): rows that the engine
//! moves from a journal to a run meanwhile are in both copies, and never in neither. A copy counts
//! if the files that name the others are unchanged after it; else it is made again. A fenced owner
//! soon stops changing them.

use std::thread;
use std::time::Duration;

use super::error::OwnerError;
use super::names::RunName;
use super::shard;
use crate::folder::Folder;
use crate::table::fjall::carry::{Carried, carry};

/// Most copies that are made until both looks agree.
const TRIES: u32 = 50;
/// The pause between two copies.
const PAUSE: Duration = Duration::from_millis(50);

/// The engine's folder that was made.
#[derive(Debug)]
pub(super) struct Linked {
    pub(super) folder: Folder,
    /// True if bytes of content files may be missing that the owner of the source has written.
    pub(super) may_lack_bytes: bool,
}

/// Makes the engine's folder of `run` from the newest that is whole, of an epoch of at most
/// `before`. All of it is safe when this returns. `boot` is the boot id of this machine.
///
/// # Errors
/// [`OwnerError`]; half of the folder is there then.
pub(super) fn link(
    store: &Folder,
    shard: &Folder,
    run: RunName,
    before: u32,
    boot: &str,
) -> Result<Linked, OwnerError> {
    let name = run.to_string();
    let mut changed = None;
    for attempt in 0..TRIES {
        if attempt > 0 {
            // The fenced owner is about to stop, and no event reports when.
            thread::sleep(PAUSE);
        }
        shard.remove_tree(&name)?;
        let own = shard.create_folder(&name)?;
        let Some(source) = shard::newest_ready(shard, before)? else {
            shard::check_is_new(store, shard)?;
            own.sync()?;
            shard.sync()?;
            return Ok(Linked { folder: own, may_lack_bytes: false });
        };
        // If the owner ends meanwhile, bytes may be reported as missing that are there: that is
        // safe.
        let may_lack_bytes = shard::may_lack_bytes(&source, boot)?;
        match carry(&source, &own)? {
            Carried::Whole => {
                shard.sync()?;
                return Ok(Linked { folder: own, may_lack_bytes });
            }
            Carried::Changed(error) => changed = error,
        }
    }
    Err(match changed {
        Some(error) => error.into(),
        None => OwnerError::corrupt(shard.path(), "its table changes though it was taken over"),
    })
}
