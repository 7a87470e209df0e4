//! A volume whose groups go through a relay that is lost, delivers late, or loses what it kept: the
//! mirror has the volume in the end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use pelago_server::{Offer, RelayedMirror, Server};
use pelago_wire::mirror::{
    CloseLink, GroupPart, LinkError, MirrorSays, Mirrors as _, PrimaryRun, Via,
};
use pelago_wire::relay::{
    OfferedRelay, OnReport, Record, RelayAnswer, RelayLink, RelayReport, RelaySays,
};
use pelago_wire::{Handle, MirrorStage, Reached, Reply, Request, xattr};

use super::pair::{
    Event, Fate, Keeper, PEER, Pair, RELAY_KEY, fill, noise, put_at, set_connect, start,
};
use super::primary::put;
use crate::harness::requests::{call, lookup};
use crate::harness::rig::DEADLINE;

/// A relay in this process. Records are not sealed.
#[derive(Default)]
struct Relay {
    state: Mutex<State>,
    has_ended: AtomicBool,
}

#[derive(Default)]
struct State {
    run: PrimaryRun,
    reign: u64,
    volume: [u8; 16],
    records: VecDeque<Record>,
    /// The last group that was whole here.
    last: u64,
    safe: u64,
    turn: u64,
    on_report: Option<Arc<Mutex<OnReport>>>,
    /// It cannot be reached.
    is_away: bool,
    /// It passes nothing on.
    holds: bool,
    /// The connection is lost after so many records.
    records_left: Option<u32>,
    /// The connection is lost before this group is reported.
    loses_answer: bool,
    /// It cannot be reached after that.
    then_is_away: bool,
    /// The number of the last record, which none may have again.
    last_record: u64,
}

struct Link {
    relay: Arc<Relay>,
    turn: u64,
}

struct Offered {
    relay: Arc<Relay>,
    last: u64,
}

fn lost() -> LinkError {
    LinkError::Lost("the relay is lost".to_owned())
}

impl Relay {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn offer(self: &Arc<Self>, volume: [u8; 16], offer: Offer) -> Result<RelayAnswer, LinkError> {
        let mut state = self.state();
        if state.is_away {
            return Err(lost());
        }
        state.drop_partial();
        if (state.run, state.reign) != (offer.run, offer.reign) {
            if !state.records.is_empty() {
                return Ok(RelayAnswer::Undelivered(1));
            }
            state.run = offer.run;
            state.reign = offer.reign;
            state.last = 0;
            state.safe = 0;
            state.last_record = 0;
        }
        state.volume = volume;
        let last = state.last;
        Ok(RelayAnswer::Ready(Box::new(Offered { relay: Arc::clone(self), last })))
    }

    /// Reports something to the primary, if it is connected.
    fn report(&self, report: Result<RelayReport, LinkError>) {
        let on_report = self.state().on_report.clone();
        if let Some(on_report) = on_report {
            (on_report.lock())(report);
        }
    }

    fn say(&self, number: u64, says: RelaySays) {
        self.report(Ok(RelayReport { number, says }));
    }

    /// Ends the connection of the primary.
    fn lose(&self) {
        self.report(Err(lost()));
        let mut state = self.state();
        state.turn += 1;
        state.on_report = None;
        state.drop_partial();
    }

    /// Passes one group on. Returns whether there was one that the mirror took.
    fn deliver(&self, keeper: &Arc<Keeper>) -> bool {
        let state = self.state();
        if state.holds || !state.records.iter().any(|record| record.is_last) {
            return false;
        }
        let end = state.records.iter().position(|record| record.is_last).unwrap();
        let group: Vec<Record> = state.records.range(..=end).cloned().collect();
        let State { volume, reign, run, .. } = *state;
        drop(state);
        let number = group[0].group;
        let kept = keeper.store.lock();
        let Some(store) = kept.as_ref() else { return false };
        let Ok(mut groups) = store.offer(volume, reign, run, Via::Relay) else { return false };
        let ready = groups.ready();
        if (ready.reign, ready.run) != (reign, run) || ready.number >= number {
            // The primary has overtaken it.
            drop(groups);
            self.set_safe(number);
            return true;
        }
        for record in group {
            let Ok(answer) = groups.take(&record.sealed) else { return false };
            let is_safe = answer.is_some_and(|answer| answer.says == MirrorSays::Safe);
            if record.is_last != is_safe {
                return false;
            }
        }
        if groups.carry_out().is_err() {
            return false;
        }
        drop(groups);
        drop(kept);
        self.set_safe(number);
        true
    }

