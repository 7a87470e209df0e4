//! Groups in datagrams over real sockets, through a forwarder that loses, delays, forges and
//! repeats them.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use pelago_wire::limits;
use pelago_wire::mirror::{GroupPart, LinkError, MirrorLink as _};

use crate::datagrams::{PART, Primary, World, content};
use crate::mirrors::{VOLUME, until_none_is_open};

#[path = "harness/datagrams.rs"]
mod datagrams;
#[path = "harness/forwarder.rs"]
mod forwarder;
#[path = "harness/mirrors.rs"]
mod mirrors;

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

/// A path with a small MTU that drops what is longer, and says nothing.
#[test]
fn a_path_that_drops_long_datagrams_is_said_and_the_next_connection_works() {
    let world = World::new(20);
    world.forwarder.path.longest.store(1_000, Ordering::Relaxed);
    let mut primary = Primary::new(world.connect(), VOLUME);
    primary.group(100).unwrap();
    let begun = Instant::now();
    let LinkError::Lost(why) = primary.group(1 << 20).unwrap_err() else { panic!("not lost") };
    assert!(why.contains("MTU"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    let link = world.connect_volume(VOLUME).unwrap();
    assert!(!link.has_datagrams());
    let mut primary = Primary::new(link, VOLUME);
    primary.group(1 << 20).unwrap();
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
    // The mirror takes what it has, which is no part of the test.
    world.stub.slowness.store(0, Ordering::Relaxed);
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
    until_none_is_open(&world.stub.open);
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
