//! Tests of signatures: identities, other encodings, and the other kind of sentence.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use pelago_keynote::{
    Assertion, BadSignature, CredentialId, Principal, PrincipalError, REVOCATION_BYTES, Revocation,
    RevocationError, RevocationSubject,
};

use signed::{credential, key, share};

#[path = "common/signed.rs"]
mod signed;

/// The order of the group of Ed25519, little-endian (RFC 8032, 5.1).
const ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

fn id(text: &str) -> CredentialId {
    Assertion::parse(text.as_bytes()).unwrap().id()
}

fn revocation() -> String {
    Revocation::sign(share().volume, id(&credential(&["one"])), 1_800_000_000, &key(1))
}

fn unsigned(text: &str) -> &str {
    &text[..text.find("Signature:").unwrap()]
}

fn signature(text: &str) -> &str {
    &text[text.find("Signature:").unwrap()..]
}

/// Returns the text with `from` for its signature.
fn signed_by(text: &str, from: &str) -> String {
    format!("{}{}", unsigned(text), signature(from))
}

fn verifies(text: &str) -> bool {
    let assertion = Assertion::parse(text.as_bytes()).is_ok_and(|read| read.verify().is_ok());
    assertion || Revocation::parse(text.as_bytes()).is_ok_and(|read| read.verify().is_ok())
}

#[test]
fn no_bit_of_a_sentence_can_be_changed() {
    for text in [credential(&["one", "two"]), credential(&[]), revocation()] {
        assert!(verifies(&text));
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let is_verified = str::from_utf8(&bytes).is_ok_and(verifies);
            assert!(!is_verified, "bit {} of byte {}", bit % 8, bit / 8);
        }
    }
}

#[test]
fn no_byte_of_a_sentence_can_be_left_out_or_doubled() {
    for text in [credential(&["one"]), revocation()] {
        for at in 0..text.len() {
            let shorter = format!("{}{}", &text[..at], &text[at + 1..]);
            assert!(!verifies(&shorter), "without byte {at}");
            let longer = format!("{}{}", &text[..=at], &text[at..]);
            assert!(!verifies(&longer), "with byte {at} twice");
            assert!(!verifies(&text[..at]), "cut at byte {at}");
        }
    }
}

#[test]
fn the_signature_is_no_part_of_an_identity() {
    let good = credential(&["one"]);
    let end = good.len() - 2;
    for at in end - 128..end {
        let digit = if &good[at..=at] == "0" { "1" } else { "0" };
        let mut other = good.clone();
        other.replace_range(at..=at, digit);
        assert_eq!(id(&other), id(&good), "digit {at}");
        assert!(!verifies(&other), "digit {at}");
    }
    let by_other = signed_by(&good, &credential(&["two"]));
    assert_eq!(id(&by_other), id(&good));
    assert!(!verifies(&by_other));
}

#[test]
fn each_other_change_of_a_text_is_another_identity() {
    let good = credential(&["one"]);
    let mut read = 0;
    for at in 0..unsigned(&good).len() {
        for letter in [" ", "a", "0", "\t"] {
            let mut other = good.clone();
            other.replace_range(at..=at, letter);
            if let Ok(assertion) = Assertion::parse(other.as_bytes()) {
                assert_eq!(assertion.id() == id(&good), other == good, "byte {at}");
                read += 1;
            }
        }
    }
    assert!(read > 300, "only {read} changes are read at all");
}

/// The second half plus the order of the group is another signature that naive programs
/// take; ours has neither another identity nor is it taken.
#[test]
fn a_second_signature_of_the_same_text_is_refused() {
    for good in [credential(&["one"]), revocation()] {
        let begin = good.len() - 2 - 64;
        let mut digits = String::new();
        let mut carry = 0;
        for at in 0..32 {
            let pair = &good[begin + 2 * at..begin + 2 * at + 2];
            let sum = u16::from_str_radix(pair, 16).unwrap() + u16::from(ORDER[at]) + carry;
            digits.push_str(&format!("{:02x}", sum & 0xff));
            carry = sum >> 8;
        }
        assert_eq!(carry, 0);
        let other = format!("{}{digits}\"\n", &good[..begin]);
        assert_eq!(other.len(), good.len());
        assert!(
            Assertion::parse(other.as_bytes()).is_ok()
                || Revocation::parse(other.as_bytes()).is_ok()
        );
        assert!(verifies(&good) && !verifies(&other));
    }
}

