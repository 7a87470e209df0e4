//! Measures the decisions about a guest's requests: `cargo run --release -p pelago-server
//! --example decisions`.
//!
//! A decision is not a request, so a figure is a difference. A decision that is cached: a request
//! that is answered as soon as it is decided, less one that is refused without a question; it has
//! the search of the node's directory in it. A first decision: what the first request about a
//! directory takes longer than the second one.
#![expect(clippy::unwrap_used, reason = "it ends at what it did not expect")]

use std::fs;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use pelago_keynote::{Credential, Grant, Principal, Right, policy};
use pelago_net::key::PrivateKey;
use pelago_server::{Options, Server};
use pelago_wire::{
    Bulk, Code, Context, Done, GuestGrant, Handle, InodeId, Name, NewMode, RecordedPeer, Reply,
    Request, RequestId, SessionId, SessionRecord,
};
use rustix::time::{ClockId, clock_gettime};

/// The depth of the directories that are asked for, below the root.
const DEPTH: u32 = 10;
/// Their number.
const DIRECTORIES: u32 = 1000;
/// Repetitions of each measurement.
const ROUNDS: usize = 31;
/// Requests of one repetition about the same node.
const REQUESTS: u32 = 10_000;
/// Credentials of a long chain.
const LINKS: u8 = 5;
/// The key of the root, which signs the first credential; the next ones have the next numbers.
const ROOT: u8 = 1;

/// A server of a volume with a root.
struct World {
    server: Server,
    volume: [u8; 16],
    /// The directory that is shared.
    shared: Handle,
    /// Directories of the last depth.
    directories: Vec<Handle>,
    folder: tempfile::TempDir,
}

fn key(number: u8) -> PrivateKey {
    PrivateKey::from_seed([number; 32])
}

fn principal(number: u8) -> Principal {
    Principal(*key(number).public().as_bytes())
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("volume");
        let options = Options { grace: Duration::ZERO, ..Options::default() };
        let server = Server::start(&dir, options).unwrap();
        let volume = server.session_service().served().volume;
        fs::write(dir.join("policy"), policy(&[principal(ROOT)], &[]).unwrap()).unwrap();
        let shared = Handle::ROOT;
        let mut world = Self { server, volume, shared, directories: Vec::new(), folder };
        let mut above = Handle::ROOT;
        for depth in 1..DEPTH {
            above = world.make_dir(above, &format!("depth{depth}"));
            if depth == 1 {
                world.shared = above;
            }
        }
        let last = (0..DIRECTORIES).map(|number| world.make_dir(above, &format!("d{number}")));
        world.directories = last.collect();
        world
    }

    fn make_dir(&self, dir: Handle, name: &str) -> Handle {
        let name = Name::new(name.as_bytes()).unwrap();
        let request = Request::MakeDir { dir, name, mode: NewMode::exactly(0o755) };
        match self.ask(SessionId::DIRECT, request).unwrap() {
            Reply::Entry(entry) => entry.handle,
            other => panic!("{other:?}"),
        }
    }

    /// Asks, and returns the reply, which comes at once for what is asked here.
    fn ask(&self, session: SessionId, request: Request) -> Result<Reply, Code> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let who = Context { session, request: RequestId(number), ..Context::direct(0, 0) };
        let mut later = || -> Done { panic!("a reply that comes later") };
        let reply = self.server.service().ask(&who, request, Bulk::None, &mut later).unwrap();
        reply.map_err(|error| error.code)
    }

    /// Returns a chain of credentials from the root. `edge` makes it another one: the directory of
    /// its last link.
    fn chain(&self, links: u8, edge: InodeId) -> Vec<Vec<u8>> {
        let link = |number: u8| {
            let is_last = number == ROOT + links - 1;
            let directory = if is_last { edge } else { self.shared.ino };
            let mut share = Grant::to_read(self.volume, directory.raw());
            if !is_last {
                share.rights = share.rights.with(Right::Grant);
            }
            let licensee = principal(number + 1);
            let credential = Credential { comment: &[], licensee, conditions: &share.conditions() };
            credential.sign(&key(number).signing_key()).unwrap().into_bytes()
        };
        (ROOT..ROOT + links).map(link).collect()
    }

    fn admit(&self, chain: &[Vec<u8>]) -> GuestGrant {
        let guest = principal(ROOT + u8::try_from(chain.len()).unwrap());
        self.server.session_service().admit_guest(&guest.0, chain, None).unwrap()
    }

    /// Begins a new session of a guest, for which nothing is decided yet.
    fn begin(&self, grant: &GuestGrant) -> SessionId {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let service = self.server.session_service();
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let session = SessionId::new(service.served().epoch, number);
        let record = SessionRecord::new([1; 16], RecordedPeer::Guest(grant.principal));
        service.begin_guest(session, grant, &record).unwrap();
        session
    }

    /// Returns the time of a request, in nanoseconds.
    fn request(&self, session: SessionId, request: &Request) -> f64 {
        let requests = vec![request.clone(); REQUESTS as usize];
        let begin = now();
        for request in requests {
            let _reply = black_box(self.ask(session, black_box(request)));
        }
        nanos(begin) / f64::from(REQUESTS)
    }

    /// Returns the time of a request about each directory, in nanoseconds.
    fn round(&self, session: SessionId) -> f64 {
        let begin = now();
        for node in &self.directories {
            assert_eq!(self.ask(session, only_decided(*node)).unwrap_err(), Code::NoXattr);
        }
        nanos(begin) / f64::from(DIRECTORIES)
    }
}

