//! The output of the binary, word for word: its help, and one golden file per failure.
//!
//! `PELAGO_GOLDEN=accept` rewrites the files; read the diff.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::harness::damage::{change_row, newest_journal};
use crate::harness::golden::expect_golden;
use crate::harness::namespace::{cannot_isolate, isolated};
use crate::harness::program::{pelago, run};
use crate::harness::volume::{Volume, cannot_mount, folder};

/// Runs a command line in a folder of its own.
fn said(name: &str, args: &[&str]) {
    let (_folder, root) = folder();
    let ran = run(&mut pelago(&root, args));
    expect_golden(name, &root, &ran);
}

macro_rules! needs {
    ($reason:expr) => {
        if let Some(reason) = $reason {
            println!("skipped: {reason}");
            return;
        }
    };
}

const VERBS: [&str; 25] = [
    "up",
    "serve",
    "mount",
    "unmount",
    "status",
    "find",
    "tag",
    "get",
    "share",
    "attach",
    "revoke",
    "credential",
    "access",
    "log",
    "key",
    "site",
    "conflicts",
    "join",
    "wait",
    "reached",
    "verify",
    "relay",
    "check",
    "bench",
    "version",
];

#[test]
fn help() {
    said("help", &["help"]);
    for verb in VERBS {
        said(&format!("help-{verb}"), &[verb, "--help"]);
    }
    let benches =
        ["meta", "io", "lib", "million", "tree", "everyday", "discfs", "ringer", "smfs", "find"];
    for kind in benches {
        said(&format!("help-bench-{kind}"), &["bench", kind, "--help"]);
    }
    for what in ["new", "show", "allow", "remove", "name", "unname", "list"] {
        said(&format!("help-key-{what}"), &["key", what, "--help"]);
    }
    for what in ["invite", "list", "mirror", "promote"] {
        said(&format!("help-site-{what}"), &["site", what, "--help"]);
    }
}

/// `help` lists each verb in a line that begins with two spaces.
#[test]
fn the_help_of_every_verb_is_compared() {
    let (_folder, root) = folder();
    let help = run(&mut pelago(&root, ["help"])).out;
    let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
    let words = lines.filter_map(|line| line.split_whitespace().next());
    let listed: Vec<&str> =
        words.filter(|word| word.chars().all(|letter| letter.is_ascii_lowercase())).collect();
    let compared: Vec<&str> = VERBS.into_iter().chain(["help"]).collect();
    assert_eq!(listed, compared);
}

#[test]
fn version() {
    said("version", &["version"]);
    said("version-flag", &["--version"]);
    said("version-json", &["version", "--json"]);
}

#[test]
fn invalid_command_lines() {
    said("usage-nothing", &[]);
    said("usage-verb", &["mount-all"]);
    said("usage-flag", &["up", "--fast"]);
    said("usage-inline", &["up", "--inline", "1GiB"]);
    said("usage-get", &["get", "ftp://a/b", "b"]);
    said("usage-both", &["status", "-V", "a", "b"]);
}

/// `mount.pelago`, a link to the binary, as mount(8) calls it.
#[test]
fn the_helper_of_mount() {
    let (_folder, root) = folder();
    let helper = root.join("mount.pelago");
    symlink(env!("CARGO_BIN_EXE_pelago"), &helper).unwrap();
    let ran = |args: &[&str]| {
        let mut command = Command::new(&helper);
        command.args(args);
        crate::harness::program::bare(&mut command, &root);
        run(&mut command)
    };
    expect_golden("mount-helper-usage", &root, &ran(&["SOURCE"]));
    expect_golden("mount-helper-option", &root, &ran(&["SOURCE", "POINT", "-o", "ro,noexec"]));
    expect_golden("mount-helper-fake", &root, &ran(&["SOURCE", "POINT", "-f", "-o", "ro"]));
}

#[test]
fn no_home() {
    let (_folder, root) = folder();
    let ran = run(pelago(&root, ["up"]).env_remove("HOME"));
    expect_golden("no-home", &root, &ran);
}

#[test]
fn nothing_is_up() {
    let (_folder, root) = folder();
    for verb in ["unmount", "check"] {
        let ran = run(pelago(&root, [verb]).arg(&root));
        expect_golden(&format!("{verb}-no-volume"), &root, &ran);
    }
    let ran = run(pelago(&root, ["status", "--json"]).arg(&root));
    expect_golden("status-no-volume-json", &root, &ran);
    let ran = run(pelago(&root, ["status", "-V"]).arg(&root));
    expect_golden("status-not-a-volume", &root, &ran);
}

#[test]
fn a_foreign_folder() {
    let (_folder, root) = folder();
    fs::create_dir(root.join("foreign")).unwrap();
    fs::write(root.join("foreign/letter"), "dear").unwrap();
    let ran = run(&mut pelago(&root, ["up", "foreign"]));
    expect_golden("up-foreign-folder", &root, &ran);
    assert_eq!(fs::read_dir(root.join("foreign")).unwrap().count(), 1);
    let ran = run(&mut pelago(&root, ["up", "foreign/letter"]));
    expect_golden("up-not-a-folder", &root, &ran);
    let ran = run(&mut pelago(&root, ["up", "foreign", "--json"]));
    expect_golden("up-foreign-folder-json", &root, &ran);
}

