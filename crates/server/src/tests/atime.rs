//! The access time, through the service.

use pelago_store::clock;
use pelago_wire::{Handle, OpenFlags, Request, SetAttr, SetTime, Time};

use crate::testing::{BOTH, Options, READ, Rig, at};

const COUNTED: OpenFlags = OpenFlags { no_atime: false, ..READ };
const DAY: i64 = 24 * 60 * 60;

/// A time long ago; no clock goes back that far.
fn past() -> Time {
    at(1000)
}

fn times(atime: Time, mtime: Time) -> SetAttr {
    SetAttr {
        atime: Some(SetTime::To(atime)),
        mtime: Some(SetTime::To(mtime)),
        ctime: Some(mtime),
        ..SetAttr::default()
    }
}

/// Makes a file that was not read since it changed; `size` may be above the inline limit.
fn file(rig: &Rig, text: &str, size: usize) -> Handle {
    let entry = rig.file(text, &vec![7; size]);
    rig.set(entry.handle, None, times(past(), past())).unwrap();
    rig.lookup(text).unwrap().handle
}

fn read_once(rig: &Rig, handle: Handle, flags: OpenFlags) {
    let open = rig.open(handle, flags).unwrap();
    rig.read(open, 0, 100).unwrap();
    rig.close(open);
}

fn atime(rig: &Rig, handle: Handle) -> Time {
    rig.attr(handle).unwrap().atime
}

#[test]
fn only_the_first_read_after_a_change_changes_the_access_time() {
    for size in [100, 100_000] {
        let rig = Rig::new();
        let handle = file(&rig, "f", size);
        let before = rig.attr(handle).unwrap();
        let batches = rig.durability.done();
        let open = rig.open(handle, COUNTED).unwrap();
        assert_eq!(atime(&rig, handle), past(), "an open is no read");
        rig.read(open, 0, 10).unwrap();
        let read = rig.attr(handle).unwrap();
        assert!(read.atime > past(), "it is seen at once");
        assert_eq!(pelago_wire::Attr { atime: before.atime, ..read }, before, "nothing else is");
        assert_eq!(rig.durability.done(), batches, "and written later");
        rig.read(open, 0, 10).unwrap();
        assert_eq!(rig.attr(handle).unwrap(), read, "the next read does not count");
        rig.close(open);
        for _ in 0..3 {
            read_once(&rig, handle, COUNTED);
        }
        assert_eq!(rig.durability.done(), batches, "the group commit does it");
        assert_eq!(rig.attr(handle).unwrap(), read, "it is seen until then too");
        assert_eq!(rig.lookup("f").unwrap().attr, read);
        rig.commit.run().unwrap();
        let batches = rig.durability.done();
        read_once(&rig, handle, COUNTED);
        rig.commit.run().unwrap();
        assert_eq!(rig.durability.done(), batches, "an unchanged file is written once");
        assert_eq!(rig.after_kill().attr(handle).unwrap(), read);
    }
}

/// Also for files that were renamed or removed meanwhile.
#[test]
fn one_batch_commits_the_access_times_of_many_files() {
    let rig = Rig::new();
    let handles: Vec<_> = (0..40).map(|n| file(&rig, &format!("f{n}"), 100)).collect();
    rig.commit.run().unwrap();
    let batches = rig.durability.done();
    handles.iter().for_each(|handle| read_once(&rig, *handle, COUNTED));
    rig.shard.commit_read_times().unwrap();
    assert_eq!(rig.durability.done(), batches + 2);
    for handle in [handles[1], handles[2], handles[3]] {
        rig.set(handle, None, times(past(), past())).unwrap();
        read_once(&rig, handle, COUNTED);
    }
    let from = crate::testing::name("f2");
    let to = crate::testing::name("g");
    let dir = Handle::ROOT;
    let flags = pelago_wire::RenameFlags::Replace;
    rig.call(Request::Rename { from_dir: dir, from, to_dir: dir, to, flags }).unwrap();
    rig.unlink("f3");
    rig.shard.commit_read_times().unwrap();
    let killed = rig.after_kill();
    assert!(killed.lookup("g").unwrap().attr.atime > past());
    assert!(killed.lookup("f1").unwrap().attr.atime > past());
    assert!(killed.lookup("f3").is_err());
}

