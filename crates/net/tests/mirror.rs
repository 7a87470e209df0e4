//! Primaries and a server of mirrors over real sockets: groups, refusals and closings.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_net::clients::ClientRef;
use pelago_net::clients::file::edit;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::mirror::{MirrorConnection, MirrorServer};
use pelago_net::own_file::OwnFile;
use pelago_net::tls;
use pelago_wire::frame::{FrameKind, Header};
use pelago_wire::handshake::{Hello, RefusalCode};
use pelago_wire::mirror::{
    GroupPart, GroupState, Groups, LinkError, MirrorLink, MirrorSays, Mirrors, OfferRefused,
    PrimaryRun, Via,
};
use rustls::StreamOwned;

use crate::mirrors::{
    RUN, VOLUME, address, primary_key, server_key, start, state, until_none_is_open,
};
use crate::raw::{READ_TIMEOUT, RawClient, frame};

#[path = "harness/mirrors.rs"]
mod mirrors;
#[path = "harness/raw.rs"]
mod raw;

/// A mirror that records the parts that it gets, and answers each end of a group.
#[derive(Default)]
struct Stub {
    parts: Mutex<Vec<GroupPart>>,
    carried_out: AtomicUsize,
    open: AtomicUsize,
}

struct StubGroups {
    stub: Arc<Stub>,
    number: u64,
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
            1 => {
                self.0.open.fetch_add(1, Ordering::SeqCst);
                Ok(Box::new(StubGroups { stub: Arc::clone(&self.0), number: 0 }))
            }
            2 => Err(OfferRefused::NotPrimary(9)),
            _ => Err(OfferRefused::Failed("the disk is full".to_owned())),
        }
    }
}

impl Groups for StubGroups {
    fn ready(&self) -> GroupState {
        state(self.number, MirrorSays::Ready)
    }

    fn take(&mut self, body: &[u8]) -> Result<Option<GroupState>, String> {
        let part = GroupPart::decode(body).map_err(|error| error.to_string())?;
        self.stub.parts.lock().push(part.clone());
        match part {
            GroupPart::End { sum: 0 } => Err("no sum".to_owned()),
            GroupPart::End { sum: 1 } => Ok(Some(state(0, MirrorSays::Failed("full".to_owned())))),
            GroupPart::End { .. } => {
                self.number += 1;
                Ok(Some(state(self.number, MirrorSays::Safe)))
            }
            GroupPart::Ping => Ok(Some(state(self.number, MirrorSays::Pong))),
            _ => Ok(None),
        }
    }

