//! Golden files: the output of a command, word for word.
//!
//! `PELAGO_GOLDEN=accept` rewrites the files; read the diff.

use std::fs;
use std::path::Path;

use super::program::Ran;

/// Compares the output and exit code of a command with `tests/golden/NAME.txt`.
pub(crate) fn expect_golden(name: &str, root: &Path, ran: &Ran) {
    let code = ran.code.map_or_else(|| "none".to_owned(), |code| code.to_string());
    let said = format!("exit {code}\n--- stdout\n{}--- stderr\n{}", ran.out, ran.err);
    let said = normal(&said, root);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.txt"));
    if std::env::var("PELAGO_GOLDEN").is_ok_and(|value| value == "accept") {
        fs::write(&path, said).unwrap();
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(said, expected, "tests/golden/{name}.txt differs; `cargo xtask golden` accepts it");
}

/// Replaces what differs between machines and runs: paths, versions, process ids.
fn normal(said: &str, root: &Path) -> String {
    let said = said.replace(root.to_str().unwrap(), "ROOT");
    let said = said.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    // The paths of bytes and of requests depend on the kernel, the disk and the user.
    let said = rest_of_line(&said, "speed     ", "PATH");
    // Process ids, positions in the engine's files and its row count differ from run to run.
    let words = ["process ", "byte ", "checked   "];
    let said = words.iter().fold(said, |said, word| numbers_after(&said, word));
    dates(&keys(&said))
}

/// Replaces what follows `start` in its first line.
fn rest_of_line(said: &str, start: &str, replacement: &str) -> String {
    let line = said.find(start).and_then(|at| said[at..].lines().next());
    line.map_or_else(
        || said.to_owned(),
        |line| said.replace(line, &format!("{start}{replacement}")),
    )
}

/// Replaces public keys by `KEY1`, `KEY2`, in the order in which they appear.
fn keys(said: &str) -> String {
    let mut normal = said.to_owned();
    for number in 1.. {
        let found = normal.match_indices("pelago1").find_map(|(at, _)| normal.get(at..at + KEY));
        let Some(key) = found.filter(|key| key.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        else {
            break;
        };
        normal = normal.replace(&key.to_owned(), &format!("KEY{number}"));
    }
    normal
}

/// Characters of a public key.
const KEY: usize = 65;

/// Replaces dates as `2026-02-03` by `DATE`.
fn dates(said: &str) -> String {
    let is_date = |text: &str| {
        let mut letters = text.bytes().enumerate();
        letters.all(|(at, letter)| match at {
            4 | 7 => letter == b'-',
            _ => letter.is_ascii_digit(),
        })
    };
    let mut normal = said.to_owned();
    let find = |text: &str| (0..text.len()).find(|at| text.get(*at..at + 10).is_some_and(is_date));
    while let Some(at) = find(&normal) {
        normal.replace_range(at..at + 10, "DATE");
    }
    normal
}

fn numbers_after(text: &str, word: &str) -> String {
    let mut parts = text.split(word);
    let mut normal = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        normal.push_str(word);
        normal.push_str(if rest.len() < part.len() { "N" } else { "" });
        normal.push_str(rest);
    }
    normal
}
