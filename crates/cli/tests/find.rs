//! `pelago tag` and `pelago find` on a mount.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{io, thread};

use crate::harness::program::{Ran, bare, pelago, run};
use crate::harness::volume::{Volume, cannot_mount};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, Uid, geteuid, getrlimit, setrlimit};
use rustix::thread::set_thread_res_uid;
use serde_json::Value;

/// Returns a mount with files of two projects, or `None` if none can be made.
fn projects() -> Option<Volume> {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return None;
    }
    let volume = Volume::mounted();
    let files = volume.files();
    fs::create_dir_all(files.join("apollo/old")).unwrap();
    fs::write(files.join("apollo/plan.txt"), "To the Moon,\nand back.").unwrap();
    fs::write(files.join("apollo/old/plan.txt"), "To orbit.").unwrap();
    fs::write(files.join("apollo/old/shot 1.mov"), vec![0; 3 << 20]).unwrap();
    fs::write(files.join("notes"), "the moon is far").unwrap();
    symlink("plan.txt", files.join("apollo/link")).unwrap();
    Some(volume)
}

fn tag(volume: &Volume, path: &str, rest: &[&str]) -> Ran {
    let path = volume.files().join(path);
    let words = ["tag", path.to_str().unwrap()].into_iter().chain(rest.iter().copied());
    run(&mut pelago(&volume.root, words))
}

fn find(volume: &Volume, query: &str, path: &Path, rest: &[&str]) -> Ran {
    let words = ["find", query, path.to_str().unwrap()].into_iter().chain(rest.iter().copied());
    run(&mut pelago(&volume.root, words))
}