/// Returns a volume that was up and was unmounted.
fn stopped() -> Volume {
    let volume = Volume::mounted();
    for number in 0..20 {
        fs::write(volume.files().join(format!("f{number}")), format!("{number}")).unwrap();
    }
    volume.run("unmount", &[]).expect_success();
    volume
}

fn up_says(name: &str, volume: &Volume, args: &[&str]) {
    expect_golden(name, &volume.root, &volume.run("up", args));
}

/// A volume of a later version is refused and stays unchanged.
#[test]
fn a_newer_volume() {
    needs!(cannot_mount());
    let volume = stopped();
    let path = volume.dir.join("format");
    let mut format = fs::read(&path).unwrap();
    format[8] = 99;
    let end = format.len() - 8;
    let sum = xxhash_rust::xxh3::xxh3_64(&format[..end]);
    format[end..].copy_from_slice(&sum.to_le_bytes());
    fs::write(&path, &format).unwrap();
    up_says("up-newer-volume", &volume, &[]);
    expect_golden("check-newer-volume", &volume.root, &volume.run("check", &[]));
    assert_eq!(fs::read(&path).unwrap(), format);
}

/// A volume of an earlier version is refused with the commands that copy its files.
#[test]
fn an_older_volume() {
    needs!(cannot_mount());
    let volume = stopped();
    let path = volume.dir.join("format");
    let mut format = fs::read(&path).unwrap();
    format[8] = 1;
    let end = format.len() - 8;
    let sum = xxhash_rust::xxh3::xxh3_64(&format[..end]);
    format[end..].copy_from_slice(&sum.to_le_bytes());
    fs::write(&path, &format).unwrap();
    up_says("up-older-volume", &volume, &[]);
    expect_golden("check-older-volume", &volume.root, &volume.run("check", &[]));
    assert_eq!(fs::read(&path).unwrap(), format);
}

#[test]
fn a_damaged_format() {
    needs!(cannot_mount());
    let volume = stopped();
    let path = volume.dir.join("format");
    let format = fs::read(&path).unwrap();
    fs::write(volume.dir.join("format.copy"), "").unwrap();
    let mut damaged = format.clone();
    damaged[20] ^= 1;
    fs::write(&path, &damaged).unwrap();
    up_says("up-damaged-format", &volume, &[]);
    fs::write(&path, &format[..50]).unwrap();
    up_says("up-short-format", &volume, &[]);
    fs::remove_file(&path).unwrap();
    up_says("up-lost-format", &volume, &[]);
    fs::write(&path, &format).unwrap();
    volume.up(&[]).expect_success();
    volume.finish();
}

/// The row of one file is damaged.
#[test]
fn a_damaged_row() {
    needs!(cannot_mount());
    let volume = stopped();
    change_row(&volume, "f7", |value| value.truncate(5));
    expect_golden("check-damaged-row", &volume.root, &volume.run("check", &[]));
    up_says_in_background("up-damaged-row", &volume);
    volume.run("unmount", &[]).expect_success();
    expect_golden("check-apply", &volume.root, &volume.run("check", &["--apply"]));
    volume.up(&[]).expect_success();
    volume.finish();
}

fn up_says_in_background(name: &str, volume: &Volume) {
    expect_golden(name, &volume.root, &volume.up(&[]));
}

/// Bytes in the middle of the engine's files are damaged.
#[test]
fn a_damaged_table() {
    needs!(cannot_mount());
    let volume = Volume::mounted();
    for number in 0..50 {
        fs::write(volume.files().join(format!("f{number}")), format!("{number}")).unwrap();
    }
    fs::File::open(volume.files()).unwrap().sync_all().unwrap();
    volume.kill();
    let journal = newest_journal(&volume);
    let mut bytes = fs::read(&journal).unwrap();
    bytes[300] ^= 0xff;
    fs::write(&journal, &bytes).unwrap();
    up_says("up-damaged-table", &volume, &[]);
    expect_golden("check-damaged-table", &volume.root, &volume.run("check", &[]));
}

#[test]
fn a_volume_in_use() {
    needs!(cannot_mount());
    let volume = Volume::mounted();
    up_says("up-in-use", &volume, &[]);
    expect_golden("check-in-use", &volume.root, &volume.run("check", &[]));
    volume.run("status", &[]).expect_success();
    volume.finish();
}

#[test]
fn an_unusable_mount_point() {
    needs!(cannot_mount());
    let volume = stopped();
    let root = volume.root.clone();
    fs::create_dir_all(root.join("full/x")).unwrap();
    fs::write(root.join("file"), "").unwrap();
    up_says("mount-missing", &volume, &["--mount", "no/where"]);
    up_says("mount-not-empty", &volume, &["--mount", "full"]);
    up_says("mount-file", &volume, &["--mount", "file"]);
    up_says("mount-own-folder", &volume, &["--mount", volume.dir.to_str().unwrap()]);
    fs::write(volume.files().join("beneath"), "").unwrap();
    up_says("mount-default-not-empty", &volume, &[]);
    fs::remove_file(volume.files().join("beneath")).unwrap();
    volume.up(&[]).expect_success();
    volume.finish();
}

