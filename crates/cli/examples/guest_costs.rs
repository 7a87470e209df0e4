//! Counts the instructions of a guest's requests beside those of a machine, and those of the own
//! mount of a volume with a second office beside one without: `cargo run --release -p pelago-cli
//! --example guest_costs [FOLDER]`.
//!
//! It starts itself under callgrind (of valgrind), which counts the same wherever else the machine
//! is busy. Each step is the same request for many files, by each requester in turn. Two of the
//! requesters ask the server in this process (*service*), two over TLS (*TLS*): then all that both
//! ends do for a request is counted. The second office has joined and has a session, and is not
//! asked. With a FOLDER the profiles of all steps are kept there, for
//! `callgrind_annotate`.
#![expect(clippy::unwrap_used, reason = "it ends at what it did not expect")]

use std::fs;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use pelago_keynote::{Credential, Grant, Principal, SiteInvitation, policy};
use pelago_net::clients::list::ClientList;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::own_file::OwnFile;
use pelago_net::{ClientRole, Remote, RemoteOptions, ServerTarget, SessionServer};
use pelago_server::{Options, Server};
use pelago_wire::{
    Bulk, Context, Cookie, Done, Handle, Name, NewMode, OpenFlags, OpenId, RecordedPeer,
    RenameFlags, Reply, Request, RequestId, Service, SessionId, SessionRecord, SetAttr,
    ShownTokens, SiteHello, WriteFlags,
};
use tikv_jemallocator::Jemalloc;

/// The allocator of the program that is measured.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Files of each requester.
const FILES: usize = 500;
/// The word that starts the counted process.
const COUNTED: &str = "counted";
/// The longest time of a request; callgrind makes all about fifty times slower.
const PATIENCE: Duration = Duration::from_secs(60);
/// Moves of a directory, and the guests beside it whose rights they do not change.
const MOVES: usize = 64;
const UNCONCERNED: u32 = 512;
/// The depth of the folders of the requesters, below the root.
const DEPTH: u32 = 4;
/// The numbers of the keys.
const ROOT: u8 = 1;
const SERVER: u8 = 2;
const MACHINE: u8 = 3;
const GUEST: u8 = 4;
const TICKET: u8 = 5;
const OFFICE: u8 = 6;
/// The requesters, in their order. Each pair is compared.
const REQUESTERS: [&str; 6] = [
    "own mount",
    "own, two offices",
    "service, machine",
    "service, guest",
    "TLS, machine",
    "TLS, guest",
];

/// Sections of the counted process: the last ones are moves of a directory.
const SECTIONS: usize = STEPS.len() * REQUESTERS.len() + 4;

/// A file of a requester.
struct File {
    number: usize,
    node: Handle,
    open: OpenId,
}

/// A step: one request for each file.
struct Step {
    name: &'static str,
    request: fn(Handle, &File) -> Request,
}

const STEPS: [Step; 14] = [
    Step {
        name: "CREATE",
        request: |dir, file| {
            let File { open, .. } = *file;
            let mode = NewMode::exactly(0o644);
            Request::Create { dir, name: file.name("f"), mode, flags: OpenFlags::READ_WRITE, open }
        },
    },
    Step {
        name: "WRITE of 4 KiB",
        request: |_, file| Request::Write { open: file.open, offset: 0, flags: WriteFlags::NONE },
    },
    Step {
        name: "READ of 4 KiB",
        request: |_, file| Request::Read { open: file.open, offset: 0, size: 4096 },
    },
    Step { name: "RELEASE", request: |_, file| Request::Release { open: file.open } },
    Step { name: "LOOKUP", request: |dir, file| Request::Lookup { dir, name: file.name("f") } },
    Step { name: "GETATTR", request: |_, file| Request::GetAttr { node: file.node } },
    Step {
        name: "SETATTR of the mode",
        request: |_, file| {
            let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            Request::SetAttr { node: file.node, open: None, set }
        },
    },
    Step {
        name: "OPEN to read",
        request: |_, file| Request::Open {
            node: file.node,
            flags: OpenFlags::READ,
            open: file.again(),
        },
    },
    Step {
        name: "READ of a byte",
        request: |_, file| Request::Read { open: file.again(), offset: 0, size: 1 },
    },
    Step {
        name: "RELEASE of a reader",
        request: |_, file| Request::Release { open: file.again() },
    },
    Step {
        name: "LIST of 100 names",
        request: |dir, _| {
            let after = Cookie::START;
            Request::List { dir, after, behind: None, entries: 100, attributes: true }
        },
    },
    Step {
        name: "RENAME",
        request: |dir, file| Request::Rename {
            from_dir: dir,
            from: file.name("f"),
            to_dir: dir,
            to: file.name("g"),
            flags: RenameFlags::NoReplace,
        },
    },
    Step { name: "UNLINK", request: |dir, file| Request::Unlink { dir, name: file.name("g") } },
    Step {
        name: "MKDIR",
        request: |dir, file| Request::MakeDir {
            dir,
            name: file.name("d"),
            mode: NewMode::exactly(0o755),
        },
    },
];

