//! The world of the tests of sites: two servers that reach each other by calls.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use parking_lot::Mutex;
use pelago_keynote::{Credential, Principal, SiteInvitation};
use pelago_net::key::PrivateKey;
use pelago_server::{Joining, Neighbour, Options, Server};
use pelago_store::volume::VolumeId;
use pelago_wire::{
    Bulk, Code, Context, Done, Handle, NewMode, RecordedPeer, RenameFlags, Reply, Request,
    RequestId, SessionId, SessionRecord, SessionService, ShownTokens, SiteHello, SitePeer,
    SiteRefusal,
};

use super::line::{Ends, Line, Losing, NextRun, Recalls};
use crate::harness::rig::{DEADLINE, entry, name};

/// Longer than any test takes.
pub(super) const FAR: u64 = 1 << 40;

/// Returns the key with this number.
pub(super) fn key(number: u8) -> PrivateKey {
    PrivateKey::from_seed([number; 32])
}

pub(super) fn public(number: u8) -> [u8; 32] {
    *key(number).public().as_bytes()
}

/// The key of the invitation, and those of the two servers.
pub(super) const TICKET: u8 = 1;
pub(super) const FIRST: u8 = 2;
pub(super) const BERLIN: u8 = 3;

/// Returns the sentence by which the bearer of a ticket names the key of its server.
pub(super) fn sentence(by: u8, volume: [u8; 16], site: u16, server: u8) -> Vec<u8> {
    let credential = Credential {
        comment: &[],
        licensee: Principal(public(server)),
        conditions: &SiteInvitation { volume, site }.conditions(),
    };
    credential.sign(&key(by).signing_key()).unwrap().into_bytes()
}

/// Returns what a server presents that has this invitation, and no tokens yet.
pub(super) fn invited(invitation: &[u8]) -> SiteHello<'_> {
    SiteHello { shown: ShownTokens::default(), invitation: Some(invitation) }
}

pub(super) fn options() -> Options {
    Options { grace: Duration::ZERO, ..Options::default() }
}

/// Begins the session of a site's server.
pub(super) fn begin(service: &dyn SessionService, peer: SitePeer) -> SessionId {
    static LAST: AtomicU32 = AtomicU32::new(1000);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let session = SessionId::new(service.served().epoch, number);
    let record = SessionRecord::new([number as u8; 16], RecordedPeer::Site(peer));
    service.begin_session(session, record).unwrap();
    session
}

/// Two servers of one volume.
pub(super) struct Offices {
    pub(super) first: Arc<Server>,
    pub(super) berlin: Arc<Server>,
    /// Cuts the line between them.
    pub(super) is_cut: Arc<AtomicBool>,
    /// Makes the line silent for a shorter time than leases last.
    pub(super) is_silent: Arc<AtomicBool>,
    /// Loses steps of changes of two sites.
    pub(super) losing: Arc<Mutex<Losing>>,
    /// Requests that berlin has sent.
    pub(super) sent: Arc<AtomicU64>,
    lines: [Ends; 2],
    _recalls: [Arc<Recalls>; 2],
    pub(super) folder: tempfile::TempDir,
}

/// Two servers of one volume that do not reach each other.
pub(super) struct Servers {
    pub(super) first: Arc<Server>,
    pub(super) berlin: Arc<Server>,
    pub(super) folder: tempfile::TempDir,
}

/// Returns the founded volume of a server.
pub(super) fn founded(folder: &tempfile::TempDir) -> Server {
    founded_with(folder, options())
}

pub(super) fn founded_with(folder: &tempfile::TempDir, options: Options) -> Server {
    Server::start(&folder.path().join("first"), options).unwrap()
}

/// Returns a server that was made to join the volume.
pub(super) fn joining(folder: &tempfile::TempDir, volume: [u8; 16], options: Options) -> Server {
    let founder = Neighbour { site: 0, key: public(FIRST), address: "first:1".to_owned() };
    let joining =
        Joining { volume: VolumeId(volume), site: 1, founder, founder_name: "first".to_owned() };
    let options = Options { joining: Some(joining), ..options };
    Server::start(&folder.path().join("berlin"), options).unwrap()
}

