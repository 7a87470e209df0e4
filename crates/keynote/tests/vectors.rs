//! Golden texts from fixed seeds: each version writes the same texts, and parses them.
//!
//! `PELAGO_GOLDEN=accept` rewrites the files; read the diff.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::fs;
use std::path::Path;

use pelago_keynote::{
    Assertion, Authorizer, Credential, CredentialId, Grant, IssuedGrant, IssuingLicence, Principal,
    Revocation, RevocationSubject, Rights, SharedName, SharedObject, armor, policy, unarmor,
};
use ring::signature::Ed25519KeyPair;

/// The ids of `policy.txt`, `credential.txt`, and of the second link of `chain.txt`.
const POLICY: &str = "cab37e7733735159191abd2a98b25b3f1dc4b929d7e1b1e13927c620b4c68e53";
const CREDENTIAL: &str = "f524688d33a9a24e84420597d32b66373bb901ef0f319af70277d1e2503ef968";
const LINK: &str = "fe66a34a4f5fc53f1bcce0072d79a2592cb0f00b1d3a12be9d9481f3f78b740d";

fn key(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

const fn share() -> Grant {
    Grant::to_read([5; 16], 0x2a)
}

/// Returns a credential of one key for another.
fn credential(by: u8, to: u8, comment: &[&str]) -> String {
    credential_of(by, to, comment, &share())
}

fn credential_of(by: u8, to: u8, comment: &[&str], share: &Grant) -> String {
    let comment: Vec<String> = comment.iter().map(|line| (*line).to_owned()).collect();
    let conditions = share.conditions();
    let licensee = Principal::of(&key(to));
    Credential { comment: &comment, licensee, conditions: &conditions }.sign(&key(by)).unwrap()
}

fn chain() -> Vec<String> {
    vec![credential(1, 2, &["shared"]), credential(2, 4, &["shared again", "by Bob"])]
}

/// Compares a text with its golden file, and returns the file.
fn golden(name: &str, text: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("PELAGO_GOLDEN").is_some_and(|value| value == "accept") {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    let difference = text.lines().zip(expected.lines()).position(|pair| pair.0 != pair.1);
    assert!(
        text == expected,
        "tests/golden/{name} differs (line {:?}): old texts would not be read as they were; \
         PELAGO_GOLDEN=accept writes it\n{text}",
        difference.map(|line| line + 1)
    );
    expected
}

fn id(text: &str) -> CredentialId {
    Assertion::parse(text.as_bytes()).unwrap().id()
}

#[test]
fn a_policy_is_the_text_it_always_was() {
    let roots = [Principal::of(&key(1)), Principal::of(&key(3))];
    let text = golden("policy.txt", &policy(&roots, &["the roots".to_owned()]).unwrap());
    let read = Assertion::parse(text.as_bytes()).unwrap();
    assert_eq!(read.authorizer(), &Authorizer::Policy);
    assert!(read.licensees().keys().eq(roots));
    assert_eq!(read.id().to_string(), POLICY);
}

/// A credential that a server issues, with the licence by which it may.
#[test]
fn an_issued_credential_and_its_licence_are_the_texts_they_always_were() {
    let licence = IssuingLicence { volume: [5; 16] };
    let rights = Rights::OF_MAKER;
    let object = SharedObject::File(0x2b);
    let until = Some("20261231180000".to_owned());
    let issued = IssuedGrant { grant: Grant { rights, object, until, ..share() }, chain: [6; 32] };
    for (file, conditions) in
        [("licence.txt", licence.conditions()), ("issued.txt", issued.conditions())]
    {
        let licensee = Principal::of(&key(2));
        let credential = Credential { comment: &[], licensee, conditions: &conditions };
        let text = golden(file, &credential.sign(&key(1)).unwrap());
        let read = Assertion::credential(text.as_bytes()).unwrap();
        assert_eq!(read.verify(), Ok(()));
        let is_licence = file == "licence.txt";
        assert_eq!(IssuingLicence::of(&read), Some(licence).filter(|_| is_licence), "{file}");
        let found = IssuedGrant::of(&read).ok();
        assert_eq!(found, Some(issued.clone()).filter(|_| !is_licence), "{file}");
        assert!(Grant::of(&read).is_err(), "{file} is no share");
    }
    let changed = |conditions: &str, from: &str, to: &str| {
        let changed = conditions.replacen(from, to, 1);
        assert_ne!(changed, conditions, "{from}");
        let text = format!(
            "KeyNote-Version: 2\nAuthorizer: \"POLICY\"\nLicensees: \"x\"\nConditions: {changed}\n"
        );
        let read = Assertion::parse(text.as_bytes()).unwrap();
        assert_eq!(IssuingLicence::of(&read), None, "{changed}");
        assert!(IssuedGrant::of(&read).is_err(), "{changed}");
    };
    let licence = licence.conditions().to_string();
    changed(&licence, "issued ==", "issued !=");
    changed(&licence, "right == \"r\" ||", "right == \"a\" ||");
    changed(&licence, "\"pelago\"", "\"other\"");
    let issued = issued.conditions().to_string();
    changed(&issued, "chain ~= \"/", "chain ~= \"");
    changed(&issued, "06/", "06/$");
    changed(&issued, "06/", "/");
    changed(&issued, "chain ~=", "x == \"y\" && chain ~=");
}

#[test]
fn a_credential_is_the_text_it_always_was() {
    let text = golden("credential.txt", &credential(1, 2, &["shared"]));
    let read = Assertion::parse(text.as_bytes()).unwrap();
    assert_eq!(read.verify(), Ok(()));
    assert_eq!(read.authorizer(), &Authorizer::Key(Principal::of(&key(1))));
    assert_eq!(Grant::of(&read), Ok(share()));
    assert_eq!(read.id().to_string(), CREDENTIAL);
}

#[test]
fn a_credential_of_a_file_is_the_text_it_always_was() {
    let share = Grant { object: SharedObject::File(0x2b), ..share() };
    let text = golden("file.txt", &credential_of(1, 2, &["shared"], &share));
    let read = Assertion::parse(text.as_bytes()).unwrap();
    assert_eq!(read.verify(), Ok(()));
    assert_eq!(Grant::of(&read), Ok(share));
}

/// Bytes beyond ASCII, quotes and backslashes are octal or escaped; the text is ASCII.
#[test]
fn a_credential_of_a_name_is_the_text_it_always_was() {
    let name = SharedName::new("Plän \"B\" \\$.odt".as_bytes()).unwrap();
    let share = Grant { object: SharedObject::Name { directory: 0x2a, name }, ..share() };
    let text = golden("name.txt", &credential_of(1, 2, &["shared"], &share));
    assert!(text.is_ascii());
    let read = Assertion::parse(text.as_bytes()).unwrap();
    assert_eq!(read.verify(), Ok(()));
    assert_eq!(Grant::of(&read), Ok(share));
}

#[test]
fn a_revocation_is_the_text_it_always_was() {
    let credential = id(&credential(1, 2, &["shared"]));
    let text = Revocation::sign([5; 16], credential, 1_800_000_000, &key(1));
    let text = golden("revocation.txt", &text);
    let read = Revocation::parse(text.as_bytes()).unwrap();
    assert_eq!(read.verify(), Ok(()));
    assert_eq!(read.by, Principal::of(&key(1)));
    assert_eq!(read.at, 1_800_000_000);
    let RevocationSubject::Credential(taken) = read.subject else { panic!("{read:?}") };
    assert_eq!(taken.to_string(), CREDENTIAL);
}

#[test]
fn a_revocation_of_a_key_is_the_text_it_always_was() {
    let text = Revocation::sign([5; 16], Principal::of(&key(2)), 1_800_000_000, &key(1));
    let text = golden("revocation-key.txt", &text);
    let read = Revocation::parse(text.as_bytes()).unwrap();
    assert_eq!(read.verify(), Ok(()));
    assert_eq!(read.by, Principal::of(&key(1)));
    assert_eq!(read.subject, RevocationSubject::Key(Principal::of(&key(2))));
}

#[test]
fn a_chain_is_the_block_it_always_was() {
    let text = golden("chain.txt", &armor(&chain()).unwrap());
    let read = unarmor(&text).unwrap();
    assert_eq!(read, chain());
    let ids: Vec<String> = read.iter().map(|text| id(text).to_string()).collect();
    assert_eq!(ids, [CREDENTIAL, LINK]);
    for text in &read {
        assert_eq!(Assertion::parse(text.as_bytes()).unwrap().verify(), Ok(()));
    }
}

/// The identity is the BLAKE3 hash of all before the signature, and nothing else.
#[test]
fn an_identity_is_the_hash_of_the_text_before_the_signature() {
    let text = credential(1, 2, &["shared"]);
    let unsigned = &text[..text.find("Signature:").unwrap()];
    assert_eq!(id(&text).0, *blake3::hash(unsigned.as_bytes()).as_bytes());
}

/// RFC 8032, 7.1, test 1: our principals are the public keys of everybody else's Ed25519.
#[test]
fn a_principal_is_the_public_key_of_its_seed() {
    let seed = [
        0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c,
        0xc4, 0x44, 0x49, 0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae,
        0x7f, 0x60,
    ];
    let key = Ed25519KeyPair::from_seed_unchecked(&seed).unwrap();
    assert_eq!(
        Principal::of(&key).to_string(),
        "ed25519-hex:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    );
}
