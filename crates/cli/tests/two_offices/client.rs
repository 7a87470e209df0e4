//! A machine that works through one office in the folders of the other.

use std::process::Child;

use crate::harness::program::until;
use crate::machines::lab::{kill, lock_holder, pid_of};
use crate::machines::network::{Machine, tried};
use crate::two_offices::office::Offices;

/// The work of the machine until it is told to stop: each name changes twice, and each line is
/// added once.
const WORK: &str = "set -e; cd ~/far; i=0; touch log; \
                    while [ ! -e ~/stop ]; do i=$((i+1)); \
                    echo $i > f$i.new; mv f$i.new f$i; echo $i >> log; \
                    if [ $((i % 3)) = 0 ]; then rm f$i; fi; \
                    if [ $((i % 5)) = 0 ]; then ln f1 l$i; fi; \
                    echo $i > ~/reached; done; \
                    seq $i | cmp - log; touch ~/well";

/// Returns a machine with a mount of the second office.
pub(crate) fn laptop(offices: &Offices) -> Machine {
    let laptop = offices.lab.machine(3, "laptop");
    laptop.types("pelago key new && mkdir ~/far");
    let key = laptop.types("pelago key show").out;
    offices.berlin.types(&format!("pelago key allow {} -V ~/berlin", key.trim()));
    let server = offices.berlin.types("pelago key show -V ~/berlin").out;
    let at = format!("{}@{}:7441", server.trim(), offices.berlin.address);
    laptop.types(&format!("pelago mount {at} ~/far --detach"));
    let status = laptop.types("pelago status ~/far --json --timeout 100").json();
    offices.lab.ends(pid_of(&status));
    laptop
}

fn reached(laptop: &Machine) -> u64 {
    let text = std::fs::read_to_string(laptop.home.join("reached")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Waits until the machine has done this many rounds more.
fn goes_on(laptop: &Machine, work: &mut Child, rounds: u64) {
    let before = reached(laptop);
    until("its work goes on", || {
        assert_eq!(work.try_wait().unwrap(), None, "it has failed after {}", reached(laptop));
        reached(laptop) >= before + rounds
    });
}

/// Either server is killed while changes of the machine are under way.
#[test]
fn a_machine_works_on_while_servers_are_killed() {
    let Some(offices) = Offices::new() else { return };
    let laptop = laptop(&offices);
    let mut work = laptop.command("sh").args(["-c", WORK]).spawn().unwrap();
    for round in 0..4 {
        goes_on(&laptop, &mut work, 20);
        match round {
            0 | 1 | 3 => {
                kill(lock_holder(&offices.berlin.home.join("berlin")));
                offices.up_there();
            }
            _ => {
                kill(lock_holder(&offices.first.home.join("pelago")));
                offices.up();
            }
        }
    }
    goes_on(&laptop, &mut work, 20);
    std::fs::write(laptop.home.join("stop"), "").unwrap();
    assert!(work.wait().unwrap().success());
    assert!(laptop.home.join("well").exists());
    let last = reached(&laptop);
    let names = |line: &str| offices.first.types(&format!("ls ~/pelago/files | {line}")).out;
    assert_eq!(names("grep -c '^f'").trim(), (last - last / 3).to_string());
    assert_eq!(names("grep -c '^l[0-9]'").trim(), (last / 5).to_string());
    let links = tried(&offices.first, "stat -c %h ~/pelago/files/f1");
    assert_eq!(links.out.trim(), (last / 5 + 1).to_string());
    laptop.types("pelago unmount ~/far --timeout 100");
    offices.finish();
}
