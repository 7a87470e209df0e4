//! Public keys of small order: for these there are signatures that verify and that need no private
//! half, so everybody can sign, and a proof of such a key proves nothing.

use super::KEY_BYTES;

/// The bytes of a point whose middle ones are all alike.
const fn point(first: u8, middle: u8, last: u8) -> [u8; KEY_BYTES] {
    let mut bytes = [middle; KEY_BYTES];
    bytes[0] = first;
    bytes[KEY_BYTES - 1] = last;
    bytes
}

/// The points of small order, without the sign of x. libsodium refuses the same.
const POINTS: [[u8; KEY_BYTES]; 7] = [
    point(0, 0, 0),
    point(1, 0, 0),
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98,
        0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53,
        0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67,
        0x0f, 0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac,
        0x03, 0x7a,
    ],
    point(0xec, 0xff, 0x7f),
    point(0xed, 0xff, 0x7f),
    point(0xee, 0xff, 0x7f),
];

/// Returns whether everybody can sign for the key with these bytes.
pub(crate) fn has_small_order(key: &[u8; KEY_BYTES]) -> bool {
    let mut point = *key;
    if let Some(last) = point.last_mut() {
        *last &= 0x7f;
    }
    POINTS.contains(&point)
}

#[cfg(test)]
mod tests {
    use ring::signature::{ED25519, UnparsedPublicKey};

    use super::*;
    use crate::key::PrivateKey;

    /// The neutral point: the signature of zeros with this point verifies for each message.
    #[test]
    fn everybody_can_sign_for_a_key_of_small_order() {
        let key = point(1, 0, 0);
        let forged = [key, [0; KEY_BYTES]].concat();
        let verifier = UnparsedPublicKey::new(&ED25519, key);
        assert_eq!(verifier.verify(b"I am the owner", &forged), Ok(()));
        assert!(has_small_order(&key));
    }

    #[test]
    fn the_sign_of_x_changes_nothing() {
        for mut key in POINTS {
            assert!(has_small_order(&key));
            key[KEY_BYTES - 1] |= 0x80;
            assert!(has_small_order(&key));
            key[5] ^= 1;
            assert!(!has_small_order(&key));
        }
    }

    #[test]
    fn a_new_key_has_none() {
        for number in 0..64 {
            let key = PrivateKey::from_seed([number; KEY_BYTES]).public();
            assert!(!has_small_order(key.as_bytes()));
        }
    }
}
