//! The mirror of the volume, on the side of its primary.
//!
//! The group commit *cuts* ([`Mirror::cut_if_wanted`]): it takes a snapshot of the rows, and the
//! lists of rows and content files that have changed since the last cut, all of one moment. The
//! thread of [`sender`] makes the cut safe here, sends it as a group, and asks for the next cut
//! when the mirror has it on stable storage. [`course`] decides the kind of the group. If a group
//! does not arrive, its changes are part of the next one.
//!
//! Lock order: the state here, then that of the shard.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pelago_data::OpenFiles;
use pelago_meta::durability::Durability;
use pelago_meta::shard::{RowCut, RowRisk, Shard};
use pelago_store::clock;
use pelago_store::content::ContentStore;
use pelago_store::folder::Folder;
use pelago_store::rows::{MirrorRole, MirrorRow};
use pelago_store::table::SharedTable;
use pelago_store::volume::{self, VolumeId};
use pelago_wire::mirror::{CloseLink, GroupState, LinkError, MirrorLink, PrimaryRun};
use pelago_wire::{Code, Error, Time, limits};

use backlog::Backlog;
use handover::HandOver;
use waits::{Waits, WaitsEnd};

pub use error::SetMirrorError;
pub use handover::HandOverError;
pub use status::{MirrorPhase, MirrorProgress};
pub use verify::Verified;
pub use waits::WhenCut;

mod backlog;
mod content;
mod copy;
mod course;
mod error;
mod group;
mod handover;
mod levels;
mod resync;
mod sender;
mod slices;
mod status;
mod verify;
mod waits;

/// A function that connects to the mirror at this address, `KEY@HOST:PORT`, and offers it this
/// volume.
pub type ConnectMirror = Arc<
    dyn Fn(&str, VolumeId, Offer) -> Result<(Box<dyn MirrorLink>, GroupState), LinkError>
        + Send
        + Sync,
>;

/// Called with the higher reign after the mirror was promoted: the server must be stopped.
pub type OnReplaced = Arc<dyn Fn(u64) + Send + Sync>;

/// The identity of a primary, which it sends to its mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Its reign.
    pub reign: u64,
    /// Its run.
    pub run: PrimaryRun,
}

/// The parts of [`Mirror`].
pub(crate) struct MirrorParts {
    pub(crate) volume: VolumeId,
    /// The folder of the volume; `None` for a server without a volume, which has no mirror.
    pub(crate) folder: Option<Folder>,
    pub(crate) shard: Arc<Shard>,
    pub(crate) opens: Arc<OpenFiles>,
    pub(crate) table: SharedTable,
    pub(crate) content: Arc<ContentStore>,
    pub(crate) durability: Arc<Durability>,
    /// The reason why this server can have no mirror, if there is one.
    pub(crate) hindrance: Option<SetMirrorError>,
    /// The limit of what the mirror may lack; `None` leaves it to the level of the volume.
    pub(crate) lag: Option<Duration>,
    /// The reaction of a sync of level *remote* to a mirror that is cut off.
    pub(crate) when_cut: WhenCut,
}

/// The mirror of a volume.
pub(crate) struct Mirror {
    parts: MirrorParts,
    state: Mutex<State>,
    /// Signalled when the state has changed.
    changed: Condvar,
    /// The time since which the mirror has not taken, or not answered, the last part that was sent.
    /// A leaf lock.
    busy_since: Mutex<Option<Instant>>,
    backlog: Backlog,
}

struct State {
    row: MirrorRow,
    connect: Option<ConnectMirror>,
    on_replaced: Option<OnReplaced>,
    sender: Option<JoinHandle<()>>,
    has_stopped: bool,
    /// True if the sender asks for the next cut.
    wants_cut: bool,
    /// True if the next cut is sent even if no row and no content has changed.
    wants_empty_cut: bool,
    /// A cut that the sender has not taken yet.
    cut: Option<TakenCut>,
    /// Number of group commits that have begun.
    commits: u64,
    /// The newest group commit that the mirror has: it has everything that was done before that
    /// commit began.
    mirrored: u64,
    /// The newest group commit for which a caller waits.
    awaited: u64,
    /// The volume is to be handed over to the mirror, which has everything.
    hand_over: Option<HandOver>,
    /// A verification that is to begin; whether what differs is sent again.
    wanted_verification: Option<bool>,
    /// The state of the last verification.
    verified: Option<Verified>,
    /// Ends the connection, so that the sender stops waiting for the mirror.
    close: Option<CloseLink>,
    /// The rows that are being sent.
    under_way: RowRisk,
    /// The callers that wait for the mirror.
    waits: Waits,
    /// The last group commit could not write all that open files had in memory.
    lacks_some: bool,
    /// The rows of the mirror are being compared, and no group is sent meanwhile.
    compares_rows: bool,
    phase: MirrorPhase,
    /// The time of the cut of the newest group that the mirror has.
    as_of: Option<Time>,
}

