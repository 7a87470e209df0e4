//! Tests of the fields of an assertion: for each rule accepted texts, and the error of refused
//! ones.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pelago_keynote::{
    Assertion, AssertionError, Authorizer, BadSignature, CREDENTIAL_BYTES, Credential, Grant,
    Licensees, Principal, ShareFormError, WriteError, policy,
};

use signed::{credential, key, share};

#[path = "common/signed.rs"]
mod signed;

const NO_FIELD: &str = "a line of the credential begins no field";
const NO_PRINCIPAL: &str = "a principal is `ed25519-hex:` and 64 hexadecimal digits, small ones";

/// Returns the error of a text that is not a credential.
fn refused(text: &str) -> String {
    Assertion::credential(text.as_bytes()).map(drop).expect_err(text).to_string()
}

/// Returns the error of a text that is not an assertion of any form.
fn no_assertion(text: &str) -> String {
    let says = Assertion::parse(text.as_bytes()).map(drop).expect_err(text).to_string();
    assert_eq!(refused(text), says, "a credential is an assertion");
    says
}

/// Returns the credential in which the first `from` is replaced by `to`.
fn changed(from: &str, to: &str) -> String {
    let good = credential(&["one", "two"]);
    let text = good.replacen(from, to, 1);
    assert_ne!(text, good, "`{from}` is not in it");
    text
}

/// Returns the credential with another value of a field.
fn with(field: &str, value: &str) -> String {
    let good = credential(&["one", "two"]);
    let begin = good.find(&format!("\n{field}:")).unwrap() + 1;
    let next = |at: &usize| !good[at + 1..].starts_with(['\t', ' ']);
    let ends = good[begin..].match_indices('\n').map(|found| begin + found.0);
    let end = ends.into_iter().find(next).unwrap();
    format!("{}{field}: {value}{}", &good[..begin], &good[end..])
}

fn name(seed: u8) -> String {
    Principal::of(&key(seed)).to_string()
}

fn not_as_it_must_be(field: &str) -> String {
    format!("the field `{field}` of the credential is not as it must be")
}

#[test]
fn a_credential_that_is_written_is_read() {
    for comment in [&[][..], &["one"], &["one", "two"], &["Signature: \"x\"", "Authorizer: y"]] {
        let text = credential(comment);
        let read = Assertion::credential(text.as_bytes()).unwrap();
        assert_eq!(Assertion::parse(text.as_bytes()).as_ref(), Ok(&read));
        assert_eq!(read.verify(), Ok(()));
        assert_eq!(read.authorizer(), &Authorizer::Key(Principal::of(&key(1))));
        assert_eq!(read.licensees().only_key(), Some(Principal::of(&key(2))));
        assert_eq!(read.comment(), comment);
        assert_eq!(Grant::of(&read), Ok(share()));
        assert_eq!(read.text(), text);
    }
}

#[test]
fn a_policy_that_is_written_is_read_and_never_verified() {
    let roots: Vec<Principal> = (1..=16).map(|seed| Principal::of(&key(seed))).collect();
    for count in 1..=16 {
        let text = policy(&roots[..count], &["the roots".to_owned()]).unwrap();
        let read = Assertion::policy(text.as_bytes()).unwrap();
        assert_eq!(Assertion::parse(text.as_bytes()).as_ref(), Ok(&read));
        assert_eq!(read.authorizer(), &Authorizer::Policy);
        assert!(read.licensees().keys().eq(roots[..count].iter().copied()));
        assert_eq!(read.comment(), ["the roots"]);
        assert_eq!(read.conditions(), None);
        assert_eq!(read.verify(), Err(BadSignature));
    }
}

