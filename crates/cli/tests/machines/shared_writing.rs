//! A folder that is shared to be changed: a guest works in it as at home, and no further than its
//! rights.

use std::fs;

use rustix::io::Errno;

use crate::machines::lab::kill;
use crate::machines::network::tried;
use crate::machines::shared::Pair;

#[test]
fn a_guest_works_in_a_folder_that_is_shared_to_be_changed() {
    let Some(pair) = Pair::shared_for("rwxcd") else { return };
    let mut bob = pair.hands();
    let mut alice = pair.owner();
    bob.does("make new");
    bob.does("put-at new 0 from bob");
    assert_eq!(alice.does("get docs/new"), "from bob", "at once");
    bob.does("open note");
    bob.does("put-at note 0 NOTE");
    assert_eq!(alice.does("get docs/note"), "NOTE|");
    alice.does("open docs/note");
    alice.does("put-at docs/note 0 note");
    assert_eq!(bob.does("get note"), "note|");
    bob.does("log log");
    bob.does("add log one");
    bob.does("add log two");
    bob.does("sync log");
    assert_eq!(alice.does("get docs/log"), "one|two|");
    bob.does("mkdir made");
    bob.does("rename new made/new");
    bob.does("rename sub made/sub");
    assert_eq!(alice.does("get docs/made/sub/deep"), "deep|");
    bob.does("remove made/new");
    bob.fails("rmdir made", Errno::NOTEMPTY);
    bob.fails("get ../secret/file", Errno::NOENT);
    bob.does("remove log");
    assert_eq!(alice.does("list docs"), "made note");
    drop((alice, bob));
    pair.finish();
}

/// Programs that copy and build set modes, times and owners, link, lock, and replace.
#[test]
fn programs_of_a_guest_find_a_file_system() {
    let Some(pair) = Pair::shared_for("rwxcd") else { return };
    let lines = [
        "mkdir ~/src && echo 'int main(void) { return 0; }' > ~/src/main.c && chmod 750 ~/src \
         && touch -d 2001-02-03 ~/src/main.c && ln -s main.c ~/src/link \
         && ln ~/src/main.c ~/src/hard",
        "cp -a ~/src ~/shared/copy && diff -r ~/src ~/shared/copy",
        "test $(stat -c %Y ~/shared/copy/main.c) = $(stat -c %Y ~/src/main.c)",
        "test $(stat -c %a ~/shared/copy) = 700 && test $(stat -c %U ~/shared/copy) = $(id -un)",
        "tar -C ~/src -c . | tar -C ~/shared/sub -x && diff -r ~/src ~/shared/copy",
        "cd ~/shared && git init -q repo && cd repo && git config user.email bob@example.com \
         && git config user.name Bob && cp ~/src/main.c . && git add main.c && git commit -qm one \
         && git gc -q && git fsck",
        "cd ~/shared && flock lock -c 'echo locked > locked' && test $(cat locked) = locked",
        "cd ~/shared && truncate -s 100000 sparse && fallocate -l 4096 taken && rm sparse taken",
        "cd ~/shared && echo new > t && mv t locked && test $(cat locked) = new",
        "cd ~/shared && chmod 755 locked && test -x locked && chmod 600 locked && test ! -x locked",
    ];
    for line in lines {
        let ran = tried(&pair.bob, line);
        assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
    }
    // No share grants these.
    for (line, says) in [
        ("chown 12345 ~/shared/note", "Operation not permitted"),
        ("chmod 4755 ~/shared/note", "Permission denied"),
        ("mknod ~/shared/device c 1 3", "Permission denied"),
    ] {
        let ran = tried(&pair.bob, line);
        assert!(ran.code != Some(0) && ran.err.contains(says), "{line}: {ran:?}");
    }
    pair.finish();
}

#[test]
fn a_guest_has_the_rights_that_were_given() {
    let Some(pair) = Pair::shared_for("rc") else { return };
    let mut bob = pair.hands();
    bob.does("make new");
    bob.does("put-at new 0 mine");
    assert_eq!(bob.does("get new"), "mine");
    bob.fails("open note", Errno::ACCESS);
    bob.fails("remove note", Errno::ACCESS);
    bob.fails("rename note other", Errno::ACCESS);
    bob.does("mkdir made");
    bob.fails("rmdir made", Errno::ACCESS);
    assert_eq!(pair.owner().does("get docs/new"), "mine");
    drop(bob);
    pair.finish();
}

/// It may write a file by the open that has made it, which the next run of the server does not
/// know of. So nothing of it is held back that the next run would refuse.
#[test]
fn what_a_guest_that_may_only_create_has_written_outlives_the_server() {
    let Some(pair) = Pair::shared_for("rc") else { return };
    let mut bob = pair.hands();
    bob.does("make new");
    bob.does("put-at new 0 mine");
    kill(pair.server_pid());
    pair.up();
    assert_eq!(pair.owner().does("get docs/new"), "mine");
    drop(bob);
    pair.finish();
}

/// Each step of the work would show if it were done twice or not at all.
#[test]
fn the_work_of_a_guest_goes_on_after_kills_of_the_server() {
    let Some(pair) = Pair::shared_for("rwxcd") else { return };
    let mut bob = pair.hands();
    bob.work("work");
    for _ in 0..3 {
        // Only time lets the work go on between two kills.
        std::thread::sleep(std::time::Duration::from_secs(1));
        kill(pair.server_pid());
        pair.up();
    }
    let (rounds, failed) = bob.rest();
    assert!(rounds > 10 && failed.is_empty(), "{rounds} rounds: {failed:?}");
    let log = fs::read_to_string(pair.alice.home.join("pelago/files/docs/work/log")).unwrap();
    let written: Vec<usize> = log.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(written, (0..rounds).collect::<Vec<_>>());
    drop(bob);
    pair.finish();
}

/// After the answer nothing that the guest has open changes the volume.
#[test]
fn a_revocation_ends_the_work_of_a_guest() {
    let Some(pair) = Pair::shared_for("rwxcd") else { return };
    let mut bob = pair.hands();
    bob.does("make new");
    bob.does("put-at new 0 before");
    bob.does("sync new");
    bob.does("make late");
    bob.does("put-at late 0 late");
    pair.alice.types("pelago revoke ~/docs.cred -V ~/pelago");
    // Bytes that Bob's machine still holds back are refused, and the program is told.
    if pair.owner().does("get docs/late") != "late" {
        bob.fails_by("sync late", &[Errno::STALE, Errno::ACCESS, Errno::IO]);
    }
    for line in ["put-at new 0 after", "make other", "remove note", "get note"] {
        bob.fails_by(line, &[Errno::STALE, Errno::ACCESS, Errno::IO]);
    }
    assert_eq!(pair.owner().does("get docs/new"), "before");
    assert_eq!(pair.owner().does("list docs"), "late new note sub");
    drop(bob);
    pair.finish();
}
