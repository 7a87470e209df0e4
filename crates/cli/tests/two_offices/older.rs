//! A folder of an office that is put back from a copy, or served beside it, as `cp -a` makes one.

use std::fs;

use crate::harness::golden::expect_golden;
use crate::harness::program::{Ran, until};
use crate::machines::lab::lock_holder;
use crate::machines::network::{Machine, tried};
use crate::two_offices::office::Offices;

/// Returns the number of the last token that the other office has given to this one.
fn token(machine: &Machine, dir: &str) -> u64 {
    let sites = machine.types(&format!("pelago site list -V ~/{dir} --json")).json();
    sites["sites"][0]["token"].as_u64().unwrap()
}

/// Returns whether an office says that it is cut off.
fn is_cut_off(machine: &Machine, dir: &str) -> bool {
    tried(machine, &format!("pelago site list -V ~/{dir}")).out.contains("cut off")
}

fn log(machine: &Machine, dir: &str) -> String {
    fs::read_to_string(machine.home.join(dir).join("log")).unwrap()
}

/// Returns the line of an output that begins with these words.
fn line_of(ran: Ran, words: &str) -> Ran {
    let lines: String = ran
        .out
        .lines()
        .filter(|line| line.starts_with(words))
        .map(|it| format!("{it}\n"))
        .collect();
    Ran { out: lines, ..ran }
}

impl Offices {
    /// Stops the second office, and copies its folder.
    fn copy_there(&self, to: &str) {
        self.berlin.types("pelago unmount -V ~/berlin --timeout 100");
        self.berlin.types(&format!("cp -a ~/berlin ~/{to}"));
    }
}

#[test]
fn a_folder_that_is_put_back_is_cut_off_and_says_why() {
    let Some(offices) = Offices::new() else { return };
    let Offices { first, berlin, .. } = &offices;
    first.types("echo one > ~/pelago/files/of-first");
    berlin.types("mkdir ~/berlin/files/berlin && echo old > ~/berlin/files/berlin/note");
    until("it has got a token", || token(berlin, "berlin") > 0);
    let before = token(berlin, "berlin");
    offices.copy_there("old");
    // An office that starts again is no older one.
    offices.up_there();
    until("it has got another token", || token(berlin, "berlin") > before);
    berlin.types("echo new > ~/berlin/files/berlin/note");
    assert_eq!(berlin.types("cat ~/berlin/files/of-first").out, "one\n");
    berlin.types("pelago unmount -V ~/berlin --timeout 100");
    berlin.types("mv ~/berlin ~/newer && mv ~/old ~/berlin");
    offices.up_there();
    until("the older folder is cut off", || is_cut_off(berlin, "berlin"));
    let listed = tried(berlin, "pelago site list -V ~/berlin");
    expect_golden("site-list-older", &berlin.home, &line_of(listed, "cut off"));
    let status = tried(berlin, "pelago status ~/berlin --timeout 100");
    expect_golden("status-older", &berlin.home, &line_of(status, "cut off"));
    until("the other office says so", || {
        let listed = first.types("pelago site list -V ~/pelago").out;
        listed.contains("a copy of its folder, or an older one, was refused")
    });
    let said = log(berlin, "berlin");
    assert!(said.contains("older than what another office has seen of it"), "{said}");
    let said = log(first, "pelago");
    assert!(said.contains("a folder of this office is a copy of one that goes on"), "{said}");
    // What is its own can be read; nothing else.
    until("the own folder is reached", || {
        tried(berlin, "cat ~/berlin/files/berlin/note").out == "old\n"
    });
    let read = tried(berlin, "cat ~/berlin/files/of-first");
    assert!(read.err.contains("Host is down") || read.err.contains("timed out"), "{read:?}");
    let read = tried(first, "cat ~/pelago/files/berlin/note");
    assert_ne!(read.code, Some(0), "{read:?}");
    assert!(!is_cut_off(first, "pelago"));
    // The newer one goes on.
    berlin.types("pelago unmount -V ~/berlin --timeout 100");
    berlin.types("rm -r ~/berlin && mv ~/newer ~/berlin");
    offices.up_there();
    until("both work in one tree again", || {
        tried(first, "cat ~/pelago/files/berlin/note").out == "new\n"
            && tried(berlin, "cat ~/berlin/files/of-first").out == "one\n"
    });
    assert!(!is_cut_off(berlin, "berlin") && !is_cut_off(first, "pelago"));
    offices.finish();
}

