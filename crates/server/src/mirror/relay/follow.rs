//! The way of groups through the relay, in the thread that sends them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pelago_wire::mirror::{GroupPart, LinkError, MirrorLink, MirrorSays};
use pelago_wire::relay::{OfferedRelay, OnReport};

use super::super::cut::{Polled, TakenCut, take_back};
use super::super::group::SendError;
use super::super::handover::HandOver;
use super::super::sender::{Followed, PAUSE, PING, Sender};
use super::super::{Mirror, MirrorPhase, Offer};
use super::RelayState;
use super::link::RelayedLink;
use super::queue::Queued;
use super::search::{Found, RelaySearch, Way};

/// The time in which a relay must answer before the mirror gets the groups itself.
const FIRST_PATIENCE: Duration = Duration::from_secs(2);
/// The time for which a new run waits until the relay has delivered the groups of an earlier one.
/// After that the mirror is compared: all of them are safe here.
const DELIVERY: Duration = Duration::from_secs(10);
/// The least time between two times at which the primary leaves the mirror to its relay.
const STEP_ASIDE: Duration = Duration::from_secs(60);

impl Sender<'_> {
    /// Looks for the relay when a connection begins, and sends groups to it if it has all that the
    /// mirror is to have. Returns `None` if the connection to the mirror comes next.
    ///
    /// # Errors
    /// [`SendError::Link`] also while the relay has groups of an earlier run of this primary: they
    /// go first.
    pub(in super::super) fn begin_with_relay(&mut self) -> Result<Option<Followed>, SendError> {
        if self.mirror.take_relay_change() {
            self.search = RelaySearch::default();
        }
        let offer = self.relay_offer();
        if let Found::Undelivered(groups) = self.search.poll(self.mirror, offer, FIRST_PATIENCE)
            && self.search.undelivered_for() < DELIVERY
        {
            let problem = format!("the relay still has {groups} groups of an earlier run");
            return Err(SendError::Link(LinkError::Lost(problem)));
        }
        let Some((last, key)) = self.search.last().zip(self.relay_key) else { return Ok(None) };
        if self.wants_mirror_itself() || !self.course.resumed(last) {
            return Ok(None);
        }
        self.follow_relay(key).map(Some)
    }

    /// Asks for the key of the relay, if there is a relay and the mirror needs nothing else.
    pub(in super::super) fn move_to_relay(
        &mut self,
        link: &mut dyn MirrorLink,
    ) -> Result<Way, SendError> {
        if self.mirror.take_relay_change() {
            self.search = RelaySearch::default();
        }
        if !self.course.follows() || self.wants_mirror_itself() {
            return Ok(Way::Itself);
        }
        let offer = self.relay_offer();
        match self.search.poll(self.mirror, offer, Duration::ZERO) {
            Found::Ready => {}
            Found::Nothing => return Ok(Way::Itself),
            Found::Undelivered(_) if self.search.steps_aside(STEP_ASIDE) => return Ok(Way::Aside),
            Found::Undelivered(_) => return Ok(Way::Itself),
        }
        link.send(&GroupPart::RelayKey.encode()?)?;
        match link.receive()?.says {
            MirrorSays::RelayKey(key) => {
                self.relay_key = Some(key);
                Ok(Way::Relay(key))
            }
            other => {
                let problem = format!("the mirror answers a relay with {other:?}");
                Err(SendError::Link(LinkError::Lost(problem)))
            }
        }
    }

    /// Sends groups to the relay that was found, until the mirror itself is needed or the server
    /// stops.
    pub(in super::super) fn follow_relay(&mut self, key: [u8; 32]) -> Result<Followed, SendError> {
        let Some(found) = self.search.take() else { return Ok(Followed::Again) };
        let followed = self.send_to_relay(found, key);
        self.mirror.end_relay();
        self.mirror.drop_cut();
        match followed {
            Err(SendError::Link(error)) => {
                self.course.relay_lost();
                self.search.failed(self.mirror, error.to_string());
                Ok(Followed::Again)
            }
            other => other,
        }
    }

    fn send_to_relay(
        &mut self,
        found: Box<dyn OfferedRelay>,
        key: [u8; 32],
    ) -> Result<Followed, SendError> {
        let mirror = self.mirror;
        mirror.begin_relay(self.course.safe());
        let link = found.begin(key, reports_to(mirror))?;
        let mut state = mirror.state.lock();
        if state.has_stopped {
            return Ok(Followed::Stopped);
        }
        state.close = Some(link.closer());
        drop(state);
        mirror.set_phase(MirrorPhase::Follows);
        tracing::info!("groups for the mirror go through the relay");
        let mut last_record = self.last_record;
        let mut link =
            RelayedLink::new(mirror, link, mirror.reign(), self.course.run(), &mut last_record);
        let followed = self.relay_groups(&mut link);
        drop(link);
        self.last_record = last_record;
        followed
    }

    fn relay_groups(&mut self, link: &mut RelayedLink<'_>) -> Result<Followed, SendError> {
        let mut last_sign = Instant::now();
        loop {
            if self.forgets_changes() {
                self.course.start_over();
                return Ok(Followed::Again);
            }
            if self.wants_mirror_itself() && self.mirror.relay_is_drained()? {
                return Ok(Followed::Again);
            }
            let may_cut = !self.wants_mirror_itself() && self.mirror.relay_has_room();
            let polled = match may_cut {
                true => {
                    let files_changed = self.files_changed()?;
                    self.mirror.poll_cut(files_changed, PAUSE)
                }
                false => self.mirror.wait_for_reports(PAUSE),
            };
            match polled {
                Polled::Cut(cut) => {
                    self.relay_cut(link, *cut)?;
                    last_sign = Instant::now();
                }
                Polled::NotYet => {}
                Polled::Stopped => return Ok(Followed::Stopped),
            }
            self.mirror.expect_relay()?;
            if last_sign.elapsed() >= PING {
                link.ping()?;
                last_sign = Instant::now();
            }
        }
    }

    /// Sends the changes of a cut to the relay. If they do not arrive, the next cut has them too.
    fn relay_cut(&mut self, link: &mut RelayedLink<'_>, cut: TakenCut) -> Result<(), SendError> {
        match self.send_rows_and_content(link, &cut.rows, cut.at) {
            // Nothing has changed, and the mirror has all.
            Ok(0) => self.record(cut, Ok(0)).map(drop),
            Ok(bytes) => {
                self.search.succeeded();
                self.mirror.parts.opens.changes().finish_cut();
                let TakenCut { rows, commit, has_all, at, since } = cut;
                let number = self.course.safe();
                let stamp = rows.stamp;
                let group = Queued { number, commit, has_all, stamp, at, since, bytes };
                self.mirror.queue_relayed(group);
                Ok(())
            }
            Err(error) => {
                take_back(self.mirror, cut.rows.changed);
                if !error.leaves_connection() {
                    return Err(error);
                }
                tracing::warn!(%error, "a group for the mirror is cut again");
                self.mirror.note_unread();
                self.mirror.pause(PAUSE);
                Ok(())
            }
        }
    }

    /// Returns whether the mirror is to be asked for something that a relay does not pass on.
    fn wants_mirror_itself(&self) -> bool {
        self.verification.is_some() || self.mirror.wants_mirror_itself()
    }

    fn relay_offer(&self) -> Offer {
        Offer { reign: self.mirror.reign(), run: self.course.run() }
    }
}