#[test]
fn an_identity_has_one_text() {
    let id = id(&credential(&[]));
    let text = id.to_string();
    assert_eq!(text.len(), 64);
    assert_eq!(text.parse(), Ok(id));
    let bad = [
        String::new(),
        text[1..].to_owned(),
        format!("0{text}"),
        format!("{text} "),
        "AB".repeat(32),
        "0g".repeat(32),
    ];
    for text in bad {
        let says = text.parse::<CredentialId>().unwrap_err().to_string();
        assert_eq!(says, "the field `id` of the credential is not as it must be", "{text}");
    }
}

#[test]
fn a_sentence_of_one_kind_is_none_of_the_other() {
    let says = Assertion::parse(revocation().as_bytes()).unwrap_err().to_string();
    assert_eq!(says, "the credential has the unknown field `Pelago-Revocation`");
    let says = Revocation::parse(credential(&[]).as_bytes()).unwrap_err();
    assert_eq!(says, RevocationError::Line("Pelago-Revocation"));
}

#[test]
fn a_signature_under_one_kind_of_sentence_is_none_under_the_other() {
    let credential = credential(&["one"]);
    let revocation = revocation();
    let credential = signed_by(&credential, &revocation);
    let read = Assertion::parse(credential.as_bytes()).unwrap();
    assert_eq!(read.verify(), Err(BadSignature));
    let revocation = signed_by(&revocation, &signed::credential(&["one"]));
    let read = Revocation::parse(revocation.as_bytes()).unwrap();
    assert_eq!(read.verify(), Err(BadSignature));
}

/// What is signed ends with the name of the algorithm: a key that signs the bare text elsewhere has
/// not signed a sentence.
#[test]
fn a_signature_of_the_bare_text_is_none_of_the_sentence() {
    for good in [credential(&["one"]), revocation()] {
        let bare = unsigned(&good);
        for message in [bare.to_owned(), format!("{bare}sig-ed25519-hex"), bare.trim().to_owned()] {
            let signature = key(1).sign(message.as_bytes());
            let digits: String =
                signature.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            let other = format!("{bare}Signature: \"sig-ed25519-hex:{digits}\"\n");
            assert_eq!(other.len(), good.len());
            assert!(!verifies(&other));
        }
    }
}

#[test]
fn a_sentence_is_verified_by_the_key_that_it_names() {
    for good in [credential(&["one"]), revocation()] {
        let one = Principal::of(&key(1)).to_string();
        let other = good.replacen(&one, &Principal::of(&key(3)).to_string(), 1);
        assert_ne!(other, good);
        assert!(!verifies(&other));
    }
}

/// For these keys there are signatures that need no private half.
#[test]
fn a_key_of_small_order_is_none() {
    let points = [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ];
    for point in points {
        let high = u8::from_str_radix(&point[62..], 16).unwrap() | 0x80;
        for digits in [point.to_owned(), format!("{}{high:02x}", &point[..62])] {
            let read = format!("ed25519-hex:{digits}").parse::<Principal>();
            assert_eq!(read, Err(PrincipalError::SmallOrder), "{digits}");
            let by = revocation();
            let by = by.replacen(&Principal::of(&key(1)).to_string()[12..], &digits, 1);
            assert_eq!(Revocation::parse(by.as_bytes()), Err(RevocationError::Line("By")));
        }
    }
}

