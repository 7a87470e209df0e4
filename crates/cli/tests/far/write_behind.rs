//! Bytes that a mount keeps back under a lease: other mounts see them at once, and a loss is always
//! reported.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use pelago_random::bytes_of;
use rustix::io::Errno;

use crate::far::forwarder::Forwarder;
use crate::far::{errno, on_server, on_world};
use crate::harness::mapping::Mapping;
use crate::harness::program::until;
use crate::harness::programs::locker;

/// Rounds of each test.
const ROUNDS: u64 = 30;

fn writer(path: &Path) -> File {
    OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap()
}

/// The writer has its file open all the time, and the others look in every way that there is.
#[test]
fn every_mount_sees_what_another_one_has_written_and_not_closed() {
    on_world(|world| {
        world.each_side(|side, others, name| {
            let mut whole = Vec::new();
            let mut file = writer(&side.join(name));
            for round in 0..ROUNDS {
                let more = bytes_of(round, 1 + (round as usize * 977) % 5000);
                file.write_all(&more).unwrap();
                whole.extend_from_slice(&more);
                let other = &others[round as usize % others.len()];
                match round % 3 {
                    0 => {
                        let size = fs::metadata(other.join(name)).unwrap().len();
                        assert_eq!(size, whole.len() as u64, "{name}, round {round}");
                    }
                    1 => {
                        // With the attributes of all names.
                        let listed = fs::read_dir(other).unwrap().map(Result::unwrap);
                        let mut found = listed.filter(|entry| entry.file_name() == name);
                        let size = found.next().unwrap().metadata().unwrap().len();
                        assert_eq!(size, whole.len() as u64, "{name}, round {round}");
                    }
                    _ => assert!(fs::read(other.join(name)).unwrap() == whole, "{name}, {round}"),
                }
                // The reader is gone, and the next open has the lease again.
                if round % 2 == 0 {
                    drop(file);
                    file = OpenOptions::new().append(true).open(side.join(name)).unwrap();
                }
            }
        });
    });
}

/// Each writes its own part of one file, without closing it, and reads that of the other.
#[test]
fn two_mounts_that_write_one_file_read_each_other() {
    on_server(|world| {
        let [one, other] = world.mount_both();
        let open = |path| OpenOptions::new().read(true).write(true).open(path).unwrap();
        fs::write(one.path("file"), [0; 8192]).unwrap();
        let files = [open(one.path("file")), open(other.path("file"))];
        for round in 1..=ROUNDS as u8 {
            let writes = usize::from(round % 2);
            let reads = usize::from((round + 1) % 2);
            files[writes].write_all_at(&[round; 100], writes as u64 * 4096 + 7).unwrap();
            let mut seen = [0; 100];
            files[reads].read_exact_at(&mut seen, writes as u64 * 4096 + 7).unwrap();
            assert_eq!(seen, [round; 100]);
        }
    });
}

/// A mount reads ahead through an open that writes, and shows what another one writes there.
#[test]
fn bytes_that_were_read_ahead_are_those_that_were_written_last() {
    const PIECE: usize = 8192;
    on_server(|world| {
        let [one, other] = world.mount_both();
        let open = |path| OpenOptions::new().read(true).write(true).open(path).unwrap();
        let own = world.volume.files().join("file");
        let mut expected = bytes_of(7, 64 * PIECE);
        fs::write(&own, &expected).unwrap();
        let reader = open(one.path("file"));
        let mut piece = [0; PIECE];
        for at in 0..64usize {
            reader.read_exact_at(&mut piece, (at * PIECE) as u64).unwrap();
            assert!(piece == expected[at * PIECE..][..PIECE], "piece {at}");
            // What is written is in the next piece, or in one after it.
            let offset = ((at + 1 + at % 3) * PIECE + 100).min(63 * PIECE);
            let written = [at as u8; 500];
            match at % 7 {
                1 => reader.write_all_at(&written, offset as u64).unwrap(),
                2 => open(one.path("file")).write_all_at(&written, offset as u64).unwrap(),
                3 => open(other.path("file")).write_all_at(&written, offset as u64).unwrap(),
                4 => open(own.clone()).write_all_at(&written, offset as u64).unwrap(),
                5 => {
                    // All after it is zero.
                    reader.set_len(offset as u64).unwrap();
                    reader.set_len(64 * PIECE as u64).unwrap();
                    expected[offset..].fill(0);
                    continue;
                }
                _ => continue,
            }
            expected[offset..offset + written.len()].copy_from_slice(&written);
        }
    });
}

