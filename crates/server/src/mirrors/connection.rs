//! The connection of a primary: checks the order of a group's parts, and puts them into the spool
//! or into the copy.
//!
//! After an error the group and the copy are dropped, and the connection ends or reports it; the
//! state of the mirror stays.

use std::sync::Arc;

use pelago_store::rows::{MirrorRole, MirrorRow};
use pelago_store::spool::{GroupSum, SpoolHead, SpooledGroup};
use pelago_wire::Time;
use pelago_wire::mirror::{
    GroupKind, GroupPart, GroupState, Groups, MirrorSays, PrimaryRun, Via, VolumeFile,
};

use super::apply::{Applier, check};
use super::compare;
use super::error::MirrorError;
use super::image::Image;
use super::slot::{Copy, Slot, State};

/// A connection of a primary.
pub(super) struct Connection {
    slot: Arc<Slot>,
    turn: u64,
    reign: u64,
    run: PrimaryRun,
    via: Via,
    ready: GroupState,
    group: Option<OpenGroup>,
    has_failed: bool,
}

/// The offer of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offered {
    pub(super) reign: u64,
    pub(super) run: PrimaryRun,
    pub(super) via: Via,
}

/// A group that has begun.
struct OpenGroup {
    number: u64,
    kind: GroupKind,
    cut: Time,
    sum: GroupSum,
    /// True if the last part belongs to a content file, so that bytes may follow.
    is_in_content: bool,
    /// For a copy, before its folder is made: the files of the volume that have arrived.
    files: CopiedFiles,
}

#[derive(Default)]
struct CopiedFiles {
    format: Option<Vec<u8>>,
    seed: Option<Vec<u8>>,
}

impl Connection {
    pub(super) const fn new(
        slot: Arc<Slot>,
        turn: u64,
        offered: Offered,
        ready: GroupState,
    ) -> Self {
        let Offered { reign, run, via } = offered;
        Self { slot, turn, reign, run, via, ready, group: None, has_failed: false }
    }

    fn take_part(
        &mut self,
        state: &mut State,
        part: GroupPart,
        body: &[u8],
    ) -> Result<Option<GroupState>, MirrorError> {
        match part {
            GroupPart::Offer { .. } => Err(MirrorError::Unfit("a second offer")),
            GroupPart::Ping if self.group.is_none() => {
                Ok(Some(self.slot.message(MirrorSays::Pong)))
            }
            GroupPart::Ping => Err(MirrorError::Unfit("a ping within a group")),
            GroupPart::HandOver => self.hand_over(state).map(Some),
            GroupPart::Datagrams => Err(MirrorError::Unfit("a late question for datagrams")),
            GroupPart::RelayKey => Err(MirrorError::Unfit("a question for the key of a relay")),
            GroupPart::Abort => self.abort(state).map(|()| None),
            GroupPart::Begin { number, kind, cut } => {
                self.begin(state, number, kind)?;
                let mut sum = GroupSum::default();
                sum.add(body);
                let files = CopiedFiles::default();
                let is_in_content = false;
                self.group = Some(OpenGroup { number, kind, cut, sum, is_in_content, files });
                self.spool(state, body).map(|()| None)
            }
            GroupPart::End { sum } => self.end(state, sum, body).map(Some),
            part @ (GroupPart::Rows(_)
            | GroupPart::Range { .. }
            | GroupPart::Content { .. }
            | GroupPart::Bytes { .. }
            | GroupPart::Hole { .. }
            | GroupPart::File { .. }) => self.inner(state, part, body).map(|()| None),
            GroupPart::Compare(ranges) => {
                self.differ(compare::ranges(self.compared(state)?, &ranges))
            }
            GroupPart::Contents(contents) => {
                self.differ(compare::contents(self.compared(state)?, &contents))
            }
            GroupPart::Blocks(blocks) => {
                self.differ(compare::blocks(self.compared(state)?, &blocks))
            }
        }
    }

    /// Begins a group, which must follow the state of the mirror.
    fn begin(&self, state: &mut State, number: u64, kind: GroupKind) -> Result<(), MirrorError> {
        if self.group.is_some() || state.pending.is_some() {
            return Err(MirrorError::Unfit("a group within another one"));
        }
        match kind {
            GroupKind::Change => {
                let row = state.image.as_ref().map(Image::known_row).transpose()?;
                let last = row.filter(|row| (row.reign, row.run) == (self.reign, self.run));
                let next = last.and_then(|row| row.number.checked_add(1));
                if next != Some(number) || state.copy.is_some() {
                    return Err(MirrorError::Unfit("a change of a state that is not here"));
                }
                self.begin_spool(state)
            }
            GroupKind::Resync => {
                let row = state.image.as_ref().map(Image::known_row).transpose()?;
                let takes = |row: MirrorRow| match row.role {
                    MirrorRole::Mirror | MirrorRole::Adopted => true,
                    MirrorRole::Primary | MirrorRole::Replaced => false,
                };
                if !row.is_some_and(takes) || state.copy.is_some() {
                    return Err(MirrorError::Unfit("a resync of a mirror that is not here"));
                }
                self.begin_spool(state)
            }
            GroupKind::Copy => {
                let row = state.image.as_ref().map(Image::known_row).transpose()?;
                if row.is_some_and(|row| row.role == MirrorRole::Adopted) {
                    return Err(MirrorError::NotKept { path: self.slot.path() });
                }
                self.slot.forget_copy(state)
            }
            GroupKind::Completion => {
                let last = state.copy.as_ref().and_then(|copy| copy.number);
                if last.and_then(|last| last.checked_add(1)) != Some(number) {
                    return Err(MirrorError::Unfit("a completion of a copy that is not here"));
                }
                self.begin_spool(state)
            }
        }
    }

