//! Clients of a shared store over TLS, which find the owner of the volume, and the next owner.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use pelago_net::clients::KeyName;
use pelago_net::clients::date::Date;
use pelago_net::clients::file::edit;
use pelago_net::clients::list::ClientList;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::own_file::OwnFile;
use pelago_net::{
    ClientRole, ConnectError, Remote, RemoteOptions, ServerTarget, SessionServer, StandbyServer,
};
use pelago_wire::handshake::RefusalCode;
use pelago_wire::{
    Buffer, Bulk, Code, Context, Done, Error, Handle, OpenId, Reply, Request, Service,
    SessionService,
};

use crate::harness::{PATIENCE, WithSessions, until};
use crate::proxy::Proxy;

#[path = "harness/all.rs"]
mod harness;
#[path = "harness/proxy.rs"]
mod proxy;

/// The numbers of keys: of two servers of the store, of another server, of a client.
const ONE: u8 = 1;
const OTHER: u8 = 2;
const STRANGER: u8 = 3;
const CLIENT: u8 = 4;

const READ: Request = Request::Read { open: OpenId(1), offset: 0, size: 1 };

fn key(number: u8) -> PrivateKey {
    PrivateKey::from_seed([number; 32])
}

/// A service whose answers name their server.
struct Owner {
    number: u8,
    servers: Vec<String>,
    /// Requests for the list of servers, reads and changes.
    asked: AtomicUsize,
    reads: AtomicUsize,
    changes: AtomicUsize,
    /// The server has lost the volume, and answers `NotOwner`.
    is_lost: AtomicBool,
}

impl Owner {
    fn new(number: u8, servers: &[String]) -> Self {
        let servers = servers.to_vec();
        let (asked, reads, changes) = Default::default();
        Self { number, servers, asked, reads, changes, is_lost: AtomicBool::new(false) }
    }
}

fn texts(servers: &[&ServerAddress]) -> Vec<String> {
    servers.iter().map(ToString::to_string).collect()
}

impl Service for Owner {
    fn ask(
        &self,
        _: &Context,
        request: Request,
        _: Bulk<'_>,
        _: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let count = match request {
            Request::Servers => &self.asked,
            Request::Read { .. } => &self.reads,
            _ => &self.changes,
        };
        count.fetch_add(1, Ordering::SeqCst);
        if self.is_lost.load(Ordering::SeqCst) {
            return Some(Err(Code::NotOwner.into()));
        }
        Some(Ok(match request {
            Request::Servers => Reply::Servers(self.servers.clone()),
            Request::Read { .. } => Reply::Data(Buffer::new(vec![self.number])),
            _ => Reply::Done,
        }))
    }
}

/// The place of one server of the store. Its port stays when another server is started there.
struct Place {
    number: u8,
    socket: TcpListener,
    address: ServerAddress,
    list: Arc<ClientList>,
    folder: tempfile::TempDir,
}

impl Place {
    /// A place whose list has the client.
    fn new(number: u8) -> Self {
        let place = Self::without_clients(number);
        place.allow(CLIENT);
        place
    }

    fn without_clients(number: u8) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let address = ServerAddress::new(key(number).public(), "127.0.0.1", port).unwrap();
        let file = OwnFile::of(&folder.path().join("clients")).unwrap();
        let list = Arc::new(ClientList::open(file).unwrap());
        Self { number, socket, address, list, folder }
    }

    fn allow(&self, number: u8) {
        let file = OwnFile::of(&self.folder.path().join("clients")).unwrap();
        let name = None::<KeyName>;
        edit(&file, |clients| clients.allow(key(number).public(), name, Date::today())).unwrap();
    }

    fn serve(&self, service: &Arc<WithSessions<Owner>>) -> SessionServer {
        service.store.is_on_store.store(true, Ordering::SeqCst);
        let sessions = Arc::clone(service) as Arc<dyn SessionService>;
        let server = SessionServer::start(sessions).unwrap();
        let socket = self.socket.try_clone().unwrap();
        server.listen_on(socket, &key(self.number), Arc::clone(&self.list)).unwrap();
        server
    }

    /// Starts a standby server that names this owner. Returns it, and the number of times that it
    /// was asked for the owner.
    fn stand_by(&self, owner: Option<&ServerAddress>) -> (StandbyServer, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let text = owner.map(ToString::to_string);
        let count = Arc::clone(&asked);
        let find = move || {
            count.fetch_add(1, Ordering::SeqCst);
            text.clone()
        };
        let standby = StandbyServer::start(Box::new(find)).unwrap();
        let socket = self.socket.try_clone().unwrap();
        standby.listen_on(socket, &key(self.number), Arc::clone(&self.list)).unwrap();
        (standby, asked)
    }
}

