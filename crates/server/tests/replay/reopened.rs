//! A table that fails while the server runs, and is opened again without the unsafe changes.

use std::thread;
use std::time::Instant;

use pelago_store::table;
use pelago_wire::{
    Code, FileLock, LockKind, LockMode, LockOwner, OpenFlags, OpenId, Reply, Request,
};

use crate::harness::rig::DEADLINE;
use crate::replay::served::{Client, ROOT, Served};

impl Served {
    /// A sync of the journal fails: all that is not safe is lost, and the table is opened again.
    fn fail_sync(&self) {
        let own = "of the server's own mount";
        self.rig.make_dir(ROOT, own).unwrap();
        self.rig.table.fail_sync();
        let sync = Request::FsyncDir { dir: ROOT, since: None };
        assert_eq!(self.rig.call(sync).err(), Some(Code::Io));
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.rig.lookup(ROOT, own).err() {
                // It was not safe.
                Some(Code::NotFound) => return,
                Some(Code::Io) => thread::yield_now(),
                other => panic!("{other:?}"),
            }
            assert!(Instant::now() < deadline, "the table is not opened again");
        }
    }
}

impl Client {
    fn lock(&self, open: OpenId, wait: bool) -> Result<Reply, Code> {
        self.set_lock(open, LockMode::Write, wait)
    }

    fn set_lock(&self, open: OpenId, mode: LockMode, wait: bool) -> Result<Reply, Code> {
        let lock = FileLock { kind: LockKind::Posix, mode, start: 0, end: 9, pid: 1 };
        self.ask(Request::SetLock { open, owner: LockOwner(1), lock, wait }, &[])
    }
}

/// What clients were answered is there again: with its inode, its bytes, under its last name. What
/// was open is open, and what was locked was locked all the time.
#[test]
fn what_a_failed_sync_takes_comes_back_with_the_clients() {
    let served = Served::new();
    let one = served.client();
    let two = served.client();
    let (shared, shared_open) = one.create(ROOT, "shared");
    served.rig.sync();
    let theirs = two.open(shared.handle, OpenFlags::READ_WRITE);
    one.lock(shared_open, false).unwrap();
    let dir = one.make_dir(ROOT, "dir");
    let (file, open) = one.create(dir.handle, "file");
    one.write(open, 0, b"some bytes");
    one.rename(dir.handle, "file", ROOT, "moved");
    let other = two.make_dir(ROOT, "other");

    served.fail_sync();
    let found = two.lookup(ROOT, "moved").unwrap();
    assert_eq!(found.attr.ino, file.attr.ino);
    assert_eq!(one.lookup(ROOT, "dir").unwrap().attr.ino, dir.attr.ino);
    assert_eq!(one.lookup(ROOT, "other").unwrap().attr.ino, other.attr.ino);
    assert_eq!(one.lookup(dir.handle, "file").err(), Some(Code::NotFound));
    assert_eq!(one.read(open), b"some bytes");
    one.write(open, 4, b"-");
    assert_eq!(two.bytes(found.handle), b"some-bytes");
    assert_eq!(two.lock(theirs, false).err(), Some(Code::LockHeld));
    one.close(shared_open);
    two.lock(theirs, false).unwrap();
    one.close(open);
    served.rig.sync();
    served.rig.expect_whole("all is back");
}

/// Each failure takes the newest changes, and a loss of power later nothing that is safe by then.
#[test]
fn each_failure_is_an_epoch_of_its_own() {
    let served = Served::new();
    let client = served.client();
    let (file, open) = client.create(ROOT, "file");
    for bytes in [b"first", b"again", b"third"] {
        client.write(open, 0, bytes);
        served.fail_sync();
        assert_eq!(client.read(open), bytes);
    }
    assert_eq!(client.lookup(ROOT, "file").unwrap().attr.ino, file.attr.ino);
    let next = client.create(ROOT, "next").0;
    assert_ne!(next.attr.ino, file.attr.ino);
    served.rig.sync();
    let served = served.cut(0, crate::replay::served::options());
    assert_eq!(client.read(open), b"third");
    assert_eq!(client.lookup(ROOT, "next").unwrap().attr.ino, next.attr.ino);
    served.rig.expect_whole("it is safe");
}

/// The table cannot be opened for a while: the server's own mount gets errors and does not hang,
/// and the clients of other sessions wait.
#[test]
fn what_is_lost_comes_back_when_the_table_does() {
    let served = Served::new();
    let client = served.client();
    let (file, open) = client.create(ROOT, "file");
    client.write(open, 0, b"bytes");
    // Calls 0 to 2 make the directory of the server's own mount, count it, and fail to sync. The
    // next one writes the first batch of the new epoch.
    served.rig.table.fail_at(3, table::Error::Stopped);
    served.fail_sync();
    assert_eq!(client.read(open), b"bytes");
    assert_eq!(client.lookup(ROOT, "file").unwrap().attr.ino, file.attr.ino);
    assert_eq!(served.rig.lookup(ROOT, "file").unwrap().attr.ino, file.attr.ino);
}

/// The table fails once more while the clients' changes are carried out again: they ask for them
/// another time.
#[test]
fn a_failure_during_the_replays_loses_none() {
    // Before these, a directory is made and counted, the sync fails, and the new epoch begins.
    for call in 4..12 {
        let served = Served::new();
        let client = served.client();
        let dir = client.make_dir(ROOT, "dir");
        let (file, open) = client.create(dir.handle, "file");
        client.write(open, 0, b"bytes");
        client.rename(dir.handle, "file", ROOT, "moved");
        served.rig.table.fail_at(call, table::Error::Stopped);
        served.fail_sync();
        let found = client.lookup(ROOT, "moved").unwrap();
        assert_eq!(found.attr.ino, file.attr.ino, "call {call} fails");
        assert_eq!(client.read(open), b"bytes", "call {call} fails");
        assert_eq!(client.lookup(ROOT, "dir").unwrap().attr.ino, dir.attr.ino);
    }
}

/// A program waits for a lock while the table fails: it gets the lock once it is free.
#[test]
fn a_wait_for_a_lock_goes_on() {
    let served = Served::new();
    let one = served.client();
    let two = served.client();
    let (file, open) = one.create(ROOT, "file");
    served.rig.sync();
    let theirs = two.open(file.handle, OpenFlags::READ_WRITE);
    one.lock(open, false).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| two.lock(theirs, true));
        while served.rig.server.status().lock_waiters == 0 {
            thread::yield_now();
        }
        one.write(open, 0, b"not safe");
        served.fail_sync();
        while served.rig.server.status().lock_waiters == 0 {
            thread::yield_now();
        }
        assert!(!waits.is_finished());
        one.set_lock(open, LockMode::Unlock, false).unwrap();
        waits.join().unwrap().unwrap();
    });
    assert_eq!(two.bytes(file.handle), b"not safe");
}

/// A session that began just before the failure is known to the next run of the server.
#[test]
fn a_session_whose_row_was_lost_outlives_the_run() {
    let served = Served::new();
    let first = served.client();
    let second = served.unsafe_client();
    let session = second.remote.status().session;
    served.fail_sync();
    let dir = second.make_dir(ROOT, "dir");
    let _served = served.cut(usize::MAX, crate::replay::served::options());
    assert_eq!(second.lookup(ROOT, "dir").unwrap().attr.ino, dir.attr.ino);
    first.lookup(ROOT, "dir").unwrap();
    assert_eq!(second.remote.status().session, session);
}
