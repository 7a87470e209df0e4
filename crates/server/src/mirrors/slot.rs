//! The slot of one volume in a server of mirrors: its mirror, the copy that may replace it, and the
//! group that is safe in the spool.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_store::clock;
use pelago_store::folder::Folder;
use pelago_store::rows::{MirrorRole, MirrorRow};
use pelago_store::spool::{Spool, SpooledGroup};
use pelago_store::volume::VolumeId;
use pelago_wire::Time;
use pelago_wire::mirror::{GroupKind, GroupState, MirrorSays, PrimaryRun, Via};

use super::apply::{Applier, carry_out};
use super::error::MirrorError;
use super::image::Image;
use super::readers::{ListenForReaders, Readers};
use super::touched::touched;
use super::{kept, promoted};

/// The time without a part of a relay after which nothing more is on its way.
const QUIET: Duration = Duration::from_secs(1);
/// The longest time for which a relay waits for the end of its primary's own connection.
const HANDOVER: Duration = Duration::from_secs(2);
/// The time between two looks at a connection.
const PATIENCE: Duration = Duration::from_millis(20);

/// The folders of a server of mirrors.
pub(super) struct Folders {
    pub(super) dir: PathBuf,
    pub(super) mirrors: Folder,
    pub(super) spool: Folder,
    pub(super) kept: Folder,
    /// Set once, if readers are let in.
    pub(super) listen: OnceLock<ListenForReaders>,
}

/// The slot of one volume.
pub(super) struct Slot {
    pub(super) volume: VolumeId,
    pub(super) folders: Arc<Folders>,
    /// The number of the newest connection. Connections with a lower number take no groups.
    turn: AtomicU64,
    /// Held while a group is carried out. Taken before `shown`.
    pub(super) state: Mutex<State>,
    /// The readers of the mirror.
    pub(super) readers: Readers,
    /// A leaf lock.
    shown: Mutex<Shown>,
    /// When a relay has sent something. A leaf lock.
    relayed: Mutex<Option<Instant>>,
}

/// The mirror, and the group and copy that are on their way to it.
pub(super) struct State {
    pub(super) spool: Spool,
    /// The mirror; `None` if there is none, or it is not open.
    pub(super) image: Option<Image>,
    pub(super) copy: Option<Copy>,
    /// The group in the spool that is safe and not carried out.
    pub(super) pending: Option<SpooledGroup>,
    /// True if an old image was replaced but not removed yet.
    pub(super) has_old: bool,
}

/// A copy of the whole volume, beside the mirror.
pub(super) struct Copy {
    pub(super) image: Image,
    pub(super) applier: Applier,
    /// The number of its group, after it is safe.
    pub(super) number: Option<u64>,
}

/// The facts that the status shows.
#[derive(Debug, Clone, Default)]
pub(super) struct Shown {
    pub(super) reign: u64,
    pub(super) run: PrimaryRun,
    pub(super) number: u64,
    pub(super) cut: Option<Time>,
    /// The other end of the connection, if there is one.
    pub(super) via: Option<Via>,
    pub(super) since: Option<Time>,
    pub(super) promoted: Option<u64>,
    /// It was the primary, and waits for the one that has replaced it.
    pub(super) is_adopted: bool,
    pub(super) error: Option<String>,
}

impl Slot {
    /// Returns the slot of a volume. Its mirror is not opened yet.
    pub(super) fn new(folders: &Arc<Folders>, volume: VolumeId) -> Result<Self, MirrorError> {
        let spool = Spool::open(&folders.spool, &volume.to_string())?;
        let promoted = promoted::read(&folders.spool, volume)?;
        Ok(Self {
            volume,
            folders: Arc::clone(folders),
            turn: AtomicU64::new(0),
            state: Mutex::new(State {
                spool,
                image: None,
                copy: None,
                pending: None,
                has_old: false,
            }),
            readers: Readers::default(),
            shown: Mutex::new(Shown { promoted, ..Shown::default() }),
            relayed: Mutex::default(),
        })
    }

    /// Ends the newest connection, when it does not carry out a group. Returns the number of the
    /// next connection.
    pub(super) fn next_turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(super) fn is_turn(&self, turn: u64) -> bool {
        self.turn.load(Ordering::Acquire) == turn
    }

