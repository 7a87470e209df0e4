//! Groups in datagrams over real sockets, through a forwarder that loses, delays, forges and
//! repeats them.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_net::clients::KeyName;
use pelago_net::clients::date::Date;
use pelago_net::clients::file::edit;
use pelago_net::clients::list::ClientList;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::mirror::{Datagrams, MirrorConnection, MirrorServer};
use pelago_net::own_file::OwnFile;
use pelago_proto::fec::RepairMode;
use pelago_wire::limits;
use pelago_wire::mirror::{
    GroupPart, GroupState, Groups, LinkError, MirrorLink, MirrorSays, Mirrors, OfferRefused,
    PrimaryRun, Via,
};

use crate::forwarder::Forwarder;

#[path = "harness/forwarder.rs"]
mod forwarder;

const RUN: PrimaryRun = [6; 16];
const VOLUME: [u8; 16] = [5; 16];
const PART: usize = 200 << 10;

/// A mirror that compares each part with the one that its number says was sent.
#[derive(Default)]
struct Stub {
    taken: AtomicU64,
    open: AtomicUsize,
    /// The time that it takes for each part, in microseconds.
    slowness: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

struct StubGroups {
    stub: Arc<Stub>,
    volume: [u8; 16],
    number: u64,
}

struct StubMirrors(Arc<Stub>);

impl Mirrors for StubMirrors {
    fn offer(
        &self,
        volume: [u8; 16],
        _reign: u64,
        _run: PrimaryRun,
        _via: Via,
    ) -> Result<Box<dyn Groups>, OfferRefused> {
        self.0.open.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(StubGroups { stub: Arc::clone(&self.0), volume, number: 0 }))
    }
}

fn state(number: u64, says: MirrorSays) -> GroupState {
    GroupState { reign: 1, run: RUN, number, says }
}

