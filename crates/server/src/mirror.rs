//! The mirror of the volume, on the side of its primary.
//!
//! The group commit *cuts* ([`Mirror::cut_if_wanted`]): it takes a snapshot of the rows, and the
//! lists of rows and content files that have changed since the last cut, all of one moment. The
//! thread of [`sender`] makes the cut safe here, sends it as a group, and asks for the next cut
//! when the mirror has it on stable storage. [`course`] decides the kind of the group. If a group
//! does not arrive, its changes are part of the next one.
//!
//! Lock order: the state here, then that of the shard.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pelago_data::OpenFiles;
use pelago_meta::durability::Durability;
use pelago_meta::shard::{RowRisk, Shard};
use pelago_store::content::ContentStore;
use pelago_store::folder::Folder;
use pelago_store::rows::{MirrorRole, MirrorRow};
use pelago_store::table::SharedTable;
use pelago_store::volume::{self, VolumeId};
use pelago_wire::mirror::{CloseLink, GroupState, LinkError, MirrorLink, PrimaryRun};
use pelago_wire::{Code, Error, Time};

use backlog::Backlog;
use cut::TakenCut;
use handover::HandOver;
use levels::Busy;
use reached::GroupStamps;
use relay::RelayState;
use waits::{Waits, WaitsEnd};

pub use error::SetMirrorError;
pub use handover::HandOverError;
pub use relay::{ConnectRelay, RelayProgress, RelayedMirror};
pub use status::{MirrorPhase, MirrorProgress};
pub use verify::Verified;
pub(crate) use waits::Awaited;
pub use waits::WhenCut;

mod backlog;
mod content;
mod copy;
mod course;
mod cut;
mod error;
mod group;
mod handover;
mod levels;
mod peer;
mod reached;
mod relay;
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
    /// A leaf lock.
    busy: Mutex<Busy>,
    backlog: Backlog,
}

struct State {
    row: MirrorRow,
    connect: Option<ConnectMirror>,
    connect_relay: Option<ConnectRelay>,
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
    /// The volume is to be handed over to the mirror, which has everything.
    hand_over: Option<HandOver>,
    /// A verification that is to begin.
    wanted_verification: Option<verify::Wanted>,
    /// The state of the last verification.
    verified: Option<Verified>,
    /// The result of the last one of all of the volume.
    verified_whole: Option<Verified>,
    /// Ends the connection, so that the sender stops waiting for the mirror.
    close: Option<CloseLink>,
    /// The rows that are being sent.
    under_way: RowRisk,
    /// The batches of the groups.
    groups: GroupStamps,
    /// The connection to the relay, and what it has.
    relay: RelayState,
    /// The callers that wait for the mirror.
    waits: Waits,
    /// The rows of the mirror are being compared, and no group is sent meanwhile.
    compares_rows: bool,
    phase: MirrorPhase,
    /// The time of the cut of the newest group that the mirror has.
    as_of: Option<Time>,
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
            connect_relay: None,
            on_replaced: None,
            sender: None,
            has_stopped: false,
            wants_cut: false,
            wants_empty_cut: false,
            cut: None,
            commits: 0,
            hand_over: None,
            wanted_verification: None,
            verified: None,
            verified_whole: None,
            close: None,
            under_way: RowRisk::default(),
            groups: GroupStamps::default(),
            relay: RelayState::default(),
            waits,
            compares_rows: false,
            phase: MirrorPhase::Connecting { problem: None },
            as_of: None,
        };
        Ok(Self {
            parts,
            state: Mutex::new(state),
            changed: Condvar::new(),
            busy: Mutex::default(),
            backlog: Backlog::new(),
        })
    }

    /// Counts a group commit that begins. Returns its number.
    pub(crate) fn begin_commit(&self) -> Commit {
        self.tick();
        let mut state = self.state.lock();
        state.commits += 1;
        Commit(state.commits)
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
        while !state.waits.has(commit) {
            if state.has_stopped {
                return Err(Code::Unavailable.into());
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return Ok(state.waits.has(commit));
            }
        }
        Ok(true)
    }

    /// Records that the mirror was promoted: this folder must not be served any more.
    fn record_replaced(&self, reign: u64) {
        let dir = self.parts.folder.as_ref().map(|folder| folder.path().display().to_string());
        tracing::error!(
            reign,
            "the mirror of this volume was promoted: it is served here no more. `pelago serve DIR \
             --mirrors --adopt {}` makes this folder a mirror of it, and keeps what only this one \
             has",
            dir.unwrap_or_default()
        );
        if let Some(folder) = &self.parts.folder
            && let Err(error) = volume::set_not_primary(folder)
        {
            tracing::error!(%error, "cannot note that this folder is not the primary any more");
        }
        let mut state = self.state.lock();
        state.phase = MirrorPhase::Replaced { reign };
        let row =
            MirrorRow { role: MirrorRole::Replaced, reign: state.row.reign, ..MirrorRow::first() };
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
            relay: state.relay_progress(),
        };
        drop(state);
        (progress.bytes_at_risk, progress.time_at_risk) = self.risk();
        Some(progress)
    }

    /// Returns the bytes of changes that the mirror does not have, and the age of the oldest one.
    fn risk(&self) -> (u64, Duration) {
        let state = self.state.lock();
        let under_way = state.under_way;
        let relayed = state.relay.queue().bytes();
        let relayed_since = state.relay.queue().since();
        drop(state);
        let rows = self.parts.shard.row_risk().unwrap_or_default();
        let content = self.parts.opens.changes().risk();
        let since = [under_way.since, relayed_since, rows.since, content.since];
        let since = since.into_iter().flatten().min();
        let age = since.map_or(Duration::ZERO, |since| since.elapsed());
        (under_way.bytes + relayed + rows.bytes + content.bytes, age)
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
        let follows = phase == MirrorPhase::Follows && !state.relay.is_apart();
        state.waits.follows(follows, Instant::now());
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
        let next = Commit(self.commits + 1);
        self.waits.want(next);
        Ok(next)
    }
}
