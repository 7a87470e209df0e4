//! The hold of a guest's change: no node moves and no right ends while it is checked and made. A
//! write is stopped between both, and another session moves the file out, or takes the right back.
//! The answer comes after the write, so that no write comes after the answer.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use pelago_keynote::{Assertion, Grant, Revocation, policy};
use pelago_server::{Options, Passthrough};
use pelago_store::table::fake::FakeTable;
use pelago_store::table::{Batch, Error as TableError, Pressure, Snapshot, Table, TableRead};
use pelago_store::table::{Usage, Visitor};
use pelago_wire::{
    Bulk, Code, Context, Done, Error, Handle, OpenFlags, OpenId, RenameFlags, Reply, Request,
    WriteFlags,
};

use super::world::{Guest, World, key, principal};
use crate::harness::requests::next_open;
use crate::harness::rig::{DEADLINE, by_hand, name};

/// A request that waits for the write sends nothing within this time. One that does not wait for it
/// needs a small part of this.
const SILENCE: Duration = Duration::from_millis(500);
/// The bytes of the file: more than is inline.
static OLD_BYTES: [u8; 100_000] = [b'o'; 100_000];
/// The bytes of a guest's write.
const NEW_BYTES: &[u8] = b"new bytes";

/// A table that stops the thread which syncs it next.
struct Stopping {
    table: FakeTable,
    stop: Mutex<Option<Stop>>,
}

/// The side of the thread that is stopped.
struct Stop {
    stopped: Sender<()>,
    go_on: Receiver<()>,
}

/// The side of the test.
struct Stopped {
    stopped: Receiver<()>,
    go_on: Sender<()>,
}

impl Stopping {
    /// Has the next sync of the table stop its thread.
    fn stop_next_sync(&self) -> Stopped {
        let (to_test, stopped) = mpsc::channel();
        let (go_on, from_test) = mpsc::channel();
        *self.stop.lock() = Some(Stop { stopped: to_test, go_on: from_test });
        Stopped { stopped, go_on }
    }
}

impl TableRead for Stopping {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        self.table.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visitor<'_>) -> Result<(), TableError> {
        self.table.scan(from, to, visit)
    }
}

impl Table for Stopping {
    fn snapshot(&self) -> Result<Snapshot, TableError> {
        self.table.snapshot()
    }

    fn write(&self, batch: &Batch) -> Result<(), TableError> {
        self.table.write(batch)
    }

    fn persist(&self) -> Result<(), TableError> {
        let stop = self.stop.lock().take();
        if let Some(Stop { stopped, go_on }) = stop {
            stopped.send(()).unwrap();
            go_on.recv_timeout(DEADLINE).unwrap();
        }
        self.table.persist()
    }

    fn ingest(&self, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<(), TableError> {
        self.table.ingest(rows)
    }

    fn pressure(&self) -> Pressure {
        self.table.pressure()
    }

    fn reopen(&self) -> Result<bool, TableError> {
        self.table.reopen()
    }

    fn has_failed_sync(&self) -> bool {
        self.table.has_failed_sync()
    }

    fn usage(&self) -> Usage {
        self.table.usage()
    }
}

/// A granted directory with another one that has a file, and a directory outside.
struct Scene {
    world: World,
    table: Arc<Stopping>,
    shared: Handle,
    outside: Handle,
    file: Handle,
    guest: Guest,
    open: OpenId,
}

impl Scene {
    fn new() -> Self {
        let table = Arc::new(Stopping { table: FakeTable::new(), stop: Mutex::new(None) });
        // In a shared store the row of a file is synced before its first byte changes: there the
        // write can be stopped. No timer syncs the table.
        let options = Options { passthrough: Passthrough::Never, ..by_hand() };
        let world = World::on_shared_store(Arc::clone(&table) as _, options.clone());
        let shared = world.make_dir(Handle::ROOT, "shared");
        let outside = world.make_dir(Handle::ROOT, "outside");
        let moving = world.make_dir(shared, "moving");
        let file = world.put(moving, "f", &OLD_BYTES);
        // After a clean end no file has such a row.
        let world = world.restarted_on_shared_store(Arc::clone(&table) as _, options);
        // Not before: a move would wait for the guests of the last run.
        world.set_policy(&policy(&[principal(1)], &[]).unwrap());
        let text = world.signed(1, 2, &Self::share(&world, shared));
        let guest = world.begin(world.admit(2, &[&text]).unwrap()).unwrap();
        let open = next_open();
        let request = Request::Open { node: file, flags: OpenFlags::READ_WRITE, open };
        world.ask(&guest, request).unwrap();
        Self { world, table, shared, outside, file, guest, open }
    }