    /// Returns the path of the mirror.
    pub(super) fn path(&self) -> PathBuf {
        self.folders.mirrors.path().join(self.volume.to_string())
    }

    /// Returns the name of the copy in the folder of the mirrors.
    pub(super) fn copy_name(&self) -> String {
        format!("{}.copy", self.volume)
    }

    pub(super) fn shown(&self) -> Shown {
        self.shown.lock().clone()
    }

    pub(super) fn show(&self, change: impl FnOnce(&mut Shown)) {
        change(&mut self.shown.lock());
    }

    /// Shows an error until a group is carried out.
    pub(super) fn show_error(&self, error: &MirrorError) {
        self.show(|shown| shown.error = Some(error.says()));
    }

    /// Shows who is connected, if anybody is.
    pub(super) fn show_connected(&self, via: Option<Via>) {
        if via == Some(Via::Relay) {
            self.note_relayed();
        }
        self.show(|shown| {
            shown.via = via;
            shown.since = Some(clock::now());
        });
    }

    /// Records that a relay has sent something.
    pub(super) fn note_relayed(&self) {
        *self.relayed.lock() = Some(Instant::now());
    }

    /// Waits until nothing more comes from the relay that is connected, if one is: the primary and
    /// the relay may be lost, and what they have promised is on its way.
    pub(super) fn wait_for_relay(&self, most: Duration) {
        let deadline = Instant::now() + most;
        while self.shown().via == Some(Via::Relay) && Instant::now() < deadline {
            let quiet = self.relayed.lock().map(|last| last.elapsed());
            // While a group is carried out, others wait in the connection.
            if quiet.is_none_or(|quiet| quiet >= QUIET) && self.state.try_lock().is_some() {
                return;
            }
            // Polled: a connection ends in many ways, and seldom.
            std::thread::sleep(PATIENCE);
        }
    }

    /// Waits for the end of the connection of the primary, which uses a relay from now on.
    ///
    /// # Errors
    /// [`MirrorError::HasPrimary`] if it does not end.
    pub(super) fn wait_for_primary(&self) -> Result<(), MirrorError> {
        let deadline = Instant::now() + HANDOVER;
        while self.shown().via == Some(Via::Primary) {
            if Instant::now() >= deadline {
                return Err(MirrorError::HasPrimary);
            }
            // Polled: a connection ends in many ways, and seldom.
            std::thread::sleep(PATIENCE);
        }
        Ok(())
    }

    fn show_row(&self, row: &MirrorRow, cut: Option<Time>) {
        self.show(|shown| {
            let is_new = (shown.run, shown.number) != (row.run, row.number);
            shown.reign = row.reign;
            shown.run = row.run;
            shown.number = row.number;
            shown.is_adopted = row.role == MirrorRole::Adopted;
            if is_new || cut.is_some() {
                shown.cut = cut;
            }
            shown.error = None;
        });
    }

    /// Returns a message to the primary, with the group that is on stable storage.
    pub(super) fn message(&self, says: MirrorSays) -> GroupState {
        let Shown { reign, run, number, .. } = self.shown();
        GroupState { reign, run, number, says }
    }

    /// Opens the mirror, if there is one, and carries out the group in the spool. Removes the copy
    /// that an earlier connection has left.
    pub(super) fn settle(&self, state: &mut State) -> Result<(), MirrorError> {
        self.forget_copy(state)?;
        if state.image.is_none() {
            state.image = Image::open(&self.path(), self.volume)?;
        }
        let Some(image) = &state.image else {
            state.pending = None;
            return Ok(state.spool.clear()?);
        };
        let row = image.known_row()?;
        self.show_row(&row, None);
        state.pending = state.spool.group()?.filter(|group| follows(&row, self.volume, group));
        match state.pending {
            Some(_) => self.carry_out(state)?,
            None => state.spool.clear()?,
        }
        self.let_readers_in(state);
        Ok(())
    }

    /// Lets readers in, if the mirror has a whole state.
    pub(super) fn let_readers_in(&self, state: &State) {
        // Not to the state of a primary that was replaced.
        let is_whole =
            |image: &&Image| image.known_row().is_ok_and(|row| row.role == MirrorRole::Mirror);
        if let (Some(image), None) = (state.image.as_ref().filter(is_whole), &state.pending) {
            self.readers.open(image, self.folders.listen.get());
        }
    }