#[test]
fn a_revocation_that_is_signed_is_read() {
    for at in [0, 1, 1_800_000_000, u64::MAX] {
        let credential = CredentialId([0xc4; 32]);
        let text = Revocation::sign([0xab; 16], credential, at, &key(3));
        let read = Revocation::parse(text.as_bytes()).unwrap();
        assert_eq!(read.volume, [0xab; 16]);
        assert_eq!(read.subject, credential.into());
        assert_eq!(read.by, Principal::of(&key(3)));
        assert_eq!(read.at, at);
        assert_eq!(read.verify(), Ok(()));
    }
}

#[test]
fn a_revocation_has_one_text_and_the_bad_line_is_named() {
    let good = revocation();
    let cases = [
        ("Pelago-Revocation: 1", "Pelago-Revocation: 2", "Pelago-Revocation"),
        ("Pelago-Revocation: 1", "Pelago-Revocation: 01", "Pelago-Revocation"),
        ("Pelago-Revocation: 1", "Pelago-Revocation: 1 ", "Pelago-Revocation"),
        ("Pelago-Revocation: 1", "pelago-revocation: 1", "Pelago-Revocation"),
        ("Pelago-Revocation: 1", "\nPelago-Revocation: 1", "Pelago-Revocation"),
        ("Pelago-Revocation: 1\n", "Pelago-Revocation: 1\r\n", "Pelago-Revocation"),
        ("Pelago-Revocation: 1\n", "Pelago-Revocation: 1\n\n", "Volume"),
        ("Volume: ab", "Volume: AB", "Volume"),
        ("Volume: ab", "Volume: ", "Volume"),
        ("Volume: ", "Volume: 0", "Volume"),
        ("Volume: ", "Volume:", "Volume"),
        ("Volume: ", "Volume:  ", "Volume"),
        ("Volume: ", "Volume:\t", "Volume"),
        ("\nCredential", " \nCredential", "Volume"),
        ("\nCredential", "\r\nCredential", "Volume"),
        ("\nCredential", "\nComment: x\nCredential", "Credential"),
        ("Credential: ", "Credential: 0", "Credential"),
        ("\nBy", " \nBy", "Credential"),
        ("\nBy", "\r\nBy", "Credential"),
        ("By: \"ed25519-hex:", "By: \"rsa-hex:", "By"),
        ("By: \"ed25519-hex:", "By: \"ed25519-hex:0", "By"),
        ("By: \"ed25519-hex:", "By: \"ED25519-HEX:", "By"),
        ("By: \"", "By: ", "By"),
        ("\"\nAt", "\nAt", "By"),
        ("\"\nAt", "\" \nAt", "By"),
        ("\"\nAt", "\"\r\nAt", "By"),
        ("\nAt: ", "\nComment: x\nAt: ", "At"),
        ("At: 1", "At: 01", "At"),
        ("At: 1", "At: +1", "At"),
        ("At: 1", "At: -1", "At"),
        ("At: 1800000000", "At: ", "At"),
        ("At: 1800000000", "At: 1800000000 ", "At"),
        ("At: 1800000000", "At: 1800000000\r", "At"),
        ("At: 1800000000", "At: 18446744073709551616", "At"),
        ("At: 1800000000", "At: 1.8e9", "At"),
        ("Signature: \"", "Comment: x\nSignature: \"", "Signature"),
        ("Signature: \"", "Signature:  \"", "Signature"),
        ("Signature: \"", "signature: \"", "Signature"),
        ("sig-ed25519-hex:", "sig-ed25519-base64:", "Signature"),
        ("sig-ed25519-hex:", "sig-ed25519-hex:0", "Signature"),
    ];
    for (from, to, line) in cases {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        let says = Revocation::parse(text.as_bytes()).expect_err(to);
        assert_eq!(says, RevocationError::Line(line), "{from:?} to {to:?}");
        let says = says.to_string();
        let expected =
            format!("the line `{line}` of the revocation is missing, or not as it must be");
        assert_eq!(says, expected);
    }
    let ends = [
        good.trim_end().to_owned(),
        format!("{good}\n"),
        format!("{good} "),
        format!("{good}{good}"),
        format!("{}\r\n", good.trim_end()),
        format!("{} \n", good.trim_end()),
        good.to_uppercase().replacen(&unsigned(&good).to_uppercase(), unsigned(&good), 1),
    ];
    for text in ends {
        let says = Revocation::parse(text.as_bytes()).expect_err(&text);
        assert_eq!(says, RevocationError::Line("Signature"), "{text}");
    }
}

