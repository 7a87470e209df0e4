//! The units of a name: characters of its UTF-8 parts, and single bytes of the other parts.

/// A character, or a byte that is not part of a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Unit(u32);

impl Unit {
    /// Returns the unit at an offset and the number of its bytes, or `None` at the end.
    pub(crate) fn at(bytes: &[u8], at: usize) -> Option<(Self, usize)> {
        let first = *bytes.get(at)?;
        if first.is_ascii() {
            return Some((Self(first.into()), 1));
        }
        for length in 2..=4 {
            let text = bytes.get(at..at + length).and_then(|bytes| str::from_utf8(bytes).ok());
            if let Some(letter) = text.and_then(|text| text.chars().next()) {
                return Some((Self(letter.into()), length));
            }
        }
        Some((Self(u32::from(char::MAX) + u32::from(first)), 1))
    }

    /// Writes the bytes of the unit.
    pub(crate) fn write(self, bytes: &mut Vec<u8>) {
        match char::from_u32(self.0) {
            Some(letter) => bytes.extend(letter.encode_utf8(&mut [0; 4]).as_bytes()),
            None => bytes.extend(u8::try_from(self.0 - u32::from(char::MAX))),
        }
    }

    /// Returns the unit of an ASCII character.
    pub(crate) const fn ascii(byte: u8) -> Self {
        Self(byte as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_units_and_so_are_bytes_of_no_character() {
        let bytes = "aé€😀".as_bytes();
        let mut at = 0;
        let mut units = Vec::new();
        while let Some((unit, length)) = Unit::at(bytes, at) {
            units.push((unit, length));
            let mut written = Vec::new();
            unit.write(&mut written);
            assert_eq!(written, &bytes[at..at + length]);
            at += length;
        }
        let of = |letter: char| (Unit(letter.into()), letter.len_utf8());
        assert_eq!(units, [of('a'), of('é'), of('€'), of('😀')]);
        for bytes in [&b"\xff"[..], b"\xc3", b"\xc3(", b"\xe2\x82", b"\x80", b"\xed\xa0\x80"] {
            let first = u32::from(char::MAX) + u32::from(bytes[0]);
            assert_eq!(Unit::at(bytes, 0), Some((Unit(first), 1)), "{bytes:x?}");
            let mut written = Vec::new();
            Unit(first).write(&mut written);
            assert_eq!(written, &bytes[..1]);
        }
        assert_eq!(Unit::at(b"a", 1), None);
    }
}
