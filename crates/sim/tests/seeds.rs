//! Some seeds are right, and one seed is one run.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::process::Command;

fn sim(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_pelago-sim")).args(arguments).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

/// `cargo xtask sim` runs more.
#[test]
fn nothing_is_wrong_with_the_first_seeds() {
    let (is_right, text) = sim(&["1", "60"]);
    assert!(is_right, "{text}");
    println!("{text}");
}

/// Mirrors are promoted at any moment.
#[test]
fn nothing_is_wrong_with_the_first_seeds_of_mirrors() {
    let (is_right, text) = sim(&["1", "50", "--mirrors"]);
    assert!(is_right, "{text}");
    println!("{text}");
}

#[test]
fn a_seed_gives_the_same_run_in_two_processes() {
    // The second one has guests, who come over TLS, and the third one three sites.
    for seed in ["6", "10", "12"] {
        let (_, one) = sim(&[seed]);
        assert_eq!(one, sim(&[seed]).1);
        assert!(one.lines().count() > 100, "{one}");
        assert_eq!(seed == "10", one.contains("guest reads of"), "{one}");
        assert_eq!(seed == "12", one.contains("site mkdir: "), "{one}");
    }
    let (_, one) = sim(&["6", "--mirrors"]);
    assert_eq!(one, sim(&["6", "--mirrors"]).1);
    assert!(one.contains("the primary burns"), "{one}");
}