/// The pages that a program has written through a mapping reach the server before another mount
/// writes elsewhere in them.
#[test]
fn a_mapped_page_does_not_overwrite_what_another_mount_writes_in_it() {
    if let Some(reason) = Mapping::cannot() {
        return println!("skipped: {reason}");
    }
    on_server(|world| {
        let [one, other] = world.mount_both();
        // So many that it takes a while to write them.
        const PAGES: usize = 2000;
        let last = (PAGES - 1) * 4096;
        for round in 0..4 {
            let name = format!("mapped-{round}");
            fs::write(one.path(&name), vec![b'.'; PAGES * 4096]).unwrap();
            let mut mapping = Mapping::of(&one.path(&name), PAGES * 4096);
            if round % 2 == 1 {
                // The mount knows its size no more, and keeps nothing back; the server does not
                // know that.
                let script = "truncate($ARGV[0], $ARGV[1]) or die $!";
                let mut perl = Command::new("perl");
                perl.args(["-e", script]).arg(one.path(&name)).arg((PAGES * 4096).to_string());
                assert!(perl.status().unwrap().success());
            }
            (0..PAGES).for_each(|page| mapping.put(page * 4096, "mapped"));
            let file = OpenOptions::new().write(true).open(other.path(&name)).unwrap();
            file.write_all_at(b"written", last as u64 + 100).unwrap();
            drop(file);
            drop(mapping);
            for path in [one.path(&name), other.path(&name)] {
                let bytes = fs::read(&path).unwrap();
                let seen = (&bytes[last..last + 6], &bytes[last + 100..last + 107]);
                assert_eq!(seen, (&b"mapped"[..], &b"written"[..]), "{round}, {path:?}");
            }
        }
    });
}

/// Changes of a file or its name after a write take effect after it.
#[test]
fn times_modes_and_names_come_after_the_bytes() {
    on_server(|world| {
        let mount = world.mount_tls("tls");
        let own = world.volume.files();
        // As `cp -p` does.
        let mut file = writer(&mount.path("copy"));
        file.write_all(b"bytes").unwrap();
        let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        file.set_times(fs::FileTimes::new().set_modified(time)).unwrap();
        drop(file);
        let copied = fs::metadata(own.join("copy")).unwrap();
        assert_eq!((copied.mtime(), copied.len()), (1_000_000, 5));
        // As an editor does: the new bytes replace the old ones, or the old ones stay.
        fs::write(mount.path("text"), "old").unwrap();
        let mut file = writer(&mount.path("text.new"));
        file.write_all(b"new").unwrap();
        fs::rename(mount.path("text.new"), mount.path("text")).unwrap();
        assert_eq!(fs::read_to_string(own.join("text")).unwrap(), "new");
        // What one descriptor writes another one of the same mount reads, cuts and copies.
        file.write_all(b" and more").unwrap();
        let mut read = String::new();
        File::open(mount.path("text")).unwrap().read_to_string(&mut read).unwrap();
        assert_eq!(read, "new and more");
        file.write_all(b"?").unwrap();
        file.set_len(3).unwrap();
        file.write_all_at(b"!", 3).unwrap();
        assert_eq!(fs::read_to_string(own.join("text")).unwrap(), "new!");
        assert_eq!(fs::copy(mount.path("text"), mount.path("again")).unwrap(), 4);
        assert_eq!(fs::read_to_string(own.join("again")).unwrap(), "new!");
    });
}

/// The server is killed while bytes that were written are still at the mount.
#[test]
fn bytes_that_were_kept_back_outlive_the_server() {
    on_server(|world| {
        let mount = world.mount_unix("unix");
        fs::write(mount.path("file"), "").unwrap();
        // A process of its own: one that starts the server closes what it has inherited first, and
        // that waits for the server.
        let mut writer = locker(&mount.path("file"));
        assert_eq!(writer.ask("put kept back"), "yes");
        world.volume.kill();
        world.volume.up(&["--listen", world.tcp()]).expect_success();
        // The server waits for its sessions before it shows anything.
        let own = world.volume.files().join("file");
        assert_eq!(fs::read_to_string(own).unwrap(), "kept back\n");
    });
}

/// A mount that gives up says so where a program looks.
#[test]
fn bytes_that_are_given_up_are_an_error_of_the_sync() {
    on_server(|world| {
        let forwarder = Forwarder::to(world.tcp());
        let far = world.mount(&world.address_at(forwarder.port), "tls", &["--soft", "2"]);
        let mut file = File::create(far.path("file")).unwrap();
        forwarder.cut(true);
        file.write_all(b"kept back").unwrap();
        assert_eq!(errno(file.sync_all()), Errno::TIMEDOUT);
        forwarder.cut(false);
        until("it works again", || file.sync_all().is_ok());
        assert_eq!(fs::read(world.volume.files().join("file")).unwrap(), b"");
    });
}
