//! The way of one volume through a relay: the records that are kept, and the facts that the
//! connections of its primary and its mirror share.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use pelago_wire::mirror::GroupProof;
use pelago_wire::relay::{
    KeptRecord, Record, RelayMessage, RelayOffer, RelayReport, RelaySays, RelaySpool, SpoolPlace,
};

use super::super::datagrams::Waker;

/// The time after which a mirror counts as apart that takes nothing of what there is.
pub(super) const SILENCE: Duration = Duration::from_secs(3);

/// The way of one volume.
pub(super) struct Route {
    pub(super) volume: [u8; 16],
    /// Wakes the thread that sends to the mirror.
    pub(super) courier: Arc<Waker>,
    /// A leaf lock.
    state: Mutex<State>,
}

/// The facts of a route.
pub(super) struct State {
    pub(super) offer: RelayOffer,
    pub(super) spool: Box<dyn RelaySpool>,
    /// The number of the connection of the primary; those with lower numbers are over.
    turn: u64,
    /// Wakes the thread of that connection.
    primary: Option<Arc<Waker>>,
    /// Groups for which a caller waits, and which have not left this machine.
    pub(super) awaited: u64,
    /// The newest group that has left this machine.
    pub(super) sent: u64,
    /// The newest group that the mirror has.
    pub(super) safe: u64,
    /// The newest group of which the mirror has given a proof, and that.
    proven: (u64, GroupProof),
    /// The mirror takes nothing, for this reason.
    pub(super) apart: Option<String>,
    /// The mirror was promoted.
    pub(super) replaced: Option<u64>,
    /// When the mirror has taken something, or nothing was there for it.
    progress: Instant,
    /// Since when groups that have left this machine have no answer of the mirror. Only callers'
    /// groups count: others may be long on the link.
    unanswered: Option<Instant>,
    /// No thread uses the route any more.
    pub(super) has_ended: bool,
}

/// The last reports to a primary.
#[derive(Debug, Default)]
pub(super) struct Told {
    kept: u64,
    sent: u64,
    safe: u64,
    is_apart: bool,
    is_replaced: bool,
}

