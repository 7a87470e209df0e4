//! Requests of sessions other than that of the server's own mount.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_meta::shard::{NewInode, Shard};
use pelago_store::key;
use pelago_store::rows::Row as _;
use pelago_store::table::{self, TableRead as _};
use pelago_wire::{
    AllocateMode, Bulk, Code, Context, Done, Entry, Error, Handle, InodeId, LeasedAnswer, Leases,
    LocalCache, NewMode, OpenFlags, OpenId, RecordedPeer, RenameFlags, Reply, Request, RequestId,
    Service, SessionId, SessionRecord, SessionService, Then, Touched, WriteEra,
};

use crate::testing::{BOTH, ROOT, Rig, answer, at, name};

const SESSION: SessionId = SessionId(7);

/// The cache of the server's own mount, in which nothing is kept.
struct EmptyCache;

impl LocalCache for EmptyCache {
    fn drop_all(&self, _nodes: &[InodeId]) {}

    fn set_shared(&self, _: bool) {}

    fn begin(&self, _: &Arc<[Touched]>, then: Then) {
        then();
    }

    fn end(&self, _: &[Touched]) {}

    fn bytes_changed(&self, _: InodeId) {}

    fn when_dropped(&self, _: &[Touched], then: Then) {
        then();
    }
}

/// Returns the context of a request that may be repeated.
fn asks(session: SessionId, number: u64) -> Context {
    let request = RequestId(number);
    Context { session, request, mutation: number, ..Context::direct(10, 20) }
}

fn begin(rig: &Rig, session: SessionId) {
    let record = SessionRecord::new([0; 16], RecordedPeer::User(0));
    rig.router.begin_session(session, record).unwrap();
}

fn call(rig: &Rig, context: &Context, request: Request) -> Result<Reply, Code> {
    answer(&begin_by(rig, context, request))
}

fn begin_by(rig: &Rig, context: &Context, request: Request) -> Receiver<Result<Reply, Error>> {
    let (send, reply) = channel();
    let mut later = || -> Done {
        let send = send.clone();
        Box::new(move |answer| drop(send.send(answer)))
    };
    if let Some(now) = rig.router.ask(context, request, Bulk::None, &mut later) {
        later()(now);
    }
    reply
}

/// Its client does not release what it could not open.
#[test]
fn an_open_that_failed_leaves_nothing_open() {
    let rig = Rig::new();
    begin(&rig, SESSION);
    let node = rig.file("f", b"bytes").handle;
    rig.commit.run().unwrap();
    let flags = OpenFlags { truncate: true, ..BOTH };
    let open = Request::Open { node, flags, open: OpenId(1) };
    for failing in 0..2 {
        // First the commit of the truncation fails, then the batch with the reply.
        rig.table.fail_at(failing, table::Error::NoSpace);
        let failed = call(&rig, &asks(SESSION, 1), open.clone());
        assert_eq!(failed.err(), Some(Code::NoSpace), "write {failing}");
        assert_eq!(rig.opens.count(), 0, "write {failing}");
    }
    call(&rig, &asks(SESSION, 1), open).unwrap();
    assert_eq!(rig.opens.count(), 1);
}

/// Returns a directory in the root, with a file.
fn directory(rig: &Rig, context: &Context, file: &str) -> Handle {
    let make = Request::MakeDir { dir: ROOT, name: name("d"), mode: NewMode::exactly(0o755) };
    let Ok(Reply::Entry(Entry { handle: dir, .. })) = call(rig, context, make) else {
        panic!("it is made")
    };
    let make = Request::Symlink { dir, name: name(file), target: b"to".to_vec() };
    let again = Context { mutation: context.mutation + 1, ..*context };
    call(rig, &again, make).unwrap();
    dir
}

/// Its answer was lost, and then another session removed the directory.
#[test]
fn a_repeated_removal_is_answered_although_its_directory_is_gone() {
    let rig = Rig::new();
    begin(&rig, SESSION);
    let dir = directory(&rig, &asks(SESSION, 1), "x");
    let unlink = Request::Unlink { dir, name: name("x") };
    call(&rig, &asks(SESSION, 3), unlink.clone()).unwrap();
    rig.commit.run().unwrap();
    rig.call(Request::RemoveDir { dir: ROOT, name: name("d") }).unwrap();
    assert!(matches!(call(&rig, &asks(SESSION, 3), unlink.clone()), Ok(Reply::Removed(_))));
    assert_eq!(call(&rig, &asks(SESSION, 4), unlink).err(), Some(Code::Stale), "another one");
}

