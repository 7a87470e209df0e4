//! The seals of records: AES-256-GCM with keys of one run, and the number of a record as its nonce;
//! and the proofs of a mirror that it has groups.
//!
//! The key of a run comes from the private key of the mirror (HKDF, RFC 5869), so a mirror that was
//! restarted opens what a relay still has. Another run has another key, so no nonce is used twice.

use pelago_wire::limits;
use pelago_wire::mirror::{GroupProof, PrimaryRun};
use pelago_wire::relay::Record;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::hmac;

use crate::key::PrivateKey;

/// The salts of the derivations.
const SALT_OF_RUN: &[u8] = b"pelago relay: key of a run";
const SALT_OF_RECORDS: &[u8] = b"pelago relay: key of records";
const SALT_OF_PROOFS: &[u8] = b"pelago relay: key of proofs";
/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Bytes of the number of a record.
const NUMBER_BYTES: usize = 8;

/// The key of a run, which the primary and the mirror have.
#[derive(Clone)]
pub(in super::super) struct RunKey([u8; KEY_BYTES]);

/// The end of a run that seals records, or opens them.
pub(in super::super) struct Opener {
    run: RunKey,
    /// The key of some records, and their place in the run.
    records: Option<(u64, LessSafeKey)>,
}

impl RunKey {
    /// Returns the key of a run, as the mirror with this key has it.
    pub(in super::super) fn of_mirror(
        mirror: &PrivateKey,
        volume: [u8; 16],
        reign: u64,
        run: PrimaryRun,
    ) -> Option<Self> {
        let reign = reign.to_le_bytes();
        derive(SALT_OF_RUN, mirror.seed(), &[&volume, &reign, &run]).map(Self)
    }

    /// Returns the key that a mirror has given.
    pub(super) const fn new(key: [u8; KEY_BYTES]) -> Self {
        Self(key)
    }

    /// Returns the proof that the mirror has a group of the run; `None` if none can be made.
    pub(in super::super) fn proof(&self, group: u64) -> Option<GroupProof> {
        let tag = hmac::sign(&self.key_of_proofs()?, &group.to_le_bytes());
        tag.as_ref().try_into().ok()
    }

    /// Returns whether the mirror has made this proof.
    pub(super) fn is_proven(&self, group: u64, proof: &GroupProof) -> bool {
        let key = self.key_of_proofs();
        key.is_some_and(|key| hmac::verify(&key, &group.to_le_bytes(), proof).is_ok())
    }

    fn key_of_proofs(&self) -> Option<hmac::Key> {
        let key = derive(SALT_OF_PROOFS, &self.0, &[])?;
        Some(hmac::Key::new(hmac::HMAC_SHA256, &key))
    }

    /// Returns the bytes, which are secret.
    pub(in super::super) const fn bytes(&self) -> [u8; KEY_BYTES] {
        self.0
    }
}

impl Opener {
    pub(in super::super) const fn new(run: RunKey) -> Self {
        Self { run, records: None }
    }

    /// Returns the key of the run.
    pub(in super::super) const fn run(&self) -> &RunKey {
        &self.run
    }

    /// Seals the body of a part into a record, whose sealed bytes are those of the body until then.
    /// Returns false if that cannot be.
    pub(super) fn seal(&mut self, record: &mut Record) -> bool {
        let Some(key) = self.key_of(record.number) else { return false };
        let aad = Aad::from(record.head());
        key.seal_in_place_append_tag(nonce(record.number), aad, &mut record.sealed).is_ok()
    }

    /// Returns the body of the part that a record has; `None` if its seal is not right.
    pub(in super::super) fn open(&mut self, record: &Record) -> Option<Vec<u8>> {
        let mut body = record.sealed.clone();
        let aad = Aad::from(record.head());
        let key = self.key_of(record.number)?;
        let length = key.open_in_place(nonce(record.number), aad, &mut body).ok()?.len();
        body.truncate(length);
        Some(body)
    }