impl Offices {
    pub(super) fn new() -> Self {
        Self::with(options())
    }

    /// The second server has these options.
    pub(super) fn with(of_berlin: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let first = Arc::new(founded_with(&folder, options()));
        let volume = first.session_service().served().volume;
        first.invite_site("berlin", public(TICKET), FAR).unwrap();
        let berlin = Arc::new(joining(&folder, volume, of_berlin));
        let sentence = sentence(TICKET, volume, 1, BERLIN);
        let to_first =
            first.session_service().admit_site(&public(BERLIN), Some(&invited(&sentence)));
        let to_berlin = berlin.session_service().admit_site(&public(FIRST), None);
        let is_cut = Arc::new(AtomicBool::new(false));
        let is_silent = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU64::new(0));
        let losing: Arc<Mutex<Losing>> = Arc::default();
        let line = |to: &Arc<Server>, peer, sent: &Arc<AtomicU64>| Ends {
            there: Arc::downgrade(to),
            session: begin(&*to.session_service(), peer),
            is_cut: Arc::clone(&is_cut),
            is_silent: Arc::clone(&is_silent),
            sent: Arc::clone(sent),
            losing: Arc::clone(&losing),
            holder: Arc::default(),
            moved: Arc::default(),
            received: Arc::default(),
            hashing: Arc::default(),
            loses_locks: Arc::default(),
        };
        let lines = [
            line(&first, to_first.unwrap(), &sent),
            line(&berlin, to_berlin.unwrap(), &Arc::default()),
        ];
        let recalls = [connect(&berlin, lines[0].clone()), connect(&first, lines[1].clone())];
        Self { first, berlin, is_cut, is_silent, losing, sent, lines, _recalls: recalls, folder }
    }

    /// Returns the servers without the line between them.
    pub(super) fn into_servers(self) -> Servers {
        let Self { first, berlin, folder, .. } = self;
        Servers { first, berlin, folder }
    }

    /// Returns the session of the first site's server at berlin.
    pub(super) fn first_at_berlin(&self) -> SessionId {
        self.lines[1].session
    }

    /// Returns the sessions at berlin from which something was recalled.
    pub(super) fn recalled_at_berlin(&self) -> Vec<SessionId> {
        self._recalls[1].sent.lock().clone()
    }

    /// Returns how many requests the first site has sent to berlin.
    pub(super) fn sent_by_first(&self) -> u64 {
        self.lines[1].sent.load(Ordering::Acquire)
    }

    /// Returns the line from berlin to the first site.
    pub(super) fn line_to_first(&self) -> Ends {
        self.lines[0].clone()
    }

    /// Ends the session of berlin's server at the first site.
    pub(super) fn end_session_of_berlin(&self) {
        self.first.session_service().end_session(self.lines[0].session);
    }

    /// Starts berlin again. Its server has another session at the first site, which ends the old
    /// one.
    pub(super) fn start_berlin_again(self, options: Options) -> Self {
        self.start_berlin_with(options, |berlin| {
            berlin.stop().unwrap();
            drop(berlin);
        })
    }

    fn start_berlin_with(self, options: Options, end: impl FnOnce(Arc<Server>)) -> Self {
        let Self { first, berlin, mut lines, _recalls, folder, .. } = self;
        let Self { is_cut, is_silent, losing, sent, .. } = self;
        end(berlin);
        let service = first.session_service();
        let peer = service.admit_site(&public(BERLIN), None).unwrap();
        let session = begin(&*service, peer);
        let ends = Ends { session, holder: Arc::default(), ..lines[0].clone() };
        _recalls[0].holders.lock().insert(session, Arc::clone(&ends.holder));
        service.end_session(std::mem::replace(&mut lines[0], ends.clone()).session);
        let berlin = Arc::new(Server::start(&berlin_dir(&folder), options).unwrap());
        ends.connect(&berlin);
        Self { first, berlin, is_cut, is_silent, losing, sent, lines, _recalls, folder }
    }

    /// Starts berlin again, whose run has ended without a stop.
    pub(super) fn start_berlin_after_crash(self, options: Options) -> Self {
        // A call of this process is not under way when a process ends.
        self.is_cut.store(true, Ordering::Release);
        wait_for("no call is under way", || Arc::strong_count(&self.berlin) == 1);
        let mut offices = self.start_berlin_with(options, drop);
        offices.is_cut.store(false, Ordering::Release);
        // The first site goes on, and connects to the new run.
        let berlin = &offices.berlin;
        let service = berlin.session_service();
        let session = begin(&*service, service.admit_site(&public(FIRST), None).unwrap());
        *offices.lines[1].moved.lock() = Some(NextRun { there: Arc::downgrade(berlin), session });
        offices._recalls[1] = Recalls::of(berlin);
        let holder = Arc::clone(&offices.lines[1].holder);
        offices._recalls[1].holders.lock().insert(session, holder);
        offices.lines[1].end_leases();
        offices
    }

    /// Ends the leases of berlin's server at the first site, as their time does.
    pub(super) fn end_session_of_berlin_leases(&self) {
        self.first.session_service().leases_lost(self.lines[0].session);
    }

    /// Starts the first site again, after berlin has stopped.
    pub(super) fn start_first_again(self, options: Options) -> Self {
        let Self { first, berlin, mut lines, _recalls, folder, .. } = self;
        let Self { is_cut, is_silent, losing, sent, .. } = self;
        let service = first.session_service();
        lines.iter().for_each(|line| service.end_session(line.session));
        drop(service);
        first.stop().unwrap();
        drop((first, _recalls));
        let first = Arc::new(Server::start(&folder.path().join("first"), options).unwrap());
        let service = first.session_service();
        let peer = service.admit_site(&public(BERLIN), None).unwrap();
        let session = begin(&*service, peer);
        let there = Arc::downgrade(&first);
        lines[0] = Ends { there, session, holder: Arc::default(), ..lines[0].clone() };
        let _recalls = [Recalls::of(&first), Recalls::of(&berlin)];
        _recalls[0].holders.lock().insert(session, Arc::clone(&lines[0].holder));
        Self { first, berlin, is_cut, is_silent, losing, sent, lines, _recalls, folder }
    }

    /// Starts the first site again, whose folder `between` changes meanwhile. Berlin goes on. The
    /// line is cut.
    pub(super) fn start_first_with(self, options: Options, between: impl FnOnce(&Path)) -> Self {
        self.cut(true);
        // A call of this process is not under way when a process ends.
        wait_for("no call is under way", || Arc::strong_count(&self.first) == 1);
        let Self { first, berlin, mut lines, mut _recalls, folder, .. } = self;
        let Self { is_cut, is_silent, losing, sent, .. } = self;
        first.stop().unwrap();
        drop(first);
        let dir = folder.path().join("first");
        between(&dir);
        let first = Arc::new(Server::start(&dir, options).unwrap());
        let service = first.session_service();
        let session = begin(&*service, service.admit_site(&public(BERLIN), None).unwrap());
        *lines[0].moved.lock() = Some(NextRun { there: Arc::downgrade(&first), session });
        _recalls[0] = Recalls::of(&first);
        _recalls[0].holders.lock().insert(session, Arc::clone(&lines[0].holder));
        // The new run has another session at berlin, which ends the old one.
        let service = berlin.session_service();
        let session = begin(&*service, service.admit_site(&public(FIRST), None).unwrap());
        let ends = Ends { session, holder: Arc::default(), ..lines[1].clone() };
        _recalls[1].holders.lock().insert(session, Arc::clone(&ends.holder));
        service.end_session(std::mem::replace(&mut lines[1], ends.clone()).session);
        ends.connect(&first);
        Self { first, berlin, is_cut, is_silent, losing, sent, lines, _recalls, folder }
    }

    /// Cuts the line, and waits until the leases have ended; or heals it.
    pub(super) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Release);
        if is_cut {
            self.lines.iter().for_each(Ends::end_leases);
        }
    }

    /// Makes a directory of berlin in the root, at berlin.
    pub(super) fn dir(&self, text: &str) -> Handle {
        let mode = NewMode::exactly(0o755);
        let made = Request::MakeDir { dir: Handle::ROOT, name: name(text), mode };
        entry(ask(&self.berlin, SessionId::DIRECT, made).unwrap()).unwrap().handle
    }
}