/// Its answer was lost with the last run, and its file cannot be opened again.
#[test]
fn a_repeated_write_is_answered_although_its_open_is_gone() {
    let rig = Rig::new();
    begin(&rig, SESSION);
    rig.router.others().set_cache(Arc::new(EmptyCache));
    let dir = ROOT;
    let mode = NewMode::exactly(0o644);
    let open = OpenId(1);
    let create = Request::Create { dir, name: name("f"), mode, flags: BOTH, open };
    call(&rig, &asks(SESSION, 1), create).unwrap();
    let allocate = AllocateMode::Reserve { keep_size: false };
    let allocate = Request::Allocate { open, offset: 0, length: 9, mode: allocate };
    call(&rig, &asks(SESSION, 2), allocate.clone()).unwrap();
    call(&rig, &asks(SESSION, 3), Request::Release { open }).unwrap();
    assert!(matches!(call(&rig, &asks(SESSION, 2), allocate.clone()), Ok(Reply::Done)));
    assert_eq!(call(&rig, &asks(SESSION, 4), allocate).err(), Some(Code::BadOpen));
}

/// A cache beside which a name leads to another file each time that a change of it was announced.
struct Replacing {
    shard: Arc<Shard>,
    /// The inodes whose changes have begun, and not ended.
    marked: Mutex<Vec<InodeId>>,
    /// Those whose changes have ended.
    ended: Mutex<Vec<InodeId>>,
    replaced: AtomicUsize,
}

impl LocalCache for Replacing {
    fn drop_all(&self, _nodes: &[InodeId]) {}

    fn set_shared(&self, _: bool) {}

    fn begin(&self, changes: &Arc<[Touched]>, then: Then) {
        let is_name = |touched: &&Touched| matches!(touched, Touched::Name { .. });
        if let Some(Touched::Name { name, .. }) = changes.iter().find(is_name) {
            self.replaced.fetch_add(1, Ordering::Relaxed);
            let by = asks(SESSION, 0);
            let now = at(5);
            self.shard.unlink(ROOT, name, now).unwrap();
            let new = NewInode::file(NewMode::exactly(0o644));
            self.shard.create(&by, ROOT, name, new, now).unwrap();
        }
        self.marked.lock().extend(nodes(changes));
        then();
    }

    fn end(&self, changes: &[Touched]) {
        for ino in nodes(changes) {
            let mut marked = self.marked.lock();
            let at = marked.iter().position(|other| *other == ino).unwrap();
            marked.swap_remove(at);
            self.ended.lock().push(ino);
        }
    }

    fn bytes_changed(&self, _: InodeId) {}

    fn when_dropped(&self, _: &[Touched], then: Then) {
        then();
    }
}

fn nodes(changes: &[Touched]) -> impl Iterator<Item = InodeId> + '_ {
    changes.iter().filter_map(|touched| match touched {
        Touched::Node(ino) => Some(*ino),
        _ => None,
    })
}

/// However often others replace what a name leads to, its removal and its replacement succeed, and
/// the cache is told of the file that they hit.
#[test]
fn a_name_that_is_replaced_all_the_time_can_be_removed_and_renamed() {
    let rig = Rig::new();
    begin(&rig, SESSION);
    let by = asks(SESSION, 0);
    let file = |text: &str| {
        let new = NewInode::file(NewMode::exactly(0o644));
        rig.shard.create(&by, ROOT, &name(text), new, at(4)).unwrap();
    };
    file("f");
    let [marked, ended] = Default::default();
    let shard = Arc::clone(&rig.shard);
    let replaced = AtomicUsize::new(0);
    let cache = Arc::new(Replacing { shard, marked, ended, replaced });
    rig.router.others().set_cache(Arc::clone(&cache) as Arc<dyn LocalCache>);
    let removed = call(&rig, &asks(SESSION, 1), Request::Unlink { dir: ROOT, name: name("f") });
    let Ok(Reply::Removed(attr)) = removed else { panic!("{removed:?}") };
    assert!(cache.ended.lock().contains(&attr.ino), "the cache is told of it");
    assert!(cache.replaced.load(Ordering::Relaxed) > 1, "it was tried again");
    file("from");
    let from = name("from");
    let to = name("to");
    let rename =
        Request::Rename { from_dir: ROOT, from, to_dir: ROOT, to, flags: RenameFlags::Replace };
    let renamed = call(&rig, &asks(SESSION, 2), rename);
    let Ok(Reply::Renamed { moved, .. }) = renamed else { panic!("{renamed:?}") };
    assert!(cache.ended.lock().contains(&moved.ino), "the cache is told of it");
    assert!(cache.marked.lock().is_empty(), "each change has ended");
}

