//! Absolute paths to the own folders of an office while the line to the other one is cut: each
//! begins in a folder of the other office.

use std::time::{Duration, Instant};

use crate::harness::program::until;
use crate::machines::lab::{kill, lock_holder};
use crate::machines::network::tried;
use crate::two_offices::office::{BACK, Offices};

/// The longest time that all calls together may take: the deadline of the first one, and their work
/// on a busy machine. Each call that waited would add a deadline.
const STALL: Duration = Duration::from_secs(25);
/// The same if the other office counts as silent already: less than a deadline.
const WORK: Duration = Duration::from_secs(9);
/// The same after a start, which also waits for the sessions of the last run for a term.
const START: Duration = Duration::from_secs(35);

/// Reads and writes own files by their absolute paths; each look at one begins in the root.
fn works(offices: &Offices, dir: &str, round: u32, longest: Duration) {
    let began = Instant::now();
    let line = format!(
        "d=$HOME/berlin/files/{dir}; \
         [ \"$(cat $d/note)\" = note ] || exit 1; \
         echo {round} > $d/f{round} && mkdir $d/sub{round} && mv $d/f{round} $d/sub{round}/f || \
         exit 2; \
         i=0; while [ $i -lt 2000 ]; do [ -f $d/sub{round}/f ] || exit 3; i=$((i+1)); done; \
         [ \"$(cat $d/sub{round}/f)\" = {round} ] || exit 4; rm $d/sub{round}/f"
    );
    let ran = tried(&offices.berlin, &line);
    assert_eq!(ran.code, Some(0), "round {round}: {ran:?}");
    assert!(began.elapsed() < longest, "round {round}: {:?}", began.elapsed());
}

#[test]
fn own_paths_work_while_the_line_is_cut() {
    let Some(offices) = Offices::new() else { return };
    offices.first.types("mkdir ~/pelago/files/projects && echo x > ~/pelago/files/projects/file");
    offices.berlin.types("cd ~/berlin/files/projects && mkdir own && echo note > own/note");
    works(&offices, "projects/own", 0, BACK);
    offices.lab.network.cut(&offices.first);
    works(&offices, "projects/own", 1, STALL);
    works(&offices, "projects/own", 2, WORK);
    // What was never seen here may exist, and its folder cannot be listed.
    for line in ["cat ~/berlin/files/projects/file", "cat ~/berlin/files/none"] {
        let read = tried(&offices.berlin, line);
        assert!(read.err.contains("timed out") || read.err.contains("Host is down"), "{read:?}");
    }
    // The first office goes on too, and moves the folder.
    offices.first.types("mv ~/pelago/files/projects ~/pelago/files/renamed");
    works(&offices, "projects/own", 3, WORK);
    kill(lock_holder(&offices.berlin.home.join("berlin")));
    offices.up_there();
    works(&offices, "projects/own", 4, START);
    offices.lab.network.join(&offices.first);
    let began = Instant::now();
    until("the new path is known", || {
        tried(&offices.berlin, "cat ~/berlin/files/renamed/own/note").out == "note\n"
    });
    assert!(began.elapsed() < BACK, "{:?}", began.elapsed());
    let old = tried(&offices.berlin, "ls ~/berlin/files/projects");
    assert!(old.err.contains("No such file"), "{old:?}");
    until("the first office sees what was made meanwhile", || {
        tried(&offices.first, "ls ~/pelago/files/renamed/own").out
            == "note\nsub0\nsub1\nsub2\nsub3\nsub4\n"
    });
    offices.lab.network.cut(&offices.first);
    works(&offices, "renamed/own", 5, STALL);
    offices.lab.network.join(&offices.first);
    until("both work in one tree again", || {
        tried(&offices.first, "ls ~/pelago/files/renamed/own/sub5").code == Some(0)
            && tried(&offices.berlin, "cat ~/berlin/files/renamed/file").out == "x\n"
    });
    offices.finish();
}