impl File {
    fn name(&self, letter: &str) -> Name {
        name(&format!("{letter}{}", self.number))
    }

    /// Returns the number of its second open.
    fn again(&self) -> OpenId {
        OpenId(self.open.0 + (1 << 32))
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn key(number: u8) -> PrivateKey {
    PrivateKey::from_seed([number; 32])
}

fn principal(number: u8) -> Principal {
    Principal(*key(number).public().as_bytes())
}

/// Something that asks a server.
struct Requester {
    service: Arc<dyn Service>,
    session: SessionId,
    /// Its own folder.
    dir: Handle,
    files: Vec<File>,
}

impl Requester {
    fn new(service: Arc<dyn Service>, session: SessionId) -> Self {
        Self { service, session, dir: Handle::ROOT, files: Vec::new() }
    }

    /// Asks, and waits for the reply.
    fn ask(&self, request: Request) -> Reply {
        static LAST: AtomicU64 = AtomicU64::new(0);
        const BYTES: [u8; 4096] = [b'x'; 4096];
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let mutation = if request.is_mutation() { number } else { 0 };
        let request_id = RequestId(number);
        let context = Context {
            session: self.session,
            request: request_id,
            mutation,
            ..Context::direct(0, 0)
        };
        let bulk = if request.has_bulk() { Bulk::Borrowed(&BYTES) } else { Bulk::None };
        let (sender, replies) = mpsc::channel();
        let mut later = || -> Done {
            let sender = sender.clone();
            Box::new(move |reply| sender.send(reply).unwrap())
        };
        let reply = match self.service.ask(&context, request, bulk, &mut later) {
            Some(reply) => reply,
            None => replies.recv_timeout(PATIENCE).unwrap(),
        };
        reply.unwrap()
    }

    fn make_dir(&self, dir: Handle, text: &str) -> Handle {
        let mode = NewMode::exactly(0o777);
        match self.ask(Request::MakeDir { dir, name: name(text), mode }) {
            Reply::Entry(entry) => entry.handle,
            other => panic!("{other:?}"),
        }
    }

    /// Moves a directory to and fro between two others.
    fn move_dir(&self, [left, right]: &[Handle; 2]) {
        for _ in 0..MOVES / 2 {
            for (from_dir, to_dir) in [(*left, *right), (*right, *left)] {
                let from = name("moved");
                let to = name("moved");
                let flags = RenameFlags::NoReplace;
                self.ask(Request::Rename { from_dir, from, to_dir, to, flags });
            }
        }
    }

    fn run(&mut self, step: &Step) {
        for at in 0..self.files.len() {
            let reply = self.ask((step.request)(self.dir, &self.files[at]));
            if let Reply::Created { entry, .. } = reply {
                self.files[at].node = entry.handle;
            }
        }
    }
}

/// A served volume with its requesters.
struct World {
    requesters: Vec<Requester>,
    /// The credentials of guests.
    chain: Vec<Vec<u8>>,
    sessions: SessionServer,
    server: Server,
    /// The server of a volume with a second office.
    of_office: Server,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("volume");
        let options = Options { grace: Duration::ZERO, ..Options::default() };
        let server = Server::start(&dir, options).unwrap();
        fs::write(dir.join("policy"), policy(&[principal(ROOT)], &[]).unwrap()).unwrap();
        let own = Requester::new(server.service(), SessionId::DIRECT);
        let mut shared = Handle::ROOT;
        for depth in 1..DEPTH {
            shared = own.make_dir(shared, &format!("depth{depth}"));
        }
        let volume = server.session_service().served().volume;
        let mut grant = Grant::to_read(volume, shared.ino.raw());
        grant.rights = "rwxcd".parse().unwrap();
        let conditions = grant.conditions();
        let credential =
            Credential { comment: &[], licensee: principal(GUEST), conditions: &conditions };
        let chain = vec![credential.sign(&key(ROOT).signing_key()).unwrap().into_bytes()];

        let sessions = SessionServer::start(server.session_service()).unwrap();
        let address = listen(&sessions, &dir);
        let over_tls = |number: u8, role: ClientRole| {
            let target = ServerTarget::Tcp { address: address.clone(), key: Arc::new(key(number)) };
            let options = RemoteOptions { target, read_only: false, role, give_up: None };
            let remote = Remote::connect(options, PATIENCE).unwrap();
            Requester::new(Arc::new(remote), SessionId::DIRECT)
        };
        let mut requesters = vec![
            machine(&server),
            guest(&server, &chain, 1),
            over_tls(MACHINE, ClientRole::Client),
            over_tls(GUEST, ClientRole::Guest(Arc::from(vec![chain.clone()]))),
        ];
        requesters.insert(0, own);
        let mut open = 0;
        for at in 0..requesters.len() {
            requesters[at].dir = requesters[0].make_dir(shared, &format!("of{at}"));
        }
        let of_office = with_an_office(&folder.path().join("office"));
        let mut own = Requester::new(of_office.service(), SessionId::DIRECT);
        let path = (1..DEPTH).map(|depth| format!("depth{depth}")).chain(["of0".to_owned()]);
        own.dir = path.fold(Handle::ROOT, |dir, name| own.make_dir(dir, &name));
        requesters.insert(1, own);
        for requester in &mut requesters {
            requester.files = (0..FILES)
                .map(|number| {
                    open += 1;
                    File { number, node: requester.dir, open: OpenId(open) }
                })
                .collect();
        }
        Self { requesters, chain, sessions, server, of_office, folder }
    }
}

/// Returns the server of a volume that a second office has joined, with a session of its server.
fn with_an_office(dir: &Path) -> Server {
    let options = Options { grace: Duration::ZERO, ..Options::default() };
    let server = Server::start(dir, options).unwrap();
    let service = server.session_service();
    let volume = service.served().volume;
    server.invite_site("office", principal(TICKET).0, 1 << 40).unwrap();
    let conditions = SiteInvitation { volume, site: 1 }.conditions();
    let sentence =
        Credential { comment: &[], licensee: principal(OFFICE), conditions: &conditions };
    let sentence = sentence.sign(&key(TICKET).signing_key()).unwrap().into_bytes();
    let shown = SiteHello { shown: ShownTokens::default(), invitation: Some(&sentence) };
    let peer = service.admit_site(&principal(OFFICE).0, Some(&shown)).unwrap();
    let session = SessionId::new(service.served().epoch, 1 << 20);
    let record = SessionRecord::new([3; 16], RecordedPeer::Site(peer));
    service.begin_session(session, record).unwrap();
    server
}

fn machine(server: &Server) -> Requester {
    let session = SessionId::new(server.session_service().served().epoch, 1 << 20);
    let record = SessionRecord::new([1; 16], RecordedPeer::User(0));
    server.session_service().begin_session(session, record).unwrap();
    Requester::new(server.service(), session)
}

fn guest(server: &Server, chain: &[Vec<u8>], number: u32) -> Requester {
    let service = server.session_service();
    let grant = service.admit_guest(&principal(GUEST).0, chain, None).unwrap();
    let session = SessionId::new(service.served().epoch, (1 << 20) + number);
    let record = SessionRecord::new([2; 16], RecordedPeer::Guest(grant.principal));
    service.begin_guest(session, &grant, &record).unwrap();
    Requester::new(server.service(), session)
}

/// Listens on loopback, for the machine and for guests.
fn listen(sessions: &SessionServer, dir: &Path) -> ServerAddress {
    let list = OwnFile::of(&dir.join("clients")).unwrap();
    list.create(&format!("{}\n", key(MACHINE).public())).unwrap();
    let list = Arc::new(ClientList::open(list).unwrap());
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let local = sessions.listen_tcp(local, &key(SERVER), list).unwrap();
    ServerAddress::new(key(SERVER).public(), &local.ip().to_string(), local.port()).unwrap()
}

/// Marks the end of a section: callgrind writes what it has counted since the last one.
#[inline(never)]
fn section_ends(number: usize) -> usize {
    black_box(number)
}

/// Runs the steps. It is started under callgrind.
fn run_counted() {
    let mut world = World::new();
    let mut section = section_ends(0);
    for step in &STEPS {
        for requester in &mut world.requesters {
            requester.run(step);
            section += section_ends(1);
        }
    }
    let own = &world.requesters[0];
    let dirs = ["left", "right"].map(|name| own.make_dir(Handle::ROOT, name));
    own.make_dir(dirs[0], "moved");
    own.move_dir(&dirs);
    section += section_ends(1);
    own.move_dir(&dirs);
    section += section_ends(1);
    (0..UNCONCERNED).for_each(|number| drop(guest(&world.server, &world.chain, 2 + number)));
    own.move_dir(&dirs);
    section += section_ends(1);
    own.move_dir(&dirs);
    section += section_ends(1);
    assert_eq!(section, SECTIONS);
    world.requesters.clear();
    drop(world.sessions);
    world.server.stop().unwrap();
    world.of_office.stop().unwrap();
    drop(world.folder);
}

/// Returns the instructions of each section, of the profiles in a folder.
fn sections(folder: &Path) -> Vec<u64> {
    // The first profile is what comes before the first section.
    let profiles = (2..SECTIONS + 2).map(|number| folder.join(format!("profile.{number}")));
    profiles
        .map(|profile| {
            let text = fs::read_to_string(&profile).unwrap();
            let total = text.lines().find_map(|line| line.strip_prefix("summary: "));
            total.or_else(|| text.lines().find_map(|line| line.strip_prefix("totals: ")));
            total.unwrap().trim().parse().unwrap()
        })
        .collect()
}

/// Prints instructions of a request, and what that of the second of each pair takes more.
fn print(sections: &[u64]) {
    print!("{:22}", "instructions");
    REQUESTERS.iter().for_each(|name| print!("{name:>18}"));
    println!("{:>18}{:>18}{:>18}", "own, more", "service, more", "TLS, more");
    for (step, figures) in STEPS.iter().zip(sections.chunks(REQUESTERS.len())) {
        let each: Vec<f64> = figures.iter().map(|sum| *sum as f64 / FILES as f64).collect();
        print!("{:22}", step.name);
        each.iter().for_each(|figure| print!("{figure:>18.0}"));
        for pair in each.chunks(2) {
            print!("{:>16.1} %", (pair[1] / pair[0] - 1.0) * 100.0);
        }
        println!();
    }
    let moves = &sections[STEPS.len() * REQUESTERS.len()..];
    let more = moves[3] as f64 - moves[1] as f64;
    let each = more / MOVES as f64 / f64::from(UNCONCERNED);
    println!("a move of a directory, for each of {UNCONCERNED} unconcerned guests: {each:.0}");
}

fn main() {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some(COUNTED) {
        return run_counted();
    }
    let scratch = tempfile::tempdir().unwrap();
    let folder = match &argument {
        Some(folder) => Path::new(folder),
        None => scratch.path(),
    };
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--dump-before=*section_ends*"]);
    valgrind.arg(format!("--callgrind-out-file={}", folder.join("profile").display()));
    let status = valgrind.arg(std::env::current_exe().unwrap()).arg(COUNTED).status();
    assert!(status.expect("valgrind is installed").success());
    print(&sections(folder));
}
