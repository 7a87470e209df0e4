//! Which texts are assertions, rule by rule, and what the error of another one names.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use pelago_keynote::{
    Assertion, CREDENTIAL_BYTES, Compared, Conditions, Credential, Principal, PrincipalError,
    SharedFolder, Test, WriteError, policy,
};
use ring::signature::Ed25519KeyPair;

fn key(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn share() -> SharedFolder {
    SharedFolder { volume: [5; 16], directory: 0x2a }
}

fn credential() -> String {
    let conditions = share().conditions();
    let licensee = Principal::of(&key(2));
    let comment = ["one".to_owned(), "two".to_owned()];
    let credential = Credential { comment: &comment, licensee, conditions: &conditions };
    credential.sign(&key(1)).unwrap()
}

/// Returns why the credential is none after this change.
fn changed(from: &str, to: &str) -> String {
    let good = credential();
    let text = good.replacen(from, to, 1);
    assert_ne!(text, good, "`{from}` is not in it");
    match Assertion::parse(text.as_bytes()) {
        Ok(assertion) => {
            assert!(assertion.verify().is_err(), "`{from}` to `{to}` is still signed");
            format!("{:?}", SharedFolder::of(&assertion).map_err(|error| error.to_string()))
        }
        Err(error) => error.to_string(),
    }
}

/// Returns why these conditions are none.
fn conditions(value: &str) -> String {
    let good = credential();
    let begin = good.find("Conditions:").unwrap();
    let end = good.find("Signature:").unwrap();
    let text = format!("{}Conditions: {value}\n{}", &good[..begin], &good[end..]);
    Assertion::parse(text.as_bytes()).map(drop).unwrap_err().to_string()
}

#[test]
fn what_is_written_is_read() {
    let text = credential();
    let read = Assertion::parse(text.as_bytes()).unwrap();
    assert_eq!(read.verify(), Ok(()));
    assert_eq!(read.licensees(), [Principal::of(&key(2))]);
    assert_eq!(read.comment(), ["one", "two"]);
    assert_eq!(SharedFolder::of(&read), Ok(share()));
    assert_eq!(read.text(), text);
}

#[test]
fn a_field_that_is_not_taken_is_named() {
    let cases = [
        ("Licensees:", "Licensee:", "the unknown field `Licensee`"),
        ("Authorizer:", "Local-Constants: a = \"b\"\nAuthorizer:", "`Local-Constants`"),
        ("Licensees:", "Authorizer: \"POLICY\"\nLicensees:", "the field `Authorizer` twice"),
        ("KeyNote-Version: 2\n", "", "no field `KeyNote-Version`"),
        ("KeyNote-Version: 2", "KeyNote-Version: 3", "the field `KeyNote-Version`"),
        ("Comment: one\n", "Comment: one\r\n", "the character '\\r'"),
        ("Comment: one", "Comment: \u{f6}ne", "the character '\u{f6}'"),
        ("KeyNote-Version: 2\n", "KeyNote-Version: 2\nno field at all\n", "begins no field"),
        ("KeyNote-Version: 2\n", " KeyNote-Version: 2\n", "begins no field"),
        ("Licensees: \"", "Licensees: \"POLICY\" || \"", "a principal is"),
        ("\"\nConditions:", "\" && \"x\"\nConditions:", "does not evaluate `&&`"),
        ("Licensees: \"ed25519-hex:", "Licensees: \"rsa-hex:", "the key `rsa-hex:...`"),
        ("Licensees: ", "Licensees: 2-of(\"a\") ", "does not evaluate `2`"),
        ("Licensees: \"ed25519-hex:", "Licensees: \"ed25519-hex:A", "a principal is"),
        ("Signature: \"", "Signature:  \"", "the field `Signature`"),
        ("sig-ed25519-hex:", "sig-ed25519-base64:", "the field `Signature`"),
    ];
    for (from, to, named) in cases {
        let says = changed(from, to);
        assert!(says.contains(named), "{from} to {to}: {says}");
    }
}

#[test]
fn a_credential_lacks_nothing() {
    let good = credential();
    for field in ["Licensees", "Conditions", "Signature"] {
        let begin = good.find(&format!("{field}:")).unwrap();
        let rest = &good[begin..];
        let end = rest.find("\nConditions:").or_else(|| rest.find("\nSignature:"));
        let end = end.map_or(good.len(), |end| begin + end + 1);
        let text = format!("{}{}", &good[..begin], &good[end..]);
        let says = Assertion::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(says.contains(&format!("no field `{field}`")), "{field}: {says}");
    }
    assert!(Assertion::parse(good.trim_end().as_bytes()).is_err(), "without its last line end");
    assert!(Assertion::parse(format!("{good}\n").as_bytes()).is_err(), "a line more");
    assert!(Assertion::parse(format!("{good}Comment: x\n").as_bytes()).is_err(), "a field more");
    let long = credential().replacen("one", &"x".repeat(CREDENTIAL_BYTES), 1);
    assert!(Assertion::parse(long.as_bytes()).unwrap_err().to_string().contains("longer than"));
    assert!(Assertion::parse(&[0xff, b'\n']).is_err());
    assert!(Assertion::parse(b"").is_err());
}

#[test]
fn a_policy_has_no_signature() {
    let says = changed("Authorizer: \"ed25519-hex:", "Authorizer: \"POLICY\"\nComment: \"");
    assert!(says.contains("twice"), "{says}");
    let text = "KeyNote-Version: 2\nAuthorizer: \"POLICY\"\nLicensees: \"ed25519-hex:";
    let text = format!("{text}{}\"\n", "07".repeat(32));
    let read = Assertion::parse(text.as_bytes()).unwrap();
    assert!(read.verify().is_err(), "a policy is never verified");
    let signature = format!("Signature: \"sig-ed25519-hex:{}\"\n", "0".repeat(128));
    assert!(Assertion::parse(format!("{text}{signature}").as_bytes()).is_err());
}

#[test]
fn what_is_not_evaluated_is_named() {
    let cases = [
        ("a != \"b\" -> \"true\";", "`!=`"),
        ("!(a == \"b\") -> \"true\";", "`!`"),
        ("a < \"b\" -> \"true\";", "`<`"),
        ("@a == 1 -> \"true\";", "`@`"),
        ("&a == 1.0 -> \"true\";", "`&`"),
        ("$a == \"b\" -> \"true\";", "`$`"),
        ("a == \"b\" . \"c\" -> \"true\";", "`.`"),
        ("a == 7 -> \"true\";", "`7`"),
        ("_now == \"b\" -> \"true\";", "`_now`"),
        ("a == \"b\" -> { c == \"d\" -> \"true\"; };", "`{`"),
        ("a == \"b\" -> \"maybe\";", "`\"true\"`"),
        ("a == \"b\";", "`-> \"true\"`"),
        ("a == \"b\" -> \"true\"", "`;`"),
        ("a == \"b\" -> \"true\"; c == \"d\" -> \"true\";", "a second clause"),
        ("a == \"b\" || c == \"d\" -> \"true\";", "`-> \"true\"`"),
        ("(a == \"b\") -> \"true\";", "`||`"),
        ("(a == \"b\" && c == \"d\") -> \"true\";", "`||` or `)`"),
        ("(a ~= \"b\" || c == \"d\") -> \"true\";", "`==`"),
        ("a == \"b -> true;", "no end"),
        ("a == \"\\x\" -> \"true\";", "`\\x`"),
        ("!(1/0 == 1) -> \"true\";", "`!`"),
        ("\"x\" ~= \"(\" -> \"true\";", "the name of an attribute"),
        ("@\"99999999999\" == 1 -> \"true\";", "`@`"),
        ("2^2^31 == 1 -> \"true\";", "`2`"),
        ("$$$a == \"b\" -> \"true\";", "`$`"),
        ("true == \"b\" -> \"true\";", "`true`"),
        ("False == \"b\" -> \"true\";", "`False`"),
        ("", "the name of an attribute"),
    ];
    for (value, named) in cases {
        let says = conditions(value);
        assert!(says.contains(named), "{value}: {says}");
    }
    let deep = "(".repeat(4000);
    assert!(conditions(&deep).contains("the name of an attribute"));
    let many = vec!["a == \"b\""; 33].join(" && ");
    assert!(conditions(&format!("{many} -> \"true\";")).contains("more than 32 tests"));
    let wide = vec!["a == \"b\""; 17].join(" || ");
    assert!(conditions(&format!("({wide}) -> \"true\";")).contains("more than 16 comparisons"));
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

#[test]
fn a_share_has_one_form() {
    let cases = [
        ("app_domain == \"pelago\"", "app_domain == \"other\""),
        ("app_domain == \"pelago\" &&", "app_domain == \"pelago\" && x == \"y\" &&"),
        ("(right == \"r\" || right == \"x\")", "(right == \"r\" || right == \"w\")"),
        ("(right == \"r\" || right == \"x\")", "right == \"r\""),
        ("\"/2a/\"", "\"/2a\""),
        ("\"/2a/\"", "\"2a/\""),
        ("\"/2a/\"", "\"/02a/\""),
        ("\"/2a/\"", "\"/2A/\""),
        ("\"/2a/\"", "\"//\""),
        ("\"/2a/\"", "\"/.*/\""),
        ("\"/2a/\"", "\"/10000000000000000/\""),
        ("ancestors ~=", "ancestors =="),
        (" &&\n\tancestors ~= \"/2a/\"", ""),
        ("05050505", "0505050"),
    ];
    for (from, to) in cases {
        let says = changed(from, to);
        assert!(says.contains("Err("), "{from} to {to}: {says}");
    }
}