/// Returns the files that match, below the mount.
fn found(volume: &Volume, query: &str) -> BTreeSet<String> {
    let files = volume.files();
    let ran = find(volume, query, &files, &["--json"]);
    let paths = ran.json()["paths"].as_array().unwrap().clone();
    assert_eq!(ran.code, Some(i32::from(paths.is_empty())), "{query}: {}", ran.err);
    let below = |path: &Value| {
        let path = PathBuf::from(path.as_str().unwrap());
        path.strip_prefix(&files).unwrap().to_str().unwrap().to_owned()
    };
    paths.iter().map(below).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn files_are_found_by_their_tags_after_a_rename_and_a_kill_too() {
    let Some(volume) = projects() else { return };
    tag(&volume, "apollo/plan.txt", &["project=apollo", "state=a=b"]).expect_success();
    tag(&volume, "apollo", &["project=apollo"]).expect_success();
    tag(&volume, "notes", &["project=moon"]).expect_success();
    assert_eq!(found(&volume, "project=apollo"), set(&["apollo", "apollo/plan.txt"]));
    assert_eq!(found(&volume, "project=apollo state=\"a=b\""), set(&["apollo/plan.txt"]));
    assert_eq!(found(&volume, "tag:project not project=apollo"), set(&["notes"]));
    let long = format!("note={}", "x".repeat(5000));
    tag(&volume, "notes", &[&long]).expect_success();
    assert_eq!(found(&volume, "tag:note"), set(&["notes"]));
    assert_eq!(tag(&volume, "apollo/plan.txt", &[]).out, "project=apollo\nstate=a=b\n");
    tag(&volume, "apollo/plan.txt", &["--remove", "state"]).expect_success();
    assert_eq!(found(&volume, "tag:state"), set(&[]));

    let files = volume.files();
    fs::rename(files.join("apollo"), files.join("eleven")).unwrap();
    volume.kill();
    volume.up(&[]).expect_success();
    assert_eq!(found(&volume, "project=apollo"), set(&["eleven", "eleven/plan.txt"]));
    fs::remove_file(files.join("eleven/plan.txt")).unwrap();
    assert_eq!(found(&volume, "project=apollo"), set(&["eleven"]));
    volume.finish();
}

/// Other file systems keep such an attribute as well, and no search would find it.
#[test]
fn a_file_that_is_on_no_volume_gets_no_tag() {
    let Some(volume) = projects() else { return };
    let outside = volume.root.join("outside");
    fs::write(&outside, "bytes").unwrap();
    symlink(&outside, volume.files().join("leads-out")).unwrap();
    symlink(volume.files().join("notes"), volume.root.join("leads-in")).unwrap();
    let attributes = || rustix::fs::listxattr(&outside, &mut [0; 1000][..]);
    let before = attributes();
    for path in [outside.to_str().unwrap(), "leads-out", "leads-out/below"] {
        for words in [&["project=apollo"][..], &["--remove", "project"], &["--list"], &[]] {
            let ran = tag(&volume, path, words);
            assert_ne!(ran.code, Some(0), "{path} {words:?}: {}", ran.out);
            assert!(
                ran.err.contains("is not in a volume") || path.ends_with("below"),
                "{}",
                ran.err
            );
            assert_eq!(ran.out, "");
        }
    }
    assert_eq!(attributes(), before);
    let inside = volume.root.join("leads-in");
    tag(&volume, inside.to_str().unwrap(), &["project=apollo"]).expect_success();
    assert_eq!(found(&volume, "project=apollo"), set(&["notes"]));
    volume.finish();
}

#[test]
fn files_are_found_by_name_size_kind_owner_time_and_text() {
    let Some(volume) = projects() else { return };
    let cases: &[(&str, &[&str])] = &[
        ("name=plan.txt", &["apollo/plan.txt", "apollo/old/plan.txt"]),
        ("name~*.mov", &["apollo/old/shot 1.mov"]),
        ("size>=3M kind=file", &["apollo/old/shot 1.mov"]),
        ("kind=dir", &["apollo", "apollo/old"]),
        ("kind=link", &["apollo/link"]),
        ("text:moon", &["apollo/plan.txt", "notes"]),
        ("text:\"Moon back\"", &["apollo/plan.txt"]),
        ("name~plan* (text:orbit or text:back)", &["apollo/plan.txt", "apollo/old/plan.txt"]),
        ("kind=file mtime>1h", &[]),
        (
            "kind=file mtime<1h size<1K owner=0 not name=notes",
            &["apollo/plan.txt", "apollo/old/plan.txt"],
        ),
    ];
    for (query, names) in cases {
        assert_eq!(found(&volume, query), set(names), "{query}");
    }
    volume.finish();
}

#[test]
fn paths_are_printed_for_people_and_for_programs() {
    let Some(volume) = projects() else { return };
    let old = volume.files().join("apollo/old");
    fs::rename(old.join("plan.txt"), old.join("a\nb")).unwrap();
    let shown = find(&volume, "kind=file", &old, &[]).expect_success();
    let mut lines: Vec<&str> = shown.out.lines().collect();
    lines.sort_unstable();
    let old_path = old.display();
    assert_eq!(lines, [format!("{old_path}/a\\u{{a}}b"), format!("{old_path}/shot 1.mov")]);
    let raw = find(&volume, "name~a*", &old, &["--print0"]).expect_success();
    assert_eq!(raw.out, format!("{old_path}/a\nb\0"));
    let one = find(&volume, "kind=file", &old, &["--limit", "1"]).expect_success();
    assert_eq!(one.out.lines().count(), 1);
    volume.finish();
}

#[test]
fn what_is_wrong_is_said_and_has_a_code() {
    let Some(volume) = projects() else { return };
    let files = volume.files();
    let none = find(&volume, "name=none", &files, &[]);
    assert_eq!((none.code, none.out.as_str(), none.err.as_str()), (Some(1), "", ""));
    let wrong = find(&volume, "size>many", &files, &[]).expect_code(2);
    assert!(wrong.err.contains("size"), "{}", wrong.err);
    find(&volume, "name=x", &files.join("none"), &[]).expect_code(3);
    tag(&volume, "none", &["a=b"]).expect_code(3);
    for wrong in ["a", "=b", "a b=c", "a/b=c"] {
        tag(&volume, "notes", &["good=1", wrong]).expect_code(2);
    }
    tag(&volume, "notes", &["--remove", "good"]).expect_code(3);
    // Nothing was set beside what is wrong.
    assert_eq!(tag(&volume, "notes", &["--list"]).expect_success().out, "");
    volume.finish();
}

/// Runs a script at the top of the mount as another user.
fn as_nobody(volume: &Volume, script: &str) -> Ran {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", script]);
    let command = command.arg(env!("CARGO_BIN_EXE_pelago")).current_dir(volume.files());
    run(command.env("HOME", "/").env("LC_ALL", "C"))
}

/// As root everything can be read; so another user looks, as whom the search must end well too.
#[test]
fn a_user_finds_what_that_user_may_see() {
    let Some(volume) = projects() else { return };
    if !geteuid().is_root() {
        return println!("skipped: only root can become another user");
    }
    let files = volume.files();
    tag(&volume, "apollo/old/plan.txt", &["project=apollo"]).expect_success();
    tag(&volume, "notes", &["project=apollo"]).expect_success();
    fs::set_permissions(files.join("apollo/old"), Permissions::from_mode(0o700)).unwrap();
    let ran = as_nobody(&volume, "exec \"$0\" find project=apollo .");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(0), "./notes\n", ""));
    let folder = files.join(".find/project=apollo");
    for _ in 0..10 {
        // The kernel has one cache of names for both.
        assert_eq!(fs::read(folder.join("plan.txt")).unwrap(), b"To orbit.");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        let ran = as_nobody(&volume, "ls .find/project=apollo; cat .find/project=apollo/plan.txt");
        assert_eq!(ran.out, "notes\n", "{ran:?}");
        assert!(ran.err.contains("No such file"), "{}", ran.err);
    }
    volume.finish();
}

