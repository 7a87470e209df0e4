//! A server with its own mount and other sessions, in one process.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pelago_client::{At, FilePos, Files};
use pelago_mount::{Atime, IoUring, Keeps, Mount, MountError, MountOptions, Trusts, mount};
use pelago_server::{Options, Passthrough, Server};
use pelago_wire::{
    Bulk, Context, Done, Entry, Error, Handle, Name, NewMode, OpenFlags, OpenId, Operation,
    RecordedPeer, Reply, Request, RequestId, Service, SessionId, SessionRecord, WriteFlags, limits,
};
use tempfile::TempDir;

/// The session beside the mount.
pub(crate) const OTHER: SessionId = SessionId(7);
const RECORD: SessionRecord = SessionRecord::new([7; 16], RecordedPeer::User(0));
const CONTEXT: Context = Context::direct(0, 0);

/// A server, its mount, and another session.
pub(crate) struct World {
    pub(crate) mount: Mount,
    /// The files as the other session sees them.
    pub(crate) other: Files,
    /// The service of the mount.
    pub(crate) watched: Arc<Watched>,
    pub(crate) server: Arc<Server>,
    passthrough: bool,
    dir: Arc<TempDir>,
}

/// A service that counts requests, and can hold back replies.
pub(crate) struct Watched {
    service: Arc<dyn Service>,
    counts: Mutex<HashMap<&'static str, u64>>,
    stall: Arc<Stall>,
}

/// Holds back the replies to lookups, or to creates, of one name.
#[derive(Default)]
pub(crate) struct Stall {
    state: Mutex<StallState>,
    changed: Condvar,
}

#[derive(Default)]
struct StallState {
    name: Option<Name>,
    /// Creates, not lookups.
    creates: bool,
    held: Vec<(Done, Result<Reply, Error>)>,
}

/// Holds back replies; a test that fails meanwhile lets its programs end.
pub(crate) struct Holding<'a>(&'a Stall);

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Sends requests as another session.
struct Beside {
    service: Arc<dyn Service>,
    last: AtomicU64,
}

impl World {
    /// Returns a world whose other session has begun; `None` if nothing can be mounted here.
    pub(crate) fn new(passthrough: bool) -> Option<Self> {
        let world = Self::alone(passthrough)?;
        world.server.session_service().begin_session(OTHER, RECORD).unwrap();
        Some(world)
    }

    /// Returns a world whose other session has not begun.
    pub(crate) fn alone(passthrough: bool) -> Option<Self> {
        Self::start(Arc::new(tempfile::tempdir().unwrap()), passthrough)
    }

    /// Returns the same volume with a kernel that knows nothing of it, and another session.
    pub(crate) fn remounted(self) -> Option<Self> {
        let dir = Arc::clone(&self.dir);
        let passthrough = self.passthrough;
        drop(self);
        let world = Self::start(dir, passthrough)?;
        world.server.session_service().begin_session(OTHER, RECORD).unwrap();
        Some(world)
    }

    fn start(dir: Arc<TempDir>, passthrough: bool) -> Option<Self> {
        let wanted = if passthrough { Passthrough::Always } else { Passthrough::Never };
        let grace = Duration::ZERO;
        let options = Options { passthrough: wanted, grace, ..Options::default() };
        let server = Arc::new(Server::start(&dir.path().join("volume"), options).unwrap());
        let watched = Arc::new(Watched {
            service: server.service(),
            counts: Mutex::default(),
            stall: Arc::default(),
        });
        let point = dir.path().join("files");
        std::fs::create_dir_all(&point).unwrap();
        let options = MountOptions {
            mount_point: point,
            fs_name: "coherence".to_owned(),
            read_only: false,
            atime: Atime::Never,
            trusts: Trusts::default(),
            passthrough,
            inode_table_bytes: limits::INODE_TABLE_BYTES as u64,
            io_uring: IoUring::Never,
            keeps: Keeps::Everything,
        };
        let mount = match mount(Files::new(Arc::clone(&watched) as Arc<dyn Service>), &options) {
            Ok(mount) => mount,
            Err(
                error @ (MountError::NoDevice | MountError::NoPermission(_) | MountError::NoHelper),
            ) => {
                println!("skipped: {error}");
                return None;
            }
            Err(error) => panic!("{error:?}"),
        };
        assert!(server.set_local_cache(mount.local_cache().unwrap()));
        let beside = Beside { service: server.service(), last: AtomicU64::new(0) };
        let other = Files::new(Arc::new(beside));
        Some(Self { mount, other, watched, server, passthrough, dir })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.mount.point().join(name)
    }