#[test]
fn an_unknown_field_is_named() {
    let cases = [
        ("Licensees:", "Licensee:", "Licensee"),
        ("Comment:", "X-Note:", "X-Note"),
        ("Authorizer:", "Authorizer :", "Authorizer "),
        ("Authorizer:", ":\nAuthorizer:", ""),
        ("KeyNote-Version:", "KeyNoteVersion:", "KeyNoteVersion"),
        ("Authorizer:", "Pelago-Revocation: 1\nAuthorizer:", "Pelago-Revocation"),
    ];
    for (from, to, field) in cases {
        let says = format!("the credential has the unknown field `{field}`");
        assert_eq!(no_assertion(&changed(from, to)), says);
    }
}

#[test]
fn a_field_that_stands_twice_is_named() {
    let good = credential(&["one"]);
    let names =
        ["KeyNote-Version", "Authorizer", "Licensees", "Conditions", "Comment", "Signature"];
    for field in names {
        let says = format!("the credential has the field `{field}` twice");
        for given in [field.to_owned(), field.to_lowercase(), field.to_uppercase()] {
            assert_eq!(no_assertion(&format!("{good}{given}: x\n")), says);
            let first = format!("KeyNote-Version: 2\n{given}: x\n");
            assert_eq!(refused(&good.replacen("KeyNote-Version: 2\n", &first, 1)), says);
        }
    }
}

/// A constant could hide an attribute from the people who read the conditions.
#[test]
fn a_credential_may_have_constants_and_a_share_has_none() {
    for field in ["Authorizer:", "Licensees:", "Conditions:", "Comment:", "Signature:"] {
        for value in ["right = \"r\"", "right=\"r\"\n\tx = \"y\" # z"] {
            let text = changed(field, &format!("LOCAL-constants: {value}\n{field}"));
            let read = Assertion::credential(text.as_bytes()).unwrap();
            assert!(read.has_constants());
            assert_eq!(Grant::of(&read), Err(ShareFormError::Constants));
        }
    }
    let empty = changed("Authorizer:", "Local-Constants:\nAuthorizer:");
    let read = Assertion::credential(empty.as_bytes()).unwrap();
    assert!(!read.has_constants());
    assert_eq!(Grant::of(&read), Ok(share()));
}

#[test]
fn a_line_that_begins_with_a_number_sign_continues_its_field() {
    for field in ["Authorizer:", "Licensees:", "Conditions:"] {
        let text = changed(&format!("{field} "), &format!("{field} # a comment\n# another\n\t"));
        let read = Assertion::credential(text.as_bytes()).unwrap();
        assert_eq!(Grant::of(&read), Ok(share()));
        assert_eq!(read.verify(), Err(BadSignature));
    }
    let first = format!("# a comment\n{}", credential(&[]));
    assert_eq!(no_assertion(&first), NO_FIELD);
}

#[test]
fn a_letter_that_is_no_printable_ascii_is_named() {
    for letter in ['\r', '\0', '\u{1b}', '\u{7f}', '\u{c}', '\u{f6}', '\u{2028}', '\u{feff}'] {
        let says = format!(
            "the credential has the character {letter:?}: mail or an editor has changed it"
        );
        let end = format!("{letter}\n");
        assert_eq!(no_assertion(&changed("\n", &end)), says);
        assert_eq!(no_assertion(&format!("{letter}{}", credential(&[]))), says);
        assert_eq!(no_assertion(&format!("{}{letter}", credential(&[]))), says);
    }
    for bytes in [&b"\xff"[..], b"KeyNote-Version: 2\nComment: \xe4\n", b"\xed\xa0\x80"] {
        assert_eq!(Assertion::parse(bytes), Err(AssertionError::Letter('\u{fffd}')));
    }
}

/// Changes by mail and editors that keep the meaning are parsed, but the signature is not valid.
#[test]
fn a_change_of_blanks_is_read_and_not_verified() {
    let cases = [
        ("Comment: one", "Comment:\tone"),
        ("Comment: one", "Comment: one "),
        ("\ttwo", "    two"),
        ("Comment:", "comment:"),
        ("Authorizer:", "AUTHORIZER:"),
        ("KeyNote-Version: 2", "KeyNote-Version: \"2\""),
        ("KeyNote-Version: 2", "KeyNote-Version:\n\t2"),
        ("Licensees: ", "Licensees:\t\t"),
        (" &&\n\t", "&&"),
        (";\nSignature", "; \nSignature"),
    ];
    for (from, to) in cases {
        let read = Assertion::parse(changed(from, to).as_bytes()).unwrap();
        assert_eq!(read.verify(), Err(BadSignature), "{from:?} to {to:?}");
        assert_eq!(Grant::of(&read), Ok(share()), "{from:?} to {to:?}");
    }
}

