//! Volumes that cannot be opened: all readable files are copied out. Volumes with lost or shortened
//! files: `check` and `up` report them.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{XattrFlags, setxattr};
use rustix::process::geteuid;

use crate::harness::damage::newest_journal;
use crate::harness::program::{Ran, bare, pelago, run};
use crate::harness::seen::tree;
use crate::harness::volume::{Volume, cannot_mount};

macro_rules! needs_mount {
    () => {
        if let Some(reason) = cannot_mount() {
            println!("skipped: {reason}");
            return;
        }
    };
}

/// Returns a volume with some files that was stopped cleanly.
fn stopped() -> Volume {
    let volume = Volume::mounted();
    fs::create_dir(volume.files().join("folder")).unwrap();
    for number in 0..20 {
        fs::write(volume.files().join(format!("small{number}")), format!("{number}")).unwrap();
        let large = vec![number as u8; 20_000];
        fs::write(volume.files().join(format!("folder/large{number}")), large).unwrap();
    }
    volume.run("unmount", &[]).expect_success();
    volume
}

fn salvage(volume: &Volume, to: &Path) -> Ran {
    let mut command = pelago(&volume.root, ["check", "--salvage"]);
    run(command.arg(&volume.dir).arg(to))
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// Nothing is left to replay, so no bit of a journal can cost a volume that was stopped.
#[test]
fn a_clean_stop_leaves_an_empty_journal() {
    needs_mount!();
    let volume = stopped();
    assert_eq!(newest_journal(&volume).metadata().unwrap().len(), 0);
    volume.up(&[]).expect_success();
    fs::write(volume.files().join("one"), "more").unwrap();
    volume.run("unmount", &[]).expect_success();
    assert_eq!(newest_journal(&volume).metadata().unwrap().len(), 0);
}

/// `format` and the seed are there twice: a flipped bit in one is told, once, and mended.
#[test]
fn a_file_that_is_there_twice_is_mended() {
    needs_mount!();
    for name in ["format", "format.copy", "table/seed", "table/seed.copy"] {
        let volume = stopped();
        let path = volume.dir.join(name);
        let good = fs::read(&path).unwrap();
        flip(&path, good.len() / 2);
        let checked = volume.run("check", &[]).expect_code(7);
        assert!(checked.out.contains("damage") && checked.out.contains(name), "{checked:?}");
        let told = volume.up(&[]).expect_success();
        assert!(told.out.contains("mended    1 file"), "{told:?}");
        assert_eq!(fs::read(&path).unwrap(), good, "{name}");
        assert_eq!(fs::read(volume.files().join("small7")).unwrap(), b"7");
        volume.run("unmount", &[]).expect_success();
        fs::remove_file(&path).unwrap();
        volume.run("check", &["--apply"]).expect_success();
        let told = volume.up(&[]).expect_success();
        assert!(!told.out.contains("mended"), "{told:?}");
        assert_eq!(fs::read(&path).unwrap(), good, "{name}");
        volume.finish();
    }
}

/// A volume of the commit before has one file each.
#[test]
fn a_volume_without_second_files_gets_them() {
    needs_mount!();
    let volume = stopped();
    let copies = ["format.copy", "table/seed.copy"].map(|name| volume.dir.join(name));
    copies.iter().for_each(|copy| fs::remove_file(copy).unwrap());
    volume.check_whole();
    let told = volume.up(&[]).expect_success();
    assert!(!told.out.contains("mended"), "{told:?}");
    assert_eq!(fs::read(&copies[0]).unwrap(), fs::read(volume.dir.join("format")).unwrap());
    assert_eq!(fs::read(&copies[1]).unwrap(), fs::read(volume.dir.join("table/seed")).unwrap());
    volume.finish();
}

/// The second file of another volume stands in for nothing, and is replaced.
#[test]
fn second_files_of_another_volume_are_not_believed() {
    needs_mount!();
    let other = stopped();
    for name in ["format", "table/seed"] {
        let volume = stopped();
        let path = volume.dir.join(name);
        let good = fs::read(&path).unwrap();
        let copy = volume.dir.join(format!("{name}.copy"));
        let foreign = fs::read(other.dir.join(name)).unwrap();
        fs::write(&copy, &foreign).unwrap();
        // Alone it would be believed if nothing was compared.
        fs::remove_file(&path).unwrap();
        let told = volume.up(&[]).expect_code(7);
        assert!(told.err.contains("volume"), "{told:?}");
        assert!(!path.exists() && fs::read(&copy).unwrap() == foreign, "{name}");
        fs::write(&path, &good).unwrap();
        volume.up(&[]).expect_success();
        assert_eq!(fs::read(&copy).unwrap(), good, "{name}");
        volume.run("unmount", &[]).expect_success();
        // The other way round the seed is known by the names; the id only by `format`.
        if name == "table/seed" {
            fs::write(&path, &foreign).unwrap();
            volume.up(&[]).expect_success();
            assert_eq!(fs::read(&path).unwrap(), good);
            assert_eq!(fs::read(volume.files().join("small7")).unwrap(), b"7");
            volume.run("unmount", &[]).expect_success();
        }
        volume.check_whole();
    }
}

/// Without any of the files that say what the others mean, the rows and the content are copied.
#[test]
fn a_volume_without_its_small_files_is_salvaged_whole() {
    needs_mount!();
    let volume = stopped();
    volume.up(&[]).expect_success();
    let good = tree(&volume.files());
    volume.run("unmount", &[]).expect_success();
    let rows = "table/engine/keyspaces/1/current";
    let damaged =
        ["format", "format.copy", "table/seed", "table/seed.copy", "table/engine/version", rows];
    for name in damaged {
        flip(&volume.dir.join(name), 3);
    }
    for verb in ["up", "check"] {
        let ran = volume.run(verb, &[]).expect_code(7);
        assert!(ran.err.contains("pelago check --salvage"), "{ran:?}");
    }
    let to = volume.root.join("to");
    let ran = salvage(&volume, &to).expect_success();
    assert!(ran.out.contains("result    whole"), "{ran:?}");
    let found = tree(&to.join("files"));
    assert_eq!(format!("{found:?}"), format!("{good:?}"));
    // A second time into the same folder, and into the volume.
    salvage(&volume, &to).expect_code(1);
    let ran = salvage(&volume, &volume.dir.join("content/to")).expect_code(1);
    assert!(ran.err.contains("is in the volume"), "{ran:?}");
}

/// Without rows, bytes are found by number.
#[test]
fn content_without_names_is_found_by_number() {
    needs_mount!();
    let volume = stopped();
    fs::remove_dir_all(volume.dir.join("table/engine/keyspaces/1/tables")).unwrap();
    let to = volume.root.join("to");
    let ran = salvage(&volume, &to).expect_code(7);
    assert!(ran.out.contains("found     20 without their names"), "{ran:?}");
    let found = fs::read_dir(to.join("lost+found")).unwrap().map(Result::unwrap);
    let mut sizes: Vec<u64> = found.map(|entry| entry.metadata().unwrap().len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [20_000; 20]);
}

/// A list of runs in which one bit is wrong still says which runs there were; of one that is
/// damaged more nothing does. A run that is missing too is told of in both cases.
#[test]
fn a_run_that_is_missing_beside_a_damaged_list_is_told_of() {
    needs_mount!();
    let volume = stopped();
    let keyspace = volume.dir.join("table/engine/keyspaces/1");
    let run = fs::read_dir(keyspace.join("tables")).unwrap().next().unwrap().unwrap().path();
    let current = fs::read(keyspace.join("current")).unwrap();
    let number = u64::from_le_bytes(*current.first_chunk().unwrap());
    let list = keyspace.join(format!("v{number}"));
    flip(&list, 5);
    salvage(&volume, &volume.root.join("one-bit")).expect_success();
    fs::rename(&run, volume.root.join("run")).unwrap();
    let ran = salvage(&volume, &volume.root.join("one-bit-and-run")).expect_code(7);
    assert!(ran.out.contains(run.to_str().unwrap()), "{ran:?}");
    fs::write(&list, "nothing").unwrap();
    let ran = salvage(&volume, &volume.root.join("list-and-run")).expect_code(7);
    assert!(ran.out.contains("others may be missing"), "{ran:?}");
    // Even if all are there, nothing says so.
    fs::rename(volume.root.join("run"), &run).unwrap();
    let to = volume.root.join("list");
    let ran = salvage(&volume, &to).expect_code(7);
    assert!(ran.out.contains("others may be missing"), "{ran:?}");
    assert_eq!(fs::read(to.join("files/small7")).unwrap(), b"7");
}

/// The end of the journal may be missing if nothing says where it was.
#[test]
fn a_journal_without_the_file_that_says_how_far_it_was_synced_is_told_of() {
    needs_mount!();
    let volume = Volume::mounted();
    fs::write(volume.files().join("one"), "1").unwrap();
    File::open(volume.files()).unwrap().sync_all().unwrap();
    volume.kill();
    crate::harness::volume::detach_all(&volume.root);
    let journal = newest_journal(&volume);
    let end = fs::read(&journal).unwrap().iter().rposition(|byte| *byte != 0).unwrap();
    flip(&journal, end);
    let ran = salvage(&volume, &volume.root.join("torn")).expect_code(7);
    assert!(ran.out.contains("some of its batches are damaged"), "{ran:?}");
    fs::remove_file(volume.dir.join("table/flushed")).unwrap();
    let ran = salvage(&volume, &volume.root.join("unknown")).expect_code(7);
    assert!(ran.out.contains("may have been synced"), "{ran:?}");
    assert!(ran.out.contains("flushed"), "{ran:?}");
}

/// Neither many directories with hard links nor a deep tree needs many open files.
#[test]
fn a_copy_needs_few_open_files() {
    needs_mount!();
    let volume = Volume::mounted();
    let first = volume.files().join("first");
    fs::write(&first, "linked everywhere").unwrap();
    for number in 0..1_500 {
        let folder = volume.files().join(format!("folder{number}"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a"), format!("{number}")).unwrap();
        fs::hard_link(folder.join("a"), folder.join("b")).unwrap();
        fs::hard_link(&first, folder.join("first")).unwrap();
    }
    let deep = volume.files().join(vec!["d"; 400].join("/"));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("bottom"), "reached").unwrap();
    let good = tree(&volume.files());
    volume.run("unmount", &[]).expect_success();
    let to = volume.root.join("to");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 256 && exec \"$0\" check --salvage \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_pelago")).arg(&volume.dir).arg(&to);
    bare(&mut command, &volume.root);
    let ran = run(&mut command).expect_success();
    assert!(ran.out.contains("result    whole"), "{ran:?}");
    assert!(!to.join(".links").exists());
    let found = tree(&to.join("files"));
    assert_eq!(found.len(), good.len());
    for (path, good) in good {
        assert_eq!(format!("{:?}", found[&path]), format!("{good:?}"), "{path}");
    }
}