    /// Looks up a path from the root, as the other session.
    pub(crate) fn find(&self, path: &str) -> Entry {
        let parts = path.split('/').filter(|part| !part.is_empty());
        let mut dir = self.other.get_attr(&CONTEXT, Handle::ROOT).wait().map(root).unwrap();
        for part in parts {
            dir = self.other.lookup(&CONTEXT, At::new(dir.handle, name(part))).wait().unwrap();
        }
        dir
    }

    /// Returns where a path is, as the other session sees it.
    pub(crate) fn at(&self, path: &str) -> At {
        let (dir, last) = path.rsplit_once('/').unwrap_or(("", path));
        At::new(self.find(dir).handle, name(last))
    }

    /// Opens a file to read and write, as the other session.
    pub(crate) fn open(&self, path: &str) -> OpenId {
        let node = self.find(path).handle;
        self.other.open(&CONTEXT, node, OpenFlags::READ_WRITE).wait().unwrap().open
    }

    /// Creates a file with these bytes and closes it, as the other session.
    pub(crate) fn put(&self, path: &str, bytes: &[u8]) {
        let at = self.at(path);
        let mode = NewMode::exactly(0o644);
        let created = self.other.create(&CONTEXT, at, mode, OpenFlags::READ_WRITE).wait();
        let open = created.unwrap().open;
        self.write(open, 0, bytes);
        self.close(open);
    }

    pub(crate) fn write(&self, open: OpenId, offset: u64, bytes: &[u8]) {
        let to = FilePos { open, offset };
        let written = self.other.write(&CONTEXT, to, bytes, WriteFlags::default()).wait().unwrap();
        assert_eq!(written.bytes, bytes.len() as u64);
    }

    pub(crate) fn close(&self, open: OpenId) {
        self.other.flush(&CONTEXT, open, None).wait().unwrap();
        self.other.release(&CONTEXT, open).wait().unwrap();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _detached = self.mount.detach();
        let _stopped = self.server.stop();
    }
}

impl Watched {
    /// Returns how many requests of this kind came, and begins anew.
    pub(crate) fn take(&self, operation: &str) -> u64 {
        self.counts.lock().remove(operation).unwrap_or(0)
    }

    pub(crate) fn forget_counts(&self) {
        self.counts.lock().clear();
    }

    pub(crate) fn stall(&self) -> &Stall {
        &self.stall
    }
}

impl Stall {
    /// Holds back replies to lookups of this name until the result is dropped.
    pub(crate) fn hold(&self, text: &str) -> Holding<'_> {
        self.begin(text, false)
    }

    /// The same with replies to creates.
    pub(crate) fn hold_create(&self, text: &str) -> Holding<'_> {
        self.begin(text, true)
    }

    fn begin(&self, text: &str, creates: bool) -> Holding<'_> {
        let mut state = self.state.lock();
        state.name = Some(name(text));
        state.creates = creates;
        Holding(self)
    }

    fn hold_back(&self, done: Done, result: Result<Reply, Error>) {
        self.state.lock().held.push((done, result));
        self.changed.notify_all();
    }

    fn holds(&self, wanted: &Name, creates: bool) -> bool {
        let state = self.state.lock();
        state.creates == creates && state.name.as_ref() == Some(wanted)
    }

    /// Waits until a reply is held back.
    pub(crate) fn wait(&self) {
        let mut state = self.state.lock();
        while state.held.is_empty() {
            self.changed.wait(&mut state);
        }
    }

    /// Sends the replies that were held back.
    fn release(&self) {
        let held = {
            let mut state = self.state.lock();
            state.name = None;
            std::mem::take(&mut state.held)
        };
        held.into_iter().for_each(|(done, result)| done(result));
    }
}

impl Service for Watched {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let operation: Operation = request.describe().operation;
        *self.counts.lock().entry(operation.name()).or_insert(0) += 1;
        let wanted = match &request {
            Request::Lookup { name, .. } => self.stall.holds(name, false),
            Request::Create { name, .. } => self.stall.holds(name, true),
            _ => false,
        };
        if !wanted {
            return self.service.ask(context, request, bulk, later);
        }
        let mut hold = || -> Done {
            let stall = Arc::clone(&self.stall);
            let done = later();
            Box::new(move |result| stall.hold_back(done, result))
        };
        if let Some(result) = self.service.ask(context, request, bulk, &mut hold) {
            hold()(result);
        }
        None
    }
}

impl Service for Beside {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let request_id = RequestId(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        let context = Context { session: OTHER, request: request_id, ..*context };
        self.service.ask(&context, request, bulk, later)
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn root(attr: pelago_wire::Attr) -> Entry {
    Entry { handle: Handle::ROOT, attr }
}
