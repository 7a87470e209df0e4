//! Directories that come and go, and locks, in both offices.

use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use crate::harness::program::until;
use crate::machines::network::{Machine, tried};
use crate::two_offices::office::Offices;

#[test]
fn directories_come_and_go_in_both_offices() {
    let Some(offices) = Offices::new() else { return };
    let [mut first, mut there] = offices.hands();
    for _ in 0..3 {
        there.does("mkdir berlin");
        first.does("mkdir berlin/first");
        there.does("mkdir berlin/first/deep");
        for hands in [&mut first, &mut there] {
            hands.fails("rmdir berlin", Errno::NOTEMPTY);
            hands.fails("rmdir berlin/first", Errno::NOTEMPTY);
        }
        first.does("rmdir berlin/first/deep");
        there.does("rmdir berlin/first");
        first.does("rmdir berlin");
        for hands in [&mut first, &mut there] {
            hands.fails("rmdir berlin", Errno::NOENT);
            assert_eq!(hands.does("list ."), "");
        }
    }
    there.does("mkdir berlin");
    offices.lab.network.cut(&offices.first);
    there.fails_by("rmdir berlin", &[Errno::TIMEDOUT, Errno::HOSTDOWN]);
    offices.lab.network.join(&offices.first);
    until("it is gone, or can be removed", || {
        let removed = tried(&offices.berlin, "rmdir ~/berlin/files/berlin");
        removed.code == Some(0) || removed.err.contains("No such file")
    });
    assert_eq!(first.does("list ."), "");
    drop((first, there));
    offices.finish();
}

#[test]
fn a_lock_excludes_the_programs_of_both_offices() {
    let Some(offices) = Offices::new() else { return };
    let [mut first, mut there] = offices.hands();
    first.does("make file");
    there.does("open file");
    for round in 0..2 {
        there.does("lock file");
        first.fails("lock file", Errno::AGAIN);
        first.tell("lock-wait file");
        there.does("unlock file");
        first.heard("lock-wait file");
        there.fails("lock file", Errno::AGAIN);
        there.tell("lock-wait file");
        if round == 0 {
            // For longer than another request may wait.
            thread::sleep(Duration::from_secs(11));
        }
        first.does("unlock file");
        there.heard("lock-wait file");
        there.does("unlock file");
    }
    // An office that is away for long loses its lock, and its program writes no more through it.
    there.does("lock file");
    offices.lab.network.cut(&offices.first);
    first.does("lock-wait file");
    offices.lab.network.join(&offices.first);
    until("the line is back", || tried(&offices.berlin, "ls ~/berlin/files").out.contains("file"));
    there.fails("add file late", Errno::IO);
    drop((first, there));
    offices.finish();
}

/// Adds 1 to the number in a file, under a lock, 30 times.
const COUNTS: &str = r#"
use Fcntl qw(:flock);
for (1..30) {
    open(my $file, "+<", $ARGV[0]) or die("open: $!");
    flock($file, LOCK_EX) or die("flock: $!");
    my $number = <$file>;
    seek($file, 0, 0) or die("seek: $!");
    print $file ($number + 1), "\n";
    close($file) or die("close: $!");
}
"#;

/// Each reads what the one before it has written, in whichever office.
#[test]
fn programs_of_both_offices_change_a_file_in_turns() {
    let Some(offices) = Offices::new() else { return };
    offices.first.types("echo 0 > ~/pelago/files/counter");
    let count = |machine: &Machine, path: &str| {
        machine.command("perl").args(["-e", COUNTS, path]).spawn().unwrap()
    };
    let tree = offices.tree().join("counter");
    let tree_there = offices.tree_there().join("counter");
    let [here, there] = [tree, tree_there].map(|path| path.to_str().unwrap().to_owned());
    let mut counting = [
        count(&offices.first, &here),
        count(&offices.berlin, &there),
        count(&offices.berlin, &there),
    ];
    for program in &mut counting {
        assert!(program.wait().unwrap().success());
    }
    for line in ["cat ~/pelago/files/counter", "cat ~/berlin/files/counter"] {
        let machine = if line.contains("pelago") { &offices.first } else { &offices.berlin };
        assert_eq!(machine.types(line).out, "90\n");
    }
    offices.finish();
}
