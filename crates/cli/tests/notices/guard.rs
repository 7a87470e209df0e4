//! Tests of the guard process itself.

use std::fs;

use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::harness::program::{run, until};
use crate::harness::volume::{Volume, cannot_mount, has_threads};
use crate::notices::processes::status;

/// Bytes of memory that a guard may have for itself alone.
const MEMORY: u64 = 2 << 20;

/// Returns the guard of a volume that is up.
fn guard_of(volume: &Volume) -> Result<Pid, String> {
    let status = volume.run("status", &["--json"]).expect_success().json();
    let pid = status["guard"].as_i64().and_then(|pid| Pid::from_raw(pid as i32));
    pid.ok_or_else(|| status["no_guard"].as_str().unwrap_or("neither").to_owned())
}

/// Returns a volume that is up, and its guard.
fn guarded(args: &[&str]) -> Option<(Volume, Pid)> {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return None;
    }
    let volume = Volume::new();
    volume.up(args).expect_success();
    match guard_of(&volume) {
        Ok(guard) => Some((volume, guard)),
        Err(reason) => {
            assert!(!geteuid().is_root(), "{reason}");
            println!("skipped: not here: {reason}");
            None
        }
    }
}

#[test]
fn a_guard_is_small_and_holds_nothing() {
    let Some((volume, guard)) = guarded(&[]) else { return };
    let pid = guard.as_raw_nonzero();
    let kib = |key| {
        let text = status(guard, key);
        text.trim_end_matches(" kB").parse::<u64>().unwrap_or_else(|_| panic!("{key}: {text}"))
    };
    let own = kib("RssAnon") << 10;
    println!("{own} bytes of its own");
    assert!(own <= MEMORY, "{own} bytes");
    assert_eq!(status(guard, "Threads"), "1");
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let leads = |entry: fs::DirEntry| fs::read_link(entry.path()).unwrap();
    let open: Vec<_> = open.map(leads).collect();
    assert!(matches!(open.as_slice(), [only] if only.ends_with("abort")), "{open:?}");
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), std::path::Path::new("/"));
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let [session, terminal] = [fields[3], fields[4]];
    assert_eq!(session, pid.to_string());
    assert_eq!(terminal, "0");
    volume.finish();
}

/// The end of a service and a Ctrl-C reach it as they reach its server.
#[test]
fn a_guard_outlives_the_signals_that_stop_its_server() {
    let Some((volume, guard)) = guarded(&[]) else { return };
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1] {
        kill_process(guard, signal).unwrap();
    }
    fs::write(volume.files().join("still"), "works").unwrap();
    assert_eq!(guard_of(&volume), Ok(guard));
    volume.run("unmount", &[]).expect_success();
    until("the guard has ended", || !has_threads(guard));
    volume.check_whole();
}

#[test]
fn a_guard_ends_with_its_mount_though_the_server_goes_on() {
    let Some((volume, guard)) = guarded(&["--listen", "127.0.0.1:0"]) else { return };
    let mut unmount = std::process::Command::new("umount");
    run(unmount.arg(volume.files())).expect_success();
    until("the guard has ended", || !has_threads(guard));
    assert_eq!(guard_of(&volume), Err("the mount has ended".to_owned()));
    volume.finish();
}

#[test]
fn a_guard_that_is_killed_is_replaced_but_not_for_ever() {
    let Some((volume, mut guard)) = guarded(&[]) else { return };
    let mut replaced = 0;
    let why = loop {
        kill_process(guard, Signal::KILL).unwrap();
        let mut next = Ok(guard);
        until("another guard, or a reason", || {
            next = guard_of(&volume);
            !matches!(&next, Err(why) if why.starts_with("it has ended:")) && next != Ok(guard)
        });
        match next {
            Ok(other) => guard = other,
            Err(why) => break why,
        }
        replaced += 1;
    };
    assert_eq!(replaced, 10);
    assert!(why.contains("too often"), "{why}");
    let text = volume.run("status", &[]).expect_success().out;
    assert!(text.contains(&format!("guard     none: {why}")), "{text}");
    volume.finish();
}