    /// Returns the state of the mirror that a resync asks about.
    fn compared<'a>(&self, state: &'a State) -> Result<&'a Image, MirrorError> {
        if self.group.as_ref().is_none_or(|group| group.kind != GroupKind::Resync) {
            return Err(MirrorError::Unfit("a question outside of a resync"));
        }
        state.image.as_ref().ok_or(MirrorError::Superseded)
    }

    /// Returns the answer to a question.
    fn differ(
        &self,
        differ: Result<Vec<bool>, MirrorError>,
    ) -> Result<Option<GroupState>, MirrorError> {
        Ok(Some(self.slot.message(MirrorSays::Differ(differ?))))
    }

    /// Makes the mirror the primary, which has everything that this one has done. No group is taken
    /// any more.
    fn hand_over(&mut self, state: &mut State) -> Result<GroupState, MirrorError> {
        if self.group.is_some() || state.pending.is_some() || state.copy.is_some() {
            return Err(MirrorError::Unfit("a handover within a group"));
        }
        let row = state.image.as_ref().map(Image::known_row).transpose()?;
        let follows = |row: &MirrorRow| (row.reign, row.run) == (self.reign, self.run);
        let row = row.filter(follows);
        let row = row.ok_or(MirrorError::Unfit("a handover to a mirror that does not follow"))?;
        let reign = self.slot.promote(state)?.reign;
        self.has_failed = true;
        let run = self.run;
        Ok(GroupState { reign, run, number: row.number, says: MirrorSays::Promoted })
    }

    fn begin_spool(&self, state: &mut State) -> Result<(), MirrorError> {
        let Self { slot, reign, run, .. } = self;
        let head = SpoolHead { volume: slot.volume, reign: *reign, run: *run };
        Ok(state.spool.begin(head)?)
    }

    /// Takes a part between `Begin` and `End`.
    fn inner(
        &mut self,
        state: &mut State,
        part: GroupPart,
        body: &[u8],
    ) -> Result<(), MirrorError> {
        let group = self.group.as_mut().ok_or(MirrorError::Unfit("a part without a group"))?;
        group.sum.add(body);
        match &part {
            GroupPart::Bytes { .. } | GroupPart::Hole { .. } if !group.is_in_content => {
                return Err(MirrorError::Unfit("bytes of no content file"));
            }
            part => {
                group.is_in_content = matches!(
                    part,
                    GroupPart::Content { .. } | GroupPart::Bytes { .. } | GroupPart::Hole { .. }
                );
            }
        }
        match group.kind {
            GroupKind::Copy => copy_part(&self.slot, state, group, part),
            GroupKind::Change | GroupKind::Resync => {
                let image = state.image.as_ref().ok_or(MirrorError::Superseded)?;
                check(image, &part)?;
                self.spool(state, body)
            }
            GroupKind::Completion => {
                let copy = state.copy.as_ref().ok_or(MirrorError::Superseded)?;
                check(&copy.image, &part)?;
                self.spool(state, body)
            }
        }
    }

    /// Appends a body to the spool, unless it belongs to a copy.
    fn spool(&self, state: &mut State, body: &[u8]) -> Result<(), MirrorError> {
        match self.group.as_ref().map(|group| group.kind) {
            None | Some(GroupKind::Copy) => Ok(()),
            Some(GroupKind::Change | GroupKind::Completion | GroupKind::Resync) => {
                Ok(state.spool.append(body)?)
            }
        }
    }

    fn end(&mut self, state: &mut State, sum: u64, body: &[u8]) -> Result<GroupState, MirrorError> {
        let no_group = || MirrorError::Unfit("an end without a group");
        if self.group.as_ref().ok_or_else(no_group)?.sum.value() != sum {
            return Err(MirrorError::Unfit("a group with another sum than its parts have"));
        }
        self.spool(state, body)?;
        let group = self.group.take().ok_or_else(no_group)?;
        let number = group.number;
        let kind = group.kind;
        let cut = group.cut;
        let head = SpoolHead { volume: self.slot.volume, reign: self.reign, run: self.run };
        let spooled = SpooledGroup { head, number, kind, cut };
        match kind {
            GroupKind::Change | GroupKind::Resync => {
                let image = state.image.as_ref().ok_or(MirrorError::Superseded)?;
                image.expect_room(state.spool.bytes_of_group())?;
                state.spool.finish()?;
                state.pending = Some(spooled);
            }
            GroupKind::Copy => {
                let incomplete = || MirrorError::Unfit("a copy without the format and the seed");
                let copy = state.copy.as_mut().ok_or_else(incomplete)?;
                copy.applier.finish(&mut copy.image, None)?;
                copy.number = Some(number);
            }
            GroupKind::Completion => {
                let copy = state.copy.as_ref().ok_or(MirrorError::Superseded)?;
                copy.image.expect_room(state.spool.bytes_of_group())?;
                state.spool.finish()?;
                self.slot.complete(state, &spooled)?;
            }
        }
        let reign = self.reign;
        let run = self.run;
        Ok(GroupState { reign, run, number, says: MirrorSays::Safe })
    }

    /// Drops the group, and the copy to which it belongs.
    fn abort(&mut self, state: &mut State) -> Result<(), MirrorError> {
        match self.group.take().map(|group| group.kind) {
            None => Err(MirrorError::Unfit("the end of no group")),
            Some(GroupKind::Change | GroupKind::Resync) => Ok(state.spool.clear()?),
            Some(GroupKind::Copy | GroupKind::Completion) => {
                state.spool.clear()?;
                self.slot.forget_copy(state)
            }
        }
    }

    /// Drops the group and the copy that the connection has begun.
    fn give_up(&mut self, state: &mut State) {
        self.has_failed = true;
        self.group = None;
        let cleared = match state.pending {
            Some(_) => Ok(()),
            None => state.spool.clear(),
        };
        if let Err(error) = cleared {
            tracing::warn!(%error, "the spool of a mirror was not emptied: the next group is");
        }
        if let Err(error) = self.slot.forget_copy(state) {
            tracing::warn!(%error, "a copy was not removed: the next start does it");
        }
    }
}