#[test]
fn a_line_that_begins_no_field_is_an_error() {
    let good = credential(&["one"]);
    let cases = [
        changed("KeyNote-Version: 2\n", "KeyNote-Version: 2\nno field at all\n"),
        changed("KeyNote-Version: 2\n", "KeyNote-Version: 2\n\n"),
        changed("KeyNote-Version", " KeyNote-Version"),
        changed("KeyNote-Version", "\tKeyNote-Version"),
        changed("KeyNote-Version", "\nKeyNote-Version"),
        changed("Comment: one", "Comment one"),
        format!("{good}\n"),
        format!("{good}x"),
        format!("{good}-- \nAlice\n"),
    ];
    for text in cases {
        assert_eq!(no_assertion(&text), NO_FIELD);
    }
}

#[test]
fn the_version_is_the_first_field_and_is_two() {
    for value in ["3", "", "1", "02", "2.0", "two", "\"2", "'2'", "2 2", "\"2\"\n\t\"2\""] {
        let text = changed("KeyNote-Version: 2", &format!("KeyNote-Version: {value}"));
        assert_eq!(no_assertion(&text), not_as_it_must_be("KeyNote-Version"), "{value}");
    }
    let comment = "Comment: one\n\ttwo\n";
    let later = changed(comment, "").replacen("KeyNote", &format!("{comment}KeyNote"), 1);
    assert_eq!(no_assertion(&later), not_as_it_must_be("KeyNote-Version"));
}

