//! Locks that programs report to have held, and the search for two that were held at the same time.

use std::ops::{Range, RangeInclusive};

/// A lock that a program held, as the replies to its calls say: from the return of the call that
/// set it to the beginning of the last call under it, or of the call that released it, that
/// returned no error. A call that fails says that the lock may have been lost since the call
/// before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    /// The number of the program.
    pub(super) program: usize,
    /// The number of the file.
    pub(super) file: usize,
    pub(super) is_exclusive: bool,
    bytes: RangeInclusive<u64>,
    /// The time by `CLOCK_MONOTONIC`, in microseconds.
    micros: Range<u64>,
    /// How the last call ended.
    pub(super) last: String,
}

impl Held {
    /// Parses a line of a program: kind, first and last byte, beginning and end in microseconds,
    /// and how its last call ended.
    pub(super) fn parse(program: usize, file: usize, line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [kind, start, end, from, until, last] = words[..] else { return None };
        let number = |word: &str| word.parse::<u64>().ok();
        let bytes = number(start)?..=number(end)?;
        let micros = number(from)?..number(until)?;
        let is_exclusive = kind == "write";
        Some(Self { program, file, is_exclusive, bytes, micros, last: last.to_owned() })
    }

    /// Returns the time for which both held locks that exclude each other, in microseconds.
    fn overlap(&self, other: &Self) -> u64 {
        let excludes = self.program != other.program
            && self.file == other.file
            && (self.is_exclusive || other.is_exclusive)
            && self.bytes.start() <= other.bytes.end()
            && other.bytes.start() <= self.bytes.end();
        let from = self.micros.start.max(other.micros.start);
        let until = self.micros.end.min(other.micros.end);
        if excludes { until.saturating_sub(from) } else { 0 }
    }
}

/// Returns a finding for each two programs that held a lock at the same time.
pub(super) fn check(held: &mut [Held]) -> Vec<String> {
    held.sort_by_key(|held| (held.file, held.micros.start, held.micros.end));
    let mut wrong = Vec::new();
    for (at, one) in held.iter().enumerate() {
        let later = held[at + 1..].iter();
        let meanwhile =
            later.take_while(|it| it.file == one.file && it.micros.start < one.micros.end);
        for other in meanwhile {
            let micros = one.overlap(other);
            if micros > 0 {
                wrong.push(format!("two had a lock for {micros} µs: {one:?} and {other:?}"));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrongs(lines: &[(usize, usize, &str)]) -> usize {
        let parsed = |(program, file, line): &(usize, usize, &str)| {
            Held::parse(*program, *file, line).unwrap()
        };
        check(&mut lines.iter().map(parsed).collect::<Vec<_>>()).len()
    }

    /// A mount that trusts its lock for 0.3 s too long.
    #[test]
    fn two_that_have_one_lock_at_one_time_are_found() {
        let first = (1, 0, "write 0 9 1000000 11300000 unlock");
        assert_eq!(wrongs(&[(2, 0, "write 0 9 11000000 12000000 unlock"), first]), 1);
        assert_eq!(wrongs(&[first, (2, 0, "read 9 20 11299999 12000000 read")]), 1);
        // After one that both of them exclude, and that is over.
        let between = (3, 0, "write 0 9 2000000 2000000 EIO");
        assert_eq!(wrongs(&[first, between, (2, 0, "write 0 0 5000000 6000000 close")]), 1);
    }

    #[test]
    fn those_that_exclude_each_other_in_turn_or_not_at_all_are_right() {
        let first = (1, 0, "write 0 9 1000000 11300000 unlock");
        for other in [
            (2, 0, "write 0 9 11300000 12000000 unlock"),
            (2, 0, "write 10 19 5000000 6000000 unlock"),
            (2, 1, "write 0 9 5000000 6000000 unlock"),
            (1, 0, "write 0 9 5000000 6000000 unlock"),
        ] {
            assert_eq!(wrongs(&[first, other]), 0, "{other:?}");
        }
        let shared = ["read 0 9 1000000 3000000 read", "read 0 9 2000000 4000000 read"];
        assert_eq!(wrongs(&[(1, 0, shared[0]), (2, 0, shared[1])]), 0);
    }

    #[test]
    fn only_what_a_program_says_is_read() {
        assert!(Held::parse(1, 0, "write 0 9 5 6 unlock").is_some());
        for wrong in ["", "write 0 9 5 6", "write 0 9 5 x unlock", "write 0 9 5 6 unlock more"] {
            assert_eq!(Held::parse(1, 0, wrong), None, "{wrong}");
        }
    }
}
