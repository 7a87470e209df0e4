//! The seals of datagrams: AES-256-GCM with the keys that a connection exports, and the number of
//! a datagram as its nonce.

use std::io;

use pelago_wire::datagram::Datagram;
use pelago_wire::limits;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::ConnectionCommon;

/// The label under which the keys are exported.
const LABEL: &[u8] = b"EXPORTER-pelago-datagrams";
/// The contexts of both directions.
const OF_PRIMARY: &[u8] = &[0];
const OF_MIRROR: &[u8] = &[1];
/// Bytes of a number.
const NUMBER_BYTES: usize = 8;

/// The two keys of a connection, at one of its ends.
#[derive(Debug)]
pub(in super::super) struct Seals {
    sends: LessSafeKey,
    receives: LessSafeKey,
}

impl Seals {
    /// Returns the keys as the primary uses them.
    pub(in super::super) fn of_primary<S>(tls: &ConnectionCommon<S>) -> io::Result<Self> {
        Ok(Self { sends: key(tls, OF_PRIMARY)?, receives: key(tls, OF_MIRROR)? })
    }

    /// Returns the keys as the mirror uses them.
    pub(in super::super) fn of_mirror<S>(tls: &ConnectionCommon<S>) -> io::Result<Self> {
        Ok(Self { sends: key(tls, OF_MIRROR)?, receives: key(tls, OF_PRIMARY)? })
    }

    /// Returns the sealed datagram; `None` if it exceeds a limit, or no number is left.
    pub(super) fn seal(&self, datagram: &Datagram) -> Option<Vec<u8>> {
        if datagram.number >= limits::SEALED_DATAGRAMS {
            return None;
        }
        let mut bytes = datagram.encode().ok()?;
        let (number, body) = bytes.split_first_chunk_mut::<NUMBER_BYTES>()?;
        let aad = Aad::from(*number);
        let tag = self.sends.seal_in_place_separate_tag(nonce(*number), aad, body).ok()?;
        bytes.extend_from_slice(tag.as_ref());
        Some(bytes)
    }

    /// Returns a datagram whose seal is right.
    pub(super) fn open(&self, sealed: &[u8]) -> Option<Datagram> {
        let mut bytes = sealed.to_vec();
        let (number, body) = bytes.split_first_chunk_mut::<NUMBER_BYTES>()?;
        let opened = self.receives.open_in_place(nonce(*number), Aad::from(*number), body).ok()?;
        let end = NUMBER_BYTES + opened.len();
        bytes.truncate(end);
        Datagram::decode(&bytes).ok()
    }
}

/// Returns the number of a sealed datagram, which anybody may have written; `None` if it is none of
/// the right size.
pub(super) fn number_of(sealed: &[u8]) -> Option<u64> {
    let fits = sealed.len() <= limits::DATAGRAM_BYTES;
    sealed.first_chunk().map(|number| u64::from_le_bytes(*number)).filter(|_| fits)
}

fn nonce(number: [u8; NUMBER_BYTES]) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[NONCE_LEN - NUMBER_BYTES..].copy_from_slice(&number);
    Nonce::assume_unique_for_key(nonce)
}

fn key<S>(tls: &ConnectionCommon<S>, context: &[u8]) -> io::Result<LessSafeKey> {
    let key = tls.export_keying_material([0; 32], LABEL, Some(context));
    let key = key.map_err(io::Error::other)?;
    let key = UnboundKey::new(&AES_256_GCM, &key).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(LessSafeKey::new(key))
}

#[cfg(test)]
mod tests {
    use pelago_wire::datagram::{DataPacket, DatagramBody};

    use super::*;

    fn ends() -> (Seals, Seals) {
        let key = |byte| LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[byte; 32]).unwrap());
        (Seals { sends: key(1), receives: key(2) }, Seals { sends: key(2), receives: key(1) })
    }

    fn datagram(number: u64) -> Datagram {
        let packet = DataPacket { sequence: 1, offset: 2, bytes: vec![3; 100] };
        Datagram { number, body: DatagramBody::Data(packet) }
    }

    #[test]
    fn a_seal_opens_at_the_other_end_only() {
        let (primary, mirror) = ends();
        let sealed = primary.seal(&datagram(7)).unwrap();
        assert_eq!(sealed.len(), datagram(7).body.sealed_bytes());
        assert_eq!(number_of(&sealed), Some(7));
        assert_eq!(mirror.open(&sealed), Some(datagram(7)));
        assert_eq!(primary.open(&sealed), None, "each direction has a key of its own");
    }

    #[test]
    fn what_was_changed_or_cut_does_not_open() {
        let (primary, mirror) = ends();
        let sealed = primary.seal(&datagram(7)).unwrap();
        for at in 0..sealed.len() {
            let mut forged = sealed.clone();
            forged[at] ^= 1;
            assert_eq!(mirror.open(&forged), None, "byte {at}");
            assert_eq!(mirror.open(&sealed[..at]), None, "cut at {at}");
        }
        assert_eq!(number_of(&sealed[..7]), None);
        assert_eq!(number_of(&[0; limits::DATAGRAM_BYTES + 1]), None);
    }

    /// The same bytes by another program: the nonce, the number and the order are as the protocol
    /// says.
    #[test]
    fn the_seal_is_that_of_the_protocol() {
        let (primary, _) = ends();
        let sealed = primary.seal(&datagram(0x0102)).unwrap();
        let (number, body) = sealed.split_at(8);
        assert_eq!(number, [2, 1, 0, 0, 0, 0, 0, 0]);
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[1; 32]).unwrap());
        let nonce = Nonce::assume_unique_for_key([0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        let mut body = body.to_vec();
        let opened = key.open_in_place(nonce, Aad::from(number), &mut body).unwrap();
        assert_eq!(opened, &datagram(0x0102).encode().unwrap()[8..]);
    }

    #[test]
    fn a_key_seals_a_limited_number_of_datagrams() {
        let (primary, _) = ends();
        assert!(primary.seal(&datagram(limits::SEALED_DATAGRAMS - 1)).is_some());
        assert!(primary.seal(&datagram(limits::SEALED_DATAGRAMS)).is_none());
    }
}