/// A cut, with its time.
struct TakenCut {
    rows: RowCut,
    /// The group commit that has cut.
    commit: Commit,
    /// It has written everything that open files had in memory before it began.
    has_all: bool,
    at: Time,
    /// The same time, by the clock that no one sets.
    since: Instant,
}

/// The number of a group commit, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Commit(pub u64);

impl Mirror {
    /// Returns the mirror of the volume, without a connection.
    ///
    /// # Errors
    /// If the table fails, or the row of the mirror is damaged.
    pub(crate) fn new(parts: MirrorParts) -> Result<Self, Error> {
        let row = parts.shard.mirror_row()?;
        let waits = Waits::new(parts.when_cut, Instant::now());
        let state = State {
            row,
            connect: None,
            on_replaced: None,
            sender: None,
            has_stopped: false,
            wants_cut: false,
            wants_empty_cut: false,
            cut: None,
            commits: 0,
            mirrored: 0,
            awaited: 0,
            hand_over: None,
            wanted_verification: None,
            verified: None,
            close: None,
            under_way: RowRisk::default(),
            waits,
            lacks_some: false,
            compares_rows: false,
            phase: MirrorPhase::Connecting { problem: None },
            as_of: None,
        };
        Ok(Self {
            parts,
            state: Mutex::new(state),
            changed: Condvar::new(),
            busy_since: Mutex::default(),
            backlog: Backlog::new(),
        })
    }

    /// Sets the function that connects to the mirror, and begins to send if there is a mirror. A
    /// second call does nothing.
    ///
    /// # Errors
    /// The system's, if it gives no thread.
    pub(crate) fn set_connect(
        self: &Arc<Self>,
        connect: ConnectMirror,
        on_replaced: OnReplaced,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.connect.is_some() {
            return Ok(());
        }
        state.connect = Some(connect);
        state.on_replaced = Some(on_replaced);
        self.start_sender(&mut state)
    }

    /// Makes the server at this address, `KEY@HOST:PORT`, the mirror of the volume, on stable
    /// storage.
    ///
    /// # Errors
    /// [`SetMirrorError`].
    pub(crate) fn set_peer(self: &Arc<Self>, peer: &str) -> Result<(), SetMirrorError> {
        self.check_peer(peer)?;
        let mut state = self.state.lock();
        expect_no_other(&state.row, peer)?;
        if state.connect.is_none() || state.has_stopped {
            return Err(SetMirrorError::Stopped);
        }
        let row = MirrorRow { peer: peer.to_owned(), ..state.row.clone() };
        self.parts.shard.put_mirror_row(&row).map_err(SetMirrorError::Table)?;
        self.parts.table.persist().map_err(|_| SetMirrorError::Table(Code::Io.into()))?;
        state.row = row;
        self.start_sender(&mut state).map_err(|_| SetMirrorError::NoThread)
    }

    /// Checks that the server at this address can be the mirror, as far as that is known here.
    ///
    /// # Errors
    /// [`SetMirrorError`].
    pub(crate) fn check_peer(&self, peer: &str) -> Result<(), SetMirrorError> {
        expect_no_other(&self.state.lock().row, peer)?;
        if let Some(hindrance) = &self.parts.hindrance {
            return Err(hindrance.clone());
        }
        if peer.is_empty() || peer.len() > limits::SITE_ADDRESS_BYTES {
            return Err(SetMirrorError::Address);
        }
        match self.parts.opens.any_external_writers() {
            true => Err(SetMirrorError::Passthrough),
            false => Ok(()),
        }
    }

    fn start_sender(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let is_wanted = !state.row.peer.is_empty() && state.row.role == MirrorRole::Primary;
        if !is_wanted || state.sender.is_some() || state.has_stopped {
            return Ok(());
        }
        let this = Arc::clone(self);
        let run = MirrorRow::new_run()?;
        let thread = pelago_threads::spawn("pelago-mirror", move || sender::run(&this, run))?;
        state.sender = Some(thread);
        Ok(())
    }

    /// Counts a group commit that begins. Returns its number.
    pub(crate) fn begin_commit(&self) -> Commit {
        self.tick();
        let mut state = self.state.lock();
        state.commits += 1;
        Commit(state.commits)
    }

