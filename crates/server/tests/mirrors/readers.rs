//! A mirror with readers, and the client of a session that keeps what it is answered.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use pelago_server::Server;
use pelago_wire::mirror::{GroupKind, GroupPart, Groups, RowChange};
use pelago_wire::{
    Attr, Code, Connections, Context, Entry, Handle, LeasedAnswer, Leases, Name, NewMode,
    OpenFlags, OpenId, Recalled, RecordedPeer, RenameFlags, Reply, Request, SessionId,
    SessionRecord, SessionService,
};

use super::World;
use super::primary::{State, changes, group, send};
use crate::harness::requests::{call, call_as, next_open};

pub(crate) const ROOT: Handle = Handle::ROOT;

/// A mirror with its readers, and the connection of its primary.
pub(crate) struct Reading {
    pub(crate) world: World,
    pub(crate) groups: Box<dyn Groups>,
    /// The state that the mirror has.
    pub(crate) state: State,
    pub(crate) number: u64,
}

impl Reading {
    pub(crate) fn new() -> Self {
        Self::of(World::with_mirror())
    }

    pub(crate) fn of(world: World) -> Self {
        let groups = world.offer(1);
        let number = groups.ready().number;
        let state = world.first.clone();
        Self { world, groups, state, number }
    }

    pub(crate) fn reader(&self) -> Arc<Server> {
        self.world.store().reader(self.world.id()).unwrap()
    }

    /// Changes the primary, and has the mirror carry out the group.
    pub(crate) fn change(&mut self, change: impl FnOnce(&Server)) {
        self.send(change);
        self.groups.carry_out().unwrap();
    }

    /// Changes the primary. The group is safe at the mirror, and not carried out.
    pub(crate) fn send(&mut self, change: impl FnOnce(&Server)) {
        let state = self.world.primary.change(change);
        let parts = changes(&self.state, &state);
        self.number += 1;
        send(&mut *self.groups, &group(self.number, GroupKind::Change, &parts));
        self.state = state;
    }

    /// Sends the group of a resync, which replaces all rows.
    pub(crate) fn send_resync(&mut self, before: &State, state: State) {
        let rows = state
            .rows
            .iter()
            .map(|(key, value)| RowChange { key: key.clone(), value: Some(value.clone()) });
        let mut parts = changes(before, &state);
        parts.retain(|part| !matches!(part, GroupPart::Rows(_)));
        for kind in 0..u8::MAX {
            let rows = rows.clone().filter(|row| row.key[0] == kind).collect();
            parts.push(GroupPart::Range { from: vec![kind], until: vec![kind + 1], rows });
        }
        self.number += 1;
        send(&mut *self.groups, &group(self.number, GroupKind::Resync, &parts));
        self.state = state;
    }

    /// Ends everything, and compares all rows and all content with the primary.
    pub(crate) fn expect_equal(mut self) {
        drop(self.groups);
        self.world.expect_mirror(&self.state);
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub(crate) fn make_dir(server: &Server, dir: Handle, text: &str) -> Handle {
    let request = Request::MakeDir { dir, name: name(text), mode: NewMode::exactly(0o755) };
    match call(server, request, &[]).unwrap() {
        Reply::Entry(entry) => entry.handle,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn rename(server: &Server, from: (Handle, &str), to: (Handle, &str)) {
    let request = Request::Rename {
        from_dir: from.0,
        from: name(from.1),
        to_dir: to.0,
        to: name(to.1),
        flags: RenameFlags::Replace,
    };
    call(server, request, &[]).unwrap();
}

pub(crate) fn open(server: &Server, node: Handle) -> OpenId {
    let open = next_open();
    call(server, Request::Open { node, flags: OpenFlags::READ, open }, &[]).unwrap();
    open
}

pub(crate) fn read_at(
    server: &Server,
    open: OpenId,
    offset: u64,
    size: u32,
) -> Result<Vec<u8>, Code> {
    match call(server, Request::Read { open, offset, size }, &[])? {
        Reply::Data(data) => Ok(data.as_bytes().to_vec()),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn attr(server: &Server, node: Handle) -> Result<Attr, Code> {
    match call(server, Request::GetAttr { node }, &[])? {
        Reply::Attr(attr) => Ok(attr),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn bytes(server: &Server, request: Request) -> Vec<u8> {
    match call(server, request, &[]).unwrap() {
        Reply::Bytes(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// Returns the sizes of all files of the mirror's table, which each batch changes.
pub(crate) fn table_files(mirror: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let mut folders = vec![mirror.join("table")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            match meta.is_dir() {
                true => folders.push(entry.path()),
                false => {
                    let modified = format!("{:?}", meta.modified().unwrap());
                    found.push((format!("{} {modified}", entry.path().display()), meta.len()));
                }
            }
        }
    }
    found.sort();
    found
}

/// The connection of a session that keeps what it is answered under leases.
#[derive(Default)]
pub(crate) struct Recalls {
    pub(crate) unanswered: Mutex<Vec<(u64, Recalled)>>,
    pub(crate) all: Mutex<Vec<Recalled>>,
}

impl Connections for Recalls {
    fn suspend(&self) {}

    fn resume(&self) {}

    fn recall(&self, _session: SessionId, number: u64, recalled: &Recalled) {
        self.unanswered.lock().push((number, recalled.clone()));
        self.all.lock().push(recalled.clone());
    }
}

/// Begins a session of a reader.
pub(crate) fn session_of(reader: &Server) -> (Arc<dyn SessionService>, Arc<Recalls>, SessionId) {
    let service = reader.session_service();
    let session = SessionId::new(1, 7);
    service.begin_session(session, SessionRecord::new([1; 16], RecordedPeer::User(0))).unwrap();
    let recalls = Arc::new(Recalls::default());
    let weak: Weak<Recalls> = Arc::downgrade(&recalls);
    service.set_connections(weak);
    (service, recalls, session)
}

/// Carries out a group while the client of a session answers recalls.
pub(crate) fn carry_out(
    reading: &mut Reading,
    service: &dyn SessionService,
    recalls: &Recalls,
    session: SessionId,
) {
    thread::scope(|scope| {
        let carried_out = scope.spawn(|| reading.groups.carry_out().unwrap());
        while !carried_out.is_finished() {
            for (number, _) in std::mem::take(&mut *recalls.unanswered.lock()) {
                service.recalled(session, number);
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Looks up a name in a session, and takes the leases on the answer.
pub(crate) fn leased(
    server: &Server,
    session: SessionId,
    dir: Handle,
    text: &str,
) -> (Entry, Leases) {
    let service = server.session_service();
    let who = Context { session, ..Context::direct(10, 20) };
    let since = service.lease_moment();
    let request = Request::Lookup { dir, name: name(text) };
    let mut result = call_as(server, &who, request, &[]).map_err(Into::into);
    let answer = LeasedAnswer {
        node: None,
        names: Some(dir.ino),
        mutation: 0,
        origin: None,
        opens_for_writing: false,
        result: &mut result,
        changed: None,
    };
    let leases = service.lease(session, since, answer);
    match result.unwrap() {
        Reply::Entry(entry) => (entry, leases),
        other => panic!("{other:?}"),
    }
}
