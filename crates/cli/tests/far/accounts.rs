//! Each row of the table of accounts: 64 sessions of one peer send as many of the largest requests
//! of each kind as the server reads, read no answer, and keep changes from being answered. The
//! server keeps to its memory limit, and serves its own mount and the mount of another peer.
//!
//! The short form sends a few hundred requests of each kind in each session. `PELAGO_ACCOUNTS=long`
//! sends as many as a session may have under way.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pelago_wire::codec::encode_call;
use pelago_wire::frame::{FrameKind, HEADER_BYTES, Header};
use pelago_wire::handshake::{Hello, Welcome};
use pelago_wire::{
    AllocateMode, Asker, AuditPlace, Code, Cookie, Error, FileKind, FileLock, Handle, Level,
    LockKind, LockMode, LockOwner, Name, NewMode, OpenFlags, OpenId, Operation, PlaceFlags,
    RenameFlags, Reply, Request, Search, SearchAt, SearchPlace, SeekFrom, SessionId, SetAttr,
    SiteToken, Tags, Time, Whence, WriteFlags, XattrFlags, limits,
};
use rustix::fs::{XattrFlags as SetFlags, setxattr};

use crate::far::good::round_trip;
use crate::far::on_server;
use crate::far::peer::{Peer, body, hello};
use crate::far::world::World;
use crate::harness::program::{DEADLINE, until};

const MIB: u64 = 1 << 20;
/// The limit for the memory of a server's process, from `docs/limits.md`: all limits together, and
/// the cached replies of one peer.
const MOST: u64 = 256 * MIB + 90 * MIB;
/// Names in the directory that is listed and searched.
const NAMES: usize = 1100;
/// The files that each session has open: one of its own, which it writes, and one of all.
const OPEN: OpenId = OpenId(1);
const SHARED: OpenId = OpenId(2);
/// Nothing moves for so long: each session has sent what the server reads.
const QUIET: Duration = Duration::from_millis(100);
/// A session says something so often.
const HEARTBEAT: Duration = Duration::from_secs(2);
const ROOT: LockOwner = LockOwner(1);
const RESERVE: AllocateMode = AllocateMode::Reserve { keep_size: true };
const DATA: SeekFrom = SeekFrom { offset: 0, whence: Whence::Data };

/// Requests of a kind that each session sends.
struct Form {
    requests: u64,
    /// Each is recalled from all other sessions.
    mutations: u64,
    lock_waiters: u64,
}

impl Form {
    fn wanted() -> Self {
        match std::env::var("PELAGO_ACCOUNTS").as_deref() {
            Ok("long") => Self {
                requests: limits::SESSION_REQUESTS as u64 - 8,
                mutations: 8,
                lock_waiters: limits::LOCK_WAITERS as u64 - 8,
            },
            _ => Self { requests: 200, mutations: 8, lock_waiters: 400 },
        }
    }
}

/// The subjects of requests.
struct Subjects {
    /// A directory with many long names.
    dir: Handle,
    /// A file with large attributes.
    file: Handle,
    link: Handle,
    /// A file whose lock another session has.
    locked: Handle,
    /// A file for each session.
    own: Vec<Handle>,
}

/// A session that sends and does not read.
struct Hostile {
    stream: UnixStream,
    out: Vec<u8>,
    sent: usize,
    number: u64,
    mutation: u64,
    has_parted: bool,
}