    /// Takes a cut if the sender asks for one, and there are changes or a caller waits. Called by
    /// the group commit of this number, after it has written the memory of open files. `has_all`:
    /// it has written all of that memory.
    pub(crate) fn cut_if_wanted(&self, commit: Commit, has_all: bool) {
        let mut state = self.state.lock();
        if !state.wants_cut {
            return;
        }
        let is_waited_for = state.awaited > state.mirrored || state.waits.syncs() > 0;
        state.lacks_some = !has_all;
        if !is_waited_for && !state.wants_empty_cut && !self.has_changes() {
            return;
        }
        let Self { parts, .. } = self;
        // If the table has stopped, the next group commit tries again.
        let Ok(rows) = parts.shard.cut(|| parts.opens.changes().cut()) else { return };
        assert!(state.cut.is_none(), "one cut is sent at a time");
        state.under_way = rows.changed.risk();
        let at = clock::now();
        let since = Instant::now();
        state.cut = Some(TakenCut { rows, commit, has_all, at, since });
        state.wants_cut = false;
        state.wants_empty_cut = false;
        self.changed.notify_all();
    }

    fn has_changes(&self) -> bool {
        let rows = self.parts.shard.row_risk().unwrap_or_default();
        rows.since.is_some() || rows.has_more || self.parts.opens.changes().any()
    }

    /// Returns the next group commit: a mirror that has it has everything that is done now.
    ///
    /// # Errors
    /// `NotSupported` without a mirror.
    pub(crate) fn next_commit(&self) -> Result<Commit, Error> {
        self.state.lock().next_commit()
    }

    /// Waits, for at most `patience`, until the mirror has on stable storage everything that was
    /// done before this group commit. Returns whether it has.
    ///
    /// # Errors
    /// `Unavailable` if the server stops.
    pub(crate) fn wait(&self, commit: Commit, patience: Duration) -> Result<bool, Error> {
        let deadline = Instant::now() + patience;
        self.parts.durability.flush_soon();
        let mut state = self.state.lock();
        while state.mirrored < commit.0 {
            if state.has_stopped {
                return Err(Code::Unavailable.into());
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return Ok(state.mirrored >= commit.0);
            }
        }
        Ok(true)
    }

    /// Records that the mirror has a cut, of which so many bytes were sent.
    fn record_mirrored(&self, cut: &TakenCut, bytes: u64) {
        let TakenCut { commit, has_all, at, since, .. } = cut;
        self.backlog.sent(bytes, since.elapsed());
        let mut state = self.state.lock();
        if *has_all {
            state.mirrored = state.mirrored.max(commit.0);
        }
        state.under_way = RowRisk::default();
        state.as_of = Some(*at);
        self.changed.notify_all();
        let answers = state.waits.mirrored(*commit);
        drop(state);
        for answer in answers {
            answer(Ok(()));
        }
        // Callers that are held back need not wait for the next group commit.
        self.tick();
    }

    /// Takes back a cut that the sender has not taken, and asks for none any more.
    fn drop_cut(&self) {
        let mut state = self.state.lock();
        state.wants_cut = false;
        state.close = None;
        let untaken = state.cut.take();
        drop(state);
        if let Some(cut) = untaken {
            sender::take_back(self, cut.rows.changed);
        }
    }

    /// Records that the mirror was promoted: this folder must not be served any more.
    fn record_replaced(&self, reign: u64) {
        tracing::error!(reign, "the mirror of this volume was promoted: it is served here no more");
        if let Some(folder) = &self.parts.folder
            && let Err(error) = volume::set_not_primary(folder)
        {
            tracing::error!(%error, "cannot note that this folder is not the primary any more");
        }
        let mut state = self.state.lock();
        state.phase = MirrorPhase::Replaced { reign };
        let row =
            MirrorRow { role: MirrorRole::Replaced, peer: String::new(), ..state.row.clone() };
        if let Err(error) = self.parts.shard.put_mirror_row(&row) {
            tracing::warn!(%error, "the row of the mirror is not written");
        }
        let on_replaced = state.on_replaced.clone();
        if matches!(state.hand_over, Some(HandOver::Wanted)) {
            state.hand_over = Some(HandOver::Done(reign));
        }
        self.changed.notify_all();
        self.end_waits(state, WaitsEnd::Stopped);
        if let Some(on_replaced) = on_replaced {
            on_replaced(reign);
        }
    }

    /// Waits, for at most `patience`, until the mirror has all changes, and ends the sender.
    pub(crate) fn stop(&self, patience: Duration) {
        let follows = matches!(self.state.lock().phase, MirrorPhase::Follows);
        if follows && !patience.is_zero() {
            let last = self.next_commit().and_then(|commit| self.wait(commit, patience));
            if last != Ok(true) {
                tracing::warn!("the mirror does not have the last changes");
            }
        }
        self.end_sender(WaitsEnd::Stopped);
    }