#[test]
fn a_revocation_of_a_key_has_its_own_line() {
    let taken = Principal::of(&key(2));
    let good = Revocation::sign(share().volume, taken, 1_800_000_000, &key(1));
    let read = Revocation::parse(good.as_bytes()).unwrap();
    assert_eq!(read.subject, RevocationSubject::Key(taken));
    assert_eq!(read.subject.bytes(), taken.0);
    assert_eq!(read.verify(), Ok(()));
    let id = "0".repeat(64);
    let cases = [
        ("Key: \"", "Key: ", "Key"),
        ("Key: \"", "Key:  \"", "Key"),
        ("Key: \"ed25519-hex:", "Key: \"ed25519-hex:0", "Key"),
        ("Key: \"ed25519-hex:", "Key: \"rsa-hex:", "Key"),
        ("\"\nBy", "\nBy", "Key"),
        ("\"\nBy", "\" \nBy", "Key"),
        ("\nKey", "\nkey", "Credential"),
        ("\nKey", &format!("\nCredential: {id}\nKey"), "By"),
        ("\nBy", &format!("\nCredential: {id}\nBy"), "By"),
        ("\nKey: \"ed25519-hex:", "\nCredential: ", "Credential"),
    ];
    for (from, to, line) in cases {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        let says = Revocation::parse(text.as_bytes()).expect_err(to);
        assert_eq!(says, RevocationError::Line(line), "{from:?} to {to:?}");
    }
    // The id of a credential in the place of a key is another sentence.
    let digits =
        good.replacen("Key: \"ed25519-hex:", "Credential: ", 1).replacen("\"\nBy", "\nBy", 1);
    let read = Revocation::parse(digits.as_bytes()).unwrap();
    assert_eq!(read.subject, CredentialId(taken.0).into());
    assert_eq!(read.verify(), Err(BadSignature));
}

#[test]
fn the_lines_of_a_revocation_have_one_order() {
    let good = revocation();
    let lines: Vec<&str> = good.split_inclusive('\n').collect();
    let names = ["Pelago-Revocation", "Volume", "Credential", "By", "At", "Signature"];
    assert_eq!(lines.len(), names.len());
    for (at, name) in names.iter().enumerate().take(lines.len() - 1) {
        let mut swapped = lines.clone();
        swapped.swap(at, at + 1);
        let says = Revocation::parse(swapped.concat().as_bytes());
        assert_eq!(says, Err(RevocationError::Line(name)));
        let mut missing = lines.clone();
        missing.remove(at);
        let says = Revocation::parse(missing.concat().as_bytes());
        assert_eq!(says, Err(RevocationError::Line(name)));
    }
}

#[test]
fn a_revocation_is_a_short_text() {
    let long = revocation().replacen("At: ", &format!("At: {}", "0".repeat(1024)), 1);
    assert!(long.len() > REVOCATION_BYTES);
    assert_eq!(Revocation::parse(long.as_bytes()), Err(RevocationError::NoText));
    let full = "x".repeat(REVOCATION_BYTES);
    let says = Revocation::parse(full.as_bytes());
    assert_eq!(says, Err(RevocationError::Line("Pelago-Revocation")));
    let says = Revocation::parse(b"Pelago-Revocation: 1\n\xff").unwrap_err();
    assert_eq!(says.to_string(), "a revocation is a text of at most 1024 bytes");
}
