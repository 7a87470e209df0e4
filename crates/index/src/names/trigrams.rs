//! Trigrams: three bytes of a name beside each other, with a mark at its begin and its end.

/// The marks are symbols beyond all bytes.
const BEGIN: u64 = 256;
const END: u64 = 257;
/// Bits of a symbol.
const BITS: u32 = 9;

/// Returns the trigrams of bytes, in their order; with marks where the bytes begin or end a name.
pub(super) fn trigrams(bytes: &[u8], is_begin: bool, is_end: bool) -> impl Iterator<Item = u64> {
    let begin = is_begin.then_some(BEGIN).into_iter();
    let end = is_end.then_some(END).into_iter();
    let mut symbols = begin.chain(bytes.iter().map(|byte| u64::from(*byte))).chain(end);
    let (first, second) = (symbols.next(), symbols.next());
    let mut last = [first.unwrap_or_default(), second.unwrap_or_default()];
    // With fewer than two symbols there is no third one.
    symbols.map(move |symbol| {
        let [one, two] = last;
        last = [two, symbol];
        (one << BITS | two) << BITS | symbol
    })
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