    fn set_safe(&self, number: u64) {
        let mut state = self.state();
        while state.records.pop_front_if(|record| record.group <= number).is_some() {}
        state.safe = number;
        drop(state);
        self.say(number, RelaySays::Safe([0; 32]));
    }

    /// Passes groups on until it has ended.
    fn courier(self: &Arc<Self>, keeper: &Arc<Keeper>) -> JoinHandle<()> {
        let relay = Arc::clone(self);
        let keeper = Arc::clone(keeper);
        let courier = move || {
            while !relay.has_ended.load(Ordering::Acquire) {
                if !relay.deliver(&keeper) {
                    thread::sleep(Duration::from_millis(2));
                }
            }
        };
        pelago_threads::spawn("courier", courier).unwrap()
    }
}

impl State {
    /// Removes the group that is not whole.
    fn drop_partial(&mut self) {
        let whole = self.records.iter().rposition(|record| record.is_last);
        self.records.truncate(whole.map_or(0, |last| last + 1));
    }
}

impl OfferedRelay for Offered {
    fn last(&self) -> u64 {
        self.last
    }

    fn begin(
        self: Box<Self>,
        key: [u8; 32],
        on_report: OnReport,
    ) -> Result<Box<dyn RelayLink>, LinkError> {
        assert_eq!(key, RELAY_KEY);
        let mut state = self.relay.state();
        state.turn += 1;
        state.on_report = Some(Arc::new(Mutex::new(on_report)));
        let turn = state.turn;
        drop(state);
        Ok(Box::new(Link { relay: Arc::clone(&self.relay), turn }))
    }
}

impl RelayLink for Link {
    fn send(&mut self, record: Record) -> Result<(), LinkError> {
        let mut state = self.relay.state();
        if state.turn != self.turn || state.is_away {
            return Err(lost());
        }
        if state.records_left == Some(0) {
            state.records_left = None;
            drop(state);
            self.relay.lose();
            return Err(lost());
        }
        state.records_left = state.records_left.map(|left| left - 1);
        assert!(record.group > state.last, "group {} after {}", record.group, state.last);
        assert!(record.number > state.last_record, "a nonce is used once");
        state.last_record = record.number;
        let Record { group, is_last, is_awaited, .. } = record;
        state.records.push_back(record);
        if !is_last {
            return Ok(());
        }
        state.last = group;
        if std::mem::take(&mut state.loses_answer) {
            state.is_away |= state.then_is_away;
            drop(state);
            self.relay.lose();
            return Ok(());
        }
        drop(state);
        self.relay.say(group, RelaySays::Kept);
        if is_awaited {
            self.relay.say(group, RelaySays::Sent);
        }
        Ok(())
    }

    fn ping(&mut self) -> Result<(), LinkError> {
        let last = self.relay.state().last;
        self.relay.say(last, RelaySays::Ready);
        Ok(())
    }

    fn closer(&self) -> CloseLink {
        Box::new(|| {})
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let mut state = self.relay.state();
        if state.turn == self.turn {
            state.on_report = None;
        }
    }
}

/// A volume, its mirror, and the relay between them.
struct World {
    pair: Pair,
    relay: Arc<Relay>,
    keeper: Arc<Keeper>,
    server: Server,
    courier: Option<JoinHandle<()>>,
}

