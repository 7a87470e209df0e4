//! README.md's story of a mirror, typed line by line on three machines: a mirror, a relay, a wait,
//! a fire, the promotion, and the way back, with both sites as they were before.

use std::fs;
use std::path::Path;

use crate::harness::program::Ran;
use crate::machines::lab::{Lab, pid_of};
use crate::machines::network::{Machine, tried};

/// The section of README.md.
const SECTION: &str = "\n## A mirror\n";
/// The beginning of a key that is asked for in the middle of a command.
const KEY: &str = "$(pelago key show -V ";

/// The three machines.
struct Machines {
    lab: Lab,
    home: Machine,
    there: Machine,
    edge: Machine,
}

/// A command of README.md, and what it says beside it.
struct Line {
    command: String,
    remark: String,
}

impl Machines {
    /// Returns the machines; `None` if this machine cannot have a network.
    fn new() -> Option<Self> {
        let lab = Lab::new()?;
        let home = lab.machine(1, "home");
        let there = lab.machine(2, "there");
        let edge = lab.machine(3, "edge");
        Some(Self { lab, home, there, edge })
    }

    /// Returns the machine at which README.md has a line typed.
    fn of_line(&self, line: &Line) -> &Machine {
        match line.remark.as_str() {
            remark if remark.starts_with("there") => &self.there,
            remark if remark.starts_with("at the edge") => &self.edge,
            _ => &self.home,
        }
    }

    /// Returns the machine that has a folder of README.md.
    fn of_folder(&self, folder: &str) -> &Machine {
        match folder {
            _ if folder.starts_with("~/mirrors") => &self.there,
            _ if folder.starts_with("~/relay") => &self.edge,
            _ => &self.home,
        }
    }

    /// Returns a command with the keys and addresses of the three machines: in README.md they are
    /// one.
    fn told(&self, command: &str) -> String {
        let mut told = command.to_owned();
        while let Some((before, rest)) = told.split_once(KEY) {
            let (folder, after) = rest.split_once(')').unwrap();
            let key = self.of_folder(folder).types(&format!("pelago key show -V {folder}")).out;
            told = format!("{before}{}{after}", key.trim());
        }
        let ports = [(7442, &self.there), (7443, &self.edge), (7444, &self.home)];
        for (port, machine) in ports {
            let at = format!("{}:{port}", machine.address);
            told = told.replace(&format!("127.0.0.1:{port}"), &at);
        }
        told
    }

    /// Types a line of README.md where it says.
    fn types(&self, line: &Line) -> Ran {
        let machine = self.of_line(line);
        let ran = machine.types(&self.told(&line.command));
        if line.command.ends_with("--detach") {
            let folder = line.command.split(' ').find(|word| word.starts_with("~/")).unwrap();
            let status = machine.types(&format!("pelago status {folder} --json --timeout 100"));
            self.lab.ends(pid_of(&status.json()));
        }
        ran
    }
}

/// Returns the commands of the section; those of several lines are one.
fn lines() -> Vec<Line> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once(SECTION).unwrap();
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let blocks = section.split("```sh\n").skip(1);
    let code: String = blocks.map(|block| block.split_once("```").unwrap().0).collect();
    let split = |line: &str| {
        let (command, remark) = line.split_once(" #").unwrap_or((line, ""));
        Line { command: command.trim_end().to_owned(), remark: remark.trim().to_owned() }
    };
    code.replace("\\\n", "").lines().map(split).collect()
}

#[test]
fn the_story_of_a_mirror_ends_as_it_began() {
    let Some(machines) = Machines::new() else { return };
    let mut verified = 0;
    let mut is_promoted = false;
    for line in lines() {
        let command = line.command.as_str();
        if command.starts_with("pelago serve ~/back ") {
            let line = "cd ~/mirrors/mirrors/*/files && echo new > new";
            tried(&machines.there, line).expect_success();
        }
        if command.starts_with("pelago unmount -V ~/back") {
            expect_end(&machines);
        }
        let ran = machines.types(&line);
        is_promoted |= command.ends_with(" --force");
        if command.contains("pelago verify ") {
            assert!(ran.out.starts_with("equal"), "{command}: {ran:?}");
            verified += 1;
        }
        if command.starts_with("cat ") {
            assert!(is_promoted, "{command}");
            assert_eq!(ran.out, "kept\n");
        }
    }
    assert_eq!(verified, 2, "before the fire, and at the end");
    for log in ["home/back/log", "there/mirrors/log", "edge/relay/log"] {
        let text = fs::read_to_string(machines.lab.root.join(log)).unwrap();
        assert!(!text.contains("panicked"), "{log}: {text}");
    }
}

/// Checks that the first site has the volume again, with all that was done at either, and the other
/// one a mirror.
fn expect_end(machines: &Machines) {
    let read = tried(&machines.home, "cat ~/back/mirrors/*/files/kept ~/back/mirrors/*/files/new");
    assert_eq!(read.expect_success().out, "kept\nnew\n");
    let status = machines.home.types("pelago status ~/back/mirrors/* --json --timeout 100").json();
    assert_eq!(status["mirror"]["follows"], true, "{status}");
    let there = machines.there.types("pelago status ~/mirrors --json --timeout 100").json();
    assert_eq!(there["mirrors"].as_array().unwrap().len(), 1, "{there}");
    let kept = machines.home.types("pelago conflicts -V ~/back").out;
    assert!(kept.contains("no changes of its own"), "{kept}");
}