/// Tells a server how to reach another one, and that one how to recall what it has leased.
fn connect(from: &Server, ends: Ends) -> Arc<Recalls> {
    let recalls = Recalls::of(&ends.there.upgrade().unwrap());
    recalls.holders.lock().insert(ends.session, Arc::clone(&ends.holder));
    from.set_connect(Box::new(move |_| Some(Arc::new(Line(ends.clone())))));
    recalls
}

/// Returns a number that no other request has.
pub(super) fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// Begins the session of a client.
pub(super) fn client(server: &Server) -> SessionId {
    let service = server.session_service();
    let number = u32::try_from(next_number()).unwrap();
    let session = SessionId::new(service.served().epoch, number);
    service.begin_session(session, SessionRecord::new([5; 16], RecordedPeer::User(0))).unwrap();
    session
}

/// Asks a server in a session, and waits for the answer.
pub(super) fn ask(server: &Server, session: SessionId, request: Request) -> Result<Reply, Code> {
    ask_with(server, session, request, &[])
}

pub(super) fn ask_with(
    server: &Server,
    session: SessionId,
    request: Request,
    bytes: &[u8],
) -> Result<Reply, Code> {
    let number = next_number();
    let mutation = match session {
        SessionId::DIRECT => 0,
        _ if request.is_mutation() => number,
        _ => 0,
    };
    let context =
        Context { session, request: RequestId(number), mutation, ..Context::direct(0, 0) };
    ask_as(server, &context, request, bytes)
}

