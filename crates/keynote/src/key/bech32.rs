//! Bech32m (BIP-350): bytes as letters and digits, with a checksum that finds up to 4 wrong
//! characters for certain.

/// Characters of the checksum.
pub(super) const CHECKSUM: usize = 6;

/// The character of each value of 5 bits.
const ALPHABET: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
/// The remainder of a correct text.
const REMAINDER: u32 = 0x2bc8_30a3;
/// The generator polynomial, times 1, 2, 4, 8 and 16.
const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];

/// The reason for which a text is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bech32Error {
    /// It has another name.
    Name,
    /// It has another length than the bytes need.
    Length,
    /// It has a character that is not in the alphabet.
    Letter {
        /// The position in characters, from 0.
        at: usize,
        letter: char,
    },
    /// It has small and capital letters.
    MixedCase,
    /// The checksum is wrong.
    Checksum,
    /// The bits after the last byte are not zero.
    Padding,
}

/// Returns the characters that this many bytes take, without name and checksum.
pub(super) const fn symbols(bytes: usize) -> usize {
    (bytes * 8).div_ceil(5)
}

/// Returns whether a text begins with this name and the separator, in either case.
pub(super) fn has_name(name: &str, text: &str) -> bool {
    let begin = text.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name));
    begin && text[name.len()..].starts_with('1')
}

/// Returns the text of these bytes.
pub(super) fn encode(name: &str, bytes: &[u8]) -> String {
    let mut values = Vec::with_capacity(symbols(bytes.len()) + CHECKSUM);
    let mut held = 0_u32;
    let mut bits = 0;
    for byte in bytes {
        held = held << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            values.push((held >> bits & 31) as u8);
        }
    }
    if bits > 0 {
        values.push((held << (5 - bits) & 31) as u8);
    }
    let sum = checksum(name, &values);
    let letters = values.iter().chain(&sum).map(|value| char::from(letter(*value)));
    name.chars().chain(['1']).chain(letters).collect()
}

/// Returns the bytes of a text.
pub(super) fn decode<const N: usize>(name: &str, text: &str) -> Result<[u8; N], Bech32Error> {
    if !has_name(name, text) {
        return Err(Bech32Error::Name);
    }
    let (head, tail) = text.split_at(name.len() + 1);
    if tail.chars().count() != symbols(N) + CHECKSUM {
        return Err(Bech32Error::Length);
    }
    let mut values = Vec::with_capacity(symbols(N) + CHECKSUM);
    for (at, letter) in tail.chars().enumerate() {
        let small = letter.to_ascii_lowercase();
        let value = ALPHABET.iter().position(|known| char::from(*known) == small);
        let at = head.len() + at;
        values.push(value.ok_or(Bech32Error::Letter { at, letter })? as u8);
    }
    if text.contains(|letter: char| letter.is_ascii_uppercase())
        && text.contains(|letter: char| letter.is_ascii_lowercase())
    {
        return Err(Bech32Error::MixedCase);
    }
    let (values, sum) = values.split_at(symbols(N));
    if checksum(name, values) != sum {
        return Err(Bech32Error::Checksum);
    }
    bytes_of(values)
}

/// Joins values of 5 bits to bytes.
fn bytes_of<const N: usize>(values: &[u8]) -> Result<[u8; N], Bech32Error> {
    let mut bytes = [0; N];
    let mut free = bytes.iter_mut();
    let mut held = 0_u32;
    let mut bits = 0;
    for value in values {
        held = held << 5 | u32::from(*value);
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            if let Some(byte) = free.next() {
                *byte = (held >> bits & 255) as u8;
            }
        }
    }
    if held & ((1 << bits) - 1) == 0 { Ok(bytes) } else { Err(Bech32Error::Padding) }
}

fn letter(value: u8) -> u8 {
    ALPHABET.get(usize::from(value)).copied().unwrap_or_default()
}

/// Returns the checksum of a name and values of 5 bits.
fn checksum(name: &str, values: &[u8]) -> [u8; CHECKSUM] {
    let high = name.bytes().map(|byte| byte >> 5);
    let low = name.bytes().map(|byte| byte & 31);
    let all = high.chain([0]).chain(low).chain(values.iter().copied()).chain([0; CHECKSUM]);
    let sum = all.fold(1, step) ^ REMAINDER;
    std::array::from_fn(|at| (sum >> (5 * (CHECKSUM - 1 - at)) & 31) as u8)
}

/// Takes one more value into the remainder.
fn step(sum: u32, value: u8) -> u32 {
    let top = sum >> 25;
    let sum = (sum & 0x01ff_ffff) << 5 ^ u32::from(value);
    let bits = GENERATOR.iter().enumerate().filter(|(bit, _)| top >> bit & 1 == 1);
    bits.fold(sum, |sum, (_, generator)| sum ^ generator)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<u8> {
        let value = |byte| ALPHABET.iter().position(|known| *known == byte).unwrap() as u8;
        text.bytes().map(value).collect()
    }

    /// Valid texts of BIP-350.
    #[test]
    fn checksums_are_those_of_the_standard() {
        let cases = [
            ("a", "", "lqfn3a"),
            ("abcdef", "l7aum6echk45nj3s0wdvt2fg8x9yrzpq", "zd3ryx"),
            ("split", "checkupstagehandshakeupstreamerranterredcaperred", "lc445v"),
            ("?", "", "v759aa"),
        ];
        for (name, data, sum) in cases {
            assert_eq!(checksum(name, &values(data)).to_vec(), values(sum), "{name}");
        }
    }

    #[test]
    fn bytes_come_back() {
        for byte in 0..=255 {
            let bytes: [u8; 32] = std::array::from_fn(|at| byte ^ (at as u8).wrapping_mul(37));
            assert_eq!(decode("name", &encode("name", &bytes)), Ok(bytes));
        }
    }

    /// 32 bytes leave 4 bits of the last character, which must be zero: a key has one text.
    #[test]
    fn bits_behind_the_last_byte_are_refused() {
        let mut data = values(&encode("name", &[0; 32])[5..57]);
        *data.last_mut().unwrap() |= 1;
        let sum = checksum("name", &data);
        let letters = data.iter().chain(&sum).map(|value| char::from(letter(*value)));
        let text: String = "name1".chars().chain(letters).collect();
        assert_eq!(decode::<32>("name", &text), Err(Bech32Error::Padding));
    }
}
