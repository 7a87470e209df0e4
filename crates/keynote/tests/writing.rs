//! Tests of the writer: a reader gets the meaning that the caller has asked for.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use pelago_keynote::{
    Arithmetic, Conditions, Credential, Principal, PrincipalError, Relation, StringExpr, Test,
    WriteError, policy,
};
use ring::signature::Ed25519KeyPair;

fn key(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn a() -> StringExpr {
    StringExpr::attribute("a")
}

const fn integers(number: i32) -> Test {
    Test::Integers(Arithmetic::Literal(number), Relation::Less, Arithmetic::Literal(7))
}

const fn floats(number: f32) -> Test {
    Test::Floats(Arithmetic::Literal(number), Relation::Less, Arithmetic::Literal(7.0))
}

/// Returns a test that is nested deeper than a reader reads.
fn deep() -> Test {
    (0..40).fold(Test::equals("a", "b"), |test, _| Test::Not(Box::new(test)))
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
        vec![Test::equals(name, "c")],
        vec![Test::matches(name, "c")],
        vec![Test::equals("a", "nul\0nul")],
        vec![Test::Any(vec![Test::equals("a", "b")]), Test::equals("a", "b")],
        vec![Test::equals("", "b")],
        vec![Test::equals("1a", "b")],
        vec![Test::Not(Box::new(Test::All(Vec::new())))],
        vec![integers(-1)],
        vec![floats(-0.5)],
        vec![floats(f32::NAN)],
        vec![floats(f32::INFINITY)],
        vec![Test::Strings(StringExpr::Joined(Vec::new()), Relation::Equal, a())],
        vec![Test::Strings(StringExpr::Joined(vec![a()]), Relation::Equal, a())],
        vec![deep()],
    ];
    for tests in cases {
        assert_eq!(sign(tests.clone()), Err(WriteError::Unreadable), "{tests:?}");
    }
    for good in [r#""quoted" \"#, "line\nline", "\r\t\u{f6}", "0", "\\0"] {
        assert!(sign(vec![Test::equals("a", good)]).is_ok(), "{good:?}");
    }
    assert!(sign(vec![integers(1), floats(0.5)]).is_ok());
    assert!(sign(Vec::new()).is_ok(), "everything is granted if that is asked for");
    assert_eq!(policy(&[], &[]), Err(WriteError::Unreadable));
    assert_eq!(policy(&[licensee; 65], &[]), Err(WriteError::Unreadable));
    assert!(policy(&[licensee; 64], &[]).is_ok());
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
