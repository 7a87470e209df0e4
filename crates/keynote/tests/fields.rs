//! Tests of the fields of an assertion: for each rule accepted texts, and the error of refused
//! ones.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use pelago_keynote::{
    Assertion, AssertionError, Authorizer, BadSignature, CREDENTIAL_BYTES, Credential, Principal,
    SharedFolder, WriteError, policy,
};

use signed::{credential, key, share};

#[path = "common/signed.rs"]
mod signed;

const NO_FIELD: &str = "a line of the credential begins no field";
const NO_PRINCIPAL: &str = "a principal is `ed25519-hex:` and 64 hexadecimal digits, small ones";

/// Returns the error of a text that is not an assertion.
fn refused(text: &str) -> String {
    Assertion::parse(text.as_bytes()).map(drop).expect_err(text).to_string()
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
        let read = Assertion::parse(text.as_bytes()).unwrap();
        assert_eq!(read.verify(), Ok(()));
        assert_eq!(read.authorizer(), &Authorizer::Key(Principal::of(&key(1))));
        assert_eq!(read.licensees(), [Principal::of(&key(2))]);
        assert_eq!(read.comment(), comment);
        assert_eq!(SharedFolder::of(&read), Ok(share()));
        assert_eq!(read.text(), text);
    }
}

#[test]
fn a_policy_that_is_written_is_read_and_never_verified() {
    let roots: Vec<Principal> = (1..=16).map(|seed| Principal::of(&key(seed))).collect();
    for count in 1..=16 {
        let text = policy(&roots[..count], &["the roots".to_owned()]).unwrap();
        let read = Assertion::parse(text.as_bytes()).unwrap();
        assert_eq!(read.authorizer(), &Authorizer::Policy);
        assert_eq!(read.licensees(), &roots[..count]);
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
        ("Authorizer:", "#a:\nAuthorizer:", "#a"),
        ("Authorizer:", ":\nAuthorizer:", ""),
        ("KeyNote-Version:", "KeyNoteVersion:", "KeyNoteVersion"),
        ("Authorizer:", "Pelago-Revocation: 1\nAuthorizer:", "Pelago-Revocation"),
    ];
    for (from, to, field) in cases {
        let says = format!("the credential has the unknown field `{field}`");
        assert_eq!(refused(&changed(from, to)), says);
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
            assert_eq!(refused(&format!("{good}{given}: x\n")), says);
            let first = format!("KeyNote-Version: 2\n{given}: x\n");
            assert_eq!(refused(&good.replacen("KeyNote-Version: 2\n", &first, 1)), says);
        }
    }
}

#[test]
fn local_constants_are_named_wherever_they_stand() {
    let says = "the credential has the field `Local-Constants`, which this version of pelago does \
                not evaluate";
    for field in ["Authorizer:", "Licensees:", "Conditions:", "Comment:", "Signature:"] {
        let constants = format!("Local-Constants: right = \"r\"\n{field}");
        assert_eq!(refused(&changed(field, &constants)), says);
        let constants = format!("LOCAL-constants:\n{field}");
        assert_eq!(refused(&changed(field, &constants)), says);
    }
}

#[test]
fn a_letter_that_is_no_printable_ascii_is_named() {
    for letter in ['\r', '\0', '\u{1b}', '\u{7f}', '\u{c}', '\u{f6}', '\u{2028}', '\u{feff}'] {
        let says = format!(
            "the credential has the character {letter:?}: mail or an editor has changed it"
        );
        let end = format!("{letter}\n");
        assert_eq!(refused(&changed("\n", &end)), says);
        assert_eq!(refused(&format!("{letter}{}", credential(&[]))), says);
        assert_eq!(refused(&format!("{}{letter}", credential(&[]))), says);
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
        assert_eq!(SharedFolder::of(&read), Ok(share()), "{from:?} to {to:?}");
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
        assert_eq!(refused(&text), NO_FIELD);
    }
}

#[test]
fn the_version_is_the_first_field_and_is_two() {
    for value in ["3", "", "1", "02", "2.0", "two", "\"2", "'2'", "2 2", "\"2\"\n\t\"2\""] {
        let text = changed("KeyNote-Version: 2", &format!("KeyNote-Version: {value}"));
        assert_eq!(refused(&text), not_as_it_must_be("KeyNote-Version"), "{value}");
    }
    let missing = "the credential has no field `KeyNote-Version`";
    assert_eq!(refused(""), missing);
    assert_eq!(refused(&changed("KeyNote-Version: 2\n", "")), missing);
    let comment = "Comment: one\n\ttwo\n";
    let later = changed(comment, "").replacen("KeyNote", &format!("{comment}KeyNote"), 1);
    assert_eq!(refused(&later), missing);
}

#[test]
fn a_field_that_is_missing_is_named() {
    let good = credential(&[]);
    for field in ["Authorizer", "Licensees", "Conditions", "Signature"] {
        let begin = good.find(&format!("{field}:")).unwrap();
        let next = ["Licensees:", "Conditions:", "Signature:"].into_iter();
        let end = next.filter_map(|next| good[begin + 1..].find(next)).min();
        let end = end.map_or(good.len(), |end| begin + 1 + end);
        let text = format!("{}{}", &good[..begin], &good[end..]);
        assert_eq!(refused(&text), format!("the credential has no field `{field}`"));
    }
    let policy = "KeyNote-Version: 2\nAuthorizer: \"POLICY\"\n";
    assert_eq!(refused(policy), "the credential has no field `Licensees`");
}

