//! `pelago get`: after any fault of the network or the disk the file is whole and right, or does
//! not exist.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};

use pelago_lossfs::{Fault, Lossfs, Model, Operation};
use pelago_random::bytes_of;
use rustix::io::Errno;

use crate::harness::program::{run, until};
use crate::harness::volume::{Volume, cannot_mount};
use relay::Relay;
use world::{Served, end, noted_blocks, until_noted};

mod lies;
mod plain;
mod planted;
mod relay;
mod requests;
mod world;

const MIB: usize = 1 << 20;
const BLOCK: u64 = 64 << 10;

#[test]
fn a_file_is_what_it_is_on_the_volume() {
    let Some(served) = Served::new() else { return };
    for size in [0, 1, 4096, BLOCK as usize, MIB, 3 * MIB + 70_001] {
        let bytes = bytes_of(size as u64, size);
        served.put("a file", &bytes);
        fs::write(served.here("file"), b"an older one").unwrap();
        let got = served.get(&served.url("a file"), "file", &["--json"]).expect_success().json();
        assert!(fs::read(served.here("file")).unwrap() == bytes, "{size}");
        assert_eq!((&got["bytes"], &got["received"]), (&size.into(), &size.into()));
        assert_eq!(got["verified"], true);
        assert_eq!(got["root_confirmed"], true, "{got}");
    }
    served.expect_here(&["file"]);
    // A link is followed.
    fs::create_dir(served.here("dir")).unwrap();
    symlink("dir/real", served.here("link")).unwrap();
    fs::write(served.here("dir/real"), b"old").unwrap();
    let got = served.get(&served.url("a file"), "link", &[]).expect_success();
    assert!(got.out.contains("every MiB matches its hash"), "{got:?}");
    assert_eq!(fs::metadata(served.here("dir/real")).unwrap().len(), 3 * MIB as u64 + 70_001);
    served.volume.finish();
}

#[test]
fn what_cannot_be_had_leaves_nothing_and_says_why() {
    let Some(served) = Served::new() else { return };
    served.put("file", b"bytes");
    fs::create_dir(served.volume.files().join("dir")).unwrap();
    fs::create_dir(served.here("dir")).unwrap();
    let cases: [(&str, &str, i32, &str); 5] = [
        ("none", "new", 3, "404"),
        ("dir", "new", 1, "/dir/"),
        ("file", "dir", 1, "a directory"),
        ("file", "no/dir/new", 3, "cannot use"),
        ("%2e%2e/x", "new", 1, "400"),
    ];
    for (name, to, code, says) in cases {
        let got = served.get(&served.url(name), to, &[]).expect_code(code);
        assert!(got.err.contains(says), "{got:?}");
    }
    let got = served.get("http://127.0.0.1:1/x", "new", &["--timeout", "1"]).expect_code(5);
    assert!(got.err.contains("cannot be reached"), "{got:?}");
    served.expect_here(&["dir"]);
    served.volume.finish();
}

/// Bytes that the first download received are not sent again.
#[test]
fn a_download_that_was_killed_goes_on_where_it_was() {
    let Some(served) = Served::new() else { return };
    let size = 12 * MIB + 5;
    let bytes = bytes_of(3, size);
    served.put("file", &bytes);
    let relay = Relay::to(&served.address);
    for (part, hold) in [(1, 1_500_000), (2, 5_000_000), (3, 9_400_000)] {
        relay.hold_at(hold);
        let mut child = served.spawn(&relay.url("file"), "file", &[]);
        until("held", || relay.passed() == hold);
        // What came in this run and in those before, but for a few blocks.
        until_noted(&served.here("file"), u32::try_from(hold / BLOCK).unwrap() - 3 * part);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!served.here("file").exists());
    }
    relay.let_pass();
    let got = served.get(&relay.url("file"), "file", &["--json"]).expect_success().json();
    assert!(fs::read(served.here("file")).unwrap() == bytes);
    assert_eq!(got["restarts"], 0);
    // Each kill costs less than five blocks; a frame has 16 bytes and those of its chunk.
    let cost = relay.passed() - size as u64;
    assert!(cost < 3 * 5 * BLOCK + 40_000, "{cost} bytes too many came");
    let received = got["received"].as_u64().unwrap();
    // The last kill may have come nine blocks before what was held, and in the middle of one.
    assert!(received < size as u64 - 9_400_000 + 10 * BLOCK, "{received}");
    served.expect_here(&["file"]);
    served.volume.finish();
}

