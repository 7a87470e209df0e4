//! Bad peers as fast as they go: garbage on every socket and on every layer, sessions that begin
//! and are left, and silent connections by the thousand.
//!
//! The short form takes a few seconds; `cargo xtask strangers` runs the long one.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::tls;
use pelago_random::bytes_of;
use pelago_wire::codec::CLIENT_BODY_BYTES;
use pelago_wire::frame::{FrameKind, Header};
use pelago_wire::handshake::{Hello, RefusalCode, Refused};
use pelago_wire::limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::far::good::{round_trip, with_a_good_mount};
use crate::far::peer::{Peer, hello, tcp};
use crate::far::world::World;
use crate::harness::program::run;

/// The duration of the test, and the number of silent connections.
struct Form {
    seconds: u64,
    silent: usize,
}

impl Form {
    fn wanted() -> Self {
        match std::env::var("PELAGO_STRANGERS_SECONDS") {
            Ok(seconds) => Self { seconds: seconds.parse().unwrap(), silent: 10_000 },
            Err(_) => Self { seconds: 3, silent: 2000 },
        }
    }
}

/// The resources of the server's process.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    /// Resident bytes.
    memory: u64,
    /// Those without the caches and tables that have limits of their own: each session that begins
    /// writes a row, as every change does.
    uncached: u64,
    descriptors: usize,
    log_lines: usize,
}

impl Usage {
    fn of(world: &World) -> Self {
        let pid = world.volume.pid().unwrap().as_raw_nonzero();
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        let log = fs::read(world.volume.dir.join("log")).unwrap();
        let log_lines = log.iter().filter(|byte| **byte == b'\n').count();
        let status = world.status();
        let caches = status["memory"].as_array().unwrap();
        let cached: u64 = caches.iter().map(|cache| cache["used"].as_u64().unwrap()).sum();
        let memory = world.memory();
        Self { memory, uncached: memory.saturating_sub(cached), descriptors, log_lines }
    }
}

/// Lines a second that clients can cause: one of each kind, and one that counts what was left out.
const LOG_KINDS: usize = 2 * 10;

#[test]
fn strangers_take_no_memory_no_descriptors_no_log_and_no_service() {
    let form = Form::wanted();
    raise_descriptors();
    with_a_good_mount(|world| {
        let before = Usage::of(world);
        let start = Instant::now();
        let stop = AtomicBool::new(false);
        let (most, mounts, done) = thread::scope(|scope| {
            let crowd = Crowd { world, stop: &stop };
            let bad = crowd.start(scope);
            let silent = scope.spawn(|| silent(world, form.silent));
            let until = start + Duration::from_secs(form.seconds);
            let guard = StopAtEnd(&stop);
            let mut most = before;
            let mut mounts = Vec::new();
            while Instant::now() < until || mounts.len() < 2 {
                mounts.push(mount_anew(world, mounts.len()));
                let now = Usage::of(world);
                most.memory = most.memory.max(now.memory);
                most.uncached = most.uncached.max(now.uncached);
                most.descriptors = most.descriptors.max(now.descriptors);
            }
            drop(guard);
            silent.join().unwrap();
            (most, mounts, bad.map(|bad| bad.join().unwrap()))
        });
        let seconds = start.elapsed().as_secs() as usize + 1;
        let lines = Usage::of(world).log_lines - before.log_lines;
        println!(
            "{seconds} s, {} silent connections; bad peers of each kind: {done:?}",
            form.silent
        );
        println!("before {before:?}, most {most:?}, {lines} lines of the log");
        println!("a new mount after {mounts:?}");
        assert!(done.iter().all(|count| *count > 0));
        assert!(most.uncached < before.uncached + (32 << 20), "{before:?}, {most:?}");
        let connections = 2 * limits::STRANGERS + 3 * limits::PEER_SESSIONS;
        assert!(most.descriptors < before.descriptors + connections + 100, "{before:?}, {most:?}");
        assert!(lines < LOG_KINDS * seconds, "{lines} lines in {seconds} s");
    });
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn raise_descriptors() {
    let now = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: now.maximum, maximum: now.maximum };
    setrlimit(Resource::Nofile, raised).unwrap();
}

/// Mounts by one of the sockets, with one attempt, and uses that. Returns how long that took.
fn mount_anew(world: &World, number: usize) -> Duration {
    let start = Instant::now();
    let socket = world.socket();
    let server = if number.is_multiple_of(2) { socket.to_str().unwrap() } else { &world.address };
    run(&mut world.mount_command(server, "late", &[])).expect_success();
    let late = world.volume.root.join("late");
    round_trip(&late, 0);
    let took = start.elapsed();
    world.pelago(&["unmount", late.to_str().unwrap()]).expect_success();
    took
}

