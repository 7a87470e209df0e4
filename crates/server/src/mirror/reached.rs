//! The stage that the last change of a file has reached on its way to the mirror: each group has
//! all batches up to a stamp, and each row the stamp of its last change.

use std::time::{Duration, Instant};

use pelago_meta::shard::LastChange;
use pelago_store::rows::{MirrorRole, Stamp};
use pelago_wire::{Error, Handle, MirrorStage, Reached, SentGroup};

use super::{Mirror, State};

/// The stamps up to which the mirror, and the cut that is being sent, have all batches.
#[derive(Debug, Default)]
pub(super) struct GroupStamps {
    /// `None`: the mirror may have any state.
    mirrored: Option<Stamp>,
    /// The cut that is being sent.
    under_way: Option<UnderWay>,
}

#[derive(Debug)]
struct UnderWay {
    stamp: Stamp,
    since: Instant,
    /// The number of its group, once that has begun.
    number: Option<u64>,
}

/// The part of a change that no row has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// None.
    Nothing,
    /// Bytes that were or are sent, perhaps in the newest group.
    Newest,
    /// Bytes that are sent now.
    UnderWay,
    /// Something that is not cut yet.
    Uncut,
}

impl GroupStamps {
    /// Records a cut.
    pub(super) const fn cut(&mut self, stamp: Stamp, since: Instant) {
        self.under_way = Some(UnderWay { stamp, since, number: None });
    }

    /// Records the number of the group of the cut.
    pub(super) const fn begin(&mut self, number: u64) {
        if let Some(under_way) = &mut self.under_way {
            under_way.number = Some(number);
        }
    }

    /// Records that the cut is not being sent any more.
    pub(super) const fn end(&mut self) {
        self.under_way = None;
    }

    /// Records that the mirror has all batches up to this stamp.
    pub(super) fn mirrored(&mut self, stamp: Stamp) {
        self.mirrored = self.mirrored.max(Some(stamp));
    }

    /// Records that the mirror is to be copied or compared.
    pub(super) fn start_over(&mut self) {
        *self = Self::default();
    }
}

impl State {
    /// Returns the stage of a change that the rows have since this batch. `beside`: what they do
    /// not have.
    fn stage_of(&self, stamp: Stamp, beside: Beside) -> Reached {
        let groups = &self.groups;
        if beside == Beside::Uncut {
            return Reached::at(MirrorStage::Queued);
        }
        let newest = beside != Beside::Nothing;
        if groups.mirrored.is_some_and(|mirrored| stamp <= mirrored)
            && (!newest || (self.relay.queue().is_empty() && groups.under_way.is_none()))
        {
            return Reached::at(MirrorStage::Mirrored);
        }
        let is_cut_newest = newest && groups.under_way.is_some();
        let queue = self.relay.queue();
        if beside != Beside::UnderWay
            && !is_cut_newest
            && let Some((stage, number, since)) = queue.stage_of(stamp, newest)
        {
            return at_group(stage, Some(number), since);
        }
        match &groups.under_way {
            Some(under_way) if newest || stamp <= under_way.stamp => {
                at_group(MirrorStage::Link, under_way.number, under_way.since)
            }
            Some(_) | None => Reached::at(MirrorStage::Queued),
        }
    }
}

fn at_group(stage: MirrorStage, number: Option<u64>, since: Instant) -> Reached {
    let age = Duration::from_millis(since.elapsed().as_millis().try_into().unwrap_or(u64::MAX));
    Reached { stage, group: number.map(|number| SentGroup { number, age }) }
}

impl Mirror {
    /// Returns the stage that the last change of a file or directory has reached: of a directory,
    /// of its names too. If that is not known exactly, an earlier stage is returned.
    ///
    /// # Errors
    /// `Stale` if there is no such node; errors of the table.
    pub(crate) fn reached(&self, node: Handle) -> Result<Reached, Error> {
        let parts = &self.parts;
        // No cut is taken, and none ends, until all of this is read.
        let state = self.state.lock();
        let uncommitted = parts.opens.has_uncommitted_bytes(node.ino);
        let last = parts.shard.last_change(node)?;
        let LastChange { ino, content, stamp, epoch } = last;
        let is_cut = |key| parts.opens.changes().is_in_cut(key);
        let beside = match content.map(|generation| (ino, generation)) {
            _ if stamp.is_none() => Beside::Uncut,
            None if uncommitted => Beside::Uncut,
            Some(key) if parts.opens.changes().is_uncut(key) => Beside::Uncut,
            Some(key) if is_cut(key) => Beside::UnderWay,
            Some(_) if parts.opens.has_writers(ino) => Beside::Newest,
            None | Some(_) => Beside::Nothing,
        };
        let stamp = stamp.unwrap_or_default();
        let reached = match state.row.role {
            // The reader of a mirror sees nothing else.
            MirrorRole::Mirror => return Ok(Reached::at(MirrorStage::Mirrored)),
            MirrorRole::Primary if !state.row.peer.is_empty() => state.stage_of(stamp, beside),
            MirrorRole::Primary | MirrorRole::Replaced | MirrorRole::Adopted => {
                Reached::at(MirrorStage::Local)
            }
        };
        drop(state);
        let is_safe = stamp.epoch < epoch || stamp.sequence <= parts.durability.safe();
        let has_all = beside != Beside::Uncut || content.is_some();
        let bytes_are_safe = !uncommitted && has_all && !parts.opens.is_unsafe(ino);
        Ok(match reached.stage {
            MirrorStage::Queued | MirrorStage::Local if !(is_safe && bytes_are_safe) => {
                Reached::at(MirrorStage::Done)
            }
            _ => reached,
        })
    }
}
