//! Tests of the writer: a reader gets the meaning that the caller has asked for.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use pelago_keynote::{
    Compared, Conditions, Credential, Principal, PrincipalError, Test, WriteError, policy,
};
use ring::signature::Ed25519KeyPair;

fn key(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

/// Attributes that would end their test, and put another one in its place.
#[test]
fn what_would_be_read_otherwise_is_not_signed() {
    let licensee = Principal::of(&key(2));
    let sign = |tests: Vec<Test>| {
        let conditions = Conditions::new(tests);
        Credential { comment: &[], licensee, conditions: &conditions }.sign(&key(1))
    };
    let name = "a == \"b\" -> \"true\";\nComment: x";
    let cases = [
        vec![Test::Equals(Compared::new(name, "c"))],
        vec![Test::Equals(Compared::new("a", "line\nline"))],
        vec![Test::OneOf(vec![Compared::new("a", "b")])],
        vec![Test::Equals(Compared::new("", "b"))],
        Vec::new(),
    ];
    for tests in cases {
        assert_eq!(sign(tests.clone()), Err(WriteError::Unreadable), "{tests:?}");
    }
    assert!(sign(vec![Test::Equals(Compared::new("a", "\"quoted\" \\"))]).is_ok());
    assert_eq!(policy(&[], &[]), Err(WriteError::Unreadable));
    assert_eq!(policy(&[licensee; 17], &[]), Err(WriteError::Unreadable));
    assert!(policy(&[licensee; 16], &[]).is_ok());
}

#[test]
fn a_key_for_which_everybody_can_sign_is_none() {
    for digits in
        ["00".repeat(32), format!("01{}", "00".repeat(31)), format!("ec{}7f", "ff".repeat(30))]
    {
        let read = format!("ed25519-hex:{digits}").parse::<Principal>();
        assert_eq!(read, Err(PrincipalError::SmallOrder), "{digits}");
        let negative =
            format!("{}{}", &digits[..62], if digits.ends_with("7f") { "ff" } else { "80" });
        let read = format!("ed25519-hex:{negative}").parse::<Principal>();
        assert_eq!(read, Err(PrincipalError::SmallOrder), "{negative}");
    }
    let says = "\u{1b}[2J:x".parse::<Principal>().unwrap_err().to_string();
    assert!(!says.contains('\u{1b}'), "{says:?}");
}