#[test]
fn after_a_change_of_bytes_or_attributes_a_read_counts_again() {
    let rig = Rig::new();
    let handle = file(&rig, "f", 100);
    read_once(&rig, handle, COUNTED);
    // What has changed is dated back, so that no clock matters.
    let changes: [&dyn Fn(); 3] = [
        &|| {
            let open = rig.open(handle, BOTH).unwrap();
            rig.write(open, 0, b"x").unwrap();
            rig.close(open);
        },
        &|| {
            let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            rig.set(handle, None, set).unwrap();
        },
        &|| {
            let set = SetAttr { size: Some(50), ..SetAttr::default() };
            rig.set(handle, None, set).unwrap();
        },
    ];
    for change in changes {
        let open = rig.open(handle, COUNTED).unwrap();
        rig.read(open, 0, 1).unwrap();
        change();
        rig.set(handle, None, times(past(), past())).unwrap();
        rig.read(open, 0, 1).unwrap();
        assert!(atime(&rig, handle) > past());
        rig.close(open);
        rig.commit.run().unwrap();
        assert!(atime(&rig.after_kill(), handle) > past());
    }
}

#[test]
fn a_day_later_a_read_counts_again() {
    let rig = Rig::new();
    let handle = file(&rig, "f", 100);
    let now = clock::now().seconds;
    for (age, counts) in [(DAY / 2, false), (DAY * 2, true)] {
        let read = at(now - age);
        rig.set(handle, None, times(read, past())).unwrap();
        read_once(&rig, handle, COUNTED);
        assert_eq!(atime(&rig, handle) > read, counts, "{age}");
    }
}

/// A change that is dated in the future must not make every read a write.
#[test]
fn a_change_in_the_future_does_not_make_every_read_count() {
    let rig = Rig::new();
    let handle = file(&rig, "f", 100);
    let now = clock::now().seconds;
    rig.set(handle, None, times(at(now - 10), at(now + DAY))).unwrap();
    let batches = rig.durability.done();
    read_once(&rig, handle, COUNTED);
    assert_eq!(rig.durability.done(), batches);
}

#[test]
fn reads_without_atime_and_reads_of_a_read_only_server_change_no_time() {
    let rig = Rig::new();
    let handle = file(&rig, "f", 100);
    let batches = rig.durability.done();
    read_once(&rig, handle, READ);
    assert_eq!((atime(&rig, handle), rig.durability.done()), (past(), batches));
    let served = rig.restarted(Options { read_only: true, ..Options::default() });
    let batches = served.durability.done();
    read_once(&served, handle, COUNTED);
    assert_eq!((atime(&served, handle), served.durability.done()), (past(), batches));
}

#[test]
fn an_access_time_that_is_set_replaces_one_that_is_not_committed_yet() {
    let rig = Rig::new();
    let handle = file(&rig, "f", 100);
    let open = rig.open(handle, COUNTED).unwrap();
    rig.read(open, 0, 10).unwrap();
    let set = SetAttr { atime: Some(SetTime::To(at(5))), ..SetAttr::default() };
    assert_eq!(rig.set(handle, None, set).unwrap().atime, at(5));
    rig.close(open);
    assert_eq!(atime(&rig, handle), at(5));
    assert_eq!(atime(&rig.after_kill(), handle), at(5));
}

#[test]
fn a_commit_includes_the_access_time() {
    let rig = Rig::new();
    let handle = file(&rig, "f", 100);
    let open = rig.open(handle, OpenFlags { no_atime: false, ..BOTH }).unwrap();
    rig.read(open, 0, 10).unwrap();
    let read = atime(&rig, handle);
    rig.write(open, 0, b"x").unwrap();
    let batches = rig.durability.done();
    rig.call(Request::Flush { open, owner: None }).unwrap();
    assert_eq!(atime(&rig.after_kill(), handle), read);
    rig.close(open);
    assert_eq!(rig.durability.done(), batches + 1);
}

/// A file without a name has no row that needs an access time.
#[test]
fn reading_a_removed_file_writes_nothing() {
    let rig = Rig::new();
    let handle = file(&rig, "f", 100);
    let open = rig.open(handle, COUNTED).unwrap();
    rig.unlink("f");
    let batches = rig.durability.done();
    rig.read(open, 0, 10).unwrap();
    rig.close(open);
    rig.shard.commit_read_times().unwrap();
    assert_eq!(rig.durability.done(), batches);
}