    /// Carries out the group that is safe in the spool, and removes the image that a copy has
    /// replaced.
    pub(super) fn carry_out(&self, state: &mut State) -> Result<(), MirrorError> {
        if std::mem::take(&mut state.has_old) {
            self.folders.mirrors.remove_tree(&self.copy_name())?;
        }
        let Some(group) = state.pending else { return Ok(()) };
        let Some(image) = &mut state.image else { return Ok(()) };
        let before = image.known_row()?;
        if before.role == MirrorRole::Adopted {
            kept::keep(&self.folders.kept, image, &mut state.spool, before.reign)?;
        }
        let row = row_of(&group);
        self.readers.around(
            &mut (image, &mut state.spool),
            |(image, spool)| touched(image, spool),
            |(image, spool)| carry_out(image, spool, &row),
        )?;
        state.pending = None;
        state.spool.clear()?;
        self.show_row(&row, Some(group.cut));
        self.let_readers_in(state);
        Ok(())
    }

    /// Applies the group in the spool to the copy, and replaces the mirror by the copy.
    pub(super) fn complete(
        &self,
        state: &mut State,
        group: &SpooledGroup,
    ) -> Result<(), MirrorError> {
        let Some(Copy { mut image, .. }) = state.copy.take() else {
            return Err(MirrorError::Unfit("a completion without a copy"));
        };
        let row = row_of(group);
        carry_out(&mut image, &mut state.spool, &row)?;
        image.check()?;
        drop(image.close()?);
        self.readers.close();
        if let Some(old) = state.image.take() {
            drop(old.close()?);
        }
        let mirrors = &self.folders.mirrors;
        let name = self.volume.to_string();
        if mirrors.contains(&name)? {
            mirrors.exchange(&self.copy_name(), &name)?;
            state.has_old = true;
        } else {
            mirrors.rename(&self.copy_name(), &name)?;
        }
        mirrors.sync()?;
        state.spool.clear()?;
        state.image = Image::open(&self.path(), self.volume)?;
        self.show_row(&row, Some(group.cut));
        self.let_readers_in(state);
        Ok(())
    }

    /// Closes and removes the copy that a connection has begun.
    pub(super) fn forget_copy(&self, state: &mut State) -> Result<(), MirrorError> {
        if let Some(Copy { image, .. }) = state.copy.take()
            && let Err(error) = image.close()
        {
            tracing::debug!(%error, "a copy that is given up was not closed cleanly");
        }
        state.has_old = false;
        Ok(self.folders.mirrors.remove_tree(&self.copy_name())?)
    }
}

impl Slot {
    /// Closes the mirror. The next offer opens it again.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        self.readers.close();
        let images = [state.image.take(), state.copy.take().map(|copy| copy.image)];
        for image in images.into_iter().flatten() {
            if let Err(error) = image.close() {
                tracing::warn!(%error, "a mirror was not closed cleanly: an open recovers it");
            }
        }
    }
}

fn row_of(group: &SpooledGroup) -> MirrorRow {
    let SpooledGroup { head, number, .. } = *group;
    let reign = head.reign;
    let run = head.run;
    MirrorRow { role: MirrorRole::Mirror, reign, run, number, ..MirrorRow::first() }
}

/// Returns whether a group in the spool is the next group of a mirror. What differs fits any older
/// state, because the spool is emptied before another group comes.
fn follows(row: &MirrorRow, volume: VolumeId, group: &SpooledGroup) -> bool {
    let is_of_run = (group.head.reign, group.head.run) == (row.reign, row.run);
    let fits = match group.kind {
        GroupKind::Change => is_of_run && row.number.checked_add(1) == Some(group.number),
        GroupKind::Resync => {
            group.head.reign >= row.reign && !(is_of_run && row.number == group.number)
        }
        GroupKind::Copy | GroupKind::Completion => false,
    };
    let takes = match row.role {
        MirrorRole::Mirror => true,
        MirrorRole::Adopted => group.kind == GroupKind::Resync && group.head.reign > row.reign,
        MirrorRole::Primary | MirrorRole::Replaced => false,
    };
    takes && group.head.volume == volume && fits
}