impl World {
    /// Returns a world whose relay is used.
    fn new() -> Self {
        let pair = Pair::new();
        let server = start(&pair.volume());
        fill(&server);
        let keeper = pair.keep();
        let relay = Arc::new(Relay::default());
        Self::connect(&server, &keeper, &relay);
        let courier = Some(relay.courier(&keeper));
        let world = Self { pair, relay, keeper, server, courier };
        world.until("the relay is used", |world| world.uses_relay());
        world
    }

    /// Kills the server, and starts another run of it.
    fn restart(self) -> Self {
        let Self { pair, relay, keeper, server, courier } = self;
        drop(server);
        let server = start(&pair.volume());
        Self::connect(&server, &keeper, &relay);
        Self { pair, relay, keeper, server, courier }
    }

    fn connect(server: &Server, keeper: &Arc<Keeper>, relay: &Arc<Relay>) {
        let connected = Arc::clone(relay);
        server.set_connect_relay(Arc::new(move |relayed, volume, offer| {
            assert_eq!(relayed.mirror, PEER);
            connected.offer(volume.0, offer)
        }));
        set_connect(server, keeper, |_| {});
        let relayed = RelayedMirror { relay: "key@edge:7440".to_owned(), mirror: PEER.to_owned() };
        server.set_relayed_mirror(&relayed).unwrap();
    }

    fn uses_relay(&self) -> bool {
        self.server.mirror().unwrap().relay.unwrap().is_used
    }

    fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < DEADLINE, "still not: {what}");
            // Polled: other threads decide it.
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn relay(&self) -> MutexGuard<'_, State> {
        self.relay.state()
    }

    /// Waits until the mirror has all, and checks that it is equal.
    fn expect_equal(mut self) {
        let commit = self.server.next_commit().unwrap();
        assert_eq!(self.server.wait_for_mirror(commit, DEADLINE), Ok(true));
        self.server.stop().unwrap();
        self.relay.has_ended.store(true, Ordering::Release);
        self.courier.take().unwrap().join().unwrap();
        *self.keeper.store.lock() = None;
        let Self { pair, server, .. } = self;
        drop(server);
        pair.expect_equal();
    }
}

#[test]
fn groups_go_through_a_relay() {
    let world = World::new();
    for number in 0..20 {
        put_at(&world.server, "large", number * 100_000, &[number as u8; 1000]);
        put(&world.server, &format!("new {number}"), &noise(number as usize * 1000));
    }
    assert!(world.uses_relay());
    world.expect_equal();
}

/// The relay has a group whole, but the primary does not know, and sends a newer one to the mirror
/// itself. The line is cut, and the relay delivers its group, which has the same number.
#[test]
fn a_group_that_a_lost_relay_delivers_late_hides_nothing() {
    let world = World::new();
    let mut state = world.relay();
    state.holds = true;
    state.loses_answer = true;
    state.then_is_away = true;
    drop(state);
    let relay = Arc::clone(&world.relay);
    let mut is_cut = false;
    world.pair.decide(move |event| {
        let mut state = relay.state();
        match event {
            Event::Sends(GroupPart::Begin { .. }) if !is_cut => {
                is_cut = true;
                state.holds = false;
                Fate::IsLost
            }
            Event::Connects if is_cut && !state.records.is_empty() => Fate::IsLost,
            Event::Connects | Event::Sends(_) => Fate::Arrives,
        }
    });
    put(&world.server, "in the relay", &noise(5000));
    world.until("the relay has it", |world| world.relay().records.iter().any(|r| r.is_last));
    put(&world.server, "after it", &noise(7000));
    world.until("the relay is not used", |world| !world.uses_relay());
    world.expect_equal();
}

/// What the relay had, and the primary has forgotten, is found by a comparison.
#[test]
fn a_relay_that_burns_with_what_it_kept_is_made_up_for() {
    let world = World::new();
    world.relay().holds = true;
    for number in 0..3 {
        put(&world.server, &format!("kept {number}"), &noise(9000));
        world.until("the relay has it", |world| {
            world.server.mirror().unwrap().relay.unwrap().groups > number
        });
    }
    world.relay().records.clear();
    world.relay().last = 0;
    world.relay.lose();
    world.relay().holds = false;
    world.expect_equal();
}