    /// Returns the key of a record.
    fn key_of(&mut self, number: u64) -> Option<&LessSafeKey> {
        let place = number / limits::SEALED_RECORDS;
        if self.records.as_ref().is_none_or(|(known, _)| *known != place) {
            let key = derive(SALT_OF_RECORDS, &self.run.0, &[&place.to_le_bytes()])?;
            let key = UnboundKey::new(&AES_256_GCM, &key).ok()?;
            self.records = Some((place, LessSafeKey::new(key)));
        }
        self.records.as_ref().map(|(_, key)| key)
    }
}

fn derive(salt: &[u8], secret: &[u8; KEY_BYTES], info: &[&[u8]]) -> Option<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    let extracted = Salt::new(HKDF_SHA256, salt).extract(secret);
    extracted.expand(info, HKDF_SHA256).ok()?.fill(&mut key).ok()?;
    Some(key)
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[NONCE_LEN - NUMBER_BYTES..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> Record {
        let sealed = b"a part".to_vec();
        Record { group: 3, number, is_last: true, is_awaited: false, sealed }
    }

    fn opener(seed: u8, run: u8) -> Opener {
        let key = PrivateKey::from_seed([seed; 32]);
        Opener::new(RunKey::of_mirror(&key, [1; 16], 2, [run; 16]).unwrap())
    }

    #[test]
    fn a_record_is_opened_with_the_key_of_its_run_only() {
        for number in [1, limits::SEALED_RECORDS - 1, limits::SEALED_RECORDS, u64::MAX] {
            let mut sealed = record(number);
            assert!(opener(1, 1).seal(&mut sealed));
            assert_eq!(opener(1, 1).open(&sealed), Some(b"a part".to_vec()));
            assert_eq!(opener(1, 2).open(&sealed), None);
            assert_eq!(opener(2, 1).open(&sealed), None);
        }
    }

    #[test]
    fn no_byte_and_no_field_of_a_record_can_be_changed() {
        let mut sealed = record(7);
        assert!(opener(1, 1).seal(&mut sealed));
        let mut opener = opener(1, 1);
        for at in 0..sealed.sealed.len() {
            let mut forged = sealed.clone();
            forged.sealed[at] ^= 1;
            assert_eq!(opener.open(&forged), None, "byte {at}");
            forged.sealed.truncate(at);
            assert_eq!(opener.open(&forged), None, "cut at {at}");
        }
        for forged in [
            Record { group: 4, ..sealed.clone() },
            Record { number: 8, ..sealed.clone() },
            Record { is_last: false, ..sealed.clone() },
            Record { is_awaited: true, ..sealed },
        ] {
            assert_eq!(opener.open(&forged), None, "{forged:?}");
        }
    }

    #[test]
    fn keys_and_seals_are_those_of_the_protocol() {
        let key = RunKey::of_mirror(&PrivateKey::from_seed([1; 32]), [2; 16], 3, [4; 16]).unwrap();
        let mut sealed = record(5);
        assert!(Opener::new(key.clone()).seal(&mut sealed));
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(&key.bytes()), KEY_VECTOR);
        assert_eq!(hex(&sealed.sealed), SEAL_VECTOR);
        assert_eq!(hex(&key.proof(9).unwrap()), PROOF_VECTOR);
    }

    #[test]
    fn a_proof_is_of_one_group_of_one_run() {
        let key = |run| RunKey::of_mirror(&PrivateKey::from_seed([1; 32]), [2; 16], 3, [run; 16]);
        let proof = key(4).unwrap().proof(9).unwrap();
        assert!(key(4).unwrap().is_proven(9, &proof));
        assert!(!key(4).unwrap().is_proven(10, &proof));
        assert!(!key(5).unwrap().is_proven(9, &proof));
        for at in 0..proof.len() {
            let mut forged = proof;
            forged[at] ^= 1;
            assert!(!key(4).unwrap().is_proven(9, &forged));
        }
    }

    const KEY_VECTOR: &str = "6af2c4ae030c900c3b0bca68a9199abf75563b0e965dd93ea96620f84ad426b8";
    const SEAL_VECTOR: &str = "edf60c1e2383ffb3b86ff3962cc2f4be69a5bbbb35e7";
    const PROOF_VECTOR: &str = "a67704142b757bb27a5215badbe1328caad7df1b3a5967ded2dc88d5cd1e931d";
}
