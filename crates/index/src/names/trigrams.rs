//! Trigrams: three bytes of a name beside each other, with a mark at its begin and its end.

use std::{mem, slice};

/// The marks are symbols beyond all bytes.
const BEGIN: u64 = 256;
const END: u64 = 257;
/// Bits of a symbol.
const BITS: u32 = 9;

/// The trigrams of bytes, in their order.
pub(super) struct Trigrams<'a> {
    symbols: Symbols<'a>,
    last: [u64; 2],
}

/// Returns the trigrams of bytes, in their order; with marks where the bytes begin or end a name.
pub(super) fn trigrams(bytes: &[u8], is_begin: bool, is_end: bool) -> Trigrams<'_> {
    let mut symbols = Symbols { is_begin, bytes: bytes.iter(), is_end };
    let first = symbols.next();
    let second = symbols.next();
    // With fewer than two symbols there is no third one.
    Trigrams { symbols, last: [first.unwrap_or_default(), second.unwrap_or_default()] }
}

impl Iterator for Trigrams<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let symbol = self.symbols.next()?;
        let [one, two] = self.last;
        self.last = [two, symbol];
        Some((one << BITS | two) << BITS | symbol)
    }
}

/// Bytes and marks.
struct Symbols<'a> {
    /// The mark of the begin is next.
    is_begin: bool,
    bytes: slice::Iter<'a, u8>,
    /// The mark of the end comes after the bytes.
    is_end: bool,
}

impl Iterator for Symbols<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if mem::take(&mut self.is_begin) {
            return Some(BEGIN);
        }
        match self.bytes.next() {
            Some(byte) => Some(u64::from(*byte)),
            None => mem::take(&mut self.is_end).then_some(END),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8], is_begin: bool, is_end: bool) -> Vec<u64> {
        trigrams(bytes, is_begin, is_end).collect()
    }

    #[test]
    fn a_name_has_a_trigram_for_each_byte() {
        assert_eq!(of(b"a", true, true), [(256 << 9 | 97) << 9 | 257]);
        assert_eq!(of(b"ab", true, true).len(), 2);
        assert_eq!(of(b"\xff\x00x", true, true).len(), 3);
        assert_eq!(of(b"abc", false, false), [(97 << 9 | 98) << 9 | 99]);
        assert_eq!(of(b"abc", true, false), of(b"abcd", true, true)[..2]);
        assert_eq!(of(b"bcd", false, true), of(b"abcd", true, true)[2..]);
        assert!(of(b"", true, true).is_empty() && of(b"a", true, false).is_empty());
        assert!(of(b"ab", false, false).is_empty() && of(b"", false, false).is_empty());
    }
}
