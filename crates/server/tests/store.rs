//! Servers of a shared store in one process: the next owner has every change that was called safe,
//! and reports bytes that the last owner had not synced.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pelago_server::{Options, Server, Standby, Standing};
use pelago_store::owner::{LockId, ProcessRecord};
use pelago_store::volume::VolumeId;
use pelago_wire::{Code, Entry, Handle, OpenFlags, OpenId, Reply, Request};

use crate::harness::requests::{call, create, lookup, next_open, write};

/// The longest time until a living server has taken a store from a dead one.
const TAKES: Duration = Duration::from_secs(20);

/// A server on a machine that was started at this boot.
fn record(boot: &str, number: u64) -> ProcessRecord {
    ProcessRecord {
        key: format!("key{number}"),
        address: format!("key{number}@host:{number}"),
        boot: boot.to_owned(),
        lock: LockId { device: 1, inode: number },
    }
}

fn begin(store: &Path, known: Option<VolumeId>, record: ProcessRecord) -> Standby {
    let options = Options { grace: Duration::ZERO, ..Options::default() };
    Standby::begin(store, known, record, options).unwrap()
}

/// Waits until this server owns the volume.
fn take(standby: &mut Standby) -> Server {
    let deadline = Instant::now() + TAKES;
    loop {
        match standby.look().unwrap() {
            Standing::Owns(server) => return *server,
            Standing::Waits(_) => assert!(Instant::now() < deadline, "the store stays taken"),
        }
        // The time between two looks.
        thread::sleep(Duration::from_millis(500));
    }
}

fn fsync(server: &Server, open: OpenId) -> Result<(), Code> {
    call(server, Request::Fsync { open, data_only: false }, &[]).map(drop)
}

fn open(server: &Server, entry: Entry) -> OpenId {
    let open = next_open();
    let request = Request::Open { node: entry.handle, flags: OpenFlags::READ_WRITE, open };
    let opened = call(server, request, &[]);
    assert!(matches!(opened, Ok(Reply::Opened { .. })), "{opened:?}");
    open
}

/// An owner that has a file open, and synced bytes and others; then it is gone without a word.
fn lose_owner(store: &Path, is_clean: bool) -> VolumeId {
    let mut standby = begin(store, None, record("boot-a", 1));
    let server = take(&mut standby);
    let (_, open) = create(&server, Handle::ROOT, "large").unwrap();
    write(&server, open, 0, &[7; 300_000]).unwrap();
    fsync(&server, open).unwrap();
    write(&server, open, 0, &[8; 1000]).unwrap();
    if is_clean {
        server.stop().unwrap();
    }
    standby.id()
}

/// Returns what the `fsync` of the file says at the next owner, twice.
fn next_fsyncs(store: &Path, known: VolumeId, boot: &str) -> [Result<(), Code>; 2] {
    let mut standby = begin(store, Some(known), record(boot, 2));
    let server = take(&mut standby);
    let open = open(&server, lookup(&server, Handle::ROOT, "large").unwrap());
    let told = [fsync(&server, open), fsync(&server, open)];
    server.stop().unwrap();
    told
}

/// The page cache of its machine may have had them, and another machine does not have that.
#[test]
fn bytes_that_a_lost_machine_may_have_had_are_an_error_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let known = lose_owner(&store, false);
    assert_eq!(next_fsyncs(&store, known, "boot-b"), [Err(Code::Io), Ok(())]);
}

#[test]
fn a_server_that_died_alone_has_lost_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let known = lose_owner(&store, false);
    assert_eq!(next_fsyncs(&store, known, "boot-a"), [Ok(()), Ok(())]);
}

#[test]
fn a_server_that_was_stopped_has_synced_all() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let known = lose_owner(&store, true);
    assert_eq!(next_fsyncs(&store, known, "boot-b"), [Ok(()), Ok(())]);
}

/// It was stopped after its machine's programs had opened the file again, and before they asked.
#[test]
fn what_an_owner_has_not_told_the_next_one_tells() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let known = lose_owner(&store, false);
    let mut standby = begin(&store, Some(known), record("boot-b", 2));
    let server = take(&mut standby);
    open(&server, lookup(&server, Handle::ROOT, "large").unwrap());
    server.stop().unwrap();
    assert_eq!(next_fsyncs(&store, known, "boot-b"), [Err(Code::Io), Ok(())]);
    assert_eq!(next_fsyncs(&store, known, "boot-b"), [Ok(()), Ok(())], "it was told");
}

/// It was stopped while it took the volume, and another server has taken its beat away.
#[test]
fn a_server_that_was_taken_for_dead_stands_by_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let mut first = begin(&store, None, record("boot-a", 1));
    let owner = take(&mut first);
    let alive = || -> BTreeSet<PathBuf> {
        fs::read_dir(store.join("alive")).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let of_owner = process_of(alive().first().unwrap());
    let mut second = begin(&store, Some(first.id()), record("boot-b", 2));
    let own = alive().into_iter().find(|beat| process_of(beat) != of_owner).unwrap();
    fs::remove_file(&own).unwrap();
    let deadline = Instant::now() + TAKES;
    let has_other = || {
        let mut others = alive().into_iter().map(|beat| process_of(&beat));
        others.any(|process| process != of_owner && process != process_of(&own))
    };
    while !has_other() {
        assert!(matches!(second.look(), Ok(Standing::Waits(_))));
        assert!(Instant::now() < deadline, "it has no beat again");
        // The time between two looks.
        thread::sleep(Duration::from_millis(200));
    }
    owner.stop().unwrap();
    let server = take(&mut second);
    let is_lost = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&is_lost);
    server.set_on_lost(Box::new(move || noted.store(true, Ordering::Relaxed)));
    create(&server, Handle::ROOT, "file").unwrap();
    server.stop().unwrap();
    assert!(!is_lost.load(Ordering::Relaxed), "it owned the volume");
}

/// Returns the process in the name of a beat.
fn process_of(beat: &Path) -> String {
    let name = beat.file_name().unwrap().to_str().unwrap();
    name.split('.').next().unwrap().to_owned()
}
