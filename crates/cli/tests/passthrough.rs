//! Passthrough: the kernel reads and writes content files itself. No byte is lost if the daemon or
//! the descriptor is gone first, all programs see the same bytes, and `up` says why a volume has no
//! passthrough.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use pelago_random::bytes_of;
use rustix::process::geteuid;

use crate::harness::mapping::Mapping;
use crate::harness::namespace::{cannot_isolate, isolated};
use crate::harness::program::until;
use crate::harness::volume::{Volume, cannot_mount, folder};

const SIZE: usize = 300_000;

/// Returns a volume with passthrough for every file; the error is the reason to skip the test.
fn passing() -> Result<Volume, String> {
    if let Some(reason) = cannot_mount() {
        return Err(reason);
    }
    if !geteuid().is_root() {
        return Err("needs root".to_owned());
    }
    let volume = Volume::with_passthrough("always");
    match why_not(&volume) {
        None => Ok(volume),
        Some(why_not) => Err(format!("not here: {why_not}")),
    }
}

/// Returns why the volume uses the daemon path, if it does.
fn why_not(volume: &Volume) -> Option<String> {
    let status = volume.run("status", &["--json"]).expect_success().json();
    let why_not = status["passthrough"]["why_not"].as_str().map(str::to_owned);
    let data_path = if why_not.is_some() { "daemon" } else { "passthrough" };
    assert_eq!(status["data_path"], data_path, "{status}");
    why_not
}

macro_rules! passing {
    () => {
        match passing() {
            Ok(volume) => volume,
            Err(reason) => {
                println!("skipped: {reason}");
                return;
            }
        }
    };
}

macro_rules! needs_mappings {
    () => {
        if let Some(reason) = Mapping::cannot() {
            println!("skipped: {reason}");
            return;
        }
    };
}

fn up_again(volume: &Volume) {
    volume.run("unmount", &[]).expect_success();
    volume.up(&[]).expect_success();
}

/// Returns whether a file has these bytes with some words written over them.
fn is_with(path: &Path, mut bytes: Vec<u8>, words: &[(usize, &str)]) -> bool {
    for (at, word) in words {
        bytes.resize(bytes.len().max(at + word.len()), 0);
        bytes[*at..at + word.len()].copy_from_slice(word.as_bytes());
    }
    fs::read(path).unwrap() == bytes
}

/// The daemon copies no byte: its own count of written characters does not change. What it writes
/// to the disk are rows.
#[test]
fn the_daemon_copies_no_byte() {
    let volume = passing!();
    let written = || {
        let pid = volume.pid().unwrap().as_raw_nonzero();
        let counts = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
        let count = counts.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
        count.parse::<u64>().unwrap()
    };
    let file = File::create_new(volume.files().join("large")).unwrap();
    let before = written();
    for part in 0..64 {
        file.write_all_at(&vec![7; 1 << 20], part << 20).unwrap();
    }
    let through = written() - before;
    assert!(through < 16 << 20, "{through} bytes went through the daemon");
    assert_eq!(file.metadata().unwrap().len(), 64 << 20);
    drop(file);
    volume.finish();
}

/// A store into a mapping after its descriptor was closed, and again after an unmount and a mount.
#[test]
fn a_store_into_a_mapping_after_close_is_kept() {
    needs_mappings!();
    let volume = passing!();
    let path = volume.files().join("mapped");
    let bytes = bytes_of(1, SIZE);
    fs::write(&path, &bytes).unwrap();
    let mut mapping = Mapping::of(&path, SIZE);
    mapping.close();
    mapping.put(100_000, "after-close");
    let mut words = vec![(100_000, "after-close")];
    assert!(is_with(&path, bytes.clone(), &words), "a later open does not see it");
    // Nothing is cached: the next store is visible too.
    mapping.put(SIZE - 4, "last");
    words.push((SIZE - 4, "last"));
    assert!(is_with(&path, bytes.clone(), &words), "the second is not seen");
    // A mapping uses the mount, as on any file system.
    volume.run("unmount", &[]).expect_code(1);
    volume.run("unmount", &["--force"]).expect_success();
    mapping.put(200_000, "unmounted");
    words.push((200_000, "unmounted"));
    volume.up(&[]).expect_success();
    assert!(is_with(&path, bytes.clone(), &words), "lost with the mount");
    mapping.put(0, "remounted");
    words.push((0, "remounted"));
    assert!(is_with(&path, bytes.clone(), &words), "not seen through the new mount");
    drop(mapping);
    assert!(is_with(&path, bytes.clone(), &words));
    volume.kill();
    volume.up(&[]).expect_success();
    assert!(is_with(&path, bytes, &words), "lost with the daemon");
    volume.finish();
}