#[test]
fn the_authorizer_is_one_key() {
    let field = "Authorizer";
    let one = name(1);
    let of = |why: &str| format!("the field `{field}` of the credential: {why}");
    let not = |what: &str| of(&format!("this version of pelago does not evaluate `{what}`"));
    let algorithm = |name: &str| {
        of(&format!(
            "the key `{name}:...` is of an algorithm that this version of \
                                  pelago does not have"
        ))
    };
    let cases = [
        (String::new(), not_as_it_must_be(field)),
        ("Alice".to_owned(), not_as_it_must_be(field)),
        (one.clone(), not("-")),
        (format!("\"{one}\" \"{one}\""), not_as_it_must_be(field)),
        (format!("\"{one}\" || \"{one}\""), not_as_it_must_be(field)),
        (format!("(\"{one}\")"), not_as_it_must_be(field)),
        ("POLICY".to_owned(), not_as_it_must_be(field)),
        ("\"policy\"".to_owned(), of(NO_PRINCIPAL)),
        ("\"POLICY \"".to_owned(), of(NO_PRINCIPAL)),
        ("\"\"".to_owned(), of(NO_PRINCIPAL)),
        ("\"ed25519-hex:\"".to_owned(), of(NO_PRINCIPAL)),
        (format!("\"{one}0\""), of(NO_PRINCIPAL)),
        (format!("\"{}\"", &one[..one.len() - 1]), of(NO_PRINCIPAL)),
        (format!("\"{one} \""), of(NO_PRINCIPAL)),
        (format!("\"ed25519-hex:{}\"", "AB".repeat(32)), of(NO_PRINCIPAL)),
        (format!("\"ed25519-hex:{}\"", "0g".repeat(32)), of(NO_PRINCIPAL)),
        ("\"rsa-hex:1023abcd\"".to_owned(), algorithm("rsa-hex")),
        ("\"ed25519-base64:AAAA\"".to_owned(), algorithm("ed25519-base64")),
        (format!("\"{}\"", one.to_uppercase()), algorithm("ED25519-HEX")),
        (format!("\" {one}\""), algorithm(" ed25519-hex")),
        (format!("\"{one}"), of("a string has no end")),
        ("7".to_owned(), not("7")),
        ("$Alice".to_owned(), not("$")),
        ("# Alice".to_owned(), not("#")),
        ("_Alice".to_owned(), not("_Alice")),
    ];
    for (value, says) in cases {
        assert_eq!(refused(&with(field, &value)), says, "{value}");
    }
}

#[test]
fn the_licensees_are_keys_of_which_each_alone_is_licensed() {
    let many = |count: u8| {
        let names: Vec<String> = (1..=count).map(|seed| format!("\"{}\"", name(seed))).collect();
        names.join(" ||\n\t")
    };
    for count in [1, 2, 16] {
        let read = Assertion::parse(with("Licensees", &many(count)).as_bytes()).unwrap();
        let expected: Vec<Principal> = (1..=count).map(|seed| Principal::of(&key(seed))).collect();
        assert_eq!(read.licensees(), expected);
    }
    let read = with("Licensees", &many(2).replace(" ||\n\t", "||"));
    assert_eq!(Assertion::parse(read.as_bytes()).unwrap().licensees().len(), 2);
    let one = many(1);
    let bad = [
        String::new(),
        format!("{one} ||"),
        format!("|| {one}"),
        format!("{one} || || {one}"),
        format!("{one} {one}"),
        format!("({one})"),
        format!("({one} || {one})"),
        format!("{one} == {one}"),
        format!("{one};"),
        "Alice".to_owned(),
        format!("{one} || Alice"),
        many(17),
    ];
    for value in bad {
        let says = refused(&with("Licensees", &value));
        assert_eq!(says, not_as_it_must_be("Licensees"), "{value}");
    }
}

#[test]
fn what_licensees_do_not_take_is_named() {
    let one = format!("\"{}\"", name(1));
    let not = |what: &str| format!("this version of pelago does not evaluate `{what}`");
    let other = "the key `rsa-hex:...` is of an algorithm that this version of pelago does not \
                 have";
    let cases = [
        (format!("{one} && {one}"), not("&&")),
        (format!("{one} || {one} && {one}"), not("&&")),
        (format!("2-of({one}, {one}, {one})"), not("2")),
        (format!("{one} || 1-of({one})"), not("1")),
        (format!("{one}, {one}"), not(",")),
        (format!("{one} | {one}"), not("|")),
        (format!("{one} # a comment"), not("#")),
        ("$owner".to_owned(), not("$")),
        (format!("{one} || \"POLICY\""), NO_PRINCIPAL.to_owned()),
        (format!("{one} || \"ed25519-hex:{}\"", "AB".repeat(32)), NO_PRINCIPAL.to_owned()),
        (format!("{one} || \"rsa-hex:00\""), other.to_owned()),
        (format!("{one} || \"ed25519-hex:"), "a string has no end".to_owned()),
    ];
    for (value, why) in cases {
        let says = format!("the field `Licensees` of the credential: {why}");
        assert_eq!(refused(&with("Licensees", &value)), says, "{value}");
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
        assert_eq!(refused(&text), not_as_it_must_be("Signature"), "{text}");
    }
    assert!(Assertion::parse(good.as_bytes()).is_ok());
}

/// No key grants in the name of the reader.
#[test]
fn a_policy_has_no_signature() {
    let text = with("Authorizer", "\"POLICY\"");
    assert_eq!(refused(&text), not_as_it_must_be("Signature"));
    let unsigned = &text[..text.find("Signature:").unwrap()];
    let read = Assertion::parse(unsigned.as_bytes()).unwrap();
    assert_eq!(read.authorizer(), &Authorizer::Policy);
    assert_eq!(SharedFolder::of(&read), Ok(share()), "a policy may have conditions");
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
    assert_eq!(refused(&long), "the credential is longer than 8192 bytes");
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