impl Groups for Connection {
    fn ready(&self) -> GroupState {
        self.ready.clone()
    }

    fn take(&mut self, body: &[u8]) -> Result<Option<GroupState>, String> {
        let slot = Arc::clone(&self.slot);
        let mut state = slot.state.lock();
        if !slot.is_turn(self.turn) || self.has_failed {
            return Err(MirrorError::Superseded.says());
        }
        if self.via == Via::Relay {
            slot.note_relayed();
        }
        let part = GroupPart::decode(body).map_err(MirrorError::from);
        let error = match part.and_then(|part| self.take_part(&mut state, part, body)) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        self.give_up(&mut state);
        slot.show_error(&error);
        if error.ends_connection() {
            return Err(error.says());
        }
        Ok(Some(slot.message(MirrorSays::Failed(error.says()))))
    }

    fn carry_out(&mut self) -> Result<(), String> {
        let slot = Arc::clone(&self.slot);
        let mut state = slot.state.lock();
        if !slot.is_turn(self.turn) {
            return Err(MirrorError::Superseded.says());
        }
        let carried_out = slot.carry_out(&mut state);
        if self.via == Via::Relay {
            slot.note_relayed();
        }
        carried_out.map_err(|error| {
            self.has_failed = true;
            slot.show_error(&error);
            error.says()
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let slot = Arc::clone(&self.slot);
        let mut state = slot.state.lock();
        if slot.is_turn(self.turn) {
            self.give_up(&mut state);
            slot.show_connected(None);
        }
    }
}

/// Applies a part of a copy at once, in a folder of its own.
fn copy_part(
    slot: &Slot,
    state: &mut State,
    group: &mut OpenGroup,
    part: GroupPart,
) -> Result<(), MirrorError> {
    if let Some(copy) = &mut state.copy {
        check(&copy.image, &part)?;
        return copy.applier.take(&mut copy.image, part);
    }
    match part {
        GroupPart::File { file: VolumeFile::Format, bytes } => group.files.format = bytes,
        GroupPart::File { file: VolumeFile::Seed, bytes } => group.files.seed = bytes,
        _ => return Err(MirrorError::Unfit("a copy that does not begin with format and seed")),
    }
    let CopiedFiles { format: Some(format), seed: Some(seed) } = &group.files else {
        return Ok(());
    };
    let image = Image::create(&slot.folders.mirrors.path().join(slot.copy_name()), format, seed)?;
    if image.volume.id() != slot.volume {
        return Err(MirrorError::Unfit("the copy of another volume"));
    }
    state.copy = Some(Copy { image, applier: Applier::default(), number: None });
    Ok(())
}