/// A store changes the times, although no request announces it.
#[test]
fn a_store_into_a_mapping_after_close_changes_the_time() {
    needs_mappings!();
    let volume = passing!();
    let path = volume.files().join("mapped");
    fs::write(&path, bytes_of(1, SIZE)).unwrap();
    let mut mapping = Mapping::of(&path, SIZE);
    mapping.close();
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    // The disk's file system notices the first store into a page after its write-back.
    until("a later time", || {
        mapping.put(5, "store");
        mapping.sync();
        fs::metadata(&path).unwrap().modified().unwrap() > before
    });
    let seen = fs::metadata(&path).unwrap();
    drop(mapping);
    up_again(&volume);
    let kept = fs::metadata(&path).unwrap();
    assert!(kept.modified().unwrap() >= seen.modified().unwrap());
    assert!((kept.ctime(), kept.ctime_nsec()) >= (seen.ctime(), seen.ctime_nsec()));
    assert_eq!(kept.len(), SIZE as u64);
    volume.finish();
}

/// A program keeps its descriptor of a mount whose daemon was killed, and continues to write.
#[test]
fn a_write_through_a_descriptor_after_kill_9_is_kept() {
    needs_mappings!();
    let volume = passing!();
    let path = volume.files().join("written");
    let bytes = bytes_of(2, SIZE);
    fs::write(&path, &bytes).unwrap();
    let mut program = Mapping::of(&path, SIZE);
    program.write(1000, "alive");
    volume.kill();
    program.write(2000, "dead");
    let mut words = vec![(1000, "alive"), (2000, "dead")];
    volume.up(&[]).expect_success();
    assert!(is_with(&path, bytes.clone(), &words), "written while no process serves the volume");
    let before = fs::metadata(&path).unwrap();
    assert_eq!(before.len(), SIZE as u64);
    // Size and time follow writes that send no request.
    program.write(SIZE, "beyond");
    words.push((SIZE, "beyond"));
    assert_eq!(fs::metadata(&path).unwrap().len(), SIZE as u64 + 6);
    assert!(fs::metadata(&path).unwrap().modified().unwrap() >= before.modified().unwrap());
    assert!(is_with(&path, bytes.clone(), &words), "written past the new daemon");
    program.write(3000, "last");
    words.push((3000, "last"));
    let written = fs::metadata(&path).unwrap();
    drop(program);
    // Without writers it is a file like any other.
    assert_is_settled(&volume, &path);
    assert!(is_with(&path, bytes, &words));
    let settled = fs::metadata(&path).unwrap();
    assert_eq!((settled.len(), settled.mtime()), (written.len(), written.mtime()));
    volume.finish();
}

/// The program has the file open when its only name is removed.
#[test]
fn a_file_without_a_name_lives_until_its_last_descriptor() {
    let volume = passing!();
    let path = volume.files().join("gone");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(&bytes_of(3, SIZE), 0).unwrap();
    fs::remove_file(&path).unwrap();
    file.write_all_at(b"still", 5).unwrap();
    let mut read = [0; 5];
    file.read_exact_at(&mut read, 5).unwrap();
    assert_eq!(read, *b"still");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    volume.kill();
    file.write_all_at(b"alone", 5).unwrap();
    file.read_exact_at(&mut read, 5).unwrap();
    assert_eq!(read, *b"alone");
    volume.up(&[]).expect_success();
    file.read_exact_at(&mut read, 5).unwrap();
    assert_eq!(read, *b"alone");
    drop(file);
    assert!(!path.exists());
    volume.finish();
}