/// Returns the bytes of a part, which nothing else has.
fn content(volume: [u8; 16], offset: u64, length: usize) -> Vec<u8> {
    let mut state = (offset + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(volume[0]);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend((state >> 8).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

impl Groups for StubGroups {
    fn ready(&self) -> GroupState {
        state(self.number, MirrorSays::Ready)
    }

    fn take(&mut self, body: &[u8]) -> Result<Option<GroupState>, String> {
        let part = GroupPart::decode(body).map_err(|error| error.to_string())?;
        match part {
            GroupPart::Bytes { offset, bytes } => {
                if bytes != content(self.volume, offset, bytes.len()) {
                    self.stub.wrong.lock().push(format!("part {offset}"));
                }
                self.stub.taken.fetch_add(bytes.len() as u64, Ordering::SeqCst);
                let slowness = self.stub.slowness.load(Ordering::Relaxed);
                if slowness > 0 {
                    // The disk of the mirror.
                    thread::sleep(Duration::from_micros(slowness));
                }
                Ok(None)
            }
            GroupPart::End { sum } => {
                self.number += 1;
                if sum != self.number {
                    self.stub.wrong.lock().push(format!("end {sum} of group {}", self.number));
                }
                Ok(Some(state(self.number, MirrorSays::Safe)))
            }
            GroupPart::Ping => Ok(Some(state(self.number, MirrorSays::Pong))),
            other => Err(format!("{other:?}")),
        }
    }

    fn carry_out(&mut self) -> Result<(), String> {
        Ok(())
    }
}

impl Drop for StubGroups {
    fn drop(&mut self) {
        self.stub.open.fetch_sub(1, Ordering::SeqCst);
    }
}

struct World {
    _folder: tempfile::TempDir,
    stub: Arc<Stub>,
    server: MirrorServer,
    forwarder: Forwarder,
    datagrams: Datagrams,
}

fn server_key() -> PrivateKey {
    PrivateKey::from_seed([1; 32])
}

fn primary_key() -> PrivateKey {
    PrivateKey::from_seed([2; 32])
}

impl World {
    fn new(seed: u64) -> Self {
        loop {
            let world = Self::at("127.0.0.1:0".parse().unwrap(), seed);
            // Another test may have the UDP port of this number.
            if world.has_port() {
                return world;
            }
        }
    }

    /// Returns whether the server has a UDP port.
    fn has_port(&self) -> bool {
        self.connect_volume(VOLUME).is_ok_and(|connection| connection.has_datagrams())
    }

    fn at(address: SocketAddr, seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = || OwnFile::of(&folder.path().join("clients")).unwrap();
        let key = primary_key().public();
        edit(&file(), |clients| clients.allow(key, None::<KeyName>, Date::today())).unwrap();
        let clients = Arc::new(ClientList::open(file()).unwrap());
        let stub = Arc::new(Stub::default());
        let mirrors = Arc::new(StubMirrors(Arc::clone(&stub)));
        let server = MirrorServer::start(address, &server_key(), clients, mirrors).unwrap();
        let forwarder = Forwarder::start(server.address().port(), seed);
        let datagrams = Datagrams::new(RepairMode::Auto);
        Self { _folder: folder, stub, server, forwarder, datagrams }
    }

    fn connect_volume(&self, volume: [u8; 16]) -> Result<MirrorConnection, LinkError> {
        let port = self.forwarder.port;
        let address = ServerAddress::new(server_key().public(), "127.0.0.1", port).unwrap();
        let key = primary_key();
        let datagrams = &self.datagrams;
        let connected =
            MirrorConnection::connect_with_datagrams(&key, &address, volume, 1, RUN, datagrams);
        connected.map(|(connection, ready)| {
            assert_eq!(ready, state(0, MirrorSays::Ready));
            connection
        })
    }

    fn connect(&self) -> MirrorConnection {
        let connection = self.connect_volume(VOLUME).unwrap();
        assert!(connection.has_datagrams());
        connection
    }

    /// Checks that all that arrived was right.
    fn check(&self) {
        assert_eq!(*self.stub.wrong.lock(), Vec::<String>::new());
    }
}

/// A primary that sends groups.
struct Primary {
    link: MirrorConnection,
    volume: [u8; 16],
    offset: u64,
    number: u64,
}

impl Primary {
    fn new(link: MirrorConnection, volume: [u8; 16]) -> Self {
        Self { link, volume, offset: 0, number: 0 }
    }

    fn part(&mut self, length: usize) -> Result<(), LinkError> {
        let bytes = content(self.volume, self.offset, length);
        let part = GroupPart::Bytes { offset: self.offset, bytes };
        self.offset += length as u64;
        self.link.send(&part.encode().unwrap())
    }

    /// Sends a group of so many bytes, and waits until it is safe. Returns how long that took.
    fn group(&mut self, bytes: usize) -> Result<Duration, LinkError> {
        let begun = Instant::now();
        let mut left = bytes;
        while left > 0 {
            let length = left.min(PART);
            self.part(length)?;
            left -= length;
        }
        self.number += 1;
        self.link.send(&GroupPart::End { sum: self.number }.encode().unwrap())?;
        let answer = self.link.receive()?;
        assert_eq!(answer, state(self.number, MirrorSays::Safe));
        Ok(begun.elapsed())
    }

    fn ping(&mut self) -> Result<(), LinkError> {
        self.link.send(&GroupPart::Ping.encode().unwrap())?;
        assert_eq!(self.link.receive()?, state(self.number, MirrorSays::Pong));
        Ok(())
    }
}

/// Sends groups of several sizes over a path.
fn exchange(world: &World) {
    let mut primary = Primary::new(world.connect(), VOLUME);
    for bytes in [1, 4096, 1152, 3 << 20, 100, 700 << 10] {
        primary.group(bytes).unwrap();
        primary.ping().unwrap();
    }
    for _ in 0..50 {
        primary.group(4096).unwrap();
    }
    assert_eq!(world.stub.taken.load(Ordering::SeqCst), primary.offset);
    world.check();
}

#[test]
fn groups_arrive_as_they_were_sent() {
    exchange(&World::new(1));
}

#[test]
fn groups_arrive_over_a_link_that_loses_one_of_a_hundred() {
    let world = World::new(2);
    world.forwarder.path.lost.store(10_000, Ordering::Relaxed);
    world.forwarder.path.delay.store(2_000, Ordering::Relaxed);
    exchange(&world);
}

#[test]
fn groups_arrive_over_a_link_that_loses_one_of_twenty() {
    let world = World::new(3);
    world.forwarder.path.lost.store(50_000, Ordering::Relaxed);
    exchange(&world);
}

#[test]
fn groups_arrive_over_a_link_with_bursts() {
    let world = World::new(4);
    world.forwarder.path.lost.store(1_000, Ordering::Relaxed);
    world.forwarder.path.run.store(12, Ordering::Relaxed);
    world.forwarder.path.delay.store(1_000, Ordering::Relaxed);
    exchange(&world);
}

#[test]
fn groups_arrive_late_twice_and_in_another_order() {
    let world = World::new(5);
    world.forwarder.path.delay.store(3_000, Ordering::Relaxed);
    world.forwarder.path.jitter.store(3_000, Ordering::Relaxed);
    world.forwarder.path.twice.store(200_000, Ordering::Relaxed);
    world.forwarder.path.lost.store(5_000, Ordering::Relaxed);
    exchange(&world);
}

/// The code repairs up to 16 of a block; 20 in a row at the end of a group are sent again.
#[test]
fn twenty_lost_packets_are_sent_again() {
    let world = World::new(6);
    let mut primary = Primary::new(world.connect(), VOLUME);
    primary.group(1 << 20).unwrap();
    for _ in 0..5 {
        world.forwarder.path.burst.store(20, Ordering::Relaxed);
        let time = primary.group(40 << 10).unwrap();
        assert!(time < Duration::from_secs(1), "{time:?}");
        world.forwarder.path.burst.store(20, Ordering::Relaxed);
        primary.group(2 << 20).unwrap();
    }
    assert!(world.datagrams.status().unwrap().again > 0);
    world.check();
}

#[test]
fn what_is_forged_repeated_or_strange_changes_nothing() {
    let world = World::new(7);
    world.forwarder.path.forged.store(300_000, Ordering::Relaxed);
    world.forwarder.path.twice.store(500_000, Ordering::Relaxed);
    world.forwarder.path.delay.store(500, Ordering::Relaxed);
    world.forwarder.path.jitter.store(5_000, Ordering::Relaxed);
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let to = world.server.address();
    let stranger = thread::Builder::new().spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut sent = 0_u64;
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let length = sent as usize * 37 % 1400;
            let mut bytes = content([9; 16], sent, length);
            // The numbers are those that come next.
            if let Some(number) = bytes.first_chunk_mut() {
                *number = (sent / 4).to_le_bytes();
            }
            let _lost_if_it_fails = socket.send_to(&bytes, to);
            sent += 1;
            // Not all of the processor.
            thread::sleep(Duration::from_micros(50));
        }
    });
    exchange(&world);
    drop(stop);
    stranger.unwrap().join().unwrap();
}

