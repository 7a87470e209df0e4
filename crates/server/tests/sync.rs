//! Done and safe: the promise of an `fsync`, and what survives without one.

use pelago_store::table::Error;
use pelago_wire::{Code, Handle, OpenFlags, Reply, Request};

use crate::harness::requests::next_open;
use crate::harness::rig::{Rig, by_hand};

const SIZES: [usize; 3] = [0, 1_000, 200_000];

/// Nothing but the fsync makes anything safe here, so that what is there after a crash of the
/// machine is what it promised: bytes, size and name.
#[test]
fn an_fsynced_file_survives_the_machine() {
    for size in SIZES {
        let rig = Rig::new(by_hand());
        let (entry, open) = rig.create(Handle::ROOT, "file").unwrap();
        rig.write(open, 0, &vec![7; size]).unwrap();
        assert!(rig.table.unsafe_batches() > 0);
        rig.fsync(open).unwrap();
        let left = rig.crashed(0, by_hand());
        let found = left.lookup(Handle::ROOT, "file").unwrap();
        assert_eq!((found.attr.ino, found.attr.size), (entry.attr.ino, size as u64));
        assert_eq!(left.read(found.handle, size as u64 + 1).unwrap(), vec![7; size]);
        left.expect_whole("crashed behind an fsync");
    }
}

#[test]
fn a_directory_that_was_synced_keeps_its_names() {
    let rig = Rig::new(by_hand());
    rig.put(Handle::ROOT, "file", b"bytes").unwrap();
    rig.make_dir(Handle::ROOT, "dir").unwrap();
    rig.sync();
    assert_eq!(rig.table.unsafe_batches(), 0);
    rig.make_dir(Handle::ROOT, "lost").unwrap();
    let left = rig.crashed(0, by_hand());
    assert!(left.lookup(Handle::ROOT, "file").is_ok() && left.lookup(Handle::ROOT, "dir").is_ok());
    assert_eq!(left.lookup(Handle::ROOT, "lost").err(), Some(Code::NotFound));
}

/// What was answered survives the process without any sync, closed files with their bytes.
#[test]
fn what_is_done_survives_the_process() {
    for size in SIZES {
        let rig = Rig::new(by_hand());
        rig.put(Handle::ROOT, "file", &vec![8; size]).unwrap();
        let left = rig.restarted(false, by_hand());
        let found = left.lookup(Handle::ROOT, "file").unwrap();
        assert_eq!(left.read(found.handle, size as u64 + 1).unwrap(), vec![8; size]);
    }
}

/// A file that was open when the process died has the bytes that reached its content file.
#[test]
fn bytes_in_content_files_survive_the_process() {
    let rig = Rig::new(by_hand());
    let (_, open) = rig.create(Handle::ROOT, "file").unwrap();
    rig.write(open, 0, &[9; 300_000]).unwrap();
    let left = rig.restarted(false, by_hand());
    let found = left.lookup(Handle::ROOT, "file").unwrap();
    assert_eq!(found.attr.size, 300_000);
    assert_eq!(left.server.status().recovered.files, 1);
    assert_eq!(left.read(found.handle, 300_001).unwrap(), vec![9; 300_000]);
    left.server.stop().unwrap();
    left.expect_whole("recovered and stopped");
}

#[test]
fn a_write_through_a_synchronous_open_is_safe_when_it_is_answered() {
    let rig = Rig::new(by_hand());
    rig.put(Handle::ROOT, "file", b"before").unwrap();
    let node = rig.lookup(Handle::ROOT, "file").unwrap().handle;
    let flags = OpenFlags { write: true, sync: true, ..OpenFlags::default() };
    let open = next_open();
    let Ok(Reply::Opened { .. }) = rig.call(Request::Open { node, flags, open }) else {
        panic!("it opens");
    };
    rig.write(open, 0, b"BEHIND").unwrap();
    let left = rig.crashed(0, by_hand());
    let found = left.lookup(Handle::ROOT, "file").unwrap();
    assert_eq!(left.read(found.handle, 100).unwrap(), b"BEHIND");
}

#[test]
fn an_fsync_that_cannot_be_kept_says_so() {
    let rig = Rig::new(by_hand());
    let (_, open) = rig.create(Handle::ROOT, "file").unwrap();
    rig.write(open, 0, b"bytes").unwrap();
    for call in 0..4 {
        rig.table.fail_at(call, Error::from_io("testing", std::io::Error::other("broken")));
    }
    assert!(rig.fsync(open).is_err());
}

/// A stop that goes well leaves everything safe and nothing to recover.
#[test]
fn a_clean_stop_makes_everything_safe() {
    let rig = Rig::new(by_hand());
    let (_, open) = rig.create(Handle::ROOT, "open").unwrap();
    rig.write(open, 0, &[1; 100_000]).unwrap();
    rig.put(Handle::ROOT, "closed", &[2; 100_000]).unwrap();
    rig.server.stop().unwrap();
    assert_eq!(rig.table.unsafe_batches(), 0);
    assert_eq!(rig.lookup(Handle::ROOT, "open").err(), Some(Code::Unavailable));
    rig.server.stop().unwrap();
    let left = rig.restarted(true, by_hand());
    assert_eq!(left.server.status().recovered.files, 0);
    let tree = left.tree();
    assert_eq!(tree["/open"].bytes.0, vec![1; 100_000]);
    assert_eq!(tree["/closed"].bytes.0, vec![2; 100_000]);
    left.expect_whole("stopped cleanly");
}
