//! Bytes that the last owner may have left in the page cache of another machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use pelago_store::owner::{OwnerError, ProcessRecord, Taken};
use pelago_store::table::Table as _;
use pelago_store::table::fjall::FjallTable;
use pelago_store::volume::Volume;

use crate::server::{Owned, Server, make, options, record, runs};

/// Starts a server on a machine that started with this boot id.
fn server(volume: &Volume, inode: u64, boot: &str) -> Server {
    let record = ProcessRecord { boot: boot.to_owned(), ..record(inode) };
    Server::with_record(volume.folder(), record)
}

/// Takes the shard on a machine and gives it back as it was; returns whether bytes may be missing.
fn may_lack(volume: &Volume, boot: &str) -> bool {
    let taken = server(volume, 1000, boot).take();
    for mark in ["ready", "closed"] {
        assert!(!taken.folder().contains(mark).unwrap(), "{mark} is not copied");
    }
    let may_lack = taken.may_lack_bytes();
    taken.baton().release().unwrap();
    may_lack
}

/// Returns the path of a file of the only ready owner.
fn path(dir: &Path, name: &str) -> PathBuf {
    let ready = |run: &String| dir.join("shard/0").join(run).join("ready").exists();
    let mut ready: Vec<_> = runs(dir).into_iter().filter(ready).collect();
    assert_eq!(ready.len(), 1, "{ready:?}");
    dir.join("shard/0").join(ready.remove(0)).join(name)
}

/// An owner on the machine `one` that releases the baton and has written bytes that it did not
/// sync.
fn make_unclosed(dir: &Path) -> Volume {
    let volume = make(dir);
    server(&volume, 1, "one").own().release();
    volume
}

#[test]
fn bytes_may_be_missing_if_the_owner_ran_elsewhere_and_was_not_closed() {
    let temp = tempfile::tempdir().unwrap();
    let volume = make(temp.path());
    assert!(!may_lack(&volume, "one"), "a new store lacks nothing");
    server(&volume, 1, "one").own().release();
    assert_eq!(fs::read(path(temp.path(), "ready")).unwrap(), b"one\n");
    assert!(!may_lack(&volume, "one"), "they are in the page cache of this machine");
    assert!(may_lack(&volume, "two"), "they are on another machine");
    assert!(may_lack(&volume, "one.1"), "they were lost with the power of this one");
    // An owner that died has closed nothing either.
    let _died = server(&volume, 2, "two").own();
    assert!(may_lack(&volume, "one"));
    assert!(may_lack(&volume, "two"), "it may have died before it has told of them");
}

#[test]
fn no_byte_is_missing_of_an_owner_that_was_closed() {
    let temp = tempfile::tempdir().unwrap();
    let volume = make(temp.path());
    let Owned { taken, engine, table } = server(&volume, 1, "one").own();
    table.persist().unwrap();
    engine.close().unwrap();
    taken.mark_closed().unwrap();
    taken.mark_closed().unwrap();
    assert_eq!(fs::read(path(temp.path(), "closed")).unwrap(), b"");
    // It need not have released the baton: it may have died just before.
    assert!(!may_lack(&volume, "two"));
    assert!(matches!(taken.baton().advance(), Err(OwnerError::Fenced)));
    assert!(matches!(taken.mark_closed(), Err(OwnerError::Fenced)), "it is too late");
    assert!(!may_lack(&volume, "one"));
    // It says nothing of the next owner.
    server(&volume, 2, "two").own().release();
    assert!(may_lack(&volume, "one"));
}

/// A taker of the same machine that never became ready does not stand for the owner.
#[test]
fn a_taker_that_failed_in_between_hides_nothing() {
    let open = |taken: &Taken| FjallTable::open_in(taken.folder(), options()).unwrap();
    let fail: [fn(Taken); 3] = [
        // It dies.
        |_| {},
        // It gives the shard back.
        |taken| taken.baton().release().unwrap(),
        // It was told to end, and believes that it was an owner.
        |taken| {
            taken.mark_closed().unwrap();
            taken.baton().release().unwrap();
        },
    ];
    for (way, fail) in fail.into_iter().enumerate() {
        for is_opened in [false, true] {
            let temp = tempfile::tempdir().unwrap();
            let volume = make_unclosed(temp.path());
            let taken = server(&volume, 2, "two").take();
            assert!(taken.may_lack_bytes());
            if is_opened {
                let table = open(&taken);
                table.persist().unwrap();
                table.close().unwrap();
            }
            fail(taken);
            assert!(may_lack(&volume, "two"), "way {way}, opened: {is_opened}");
            assert!(!may_lack(&volume, "one"), "way {way}, opened: {is_opened}");
            // So it goes on until an owner was closed.
            let owned = server(&volume, 3, "two").own();
            assert!(owned.taken.may_lack_bytes());
            owned.release();
            assert!(may_lack(&volume, "two"), "way {way}, opened: {is_opened}");
            let Owned { taken, engine, table } = server(&volume, 4, "two").own();
            table.persist().unwrap();
            engine.close().unwrap();
            taken.mark_closed().unwrap();
            taken.baton().release().unwrap();
            assert!(!may_lack(&volume, "two"), "way {way}, opened: {is_opened}");
        }
    }
}

#[test]
fn a_ready_file_that_tells_no_machine_is_that_of_another_one() {
    let temp = tempfile::tempdir().unwrap();
    let volume = make_unclosed(temp.path());
    let ready = path(temp.path(), "ready");
    let long = "one\n".repeat(1000);
    // Empty, as earlier versions made it, or cut.
    for text in ["", "\n", "on", "one", "one\n\n", "\none\n", "one\nmore\n", "two\n", &long] {
        fs::write(&ready, text).unwrap();
        assert!(may_lack(&volume, "one"), "{text:.20}");
    }
    fs::write(&ready, [0xff, b'\n']).unwrap();
    assert!(may_lack(&volume, "one"));
    fs::write(&ready, "one\n").unwrap();
    assert!(!may_lack(&volume, "one"));
    // Others may have written it.
    fs::set_permissions(&ready, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(may_lack(&volume, "one"));
    fs::remove_file(&ready).unwrap();
    fs::create_dir(&ready).unwrap();
    assert!(may_lack(&volume, "one"));
}