/// Checks that the volume counts no file as being written: after a clean stop, recovery checks
/// none.
fn assert_is_settled(volume: &Volume, path: &Path) {
    until("the file is settled", || {
        volume.run("unmount", &[]).expect_success();
        volume.up(&[]).expect_success();
        let status = volume.run("status", &["--json"]).expect_success().json();
        fs::metadata(path).unwrap();
        status["volume"]["recovered"]["files"] == 0
    });
}

/// `--passthrough` decides, and `up` prints the result.
#[test]
fn the_option_decides_the_data_path() {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    let volume = Volume::new();
    for passthrough in ["never", "auto", "always"] {
        let up = volume.up(&["--passthrough", passthrough]).expect_success();
        let speed = up.out.lines().find(|line| line.starts_with("speed     ")).unwrap();
        let status = volume.run("status", &[]).expect_success();
        assert!(status.out.contains(speed), "{status:?}");
        let why_not = why_not(&volume);
        match why_not {
            Some(why_not) => {
                assert!(
                    speed.starts_with(&format!("speed     daemon path: {why_not}; ")),
                    "{speed}"
                );
            }
            None => assert!(speed.starts_with("speed     passthrough: "), "{speed}"),
        }
        if passthrough == "never" {
            let path = "speed     daemon path: asked for by --passthrough never; requests ";
            assert!(speed.starts_with(path), "{speed}");
        }
        fs::write(volume.files().join(passthrough), bytes_of(4, SIZE)).unwrap();
        for file in fs::read_dir(volume.files()).unwrap() {
            assert!(fs::read(file.unwrap().path()).unwrap() == bytes_of(4, SIZE));
        }
        volume.run("unmount", &[]).expect_success();
    }
    volume.check_whole();
}

/// Starts a volume as an ordinary user, in a namespace where `/dev/fuse` is accessible to all
/// users, as on a desktop, and in a folder that the user can reach.
const AS_A_USER: &str = r#"
ROOT=/mnt
mount -t tmpfs -o mode=755 none "$ROOT"
cd "$ROOT"
mknod fuse c 10 229 && chmod 666 fuse && mount --bind fuse /dev/fuse
cp "$PELAGO" pelago && chmod 755 pelago
mkdir -m 755 home && chown 65534:65534 home
user() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$ROOT/home" "$@"; }
user ./pelago up home/vol --detach
user sh -ec 'cd home/vol/files; echo small > a; head -c 300000 /dev/zero > b; cat a; wc -c < b'
user sh -ec 'cd home/vol/files; mkdir d; mv a d/; ln d/a c; chmod 600 c; rm d/a; cat c'
user ./pelago status --timeout 100 home/vol | grep '^speed'
user ./pelago unmount --timeout 100 home/vol
user ./pelago check home/vol --json | grep -o '"whole":true'
"#;

/// Users other than root get the daemon path, and one line says why.
#[test]
fn an_ordinary_user_has_the_daemon_path_and_the_reason() {
    if let Some(reason) = cannot_mount().or_else(cannot_isolate) {
        println!("skipped: {reason}");
        return;
    }
    let (_folder, root) = folder();
    let ran = isolated(&root, AS_A_USER).expect_success();
    let speed = "speed     daemon path: passthrough needs root; requests by /dev/fuse (io_uring: ";
    assert_eq!(ran.out.lines().filter(|line| line.starts_with(speed)).count(), 2, "{ran:?}");
    for line in ["small", "300000", "\"whole\":true"] {
        assert!(ran.out.lines().any(|said| said == line), "{line}: {ran:?}");
    }
    assert_eq!(ran.err, "", "{ran:?}");
}