impl Route {
    /// Returns the route of an offer, whose records are in `spool`.
    pub(super) fn new(
        volume: [u8; 16],
        offer: RelayOffer,
        spool: Box<dyn RelaySpool>,
    ) -> io::Result<Self> {
        let state = State {
            offer,
            spool,
            turn: 0,
            primary: None,
            awaited: 0,
            sent: 0,
            safe: 0,
            proven: (0, GroupProof::default()),
            apart: None,
            replaced: None,
            progress: Instant::now(),
            unanswered: None,
            has_ended: false,
        };
        Ok(Self { volume, courier: Arc::new(Waker::new()?), state: Mutex::new(state) })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Begins a connection of the primary, and ends the one before. Returns its number, and that of
    /// the last group that is whole here.
    pub(super) fn begin(&self, offer: &RelayOffer, waker: &Arc<Waker>) -> Result<Begun, String> {
        let mut state = self.state.lock();
        state.spool.drop_partial()?;
        state.offer = offer.clone();
        state.turn += 1;
        if let Some(before) = state.primary.replace(Arc::clone(waker)) {
            before.wake();
        }
        let last = state.spool.last_group();
        let told = Told { kept: last, sent: state.sent, is_apart: false, ..Told::default() };
        Ok(Begun { turn: state.turn, last, told })
    }

    /// Keeps a record of the primary. Fails if its connection is over.
    pub(super) fn keep(&self, turn: u64, record: &Record, body: &[u8]) -> Result<(), String> {
        let mut state = self.state.lock();
        state.expect_turn(turn)?;
        // The primary may have sent others to the mirror itself.
        if record.group <= state.spool.last_group() {
            return Err(format!("group {} came before", record.group));
        }
        if !state.has_groups() {
            // The mirror had nothing to take.
            state.progress = Instant::now();
        }
        state.spool.append(body)?;
        if record.is_last && record.is_awaited {
            state.awaited = record.group;
        }
        drop(state);
        if record.is_last {
            self.courier.wake();
        }
        Ok(())
    }

    /// Returns whether the primary may send more now. Fails if its connection is over, or never
    /// could.
    pub(super) fn takes_more(&self, turn: u64) -> Result<bool, String> {
        let state = self.state.lock();
        state.expect_turn(turn)?;
        let (_, groups) = state.spool.kept();
        match state.spool.has_room() {
            false if groups == 0 => {
                Err("a group has more bytes than the relay keeps: send it to the mirror".to_owned())
            }
            has_room => Ok(has_room),
        }
    }

    /// Returns what the primary is to be told, the newest of each kind.
    pub(super) fn reports(&self, told: &mut Told) -> Vec<RelayReport> {
        let state = self.state.lock();
        let mut reports = Vec::new();
        let mut report = |number, says| reports.push(RelayReport { number, says });
        let kept = state.spool.last_group();
        if kept > told.kept {
            report(kept, RelaySays::Kept);
        }
        if state.sent > told.sent {
            report(state.sent, RelaySays::Sent);
        }
        let (proven, proof) = state.proven;
        if proven > told.safe {
            report(proven, RelaySays::Safe(proof));
        }
        let apart = state.why_silent();
        match (&apart, told.is_apart) {
            (Some(why), false) => report(0, RelaySays::Apart(why.clone())),
            (None, true) => report(0, RelaySays::Joined),
            (Some(_), true) | (None, false) => {}
        }
        if let Some(reign) = state.replaced.filter(|_| !told.is_replaced) {
            report(reign, RelaySays::Replaced);
        }
        *told = Told {
            kept,
            sent: state.sent,
            safe: proven,
            is_apart: apart.is_some(),
            is_replaced: state.replaced.is_some(),
        };
        reports
    }

    /// Returns the next record of a whole group at a place.
    pub(super) fn next(&self, place: SpoolPlace) -> Result<Option<(Record, KeptRecord)>, String> {
        let mut state = self.state.lock();
        if place >= state.spool.place_after(u64::MAX) {
            return Ok(None);
        }
        let Some(kept) = state.spool.read(place)? else { return Ok(None) };
        match RelayMessage::decode(&kept.body) {
            Ok(RelayMessage::Record(record)) => Ok(Some((record, kept))),
            Ok(RelayMessage::Offer(_) | RelayMessage::Ping | RelayMessage::Report(_)) | Err(_) => {
                Err("a record of the spool is damaged".to_owned())
            }
        }
    }

    /// Records that the mirror takes something.
    pub(super) fn note_progress(&self) {
        self.state.lock().progress = Instant::now();
    }

    /// Records whether the mirror takes groups, or the reason for which it does not.
    pub(super) fn set_apart(&self, why: Option<String>) {
        let mut state = self.state.lock();
        if why.is_none() {
            state.progress = Instant::now();
            state.unanswered = state.unanswered.map(|_| Instant::now());
        }
        state.apart = why;
        state.tell();
    }

    /// Records that the mirror was promoted: what is kept here is of no use any more.
    pub(super) fn set_replaced(&self, reign: u64) {
        let mut state = self.state.lock();
        state.replaced = Some(reign);
        state.tell();
    }

    /// Records that groups have left this machine.
    pub(super) fn set_sent(&self, group: u64) {
        let mut state = self.state.lock();
        state.sent = state.sent.max(group);
        if state.sent > state.safe {
            state.unanswered.get_or_insert_with(Instant::now);
        }
        state.tell();
    }

    /// Records that the mirror has groups, and removes them here. The primary is told if the mirror
    /// has given a proof.
    pub(super) fn set_safe(&self, group: u64, proof: Option<GroupProof>) -> Result<(), String> {
        let mut state = self.state.lock();
        let last = state.spool.last_group();
        state.safe = state.safe.max(group.min(last));
        // The primary may have sent later groups to the mirror itself, and knows of them.
        let is_news = state.proven.0 < group && group <= last;
        if let Some(proof) = proof.filter(|_| is_news) {
            state.proven = (group, proof);
        }
        state.progress = Instant::now();
        state.unanswered = (state.sent > state.safe).then(Instant::now);
        state.spool.remove_until(group)?;
        state.tell();
        Ok(())
    }

    /// Records that a connection of the primary is over.
    pub(super) fn leave(&self, turn: u64) {
        let mut state = self.state.lock();
        if state.turn == turn {
            state.primary = None;
        }
        drop(state);
        self.courier.wake();
    }

    /// Ends the threads of the route.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.has_ended = true;
        state.tell();
        drop(state);
        self.courier.wake();
    }
}

/// A connection of a primary that has begun.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) turn: u64,
    pub(super) last: u64,
    pub(super) told: Told,
}

impl State {
    /// Returns whether a whole group is here that the mirror does not have.
    pub(super) fn has_groups(&self) -> bool {
        self.spool.kept().1 > 0
    }

    /// Returns whether the primary is connected.
    pub(super) const fn has_primary(&self) -> bool {
        self.primary.is_some()
    }

    fn expect_turn(&self, turn: u64) -> Result<(), String> {
        match self.turn == turn && !self.has_ended {
            true => Ok(()),
            false => Err("another connection of the primary has taken its place".to_owned()),
        }
    }

    fn tell(&self) {
        if let Some(primary) = &self.primary {
            primary.wake();
        }
    }

    /// Returns the reason for which the mirror has taken nothing for some time. A connection that
    /// is made again at once is none.
    pub(super) fn why_silent(&self) -> Option<String> {
        let takes_nothing = self.has_groups() && self.progress.elapsed() >= SILENCE;
        let is_silent =
            takes_nothing || self.unanswered.is_some_and(|since| since.elapsed() >= SILENCE);
        let silent = || format!("the mirror takes nothing for {} s", SILENCE.as_secs());
        is_silent.then(|| self.apart.clone().unwrap_or_else(silent))
    }

    /// Returns the reason for which the mirror takes nothing now.
    pub(super) fn why_apart(&self) -> Option<String> {
        self.apart.clone().or_else(|| self.why_silent())
    }
}
