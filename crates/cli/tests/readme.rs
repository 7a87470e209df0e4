//! The commands of README.md, run in a home folder of their own.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::program::{bare, run};
use crate::harness::volume::{cannot_mount, detach_all, folder};

/// The first command builds; the test replaces it by the path of the built binary.
const FIRST: &str = "cargo run --release -- up ~/pelago --detach";
const SECOND: &str = "cargo xtask test";

/// Returns the lines of each `sh` block.
fn commands() -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = fs::read_to_string(path).unwrap();
    let mut blocks = Vec::new();
    let mut block = None;
    for line in text.lines() {
        match (&mut block, line) {
            (None, "```sh") => block = Some(Vec::new()),
            (None, _) => {}
            (Some(lines), "```") => {
                blocks.push(std::mem::take(lines));
                block = None;
            }
            (Some(lines), line) => lines.push(line.to_owned()),
        }
    }
    blocks
}

fn code_of(line: &str) -> &str {
    line.split(" #").next().unwrap().trim()
}

/// The first command mounts a volume, the second runs the tests.
#[test]
fn the_first_two_commands_are_what_they_must_be() {
    let lines: Vec<String> = commands().concat();
    let codes: Vec<&str> = lines.iter().map(|line| code_of(line)).collect();
    let codes: Vec<&str> = codes.into_iter().filter(|code| !code.is_empty()).collect();
    assert_eq!(codes[0], FIRST);
    assert!(codes.contains(&SECOND), "{codes:?}");
}

/// They succeed one after another; each find finds what was made before it.
#[test]
fn the_commands_work() {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    let (_folder, root) = folder();
    let lines: Vec<String> = commands().concat();
    let lines: Vec<&str> = lines.iter().map(|line| code_of(line)).collect();
    // The tests are running.
    let told = lines.iter().filter(|line| **line != SECOND);
    let mut script = "set -ex\n".to_owned();
    for line in told {
        let line = line.replace("cargo run --release --", "pelago");
        // Enough for a loaded machine.
        script.push_str(&line.replace("pelago status", "pelago status --timeout 100"));
        script.push('\n');
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_pelago"));
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]);
    bare(&mut shell, &root);
    let ran = run(shell.env("PATH", path));
    detach_all(&root);
    let ran = ran.expect_success();
    assert!(ran.out.contains("unmounted"), "{ran:?}");
}
