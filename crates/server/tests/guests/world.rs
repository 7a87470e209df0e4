//! The world of the tests of guests: a server of a volume whose folder has a policy.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use pelago_keynote::{Assertion, Conditions, Credential, Grant, Principal, policy};
use pelago_net::key::PrivateKey;
use pelago_server::{Options, Parts, Server};
use pelago_store::clock;
use pelago_store::content::ContentStore;
use pelago_store::folder::Folder;
use pelago_store::hash::NameHasher;
use pelago_store::table::SharedTable;
use pelago_store::volume::{Format, VolumeId};
use pelago_wire::{
    Attr, Bulk, Code, Context, Cookie, Done, Entry, FileKind, GuestGrant, GuestRefusal, Handle,
    InodeId, NewMode, OpenFlags, OpenId, RecordedPeer, RenameFlags, Reply, Request, RequestId,
    SessionId, SessionRecord, ShardId, Time,
};

use crate::harness::requests::{self, next_open};
use crate::harness::rig::{DEADLINE, entry, name};

/// Longer than a file `policy` is in force after it was changed.
pub(super) const POLICY_DELAY: Duration = Duration::from_millis(600);

/// The volume in a shared store.
const SHARED_STORE: VolumeId = VolumeId([7; 16]);

/// A served volume with a root.
pub(super) struct World {
    pub(super) server: Server,
    pub(super) volume: [u8; 16],
    dir: PathBuf,
    folder: tempfile::TempDir,
}

/// A guest with a session.
#[derive(Clone, Copy)]
pub(super) struct Guest {
    pub(super) grant: GuestGrant,
    pub(super) session: SessionId,
}

/// Returns the key with this number. The root of a volume has number 1.
pub(super) fn key(number: u8) -> PrivateKey {
    PrivateKey::from_seed([number; 32])
}

pub(super) fn principal(number: u8) -> Principal {
    Principal(*key(number).public().as_bytes())
}

