//! The walk of docs/sharing.md: three people with three keys, each on a machine of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::harness::program::Ran;
use crate::machines::lab::{Lab, lock_holder, pid_of};
use crate::machines::network::{Machine, tried};

/// The name of Alice's machine in the page.
const ALICE_AT: &str = "alice:7440";
/// The line that is typed on a train.
const OFFLINE: &str = "pelago share ~/plans.cred ";

/// The words of which one is in the error of a line that fails.
const DENIALS: [&str; 3] =
    ["Permission denied", "you do not have the right `w` here", "what you have ends at "];

/// A line of the page.
struct Line {
    /// The person who types it.
    person: String,
    text: String,
    fails: bool,
}

/// Returns the lines of all blocks of the page.
fn lines() -> Vec<Line> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sharing.md");
    let page = fs::read_to_string(page).unwrap().replace("\\\n", "");
    let mut lines = Vec::new();
    let mut person = String::new();
    let mut is_block = false;
    for line in page.lines() {
        let name = line.strip_prefix("**").and_then(|line| line.strip_suffix("**"));
        match (line, name) {
            ("```sh", _) => is_block = true,
            ("```", _) => is_block = false,
            (_, Some(name)) => person = name.to_owned(),
            (line, None) if is_block => {
                let (text, comment) = line.split_once("  #").unwrap_or((line, ""));
                let fails = comment.trim().starts_with("fails:");
                let text = text.trim_end().to_owned();
                lines.push(Line { person: person.clone(), text, fails });
            }
            _ => {}
        }
    }
    lines
}

/// Carries keys and credentials to the machines that do not have them.
fn deliver(machines: &BTreeMap<&str, Machine>) {
    for from in machines.values() {
        for entry in fs::read_dir(&from.home).unwrap() {
            let path = entry.unwrap().path();
            let is_mail = path.extension().is_some_and(|ext| ext == "pub" || ext == "cred");
            for to in machines.values().filter(|_| is_mail) {
                let there = to.home.join(path.file_name().unwrap());
                if !there.exists() {
                    fs::copy(&path, &there).unwrap();
                }
            }
        }
    }
}

/// Gives Bob the key of OpenSSH that he has in the page.
fn give_ssh_key(bob: &Machine) {
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/../keynote/src/key/openssh/vectors/");
    let ssh = bob.home.join(".ssh");
    fs::create_dir(&ssh).unwrap();
    fs::copy(format!("{vectors}plain.key"), ssh.join("id_ed25519")).unwrap();
    fs::copy(format!("{vectors}plain.pub"), ssh.join("id_ed25519.pub")).unwrap();
    bob.types("chmod 600 ~/.ssh/id_ed25519");
}

/// Types the page. Returns what each line printed.
fn walk(lab: &Lab, machines: &BTreeMap<&str, Machine>) -> Vec<(String, Ran)> {
    let mut printed = Vec::new();
    for Line { person, text, fails } in lines() {
        let machine = &machines[person.as_str()];
        let address = format!("{}:7440", machines["Alice"].address);
        let typed = text.replace(ALICE_AT, &address);
        let is_offline = text.starts_with(OFFLINE);
        if is_offline {
            lab.network.cut(machine);
        }
        let ran = tried(machine, &typed);
        if is_offline {
            lab.network.join(machine);
        }
        if fails {
            let is_denied = DENIALS.iter().any(|says| ran.err.contains(says));
            let is_error = matches!(ran.code, Some(1..=4));
            assert!(is_error && is_denied, "{person}: {text}: {ran:?}");
        } else {
            assert_eq!(ran.code, Some(0), "{person}: {text}: {ran:?}");
        }
        if text.starts_with("pelago up") {
            lab.ends(lock_holder(&machine.home.join("pelago")));
        }
        if let Some((_, mount)) = text.split_once("pelago attach ") {
            let mount = mount.split(' ').nth(1).unwrap();
            let status = machine.types(&format!("pelago status {mount} --json --timeout 100"));
            lab.ends(pid_of(&status.json()));
        }
        deliver(machines);
        printed.push((text, ran));
    }
    printed
}

#[test]
fn three_people_with_three_keys_do_what_the_page_says() {
    let Some(lab) = Lab::new() else { return };
    let machine = |number, name: &str| lab.machine(number, name);
    let machines = BTreeMap::from([
        ("Alice", machine(1, "alice")),
        ("Bob", machine(2, "bob")),
        ("Carol", machine(3, "carol")),
    ]);
    machines["Alice"].types("pelago key new");
    give_ssh_key(&machines["Bob"]);
    let printed = walk(&lab, &machines);
    assert!(printed.len() > 25, "the page has {} lines", printed.len());
    let all = |begin: &str| -> Vec<&Ran> {
        let of = printed.iter().filter(|(line, _)| line.starts_with(begin));
        of.map(|(_, ran)| ran).collect()
    };
    assert_eq!(all("cat ~/plans/dates ~/plans/house")[0].out, "in May\ntwo floors\n");
    assert_eq!(all("cat ~/house/sketch")[0].out, "two floors\n");
    assert_eq!(all("cat ~/again/dates")[0].out, "in May\n");
    let carol = machines["Carol"].types("pelago key show").out.trim().to_owned();
    let alice = machines["Alice"].types("pelago key show").out.trim().to_owned();
    let has = |ran: &Ran, says: &str| assert!(ran.out.contains(says), "{says}: {ran:?}");
    // Carol sees her own rights, and why she has not more.
    let own = all("pelago access ~/house/sketch")[0];
    has(own, "rxg      ");
    has(own, "    no wcda: credential 1 of 2, by ");
    // Alice sees both, and who has denied what.
    let [sketch, ended] = all("pelago access ~/pelago/files/plans/house/sketch")[..] else {
        panic!("{printed:?}");
    };
    has(sketch, &format!("rxg      {carol}, by the credential "));
    has(sketch, "(bob), by the credential ");
    has(sketch, &format!("    no wcda: credential 1 of 2, by {alice}, does not have these rights"));
    has(ended, &format!("-        {carol}, by the credential "));
    has(ended, "    no rxg: credential 2 of 2, by ");
    has(ended, "(bob), ended at ");
    let [beside, taken] = all("pelago access ~/pelago/files/plans/dates")[..] else {
        panic!("{printed:?}");
    };
    has(beside, "(bob), by the credential ");
    has(beside, &format!("-        {carol}, by the credential "));
    has(beside, "(bob), is for inode ");
    has(taken, &format!("-        {carol}, by the credential "));
    has(taken, "was taken back");
    let log = &all("pelago log --audit")[0].out;
    for says in [
        &[&carol, "came for the first time, with the credential "],
        &["(bob)", "came for the first time, with the credential "][..],
        &[&carol, "used the right `r` for the first time: "],
        &[&carol, "was denied create of inode "],
        &[&carol, "was cut off: the credential ", " has ended"],
        &[&alice, " took back "],
        &["(bob)", "was cut off: the credential ", " was taken back"],
        &[&carol, "was cut off: the credential ", " was taken back"],
    ] {
        let found = log.lines().any(|line| says.iter().all(|words| line.contains(words)));
        assert!(found, "{says:?}: {log}");
    }
    assert_eq!(machines["Alice"].types("pelago check ~/pelago --json").json()["whole"], true);
}
