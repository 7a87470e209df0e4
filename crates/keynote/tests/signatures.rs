//! Signatures, identities, and the form in which credentials travel.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::fs;
use std::path::Path;

use pelago_keynote::{
    ArmorError, Assertion, CHAIN_LINKS, Credential, CredentialId, Principal, Revocation,
    SharedFolder, armor, policy, unarmor,
};
use ring::signature::Ed25519KeyPair;

fn key(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn credential() -> String {
    let conditions = SharedFolder { volume: [5; 16], directory: 0x2a }.conditions();
    let licensee = Principal::of(&key(2));
    let comment = ["shared".to_owned()];
    Credential { comment: &comment, licensee, conditions: &conditions }.sign(&key(1)).unwrap()
}

fn id(text: &str) -> CredentialId {
    Assertion::parse(text.as_bytes()).unwrap().id()
}

fn revocation() -> String {
    Revocation::sign([5; 16], id(&credential()), 1_800_000_000, &key(1))
}

#[test]
fn no_bit_of_a_signed_text_can_be_changed() {
    let good = credential().into_bytes();
    for bit in 0..good.len() * 8 {
        let mut text = good.clone();
        text[bit / 8] ^= 1 << (bit % 8);
        let read = Assertion::parse(&text);
        assert!(read.is_err() || read.unwrap().verify().is_err(), "bit {bit}");
    }
    let good = revocation().into_bytes();
    assert_eq!(Revocation::parse(&good).unwrap().verify(), Ok(()));
    for bit in 0..good.len() * 8 {
        let mut text = good.clone();
        text[bit / 8] ^= 1 << (bit % 8);
        let read = Revocation::parse(&text);
        assert!(read.is_err() || read.unwrap().verify().is_err(), "bit {bit} of the revocation");
    }
}

/// Another signature makes no other credential, so that one revocation is enough.
#[test]
fn the_identity_is_that_of_what_is_signed() {
    let good = credential();
    let at = good.rfind("hex:").unwrap() + 4;
    let mut other = good.clone();
    let digit = if &good[at..=at] == "0" { "1" } else { "0" };
    other.replace_range(at..=at, digit);
    assert_eq!(id(&other), id(&good));
    assert_ne!(id(&good.replacen("shared", "Shared", 1)), id(&good));
    assert_eq!(id(&good).to_string().parse(), Ok(id(&good)));
}

#[test]
fn a_signature_of_one_kind_of_sentence_is_none_of_the_other() {
    assert!(Assertion::parse(revocation().as_bytes()).is_err());
    assert!(Revocation::parse(credential().as_bytes()).is_err());
    let signature_of = |text: &str| text[text.find("Signature:").unwrap()..].to_owned();
    let credential = credential();
    let begin = credential.find("Signature:").unwrap();
    let mixed = format!("{}{}", &credential[..begin], signature_of(&revocation()));
    assert!(Assertion::parse(mixed.as_bytes()).unwrap().verify().is_err());
}

#[test]
fn a_revocation_has_one_text() {
    let good = revocation();
    let cases = [
        ("At: 1", "At: 01"),
        ("At: 1", "At: +1"),
        ("Volume: ", "Volume:  "),
        ("Pelago-Revocation: 1", "Pelago-Revocation: 2"),
        ("Volume: 05", "Volume: "),
        ("By: \"", "By: "),
        ("\nBy", "\r\nBy"),
        ("At: ", "Comment: x\nAt: "),
    ];
    for (from, to) in cases {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        assert!(Revocation::parse(text.as_bytes()).is_err(), "{from} to {to}");
    }
    assert!(Revocation::parse(format!("{good}\n").as_bytes()).is_err());
    assert!(Revocation::parse(good.trim_end().as_bytes()).is_err());
    assert!(Revocation::parse(b"").is_err());
    assert!(Revocation::parse(&[b'x'; 2000]).is_err());
}

#[test]
fn a_block_survives_mail() {
    let chain = vec![credential(), revocation()];
    let block = armor(&chain).unwrap();
    let quoted: String = block.lines().map(|line| format!("> {line}\r\n")).collect();
    let indented: String = block.lines().map(|line| format!("  {line}  \n")).collect();
    let around = format!("Dear Bob,\n\n{block}\n-- \nAlice\n");
    for text in [block.clone(), quoted, indented, around] {
        assert_eq!(unarmor(&text), Ok(chain.clone()), "{text}");
    }
    assert!(block.lines().all(|line| line.len() <= 64));
}

#[test]
fn a_block_that_is_none_is_told() {
    let block = armor(&[credential()]).unwrap();
    let lines: Vec<&str> = block.lines().collect();
    let without_end = lines[..lines.len() - 1].join("\n");
    let damaged = block.replacen(&lines[1][..4], "!!!!", 1);
    let shorter = [&lines[..2], &lines[3..]].concat().join("\n");
    let cases = [
        (String::new(), ArmorError::NoBlock),
        (without_end, ArmorError::Cut),
        (format!("{block}{block}"), ArmorError::Several),
        (damaged, ArmorError::Damaged),
        (shorter, ArmorError::Damaged),
        (format!("{}\n{}\n", lines[0], lines[lines.len() - 1]), ArmorError::Limit),
        ("x".repeat((1 << 20) + 1), ArmorError::TooLong),
    ];
    for (text, error) in cases {
        assert_eq!(unarmor(&text), Err(error));
    }
    assert_eq!(armor(&vec!["x".to_owned(); CHAIN_LINKS + 1]), Err(ArmorError::Limit));
    assert_eq!(armor(&["x".repeat(9000)]), Err(ArmorError::Limit));
    assert_eq!(armor(&vec!["x".repeat(8000); 5]), Err(ArmorError::Limit));
}

/// Compares with a golden file, or writes it.
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("PELAGO_GOLDEN").is_some_and(|value| value == "accept") {
        fs::write(&path, text).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "{}", path.display());
}

#[test]
fn sentences_are_the_texts_they_always_were() {
    let comment = ["the roots".to_owned()];
    let roots = [Principal::of(&key(1)), Principal::of(&key(3))];
    golden("policy.txt", &policy(&roots, &comment).unwrap());
    golden("credential.txt", &credential());
    golden("revocation.txt", &revocation());
    golden("block.txt", &armor(&[credential()]).unwrap());
    golden("id.txt", &format!("{}\n", id(&credential())));
}