impl Hostile {
    fn begin(world: &World) -> Self {
        static NONCES: AtomicU32 = AtomicU32::new(1);
        let mut nonce = [0xcc; 16];
        nonce[..4].copy_from_slice(&NONCES.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        let stream = UnixStream::connect(world.socket()).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let out = Vec::new();
        let has_parted = false;
        let mut hostile = Self { stream, out, sent: 0, number: 0, mutation: 0, has_parted };
        hostile.queue(FrameKind::Hello, 0, &Hello { nonce, ..hello() }.encode(), &[]);
        hostile.stream.write_all(&hostile.out).unwrap();
        let (kind, body) = hostile.hear();
        assert_eq!(kind, FrameKind::Welcome);
        let welcome = Welcome::decode(&body).unwrap();
        assert!(welcome.bulk as usize >= limits::SESSION_LEAST_BYTES);
        hostile.out.clear();
        hostile
    }

    fn hear(&mut self) -> (FrameKind, Vec<u8>) {
        loop {
            let mut header = [0; HEADER_BYTES];
            self.stream.read_exact(&mut header).unwrap();
            let header = Header::decode(&header).unwrap();
            let mut body = vec![0; (header.body + header.bulk) as usize];
            self.stream.read_exact(&mut body).unwrap();
            // A busy server says that the client's bytes have come.
            if header.kind != FrameKind::Pong {
                return (header.kind, body);
            }
        }
    }

    fn queue(&mut self, kind: FrameKind, number: u64, body: &[u8], bulk: &[u8]) {
        let [sizes, bulk_size] = [body, bulk].map(|bytes| bytes.len() as u32);
        let header =
            Header { body: sizes, bulk: bulk_size, kind, is_overdue: false, number, progress: 0 };
        self.out.extend([&header.encode()[..], body, bulk].concat());
    }

    fn queue_request(&mut self, request: &Request, bulk: &[u8]) {
        self.number += 1;
        self.mutation += u64::from(request.is_mutation());
        let mutation = if request.is_mutation() { self.mutation } else { 0 };
        let mut body = Vec::new();
        // Each user has a queue of its own.
        let uid = self.number as u32;
        encode_call(uid, 0, mutation, request, &mut body).unwrap();
        self.queue(FrameKind::Request, self.number, &body, bulk);
    }

    /// Opens a file of its own and one of all; from then on it waits for nothing any more. Whatever
    /// another session did here would wait for a recall that this one does not answer.
    fn open(&mut self, own: Handle, shared: Handle) {
        for (node, flags, open) in
            [(own, OpenFlags::READ_WRITE, OPEN), (shared, OpenFlags::READ, SHARED)]
        {
            self.queue_request(&Request::Open { node, flags, open }, &[]);
        }
        self.stream.write_all(&self.out).unwrap();
        self.out.clear();
        for _ in 0..2 {
            assert_eq!(self.hear().0, FrameKind::Reply);
        }
        self.stream.set_nonblocking(true).unwrap();
    }

    /// Sends what the socket takes. Returns whether that is something; an error if the server has
    /// ended the connection.
    fn push(&mut self) -> Result<bool, ErrorKind> {
        let before = self.sent;
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.kind()),
            }
        }
        let has_sent = self.sent > before;
        if self.sent == self.out.len() {
            self.out = Vec::new();
            self.sent = 0;
        }
        Ok(has_sent)
    }

    /// Reads what has arrived, and forgets it. Returns whether the server has ended the connection.
    fn drain(&mut self, seen: &mut Seen) -> bool {
        let mut into = vec![0; 256 << 10];
        loop {
            match self.stream.read(&mut into) {
                Ok(0) => return true,
                Ok(count) => seen.look_at(&into[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return true,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Frames of a connection that are read and forgotten.
#[derive(Default)]
struct Seen {
    rest: Vec<u8>,
    skip: usize,
    replies: u64,
    recalls: Vec<u64>,
}

impl Seen {
    fn look_at(&mut self, mut bytes: &[u8]) {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let wanted = (HEADER_BYTES - self.rest.len()).min(bytes.len());
            self.rest.extend(&bytes[..wanted]);
            bytes = &bytes[wanted..];
            let Some(header) = self.rest.first_chunk::<HEADER_BYTES>() else { return };
            let header = Header::decode(header).unwrap();
            assert_ne!(header.kind, FrameKind::Closing, "a session was ended");
            match header.kind {
                FrameKind::Reply => self.replies += 1,
                FrameKind::Recall => self.recalls.push(header.number),
                _ => {}
            }
            self.skip = (header.body + header.bulk) as usize;
            self.rest.clear();
        }
    }
}

/// Reads the answers of all sessions, answers recalls, and ends each session once it has all its
/// answers. Returns how many those were. With `all` unset the sessions end at once.
fn drain_all(mut sessions: Vec<Hostile>, all: bool) -> u64 {
    let mut seen: Vec<Seen> = sessions.iter().map(|_| Seen::default()).collect();
    let mut open = vec![true; sessions.len()];
    let mut said = Instant::now();
    until("all sessions have ended", || {
        let is_due = said.elapsed() > HEARTBEAT;
        if is_due {
            said = Instant::now();
        }
        for (at, session) in sessions.iter_mut().enumerate() {
            if !open[at] {
                continue;
            }
            for recall in std::mem::take(&mut seen[at].recalls) {
                session.queue(FrameKind::Recalled, recall, &[], &[]);
            }
            if is_due && !session.has_parted {
                session.queue(FrameKind::Ping, 1, &[], &[]);
            }
            // What it was answered before: two opens.
            if !session.has_parted && (!all || seen[at].replies + 2 == session.number) {
                session.queue(FrameKind::Goodbye, 0, &[], &[]);
                session.has_parted = true;
            }
            // The server may end the connection before the client knows that it read everything.
            let pushed = session.push();
            assert!(pushed.is_ok() || session.has_parted, "{pushed:?}");
            open[at] = !session.drain(&mut seen[at]);
        }
        !open.contains(&true)
    });
    assert!(sessions.iter().all(|session| session.has_parted), "a session was ended");
    seen.iter().map(|seen| seen.replies).sum()
}

fn name(byte: u8, number: usize) -> Name {
    let text = format!("{number:06}{}", (byte as char).to_string().repeat(limits::NAME_BYTES - 6));
    Name::new(text.as_bytes()).unwrap()
}

fn path_of(dir: &std::path::Path, name: &Name) -> PathBuf {
    dir.join(std::ffi::OsStr::from_bytes(name.as_bytes()))
}

/// Makes what requests are about, by the server's own mount.
fn make_subjects(world: &World) -> Subjects {
    // Not in the root, which the neighbours change: the sessions get leases on what they see.
    let files = world.volume.files().join("hostile");
    let dir = files.join("dir");
    fs::create_dir_all(&dir).unwrap();
    for number in 0..NAMES {
        File::create(path_of(&dir, &name(b'x', number))).unwrap();
    }
    fs::write(dir.join("file"), vec![7; limits::IO_BYTES]).unwrap();
    setxattr(dir.join("file"), "user.large", &[8; 60_000], SetFlags::empty()).unwrap();
    for number in 0..200 {
        let key = format!("user.{}{number:03}", "k".repeat(240));
        setxattr(dir.join("file"), &*key, b"", SetFlags::empty()).unwrap();
    }
    fs::write(dir.join("locked"), b"locked").unwrap();
    fs::create_dir(files.join("own")).unwrap();
    for number in 1..limits::PEER_SESSIONS {
        fs::write(files.join("own").join(number.to_string()), b"own").unwrap();
    }
    symlink("t/".repeat(limits::TARGET_BYTES / 2), dir.join("link")).unwrap();
    world.volume.wait_until_closed();
    let mut peer = Peer::session(&world.socket()).0;
    let mut number = 0;
    let mut look_up = |dir: Handle, text: &str| {
        number += 1;
        let name = Name::new(text.as_bytes()).unwrap();
        match peer.ask(number, 0, &Request::Lookup { dir, name }).unwrap() {
            Reply::Entry(entry) => entry.handle,
            other => panic!("{other:?}"),
        }
    };
    let above = look_up(Handle::ROOT, "hostile");
    let dir = look_up(above, "dir");
    let [file, link, locked] = ["file", "link", "locked"].map(|text| look_up(dir, text));
    let of_all = look_up(above, "own");
    let own = (1..limits::PEER_SESSIONS).map(|number| look_up(of_all, &number.to_string()));
    Subjects { dir, file, link, locked, own: own.collect() }
}

fn long_address() -> Vec<u8> {
    vec![b'x'; limits::SITE_ADDRESS_BYTES]
}

/// Returns the largest request of a kind, the `number`th of a session, and its bulk. The match has
/// no wildcard: a new operation must be walked too.
fn largest(operation: Operation, about: &Subjects, number: usize) -> (Request, Vec<u8>) {
    let Subjects { dir, file, link, .. } = *about;
    let mode = NewMode::exactly(0o644);
    let open = OPEN;
    let owner = ROOT;
    let new_open = OpenId(number as u64 + 10);
    let flags = OpenFlags::READ_WRITE;
    let set = SetAttr { mode: Some(0o600), uid: Some(1), ..SetAttr::default() };
    let at = number as u64 * 2;
    let kind = LockKind::Posix;
    let lock = FileLock { kind, mode: LockMode::Write, start: at, end: at, pid: 1 };
    let new = |byte| name(byte, number);
    let target = vec![b't'; limits::TARGET_BYTES];
    let request = match operation {
        Operation::Lookup => Request::Lookup { dir, name: name(b'x', number % NAMES) },
        Operation::Parent => Request::Parent { dir },
        Operation::Find => Request::Find { ino: file.ino },
        Operation::GetAttr => Request::GetAttr { node: file },
        Operation::SetAttr => Request::SetAttr { node: file, open: None, set },
        Operation::Create => Request::Create { dir, name: new(b'c'), mode, flags, open: new_open },
        Operation::CreateUnnamed => Request::CreateUnnamed { dir, mode, flags, open: new_open },
        Operation::MakeDir => Request::MakeDir { dir, name: new(b'd'), mode },
        Operation::MakeNode => {
            let kind = FileKind::Fifo;
            let rdev = 0;
            Request::MakeNode { dir, name: new(b'n'), kind, mode, rdev }
        }
        Operation::Symlink => Request::Symlink { dir, name: new(b's'), target },
        Operation::ReadLink => Request::ReadLink { node: link },
        Operation::Link => Request::Link { node: file, dir, name: new(b'l') },
        Operation::Unlink => Request::Unlink { dir, name: new(b'u') },
        Operation::RemoveDir => Request::RemoveDir { dir, name: new(b'u') },
        Operation::Rename => Request::Rename {
            from_dir: dir,
            from: new(b'u'),
            to_dir: dir,
            to: new(b'v'),
            flags: RenameFlags::Replace,
        },
        Operation::Open => Request::Open { node: file, flags: OpenFlags::READ, open: new_open },
        Operation::Reopen => Request::Reopen { node: file, flags: OpenFlags::READ, open: new_open },
        Operation::Flush => Request::Flush { open, owner: Some(owner) },
        Operation::Release => Request::Release { open: new_open },
        Operation::GetLock => Request::GetLock { open, owner, lock },
        Operation::SetLock => Request::SetLock { open, owner, lock, wait: false },
        Operation::ReclaimLock => Request::ReclaimLock { open, owner, lock },
        Operation::Fsync => Request::Fsync { open, data_only: false },
        Operation::FsyncAt => Request::FsyncAt { open, level: Level::Local },
        Operation::FsyncDir => Request::FsyncDir { dir, since: None },
        Operation::Read => Request::Read { open: SHARED, offset: 0, size: limits::IO_BYTES as u32 },
        Operation::Write => Request::Write { open, offset: 0, flags: WriteFlags::NONE },
        Operation::List => long_listing(dir),
        Operation::GetXattr => Request::GetXattr { node: file, name: b"user.large".to_vec() },
        Operation::ListXattr => Request::ListXattr { node: file },
        Operation::SetXattr => long_xattr(file, number),
        Operation::RemoveXattr => Request::RemoveXattr { node: file, name: long_key() },
        Operation::StatFs => Request::StatFs,
        Operation::Allocate => Request::Allocate { open, offset: 0, length: 4096, mode: RESERVE },
        Operation::Seek => Request::Seek { open: SHARED, from: DATA },
        Operation::CopyRange => COPY,
        Operation::Search => Request::Search { dir, search: long_search(number) },
        Operation::Tags => Request::Tags { dir, tags: long_question() },
        Operation::Step => Request::Step { dir, to: Some(new(b'x')) },
        Operation::AddDir => Request::AddDir { dir, name: new(b'x'), made: file.ino },
        Operation::DropDir => Request::DropDir { dir, name: new(b'x'), removed: file.ino },
        Operation::RemoveNamedDir => {
            Request::RemoveNamedDir { dir, parent: file.ino, name: new(b'x') }
        }
        Operation::SiteAddress => Request::SiteAddress { address: long_address() },
        Operation::SiteList => Request::SiteList { text: vec![b'x'; limits::SITE_LIST_BYTES] },
        Operation::LeaveSite => Request::LeaveSite,
        Operation::Charter => Request::Charter { known: at },
        Operation::Revoked => {
            let parts = vec![b'x'; limits::REVOKED_PARTS_BYTES];
            Request::Revoked { parts, after: Some([7; 32]) }
        }
        Operation::PassRevocation => {
            Request::PassRevocation { sentence: vec![b'x'; limits::REVOCATION_BYTES], end: at }
        }
        Operation::CharterChanged => Request::CharterChanged,
        Operation::SetBytes => Request::SetBytes {
            node: file,
            at: file.ino,
            size: 1,
            mtime: Time::default(),
            since: Time::default(),
            flags: PlaceFlags::default(),
        },
        Operation::GiveBytes => Request::GiveBytes { node: file, file: file.ino },
        Operation::DropBytes => Request::DropBytes { node: file, file: file.ino },
        Operation::Clock => Request::Clock,
        Operation::Hashes => {
            Request::Hashes { open: SHARED, offset: 0, blocks: limits::HASHED_BLOCKS as u32 }
        }
        Operation::RenewToken => Request::RenewToken { token: SiteToken::NONE },
        Operation::KeepToken => Request::KeepToken { token: SiteToken::NONE },
        Operation::Servers => Request::Servers,
        Operation::Attach => {
            Request::Attach { chain: vec![vec![b'x'; limits::CREDENTIAL_BYTES]; 3] }
        }
        Operation::Issue => Request::Issue { node: file },
        Operation::Access => {
            let chain = vec![vec![b'x'; limits::CREDENTIAL_BYTES]; 3];
            Request::Access { node: file, chain, after: SessionId(0) }
        }
        Operation::Audited => Request::Audited { dir, after: AuditPlace::START },
        Operation::Revoke => Request::Revoke {
            sentence: vec![b'x'; limits::REVOCATION_BYTES],
            chain: vec![vec![b'x'; limits::CREDENTIAL_BYTES]; 3],
        },
    };
    assert_eq!(request.describe().operation, operation);
    let bulk = vec![9; operation.account().bulk];
    (request, bulk)
}

const COPY: Request =
    Request::CopyRange { from: SHARED, from_offset: 0, to: OPEN, to_offset: 1 << 20, length: 4096 };

fn long_xattr(node: Handle, number: usize) -> Request {
    Request::SetXattr {
        node,
        name: long_key(),
        value: vec![number as u8; limits::XATTR_VALUE_BYTES],
        flags: XattrFlags::Any,
        kill_setgid: false,
    }
}

fn long_key() -> Vec<u8> {
    [b"user.", &[b'a'; 250][..]].concat()
}

fn long_listing(dir: Handle) -> Request {
    let after = Cookie::START;
    let behind = None;
    Request::List { dir, after, behind, entries: u32::MAX, attributes: true }
}

fn many_groups() -> Asker {
    Asker { groups: (0..limits::ASKER_GROUPS as u32).collect(), reads_all: true }
}

/// Returns a search with a long answer, or a long place behind which nothing is.
fn long_search(number: usize) -> Search {
    let at = SearchAt::Path(vec![b'.'; limits::HIT_PATH_BYTES]);
    let far = SearchPlace { now: Time { seconds: 7, nanos: 0 }, at };
    let after = (number % 2 == 1).then_some(far);
    Search { query: b"name~*".to_vec(), hits: limits::PAGE_HITS, after, asker: many_groups() }
}

fn long_question() -> Tags {
    let key = vec![b'k'; limits::TAG_KEY_BYTES];
    let prefix = vec![b'v'; limits::TAG_PART_BYTES];
    Tags { key: Some(key), prefix, asker: many_groups() }
}

/// A session that has leases on what others change, and answers no recall before it is told to.
struct Holder {
    peer: Peer,
    number: u64,
    said: Instant,
}

impl Holder {
    fn begin(world: &World) -> Self {
        Self { peer: Peer::session(&world.socket()).0, number: 0, said: Instant::now() }
    }

    /// Has leases on the directory, its names and the files.
    fn take(&mut self, about: &Subjects) {
        let absent = Name::new(b"absent").unwrap();
        for node in [about.dir, about.file, about.locked] {
            self.ask(&Request::GetAttr { node }).unwrap();
        }
        let looked = self.ask(&Request::Lookup { dir: about.dir, name: absent });
        assert_eq!(looked.unwrap_err().code, Code::NotFound);
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, Error> {
        self.number += 1;
        self.peer.send_call(self.number, 0, request);
        loop {
            let heard = self.peer.hear().expect("the holder has its session");
            // The answers to its heartbeats come too.
            if heard.header.kind == FrameKind::Reply {
                return heard.answer();
            }
        }
    }

    /// Is not silent for a term.
    fn stay(&mut self) {
        if self.said.elapsed() > HEARTBEAT {
            self.said = Instant::now();
            self.peer.send_frame(FrameKind::Ping, 1, &[], &[]);
        }
    }

    /// Answers the recalls.
    fn drop_all(&mut self) {
        // A recall that comes before the answer is answered.
        self.ask(&Request::StatFs).unwrap();
    }
}

/// Sends as many requests of one kind as the server reads, in all sessions. Returns how many bytes
/// those were.
fn send_all(
    world: &World,
    holder: &mut Holder,
    sessions: &mut [Hostile],
    next: impl Fn(usize) -> Option<(Request, Vec<u8>)>,
) -> u64 {
    let mut left = vec![true; sessions.len()];
    let mut numbers = vec![0; sessions.len()];
    let mut last = Instant::now();
    let mut total = 0;
    while last.elapsed() < QUIET {
        for (at, session) in sessions.iter_mut().enumerate() {
            if session.out.is_empty() && left[at] {
                match next(numbers[at]) {
                    Some((request, bulk)) => {
                        session.queue_request(&request, &bulk);
                        total += session.out.len() as u64;
                        numbers[at] += 1;
                    }
                    None => left[at] = false,
                }
            }
            if session.push().expect("a session was ended") {
                last = Instant::now();
            }
        }
        holder.stay();
        let memory = world.memory();
        assert!(memory < MOST, "{} MiB after {} MiB of requests", memory / MIB, total / MIB);
    }
    total
}

/// Runs `work` while the server's own mount and one of another peer are used. Each of their
/// operations ends: a watchdog ends the test otherwise.
fn beside_neighbours(work: impl FnOnce(&World)) {
    on_server(|world| {
        let far = world.mount_tls("neighbour");
        let roots = [world.volume.files(), far.point];
        let stop = AtomicBool::new(false);
        let rounds = [0, 1].map(|_| AtomicU32::new(0));
        thread::scope(|scope| {
            for (root, rounds) in roots.iter().zip(&rounds) {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        round_trip(root, rounds.fetch_add(1, Ordering::Relaxed));
                        // The pace of the neighbour, not a wait for a condition.
                        thread::sleep(Duration::from_millis(1));
                    }
                });
            }
            let guard = StopAtEnd(&stop);
            work(world);
            drop(guard);
        });
        let rounds = rounds.map(|rounds| rounds.load(Ordering::Relaxed));
        println!("operations of the own mount and of a neighbour: {rounds:?}");
        assert!(rounds.iter().all(|rounds| *rounds > 1), "{rounds:?}");
    });
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns as many sessions as a peer may have beside another one. Each has this file open.
fn hostile_sessions(world: &World, about: &Subjects, shared: Handle) -> Vec<Hostile> {
    let begin = |own: &Handle| {
        let mut session = Hostile::begin(world);
        session.open(*own, shared);
        session
    };
    about.own.iter().map(begin).collect()
}

/// Sends requests of one kind in as many sessions as a peer may have.
fn walk(world: &World, operation: Operation, about: &Subjects, form: &Form) {
    let is_mutation = largest(operation, about, 0).0.is_mutation();
    // More than the largest share is enough of large ones.
    let account = operation.account();
    let large = (account.body + account.bulk).max(account.answer) as u64;
    let enough = limits::SESSION_BYTES as u64 / large + 8;
    let requests = if is_mutation { form.mutations } else { form.requests }.min(enough);
    let start = Instant::now();
    let mut sessions = hostile_sessions(world, about, about.file);
    let mut holder = Holder::begin(world);
    holder.take(about);
    let begun = start.elapsed();
    let next =
        |number: usize| ((number as u64) < requests).then(|| largest(operation, about, number));
    let before = world.memory();
    let sent = send_all(world, &mut holder, &mut sessions, next);
    let memory = world.memory();
    File::create(world.volume.files().join("by-the-own-mount")).unwrap();
    holder.drop_all();
    let answers = drain_all(sessions, true);
    println!(
        "{:>16}: {:>6} answers, {:>4} MiB sent; {} MiB, then {} MiB; {begun:.1?} of {:.1?}",
        operation.name(),
        answers,
        sent / MIB,
        before / MIB,
        memory / MIB,
        start.elapsed()
    );
}

/// The peak of the process.
fn peak(world: &World) -> u64 {
    let pid = world.volume.pid().unwrap().as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn no_kind_of_request_takes_more_than_its_account() {
    let form = Form::wanted();
    // Few in each volume, which has a deadline.
    for operations in Operation::ALL.chunks(3) {
        beside_neighbours(|world| {
            let about = make_subjects(world);
            for operation in operations {
                walk(world, *operation, &about, &form);
            }
            let peak = peak(world);
            println!("at most {} MiB", peak / MIB);
            assert!(peak < MOST, "{} MiB", peak / MIB);
        });
    }
}

/// They are not in the bytes of a session, because others must get past them.
#[test]
fn requests_that_wait_for_locks_have_a_share_too() {
    let form = Form::wanted();
    beside_neighbours(|world| {
        let about = make_subjects(world);
        let wait = |number: usize, wait| {
            let kind = LockKind::Flock;
            let mode = LockMode::Write;
            let lock = FileLock { kind, mode, start: 0, end: FileLock::TO_END, pid: 0 };
            Request::SetLock { open: SHARED, owner: LockOwner(number as u64), lock, wait }
        };
        let mut holder = Holder::begin(world);
        let open = Request::Reopen { node: about.locked, flags: OpenFlags::READ, open: SHARED };
        holder.ask(&open).unwrap();
        holder.ask(&wait(0, false)).unwrap();
        let mut sessions = hostile_sessions(world, &about, about.locked);
        let next = |number: usize| {
            ((number as u64) < form.lock_waiters).then(|| (wait(number, true), Vec::new()))
        };
        send_all(world, &mut holder, &mut sessions, next);
        println!("{} MiB", world.memory() / MIB);
        assert!(peak(world) < MOST);
        // An unlock gets past them.
        holder.ask(&Request::GetAttr { node: about.locked }).unwrap();
        drop(holder);
        drain_all(sessions, false);
    });
}

/// It vanishes and begins another session each time, as a program that was killed does by chance.
#[test]
fn a_peer_that_answers_no_recall_gets_no_leases_in_its_next_session() {
    on_server(|world| {
        let absent = || Request::Lookup { dir: Handle::ROOT, name: Name::new(b"absent").unwrap() };
        let is_leased = |peer: &mut Peer, number| {
            peer.send_call(number, 0, &absent());
            let leases = peer.hear_leases();
            leases.names || leases.node
        };
        for round in 0..2 {
            let mut peer = Peer::session(&world.socket()).0;
            assert!(is_leased(&mut peer, 1), "it has the lease on a name");
            // Waits until the lease has ended by the client's own clock.
            fs::create_dir(world.volume.files().join(format!("made{round}"))).unwrap();
            peer.vanish();
        }
        let mut second = Peer::session(&world.socket()).0;
        assert!(!is_leased(&mut second, 1), "its peer is not trusted");
        fs::create_dir(world.volume.files().join("another")).unwrap();
        assert!(second.ask(2, 0, &Request::StatFs).is_ok());
        // Another peer is.
        let far = world.mount_tls("neighbour");
        assert!(!far.path("absent").exists());
        fs::create_dir(far.path("third")).unwrap();
    });
}

/// It says goodbye before its lease has ended, and begins another session each time. Recalls that
/// are not answered within one time of a lease count once, so the third one is the second.
#[test]
fn a_peer_that_says_goodbye_instead_of_answering_gets_no_leases_in_its_next_session() {
    on_server(|world| {
        let absent = || Request::Lookup { dir: Handle::ROOT, name: Name::new(b"absent").unwrap() };
        let is_leased = |peer: &mut Peer| {
            peer.send_call(1, 0, &absent());
            let leases = peer.hear_leases();
            leases.names || leases.node
        };
        for round in 0..3 {
            let mut peer = Peer::session(&world.socket()).0;
            assert!(is_leased(&mut peer), "round {round}");
            let made = world.volume.files().join(format!("made{round}"));
            thread::scope(|scope| {
                let maker = scope.spawn(|| fs::create_dir(&made).unwrap());
                // Only the clock ends this wait: more than half the term of a lease is to pass
                // while the change waits for the answer to the recall.
                thread::sleep(Duration::from_millis(limits::TERM_SECONDS * 1000 * 53 / 100));
                assert!(!maker.is_finished(), "round {round}");
                peer.send_frame(FrameKind::Goodbye, 0, &[], &[]);
            });
        }
        let mut next = Peer::session(&world.socket()).0;
        assert!(!is_leased(&mut next), "its peer is not trusted");
    });
}

/// Four sessions could take all opens of a server.
#[test]
fn the_sessions_of_a_peer_leave_opens_for_all_others() {
    const BATCH: u64 = 1000;
    beside_neighbours(|world| {
        let about = make_subjects(world);
        let mut sessions: Vec<(Peer, u64)> =
            (0..2).map(|_| (Peer::session(&world.socket()).0, 0)).collect();
        let mut open = |at: usize, count: u64| {
            let (peer, last) = &mut sessions[at];
            let mut frames = Vec::new();
            for number in *last + 1..=*last + count {
                let node = about.file;
                let flags = OpenFlags::READ;
                let body = body(number, &Request::Open { node, flags, open: OpenId(number) });
                let mut header = Header::new(FrameKind::Request, body.len() as u32, *last);
                header.number = number;
                frames.extend([&header.encode()[..], &body].concat());
            }
            peer.send(&frames).unwrap();
            *last += count;
            peer.progress = *last;
            (0..count).filter(|_| peer.hear_answer().1.is_ok()).count() as u64
        };
        let share = limits::PEER_OPEN_FILES as u64;
        let mut opened = 0;
        // In turns: a session that says nothing for a term ends.
        for turn in 0.. {
            if opened == share {
                break;
            }
            let count = open(turn % 2, BATCH.min(share - opened));
            assert!(count > 0, "{opened} of {share}");
            opened += count;
        }
        assert_eq!([open(0, 1), open(1, 1)], [0, 0], "the share is of both");
    });
}