#[test]
fn a_server_that_was_killed_is_asked_again_for_the_rest() {
    let Some(served) = Served::new() else { return };
    let size = 12 * MIB;
    let bytes = bytes_of(4, size);
    served.put("file", &bytes);
    let relay = Relay::to(&served.address);
    relay.hold_at(4_000_000);
    let child = served.spawn(&relay.url("file"), "file", &["--json", "--timeout", "100"]);
    until_noted(&served.here("file"), 4_000_000 / BLOCK as u32 - 2);
    served.volume.kill();
    relay.let_pass();
    served.up_again();
    let got = end(child).expect_success().json();
    assert!(fs::read(served.here("file")).unwrap() == bytes);
    assert_eq!((&got["restarts"], &got["resumed"]), (&0.into(), &0.into()));
    // What the relay had from the first server is all that may come twice.
    assert!(got["received"].as_u64().unwrap() < size as u64 + 5 * BLOCK, "{got}");
    served.volume.finish();
}

#[test]
fn a_byte_that_changes_on_the_way_is_found_and_fetched_again() {
    let Some(served) = Served::new() else { return };
    let size = 4 * MIB;
    let bytes = bytes_of(5, size);
    served.put("file", &bytes);
    let relay = Relay::to(&served.address);
    relay.flip_at(1_600_000);
    let got = served.get(&relay.url("file"), "file", &[]).expect_success();
    // Which extent it is in depends on the order in which the server has read them.
    assert_eq!(got.err.matches("does not match its hash").count(), 1, "{got:?}");
    assert!(fs::read(served.here("file")).unwrap() == bytes);
    let cost = relay.passed() - size as u64;
    assert!(cost < MIB as u64 + 20_000, "only that extent came again: {cost}");
    // The second time it is an error, and the target is what it was.
    relay.flip_each(500_000);
    fs::write(served.here("file"), b"old").unwrap();
    let got = served.get(&relay.url("file"), "file", &[]).expect_code(7);
    assert!(got.err.contains("a second time"), "{got:?}");
    assert_eq!(fs::read(served.here("file")).unwrap(), b"old");
    relay.flip_each(0);
    served.get(&relay.url("file"), "file", &[]).expect_success();
    assert!(fs::read(served.here("file")).unwrap() == bytes);
    served.volume.finish();
}

/// One version or the other, never a mixture.
#[test]
fn a_file_that_changes_under_a_download_is_downloaded_anew() {
    let Some(served) = Served::new() else { return };
    // A smaller one is copied for its downloads.
    let size = 65 * MIB;
    served.put("file", &vec![1; size]);
    let relay = Relay::to(&served.address);
    relay.hold_at(2_000_000);
    let child = served.spawn(&relay.url("file"), "file", &["--json", "--wait"]);
    until_noted(&served.here("file"), 2_000_000 / BLOCK as u32 - 2);
    let writer = OpenOptions::new().write(true).open(served.volume.files().join("file")).unwrap();
    writer.write_all_at(&vec![2; size], 0).unwrap();
    drop(writer);
    relay.let_pass();
    let got = end(child).expect_success().json();
    assert!(fs::read(served.here("file")).unwrap() == vec![2; size]);
    assert_eq!(got["restarts"], 1, "{got}");
    served.volume.finish();
}

#[test]
fn a_file_that_changed_between_two_runs_is_downloaded_anew() {
    let Some(served) = Served::new() else { return };
    let size = 6 * MIB;
    served.put("file", &vec![1; size]);
    let relay = Relay::to(&served.address);
    relay.hold_at(3_000_000);
    let mut child = served.spawn(&relay.url("file"), "file", &[]);
    until_noted(&served.here("file"), 3_000_000 / BLOCK as u32 - 2);
    child.kill().unwrap();
    child.wait().unwrap();
    relay.let_pass();
    served.put("file", &vec![2; size + 1]);
    let got = served.get(&relay.url("file"), "file", &["--json"]).expect_success().json();
    assert!(fs::read(served.here("file")).unwrap() == vec![2; size + 1]);
    assert_eq!((&got["restarts"], &got["resumed"]), (&1.into(), &0.into()));
    served.volume.finish();
}