/// Returns the function that takes the reports of a relay.
fn reports_to(mirror: &Arc<Mirror>) -> OnReport {
    let mirror = Arc::clone(mirror);
    Box::new(move |report| mirror.take_report(report))
}

impl Mirror {
    /// Begins to use the relay. The mirror, or the relay, has this group.
    fn begin_relay(&self, kept: u64) {
        let mut state = self.state.lock();
        let queue = std::mem::take(&mut state.relay.queue);
        let RelayState { pongs, is_changed, .. } = state.relay;
        let is_used = true;
        state.relay =
            RelayState { is_used, kept, pongs, is_changed, queue, ..RelayState::default() };
    }

    fn end_relay(&self) {
        let mut state = self.state.lock();
        state.relay.is_used = false;
        state.relay.apart = None;
        state.waits.forget_queued();
    }

    /// Records the newest group of this run that the mirror has itself reported: what the relay
    /// still had of older ones is of no use any more, and later ones are compared.
    pub(in super::super) fn relay_is_overtaken(&self, number: u64) {
        let mut state = self.state.lock();
        state.relay.queue.set_safe(number);
        self.answer_relayed(state);
        self.state.lock().relay.queue.clear();
    }

    /// Returns whether the mirror has everything that the relay has got.
    fn relay_is_drained(&self) -> Result<bool, LinkError> {
        self.expect_relay()?;
        Ok(self.state.lock().relay.queue.is_empty())
    }

    fn relay_has_room(&self) -> bool {
        self.state.lock().relay.queue.has_room()
    }

    /// Checks that the connection to the relay has not ended.
    fn expect_relay(&self) -> Result<(), LinkError> {
        self.state.lock().relay.ended.clone().map_or(Ok(()), Err)
    }

    /// Waits for a report of the relay.
    fn wait_for_reports(&self, patience: Duration) -> Polled {
        let mut state = self.state.lock();
        if state.has_stopped {
            return Polled::Stopped;
        }
        self.changed.wait_for(&mut state, patience);
        Polled::NotYet
    }

    /// Returns whether another relay was set since the last call.
    fn take_relay_change(&self) -> bool {
        std::mem::take(&mut self.state.lock().relay.is_changed)
    }

    fn wants_mirror_itself(&self) -> bool {
        let state = self.state.lock();
        let hands_over = matches!(state.hand_over, Some(HandOver::Wanted));
        hands_over || state.relay.is_changed || state.wanted_verification.is_some()
    }
}