pub(super) fn ask_as(
    server: &Server,
    context: &Context,
    request: Request,
    bytes: &[u8],
) -> Result<Reply, Code> {
    let (sender, answer) = mpsc::channel();
    let sender = Mutex::new(Some(sender));
    let mut later = || -> Done {
        let sender = sender.lock().take().unwrap();
        Box::new(move |result| sender.send(result).unwrap())
    };
    let now = server.session_service().ask(context, request, Bulk::Borrowed(bytes), &mut later);
    let result = now.unwrap_or_else(|| answer.recv_timeout(DEADLINE).unwrap());
    result.map_err(|error| error.code)
}

pub(super) fn refusal(admitted: Result<SitePeer, SiteRefusal>) -> String {
    match admitted.unwrap_err() {
        SiteRefusal::NotInvited(text) | SiteRefusal::Older { text, .. } => text,
    }
}

pub(super) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("still not: {what}");
}

/// Looks a name up by the mount of a server.
pub(super) fn lookup(server: &Server, dir: Handle, text: &str) -> Result<Handle, Code> {
    let found = ask(server, SessionId::DIRECT, Request::Lookup { dir, name: name(text) })?;
    Ok(entry(found)?.handle)
}

/// Renames in the root.
pub(super) fn rename(server: &Server, from: &str, to: &str) -> Result<(), Code> {
    let request = Request::Rename {
        from_dir: Handle::ROOT,
        from: name(from),
        to_dir: Handle::ROOT,
        to: name(to),
        flags: RenameFlags::Replace,
    };
    ask(server, SessionId::DIRECT, request).map(drop)
}

/// Copies the folder of a volume.
pub(super) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy_folder(&entry.path(), &target);
        } else if kind.is_file() {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Returns the path of the folder of berlin.
pub(super) fn berlin_dir(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("berlin")
}