#[test]
fn a_file_that_is_being_written_is_waited_for_if_that_is_said() {
    let Some(served) = Served::new() else { return };
    served.put("file", &vec![1; MIB]);
    let path = served.volume.files().join("file");
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    let refused = served.get(&served.url("file"), "file", &[]).expect_code(1);
    assert!(refused.err.contains("being written") && refused.err.contains("--wait"), "{refused:?}");
    served.expect_here(&[]);
    let relay = Relay::to(&served.address);
    let child = served.spawn(&relay.url("file"), "file", &["--wait"]);
    until("it was refused once", || relay.passed() > 0);
    drop(writer);
    let waited = end(child).expect_success();
    assert!(waited.err.contains("asked again in 5 s"), "{waited:?}");
    assert!(fs::read(served.here("file")).unwrap() == vec![1; MIB]);
    served.volume.finish();
}

#[test]
fn a_full_disk_is_one_error_and_the_download_goes_on_later() {
    let Some(served) = Served::new() else { return };
    if !rustix::process::geteuid().is_root() {
        served.volume.finish();
        return println!("skipped: only root mounts a small disk");
    }
    let bytes = bytes_of(6, 12 * MIB);
    served.put("file", &bytes);
    let small = served.volume.root.join("small");
    fs::create_dir(&small).unwrap();
    let mount = |options: &str| {
        let mut command = std::process::Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&small);
        run(&mut command).expect_success();
    };
    mount("size=8m");
    let get = |options: &[&str]| {
        let to = small.join("file");
        run(&mut world::get(&served.volume.root, &served.url("file"), &to, options))
    };
    let full = get(&[]).expect_code(1);
    assert!(full.err.contains("no room") && full.err.contains("goes on"), "{full:?}");
    assert!(!small.join("file").exists());
    let noted = noted_blocks(&small.join("file"));
    assert!(noted > 7 * 16 - 2, "{noted} blocks");
    mount("remount,size=16m");
    let got = get(&["--json"]).expect_success().json();
    assert!(fs::read(small.join("file")).unwrap() == bytes);
    assert!(got["resumed"].as_u64().unwrap() > 6 * MIB as u64, "{got}");
    crate::harness::volume::detach_all(&small);
    served.volume.finish();
}

/// The extent is named, and all others come.
#[test]
fn an_extent_that_the_server_cannot_read_is_fetched_once_its_disk_is_well() {
    if let Some(reason) = cannot_mount() {
        return println!("skipped: {reason}");
    }
    let mut volume = Volume::new();
    volume.passthrough = Some("never".to_owned());
    fs::create_dir(&volume.dir).unwrap();
    let lossfs = Lossfs::mount(&volume.dir, Model::new()).unwrap();
    let served = Served::of(volume);
    let bytes = bytes_of(9, 6 * MIB);
    served.put("file", &bytes);
    // The kernel has the bytes of a file in memory until it is opened again.
    served.volume.run("unmount", &[]).expect_success();
    served.up_again();
    // One extent or two: they may be read at the same time.
    lossfs.control().fail(Fault {
        on: Operation::Read,
        within: "/content/".to_owned(),
        after: 2,
        times: 2,
        error: Errno::IO,
    });
    let refused = served.get(&served.url("file"), "file", &[]).expect_code(1);
    assert!(refused.err.contains("the server cannot read extent"), "{refused:?}");
    assert!(refused.err.contains("input/output error"), "{refused:?}");
    assert!(!served.here("file").exists());
    lossfs.control().heal();
    let got = served.get(&served.url("file"), "file", &["--json"]).expect_success().json();
    assert!(fs::read(served.here("file")).unwrap() == bytes);
    assert!(got["resumed"].as_u64().unwrap() >= 4 * MIB as u64, "{got}");
    assert_eq!(got["root_confirmed"], true, "{got}");
    served.volume.run("unmount", &[]).expect_success();
    served.volume.check_whole();
    drop((served, lossfs));
}