fn options(address: &ServerAddress, number: u8) -> RemoteOptions {
    let target = ServerTarget::Tcp { address: address.clone(), key: Arc::new(key(number)) };
    RemoteOptions { target, read_only: false, role: ClientRole::Client, give_up: None }
}

fn connect(address: &ServerAddress) -> Remote {
    Remote::connect(options(address, CLIENT), PATIENCE).unwrap()
}

fn ask(remote: &Remote, request: Request) -> Receiver<Result<Reply, Error>> {
    let (send, receive) = channel();
    let mut later = || -> Done {
        let send = send.clone();
        Box::new(move |result| send.send(result).unwrap())
    };
    assert!(remote.ask(&Context::direct(1, 2), request, Bulk::None, &mut later).is_none());
    receive
}

/// Returns the number of the server that answers a read, and asserts that there is one answer.
fn answered(receiver: &Receiver<Result<Reply, Error>>) -> u8 {
    let result = receiver.recv_timeout(PATIENCE).unwrap();
    assert!(receiver.try_recv().is_err());
    match result.unwrap() {
        Reply::Data(buffer) => buffer.as_bytes()[0],
        other => panic!("{other:?}"),
    }
}

fn change() -> Request {
    Request::FsyncDir { dir: Handle::ROOT, since: None }
}

fn is_listed(service: &WithSessions<Owner>) {
    until("the servers are asked for", || service.service.asked.load(Ordering::SeqCst) > 0);
}

/// The client knows only a standby server at first.
#[test]
fn a_server_that_stands_by_leads_a_new_client_to_the_owner() {
    let [one, other] = [ONE, OTHER].map(Place::new);
    let service =
        WithSessions::of_run(3, None, Owner::new(ONE, &texts(&[&one.address, &other.address])));
    let _server = one.serve(&service);
    let (_standby, _) = other.stand_by(Some(&one.address));
    let remote = connect(&other.address);
    assert_eq!(remote.server(), Some(one.address.clone()));
    assert_eq!(answered(&ask(&remote, READ)), ONE);
    is_listed(&service);
    let status = remote.status();
    assert_eq!((status.requests, status.connections), (1, 1), "the question is no program's");
}

/// The owner ends. The other server stands by for a while, and then owns the volume.
#[test]
fn a_session_goes_on_at_the_next_owner() {
    let [one, other] = [ONE, OTHER].map(Place::new);
    let all = texts(&[&one.address, &other.address]);
    let first = WithSessions::of_run(3, None, Owner::new(ONE, &all));
    let server = one.serve(&first);
    let (standby, told) = other.stand_by(Some(&one.address));
    let remote = connect(&one.address);
    is_listed(&first);
    let session = remote.status().session;
    ask(&remote, change()).recv_timeout(PATIENCE).unwrap().unwrap();
    drop((server, one));
    let waiting = [ask(&remote, READ), ask(&remote, READ)];
    let also = ask(&remote, change());
    until("the other one was asked", || told.load(Ordering::SeqCst) > 1);
    assert!(waiting[0].try_recv().is_err());
    drop(standby);
    let next = WithSessions::of_run(4, Some(&first), Owner::new(OTHER, &all));
    let _server = other.serve(&next);
    waiting.iter().for_each(|receiver| assert_eq!(answered(receiver), OTHER));
    also.recv_timeout(PATIENCE).unwrap().unwrap();
    // The thread that connects notes it a moment after the first answers.
    until("it is known", || remote.server().as_ref() == Some(&other.address));
    assert_eq!(remote.status().session, session);
    assert_eq!(next.service.changes.load(Ordering::SeqCst), 2, "the lost one is done again");
    assert_eq!(remote.refusal(), None);
}