#[test]
fn a_field_that_is_missing_is_named() {
    let good = credential(&[]);
    for field in ["KeyNote-Version", "Authorizer", "Licensees", "Conditions", "Signature"] {
        let begin = good.find(&format!("{field}:")).unwrap();
        let next = ["Authorizer:", "Licensees:", "Conditions:", "Signature:"].into_iter();
        let end = next.filter_map(|next| good[begin + 1..].find(next)).min();
        let end = end.map_or(good.len(), |end| begin + 1 + end);
        let text = format!("{}{}", &good[..begin], &good[end..]);
        let says = format!("the credential has no field `{field}`");
        assert_eq!(refused(&text), says);
        // In the RFC all but the authorizer may be missing.
        let read = Assertion::parse(text.as_bytes());
        assert_eq!(read.is_ok(), field != "Authorizer");
        if let (Ok(read), true) = (read, ["Licensees", "Conditions"].contains(&field)) {
            assert_eq!(read.licensees() == &Licensees::Nobody, field == "Licensees");
            assert_eq!(read.conditions().is_none(), field == "Conditions");
        }
        // The field is there, and is empty.
        if ["Licensees", "Conditions"].contains(&field) {
            let text = with(field, "# nothing").replacen("Comment: one\n\ttwo\n", "", 1);
            assert_eq!(refused(&text), says);
            assert!(Assertion::parse(text.as_bytes()).is_ok());
        }
    }
    assert_eq!(no_assertion(""), "the credential has no field `Authorizer`");
    let cases = [
        ("KeyNote-Version: 2\nAuthorizer: \"POLICY\"\n", "Licensees"),
        ("KeyNote-Version: 2\nAuthorizer: \"POLICY\"\nLicensees:\n", "Licensees"),
        ("Authorizer: \"POLICY\"\nLicensees: \"x\"\n", "KeyNote-Version"),
    ];
    for (text, field) in cases {
        assert!(Assertion::parse(text.as_bytes()).is_ok());
        let says = Assertion::policy(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(says, format!("the credential has no field `{field}`"));
    }
}

fn of(field: &str, why: &str) -> String {
    format!("the field `{field}` of the credential: {why}")
}

fn algorithm(name: &str) -> String {
    format!("the key `{name}:...` is of an algorithm that this version of pelago does not have")
}

fn expected(what: &str, found: &str) -> String {
    format!("{what} is expected in the place of {found}")
}

fn no_constant(text: &str) -> String {
    format!("`{text}` is no constant of this credential")
}

#[test]
fn the_authorizer_is_one_key() {
    let field = "Authorizer";
    let one = name(1);
    let value = "a test or a value";
    let end = "the end of the field";
    let string = "a string before this";
    let cases = [
        (String::new(), expected(value, end)),
        ("Alice".to_owned(), no_constant("Alice")),
        ("_Alice".to_owned(), no_constant("_Alice")),
        ("POLICY".to_owned(), no_constant("POLICY")),
        ("$Alice".to_owned(), no_constant("$Alice")),
        ("$\"Alice\"".to_owned(), no_constant("$\"Alice\"")),
        (one.clone(), "':' has no meaning here".to_owned()),
        (format!("\"{one}\" \"{one}\""), expected(end, &format!("\"{one}\""))),
        (format!("\"{one}\" || \"{one}\""), expected(end, "||")),
        ("\"\"".to_owned(), NO_PRINCIPAL.to_owned()),
        ("\"policy\"".to_owned(), NO_PRINCIPAL.to_owned()),
        ("\"POLICY \"".to_owned(), NO_PRINCIPAL.to_owned()),
        ("\"ed25519-hex:\"".to_owned(), NO_PRINCIPAL.to_owned()),
        (format!("\"{one}0\""), NO_PRINCIPAL.to_owned()),
        (format!("\"{}\"", &one[..one.len() - 1]), NO_PRINCIPAL.to_owned()),
        (format!("\"{one} \""), NO_PRINCIPAL.to_owned()),
        (format!("\"ed25519-hex:{}\"", "AB".repeat(32)), NO_PRINCIPAL.to_owned()),
        (format!("\"ed25519-hex:{}\"", "0g".repeat(32)), NO_PRINCIPAL.to_owned()),
        ("\"ed25519-base64:AAAA\"".to_owned(), NO_PRINCIPAL.to_owned()),
        ("\"rsa-hex:1023abcd\"".to_owned(), algorithm("rsa-hex")),
        (format!("\"{}\"", one.to_uppercase()), algorithm("ED25519-HEX")),
        (format!("\" {one}\""), algorithm(" ed25519-hex")),
        (format!("\"{one}"), "a string has no end".to_owned()),
        ("7".to_owned(), expected(string, end)),
        ("# Alice".to_owned(), expected(value, end)),
    ];
    for (value, says) in cases {
        assert_eq!(refused(&with(field, &value)), of(field, &says), "{value}");
    }
    for value in [format!("(\"{one}\")"), format!("\"{}\" . \"{}\"", &one[..20], &one[20..])] {
        let read = Assertion::credential(with(field, &value).as_bytes()).unwrap();
        assert_eq!(read.authorizer(), &Authorizer::Key(Principal::of(&key(1))));
    }
    let read = Assertion::parse(with(field, "\"Alice\"").as_bytes()).unwrap();
    assert_eq!(read.authorizer(), &Authorizer::Opaque("Alice".to_owned()));
    assert_eq!(read.verify(), Err(BadSignature));
}

/// A key has two encodings, and is one principal.
#[test]
fn a_key_in_base64_is_the_same_key() {
    let base64 = STANDARD.encode(Principal::of(&key(1)).0);
    let text = with("Authorizer", &format!("\"ed25519-base64:{base64}\""));
    let read = Assertion::credential(text.as_bytes()).unwrap();
    assert_eq!(read.authorizer(), &Authorizer::Key(Principal::of(&key(1))));
    let text = with("Licensees", &format!("\"ed25519-base64:{base64}\" || \"{}\"", name(1)));
    let read = Assertion::credential(text.as_bytes()).unwrap();
    assert!(read.licensees().keys().eq([Principal::of(&key(1)); 2]));
    for bad in [base64.trim_end_matches('='), &format!("{base64}="), &base64[4..], "", "="] {
        let text = with("Authorizer", &format!("\"ed25519-base64:{bad}\""));
        assert_eq!(refused(&text), of("Authorizer", NO_PRINCIPAL), "{bad}");
    }
    let zero = STANDARD.encode([0; 32]);
    let text = with("Authorizer", &format!("\"ed25519-base64:{zero}\""));
    let says = "the key is one for which everybody can sign";
    assert_eq!(refused(&text), of("Authorizer", says));
}

#[test]
fn each_form_of_licensees_has_one_print() {
    let names: Vec<String> = (1..=4).map(|seed| format!("\"{}\"", name(seed))).collect();
    let [a, b, c, d] = names.as_slice() else { panic!("four names") };
    let cases = [
        (a.clone(), a.clone()),
        (format!("(({a}))"), a.clone()),
        (format!("{a}||{b}"), format!("{a} ||\n\t{b}")),
        (format!("({a} || {b}) || {c}"), format!("({a} ||\n\t{b}) ||\n\t{c}")),
        (format!("{a}&&{b} && {c}"), format!("{a} && {b} && {c}")),
        (format!("{a} && ({b} && {c})"), format!("{a} && ({b} && {c})")),
        (format!("{a} && ({b} || {c})"), format!("{a} && ({b} ||\n\t{c})")),
        (format!("1-of({a})"), format!("1-of({a})")),
        (format!("2-of({a},{b} , {c})"), format!("2-of({a}, {b}, {c})")),
        (format!("{a} || 3-of({b}, {c}, {d})"), format!("{a} ||\n\t3-of({b}, {c}, {d})")),
    ];
    for (value, prints) in cases {
        let read = Assertion::credential(with("Licensees", &value).as_bytes()).unwrap();
        assert_eq!(read.licensees().to_string(), prints, "{value}");
        let again = Assertion::credential(with("Licensees", &prints).as_bytes()).unwrap();
        assert_eq!(again.licensees(), read.licensees());
    }
    // `&&` binds tighter.
    let read = |value: &str| {
        let read = Assertion::credential(with("Licensees", value).as_bytes()).unwrap();
        read.licensees().clone()
    };
    assert_eq!(read(&format!("{a} || {b} && {c}")), read(&format!("{a} || ({b} && {c})")));
    assert_ne!(read(&format!("{a} || {b} && {c}")), read(&format!("({a} || {b}) && {c}")));
}

/// Parentheses that decide nothing are not printed: they would be too deep.
#[test]
fn the_print_of_the_deepest_licensees_is_read_again() {
    let read = |value: &str| {
        let text = format!("Authorizer: \"POLICY\"\nLicensees: {value}\n");
        Assertion::parse(text.as_bytes()).map(|read| read.licensees().clone())
    };
    let at =
        |depth: usize| format!("{}\"x\"{}", "\"a\" || \"b\" && (".repeat(depth), ")".repeat(depth));
    for depth in 0..32 {
        let licensees = read(&at(depth)).unwrap();
        assert_eq!(read(&licensees.to_string()), Ok(licensees), "{depth}");
    }
    let parentheses = |depth| format!("{}\"x\"{}", "(".repeat(depth), ")".repeat(depth));
    assert!(read(&parentheses(32)).is_ok());
    let says = "the field `Licensees` of the credential: it is nested deeper than 32 levels";
    for depth in [33, 2000] {
        assert_eq!(read(&parentheses(depth)).unwrap_err().to_string(), says);
    }
}

#[test]
fn there_are_at_most_64_licensees() {
    let many = |count: usize, by: &str| {
        let names: Vec<String> = (0..count).map(|_| format!("\"{}\"", name(1))).collect();
        names.join(by)
    };
    for by in ["||", "&&", "||\n\t"] {
        let read = Assertion::credential(with("Licensees", &many(64, by)).as_bytes()).unwrap();
        assert_eq!(read.licensees().keys().count(), 64);
        let says = "the field `Licensees` of the credential has more than 64 keys";
        assert_eq!(no_assertion(&with("Licensees", &many(65, by))), says);
    }
    let list = |count| format!("1-of({})", many(count, ","));
    assert!(Assertion::credential(with("Licensees", &list(64)).as_bytes()).is_ok());
    assert!(no_assertion(&with("Licensees", &list(65))).ends_with("more than 64 keys"));
}

#[test]
fn what_licensees_do_not_take_is_named() {
    let one = format!("\"{}\"", name(1));
    let value = "a test or a value";
    let end = "the end of the field";
    let threshold = "the field `Licensees` of the credential wants more keys than it lists";
    for list in ["0-of", "00-of", "01-of", "4-of", "99999999999999999999-of"] {
        let value = format!("{list}({one}, {one}, {one})");
        assert_eq!(no_assertion(&with("Licensees", &value)), threshold, "{value}");
    }
    let types = "`-` cannot be applied to these types: `@` makes an integer of a string, `&` a \
                 float";
    let cases = [
        (format!("{one} ||"), expected(value, end)),
        (format!("|| {one}"), expected(value, "||")),
        (format!("{one} || || {one}"), expected(value, "||")),
        (format!("{one} {one}"), expected(end, &one)),
        (format!("{one} == {one}"), expected(end, "==")),
        (format!("{one};"), expected(end, ";")),
        (format!("({one} || {one}"), expected(")", end)),
        (format!("{one})"), expected(end, ")")),
        ("()".to_owned(), expected(value, ")")),
        ("2-of".to_owned(), expected("(", end)),
        ("2-of()".to_owned(), expected(value, ")")),
        (format!("1-of({one} || {one})"), expected(")", "||")),
        (format!("1-of({one},)"), expected(value, ")")),
        (format!("1-of(1-of({one}))"), expected(value, "1-of")),
        (format!("{one}, {one}"), expected(end, ",")),
        (format!("{one} | {one}"), "'|' has no meaning here".to_owned()),
        (format!("!{one}"), expected(value, "!")),
        ("Alice".to_owned(), no_constant("Alice")),
        (format!("{one} || Alice"), no_constant("Alice")),
        ("$owner".to_owned(), no_constant("$owner")),
        (format!("{one} - {one}"), types.to_owned()),
        (format!("-{one}"), types.to_owned()),
        (format!("{one} || \"POLICY\""), NO_PRINCIPAL.to_owned()),
        (format!("{one} || \"ed25519-hex:{}\"", "AB".repeat(32)), NO_PRINCIPAL.to_owned()),
        (format!("{one} || \"rsa-hex:00\""), algorithm("rsa-hex")),
        (format!("{one} || \"ed25519-hex:"), "a string has no end".to_owned()),
    ];
    for (value, why) in cases {
        assert_eq!(refused(&with("Licensees", &value)), of("Licensees", &why), "{value}");
    }
}

#[test]
fn the_signature_has_one_form() {
    let good = credential(&[]);
    let trimmed = good.trim_end();
    let at = trimmed.len() - 129;
    let base64 = format!("\"sig-ed25519-base64:{}==\"\n", "A".repeat(86));
    let cases = [
        good.replacen("Signature: ", "Signature:", 1),
        good.replacen("Signature: ", "Signature:  ", 1),
        good.replacen("Signature: ", "Signature:\t", 1),
        good.replacen("Signature: ", "signature: ", 1),
        good.replacen("Signature: ", "SIGNATURE: ", 1),
        good.replacen("Signature: ", "Signature:\n ", 1),
        good.replacen("Signature: ", "Signature:\n\t", 1),
        good.replacen("sig-ed25519-hex:", "SIG-ED25519-HEX:", 1),
        good.replacen("sig-ed25519-hex:", "sig-rsa-sha1-hex:", 1),
        good.replacen("sig-ed25519-hex:", "ed25519-hex:", 1),
        good.replacen("sig-ed25519-hex:", "sig-ed25519-hex: ", 1),
        good.replacen("\"sig-ed25519-hex:", "sig-ed25519-hex:", 1),
        format!("{}{base64}", &good[..at - 17]),
        format!("{}{}\n", &trimmed[..at], trimmed[at..].to_uppercase()),
        format!("{}0\"\n", &trimmed[..trimmed.len() - 1]),
        format!("{}\"\n", &trimmed[..trimmed.len() - 2]),
        format!("{}\n", &trimmed[..trimmed.len() - 1]),
        format!("{}\n\t{}\n", &trimmed[..at + 64], &trimmed[at + 64..]),
        trimmed.to_owned(),
        format!("{trimmed} \n"),
        format!("{trimmed};\n"),
        format!("{good} \n"),
        format!("{good}\t"),
        format!("{good}\tmore\n"),
        format!("{good}Comment: after it\n"),
        format!("{}Signature:\n", &good[..good.find("Signature:").unwrap()]),
    ];
    for text in cases {
        assert_ne!(text, good);
        assert_eq!(no_assertion(&text), not_as_it_must_be("Signature"), "{text}");
    }
    assert!(Assertion::parse(good.as_bytes()).is_ok());
}

/// No key grants in the name of the reader.
#[test]
fn a_policy_has_no_signature() {
    let text = with("Authorizer", "\"POLICY\"");
    let says = Assertion::policy(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(says, not_as_it_must_be("Signature"));
    assert_eq!(refused(&text), not_as_it_must_be("Authorizer"));
    let says = Assertion::policy(credential(&[]).as_bytes()).unwrap_err().to_string();
    assert_eq!(says, not_as_it_must_be("Authorizer"));
    assert_eq!(Assertion::parse(text.as_bytes()).unwrap().verify(), Err(BadSignature));
    let unsigned = &text[..text.find("Signature:").unwrap()];
    let read = Assertion::policy(unsigned.as_bytes()).unwrap();
    assert_eq!(read.authorizer(), &Authorizer::Policy);
    assert_eq!(Grant::of(&read), Ok(share()), "a policy may have conditions");
    assert_eq!(read.verify(), Err(BadSignature));
}

#[test]
fn an_assertion_has_at_most_8_kib() {
    let blank = credential(&["x"]).len();
    let fits = "x".repeat(CREDENTIAL_BYTES - blank + 1);
    let text = credential(&[&fits]);
    assert_eq!(text.len(), CREDENTIAL_BYTES);
    assert_eq!(Assertion::parse(text.as_bytes()).unwrap().verify(), Ok(()));
    let long = text.replacen("Comment: x", "Comment: xx", 1);
    assert_eq!(no_assertion(&long), "the credential is longer than 8192 bytes");
    let comment = [format!("x{fits}")];
    let conditions = share().conditions();
    let licensee = Principal::of(&key(2));
    let credential = Credential { comment: &comment, licensee, conditions: &conditions };
    assert_eq!(credential.sign(&key(1)), Err(WriteError::TooLong));
    assert_eq!(policy(&[licensee], &["x".repeat(8192)]), Err(WriteError::TooLong));
}

#[test]
fn a_comment_that_would_be_read_otherwise_is_not_written() {
    let licensee = Principal::of(&key(2));
    let conditions = share().conditions();
    for line in ["", " ", " x", "x ", "x\ty", "x\n\ty", "x\nAuthorizer: y", "x\r", "\u{f6}"] {
        let comment = ["good".to_owned(), line.to_owned()];
        let refused = Err(WriteError::Comment(line.to_owned()));
        let credential = Credential { comment: &comment, licensee, conditions: &conditions };
        assert_eq!(credential.sign(&key(1)), refused);
        assert_eq!(policy(&[licensee], &comment), refused);
    }
}