#[test]
fn a_blocked_port_is_said_and_the_next_connection_works() {
    let world = World::new(8);
    world.forwarder.path.is_blocked.store(true, Ordering::Relaxed);
    let mut primary = Primary::new(world.connect(), VOLUME);
    let begun = Instant::now();
    let LinkError::Lost(why) = primary.group(4096).unwrap_err() else { panic!("not lost") };
    assert!(why.contains("UDP to port") && why.contains("blocked"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert!(primary.group(4096).is_err(), "the connection has ended");
    let link = world.connect_volume(VOLUME).unwrap();
    assert!(!link.has_datagrams());
    let mut primary = Primary::new(link, VOLUME);
    primary.group(1 << 20).unwrap();
    primary.ping().unwrap();
    assert!(!world.datagrams.are_tried());
    world.check();
}

#[test]
fn a_port_that_is_blocked_later_ends_the_connection() {
    let world = World::new(9);
    let mut primary = Primary::new(world.connect(), VOLUME);
    primary.group(1 << 20).unwrap();
    // Nothing is under way, so nothing is missed.
    thread::sleep(Duration::from_secs(4));
    primary.ping().unwrap();
    world.forwarder.path.is_blocked.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    // More than is kept: the thread that sends waits for room, and is told.
    let LinkError::Lost(why) = primary.group(40 << 20).unwrap_err() else { panic!("not lost") };
    assert!(why.contains("blocked"), "{why}");
    let time = begun.elapsed();
    assert!((2..6).contains(&time.as_secs()), "{time:?}");
    // The link may have been cut, and is not any more. The next connection finds out.
    let mut primary = Primary::new(world.connect(), VOLUME);
    let LinkError::Lost(why) = primary.group(4096).unwrap_err() else { panic!("not lost") };
    assert!(why.contains("blocked"), "{why}");
    assert!(!world.connect_volume(VOLUME).unwrap().has_datagrams());
}

/// A disk of the mirror that stops for seconds is no silence of the link.
#[test]
fn a_disk_that_stops_for_seconds_ends_nothing() {
    let world = World::new(19);
    let mut primary = Primary::new(world.connect(), VOLUME);
    primary.group(4096).unwrap();
    world.stub.slowness.store(5_000_000, Ordering::Relaxed);
    let stub = Arc::clone(&world.stub);
    let goes_on = thread::Builder::new().spawn(move || {
        thread::sleep(Duration::from_millis(500));
        stub.slowness.store(0, Ordering::Relaxed);
    });
    let time = primary.group(40 << 20).unwrap();
    assert!(time >= Duration::from_secs(5), "{time:?}");
    goes_on.unwrap().join().unwrap();
    world.check();
}

/// A thread that ends the connection of another one does not wait for a mirror.
#[test]
fn a_link_that_is_closed_wakes_its_writer() {
    let world = World::new(17);
    world.stub.slowness.store(2_000_000, Ordering::Relaxed);
    let mut primary = Primary::new(world.connect(), VOLUME);
    let close = primary.link.closer();
    let closes = thread::Builder::new().spawn(move || {
        thread::sleep(Duration::from_millis(500));
        close();
    });
    let begun = Instant::now();
    let error = primary.group(64 << 20).unwrap_err();
    assert!(matches!(error, LinkError::Lost(_)), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(world.datagrams.are_tried(), "the datagrams are not at fault");
    closes.unwrap().join().unwrap();
}

/// What a mirror says before it ends the connection is heard, though it is not waited for.
#[test]
fn the_reason_of_the_mirror_is_heard() {
    let world = World::new(18);
    let mut primary = Primary::new(world.connect(), VOLUME);
    primary.group(4096).unwrap();
    primary.link.send(&GroupPart::Abort.encode().unwrap()).unwrap();
    let LinkError::Lost(why) = primary.link.receive().unwrap_err() else { panic!("not lost") };
    assert!(why.contains("Abort"), "{why}");
}

#[test]
fn a_short_pause_of_the_link_ends_nothing() {
    let world = World::new(10);
    let mut primary = Primary::new(world.connect(), VOLUME);
    primary.group(1 << 20).unwrap();
    world.forwarder.path.is_blocked.store(true, Ordering::Relaxed);
    let path = Arc::clone(&world.forwarder.path);
    let opens = thread::Builder::new().spawn(move || {
        thread::sleep(Duration::from_millis(1500));
        path.is_blocked.store(false, Ordering::Relaxed);
    });
    primary.group(4 << 20).unwrap();
    opens.unwrap().join().unwrap();
    primary.group(4096).unwrap();
    world.check();
}

#[test]
fn a_mirror_without_a_udp_port_gets_groups_by_tls() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let world = World::at(taken.local_addr().unwrap(), 11);
    let link = world.connect_volume(VOLUME).unwrap();
    assert!(!link.has_datagrams());
    let mut primary = Primary::new(link, VOLUME);
    primary.group(1 << 20).unwrap();
    assert!(world.connect_volume(VOLUME).is_ok());
    world.check();
}

#[test]
fn a_mirror_that_is_killed_ends_the_connection() {
    let world = World::new(12);
    let mut primary = Primary::new(world.connect(), VOLUME);
    primary.group(1 << 20).unwrap();
    let World { server, stub, datagrams, .. } = world;
    let kills = thread::Builder::new().spawn(move || {
        thread::sleep(Duration::from_millis(200));
        drop(server);
    });
    let begun = Instant::now();
    let error = (0..1000).find_map(|_| primary.group(1 << 20).err()).unwrap();
    assert!(matches!(error, LinkError::Lost(_)), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert!(datagrams.are_tried(), "the datagrams are not at fault");
    kills.unwrap().join().unwrap();
    assert_eq!(stub.open.load(Ordering::SeqCst), 0);
}

#[test]
fn a_primary_that_goes_ends_the_groups_of_its_connection() {
    let world = World::new(13);
    let mut primary = Primary::new(world.connect(), VOLUME);
    primary.group(1 << 20).unwrap();
    primary.part(PART).unwrap();
    drop(primary);
    let deadline = Instant::now() + Duration::from_secs(30);
    while world.stub.open.load(Ordering::SeqCst) > 0 {
        assert!(Instant::now() < deadline, "the groups of a connection end with it");
        // Polled: nothing says when the thread of the connection has dropped the groups.
        thread::sleep(Duration::from_millis(10));
    }
    exchange_after(&world);
}

/// Sends a group over a new connection.
fn exchange_after(world: &World) {
    let mut primary = Primary::new(world.connect(), VOLUME);
    primary.group(1 << 20).unwrap();
    world.check();
}

#[test]
fn a_large_group_arrives() {
    let world = World::new(14);
    world.forwarder.path.lost.store(2_000, Ordering::Relaxed);
    world.forwarder.path.delay.store(1_000, Ordering::Relaxed);
    let mut primary = Primary::new(world.connect(), VOLUME);
    primary.group(64 << 20).unwrap();
    assert_eq!(world.stub.taken.load(Ordering::SeqCst), 64 << 20);
    world.check();
}

#[test]
fn two_primaries_have_streams_of_their_own() {
    let world = Arc::new(World::new(15));
    world.forwarder.path.lost.store(10_000, Ordering::Relaxed);
    let threads: Vec<_> = [[1; 16], [2; 16]]
        .into_iter()
        .map(|volume| {
            let world = Arc::clone(&world);
            let primary = thread::Builder::new().spawn(move || {
                let link = world.connect_volume(volume).unwrap();
                assert!(link.has_datagrams());
                let mut primary = Primary::new(link, volume);
                for _ in 0..8 {
                    primary.group(1 << 20).unwrap();
                    primary.group(4096).unwrap();
                }
            });
            primary.unwrap()
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    world.check();
}

/// The buffers of both ends are bounded: whoever writes a group waits for the mirror's disk.
#[test]
fn a_slow_mirror_holds_its_primary_up() {
    let world = World::new(16);
    world.stub.slowness.store(15_000, Ordering::Relaxed);
    let mut primary = Primary::new(world.connect(), VOLUME);
    let most = limits::STREAM_UNSENT_BYTES + limits::STREAM_KEPT_BYTES + limits::STREAM_READY_BYTES;
    let mut greatest = 0;
    while primary.offset < 64 << 20 {
        primary.part(PART).unwrap();
        let taken = world.stub.taken.load(Ordering::SeqCst);
        greatest = greatest.max(primary.offset - taken);
    }
    assert!(greatest <= (most + 4 * PART) as u64, "{greatest} of {most}");
    world.stub.slowness.store(0, Ordering::Relaxed);
    primary.group(1).unwrap();
    world.check();
}