/// Opens folders of queries as this user until the mount has no room for one more.
fn fill_folders(queries: &File, user: u32) -> (Vec<OwnedFd>, Errno) {
    let queries = queries.try_clone().unwrap();
    let filler = thread::Builder::new().spawn(move || {
        // Of this thread alone.
        set_thread_res_uid(Uid::from_raw(user), Uid::from_raw(user), Uid::from_raw(user)).unwrap();
        let mut kept = Vec::new();
        loop {
            let query = format!("name={:0>240}", format!("{user}x{}", kept.len()));
            match openat(&queries, query, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
                Ok(folder) => kept.push(folder),
                Err(error) => return (kept, error),
            }
        }
    });
    filler.unwrap().join().unwrap()
}

#[test]
fn a_user_with_many_folders_of_queries_leaves_some_for_others() {
    let Some(volume) = projects() else { return };
    if !geteuid().is_root() {
        return println!("skipped: only root can become another user");
    }
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let queries = File::open(volume.files().join(".find")).unwrap();
    let (first, error) = fill_folders(&queries, 65_534);
    if error == Errno::MFILE {
        return println!("skipped: this machine gives {} descriptors", first.len());
    }
    assert_eq!(error, Errno::NFILE);
    // Each further user has a part of what is left, and root too.
    let (second, error) = fill_folders(&queries, 65_533);
    assert_eq!(error, Errno::NFILE);
    println!("{} folders of one user, {} of another", first.len(), second.len());
    assert!(first.len() > second.len() && second.len() > first.len() / 3);
    assert_eq!(found_in(&volume, ".find/name~*.txt"), 2);
    drop((first, second, queries));
    volume.finish();
}

/// Returns how many names a folder has.
fn found_in(volume: &Volume, folder: &str) -> usize {
    fs::read_dir(volume.files().join(folder)).unwrap().map(Result::unwrap).count()
}

