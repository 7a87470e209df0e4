//! Keys and a credential from fixed seeds.

use pelago_keynote::{Credential, Grant, Principal};
use ring::signature::Ed25519KeyPair;

/// Returns the key pair of a seed.
pub(crate) fn key(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

/// Returns the share of a credential.
pub(crate) const fn share() -> Grant {
    Grant::to_read([0xab; 16], 0x2a)
}

/// Returns a credential of key 1 for key 2.
pub(crate) fn credential(comment: &[&str]) -> String {
    let comment: Vec<String> = comment.iter().map(|line| (*line).to_owned()).collect();
    let conditions = share().conditions();
    let licensee = Principal::of(&key(2));
    Credential { comment: &comment, licensee, conditions: &conditions }.sign(&key(1)).unwrap()
}
