//! Groups that a relay passes on to a mirror, over real sockets, through a forwarder that loses and
//! delays datagrams.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_net::clients::KeyName;
use pelago_net::clients::date::Date;
use pelago_net::clients::file::edit;
use pelago_net::clients::list::ClientList;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::mirror::{
    Datagrams, MirrorConnection, MirrorServer, RelayConnection, RelayServer, RepairMode,
};
use pelago_net::own_file::OwnFile;
use pelago_wire::mirror::{
    GroupPart, GroupState, Groups, LinkError, MirrorLink as _, MirrorSays, Mirrors, OfferRefused,
    PrimaryRun, Via,
};
use pelago_wire::relay::{
    OfferedRelay, Record, RelayAnswer, RelayLink, RelayOffer, RelayRepair, RelayReport, RelaySays,
};

use crate::forwarder::Forwarder;
use crate::kept::Kept;

#[path = "harness/forwarder.rs"]
mod forwarder;
#[path = "harness/kept.rs"]
mod kept;

const RUN: PrimaryRun = [6; 16];
const VOLUME: [u8; 16] = [5; 16];
const PATIENCE: Duration = Duration::from_secs(20);

/// A mirror that takes groups in order, each of bytes and an end.
#[derive(Default)]
struct Stub {
    /// The last group that it has.
    number: AtomicU64,
    taken: Mutex<Vec<u8>>,
    is_away: AtomicBool,
    /// It takes what comes, and says nothing of it.
    is_silent: AtomicBool,
}

struct StubGroups {
    stub: Arc<Stub>,
    open: Vec<u8>,
}

struct StubMirrors(Arc<Stub>);

impl Mirrors for StubMirrors {
    fn offer(
        &self,
        volume: [u8; 16],
        reign: u64,
        run: PrimaryRun,
        _via: Via,
    ) -> Result<Box<dyn Groups>, OfferRefused> {
        assert_eq!((volume, run), (VOLUME, RUN));
        match reign {
            1 if self.0.is_away.load(Ordering::SeqCst) => {
                Err(OfferRefused::Failed("the disk is full".to_owned()))
            }
            1 => Ok(Box::new(StubGroups { stub: Arc::clone(&self.0), open: Vec::new() })),
            _ => Err(OfferRefused::NotPrimary(9)),
        }
    }
}

impl StubGroups {
    fn state(&self, says: MirrorSays) -> GroupState {
        let number = self.stub.number.load(Ordering::SeqCst);
        GroupState { reign: 1, run: RUN, number, says }
    }
}

impl Groups for StubGroups {
    fn ready(&self) -> GroupState {
        self.state(MirrorSays::Ready)
    }

    fn take(&mut self, body: &[u8]) -> Result<Option<GroupState>, String> {
        match GroupPart::decode(body).map_err(|error| error.to_string())? {
            GroupPart::Bytes { bytes, .. } => {
                self.open.extend(bytes);
                Ok(None)
            }
            GroupPart::End { sum } => {
                while self.stub.is_silent.load(Ordering::SeqCst) {
                    // Its disk hangs.
                    thread::sleep(Duration::from_millis(5));
                }
                let last = self.stub.number.fetch_add(1, Ordering::SeqCst);
                if sum != last + 1 {
                    return Err(format!("group {sum} after {last}"));
                }
                self.stub.taken.lock().append(&mut self.open);
                Ok(Some(self.state(MirrorSays::Safe)))
            }
            other => Err(format!("{other:?}")),
        }
    }

    fn carry_out(&mut self) -> Result<(), String> {
        Ok(())
    }
}

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from_seed([seed; 32])
}

fn mirror_key() -> PrivateKey {
    key(1)
}

fn primary_key() -> PrivateKey {
    key(2)
}

fn relay_key() -> PrivateKey {
    key(3)
}

