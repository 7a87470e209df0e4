//! `--log-slow`: requests whose reply takes long are named in the log of the process that they came
//! to.

use std::fs::{self, File};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use crate::harness::program::{pelago, until, wait};
use crate::harness::programs::locker;
use crate::harness::volume::{Volume, cannot_mount};

/// The limit in milliseconds; a program waits for a lock three times as long.
const LIMIT: &str = "200";
const HELD: Duration = Duration::from_millis(600);

/// Returns the value of a field in a line of the log.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!(" {name}="))?;
    Some(rest.split(' ').next().unwrap_or(rest).trim_matches('"'))
}

#[test]
fn a_request_that_waits_for_a_lock_is_named_where_it_came_from_and_where_it_went() {
    if let Some(why) = cannot_mount() {
        return println!("skipped: {why}");
    }
    let volume = Volume::new();
    volume.up(&["--log-slow", LIMIT]).expect_success();
    fs::write(volume.files().join("locked"), "").unwrap();
    let point = volume.root.join("other");
    let log = volume.root.join("other.log");
    fs::create_dir(&point).unwrap();
    let mut other = pelago(&volume.root, ["mount", "--log-slow", LIMIT]);
    other.arg(volume.dir.join("pelago.sock")).arg(&point).stdin(Stdio::null());
    other.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
    let mut other = other.spawn().unwrap();
    until("mounted", || point.join("locked").exists());

    let mut holder = locker(&volume.files().join("locked"));
    assert_eq!(holder.ask("try fcntl write 0 10"), "yes");
    let mut waits = locker(&point.join("locked"));
    waits.tell_to_wait("wait fcntl write 0 10");
    // Only the clock makes a request slow.
    thread::sleep(HELD);
    assert_eq!(holder.ask("try fcntl drop 0 10"), "yes");
    assert_eq!(waits.hear(), "yes");

    let named = |log: &std::path::Path, operation: &str| {
        let text = fs::read_to_string(log).unwrap();
        let mut lines = text.lines().filter(|line| line.contains("a slow request"));
        let is_it = |line: &&str| field(line, "operation") == Some(operation);
        lines.find(is_it).map(str::to_owned)
    };
    let inode = {
        use std::os::unix::fs::MetadataExt as _;
        fs::metadata(point.join("locked")).unwrap().ino().to_string()
    };
    for (log, operation, origin) in [
        // The kernel's request at the mount, and the request of its session at the server.
        (log, "setlk", "thread"),
        (volume.dir.join("log"), "setlk", "session"),
    ] {
        let mut line = None;
        until("it is named", || {
            line = named(&log, operation);
            line.is_some()
        });
        let line = line.unwrap();
        let number = |name: &str| field(&line, name).and_then(|it| it.parse::<u64>().ok());
        assert!(number(origin).is_some_and(|origin| origin > 0), "{line}");
        assert!(number("took_ms") >= number("waited_ms"), "{line}");
        assert!(number("waited_ms").is_some_and(|waited| waited >= 400), "{line}");
        if origin == "thread" {
            assert_eq!(field(&line, "inode"), Some(&*inode), "{line}");
        }
    }
    drop((holder, waits));
    pelago(&volume.root, ["unmount"]).arg(&point).status().unwrap();
    assert_eq!(wait(&mut other), Some(0));
    volume.finish();
}
