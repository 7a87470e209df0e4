//! New files of the first office that are written in the other one, where their bytes stay.

use crate::harness::program::until;
use crate::machines::lab::{kill, lock_holder};
use crate::machines::network::{Machine, tried};
use crate::two_offices::office::Offices;

/// 16 MiB that a machine can make again: each file has other bytes.
const MAKE: &str = "seq -f 'line %.0f of the file' 1 600000 | head -c 16777216";

impl Offices {
    /// Returns how many files of others have their bytes only in the second office.
    fn staying(&self) -> u64 {
        let sites = self.berlin.types("pelago site list -V ~/berlin --json").json();
        sites["staying_files"].as_u64().unwrap()
    }

    fn sum_there(&self, name: &str) -> String {
        self.berlin.types(&format!("sha256sum < ~/berlin/files/{name}")).out
    }

    fn sum(&self, name: &str) -> String {
        self.first.types(&format!("sha256sum < ~/pelago/files/{name}")).out
    }
}

fn sum_of(machine: &Machine, line: &str) -> String {
    machine.types(&format!("{line} | sha256sum")).out
}

#[test]
fn a_large_new_file_is_written_at_the_speed_of_the_own_disk() {
    let Some(offices) = Offices::new() else { return };
    let before = offices.asked_from_there();
    offices.berlin.types(&format!("{MAKE} > ~/berlin/files/large"));
    let asked = offices.asked_from_there() - before;
    assert!(asked <= 6, "{asked} requests for 16 MiB");
    assert_eq!(offices.staying(), 1);
    let listed = offices.berlin.types("pelago site list -V ~/berlin").out;
    assert!(listed.contains("1 files of others have their bytes only here; 0 are not"), "{listed}");
    let told = |machine: &Machine, path: &str| {
        machine.types(&format!("getfattr --only-values -n user.pelago.sites {path}")).out
    };
    assert_eq!(told(&offices.berlin, "~/berlin/files/large"), "home=first bytes=here");
    assert_eq!(told(&offices.first, "~/pelago/files/large"), "home=here bytes=berlin");
    let expected = sum_of(&offices.berlin, MAKE);
    assert_eq!(offices.sum("large"), expected);
    let before = offices.asked_from_there();
    assert_eq!(offices.sum_there("large"), expected);
    assert!(offices.asked_from_there() - before <= 6, "its own bytes cross no line");
    // As `cp -p`: the times are those that it sets.
    offices.berlin.types("cp -p ~/berlin/files/large ~/berlin/files/copy");
    let times =
        |machine: &Machine, path: &str| machine.types(&format!("stat -c '%y %s' {path}")).out;
    let time = times(&offices.first, "~/pelago/files/large");
    assert_eq!(times(&offices.first, "~/pelago/files/copy"), time);
    assert_eq!(times(&offices.berlin, "~/berlin/files/copy"), time);
    // A write at home brings the bytes there.
    offices.first.types("echo end >> ~/pelago/files/large");
    let longer = sum_of(&offices.first, &format!("({MAKE}; echo end)"));
    assert_eq!(offices.sum("large"), longer);
    assert_eq!(offices.sum_there("large"), longer);
    until("only the copy is there", || offices.staying() == 1);
    offices.first.types("rm ~/pelago/files/copy");
    until("the removal is known", || offices.staying() == 0);
    offices.finish();
}

#[test]
fn a_kill_in_the_writers_office_shows_nothing_wrong() {
    let Some(offices) = Offices::new() else { return };
    let there = &offices.berlin;
    there.types(&format!("{MAKE} > ~/berlin/files/closed"));
    there
        .types(&format!("{MAKE} | dd of=$HOME/berlin/files/synced bs=64k conv=fsync 2> /dev/null"));
    let line = format!("exec 3> ~/berlin/files/open; {MAKE} >&3; touch ~/written; sleep 100");
    let mut writer = there.command("sh").args(["-c", &line]).spawn().unwrap();
    until("it is written", || there.home.join("written").exists());
    kill(lock_holder(&there.home.join("berlin")));
    let _gone = writer.kill();
    let _gone = writer.wait();
    // What was read before can be read still; the rest says that it is away.
    for name in ["closed", "synced"] {
        let read = tried(&offices.first, &format!("cat ~/pelago/files/{name} > /dev/null"));
        assert!(read.err.contains("timed out") || read.err.contains("Host is down"), "{read:?}");
    }
    offices.up_there();
    let expected = sum_of(&offices.first, MAKE);
    for name in ["closed", "synced", "open"] {
        until("it is there again", || {
            let read = tried(&offices.first, &format!("sha256sum < ~/pelago/files/{name}"));
            read.out == expected
        });
        assert_eq!(offices.sum_there(name), expected, "{name}");
    }
    // The home, too.
    kill(lock_holder(&offices.first.home.join("pelago")));
    offices.up();
    until("both work in one tree again", || {
        tried(&offices.berlin, "ls ~/berlin/files/closed").code == Some(0)
            && tried(&offices.first, "cat ~/pelago/files/closed > /dev/null").code == Some(0)
    });
    for name in ["closed", "synced", "open"] {
        assert_eq!(offices.sum(name), expected, "{name}");
    }
    offices.finish();
}

/// The home is killed while a program in the other office has written under a lease, and goes on.
#[test]
fn a_kill_at_home_loses_nothing_that_is_written_elsewhere() {
    let Some(offices) = Offices::new() else { return };
    let there = &offices.berlin;
    let line = format!(
        "exec 3> ~/berlin/files/open; {MAKE} >&3; touch ~/written; \
         while [ ! -e ~/go ]; do sleep 0.1; done; echo end >&3; sync ~/berlin/files/open"
    );
    let writer = there.command("sh").args(["-c", &line]).spawn().unwrap();
    until("it is written", || there.home.join("written").exists());
    kill(lock_holder(&offices.first.home.join("pelago")));
    offices.up();
    // The first look waits until the other office has told what it has written.
    assert_eq!(offices.sum("open"), sum_of(&offices.first, MAKE));
    there.types("touch ~/go");
    let ended = writer.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let longer = sum_of(&offices.first, &format!("({MAKE}; echo end)"));
    assert_eq!(offices.sum("open"), longer);
    assert_eq!(offices.sum_there("open"), longer);
    offices.finish();
}
