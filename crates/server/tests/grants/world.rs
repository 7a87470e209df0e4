//! A volume with a shared directory, its roots, and a guest.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use pelago_keynote::{Credential, Principal, Revocation, SharedFolder, policy};
use pelago_net::key::PrivateKey;
use pelago_server::{Options, Server};
use pelago_store::volume::{Volume, VolumeOptions};
use pelago_wire::{
    Bulk, Code, Context, Done, Entry, GuestGrant, GuestRefusal, Handle, InodeId, Name, NewMode,
    OpenFlags, OpenId, RenameFlags, Reply, Request, RequestId, SessionId,
};
use tempfile::TempDir;

use crate::harness::rig::DEADLINE;

pub(crate) const ROOT_KEY: u8 = 1;
pub(crate) const GUEST_KEY: u8 = 2;
pub(crate) const GUEST: SessionId = SessionId(1 << 33);

pub(crate) fn key(number: u8) -> PrivateKey {
    PrivateKey::from_seed([number; 32])
}

pub(crate) fn principal(number: u8) -> Principal {
    Principal(*key(number).public().as_bytes())
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// A server of a volume with this tree, whose directory `docs` is shared:
/// `docs/file`, `docs/sub/deep`, `secret/file`.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) docs: Handle,
    pub(crate) secret: Handle,
    pub(crate) volume: [u8; 16],
    _folder: TempDir,
    dir: PathBuf,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("v");
        let volume = Volume::create(&dir, VolumeOptions::default()).unwrap().id().0;
        let server = Server::start(&dir, Options::default()).unwrap();
        let at = Handle::ROOT;
        let mut world = Self { server, docs: at, secret: at, volume, _folder: folder, dir };
        world.write_policy(&policy(&[principal(ROOT_KEY)], &[]).unwrap());
        world.docs = world.make_dir(Handle::ROOT, "docs");
        world.secret = world.make_dir(Handle::ROOT, "secret");
        let sub = world.make_dir(world.docs, "sub");
        world.put(world.docs, "file", b"shown");
        world.put(sub, "deep", b"deep");
        world.put(world.secret, "file", b"secret");
        world
    }

    /// A world with a guest of `docs`.
    pub(crate) fn with_guest() -> Self {
        let world = Self::new();
        let grant = world.admit(&world.credential()).unwrap();
        world.server.session_service().begin_guest(GUEST, &grant).unwrap();
        world
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Stops the server, and starts it again.
    pub(crate) fn restart(&mut self) {
        self.server.stop().unwrap();
        self.server = Server::start(&self.dir, Options::default()).unwrap();
    }

    pub(crate) fn write_policy(&self, text: &str) {
        let new = self.dir.join("policy.new");
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(new, self.dir.join("policy")).unwrap();
    }

    /// Returns the credential of the guest.
    pub(crate) fn credential(&self) -> String {
        self.credential_of(self.docs.ino)
    }

    pub(crate) fn credential_of(&self, directory: InodeId) -> String {
        let share = SharedFolder { volume: self.volume, directory: directory.raw() };
        sign(ROOT_KEY, GUEST_KEY, share)
    }

    /// Returns the sentence by which a root takes this credential back.
    pub(crate) fn revocation(&self, credential: &str, by: u8) -> Vec<u8> {
        let credential = pelago_keynote::Assertion::parse(credential.as_bytes()).unwrap();
        let signing = key(by).signing_key();
        Revocation::sign(self.volume, credential.id(), 7, &signing).into_bytes()
    }

    pub(crate) fn admit(&self, credential: &str) -> Result<GuestGrant, GuestRefusal> {
        let chain = [credential.as_bytes().to_vec()];
        self.server.session_service().admit_guest(key(GUEST_KEY).public().as_bytes(), &chain)
    }

    pub(crate) fn ask(&self, who: &Context, request: Request, bytes: &[u8]) -> Result<Reply, Code> {
        let (sender, replies) = std::sync::mpsc::channel();
        let mut later = || -> Done {
            let sender = sender.clone();
            Box::new(move |reply| sender.send(reply).unwrap())
        };
        let bulk = if bytes.is_empty() { Bulk::None } else { Bulk::Borrowed(bytes) };
        if let Some(now) = self.server.service().ask(who, request, bulk, &mut later) {
            return now.map_err(|error| error.code);
        }
        replies.recv_timeout(DEADLINE).unwrap().map_err(|error| error.code)
    }

    /// Asks as the owner.
    pub(crate) fn own(&self, request: Request) -> Result<Reply, Code> {
        self.ask(&Context::direct(0, 0), request, &[])
    }

    /// Asks as the guest.
    pub(crate) fn guest(&self, request: Request) -> Result<Reply, Code> {
        self.ask(&guest_context(), request, &[])
    }

    pub(crate) fn entry(&self, dir: Handle, text: &str) -> Entry {
        match self.own(Request::Lookup { dir, name: name(text) }) {
            Ok(Reply::Entry(entry)) => entry,
            other => panic!("{text}: {other:?}"),
        }
    }

    pub(crate) fn make_dir(&self, dir: Handle, text: &str) -> Handle {
        let mode = NewMode::exactly(0o700);
        match self.own(Request::MakeDir { dir, name: name(text), mode }) {
            Ok(Reply::Entry(entry)) => entry.handle,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// Creates, writes and closes a file.
    pub(crate) fn put(&self, dir: Handle, text: &str, bytes: &[u8]) -> Handle {
        let entry = crate::harness::requests::put(&self.server, dir, text, bytes);
        entry.unwrap();
        self.entry(dir, text).handle
    }

    pub(crate) fn rename(&self, from_dir: Handle, from: &str, to_dir: Handle, to: &str) {
        let flags = RenameFlags::Replace;
        let request = Request::Rename { from_dir, from: name(from), to_dir, to: name(to), flags };
        self.own(request).unwrap();
    }

    /// Opens a file as the guest.
    pub(crate) fn open(&self, node: Handle, open: OpenId) -> Result<Reply, Code> {
        self.guest(Request::Open { node, flags: OpenFlags::READ, open })
    }

    /// Reads what the guest has open.
    pub(crate) fn read(&self, open: OpenId) -> Result<Vec<u8>, Code> {
        match self.guest(Request::Read { open, offset: 0, size: 100 })? {
            Reply::Data(bytes) => Ok(bytes.as_bytes().to_vec()),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn guest_context() -> Context {
    Context { session: GUEST, request: RequestId(1), ..Context::direct(0, 0) }
}

/// Signs a credential for a share.
pub(crate) fn sign(by: u8, to: u8, share: SharedFolder) -> String {
    let conditions = share.conditions();
    let credential = Credential { comment: &[], licensee: principal(to), conditions: &conditions };
    credential.sign(&key(by).signing_key()).unwrap()
}

/// Returns the error of an answer, if it is one.
pub(crate) fn done(result: Result<Reply, Code>) -> Result<(), Code> {
    result.map(drop)
}