/// A relay whose groups of an earlier run do not come through is not waited for: the primary has
/// all of them. It is used again once it has heard that the mirror has more.
#[test]
fn a_relay_with_groups_of_an_earlier_run_is_overtaken() {
    let world = World::new();
    world.relay().holds = true;
    put(&world.server, "of the earlier run", &noise(9000));
    world.until("the relay has it", |world| {
        world.server.mirror().unwrap().relay.unwrap().groups > 0
    });
    let world = world.restart();
    put(&world.server, "of the next run", &noise(8000));
    let commit = world.server.next_commit().unwrap();
    assert_eq!(world.server.wait_for_mirror(commit, DEADLINE), Ok(true));
    assert!(!world.uses_relay());
    world.relay().holds = false;
    world.until("the relay is used again", |world| world.uses_relay());
    world.expect_equal();
}

/// Returns the next number of a sequence (Knuth's MMIX).
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// Loses relay, lines and answers at random moments while files change.
fn stumble(seed: u64) {
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let world = World::new();
    let mut line = random ^ 1;
    world.pair.decide(move |_| match next(&mut line) % 40 {
        0 => Fate::IsLost,
        1 => Fate::AnswerIsLost,
        _ => Fate::Arrives,
    });
    for step in 0..60 {
        match next(&mut random) % 12 {
            0 => world.relay().holds ^= true,
            1 => world.relay().is_away ^= true,
            2 => world.relay.lose(),
            3 => world.relay().records_left = Some((next(&mut random) % 8) as u32),
            4 => world.relay().loses_answer = true,
            5 => {
                let mut state = world.relay();
                state.records.clear();
                state.last = state.safe;
            }
            6 => put(&world.server, &format!("new {step}"), &noise(step * 700)),
            _ => {
                let offset = next(&mut random) % 5_000_000;
                put_at(&world.server, "large", offset, &[step as u8; 3000]);
            }
        }
        // Not a wait for a condition: the moments are random.
        thread::sleep(Duration::from_millis(next(&mut random) % 60));
    }
    world.pair.decide(|_| Fate::Arrives);
    let mut state = world.relay();
    state.is_away = false;
    state.holds = false;
    drop(state);
    world.expect_equal();
}

#[test]
fn a_mirror_behind_a_relay_is_equal_whatever_is_lost() {
    let seeds = std::env::var("PELAGO_RELAY_SEEDS").ok().and_then(|text| text.parse().ok());
    let seeds: Vec<u64> = (0..seeds.unwrap_or(8)).collect();
    for together in seeds.chunks(8) {
        let threads: Vec<_> = together
            .iter()
            .map(|seed| {
                let seed = *seed;
                (seed, pelago_threads::spawn("stumble", move || stumble(seed)).unwrap())
            })
            .collect();
        for (seed, thread) in threads {
            assert!(thread.join().is_ok(), "seed {seed}");
        }
    }
}

/// What the relay has is at the edge until the mirror has it.
#[test]
fn a_change_that_a_relay_has_is_at_the_edge() {
    let world = World::new();
    world.relay().holds = true;
    put(&world.server, "kept", &noise(9000));
    let node = lookup(&world.server, Handle::ROOT, "kept").unwrap().handle;
    let place = |world: &World| {
        let name = xattr::REACHED.to_vec();
        let request = Request::GetXattr { node, name };
        match call(&world.server, request, &[]).unwrap() {
            Reply::Bytes(text) => Reached::decode(&text).unwrap().stage,
            other => panic!("{other:?}"),
        }
    };
    world.until("the relay has it", |world| place(world) == MirrorStage::Edge);
    world.relay().holds = false;
    world.until("the mirror has it", |world| place(world) == MirrorStage::Mirrored);
    world.expect_equal();
}