/// It is lost with what it builds on, and is not repeated: to wait would keep nothing.
#[test]
fn the_server_s_own_mount_waits_for_no_change_of_others() {
    let rig = Rig::new();
    begin(&rig, SESSION);
    let dir = directory(&rig, &asks(SESSION, 1), "x");
    let unlink = Request::Unlink { dir, name: name("x") };
    let reply = rig.begin(unlink, &[]).try_recv();
    assert!(matches!(reply, Ok(Ok(Reply::Removed(_)))), "{reply:?}");
    let theirs = Request::RemoveDir { dir: ROOT, name: name("d") };
    let reply = begin_by(&rig, &asks(SESSION, 3), theirs);
    assert!(reply.try_recv().is_err(), "the change of the server's own mount is not safe");
    rig.commit.run().unwrap();
    answer(&reply).unwrap();
}

/// A client opens files for reading before it sends Reclaimed, and keeps what it is answered.
#[test]
fn a_session_that_comes_back_keeps_no_lease_that_is_forgotten() {
    let rig = Rig::new();
    begin(&rig, SESSION);
    let node = rig.file("f", b"bytes").handle;
    rig.commit.run().unwrap();
    let lease = |number: u64| {
        let since = rig.router.lease_moment();
        let flags = OpenFlags::READ;
        let open = Request::Open { node, flags, open: OpenId(number) };
        let mut opened = call(&rig, &asks(SESSION, number), open).map_err(Error::new);
        let answer = LeasedAnswer {
            node: None,
            names: None,
            mutation: number,
            origin: None,
            opens_for_writing: false,
            result: &mut opened,
            changed: None,
        };
        rig.router.lease(SESSION, since, answer)
    };
    assert!(lease(1).node && rig.router.has_leases(SESSION));
    let grace = &rig.router.dispatcher.parts.grace;
    assert!(grace.begin_again(HashSet::from([SESSION])).is_empty());
    // It is answered meanwhile, after the loss of all that the client had cached.
    assert_eq!(lease(2), Leases::default());
    rig.router.reclaimed(SESSION);
    assert!(!rig.router.has_leases(SESSION), "those of the last epoch have ended");
    assert!(grace.stop().is_empty());
    assert!(lease(3).node);
    // Over another connection in the same epoch the client has dropped nothing.
    rig.router.reclaimed(SESSION);
    assert!(rig.router.has_leases(SESSION));
}

/// Its client may still send what it has kept back, to the next run too.
#[test]
fn the_next_run_knows_the_era_of_a_session_that_has_lost_a_lease_on_bytes() {
    const WRITER: SessionId = SessionId::new(1, 1);
    const OTHER: SessionId = SessionId::new(1, 2);
    let rig = Rig::new();
    begin(&rig, WRITER);
    begin(&rig, OTHER);
    let node = rig.file("f", b"bytes").handle;
    // What builds on an unsafe change of another session is answered when that is safe.
    rig.commit.run().unwrap();
    let since = rig.router.lease_moment();
    let open = Request::Open { node, flags: BOTH, open: OpenId(1) };
    let mut opened = call(&rig, &asks(WRITER, 1), open).map_err(Error::new);
    let leases = rig.router.lease(
        WRITER,
        since,
        LeasedAnswer {
            node: None,
            names: None,
            mutation: 1,
            origin: None,
            opens_for_writing: true,
            result: &mut opened,
            changed: None,
        },
    );
    assert!(leases.bytes.is_some());
    let row = key::session(WRITER);
    let next_run_knows = || {
        let row = rig.table.fork_crashed(0).get(&row).unwrap().unwrap();
        SessionRecord::decode(&row).unwrap().1.era
    };
    assert_eq!(next_run_knows(), WriteEra::FIRST);
    let look =
        begin_by(&rig, &Context { mutation: 0, ..asks(OTHER, 1) }, Request::GetAttr { node });
    assert!(look.try_recv().is_err(), "it waits for the client");
    rig.router.leases_lost(WRITER);
    // Until the commit that makes the new era safe, whenever that comes.
    let told = look.recv_timeout(Duration::from_millis(50));
    assert!(told.is_err(), "it waits for the disk: {told:?}");
    assert_eq!(next_run_knows(), WriteEra::FIRST);
    loop {
        rig.commit.run().unwrap();
        if let Ok(told) = look.recv_timeout(Duration::from_millis(5)) {
            told.unwrap();
            break;
        }
    }
    assert_eq!(next_run_knows(), WriteEra::FIRST.next());
}