/// Returns a request that is answered as soon as it is decided.
fn only_decided(node: Handle) -> Request {
    Request::GetXattr { node, name: b"system.posix_acl_access".to_vec() }
}

/// Returns the CPU time of this thread, which does all that is measured. Other work on the machine
/// counts less than in the time of day.
fn now() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

fn nanos(begin: Duration) -> f64 {
    (now() - begin).as_nanos() as f64
}

/// The figures of the repetitions, in nanoseconds.
struct Measured {
    least: f64,
    median: f64,
}

impl Measured {
    fn new(measure: impl FnMut(usize) -> f64) -> Self {
        let mut figures: Vec<f64> = (0..ROUNDS).map(measure).collect();
        figures.sort_by(f64::total_cmp);
        Self { least: figures[0], median: figures[figures.len() / 2] }
    }

    fn print(&self, what: &str, goal: Option<f64>) {
        let Self { least, median } = self;
        let goal = goal.map_or_else(String::new, |goal| {
            let said = if *median <= goal { "met" } else { "MISSED" };
            format!("  goal {goal:.0}: {said}")
        });
        println!("{what:56} {median:>8.0} ns (least {least:.0}){goal}");
    }
}

fn main() {
    let world = World::new();
    let deep = world.directories[0];
    let one = world.chain(1, world.shared.ino);
    let grant = world.admit(&one);
    let guest = world.begin(&grant);

    let by =
        |session: SessionId, request: &Request| Measured::new(|_| world.request(session, request));
    let attributes = Request::GetAttr { node: deep };
    by(SessionId::DIRECT, &attributes).print("GETATTR of the server's own mount", None);
    by(guest, &attributes).print("GETATTR of a guest", None);
    assert_eq!(world.ask(guest, Request::Servers).unwrap_err(), Code::AccessDenied);
    by(guest, &Request::Servers).print("a request that is refused without a question", None);
    // In turn, because the speed of a machine changes.
    let cached = Measured::new(|_| {
        world.request(guest, &only_decided(deep)) - world.request(guest, &Request::Servers)
    });
    cached.print("a decision that is cached", Some(200.0));

    for links in [1, LINKS] {
        let grant = world.admit(&world.chain(links, world.shared.ino));
        let first = Measured::new(|_| {
            let guest = world.begin(&grant);
            let first = world.round(guest);
            let difference = first - world.round(guest);
            world.server.session_service().end_session(guest);
            difference
        });
        let what = format!("a decision at depth {DEPTH}, a chain of {links}");
        first.print(&what, (links == 1).then_some(10_000.0));
    }

    let chains: Vec<Vec<Vec<u8>>> =
        world.directories.iter().map(|edge| world.chain(LINKS, edge.ino)).take(ROUNDS).collect();
    let seen = Measured::new(|round| {
        let begin = now();
        let guest = world.begin(&world.admit(&chains[round]));
        let node = world.directories[round];
        assert_eq!(world.ask(guest, only_decided(node)).unwrap_err(), Code::NoXattr);
        nanos(begin)
    });
    let what = format!("a chain of {LINKS} first seen: signatures, session, decision");
    seen.print(&what, Some(1e6));

    world.server.stop().unwrap();
    drop(world.folder);
}