/// Connects as fast as it goes, half to each socket, and says nothing. Each connection must be told
/// why it ends, or just end.
fn silent(world: &World, count: usize) {
    let mut unix = Vec::new();
    let mut far = Vec::new();
    for _ in 0..count / 2 {
        unix.push(Peer::unix(&world.socket()));
        far.push(tcp(world.tcp()));
    }
    for mut peer in unix {
        if let Some(heard) = peer.hear() {
            assert_eq!(heard.header.kind, FrameKind::Refused);
            let refused = Refused::decode(&heard.body).unwrap();
            assert_eq!(refused.code, RefusalCode::TooManyStrangers);
            peer.hear_end();
        }
    }
    for mut stream in far {
        let mut rest = Vec::new();
        // An alert of TLS at most. A reset is an end too.
        let _end = stream.read_to_end(&mut rest);
        assert!(rest.len() < 100, "{rest:?}");
    }
}

/// Peers of each kind of badness; each is a thread that does it again and again.
#[derive(Clone, Copy)]
struct Crowd<'a> {
    world: &'a World,
    stop: &'a AtomicBool,
}

type Bad<'scope> = thread::ScopedJoinHandle<'scope, u64>;

impl<'a> Crowd<'a> {
    fn start<'scope>(self, scope: &'scope thread::Scope<'scope, 'a>) -> [Bad<'scope>; 6] {
        let listed = PrivateKey::from_seed([5; 32]);
        self.world.allow(&listed.public().to_string());
        let unlisted = PrivateKey::from_seed([6; 32]);
        let garbage = bytes_of(11, 1 << 20);
        let more = garbage.clone();
        let most = garbage.clone();
        [
            self.repeat(scope, move |world| {
                let _closed = Peer::unix(&world.socket()).send(&garbage);
            }),
            self.repeat(scope, move |world| {
                let _closed = Peer::tcp(world.tcp()).send(&more);
            }),
            self.repeat(scope, move |world| inside_tls(world, &listed)),
            self.repeat(scope, move |world| inside_tls(world, &unlisted)),
            self.repeat(scope, move |world| endless_frame(world, &most)),
            self.repeat(scope, hello_and_leave),
        ]
    }

    fn repeat<'scope>(
        self,
        scope: &'scope thread::Scope<'scope, 'a>,
        mut be_bad: impl FnMut(&World) + Send + 'scope,
    ) -> Bad<'scope>
    where
        'a: 'scope,
    {
        scope.spawn(move || {
            let mut count = 0;
            while !self.stop.load(Ordering::Relaxed) {
                be_bad(self.world);
                count += 1;
            }
            count
        })
    }
}

/// Returns a nonce that no other client has.
fn nonce() -> [u8; 16] {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut nonce = [0xaa; 16];
    nonce[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    nonce
}

/// Begins a session. Returns whether there is one: the connection may have made room meanwhile.
fn begin(peer: &mut Peer) -> bool {
    let hello = Hello { nonce: nonce(), ..hello() }.encode();
    let header = Header::new(FrameKind::Hello, hello.len() as u32, 0).encode();
    peer.send(&[&header[..], &hello].concat()).is_ok()
        && peer.hear().is_some_and(|heard| heard.header.kind == FrameKind::Welcome)
}

fn hello_and_leave(world: &World) {
    begin(&mut Peer::unix(&world.socket()));
}

/// Begins a session, and then a frame that is not over before the connection is closed.
fn endless_frame(world: &World, garbage: &[u8]) {
    let mut peer = Peer::unix(&world.socket());
    if !begin(&mut peer) {
        return;
    }
    let body = CLIENT_BODY_BYTES as u32;
    let bulk = limits::FRAME_BULK_BYTES as u32;
    let kind = FrameKind::Request;
    let header = Header { body, bulk, kind, is_overdue: false, number: 1, progress: 0 }.encode();
    let _closed = peer.send(&header).and_then(|()| peer.send(garbage));
}

/// Ends the handshake of TLS with this key, and sends garbage.
fn inside_tls(world: &World, key: &PrivateKey) {
    let address: ServerAddress = world.address.parse().unwrap();
    let config = tls::client_config(key, address.key()).unwrap();
    let mut connection = tls::client_connection(config).unwrap();
    let mut socket: TcpStream = tcp(world.tcp());
    // The server may end it at any point.
    if connection.complete_io(&mut socket).is_ok() {
        connection.writer().write_all(&bytes_of(12, 10_000)).unwrap();
        while connection.complete_io(&mut socket).is_ok_and(|moved| moved != (0, 0)) {}
    }
}
