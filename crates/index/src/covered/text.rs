//! The text in which a commit stores what an index covers.

use pelago_wire::Time;

use super::{Covered, Origin};

/// The version of these bytes, and of all that the documents of an index mean.
const VERSION: u8 = 2;
/// Version, volume, commit, epoch, sequence, seconds, nanoseconds, flags.
const BYTES: usize = 1 + 16 + 8 + 8 + 8 + 8 + 4 + 1;

impl Covered {
    /// Returns the text that a commit stores: bytes as hexadecimal digits.
    pub(crate) fn to_text(self) -> String {
        let mut bytes = vec![VERSION];
        bytes.extend(self.origin.volume);
        bytes.extend(self.origin.commit.to_le_bytes());
        bytes.extend(self.epoch.to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(self.as_of.seconds.to_le_bytes());
        bytes.extend(self.as_of.nanos.to_le_bytes());
        bytes.push(self.is_complete.into());
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads such a text; returns `None` if it is none, or of another version.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * BYTES {
            return None;
        }
        let bytes: Option<Vec<u8>> = digits.chunks_exact(2).map(byte).collect();
        let bytes = bytes?;
        let (version, bytes) = bytes.split_first()?;
        let (volume, bytes) = bytes.split_first_chunk()?;
        let (commit, bytes) = bytes.split_first_chunk()?;
        let (epoch, bytes) = bytes.split_first_chunk()?;
        let (sequence, bytes) = bytes.split_first_chunk()?;
        let (seconds, bytes) = bytes.split_first_chunk()?;
        let (nanos, flags) = bytes.split_first_chunk()?;
        let is_complete = match flags {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        let seconds = i64::from_le_bytes(*seconds);
        let nanos = u32::from_le_bytes(*nanos);
        let origin = Origin { volume: *volume, commit: u64::from_le_bytes(*commit) };
        (*version == VERSION).then(|| Self {
            origin,
            epoch: u64::from_le_bytes(*epoch),
            sequence: u64::from_le_bytes(*sequence),
            as_of: Time { seconds, nanos },
            is_complete,
        })
    }
}

/// Returns the byte that two digits mean.
fn byte(digits: &[u8]) -> Option<u8> {
    let digit = |digit: &u8| char::from(*digit).to_digit(16);
    let [high, low] = digits else { return None };
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first() -> Covered {
        let origin = Origin { volume: *b"0123456789abcdef", commit: 3 };
        let as_of = Time::default();
        Covered { origin, epoch: 1, sequence: 2, as_of, is_complete: true }
    }

    #[test]
    fn what_is_covered_is_read_as_it_was_stored() {
        let as_of = Time { seconds: -2, nanos: 999_999_999 };
        for is_complete in [false, true] {
            let origin = Origin { volume: *b"0123456789abcdef", commit: u64::MAX - 1 };
            let covered = Covered { origin, epoch: 3, sequence: u64::MAX, as_of, is_complete };
            assert_eq!(Covered::from_text(&covered.to_text()), Some(covered));
        }
        let first = first();
        let text = "02303132333435363738396162636465660300000000000000\
                    0100000000000000020000000000000000000000000000000000000001";
        assert_eq!(first.to_text(), text);
    }

    #[test]
    fn other_texts_are_refused() {
        let text = first().to_text();
        for wrong in ["", "x", &text[2..], &format!("{text}00"), &text.replacen("02", "01", 1)] {
            assert_eq!(Covered::from_text(wrong), None, "{wrong}");
        }
        assert_eq!(Covered::from_text(&format!("{}02", &text[..106])), None);
        assert_eq!(Covered::from_text(&text.replacen('0', "g", 1)), None);
    }
}
