//! Leases of guests: what a guest has cached ends with its rights, and a silent guest delays others
//! for three seconds.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::machines::lab::pid_of;
use crate::machines::network::tried;
use crate::machines::shared::Pair;

/// The longest time for which a silent guest delays others.
const SILENT: Duration = Duration::from_millis(3_500);

impl Pair {
    fn mount_pid(&self) -> Pid {
        pid_of(&self.bob.types("pelago status ~/shared --json --timeout 100").json())
    }

    /// Returns the number of requests that Bob's mount has sent.
    fn requests(&self) -> u64 {
        let status = self.bob.types("pelago status ~/shared --json --timeout 100").json();
        status["requests"].as_u64().unwrap()
    }
}

#[test]
fn what_a_guest_has_read_is_cached() {
    let Some(pair) = Pair::shared_for("rwxcd") else { return };
    let mut bob = pair.hands();
    let mut alice = pair.owner();
    for _ in 0..2 {
        assert_eq!(bob.does("get note"), "note|");
        bob.does("size note");
    }
    let before = pair.requests();
    for _ in 0..20 {
        assert_eq!(bob.does("size note"), "5");
        assert_eq!(bob.does("list ."), "note sub");
    }
    let sent = pair.requests() - before;
    assert!(sent <= 25, "{sent} requests for 20 warm stats and 20 listings");
    alice.does("open docs/note");
    alice.does("put-at docs/note 0 longer note");
    assert_eq!(bob.does("get note"), "longer note", "it is recalled");
    drop((alice, bob));
    pair.finish();
}

/// No request names what is below a directory that moves.
#[test]
fn a_move_of_a_directory_ends_what_is_cached_below_it() {
    let Some(pair) = Pair::shared_for("rx") else { return };
    let mut bob = pair.hands();
    let mut alice = pair.owner();
    let mut open = fs::File::open(pair.bob.home.join("shared/sub/deep")).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "deep\n");
    assert_eq!(bob.does("get sub/deep"), "deep|");
    alice.does("rename docs/sub secret/sub");
    alice.does("open secret/sub/deep");
    alice.does("put-at secret/sub/deep 0 a secret that is longer");
    bob.fails_by("size sub/deep", &[Errno::NOENT, Errno::STALE]);
    open.seek(SeekFrom::Start(0)).unwrap();
    let mut bytes = Vec::new();
    let told = open.read_to_end(&mut bytes);
    assert!(!String::from_utf8_lossy(&bytes).contains("secret"), "{told:?}: {bytes:?}");
    let errno = open.metadata().map_err(|error| error.raw_os_error());
    assert_eq!(errno.map(drop), Err(Some(Errno::STALE.raw_os_error())));
    alice.does("rename secret/sub docs/sub");
    assert_eq!(bob.does("get sub/deep"), "a secret that is longer");
    drop((alice, bob, open));
    pair.finish();
}

#[test]
fn a_silent_guest_delays_others_for_three_seconds() {
    let Some(pair) = Pair::shared_for("rx") else { return };
    let mut bob = pair.hands();
    let mut alice = pair.owner();
    assert_eq!(bob.does("get note"), "note|");
    let pid = pair.mount_pid();
    kill_process(pid, Signal::STOP).unwrap();
    let begun = Instant::now();
    alice.does("rename docs/note docs/renamed");
    let renamed = begun.elapsed();
    kill_process(pid, Signal::CONT).unwrap();
    assert!(renamed < SILENT, "{renamed:?}");
    assert_eq!(bob.does("list ."), "renamed sub");
    assert_eq!(bob.does("get renamed"), "note|");
    kill_process(pid, Signal::STOP).unwrap();
    let begun = Instant::now();
    let revoked = tried(&pair.alice, "pelago revoke ~/docs.cred -V ~/pelago");
    let took = begun.elapsed();
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    assert!(took < SILENT, "{took:?}");
    bob.fails_by("size renamed", &[Errno::STALE, Errno::ACCESS, Errno::IO]);
    drop((alice, bob));
    pair.finish();
}

/// Its own clock ends what it has cached, without a message.
#[test]
fn a_guest_that_is_cut_off_uses_nothing_after_the_end_of_its_share() {
    let Some(pair) = Pair::shared_until(8) else { return };
    let mut bob = pair.hands();
    let begun = Instant::now();
    assert_eq!(bob.does("get note"), "note|");
    pair.lab.network.cut(&pair.bob);
    let end = Duration::from_millis(9_000).saturating_sub(begun.elapsed());
    // Only the clock ends the share.
    thread::sleep(end);
    let asked = Instant::now();
    let name = pair.bob.home.join("shared/note");
    let told = thread::scope(|scope| {
        let asking = scope.spawn(|| fs::metadata(&name).map(|found| found.len()));
        // Only time shows that it waits for the server, and does not use its cache.
        thread::sleep(Duration::from_millis(500));
        assert!(!asking.is_finished(), "after {:?}", asked.elapsed());
        pair.lab.network.join(&pair.bob);
        asking.join().unwrap()
    });
    assert!(told.is_err(), "{told:?}");
    drop(bob);
    pair.finish();
}

/// A guest writes behind its lease: a move of a folder asks for the bytes, and loses none.
#[test]
fn what_a_guest_holds_back_is_written_before_a_move_and_refused_after_the_end() {
    let Some(pair) = Pair::shared_for("rwxcd") else { return };
    let mut bob = pair.hands();
    let mut alice = pair.owner();
    alice.does("mkdir docs/box");
    alice.does("mkdir docs/box/in");
    for round in 0..5 {
        let name = format!("box/in/f{round}");
        bob.does(&format!("make {name}"));
        bob.does(&format!("put-at {name} 0 written by bob"));
        // Out of what he may use, with what he has not closed.
        alice.does("rename docs/box secret/box");
        assert_eq!(alice.does(&format!("get secret/{name}")), "written by bob");
        bob.fails_by(&format!("size {name}"), &[Errno::NOENT, Errno::STALE]);
        alice.does("rename secret/box docs/box");
        assert_eq!(bob.does(&format!("get {name}")), "written by bob");
    }
    bob.does("make last");
    bob.does("put-at last 0 before");
    assert_eq!(alice.does("get docs/last"), "before");
    pair.alice.types("pelago revoke ~/docs.cred -V ~/pelago");
    bob.fails_by("put-at last 0 after", &[Errno::STALE, Errno::ACCESS, Errno::IO]);
    assert_eq!(alice.does("get docs/last"), "before");
    drop((alice, bob));
    pair.finish();
}
