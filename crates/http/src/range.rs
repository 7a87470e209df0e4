//! The Range header (RFC 9110, 14.2).

use std::ops::Range;

/// The part of a file that a response has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// The whole file.
    Whole,
    /// A range that is not empty, and within the file.
    Some(Range<u64>),
    /// Nothing: the range begins beyond the end of the file.
    Unsatisfiable,
}

/// Returns the part of a file of this size that a Range header requests.
///
/// A header with an unknown syntax or with several ranges is ignored, as a server may: many small
/// ranges would cost the server more than the whole file.
pub(crate) fn part(header: &str, size: u64) -> Part {
    let Some((first, last)) =
        header.trim().strip_prefix("bytes=").and_then(|it| it.split_once('-'))
    else {
        return Part::Whole;
    };
    let first = first.trim();
    let last = last.trim();
    if last.contains(',') {
        return Part::Whole;
    }
    let range = match (number(first), number(last)) {
        // The last bytes of the file.
        (None, Some(count)) if first.is_empty() => match count {
            0 => return Part::Unsatisfiable,
            count => size.saturating_sub(count)..size,
        },
        (Some(first), None) if last.is_empty() => first..size,
        (Some(first), Some(last)) if first <= last => first..size.min(last.saturating_add(1)),
        _ => return Part::Whole,
    };
    if range.is_empty() { Part::Unsatisfiable } else { Part::Some(range) }
}

/// Parses digits; a number beyond 64 bits becomes the greatest.
fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_the_end_of_the_file() {
        let cases = [
            ("bytes=0-0", Part::Some(0..1)),
            ("bytes=10-19", Part::Some(10..20)),
            ("bytes=10-", Part::Some(10..100)),
            ("bytes=90-200", Part::Some(90..100)),
            ("bytes=-5", Part::Some(95..100)),
            ("bytes=-500", Part::Some(0..100)),
            ("bytes=0-99999999999999999999999", Part::Some(0..100)),
            ("bytes=100-", Part::Unsatisfiable),
            ("bytes=99999999999999999999999-", Part::Unsatisfiable),
            ("bytes=-0", Part::Unsatisfiable),
        ];
        for (header, expected) in cases {
            assert_eq!(part(header, 100), expected, "{header}");
        }
        assert_eq!(part("bytes=0-", 0), Part::Unsatisfiable);
        assert_eq!(part("bytes=-1", 0), Part::Unsatisfiable);
    }

    #[test]
    fn what_is_no_single_range_is_ignored() {
        let ignored =
            ["", "bytes", "bytes=", "bytes=-", "bytes=5-4", "bytes=a-b", "lines=1-2", "bytes=1-+2"];
        for header in ignored.into_iter().chain(["bytes=0-1,5-6", "bytes=0-0, -1"]) {
            assert_eq!(part(header, 100), Part::Whole, "{header}");
        }
    }
}
