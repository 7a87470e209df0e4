//! Directories of the other office: each change is seen by the next call after it. Its author is a
//! program of the home, of the own office, or of a machine of that.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::harness::program::until;
use crate::machines::hands::Hands;
use crate::machines::lab::{kill, lock_holder};
use crate::two_offices::client::laptop;
use crate::two_offices::office::Offices;

const ROUNDS: u32 = 40;

/// Each of two directories has a file with its name; `one` leads to the first of them.
fn make_two(hands: &mut Hands) {
    for name in ["one", "other"] {
        hands.does(&format!("mkdir {name}"));
        hands.does(&format!("log {name}/file"));
        hands.does(&format!("add {name}/file {name}"));
        hands.does(&format!("close {name}/file"));
    }
}

/// Has `changes` move directories while `looks` walks through them all the time.
fn each_change_is_seen(changes: &mut Hands, looks: &mut Hands) {
    for _ in 0..ROUNDS {
        for _ in 0..3 {
            assert_eq!(looks.does("get one/file"), "one|");
        }
        changes.does("rename one moved");
        looks.fails("get one/file", Errno::NOENT);
        assert_eq!(looks.does("get moved/file"), "one|");
        // The name leads to another directory.
        changes.does("rename other one");
        assert_eq!(looks.does("get one/file"), "other|");
        changes.does("rename one other");
        changes.does("rename moved one");
        assert_eq!(looks.does("get one/file"), "one|");
        assert_eq!(looks.does("get other/file"), "other|");
    }
}

#[test]
fn a_directory_of_the_other_office_that_moves_is_seen_where_it_is() {
    let Some(offices) = Offices::new() else { return };
    let [mut first, mut there] = offices.hands();
    make_two(&mut first);
    each_change_is_seen(&mut first, &mut there);
    // By this office's own programs.
    let mut beside = Hands::on(&offices.tree_there());
    each_change_is_seen(&mut there, &mut beside);
    // By a machine of this office, whose changes this office passes on.
    let laptop = laptop(&offices);
    let mut far = Hands::on(&laptop.home.join("far"));
    each_change_is_seen(&mut far, &mut there);
    each_change_is_seen(&mut first, &mut far);
    drop((first, there, beside, far));
    laptop.types("pelago unmount ~/far --timeout 100");
    offices.finish();
}

/// The mode of a directory, and one that is removed and made anew under its name.
#[test]
fn a_directory_of_the_other_office_that_changes_is_seen_as_it_is() {
    let Some(offices) = Offices::new() else { return };
    let Offices { first, berlin, .. } = &offices;
    first.types("mkdir ~/pelago/files/dir");
    let seen = |format: &str| {
        let stat = format!("stat -c {format} ~/berlin/files/dir ~/berlin/files/dir/. | uniq");
        berlin.types(&stat).out.trim().to_owned()
    };
    for round in 0..10 {
        let mode = format!("7{round}5").replace(['8', '9'], "0");
        first.types(&format!("chmod {mode} ~/pelago/files/dir"));
        assert_eq!(seen("%a"), mode);
        let before = seen("%i");
        first.types("rmdir ~/pelago/files/dir && mkdir ~/pelago/files/dir");
        assert_ne!(seen("%i"), before);
    }
    // What was leased by a run that is over.
    for _ in 0..3 {
        berlin.types("stat ~/berlin/files/dir/.");
        kill(lock_holder(&first.home.join("pelago")));
        offices.up();
        first.types("mv ~/pelago/files/dir ~/pelago/files/new && mkdir ~/pelago/files/dir");
        first.types("touch ~/pelago/files/dir/inside");
        assert_eq!(berlin.types("ls ~/berlin/files/dir").out, "inside\n");
        first.types("rm -r ~/pelago/files/dir && mv ~/pelago/files/new ~/pelago/files/dir");
    }
    offices.finish();
}

/// Facts from the time in which the other office was away end with its first answer.
#[test]
fn after_a_cut_no_older_directory_is_seen_beside_a_newer_one() {
    let Some(offices) = Offices::new() else { return };
    let [mut first, mut there] = offices.hands();
    make_two(&mut first);
    there.does("mkdir own");
    assert_eq!(there.does("list one"), "file");
    offices.lab.network.cut(&offices.first);
    let away = |there: &mut Hands| there.tries("size fresh") == Err(Errno::HOSTDOWN);
    until("the other office counts as silent", || away(&mut there));
    let walking = "while [ ! -e ~/stop ]; do stat ~/berlin/files/one/. ~/berlin/files/own/. \
                   > ~/seen 2>&1 || exit 1; done";
    let mut working = offices.berlin.command("sh").args(["-c", walking]).spawn().unwrap();
    first.does("rename one moved");
    first.does("mkdir fresh");
    offices.lab.network.join(&offices.first);
    until("the other office answers", || there.tries("size fresh").is_ok());
    there.fails("list one", Errno::NOENT);
    assert_eq!(there.does("list moved"), "file");
    std::fs::write(offices.berlin.home.join("stop"), "").unwrap();
    let _may_have_failed = working.wait().unwrap();
    drop((first, there));
    offices.finish();
}

/// A program in the directory whose names change holds it for as long as the other office takes.
#[test]
fn a_change_waits_for_no_program_that_waits_for_the_line() {
    let Some(offices) = Offices::new() else { return };
    let [mut first, mut there] = offices.hands();
    make_two(&mut first);
    first.does("mkdir busy");
    let busy = "cd ~/berlin/files && i=0; while [ ! -e ~/stop ]; do i=$((i+1)); mkdir busy/d$i && \
                rmdir busy/d$i && mkdir d$i && rmdir d$i || exit 1; done";
    let mut working = offices.berlin.command("sh").args(["-c", busy]).spawn().unwrap();
    let began = Instant::now();
    let mut longest = Duration::ZERO;
    while began.elapsed() < Duration::from_secs(8) {
        let one = Instant::now();
        each_change_is_seen_once(&mut first, &mut there);
        longest = longest.max(one.elapsed());
    }
    std::fs::write(offices.berlin.home.join("stop"), "").unwrap();
    assert!(working.wait().unwrap().success());
    assert!(longest < Duration::from_secs(8), "{longest:?}");
    drop((first, there));
    offices.finish();
}

fn each_change_is_seen_once(changes: &mut Hands, looks: &mut Hands) {
    assert_eq!(looks.does("get one/file"), "one|");
    changes.does("rename one moved");
    looks.fails("get one/file", Errno::NOENT);
    changes.does("rename moved one");
    assert_eq!(looks.does("get one/file"), "one|");
}
