//! Compares `docs/semantics.md` with the tests: each row of its tables has a test of its name, and
//! each test of a promise has a row.

use std::collections::BTreeSet;

use pelago_wire::Code;

const DOCUMENT: &str = include_str!("../../../../docs/semantics.md");
/// The sources with tests of promises.
const PROMISES: &[&str] = &[
    include_str!("promises/attributes.rs"),
    include_str!("promises/bytes.rs"),
    include_str!("promises/differences.rs"),
    include_str!("promises/names.rs"),
    include_str!("promises/opening.rs"),
    include_str!("promises/sharing.rs"),
];
/// Promises with further tests in a file of their own.
const OTHERS: &[&str] = &[include_str!("acl.rs")];

#[test]
fn each_operation_has_a_test_and_each_test_an_operation() {
    let mut lines = first_cells("## Operations");
    lines.extend(first_cells("## Unlike ext4"));
    let lines: BTreeSet<String> = lines.iter().map(|line| name_of(line)).collect();
    let tests = tests_of(PROMISES);
    let others = tests_of(OTHERS);
    let has_test = |line: &&String| tests.contains(*line) || others.contains(*line);
    let without_test: Vec<_> = lines.iter().filter(|line| !has_test(line)).collect();
    assert!(without_test.is_empty(), "lines without a test: {without_test:?}");
    let without_line: Vec<_> = tests.difference(&lines).collect();
    assert!(without_line.is_empty(), "tests without a line: {without_line:?}");
}

/// Once for each column: a kill and a power failure.
#[test]
fn what_survives_is_tested_for_both_ends() {
    let lines: BTreeSet<String> =
        first_cells("## What survives what").iter().map(|line| name_of(line)).collect();
    assert_eq!(lines.len(), 5);
    assert_eq!(tests_of(&[include_str!("promises/survives.rs")]), lines);
    assert_eq!(tests_of(&[include_str!("../../../server/tests/survives.rs")]), lines);
}

/// Each failure of the disk is tested on a disk that fails in this way.
#[test]
fn each_failure_of_the_disk_is_tested() {
    let tests = tests_of(&[include_str!("../disk.rs")]);
    let events = first_cells("## When the disk fails");
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| tests.contains(&name_of(event))), "{events:?}");
}

/// Each code is tested through a mount or at the server, or the document says why it cannot occur
/// yet.
#[test]
fn each_error_is_met() {
    let met = tests_of(&[include_str!("errors.rs")]);
    let at_the_server = tests_of(&[include_str!("../../../server/tests/errors.rs")]);
    let (_, section) = DOCUMENT.split_once("## Errors").unwrap();
    let listed = |head: &str| -> BTreeSet<String> {
        let (_, rest) = section.split_once(head).unwrap();
        let bullets = rest
            .trim_start()
            .lines()
            .map_while(|line| (line.starts_with("- `") || line.starts_with("  ")).then_some(line));
        let names = bullets.filter_map(|line| line.strip_prefix("- `")?.split('`').next());
        names.map(snake).collect()
    };
    assert_eq!(listed("through a mount:"), at_the_server);
    let far = listed("of another machine:");
    assert_eq!(far, tests_of(&[include_str!("../far/errors.rs")]));
    let offices = listed("of several offices:");
    assert_eq!(offices, tests_of(&[include_str!("../two_offices/errors.rs")]));
    let never = listed("not arise yet:");
    let of_one = met.iter().chain(&at_the_server);
    let mut all: Vec<&String> = of_one.chain(&far).chain(&offices).chain(&never).collect();
    all.sort();
    let mut codes: Vec<String> = Code::ALL.iter().map(|code| snake(&format!("{code:?}"))).collect();
    codes.sort();
    assert_eq!(all, codes.iter().collect::<Vec<_>>());
}

/// Returns the first cell of each row of the table below a heading.
fn first_cells(head: &str) -> Vec<&'static str> {
    let (_, rest) = DOCUMENT.split_once(head).unwrap_or_else(|| panic!("no {head}"));
    let table = rest.lines().skip_while(|line| !line.starts_with('|'));
    let rows = table.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row[1..].split('|').next().unwrap().trim()).collect()
}

/// Returns the name of the test of a row: its words, without brackets.
fn name_of(line: &str) -> String {
    let words = line.split(" (").next().unwrap();
    let letters = words.chars().map(|letter| match letter {
        letter if letter.is_ascii_alphanumeric() => letter.to_ascii_lowercase(),
        _ => ' ',
    });
    let spaced: String = letters.collect();
    spaced.split_whitespace().collect::<Vec<_>>().join("_")
}

/// Turns `NotFound` into `not_found`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// Returns the names of the tests in these sources.
fn tests_of(sources: &[&str]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in sources {
        let mut is_test = false;
        for line in source.lines().map(str::trim) {
            if line == "#[test]" {
                is_test = true;
            } else if let (true, Some(rest)) = (is_test, line.strip_prefix("fn ")) {
                let name = rest.split('(').next().unwrap();
                assert!(names.insert(name.to_owned()), "two tests are called {name}");
                is_test = false;
            }
        }
    }
    names
}