    fn share(world: &World, dir: Handle) -> Grant {
        Grant { rights: "rwcd".parse().unwrap(), ..world.to_read(dir.ino) }
    }

    /// Writes as the guest.
    fn write(&self) -> Result<(), Code> {
        let write = Request::Write { open: self.open, offset: 0, flags: WriteFlags::NONE };
        self.world.ask(&self.guest, write).map(drop)
    }

    /// Begins a request of the server's own mount.
    fn begin(&self, request: Request) -> Receiver<Result<Reply, Error>> {
        let (sender, replies) = mpsc::channel();
        let mut later = || -> Done {
            let sender = sender.clone();
            Box::new(move |reply| drop(sender.send(reply)))
        };
        let caller = Context::direct(0, 0);
        if let Some(now) = self.world.server.service().ask(&caller, request, Bulk::None, &mut later)
        {
            later()(now);
        }
        replies
    }

    /// Returns the first bytes of the file, as the disk has them.
    fn first_bytes(&self) -> Vec<u8> {
        let open = next_open();
        let flags = OpenFlags::READ;
        self.world.call(Request::Open { node: self.file, flags, open }).unwrap();
        let size = u32::try_from(NEW_BYTES.len()).unwrap();
        let read = self.world.call(Request::Read { open, offset: 0, size }).unwrap();
        let Reply::Data(data) = read else { panic!("a read answers `Data`") };
        self.world.call(Request::Release { open }).unwrap();
        data.as_bytes().to_vec()
    }

    /// Carries out a request of the owner in the middle of a write of the guest, which has no right
    /// after it.
    fn carry_out_within_a_write(&self, request: Request, is_in_force: impl Fn(&Self) -> bool) {
        let stop = self.table.stop_next_sync();
        let (is_early, was_in_force, written, answered) = thread::scope(|scope| {
            let write = scope.spawn(|| self.write());
            stop.stopped.recv_timeout(DEADLINE).unwrap();
            let replies = self.begin(request);
            // Nothing tells that a request waits, but that no answer comes.
            let early = replies.recv_timeout(SILENCE);
            let was_in_force = is_in_force(self);
            stop.go_on.send(()).unwrap();
            let written = write.join().unwrap();
            let is_early = early.is_ok();
            let answered = early.or_else(|_| replies.recv_timeout(DEADLINE));
            (is_early, was_in_force, written, answered)
        });
        assert_eq!(written, Ok(()), "what was checked is made");
        assert!(
            matches!(answered, Ok(Ok(Reply::Unreached { .. } | Reply::Renamed { .. }))),
            "{answered:?}"
        );
        assert!(!is_early, "it was answered, and then a guest without a right has written");
        assert!(!was_in_force, "it was in force, and then a guest without a right has written");
        assert!(is_in_force(self));
        assert_eq!(self.first_bytes(), NEW_BYTES);
        assert_eq!(self.write(), Err(Code::Stale));
    }
}

#[test]
fn a_move_out_is_answered_after_the_last_change_of_a_guest() {
    let scene = Scene::new();
    let to = name("moving");
    let request = Request::Rename {
        from_dir: scene.shared,
        from: to.clone(),
        to_dir: scene.outside,
        to,
        flags: RenameFlags::NoReplace,
    };
    let is_outside = |scene: &Scene| {
        let lookup = Request::Lookup { dir: scene.outside, name: name("moving") };
        scene.world.call(lookup).is_ok()
    };
    scene.carry_out_within_a_write(request, is_outside);
}

#[test]
fn a_revocation_is_in_force_after_the_last_change_of_a_guest() {
    let scene = Scene::new();
    let text = scene.world.signed(1, 2, &Scene::share(&scene.world, scene.shared));
    let id = Assertion::parse(text.as_bytes()).unwrap().id();
    let sentence = Revocation::sign(scene.world.volume, id, 7, &key(1).signing_key()).into_bytes();
    let service = scene.world.server.session_service();
    let request = Request::Revoke { sentence, chain: Vec::new() };
    scene.carry_out_within_a_write(request, |scene| !service.has_access(&scene.guest.grant));
}