/// A stopped process keeps its connections, the kernel accepts others for it, and it sends nothing.
/// Its earlier answers arrive late.
#[test]
fn a_session_leaves_a_server_that_says_nothing() {
    let [one, other] = [ONE, OTHER].map(Place::new);
    let proxy = Proxy::to(one.address.port());
    let hung = ServerAddress::new(key(ONE).public(), "127.0.0.1", proxy.port()).unwrap();
    let all = texts(&[&hung, &other.address]);
    let first = WithSessions::of_run(3, None, Owner::new(ONE, &all));
    let _server = one.serve(&first);
    let remote = connect(&hung);
    is_listed(&first);
    assert_eq!(answered(&ask(&remote, READ)), ONE);
    proxy.hold_answers();
    let read = ask(&remote, READ);
    until("it is carried out", || first.service.reads.load(Ordering::SeqCst) == 2);
    let next = WithSessions::of_run(4, Some(&first), Owner::new(OTHER, &all));
    let _next = other.serve(&next);
    let since = Instant::now();
    assert_eq!(answered(&read), OTHER);
    let took = since.elapsed();
    assert!(took > Duration::from_secs(4) && took < Duration::from_secs(9), "{took:?}");
    proxy.let_go();
    assert_eq!(answered(&ask(&remote, READ)), OTHER);
    assert!(read.try_recv().is_err(), "it was answered once");
    assert_eq!(remote.server(), Some(other.address.clone()));
}

/// A server that accepts connections and never answers costs one short attempt.
#[test]
fn a_silent_owner_does_not_keep_a_client_from_the_next_server() {
    let [one, other] = [ONE, OTHER].map(Place::new);
    let all = texts(&[&one.address, &other.address]);
    let first = WithSessions::of_run(3, None, Owner::new(ONE, &all));
    let server = one.serve(&first);
    let remote = connect(&one.address);
    is_listed(&first);
    // Its socket still listens, and nothing accepts.
    drop(server);
    let next = WithSessions::of_run(4, Some(&first), Owner::new(OTHER, &all));
    let _next = other.serve(&next);
    let since = Instant::now();
    assert_eq!(answered(&ask(&remote, READ)), OTHER);
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
}

#[test]
fn a_redirect_to_a_key_that_is_not_listed_is_not_followed() {
    let [one, other] = [ONE, OTHER].map(Place::new);
    let stranger = Place::new(STRANGER);
    let all = texts(&[&one.address, &other.address]);
    let first = WithSessions::of_run(3, None, Owner::new(ONE, &all));
    let server = one.serve(&first);
    let theirs = WithSessions::of_run(9, Some(&first), Owner::new(STRANGER, &[]));
    let their_server = stranger.serve(&theirs);
    let remote = connect(&one.address);
    is_listed(&first);
    drop((server, one));
    let (standby, told) = other.stand_by(Some(&stranger.address));
    let read = ask(&remote, READ);
    until("it was sent there again and again", || told.load(Ordering::SeqCst) > 2);
    assert!(read.try_recv().is_err());
    assert_eq!(their_server.status(), []);
    drop(standby);
    let next = WithSessions::of_run(4, Some(&first), Owner::new(OTHER, &all));
    let _next = other.serve(&next);
    assert_eq!(answered(&read), OTHER);
}

/// The owner carries out requests and may not send their answers, or answers `NotOwner`.
#[test]
fn what_an_owner_may_not_answer_is_answered_once_by_the_next() {
    for says_so in [false, true] {
        let [one, other] = [ONE, OTHER].map(Place::new);
        let all = texts(&[&one.address, &other.address]);
        let first = WithSessions::of_run(3, None, Owner::new(ONE, &all));
        let _server = one.serve(&first);
        let remote = connect(&one.address);
        is_listed(&first);
        match says_so {
            true => first.service.is_lost.store(true, Ordering::SeqCst),
            false => first.store.is_mute.store(true, Ordering::SeqCst),
        }
        let read = ask(&remote, READ);
        let changed = ask(&remote, change());
        let carried_out = |service: &Owner| {
            let counts = [&service.reads, &service.changes];
            counts.map(|count| count.load(Ordering::SeqCst))
        };
        until("it is carried out", || carried_out(&first.service)[0] > 0);
        *first.store.owner.lock() = Some(other.address.to_string());
        let next = WithSessions::of_run(4, Some(&first), Owner::new(OTHER, &all));
        let _next = other.serve(&next);
        assert_eq!(answered(&read), OTHER, "{says_so}");
        changed.recv_timeout(PATIENCE).unwrap().unwrap();
        assert_eq!(carried_out(&next.service), [1, 1], "{says_so}");
    }
}

