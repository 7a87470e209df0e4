//! Guests of two offices: roots and revocations travel between these.

use std::fs;
use std::time::{Duration, Instant};

use crate::harness::program::until;
use crate::machines::lab::{kill, lock_holder, pid_of};
use crate::machines::network::{Machine, tried};
use crate::two_offices::office::{BACK, Offices};

/// A person with a key, whom neither office knows.
fn stranger(offices: &Offices) -> (Machine, String) {
    let guest = offices.lab.machine(3, "guest");
    guest.types("pelago key new");
    let key = guest.types("pelago key show").out.trim().to_owned();
    (guest, key)
}

/// Carries a file from one machine to another.
fn carry(from: &Machine, to: &Machine, name: &str) {
    fs::copy(from.home.join(name), to.home.join(name)).unwrap();
}

/// Attaches a credential once the office accepts it.
fn attach(offices: &Offices, guest: &Machine, name: &str) {
    guest.types(&format!("mkdir -p ~/{name}"));
    let line = format!("pelago attach ~/{name}.cred ~/{name} --detach");
    until("the roots have come", || tried(guest, &line).code == Some(0));
    let status = guest.types(&format!("pelago status ~/{name} --json --timeout 100")).json();
    offices.lab.ends(pid_of(&status));
}

/// The folder of the second office is shared in the first one, and taken back in either.
#[test]
fn a_share_and_its_end_reach_the_office_that_has_the_folder() {
    let Some(offices) = Offices::new() else { return };
    offices.first.types("pelago key new");
    let (guest, key) = stranger(&offices);
    offices.berlin.types("mkdir ~/berlin/files/own && echo one > ~/berlin/files/own/note");
    let share = |name: &str| format!("pelago share ~/pelago/files/own --to {key} > ~/{name}.cred");
    offices.first.types(&share("own"));
    carry(&offices.first, &guest, "own.cred");
    attach(&offices, &guest, "own");
    assert_eq!(guest.types("cat ~/own/note").out, "one\n");
    // It is the second office that serves it.
    offices.lab.network.cut(&offices.first);
    offices.berlin.types("echo two >> ~/berlin/files/own/note");
    assert_eq!(guest.types("cat ~/own/note").out, "one\ntwo\n");
    offices.lab.network.join(&offices.first);
    until("the offices have each other", || {
        tried(&offices.first, "cat ~/pelago/files/own/note").out == "one\ntwo\n"
    });
    let revoked = offices.first.types("pelago revoke ~/own.cred -V ~/pelago").out;
    assert_eq!(revoked.lines().count(), 1, "all offices were reached: {revoked}");
    let read = tried(&guest, "cat ~/own/note");
    assert!(read.err.contains("Permission denied"), "{read:?}");
    guest.types("pelago unmount ~/own --timeout 100");
    // By the same person in the second office: of a folder of the first one, and of his own.
    offices.first.types("mkdir ~/pelago/files/docs && echo docs > ~/pelago/files/docs/note");
    let wrong = tried(&offices.berlin, &format!("pelago share ~/berlin/files/docs --to {key}"));
    assert_ne!(wrong.code, Some(0), "{wrong:?}");
    let alice = offices.first.types("readlink -f ~/.config/pelago/key").out;
    let with_key = |line: &str| format!("PELAGO_KEY={} {line}", alice.trim());
    let line = with_key(&format!("pelago share ~/berlin/files/docs --to {key} > ~/docs.cred"));
    offices.berlin.types(&line);
    carry(&offices.berlin, &guest, "docs.cred");
    attach(&offices, &guest, "docs");
    assert_eq!(guest.types("cat ~/docs/note").out, "docs\n");
    let line = with_key(&format!("pelago revoke {key} -V ~/berlin --json"));
    let revoked = offices.berlin.types(&line).json();
    for offices in ["unreached", "refused"] {
        assert_eq!(revoked[offices], serde_json::json!([]), "{revoked}");
    }
    let read = tried(&guest, "cat ~/docs/note");
    assert!(read.err.contains("Permission denied"), "{read:?}");
    guest.types("pelago unmount ~/docs --timeout 100");
    // No credential of his opens anything in either office.
    offices.first.types(&share("late"));
    carry(&offices.first, &guest, "late.cred");
    guest.types("mkdir ~/late");
    let late = tried(&guest, "pelago attach ~/late.cred ~/late");
    assert!(late.err.contains("taken back"), "{late:?}");
    offices.finish();
}

/// A revocation that is made while the line between the offices is cut is in force when it is back,
/// before a guest gets anything; also if the office was killed meanwhile.
#[test]
fn a_guest_gets_nothing_by_what_was_taken_back_during_a_cut() {
    let Some(offices) = Offices::new() else { return };
    offices.first.types("pelago key new");
    let (guest, key) = stranger(&offices);
    offices.berlin.types("mkdir ~/berlin/files/own && echo one > ~/berlin/files/own/note");
    for round in 0..2 {
        let name = format!("own-{round}");
        // Another one each time: the same text would be the credential that was taken back.
        let terms = format!("--to {key} --until {}d", round + 1);
        offices.first.types(&format!("pelago share ~/pelago/files/own {terms} > ~/{name}.cred"));
        carry(&offices.first, &guest, &format!("{name}.cred"));
        attach(&offices, &guest, &name);
        assert_eq!(guest.types(&format!("cat ~/{name}/note")).out, "one\n");
        offices.lab.network.cut(&offices.first);
        let revoked = offices.first.types(&format!("pelago revoke ~/{name}.cred -V ~/pelago"));
        let lines: Vec<&str> = revoked.out.lines().collect();
        let [_, not_yet, then] = lines[..] else { panic!("{revoked:?}") };
        assert!(not_yet.starts_with("not yet   in berlin, which was not reached: "), "{revoked:?}");
        assert!(then.starts_with("then      it holds there by itself once the line"), "{then}");
        assert_eq!(guest.types(&format!("cat ~/{name}/note")).out, "one\n", "it cannot know");
        if round == 1 {
            kill(lock_holder(&offices.berlin.home.join("berlin")));
            offices.up_there();
        }
        // It asks all the time for a file that comes as soon as the line is back.
        let line = format!(
            "while ! cat ~/{name}/secret 2> /dev/null && [ ! -e ~/stop-{round} ]; do :; done; \
             ls ~/{name}/secret && touch ~/leaked"
        );
        let mut asking = guest.command("sh").args(["-c", &line]).spawn().unwrap();
        offices.lab.network.join(&offices.first);
        let began = Instant::now();
        until("the second office hears from the first one", || {
            let sites = offices.berlin.types("pelago site list -V ~/berlin --json").json();
            sites["sites"][0]["silent_ms"].as_u64().is_some_and(|silent| silent < 1000)
        });
        offices.berlin.types("echo secret > ~/berlin/files/own/secret");
        let read = tried(&guest, &format!("cat ~/{name}/note"));
        assert_ne!(read.code, Some(0), "{read:?}");
        std::thread::sleep(Duration::from_secs(3));
        assert!(began.elapsed() < BACK, "{:?}", began.elapsed());
        fs::write(guest.home.join(format!("stop-{round}")), "").unwrap();
        asking.wait().unwrap();
        assert!(!guest.home.join("leaked").exists());
        let read = tried(&guest, &format!("cat ~/{name}/note"));
        assert_ne!(read.code, Some(0), "{read:?}");
        guest.types(&format!("pelago unmount ~/{name} --timeout 100"));
        offices.berlin.types("rm ~/berlin/files/own/secret");
    }
    offices.finish();
}