/// Another volume is mounted on it; then that one's process is killed.
#[test]
fn a_mount_point_that_is_taken_or_dead() {
    needs!(cannot_mount());
    let other = Volume::mounted();
    let mut second = pelago(&other.root, ["up", "second", "--mount", "vol/files"]);
    expect_golden("mount-taken", &other.root, &run(&mut second));
    other.kill();
    expect_golden("mount-dead", &other.root, &run(&mut second));
    other.up(&[]).expect_success();
    other.finish();
}

/// `up`, `status`, `unmount` and `check` without a failure.
#[test]
fn commands_that_succeed() {
    needs!(cannot_mount());
    let volume = Volume::new();
    expect_golden("up-new", &volume.root, &volume.up(&[]));
    fs::write(volume.files().join("a"), "a").unwrap();
    expect_golden("unmount", &volume.root, &volume.run("unmount", &[]));
    expect_golden("unmount-again", &volume.root, &volume.run("unmount", &[]));
    expect_golden("status-down", &volume.root, &volume.run("status", &[]));
    expect_golden("check-whole", &volume.root, &volume.run("check", &[]));
    expect_golden("up-again", &volume.root, &volume.up(&[]));
    volume.finish();
}

/// Compares the output of a script's last command; the commands before it must succeed.
fn isolated_says(name: &str, script: &str) {
    needs!(cannot_mount());
    needs!(cannot_isolate());
    let (_folder, root) = folder();
    let ran = isolated(&root, script);
    expect_golden(name, &root, &ran);
}

#[test]
fn no_device() {
    isolated_says(
        "up-no-device",
        "mount -t tmpfs none /dev; mknod /dev/null c 1 3; exec \"$PELAGO\" up vol",
    );
}

#[test]
fn no_permission_to_mount() {
    let bound = "setpriv --bounding-set -sys_admin --inh-caps -sys_admin";
    isolated_says("up-no-permission", &format!("exec {bound} \"$PELAGO\" up vol"));
}

/// The volume belongs to another user.
#[test]
fn no_permission_to_read() {
    isolated_says(
        "up-no-access",
        "exec 3<\"$PELAGO\"; mount -t tmpfs -o mode=1777 none /tmp; cat <&3 >/tmp/pelago
         chmod 755 /tmp/pelago; /tmp/pelago up --detach /tmp/vol >/dev/null
         /tmp/pelago unmount -V /tmp/vol >/dev/null; cd /tmp
         exec setpriv --reuid=65534 --regid=65534 --clear-groups /tmp/pelago up /tmp/vol",
    );
}

#[test]
fn a_read_only_disk() {
    isolated_says(
        "up-read-only-disk",
        "mkdir m; mount -t tmpfs none m; \"$PELAGO\" up --detach m/vol >/dev/null
         \"$PELAGO\" unmount -V m/vol >/dev/null; mount -o remount,ro m
         exec \"$PELAGO\" up m/vol",
    );
}

#[test]
fn a_read_only_disk_without_a_volume() {
    isolated_says(
        "up-new-read-only-disk",
        "mkdir m; mount -t tmpfs none m; mount -o remount,ro m; exec \"$PELAGO\" up m/vol",
    );
}

#[test]
fn a_full_disk_without_a_volume() {
    isolated_says(
        "up-new-full-disk",
        "mkdir m; mount -t tmpfs -o size=64k none m; head -c 65536 /dev/zero >m/filler
         exec \"$PELAGO\" up m/vol",
    );
}

/// The disk is full: the volume starts, says so, and its files can be read and removed.
#[test]
fn a_full_disk() {
    needs!(cannot_mount());
    needs!(cannot_isolate());
    let (_folder, root) = folder();
    let ran = isolated(&root, FULL).expect_success();
    assert!(ran.out.contains("kept and gone"), "{ran:?}");
}

const FULL: &str = r#"
mkdir m
mount -t tmpfs -o size=256m none m
trap '"$PELAGO" unmount --force -V m/vol >/dev/null 2>&1 || true' EXIT
"$PELAGO" up --detach m/vol
echo kept >m/vol/files/old
echo other >m/vol/files/other
"$PELAGO" unmount -V m/vol
head -c 268435456 /dev/zero >m/filler 2>/dev/null || true
"$PELAGO" up --detach m/vol
read word <m/vol/files/old
rm m/vol/files/other
test ! -e m/vol/files/other
rm m/filler
"$PELAGO" unmount -V m/vol
"$PELAGO" check m/vol
echo "$word and gone"
"#;

/// A closed pipe at standard output.
#[test]
fn a_closed_pipe_is_no_failure() {
    let (_folder, root) = folder();
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" help bench meta | head -n 1", env!("CARGO_BIN_EXE_pelago")]);
    crate::harness::program::bare(&mut shell, &root);
    run(&mut shell).expect_success();
}