    fn carry_out(&mut self) -> Result<(), String> {
        self.stub.carried_out.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

impl Drop for StubGroups {
    fn drop(&mut self) {
        self.stub.open.fetch_sub(1, Ordering::SeqCst);
    }
}

struct World {
    folder: tempfile::TempDir,
    stub: Arc<Stub>,
    server: MirrorServer,
}

impl World {
    fn new() -> Self {
        let stub = Arc::new(Stub::default());
        let mirrors = Arc::new(StubMirrors(Arc::clone(&stub)));
        let folder = tempfile::tempdir().unwrap();
        let server = start(folder.path(), "127.0.0.1:0".parse().unwrap(), mirrors);
        Self { folder, stub, server }
    }

    fn address(&self, key: &PrivateKey) -> ServerAddress {
        address(key, self.server.address().port())
    }

    fn connect(&self, reign: u64) -> Result<(MirrorConnection, GroupState), LinkError> {
        let address = self.address(&server_key());
        MirrorConnection::connect(&primary_key(), &address, VOLUME, reign, RUN)
    }

    /// Returns a client that sends single frames.
    fn raw(&self) -> RawClient<StreamOwned<rustls::ClientConnection, TcpStream>> {
        let config = tls::client_config(&primary_key(), server_key().public()).unwrap();
        let stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
        RawClient::new(StreamOwned::new(tls::client_connection(config).unwrap(), stream))
    }
}

fn hello() -> Hello {
    Hello { role: Hello::MIRROR, volume: Some(VOLUME), ..Hello::new([3; 16]) }
}

fn end(sum: u64) -> Vec<u8> {
    GroupPart::End { sum }.encode().unwrap()
}

#[test]
fn groups_arrive_as_they_were_sent_and_are_answered() {
    let world = World::new();
    let (mut link, ready) = world.connect(1).unwrap();
    assert_eq!(ready, state(0, MirrorSays::Ready));
    let bytes = |number: u8| GroupPart::Bytes { offset: 7, bytes: vec![number; 200 << 10] };
    let parts: Vec<_> = (0..20).map(bytes).collect();
    for part in &parts {
        link.send(&part.encode().unwrap()).unwrap();
    }
    link.send(&end(2)).unwrap();
    assert_eq!(link.receive().unwrap(), state(1, MirrorSays::Safe));
    assert_eq!(world.stub.parts.lock()[..20], parts);
    link.send(&GroupPart::Ping.encode().unwrap()).unwrap();
    assert_eq!(link.receive().unwrap(), state(1, MirrorSays::Pong));
    assert!(world.stub.carried_out.load(Ordering::SeqCst) >= 1);
    drop(link);
    until_none_is_open(&world.stub.open);
}

#[test]
fn a_primary_is_told_why_it_is_refused() {
    let world = World::new();
    assert_eq!(world.connect(2).unwrap_err(), LinkError::Replaced { reign: 9 });
    let full = LinkError::Lost("the disk is full".to_owned());
    assert_eq!(world.connect(3).unwrap_err(), full);
    let stranger = PrivateKey::from_seed([8; 32]);
    let address = world.address(&server_key());
    let refused = MirrorConnection::connect(&stranger, &address, VOLUME, 1, RUN).unwrap_err();
    let LinkError::Refused(text) = refused else { panic!("{refused}") };
    assert!(text.contains(&stranger.public().to_string()), "{text}");
    let other = world.address(&stranger);
    let refused = MirrorConnection::connect(&primary_key(), &other, VOLUME, 1, RUN).unwrap_err();
    assert!(matches!(refused, LinkError::Refused(_)), "{refused}");
    drop(world.server);
    let gone = MirrorConnection::connect(&primary_key(), &address, VOLUME, 1, RUN).unwrap_err();
    assert!(matches!(gone, LinkError::Lost(_)), "{gone}");
}

#[test]
fn a_client_of_a_volume_is_refused() {
    let world = World::new();
    for wrong in [Hello::new([3; 16]), Hello { volume: None, ..hello() }] {
        let mut raw = world.raw();
        raw.send(FrameKind::Hello, 0, &wrong.encode());
        let refused = raw.receive_refused();
        assert_eq!(refused.code, RefusalCode::NotServed);
        assert_eq!(refused.text, "this server keeps mirrors only");
    }
    let mut raw = world.raw();
    let newer = Hello { wire_min: u16::MAX, wire_max: u16::MAX, ..hello() };
    raw.send(FrameKind::Hello, 0, &newer.encode());
    assert_eq!(raw.receive_refused().code, RefusalCode::OtherVersion);
}

#[test]
fn what_is_no_part_of_a_group_ends_the_connection() {
    let world = World::new();
    let (mut link, _) = world.connect(1).unwrap();
    link.send(&end(0)).unwrap();
    let LinkError::Lost(why) = link.receive().unwrap_err() else { panic!("not lost") };
    assert!(why.contains("no sum"), "{why}");
    let (mut link, _) = world.connect(1).unwrap();
    link.send(&end(1)).unwrap();
    assert_eq!(link.receive().unwrap().says, MirrorSays::Failed("full".to_owned()));
    assert!(matches!(link.receive(), Err(LinkError::Lost(_))));
    let offer = GroupPart::Offer { reign: 1, run: RUN }.encode().unwrap();
    let mut too_long = Header::new(FrameKind::Group, u32::MAX, 0).encode().to_vec();
    too_long.push(0);
    let hello = frame(FrameKind::Hello, 0, &hello().encode());
    let offer = frame(FrameKind::Group, 0, &offer);
    for wrong in [
        vec![0; 64],
        [&hello[..], &too_long].concat(),
        [&hello[..], &frame(FrameKind::Ping, 0, &[])].concat(),
        [&hello[..], &offer, &too_long].concat(),
        [&hello[..], &offer, &frame(FrameKind::Goodbye, 0, &[])].concat(),
    ] {
        let mut raw = world.raw();
        raw.send_bytes(&wrong);
        let _until_the_end = raw.receive_rest();
    }
    // Another connection works.
    assert!(world.connect(1).is_ok());
}

#[test]
fn a_key_that_is_removed_ends_its_connection() {
    let world = World::new();
    let (mut link, _) = world.connect(1).unwrap();
    let file = OwnFile::of(&world.folder.path().join("clients")).unwrap();
    edit(&file, |clients| clients.remove(&ClientRef::Key(primary_key().public()))).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < deadline);
        let ping = link.send(&GroupPart::Ping.encode().unwrap());
        if ping.and_then(|()| link.receive()).is_err() {
            break;
        }
        // Polled: the server looks at its list with each message, at most twice a second.
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_server_that_stops_ends_its_connections() {
    let World { server, stub, .. } = World::new();
    let address = address(&server_key(), server.address().port());
    let (mut link, _) =
        MirrorConnection::connect(&primary_key(), &address, VOLUME, 1, RUN).unwrap();
    // A connection that says nothing.
    let _silent = TcpStream::connect(server.address()).unwrap();
    let begun = Instant::now();
    drop(server);
    assert!(begun.elapsed() < Duration::from_secs(10), "no end is waited for");
    assert_eq!(stub.open.load(Ordering::SeqCst), 0);
    assert!(matches!(link.receive(), Err(LinkError::Lost(_))));
}
