//! Groups in datagrams: a mirror that knows each byte that it must get, and a primary that sends
//! them through a forwarder.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_net::mirror::{Datagrams, MirrorConnection, MirrorServer};
use pelago_proto::fec::RepairMode;
use pelago_wire::mirror::{
    GroupPart, GroupState, Groups, LinkError, MirrorLink as _, MirrorSays, Mirrors, OfferRefused,
    PrimaryRun, Via,
};

use crate::forwarder::Forwarder;
use crate::mirrors::{RUN, VOLUME, address, primary_key, server_key, start, state};

/// Bytes of the longest part.
pub(crate) const PART: usize = 200 << 10;

/// A mirror that compares each part with the one that its number says was sent.
#[derive(Default)]
pub(crate) struct Stub {
    pub(crate) taken: AtomicU64,
    pub(crate) open: AtomicUsize,
    /// The time that it takes for each part, in microseconds.
    pub(crate) slowness: AtomicU64,
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

/// Returns the bytes of a part, which nothing else has.
pub(crate) fn content(volume: [u8; 16], offset: u64, length: usize) -> Vec<u8> {
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

pub(crate) struct World {
    pub(crate) stub: Arc<Stub>,
    pub(crate) server: MirrorServer,
    _folder: tempfile::TempDir,
    pub(crate) forwarder: Forwarder,
    pub(crate) datagrams: Datagrams,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
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

    pub(crate) fn at(address: SocketAddr, seed: u64) -> Self {
        let stub = Arc::new(Stub::default());
        let mirrors = Arc::new(StubMirrors(Arc::clone(&stub)));
        let folder = tempfile::tempdir().unwrap();
        let server = start(folder.path(), address, mirrors);
        let forwarder = Forwarder::start(server.address().port(), seed);
        let datagrams = Datagrams::new(RepairMode::Auto);
        Self { stub, server, forwarder, datagrams, _folder: folder }
    }

    pub(crate) fn connect_volume(&self, volume: [u8; 16]) -> Result<MirrorConnection, LinkError> {
        let address = address(&server_key(), self.forwarder.port);
        let key = primary_key();
        let datagrams = &self.datagrams;
        let connected =
            MirrorConnection::connect_with_datagrams(&key, &address, volume, 1, RUN, datagrams);
        connected.map(|(connection, ready)| {
            assert_eq!(ready, state(0, MirrorSays::Ready));
            connection
        })
    }

    pub(crate) fn connect(&self) -> MirrorConnection {
        let connection = self.connect_volume(VOLUME).unwrap();
        assert!(connection.has_datagrams());
        connection
    }

    /// Checks that all that arrived was right.
    pub(crate) fn check(&self) {
        assert_eq!(*self.stub.wrong.lock(), Vec::<String>::new());
    }
}

/// A primary that sends groups.
pub(crate) struct Primary {
    pub(crate) link: MirrorConnection,
    volume: [u8; 16],
    pub(crate) offset: u64,
    number: u64,
}

impl Primary {
    pub(crate) fn new(link: MirrorConnection, volume: [u8; 16]) -> Self {
        Self { link, volume, offset: 0, number: 0 }
    }

    pub(crate) fn part(&mut self, length: usize) -> Result<(), LinkError> {
        let bytes = content(self.volume, self.offset, length);
        let part = GroupPart::Bytes { offset: self.offset, bytes };
        self.offset += length as u64;
        self.link.send(&part.encode().unwrap())
    }

    /// Sends a group of so many bytes, and waits until it is safe. Returns how long that took.
    pub(crate) fn group(&mut self, bytes: usize) -> Result<Duration, LinkError> {
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

    pub(crate) fn ping(&mut self) -> Result<(), LinkError> {
        self.link.send(&GroupPart::Ping.encode().unwrap())?;
        assert_eq!(self.link.receive()?, state(self.number, MirrorSays::Pong));
        Ok(())
    }
}
