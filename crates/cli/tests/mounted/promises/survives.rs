//! Survival of `kill -9` of pelago: the middle column of the table. `survives.rs` of the server
//! tests the last column.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::thread;
use std::time::Duration;

use pelago_random::bytes_of;
use rustix::fs::{
    CWD, FileType, Mode, RenameFlags, XattrFlags, getxattr, mknodat, renameat_with, setxattr,
};

use crate::harness::volume::Volume;
use crate::mounted::on_volume;

/// Acknowledged changes are there after a kill and a restart. The value that `change` returns stays
/// open meanwhile.
fn through_a_kill<T>(change: impl Fn(&Path) -> T, check: impl Fn(&Path)) {
    on_volume(|volume| {
        let open = change(&volume.files());
        kill(volume);
        check(&volume.files());
        drop(open);
    });
}

fn kill(volume: &Volume) {
    volume.kill();
    volume.up(&[]).expect_success();
}

#[test]
fn a_name_operation_that_was_answered() {
    let change = |root: &Path| {
        for name in ["a", "b", "gone"] {
            fs::write(root.join(name), name).unwrap();
        }
        fs::create_dir_all(root.join("d/e")).unwrap();
        symlink("a", root.join("s")).unwrap();
        mknodat(CWD, root.join("p"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        fs::hard_link(root.join("a"), root.join("d/l")).unwrap();
        fs::rename(root.join("b"), root.join("d/b")).unwrap();
        let one = root.join("d/b");
        let other = root.join("d/e");
        renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
        fs::remove_file(root.join("gone")).unwrap();
        fs::remove_dir(root.join("d/b")).unwrap();
    };
    through_a_kill(change, |root| {
        let list = |dir: &Path| {
            let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(list(root), ["a", "d", "p", "s"]);
        assert_eq!(list(&root.join("d")), ["e", "l"]);
        assert_eq!(fs::read(root.join("d/e")).unwrap(), b"b");
        assert_eq!(fs::metadata(root.join("d/l")).unwrap().nlink(), 2);
    });
}

#[test]
fn attributes_that_were_set() {
    let path = |root: &Path, size: usize| root.join(format!("f{size}"));
    let change = |root: &Path| {
        let mut open = None;
        for size in [10, 100_000] {
            let file = File::create_new(path(root, size)).unwrap();
            file.write_all_at(&vec![1; size], 0).unwrap();
            file.set_permissions(fs::Permissions::from_mode(0o4751)).unwrap();
            let name = path(root, size);
            setxattr(&name, "user.x", b"value", XattrFlags::empty()).unwrap();
            let time = std::time::SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123);
            file.set_times(fs::FileTimes::new().set_modified(time)).unwrap();
            // A large file is still open.
            open = (size > 10).then_some(file);
        }
        open
    };
    through_a_kill(change, |root| {
        for size in [10, 100_000] {
            let meta = fs::metadata(path(root, size)).unwrap();
            assert_eq!(meta.mode() & 0o7777, 0o4751);
            assert_eq!((meta.mtime(), meta.mtime_nsec()), (1_234_567_890, 123));
            assert_eq!(getxattr(path(root, size), "user.x", &mut [0; 10]), Ok(5));
        }
    });
}

#[test]
fn bytes_of_a_closed_file() {
    const SIZES: [usize; 5] = [0, 10, 4096, 4097, 3_000_000];
    let change = |root: &Path| {
        for size in SIZES {
            fs::write(root.join(format!("f{size}")), bytes_of(1, size)).unwrap();
        }
    };
    through_a_kill(change, |root| {
        for size in SIZES {
            assert!(fs::read(root.join(format!("f{size}"))).unwrap() == bytes_of(1, size));
        }
    });
}

#[test]
fn bytes_of_an_open_file_beyond_the_inline_limit() {
    let change = |root: &Path| {
        let file = File::create_new(root.join("f")).unwrap();
        file.write_all_at(&bytes_of(2, 500_000), 0).unwrap();
        file.set_len(400_000).unwrap();
        file.write_all_at(b"the last word", 399_990).unwrap();
        file
    };
    through_a_kill(change, |root| {
        let mut expected = bytes_of(2, 399_990);
        expected.extend(b"the last word");
        assert!(fs::read(root.join("f")).unwrap() == expected);
    });
}

/// Access times older than `sync_interval` are written with the next change: the test waits, and
/// reads the table after a kill.
#[test]
fn bytes_of_an_open_file_within_the_inline_limit() {
    on_volume(|volume| {
        let mut open = Vec::new();
        let at = |name: &str| volume.files().join(name);
        // Enough for a loaded machine; others need one round.
        for round in 0..100 {
            let old = File::create_new(at(&format!("old{round}"))).unwrap();
            old.write_all_at(b"old", 0).unwrap();
            let synced = File::create_new(at(&format!("synced{round}"))).unwrap();
            synced.write_all_at(b"synced", 0).unwrap();
            synced.sync_data().unwrap();
            // Only the clock ends this wait: nothing reports that a group commit has written the
            // older bytes.
            thread::sleep(Duration::from_millis(200 * (round + 1)));
            open.extend([old, synced]);
            kill(volume);
            assert_eq!(fs::read(at(&format!("synced{round}"))).unwrap(), b"synced");
            match fs::read(at(&format!("old{round}"))).unwrap().as_slice() {
                b"old" => return,
                found => assert_eq!(found, b""),
            }
        }
        panic!("what was written long ago is lost again and again");
    });
}