/// A user other than root copies a volume of its own with all tags, also those of files and
/// directories that are read-only or closed, and their times.
#[test]
fn an_ordinary_user_keeps_tags_and_times_of_what_is_read_only() {
    needs_mount!();
    if !geteuid().is_root() {
        return println!("skipped: only root can become another user");
    }
    let volume = Volume::mounted();
    let modes = [("open", 0o644), ("read-only", 0o444), ("closed", 0o000)];
    for (name, mode) in modes {
        let [file, folder] = ["file", "folder"].map(|kind| volume.files().join(kind).join(name));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::create_dir_all(&folder).unwrap();
        fs::write(&file, name).unwrap();
        fs::write(folder.join("inner"), name).unwrap();
        for path in [file, folder] {
            setxattr(&path, "user.tag.colour", name.as_bytes(), XattrFlags::empty()).unwrap();
            File::open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }
    let good = tree(&volume.files());
    volume.run("unmount", &[]).expect_success();
    let mut chown = Command::new("chown");
    run(chown.args(["-R", "65534:65534"]).arg(&volume.root)).expect_success();
    let to = volume.root.join("to");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(env!("CARGO_BIN_EXE_pelago")).args(["check", "--salvage"]);
    command.arg(&volume.dir).arg(&to);
    bare(&mut command, &volume.root);
    let ran = run(&mut command).expect_success();
    assert!(ran.out.contains("result    whole"), "{ran:?}");
    let found = tree(&to.join("files"));
    assert_eq!(found.len(), good.len());
    for (path, good) in good {
        let good = good.unwrap();
        let found = found[&path].as_ref().unwrap().clone();
        assert_eq!(found.of_owner(0, 0), good, "{path}");
    }
}

/// A volume that is up is not salvaged: its rows change meanwhile.
#[test]
fn a_volume_in_use_is_not_salvaged() {
    needs_mount!();
    let volume = Volume::mounted();
    let to = volume.root.join("to");
    let ran = salvage(&volume, &to);
    assert!(ran.code != Some(0) && ran.err.contains("in use"), "{ran:?}");
    assert!(!to.exists());
    volume.finish();
}

fn copy_into(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    command.args(["-a", "--sparse=always"]).arg(from).arg(to);
    assert_eq!(run(&mut command).code, Some(0));
}

/// Returns an image of a volume that is up, whose content files are from `content`, an earlier
/// moment: a copy of a folder is not of one moment.
fn image(volume: &Volume, content: &Path) -> PathBuf {
    let to = volume.root.join("image");
    fs::create_dir(&to).unwrap();
    fs::set_permissions(&to, fs::metadata(&volume.dir).unwrap().permissions()).unwrap();
    copy_into(content, &to.join("content"));
    for name in ["format", "format.copy", "lock", "table"] {
        copy_into(&volume.dir.join(name), &to);
    }
    to
}

/// An image of a volume that is up: `check` says what the next start does, the start does that and
/// says so, and `status` counts it.
#[test]
fn an_image_of_a_running_volume_is_told_of_before_and_after() {
    needs_mount!();
    let volume = Volume::mounted();
    let old = volume.files().join("old");
    fs::write(&old, vec![1; 50_000]).unwrap();
    File::open(&old).unwrap().sync_all().unwrap();
    let content = volume.root.join("content");
    copy_into(&volume.dir.join("content"), &content);
    for number in 0..6 {
        fs::write(volume.files().join(format!("new{number}")), vec![2; 50_000]).unwrap();
    }
    let mut open = File::options().append(true).open(&old).unwrap();
    open.write_all(&[3; 10_000]).unwrap();
    File::open(volume.files()).unwrap().sync_all().unwrap();
    let image = image(&volume, &content);
    let ask = |verb: &str, args: &[&str]| {
        let mut command = pelago(&volume.root, [verb]);
        run(command.args(args).arg(&image))
    };
    let checked = ask("check", &["--json"]).expect_success().json();
    assert_eq!(checked["whole"], true, "{checked}");
    let pending = checked["found"]["pending"].as_u64().unwrap();
    assert!((6..=7).contains(&pending), "{checked}");
    let listed = ask("check", &[]).expect_success();
    assert!(listed.out.contains("pending   "), "{listed:?}");
    assert!(listed.out.contains("the next start makes it empty"), "{listed:?}");
    let up = ask("up", &["--detach"]).expect_success();
    assert!(up.out.contains("lost      6 files empty"), "{up:?}");
    let status = ask("status", &["--json", "-V"]).expect_success().json();
    assert_eq!(status["volume"]["recovered"]["emptied"], 6, "{status}");
    let shortened = status["volume"]["recovered"]["shortened"].as_u64().unwrap();
    assert_eq!(6 + shortened, pending, "{status}");
    assert_eq!(fs::read(image.join("files/old")).unwrap()[..50_000], [1; 50_000]);
    ask("unmount", &["--timeout", "100", "-V"]).expect_success();
    let checked = ask("check", &["--json"]).expect_success().json();
    assert_eq!(checked["found"]["pending"], 0, "{checked}");
    drop(open);
    volume.finish();
}