#[test]
fn a_query_is_a_folder() {
    let Some(volume) = projects() else { return };
    let files = volume.files();
    let odd = OsStr::from_bytes(b"odd\n\xff.txt");
    fs::write(files.join("apollo/old").join(odd), "odd").unwrap();
    let names = |folder: &str| -> BTreeSet<OsString> {
        let entries = fs::read_dir(files.join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    };
    let number = |path: &str| fs::metadata(files.join(path)).unwrap().ino();
    let twins = ["apollo/plan.txt", "apollo/old/plan.txt"]
        .map(|path| OsString::from(format!("plan.txt~{:x}", number(path))));
    let all: BTreeSet<OsString> = [odd.to_owned(), twins[0].clone(), twins[1].clone()].into();
    assert_eq!(names(".find/name~*.txt"), all);
    assert_eq!(names(".find/kind=file/name~*.txt"), all);
    assert_eq!(names("apollo/old/.find/name~*.txt"), [odd.into(), "plan.txt".into()].into());
    assert_eq!(names(".find/text:orbit/kind=file"), ["plan.txt".into()].into());
    assert_eq!(fs::read(files.join(".find/kind=file/name~*.txt").join(odd)).unwrap(), b"odd");
    let text = fs::read(files.join(".find/name~*.txt").join(&twins[1])).unwrap();
    assert_eq!(text, b"To orbit.");
    let new = files.join(".find/kind=file/new");
    let refused = if geteuid().is_root() { Errno::ROFS } else { Errno::ACCESS };
    let error = fs::write(new, "x").unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(refused));
    let listed = run(Command::new("ls").args(["-la"]).arg(&files)).expect_success();
    assert!(!listed.out.contains(".find") && !listed.out.contains("pelago"), "{}", listed.out);
    volume.finish();
}

/// As `find ... | head` does.
#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let Some(volume) = projects() else { return };
    for rest in [&[][..], &["--print0"], &["--json"]] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let words = ["find", "name~*", "files"].iter().chain(rest);
        let mut command = pelago(&volume.root, words);
        command.current_dir(&volume.dir).stdin(Stdio::null()).stdout(writer);
        let ended = command.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), &*said), (Some(0), ""), "{rest:?}");
    }
    volume.finish();
}

#[test]
fn only_a_mount_is_searched() {
    let Some(volume) = projects() else { return };
    let outside = volume.root.join("outside");
    fs::create_dir(&outside).unwrap();
    let ran = find(&volume, "name=x", &outside, &[]).expect_code(3);
    assert!(ran.err.contains("is not on a mounted volume of Pelago"), "{}", ran.err);
    // What is no control file is left alone.
    fs::write(outside.join(".pelago-find"), "mine").unwrap();
    find(&volume, "name=x", &outside, &[]).expect_code(3);
    assert_eq!(fs::read(outside.join(".pelago-find")).unwrap(), b"mine");
    find(&volume, "name=x", &volume.files().join("notes"), &[]).expect_code(3);
    volume.finish();
}

#[test]
fn json_says_up_to_when_the_answer_is_complete() {
    let Some(volume) = projects() else { return };
    let files = volume.files();
    let now = fs::metadata(files.join("notes")).unwrap().mtime() as f64;
    let json = find(&volume, "kind=dir", &files, &["--json"]).expect_success().json();
    let as_of = json["as_of"].as_f64().unwrap();
    assert!((as_of - now).abs() < 60.0, "{json}");
    assert!(json["examined"].as_u64().unwrap() > 0, "{json}");
    let json = find(&volume, "kind=file", &files, &["--json", "--limit", "1"]).json();
    assert_eq!((json["paths"].as_array().unwrap().len(), &json["as_of"]), (1, &Value::Null));
    volume.finish();
}

/// The script fetches the tree from where the machine gets its packages.
#[test]
fn the_source_tree_of_git_is_searched_before_and_after_a_rename_and_a_kill() {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    let volume = Volume::mounted();
    let scratch = volume.root.join("scratch");
    fs::create_dir(&scratch).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/real/find.sh");
    let mut shell = Command::new("sh");
    shell.arg("-e").arg(script);
    bare(&mut shell, &volume.root);
    shell.env("PELAGO", env!("CARGO_BIN_EXE_pelago")).env("PASSTHROUGH", "auto");
    shell.env("SCRATCH", &scratch).env("VOLUME", &volume.dir).env("POINT", volume.files());
    let ran = run(shell.current_dir(volume.files()));
    if ran.code == Some(NO_SOURCE) {
        println!("not here: the source of git cannot be fetched: {}", ran.err);
        return;
    }
    ran.expect_success();
    volume.finish();
}

/// The exit code of the script if there is no tree.
const NO_SOURCE: i32 = 77;