/// Returns a number that no other request of any session has.
pub(super) fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl World {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("volume");
        let server = Server::start(&dir, options()).unwrap();
        let volume = server.session_service().served().volume;
        let world = Self { server, volume, dir, folder };
        world.set_policy(&policy(&[principal(1)], &[]).unwrap());
        world
    }

    /// Serves a new volume over this table, with its content files in a store that other servers
    /// may share. It has no policy yet.
    pub(super) fn on_shared_store(table: SharedTable, options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("volume");
        fs::create_dir(&dir).unwrap();
        let format = Format {
            id: SHARED_STORE,
            inline_bytes: 0,
            needed_features: 0,
            optional_features: 0,
            site: 0,
            shards: 1,
        };
        fs::write(dir.join("format"), format.encode()).unwrap();
        let server = serve_on_shared_store(table, &dir, options);
        Self { server, volume: SHARED_STORE.0, dir, folder }
    }

    /// Ends the server, and starts the next one over this table.
    pub(super) fn restarted_on_shared_store(self, table: SharedTable, options: Options) -> Self {
        let Self { server, volume, dir, folder } = self;
        server.stop().unwrap();
        drop(server);
        let server = serve_on_shared_store(table, &dir, options);
        Self { server, volume, dir, folder }
    }

    /// Ends the server, and starts the next one.
    pub(super) fn restarted(self) -> Self {
        let Self { server, volume, dir, folder } = self;
        server.stop().unwrap();
        drop(server);
        let server = Server::start(&dir, options()).unwrap();
        Self { server, volume, dir, folder }
    }

    /// Returns the path of a file in the folder of the volume.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Puts this text in the place of the policy.
    pub(super) fn set_policy(&self, text: &str) {
        fs::write(self.file("policy.new"), text).unwrap();
        fs::rename(self.file("policy.new"), self.file("policy")).unwrap();
    }

    /// Returns the credential by which the root shares a directory with the key of this number.
    pub(super) fn credential(&self, number: u8, directory: InodeId) -> String {
        self.signed(1, number, &self.to_read(directory))
    }

    /// Returns the right to read a directory.
    pub(super) fn to_read(&self, directory: InodeId) -> Grant {
        Grant::to_read(self.volume, directory.raw())
    }

    /// Returns a credential signed by the first key for the second.
    pub(super) fn signed(&self, by: u8, number: u8, share: &Grant) -> String {
        conditioned(by, number, &share.conditions())
    }

    pub(super) fn admit(&self, number: u8, chain: &[&str]) -> Result<GuestGrant, GuestRefusal> {
        self.admit_at(number, chain, None)
    }

    /// Returns the grant of a guest at an address.
    pub(super) fn admit_at(
        &self,
        number: u8,
        chain: &[&str],
        address: Option<IpAddr>,
    ) -> Result<GuestGrant, GuestRefusal> {
        let chain: Vec<Vec<u8>> = chain.iter().map(|text| text.as_bytes().to_vec()).collect();
        self.server.session_service().admit_guest(&principal(number).0, &chain, address)
    }

    /// Begins the session of the guest with this key, for a directory.
    pub(super) fn guest(&self, number: u8, directory: InodeId) -> Guest {
        let grant = self.admit(number, &[&self.credential(number, directory)]).unwrap();
        self.begin(grant).unwrap()
    }

    pub(super) fn begin(&self, grant: GuestGrant) -> Result<Guest, GuestRefusal> {
        let service = self.server.session_service();
        let number = u32::try_from(next_number()).unwrap();
        let session = SessionId::new(service.served().epoch, number);
        let record = SessionRecord::new([0; 16], RecordedPeer::Guest(grant.principal));
        service.begin_guest(session, &grant, &record)?;
        Ok(Guest { grant, session })
    }

    /// Asks as a guest, with a number that a connection would give.
    pub(super) fn ask(&self, guest: &Guest, request: Request) -> Result<Reply, Code> {
        self.ask_as(&guest.context(&request), request)
    }

    /// Asks as anyone, and waits for the answer.
    pub(super) fn ask_as(&self, who: &Context, request: Request) -> Result<Reply, Code> {
        let (sender, replies) = mpsc::channel();
        let mut later = || -> Done {
            let sender = sender.clone();
            Box::new(move |reply| sender.send(reply).unwrap())
        };
        let bulk = match request.has_bulk() {
            true => Bulk::Borrowed(b"new bytes"),
            false => Bulk::None,
        };
        let reply = match self.server.service().ask(who, request, bulk, &mut later) {
            Some(reply) => reply,
            None => replies.recv_timeout(DEADLINE).unwrap(),
        };
        reply.map_err(|error| error.code)
    }

    /// Asks as the server's own mount.
    pub(super) fn call(&self, request: Request) -> Result<Reply, Code> {
        requests::call(&self.server, request, &[])
    }

    pub(super) fn make_dir(&self, dir: Handle, text: &str) -> Handle {
        let mode = NewMode::exactly(0o755);
        let made = self.call(Request::MakeDir { dir, name: name(text), mode });
        entry(made.unwrap()).unwrap().handle
    }

    /// Creates a file with these bytes. Returns its handle.
    pub(super) fn put(&self, dir: Handle, text: &str, bytes: &[u8]) -> Handle {
        requests::put(&self.server, dir, text, bytes).unwrap();
        requests::lookup(&self.server, dir, text).unwrap().handle
    }

    /// Writes bytes from the start of a file.
    pub(super) fn write(&self, node: Handle, bytes: &[u8]) {
        let open = next_open();
        self.call(Request::Open { node, flags: OpenFlags::READ_WRITE, open }).unwrap();
        requests::write(&self.server, open, 0, bytes).unwrap();
        requests::close(&self.server, open).unwrap();
    }

    /// Moves `text` from one directory to another.
    pub(super) fn rename(&self, from_dir: Handle, to_dir: Handle, text: &str) {
        let from = name(text);
        let to = name(text);
        let flags = RenameFlags::NoReplace;
        self.call(Request::Rename { from_dir, from, to_dir, to, flags }).unwrap();
    }

    pub(super) fn unlink(&self, dir: Handle, text: &str) {
        requests::unlink(&self.server, dir, text).unwrap();
    }

    pub(super) fn link(&self, node: Handle, dir: Handle, text: &str) {
        self.call(Request::Link { node, dir, name: name(text) }).unwrap();
    }

    /// Opens a file as a guest.
    pub(super) fn open(&self, guest: &Guest, node: Handle) -> Result<OpenId, Code> {
        let open = next_open();
        match self.ask(guest, Request::Open { node, flags: OpenFlags::READ, open })? {
            Reply::Opened { .. } => Ok(open),
            other => panic!("{other:?}"),
        }
    }

    /// Reads the first bytes of an open of a guest.
    pub(super) fn read(&self, guest: &Guest, open: OpenId) -> Result<Vec<u8>, Code> {
        match self.ask(guest, Request::Read { open, offset: 0, size: 1 << 20 })? {
            Reply::Data(buffer) => Ok(buffer.as_bytes().to_vec()),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn attr(&self, guest: &Guest, node: Handle) -> Result<Attr, Code> {
        match self.ask(guest, Request::GetAttr { node })? {
            Reply::Attr(attr) => Ok(attr),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn lookup(&self, guest: &Guest, dir: Handle, text: &str) -> Result<Entry, Code> {
        entry(self.ask(guest, Request::Lookup { dir, name: name(text) })?)
    }

    /// Returns the names that a guest finds in a directory, each with `true` if its attributes are
    /// shown.
    pub(super) fn listed(&self, guest: &Guest, dir: Handle) -> Result<Vec<(String, bool)>, Code> {
        let after = Cookie::START;
        let request = Request::List { dir, after, behind: None, entries: 1000, attributes: true };
        let Reply::Listed { entries, end: true } = self.ask(guest, request)? else {
            panic!("a short listing");
        };
        let shown = entries.into_iter();
        let mut shown: Vec<_> =
            shown.map(|listed| (listed.name.to_string(), listed.entry.is_some())).collect();
        shown.sort();
        Ok(shown)
    }

    /// Returns the root's credential for a directory that ends after this number of seconds, by
    /// the clock of the server.
    pub(super) fn until(&self, directory: InodeId, seconds: i64) -> String {
        let until = Some(self.digits_in(seconds));
        self.signed(1, 2, &Grant { until, ..self.to_read(directory) })
    }

    /// Returns the time after this number of seconds, as the attribute `now` has it.
    pub(super) fn digits_in(&self, seconds: i64) -> String {
        let end = clock::now().seconds + seconds;
        let end = time::OffsetDateTime::from_unix_timestamp(end).unwrap();
        let month = u8::from(end.month());
        let time = format!("{:02}{:02}{:02}", end.hour(), end.minute(), end.second());
        format!("{:04}{month:02}{:02}{time}", end.year(), end.day())
    }

    /// Returns a credential with this text as its conditions.
    pub(super) fn written(&self, by: u8, number: u8, conditions: &str) -> String {
        let policy = format!(
            "KeyNote-Version: 2\nAuthorizer: \"POLICY\"\nLicensees: \"{}\"\n\
             Conditions: {conditions}\n",
            principal(number)
        );
        let policy = Assertion::policy(policy.as_bytes()).unwrap();
        conditioned(by, number, policy.conditions().unwrap())
    }

    /// Returns all that programs see of the volume, except the times of the last reads.
    pub(super) fn seen(&self) -> BTreeMap<String, String> {
        let mut seen = BTreeMap::new();
        self.walk(Handle::ROOT, "", &mut seen);
        seen
    }

    fn walk(&self, dir: Handle, path: &str, seen: &mut BTreeMap<String, String>) {
        let after = Cookie::START;
        let request = Request::List { dir, after, behind: None, entries: 1000, attributes: true };
        let Reply::Listed { entries, end: true } = self.call(request).unwrap() else {
            panic!("a short listing");
        };
        for listed in entries {
            let Entry { handle, attr } = listed.entry.unwrap();
            let path = format!("{path}/{}", listed.name);
            let never = Time { seconds: 0, nanos: 0 };
            let attr = Attr { atime: never, volatile: false, ..attr };
            let xattrs = self.call(Request::ListXattr { node: handle });
            let bytes = self.bytes(&attr, handle);
            seen.insert(path.clone(), format!("{attr:?} {xattrs:?} {bytes:?}"));
            if attr.kind == FileKind::Directory {
                self.walk(handle, &path, seen);
            }
        }
    }

    fn bytes(&self, attr: &Attr, node: Handle) -> Vec<u8> {
        if attr.kind != FileKind::Regular {
            return Vec::new();
        }
        let open = next_open();
        self.call(Request::Open { node, flags: OpenFlags::READ, open }).unwrap();
        let read = self.call(Request::Read { open, offset: 0, size: 4096 }).unwrap();
        let Reply::Data(data) = read else { panic!("a read answers `Data`") };
        requests::close(&self.server, open).unwrap();
        data.as_bytes().to_vec()
    }
}

impl Guest {
    /// Returns the context of one of its requests.
    pub(super) fn context(&self, request: &Request) -> Context {
        let number = next_number();
        let mutation = if request.is_mutation() { number } else { 0 };
        let request = RequestId(number);
        Context { session: self.session, request, mutation, ..Context::direct(0, 0) }
    }
}

/// Returns a credential with any conditions.
pub(super) fn conditioned(by: u8, number: u8, conditions: &Conditions) -> String {
    let credential = Credential { comment: &[], licensee: principal(number), conditions };
    credential.sign(&key(by).signing_key()).unwrap()
}

fn serve_on_shared_store(table: SharedTable, dir: &Path, options: Options) -> Server {
    let parts = Parts {
        table,
        content: Arc::new(ContentStore::open(dir).unwrap().shared()),
        volume: SHARED_STORE,
        shard: ShardId::FIRST,
        hasher: NameHasher::new(7),
    };
    Server::start_on_with_guests(parts, options, Folder::open(dir).unwrap()).unwrap()
}

fn options() -> Options {
    Options { grace: Duration::ZERO, ..Options::default() }
}
