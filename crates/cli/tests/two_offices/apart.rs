//! The whole story of README.md's offices, 100 ms apart.

use std::fs;
use std::path::Path;

use crate::harness::program::until;
use crate::machines::lab::{Lab, kill, lock_holder};
use crate::machines::line::Line;
use crate::machines::network::{Machine, tried};
use crate::two_offices::office::Offices;

/// A round trip of 100 ms.
const FAR: &[&str] = &["delay=50000"];

/// Returns all paths of a tree, with the sums of the files.
fn tree(machine: &Machine, files: &str) -> String {
    let list = "find . | sort && find . -type f | sort | xargs -d '\\n' sha256sum";
    tried(machine, &format!("cd {files} && {list}")).out
}

fn both_have_one_tree(offices: &Offices) {
    until("both have one tree", || {
        let here = tree(&offices.first, "~/pelago/files");
        !here.is_empty() && here == tree(&offices.berlin, "~/berlin/files")
    });
}

/// Writes files into a folder of an own office.
fn works(machine: &Machine, folder: &str) {
    machine.types(&format!(
        "cd {folder} && mkdir -p alone/deep && for i in $(seq 20); do echo $i > alone/deep/$i; \
         done && mv alone/deep/7 alone/seven && rm alone/deep/8 && cat alone/seven alone/deep/20"
    ));
}

#[test]
fn both_work_on_while_the_line_is_cut_and_one_of_them_starts_again() {
    let Some(line) = Line::new(FAR) else { return };
    let Some(lab) = Lab::new() else { return };
    let [first, berlin] = [(0, "first"), (1, "there")];
    let [first, berlin] =
        [first, berlin].map(|(end, home)| line.machine(end, &lab.root.join(home)));
    let offices = Offices::of(lab, first, berlin);
    let Offices { first, berlin, .. } = &offices;
    // Both write to one tree.
    first.types("echo one > ~/pelago/files/notes");
    berlin.types("echo two >> ~/berlin/files/notes && mkdir ~/berlin/files/berlin");
    berlin.types("echo drei > ~/berlin/files/berlin/notes");
    first.types("echo vier >> ~/pelago/files/berlin/notes && mkdir ~/pelago/files/own");
    assert_eq!(first.types("cat ~/pelago/files/notes").out, "one\ntwo\n");
    assert_eq!(berlin.types("cat ~/berlin/files/berlin/notes").out, "drei\nvier\n");
    both_have_one_tree(&offices);
    // The line is cut: both work on, and one starts again meanwhile.
    line.tell("cut=1");
    works(first, "~/pelago/files/own");
    works(berlin, "~/berlin/files/berlin");
    kill(lock_holder(&berlin.home.join("berlin")));
    offices.up_there();
    berlin.types("echo restarted >> ~/berlin/files/berlin/notes");
    first.types("echo alone >> ~/pelago/files/notes");
    assert_ne!(
        tried(berlin, "timeout 12 sh -c 'echo never >> ~/berlin/files/notes'").code,
        Some(0)
    );
    // It is restored: all agree.
    line.tell("cut=0");
    both_have_one_tree(&offices);
    assert_eq!(berlin.types("cat ~/berlin/files/notes").out, "one\ntwo\nalone\n");
    let notes = first.types("cat ~/pelago/files/berlin/notes").out;
    assert_eq!(notes, "drei\nvier\nrestarted\n");
    let rome = line.machine(1, &offices.lab.root.join("rome"));
    a_third_office_comes_and_goes(&offices, &rome);
    both_have_one_tree(&offices);
    offices.finish();
}

/// An office that cannot be connected to, as behind NAT, joins, works and leaves.
fn a_third_office_comes_and_goes(offices: &Offices, rome: &Machine) {
    let Offices { first, berlin, lab } = offices;
    first.types("pelago site invite rome -V ~/pelago > ~/rome.ticket");
    carry(&first.home.join("rome.ticket"), &rome.home.join("ticket"));
    rome.types("pelago join \"$(cat ~/ticket)\" ~/rome --no-listen --detach");
    lab.ends(lock_holder(&rome.home.join("rome")));
    rome.types("mkdir ~/rome/files/rome && echo sei > ~/rome/files/rome/notes");
    for (machine, dir) in [(first, "pelago"), (berlin, "berlin")] {
        until("its folder is read by both others", || {
            tried(machine, &format!("cat ~/{dir}/files/rome/notes")).out == "sei\n"
        });
    }
    assert_eq!(tree(rome, "~/rome/files"), tree(first, "~/pelago/files"));
    rome.types("mv ~/rome/files/rome/notes ~/rome/files/own/of-rome && rm -r ~/rome/files/rome");
    rome.types("pelago site leave -V ~/rome");
    until("its process has ended", || tried(rome, "pelago status ~/rome").code != Some(0));
    assert_eq!(berlin.types("cat ~/berlin/files/own/of-rome").out, "sei\n");
}

fn carry(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap();
}