    /// Removes the mirror, for this run and all later ones. It keeps its state, and no changes are
    /// collected for it any more.
    ///
    /// # Errors
    /// [`SetMirrorError::None`] if there is none; if the table fails, the mirror stays.
    pub(crate) fn remove_peer(&self) -> Result<(), SetMirrorError> {
        let row = self.state.lock().row.clone();
        if row.peer.is_empty() {
            return Err(SetMirrorError::None);
        }
        let row = MirrorRow { peer: String::new(), ..row };
        self.parts.shard.put_mirror_row(&row).map_err(SetMirrorError::Table)?;
        self.parts.table.persist().map_err(|_| SetMirrorError::Table(Code::Io.into()))?;
        self.end_sender(WaitsEnd::Removed);
        self.drop_cut();
        self.parts.shard.end_collecting();
        self.parts.opens.changes().end();
        let mut state = self.state.lock();
        state.row = row;
        state.has_stopped = false;
        state.phase = MirrorPhase::Connecting { problem: None };
        state.as_of = None;
        Ok(())
    }

    fn end_sender(&self, why: WaitsEnd) {
        let mut state = self.state.lock();
        state.has_stopped = true;
        let sender = state.sender.take();
        let close = state.close.take();
        self.changed.notify_all();
        self.end_waits(state, why);
        // The sender may wait for a mirror that is away or busy.
        if let Some(close) = close {
            close();
        }
        // If the mirror was promoted, the sender itself stops the server, and cannot join itself.
        let is_other =
            |sender: &JoinHandle<()>| sender.thread().id() != std::thread::current().id();
        if let Some(sender) = sender.filter(is_other)
            && sender.join().is_err()
        {
            tracing::error!("the thread of the mirror has panicked");
        }
    }

    /// Returns whether the mirror was promoted.
    pub(crate) fn is_replaced(&self) -> bool {
        self.state.lock().row.role == MirrorRole::Replaced
    }

    /// Returns the reign of this primary.
    pub(crate) fn reign(&self) -> u64 {
        self.state.lock().row.reign
    }

    /// Returns the state of the mirror; `None` if there is none.
    pub(crate) fn status(&self) -> Option<MirrorProgress> {
        let state = self.state.lock();
        if state.row.peer.is_empty() {
            return None;
        }
        let mut progress = MirrorProgress {
            peer: state.row.peer.clone(),
            reign: state.row.reign,
            phase: state.phase.clone(),
            bytes_at_risk: 0,
            time_at_risk: Duration::ZERO,
            as_of: state.as_of,
            is_cut_off: state.waits.is_cut_off(),
            waiting: state.waits.syncs(),
        };
        drop(state);
        (progress.bytes_at_risk, progress.time_at_risk) = self.risk();
        Some(progress)
    }

    /// Returns the bytes of changes that the mirror does not have, and the age of the oldest one.
    fn risk(&self) -> (u64, Duration) {
        let under_way = self.state.lock().under_way;
        let rows = self.parts.shard.row_risk().unwrap_or_default();
        let content = self.parts.opens.changes().risk();
        let since = [under_way.since, rows.since, content.since].into_iter().flatten().min();
        let age = since.map_or(Duration::ZERO, |since| since.elapsed());
        (under_way.bytes + rows.bytes + content.bytes, age)
    }

    /// Waits for `patience`, or until the server stops. Returns false if it stops.
    fn pause(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.state.lock();
        while !state.has_stopped {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return !state.has_stopped;
            }
        }
        false
    }

    /// Records that a group could not be read here: the mirror gets nothing until that works.
    fn note_unread(&self) {
        self.state.lock().waits.follows(false, Instant::now());
    }

    fn set_phase(&self, phase: MirrorPhase) {
        let mut state = self.state.lock();
        state.waits.follows(phase == MirrorPhase::Follows, Instant::now());
        state.phase = phase;
    }
}

impl State {
    /// Returns whether the mirror gets groups, now or once it is back.
    fn gets_groups(&self) -> bool {
        let is_replaced = matches!(self.phase, MirrorPhase::Replaced { .. });
        self.sender.is_some() && !self.has_stopped && !is_replaced
    }

    /// Returns the next group commit, for a caller that waits until the mirror has it.
    fn next_commit(&mut self) -> Result<Commit, Error> {
        if !self.gets_groups() {
            return Err(Code::NotSupported.into());
        }
        self.awaited = self.commits + 1;
        Ok(Commit(self.awaited))
    }
}

/// Checks that a volume has no other mirror.
fn expect_no_other(row: &MirrorRow, peer: &str) -> Result<(), SetMirrorError> {
    match row.peer.is_empty() || row.peer == peer {
        true => Ok(()),
        false => Err(SetMirrorError::Another(row.peer.clone())),
    }
}