#[test]
fn a_key_that_is_not_listed_is_refused_by_a_server_that_stands_by() {
    let other = Place::new(OTHER);
    let (_standby, told) = other.stand_by(None);
    let refused = Remote::connect(options(&other.address, STRANGER), PATIENCE);
    match refused.map(drop).unwrap_err() {
        ConnectError::Refused(refused) => assert_eq!(refused.code, RefusalCode::UnknownKey),
        other => panic!("{other}"),
    }
    assert_eq!(told.load(Ordering::SeqCst), 0, "it is told nothing");
}

/// A standby server has an old list of clients, and the owner is gone: programs wait.
#[test]
fn an_old_list_of_a_server_that_stands_by_fails_no_program() {
    let one = Place::new(ONE);
    let other = Place::without_clients(OTHER);
    let all = texts(&[&one.address, &other.address]);
    let first = WithSessions::of_run(3, None, Owner::new(ONE, &all));
    let server = one.serve(&first);
    let remote = connect(&one.address);
    is_listed(&first);
    drop((server, one));
    let (standby, _) = other.stand_by(None);
    let read = ask(&remote, READ);
    // The client is refused in several rounds.
    assert!(read.recv_timeout(Duration::from_millis(500)).is_err());
    assert_eq!(remote.refusal(), None);
    other.allow(CLIENT);
    drop(standby);
    let next = WithSessions::of_run(4, Some(&first), Owner::new(OTHER, &all));
    let _next = other.serve(&next);
    assert_eq!(answered(&read), OTHER);
}

/// The owner, as another server has named it, refuses the client.
#[test]
fn a_client_that_the_owner_refuses_is_told_so() {
    let [one, other] = [ONE, OTHER].map(Place::new);
    let all = texts(&[&one.address, &other.address]);
    let first = WithSessions::of_run(3, None, Owner::new(ONE, &all));
    let server = one.serve(&first);
    let remote = connect(&one.address);
    is_listed(&first);
    drop((server, one));
    // The server at the other place is gone, and a third one of the same key owns the volume.
    let third = Place::without_clients(ONE);
    let next = WithSessions::of_run(4, Some(&first), Owner::new(ONE, &all));
    let _next = third.serve(&next);
    let (_standby, _) = other.stand_by(Some(&third.address));
    let result = ask(&remote, READ).recv_timeout(PATIENCE).unwrap();
    assert_eq!(result.unwrap_err().code, Code::AccessDenied);
    assert!(remote.refusal().unwrap().contains("does not know this key"));
}

/// Two standby servers name each other as the owner.
#[test]
fn redirects_in_a_circle_end() {
    let [one, other] = [ONE, OTHER].map(Place::new);
    let (_first, told) = one.stand_by(Some(&other.address));
    let (_second, also_told) = other.stand_by(Some(&one.address));
    let patience = Duration::from_millis(600);
    let refused = Remote::connect(options(&one.address, CLIENT), patience);
    match refused.map(drop).unwrap_err() {
        ConnectError::Refused(refused) => assert_eq!(refused.code, RefusalCode::NotOwner),
        other => panic!("{other}"),
    }
    let [told, also_told] = [told, also_told].map(|count| count.load(Ordering::SeqCst));
    assert!(told < 10 && also_told < 10, "{told} {also_told}");
}

/// A client does not request the list of servers if the volume is not on a shared store.
#[test]
fn a_server_of_no_store_is_asked_nothing() {
    let one = Place::new(ONE);
    let service = WithSessions::of_run(3, None, Owner::new(ONE, &texts(&[&one.address])));
    let _server = one.serve(&service);
    service.store.is_on_store.store(false, Ordering::SeqCst);
    let remote = connect(&one.address);
    // A client requests the list with a tick: two of them pass.
    thread::sleep(Duration::from_millis(600));
    assert_eq!(answered(&ask(&remote, READ)), ONE);
    assert_eq!(service.service.asked.load(Ordering::SeqCst), 0);
}