/// A mirror, a relay, and the path between them.
struct World {
    folder: tempfile::TempDir,
    stub: Arc<Stub>,
    mirror: MirrorServer,
    forwarder: Forwarder,
    kept: Kept,
    relay: Option<RelayServer>,
    run_key: [u8; 32],
}

impl World {
    fn new(seed: u64) -> Self {
        loop {
            let world = Self::of_any_port(seed);
            // Another test may have the UDP port of this number.
            if takes_datagrams(&world.mirror) {
                return world;
            }
        }
    }

    fn of_any_port(seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let stub = Arc::new(Stub::default());
        let mirrors = Arc::new(StubMirrors(Arc::clone(&stub)));
        let clients = clients(&folder, "of-mirror", &[primary_key(), relay_key()]);
        let any = "127.0.0.1:0".parse().unwrap();
        let mirror = MirrorServer::start(any, &mirror_key(), clients, mirrors).unwrap();
        let forwarder = Forwarder::start(mirror.address().port(), seed);
        let run_key = key_of_run(&mirror);
        let kept = Kept::default();
        let mut world = Self { folder, stub, mirror, forwarder, kept, relay: None, run_key };
        world.start_relay();
        world
    }

    fn start_relay(&mut self) {
        let clients = clients(&self.folder, "of-relay", &[primary_key()]);
        let any = "127.0.0.1:0".parse().unwrap();
        let spools = Arc::new(self.kept.clone());
        self.relay = Some(RelayServer::start(any, relay_key(), clients, spools).unwrap());
    }

    fn offer(&self, repair: RelayRepair) -> RelayOffer {
        let port = self.forwarder.port;
        let mirror = ServerAddress::new(mirror_key().public(), "127.0.0.1", port).unwrap();
        RelayOffer { reign: 1, run: RUN, mirror: mirror.to_string(), repair }
    }

    fn relay_address(&self) -> ServerAddress {
        let port = self.relay.as_ref().unwrap().address().port();
        ServerAddress::new(relay_key().public(), "127.0.0.1", port).unwrap()
    }

    /// Connects a primary that has sent so many groups, and so many records.
    fn connect(&self, repair: RelayRepair, groups: u64, records: u64) -> Primary {
        let offer = self.offer(repair);
        let offered = self.offer_to_relay(&primary_key(), &offer).map(ready).unwrap();
        assert_eq!(offered.last(), groups);
        self.begin(offered, groups, records)
    }

    fn offer_to_relay(
        &self,
        key: &PrivateKey,
        offer: &RelayOffer,
    ) -> Result<RelayAnswer, LinkError> {
        RelayConnection::connect(key, &self.relay_address(), VOLUME, offer)
    }

    fn begin(&self, offered: Box<dyn OfferedRelay>, groups: u64, records: u64) -> Primary {
        let (sender, reports) = mpsc::channel();
        let on_report = Box::new(move |report| {
            let _test_has_ended = sender.send(report);
        });
        let link = offered.begin(self.run_key, on_report).unwrap();
        Primary { link, reports, groups, records, sent: Vec::new() }
    }