#[test]
fn of_a_folder_and_its_copy_one_is_cut_off() {
    let Some(offices) = Offices::new() else { return };
    let Offices { lab, berlin, .. } = &offices;
    berlin.types("mkdir ~/berlin/files/berlin");
    until("it has got a token", || token(berlin, "berlin") > 0);
    offices.copy_there("beside");
    offices.up_there();
    let beside = format!("pelago up ~/beside --listen {}:7442 --detach", berlin.address);
    berlin.types(&beside);
    lab.ends(lock_holder(&berlin.home.join("beside")));
    until("one of both is cut off", || {
        is_cut_off(berlin, "berlin") != is_cut_off(berlin, "beside")
    });
    let is_original = is_cut_off(berlin, "berlin");
    let [stays, goes_on] = match is_original {
        true => ["berlin", "beside"],
        false => ["beside", "berlin"],
    };
    until("the other one goes on", || {
        let made = format!("touch ~/{goes_on}/files/of-{goes_on}");
        tried(berlin, &made).code == Some(0)
    });
    assert!(is_cut_off(berlin, stays) && !is_cut_off(berlin, goes_on));
    berlin.types("pelago unmount -V ~/beside --timeout 100");
    if is_original {
        berlin.types("pelago unmount -V ~/berlin --timeout 100");
        berlin.types("rm -r ~/berlin && mv ~/beside ~/berlin");
        berlin.types(&format!("pelago up ~/berlin --listen {}:7441 --detach", berlin.address));
        lab.ends(lock_holder(&berlin.home.join("berlin")));
    }
    offices.finish();
}

#[test]
fn an_older_folder_of_the_first_office_is_cut_off_too() {
    let Some(offices) = Offices::new() else { return };
    let Offices { first, berlin, .. } = &offices;
    // It asks an office that has joined for a token once it asks for something else.
    berlin.types("mkdir ~/berlin/files/berlin");
    until("the first office has asked", || {
        tried(first, "touch ~/pelago/files/berlin/of-first").code == Some(0)
    });
    until("both have tokens", || token(berlin, "berlin") > 0 && token(first, "pelago") > 0);
    let before = token(first, "pelago");
    first.types("pelago unmount -V ~/pelago --timeout 100");
    first.types("cp -a ~/pelago ~/old");
    offices.up();
    until("it has got another token", || token(first, "pelago") > before);
    first.types("pelago unmount -V ~/pelago --timeout 100");
    first.types("mv ~/pelago ~/newer && mv ~/old ~/pelago");
    offices.up();
    until("the older folder is cut off", || is_cut_off(first, "pelago"));
    let listed = tried(first, "pelago site list -V ~/pelago");
    expect_golden("site-list-older-first", &first.home, &line_of(listed, "cut off"));
    until("the other office says so", || {
        let listed = berlin.types("pelago site list -V ~/berlin").out;
        listed.contains("a copy of its folder, or an older one, was refused")
    });
    assert!(!is_cut_off(berlin, "berlin"));
    first.types("pelago unmount -V ~/pelago --timeout 100");
    first.types("rm -r ~/pelago && mv ~/newer ~/pelago");
    offices.up();
    until("both work in one tree again", || {
        tried(berlin, "touch ~/berlin/files/of-berlin").code == Some(0)
    });
    offices.finish();
}
