//! The thread of a relay that passes the groups of one volume on to its mirror.
//!
//! Only whole groups are passed on: a mirror that has begun to take one gets the rest of it though
//! the primary is gone.

use std::collections::VecDeque;
use std::os::fd::AsFd as _;
use std::time::Duration;

use pelago_proto::fec::RepairMode;
use pelago_wire::mirror::{GroupState, LinkError, MirrorSays};
use pelago_wire::relay::{RelayRepair, SpoolPlace};
use rustix::event::PollFlags;

use super::super::connection::MirrorConnection;
use super::super::datagrams::Datagrams;
use super::route::Route;
use crate::key::PrivateKey;
use crate::key::address::ServerAddress;

/// The pause before a connection that was lost is made again.
const RECONNECT: Duration = Duration::from_secs(1);
/// The longest sleep.
const PATIENCE: Duration = Duration::from_secs(1);

/// The thread that serves one route.
pub(super) struct Courier<'a> {
    route: &'a Route,
    key: &'a PrivateKey,
    datagrams: &'a Datagrams,
}

/// The connection to the mirror, and the groups on it.
struct Passage {
    link: MirrorConnection,
    /// The place of the next record.
    place: SpoolPlace,
    /// Groups for which a caller waits, each with the bytes that are sent with its end.
    awaited: VecDeque<(u64, u64)>,
}

impl<'a> Courier<'a> {
    pub(super) const fn new(
        route: &'a Route,
        key: &'a PrivateKey,
        datagrams: &'a Datagrams,
    ) -> Self {
        Self { route, key, datagrams }
    }

    /// Passes groups on until the route ends.
    pub(super) fn run(&self) {
        while !self.route.state().has_ended {
            if !self.route.state().has_groups() {
                // The primary may be connected to the mirror itself.
                let _woken = self.route.courier.wait(&[], Some(PATIENCE));
                continue;
            }
            match self.follow() {
                Ok(()) => continue,
                Err(LinkError::Replaced { reign }) => {
                    let volume = self.route.volume;
                    tracing::error!(?volume, reign, "the mirror was promoted: it gets no groups");
                    return self.route.set_replaced(reign);
                }
                Err(error) => {
                    if self.route.state().apart.is_none() {
                        tracing::warn!(%error, "a mirror gets nothing from this relay now");
                    }
                    self.route.set_apart(Some(error.to_string()));
                }
            }
            // An error of the wait is one of the next wait, too.
            let _woken = self.route.courier.wait(&[], Some(RECONNECT));
        }
    }

    /// Connects to the mirror, and passes groups on until the connection or the route ends, or
    /// nothing is left and the primary is gone.
    fn follow(&self) -> Result<(), LinkError> {
        let offer = self.route.state().offer.clone();
        let mirror: ServerAddress = match offer.mirror.parse() {
            Ok(mirror) => mirror,
            Err(error) => return Err(LinkError::Refused(format!("{}: {error}", offer.mirror))),
        };
        let datagrams = (offer.repair != RelayRepair::Off).then_some(self.datagrams);
        let (link, has) = MirrorConnection::connect_relay(
            self.key,
            &mirror,
            self.route.volume,
            &offer,
            datagrams,
            &self.route.courier,
        )?;
        let failed = |why: String| LinkError::Lost(why);
        let (known, proof) = match has.says {
            MirrorSays::Proof(proof) => (has.number, Some(proof)),
            _ => (self.give_up()?, None),
        };
        self.route.set_safe(known, proof).map_err(failed)?;
        let place = self.route.state().spool.place_after(known);
        self.route.set_apart(None);
        Passage { link, place, awaited: VecDeque::new() }.run(self.route)
    }

    /// Gives up what is kept: the mirror has a state of another run, which a later run of the
    /// primary has sent itself, and which has all of this one. Returns the last group.
    fn give_up(&self) -> Result<u64, LinkError> {
        let state = self.route.state();
        if state.has_primary() {
            return Err(LinkError::Lost("the mirror does not follow this run".to_owned()));
        }
        let (bytes, groups) = state.spool.kept();
        if groups > 0 {
            tracing::warn!(bytes, groups, "the mirror has a newer state than this relay");
        }
        match state.spool.last_group() {
            0 => Err(LinkError::Lost("the mirror does not follow this run".to_owned())),
            last => Ok(last),
        }
    }
}

impl Passage {
    fn run(mut self, route: &Route) -> Result<(), LinkError> {
        let lost = |error: std::io::Error| LinkError::Lost(error.to_string());
        let socket = self.link.another_socket().map_err(lost)?;
        loop {
            let state = route.state();
            if state.has_ended || !state.has_primary() && !state.has_groups() {
                return Ok(());
            }
            drop(state);
            let has_more = self.send_some(route)?;
            while let Some(state) = self.link.poll_state()? {
                take(route, state)?;
            }
            let departed = self.link.departed();
            while let Some((group, _)) = self.awaited.pop_front_if(|(_, bytes)| *bytes <= departed)
            {
                route.set_sent(group);
            }
            let is_ready = has_more && self.link.has_room();
            if !is_ready {
                let sockets = [(socket.as_fd(), PollFlags::IN)];
                route.courier.wait(&sockets, Some(PATIENCE)).map_err(lost)?;
            }
        }
    }

    /// Sends records while there is room for them, to the end of a group at most. Returns whether
    /// more are there.
    fn send_some(&mut self, route: &Route) -> Result<bool, LinkError> {
        while self.link.has_room() {
            let next = route.next(self.place).map_err(LinkError::Lost)?;
            let Some((record, kept)) = next else { return Ok(false) };
            self.link.send_record(&kept.body)?;
            self.place = kept.next;
            route.note_progress();
            if record.is_last {
                self.link.flush_records(record.is_awaited)?;
                if let Some(given) = self.link.given().filter(|_| record.is_awaited) {
                    self.awaited.push_back((record.group, given));
                }
                return Ok(true);
            }
        }
        Ok(true)
    }
}

/// Takes a message of the mirror.
fn take(route: &Route, state: GroupState) -> Result<(), LinkError> {
    match state.says {
        MirrorSays::Proof(proof) => {
            route.set_safe(state.number, Some(proof)).map_err(LinkError::Lost)
        }
        MirrorSays::Failed(why) => Err(LinkError::Lost(why)),
        MirrorSays::Ready
        | MirrorSays::Safe
        | MirrorSays::Pong
        | MirrorSays::Differ(_)
        | MirrorSays::Promoted
        | MirrorSays::Datagrams
        | MirrorSays::NoDatagrams(_)
        | MirrorSays::RelayKey(_) => {
            Err(LinkError::Lost("the mirror gives another answer".to_owned()))
        }
    }
}

/// Returns the datagrams of a route, for this amount of repair packets.
pub(super) fn datagrams_of(repair: RelayRepair) -> Datagrams {
    Datagrams::new(match repair {
        RelayRepair::Off => RepairMode::Off,
        RelayRepair::Auto => RepairMode::Auto,
        RelayRepair::Full => RepairMode::Full,
    })
}
