//! A server over the fake table, and its clients.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use pelago_net::{ClientRole, Remote, RemoteOptions, ServerTarget, SessionServer};
use pelago_server::Options;
use pelago_wire::{
    Attr, Bulk, Code, Context, Done, Entry, Handle, InodeId, LocalCache, NewMode, OpenFlags,
    OpenId, RenameFlags, Reply, Request, Service, Then, Touched, WriteFlags,
};

use crate::harness::requests::next_open;
use crate::harness::rig::{DEADLINE, Rig, by_hand, name};
use crate::replay::relay::Relay;

pub(crate) const ROOT: Handle = Handle::ROOT;

/// A server that clients of other processes reach.
pub(crate) struct Served {
    pub(crate) rig: Rig,
    sessions: SessionServer,
    socket: PathBuf,
    pub(crate) kernel: Arc<Kernel>,
    _folder: tempfile::TempDir,
}

/// Without timed group commits; sessions of the last run are waited for.
pub(crate) fn options() -> Options {
    Options { grace: Duration::from_secs(20), ..by_hand() }
}

/// The kernel below the server's own mount. It has nothing cached, so that it needs no time.
#[derive(Default)]
pub(crate) struct Kernel {
    /// Names that it was to forget.
    pub(crate) names: AtomicUsize,
}

impl LocalCache for Kernel {
    fn drop_all(&self, _nodes: &[InodeId]) {}

    fn set_shared(&self, _: bool) {}

    fn begin(&self, changes: &Arc<[Touched]>, then: Then) {
        let names = changes.iter().filter(|touched| matches!(touched, Touched::Name { .. }));
        self.names.fetch_add(names.count(), Ordering::Relaxed);
        then();
    }

    fn end(&self, _: &[Touched]) {}

    fn bytes_changed(&self, _: InodeId) {}

    fn when_dropped(&self, _: &[Touched], then: Then) {
        then();
    }
}

fn listen(rig: &Rig, socket: &Path, kernel: &Arc<Kernel>) -> SessionServer {
    assert!(rig.server.set_local_cache(Arc::clone(kernel) as Arc<dyn LocalCache>));
    let sessions = SessionServer::start(rig.server.session_service()).unwrap();
    sessions.listen_unix(socket).unwrap();
    sessions
}

impl Served {
    pub(crate) fn new() -> Self {
        let rig = Rig::new(options());
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let kernel = Arc::default();
        let sessions = listen(&rig, &socket, &kernel);
        Self { rig, sessions, socket, kernel, _folder: folder }
    }

    /// Connects a client. Its session is safe when this returns.
    pub(crate) fn client(&self) -> Client {
        let client = self.unsafe_client();
        self.rig.sync();
        client
    }

    /// Connects a client. Its session is not safe.
    pub(crate) fn unsafe_client(&self) -> Client {
        Client::over(&self.socket)
    }

    /// Connects a client by something that loses answers. Its session is safe when this returns.
    pub(crate) fn client_behind_a_relay(&self) -> (Client, Relay) {
        let relay = Relay::new(&self.socket);
        let client = Client::over(&relay.socket);
        self.rig.sync();
        (client, relay)
    }
    /// The machine loses power: the first `keep` batches that are not safe are left. The next run
    /// waits for the clients that live.
    pub(crate) fn cut(self, keep: usize, options: Options) -> Self {
        let Self { rig, sessions, socket, _folder, .. } = self;
        drop(sessions);
        let next = rig.crashed(keep, options);
        drop(rig);
        let kernel = Arc::default();
        let sessions = listen(&next, &socket, &kernel);
        Self { rig: next, sessions, socket, kernel, _folder }
    }

    pub(crate) fn is_all_safe(&self) -> bool {
        let progress = self.rig.server.status().progress;
        progress.safe == progress.done
    }
}

pub(crate) struct Client {
    pub(crate) remote: Remote,
}

impl Client {
    fn over(socket: &Path) -> Self {
        let target = ServerTarget::Unix(socket.to_owned());
        let options =
            RemoteOptions { target, read_only: false, role: ClientRole::Client, give_up: None };
        Self { remote: Remote::connect(options, DEADLINE).unwrap() }
    }

    pub(crate) fn ask(&self, request: Request, bytes: &[u8]) -> Result<Reply, Code> {
        let (send, replies) = mpsc::channel();
        let mut later = || -> Done {
            let send = send.clone();
            Box::new(move |reply| drop(send.send(reply)))
        };
        let bulk = if bytes.is_empty() { Bulk::None } else { Bulk::Borrowed(bytes) };
        let context = Context::direct(10, 20);
        if let Some(now) = self.remote.ask(&context, request, bulk, &mut later) {
            return now.map_err(|error| error.code);
        }
        replies.recv_timeout(DEADLINE).unwrap().map_err(|error| error.code)
    }

    pub(crate) fn entry(&self, request: Request) -> Result<Entry, Code> {
        match self.ask(request, &[])? {
            Reply::Entry(entry) | Reply::Created { entry, .. } => Ok(entry),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn attr(&self, request: Request) -> Attr {
        match self.ask(request, &[]).unwrap() {
            Reply::Attr(attr) => attr,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn make_dir(&self, dir: Handle, text: &str) -> Entry {
        let mode = NewMode::exactly(0o755);
        self.entry(Request::MakeDir { dir, name: name(text), mode }).unwrap()
    }

    pub(crate) fn lookup(&self, dir: Handle, text: &str) -> Result<Entry, Code> {
        self.entry(Request::Lookup { dir, name: name(text) })
    }

    pub(crate) fn create(&self, dir: Handle, text: &str) -> (Entry, OpenId) {
        let mode = NewMode::exactly(0o644);
        let flags = OpenFlags::READ_WRITE;
        let open = next_open();
        let entry = self.entry(Request::Create { dir, name: name(text), mode, flags, open });
        (entry.unwrap(), open)
    }

    pub(crate) fn open(&self, node: Handle, flags: OpenFlags) -> OpenId {
        let open = next_open();
        self.ask(Request::Open { node, flags, open }, &[]).unwrap();
        open
    }

    pub(crate) fn write(&self, open: OpenId, offset: u64, bytes: &[u8]) {
        let request = Request::Write { open, offset, flags: WriteFlags::NONE };
        self.ask(request, bytes).unwrap();
    }

    pub(crate) fn read(&self, open: OpenId) -> Vec<u8> {
        match self.ask(Request::Read { open, offset: 0, size: 1 << 16 }, &[]).unwrap() {
            Reply::Data(bytes) => bytes.as_bytes().to_vec(),
            other => panic!("{other:?}"),
        }
    }

    /// Reads a file by an open of its own.
    pub(crate) fn bytes(&self, node: Handle) -> Vec<u8> {
        let open = self.open(node, OpenFlags::READ);
        let bytes = self.read(open);
        self.close(open);
        bytes
    }

    pub(crate) fn close(&self, open: OpenId) {
        self.ask(Request::Flush { open, owner: None }, &[]).unwrap();
        self.ask(Request::Release { open }, &[]).unwrap();
    }

    pub(crate) fn rename(&self, from_dir: Handle, from: &str, to_dir: Handle, to: &str) {
        let from = name(from);
        let to = name(to);
        let flags = RenameFlags::NoReplace;
        self.ask(Request::Rename { from_dir, from, to_dir, to, flags }, &[]).unwrap();
    }
}
