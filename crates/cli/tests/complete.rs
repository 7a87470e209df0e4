//! Completions in bash, for a line that is being typed, on a mount.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::program::{DEADLINE, Ran, pelago, run, until};
use crate::harness::volume::{Volume, cannot_mount};
use rustix::process::geteuid;

/// Registers the completion, and calls its function as bash does for the text before and after the
/// cursor.
const SCRIPT: &str = r#"
source <(COMPLETE=bash "$0")
COMP_LINE=$1$2 COMP_POINT=${#1}
_pelago_complete
printf '%s\n' "${COMPREPLY[@]}"
"#;

fn bash(dir: &Path, uid: Option<u32>, before: &str, after: &str) -> Ran {
    let mut command = match uid {
        Some(uid) => {
            let mut command = Command::new("setpriv");
            let uid = uid.to_string();
            command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "bash"]);
            command
        }
        None => Command::new("bash"),
    };
    command.args(["--norc", "-c", SCRIPT, env!("CARGO_BIN_EXE_pelago"), before, after]);
    run(command.current_dir(dir).env("HOME", "/").env("LC_ALL", "C"))
}

/// Waits until these completions are offered: a loaded machine may need longer than a shell waits.
fn offers(dir: &Path, uid: Option<u32>, line: &str, expected: &[&str]) {
    let mut found = Vec::new();
    let until = Instant::now() + DEADLINE;
    while Instant::now() < until {
        let ran = bash(dir, uid, line, "").expect_success();
        found = ran.out.lines().map(str::to_owned).collect();
        found.retain(|text| !text.is_empty());
        if found == expected {
            return;
        }
        // The pause between tries, each of which starts a shell.
        thread::sleep(Duration::from_millis(100));
    }
    panic!("{line}: {found:?} instead of {expected:?}");
}

fn has_bash() -> bool {
    let found = Command::new("bash").arg("--version").output().is_ok();
    if !found {
        println!("skipped: no bash");
    }
    found
}

#[test]
fn verbs_and_options_are_offered_without_a_mount() {
    if !has_bash() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    offers(dir.path(), None, "pelago unm", &["unmount "]);
    offers(dir.path(), None, "pelago find --pr", &["--print0 "]);
    offers(dir.path(), None, "pelago find kind=fi", &["file", "fifo"]);
    offers(dir.path(), None, "pelago find 'a=b kind=d", &["a=b kind=dir"]);
    // Not a word of an error.
    let ran = bash(dir.path(), None, "pelago find project=", "").expect_success();
    assert_eq!((ran.out.trim(), ran.err.as_str()), ("", ""));
    // Another meaning of the variable is none of ours.
    let version = run(pelago(dir.path(), ["version"]).env("COMPLETE", "1")).expect_success();
    assert!(version.out.starts_with("pelago "), "{version:?}");
}

#[test]
fn tags_are_offered_to_who_may_see_them() {
    if let Some(reason) = cannot_mount() {
        return println!("skipped: {reason}");
    }
    if !has_bash() {
        return;
    }
    let volume = Volume::mounted();
    let files = volume.files();
    for (path, tags) in [
        ("plan", &["project=reef", "state=to do"][..]),
        ("notes", &["project=rescue"]),
        ("own/diary", &["private=reason", "project=resignation"]),
    ] {
        let path = files.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        let words = ["tag", path.to_str().unwrap()].into_iter().chain(tags.iter().copied());
        run(&mut pelago(&volume.root, words)).expect_success();
    }
    offers(&files, None, "pelago find pr", &["private=", "project="]);
    offers(&files, None, "pelago find project=", &["reef", "rescue", "resignation"]);
    offers(&files, None, "pelago find 'kind=file sta", &["kind=file state="]);
    offers(&files, None, "pelago find state=", &[r#"\"to\ do\" "#]);
    offers(&files, None, "pelago find 'state=", &[r#"state="to do""#]);
    offers(&files, None, "pelago tag plan sta", &["state="]);
    offers(&files, None, "pelago tag plan state=t", &[r"to\ do "]);
    offers(&files, None, "pelago tag plan --remove ", &["project", "state"]);
    offers(&files.join("own"), None, "pelago tag diary project=ree", &["reef "]);
    offers(&files, None, "pelago tag pla", &["plan "]);
    // The path behind the cursor says where to look.
    let behind = format!(" {}", files.join("own").display());
    until("the keys of a folder", || {
        let ran = bash(&volume.root, None, "pelago find project=re", &behind).expect_success();
        ran.out == "resignation \n"
    });
    if geteuid().is_root() {
        fs::set_permissions(files.join("own"), Permissions::from_mode(0o700)).unwrap();
        offers(&files, Some(65_534), "pelago find pr", &["project="]);
        offers(&files, Some(65_534), "pelago find project=re", &["reef", "rescue"]);
        offers(&files, Some(65_534), "pelago tag plan project=resi", &[]);
    }
    volume.finish();
}