    fn wait_for(&self, group: u64) {
        let begin = Instant::now();
        while self.stub.number.load(Ordering::SeqCst) < group {
            assert!(begin.elapsed() < PATIENCE, "group {group} does not come");
            // Polled: threads of the relay and of the mirror decide it.
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn clients(folder: &tempfile::TempDir, name: &str, keys: &[PrivateKey]) -> Arc<ClientList> {
    let file = || OwnFile::of(&folder.path().join(name)).unwrap();
    for key in keys {
        let key = key.public();
        edit(&file(), |clients| clients.allow(key, None::<KeyName>, Date::today())).unwrap();
    }
    Arc::new(ClientList::open(file()).unwrap())
}

fn takes_datagrams(mirror: &MirrorServer) -> bool {
    let port = mirror.address().port();
    let address = ServerAddress::new(mirror_key().public(), "127.0.0.1", port).unwrap();
    let all = Datagrams::new(RepairMode::Auto);
    let connect = MirrorConnection::connect_with_datagrams;
    connect(&primary_key(), &address, VOLUME, 1, RUN, &all).unwrap().0.has_datagrams()
}

/// Asks the mirror for the key of the run, as a primary does that is connected to it.
fn key_of_run(mirror: &MirrorServer) -> [u8; 32] {
    let port = mirror.address().port();
    let address = ServerAddress::new(mirror_key().public(), "127.0.0.1", port).unwrap();
    let connected = MirrorConnection::connect(&primary_key(), &address, VOLUME, 1, RUN);
    let (mut link, _) = connected.unwrap();
    link.send(&GroupPart::RelayKey.encode().unwrap()).unwrap();
    match link.receive().unwrap().says {
        MirrorSays::RelayKey(key) => key,
        other => panic!("{other:?}"),
    }
}

/// Returns the relay that takes the groups of a run.
fn ready(answer: RelayAnswer) -> Box<dyn OfferedRelay> {
    match answer {
        RelayAnswer::Ready(offered) => offered,
        RelayAnswer::Undelivered(groups) => panic!("{groups} groups of another run are there"),
    }
}

/// A primary that sends groups to the relay.
struct Primary {
    link: Box<dyn RelayLink>,
    reports: Receiver<Result<RelayReport, LinkError>>,
    groups: u64,
    records: u64,
    sent: Vec<u8>,
}

impl Primary {
    fn record(&mut self, part: &GroupPart, is_last: bool, is_awaited: bool) {
        self.records += 1;
        let group = self.groups;
        let sealed = part.encode().unwrap();
        let record = Record { group, number: self.records, is_last, is_awaited, sealed };
        self.link.send(record).unwrap();
    }

    /// Sends a group of so many parts. Returns its number.
    fn group(&mut self, parts: usize, bytes: usize, is_awaited: bool) -> u64 {
        self.groups += 1;
        for _ in 0..parts {
            let bytes = vec![self.records as u8; bytes];
            self.sent.extend(&bytes);
            self.record(&GroupPart::Bytes { offset: 0, bytes }, false, is_awaited);
        }
        self.record(&GroupPart::End { sum: self.groups }, true, is_awaited);
        self.groups
    }

    /// Waits until the mirror takes nothing. Returns the reason, and how long that took.
    fn wait_for_apart(&self) -> (String, Duration) {
        let begin = Instant::now();
        loop {
            let report = self.reports.recv_timeout(PATIENCE).unwrap().unwrap();
            if let RelaySays::Apart(why) = report.says {
                return (why, begin.elapsed());
            }
        }
    }

    /// Waits for the report that the mirror has this group, or a later one.
    fn wait_for_safe(&self, group: u64) {
        loop {
            let report = self.reports.recv_timeout(PATIENCE).unwrap().unwrap();
            if matches!(report.says, RelaySays::Safe(_)) && report.number >= group {
                return;
            }
        }
    }

    /// Waits for a report of this group, or of a later one.
    fn wait_for(&self, group: u64, says: &RelaySays) {
        loop {
            let report = self.reports.recv_timeout(PATIENCE).unwrap().unwrap();
            if report.says == *says && report.number >= group {
                return;
            }
        }
    }
}

#[test]
fn groups_pass_a_relay_in_order() {
    for repair in [RelayRepair::Auto, RelayRepair::Off] {
        let world = World::new(1);
        world.forwarder.path.lost.store(10_000, Ordering::Relaxed);
        world.forwarder.path.delay.store(2_000, Ordering::Relaxed);
        let mut primary = world.connect(repair, 0, 0);
        for (parts, bytes) in [(1, 10), (0, 0), (30, 200 << 10), (3, 5000)] {
            let group = primary.group(parts, bytes, true);
            primary.wait_for(group, &RelaySays::Kept);
            if repair == RelayRepair::Auto {
                primary.wait_for(group, &RelaySays::Sent);
            }
        }
        primary.wait_for_safe(4);
        assert_eq!(*world.stub.taken.lock(), primary.sent, "{repair:?}");
    }
}

/// A group that no caller waits for is passed on too, and its last packet is not held back.
#[test]
fn groups_that_nobody_waits_for_arrive() {
    let world = World::new(2);
    let mut primary = world.connect(RelayRepair::Auto, 0, 0);
    for _ in 0..20 {
        let group = primary.group(1, 700, false);
        primary.wait_for_safe(group);
    }
    let status = world.relay.as_ref().unwrap().list().pop().unwrap();
    assert_eq!((status.groups, status.safe, status.has_primary), (0, 20, true));
    assert_eq!(status.apart, None);
    primary.link.ping().unwrap();
    primary.wait_for(20, &RelaySays::Ready);
}

#[test]
fn a_relay_sends_on_though_the_primary_is_gone() {
    let world = World::new(3);
    world.stub.is_away.store(true, Ordering::SeqCst);
    let mut primary = world.connect(RelayRepair::Auto, 0, 0);
    let group = primary.group(2, 5000, true);
    primary.wait_for(group, &RelaySays::Kept);
    let sent = std::mem::take(&mut primary.sent);
    drop(primary);
    world.stub.is_away.store(false, Ordering::SeqCst);
    world.wait_for(group);
    assert_eq!(*world.stub.taken.lock(), sent);
}

#[test]
fn a_relay_that_was_restarted_sends_on() {
    let mut world = World::new(4);
    world.stub.is_away.store(true, Ordering::SeqCst);
    let mut primary = world.connect(RelayRepair::Auto, 0, 0);
    for _ in 0..3 {
        let group = primary.group(2, 5000, true);
        primary.wait_for(group, &RelaySays::Kept);
    }
    primary.groups += 1;
    primary.record(&GroupPart::Bytes { offset: 0, bytes: vec![1] }, false, false);
    let sent = std::mem::take(&mut primary.sent);
    let records = primary.records;
    drop(primary);
    world.relay = None;
    world.start_relay();
    world.stub.is_away.store(false, Ordering::SeqCst);
    world.wait_for(3);
    assert_eq!(*world.stub.taken.lock(), sent, "the group that was begun is none");
    let mut primary = world.connect(RelayRepair::Auto, 3, records);
    let group = primary.group(1, 100, true);
    primary.wait_for_safe(group);
}

/// Whatever the relay calls sent is at the mirror, though relay and primary are lost in that moment
/// and the link loses one datagram of a hundred.
#[test]
fn what_was_sent_arrives_although_all_are_lost_that_sent_it() {
    for seed in 0..12 {
        let mut world = World::new(100 + seed);
        world.forwarder.path.lost.store(10_000, Ordering::Relaxed);
        world.forwarder.path.delay.store(20_000, Ordering::Relaxed);
        let mut primary = world.connect(RelayRepair::Auto, 0, 0);
        for _ in 0..4 {
            // Others write, and wait for nothing.
            primary.group(1, 30 << 10, false);
            let group = primary.group(1, 4096, true);
            primary.wait_for(group, &RelaySays::Sent);
        }
        let sent = std::mem::take(&mut primary.sent);
        let groups = primary.groups;
        world.relay = None;
        drop(primary);
        world.wait_for(groups);
        assert_eq!(*world.stub.taken.lock(), sent, "seed {seed}");
    }
}

#[test]
fn another_run_waits_until_the_mirror_has_the_one_before() {
    let world = World::new(5);
    world.stub.is_away.store(true, Ordering::SeqCst);
    let mut primary = world.connect(RelayRepair::Auto, 0, 0);
    let group = primary.group(1, 100, true);
    primary.wait_for(group, &RelaySays::Kept);
    drop(primary);
    let other = RelayOffer { run: [7; 16], ..world.offer(RelayRepair::Auto) };
    let offer = || world.offer_to_relay(&primary_key(), &other).unwrap();
    assert!(matches!(offer(), RelayAnswer::Undelivered(1)));
    world.stub.is_away.store(false, Ordering::SeqCst);
    world.wait_for(group);
    let begin = Instant::now();
    while matches!(offer(), RelayAnswer::Undelivered(_)) {
        assert!(begin.elapsed() < PATIENCE, "the relay still has them");
        // Polled: threads of the relay and of the mirror decide it.
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_mirror_that_takes_nothing_is_apart_until_it_does() {
    let world = World::new(6);
    world.stub.is_away.store(true, Ordering::SeqCst);
    let primary = &mut world.connect(RelayRepair::Auto, 0, 0);
    let group = primary.group(1, 100, true);
    let (why, waited) = primary.wait_for_apart();
    assert!(why.contains("the disk is full"), "{why}");
    assert!(waited >= Duration::from_secs(2) && waited < Duration::from_secs(6), "{waited:?}");
    world.stub.is_away.store(false, Ordering::SeqCst);
    primary.wait_for(0, &RelaySays::Joined);
    primary.wait_for_safe(group);
}

/// Packets that leave the relay and have no answer count as sent for some seconds only.
#[test]
fn a_mirror_that_answers_nothing_is_apart_though_packets_leave() {
    let world = World::new(8);
    let primary = &mut world.connect(RelayRepair::Auto, 0, 0);
    let group = primary.group(1, 100, true);
    primary.wait_for_safe(group);
    world.stub.is_silent.store(true, Ordering::SeqCst);
    let begin = Instant::now();
    let group = primary.group(1, 100, true);
    primary.wait_for(group, &RelaySays::Sent);
    let (why, _) = primary.wait_for_apart();
    assert!(why.contains("takes nothing for 3 s"), "{why}");
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
    world.stub.is_silent.store(false, Ordering::SeqCst);
    primary.wait_for_safe(group);
}

#[test]
fn a_relay_says_whom_it_knows_and_a_mirror_that_was_promoted_gets_nothing() {
    let world = World::new(7);
    let stranger = key(9);
    let offer = world.offer(RelayRepair::Auto);
    let error = world.offer_to_relay(&stranger, &offer).err().unwrap();
    let advice = format!("`pelago key allow {} -V DIR`", stranger.public());
    assert!(error.to_string().contains(&advice), "{advice}");
    let offer = RelayOffer { reign: 2, ..offer };
    let offered = world.offer_to_relay(&primary_key(), &offer).map(ready).unwrap();
    let mut primary = world.begin(offered, 0, 0);
    primary.group(1, 10, true);
    primary.wait_for(9, &RelaySays::Replaced);
}

/// A relay that says what the mirror has not said.
#[test]
fn a_relay_cannot_speak_for_the_mirror() {
    let world = World::new(9);
    let offer = world.offer(RelayRepair::Off);
    let offered = world.offer_to_relay(&primary_key(), &offer).map(ready).unwrap();
    let mut primary = world.begin(offered, 0, 0);
    let group = primary.group(1, 10, true);
    primary.wait_for_safe(group);
    // For a primary with another key, the proofs of the mirror are as good as invented ones.
    let offered = world.offer_to_relay(&primary_key(), &offer).map(ready).unwrap();
    let liar = World { run_key: [0; 32], ..world };
    let primary = liar.begin(offered, group, 0);
    let ended = loop {
        match primary.reports.recv_timeout(PATIENCE).unwrap() {
            Ok(report) => assert!(!matches!(report.says, RelaySays::Safe(_))),
            Err(error) => break error,
        }
    };
    let says = ended.to_string();
    assert!(says.contains("has group 1, and the mirror has not proven it"), "{says}");
}
