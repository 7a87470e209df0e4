//! Patterns of names: `*`, `?` and `[...]`.

use crate::unit::Unit;

/// A pattern for whole names. `*` and `?` also stand for a dot at the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Glob {
    pattern: Box<[u8]>,
    parts: Box<[Part]>,
}

/// A run of bytes that every name contains which a pattern matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Literal {
    /// The bytes, at least one, unless they are the whole name.
    pub bytes: Vec<u8>,
    /// The name begins with the bytes.
    pub is_begin: bool,
    /// The name ends with the bytes.
    pub is_end: bool,
}

/// An error in a pattern, with its offset in the bytes of the pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GlobError {
    /// A `[` has no `]`.
    #[error("`[` has no `]` behind it: close it, or write `\\[` for the character itself")]
    Unclosed {
        /// The offset of the `[`.
        offset: usize,
    },
    /// Nothing is between the brackets.
    #[error("`[` has no character before its `]`: name some, or write `\\]` for that one")]
    EmptyClass {
        /// The offset of the `[`.
        offset: usize,
    },
    /// A range has its end before its beginning.
    #[error("the range ends before it begins: exchange its two ends")]
    Range {
        /// The offset of the range.
        offset: usize,
    },
    /// Nothing follows a backslash.
    #[error("no character follows `\\`: name one, or write `\\\\` for the backslash itself")]
    Escape {
        /// The offset of the backslash.
        offset: usize,
    },
}

impl GlobError {
    /// Returns the offset in the pattern.
    pub(crate) const fn offset(self) -> usize {
        match self {
            Self::Unclosed { offset }
            | Self::EmptyClass { offset }
            | Self::Range { offset }
            | Self::Escape { offset } => offset,
        }
    }
}

/// A part of a pattern. Each matches one character, except `Run`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Part {
    One(Unit),
    Any,
    Class {
        is_negated: bool,
        /// The first and last character of each range.
        ranges: Box<[(Unit, Unit)]>,
    },
    /// Any number of any characters.
    Run,
}

impl Glob {
    /// Parses a pattern.
    ///
    /// # Errors
    /// Returns [`GlobError`] with the first thing that is wrong.
    pub fn new(pattern: &[u8]) -> Result<Self, GlobError> {
        let mut reader = Reader { pattern, at: 0 };
        let mut parts = Vec::new();
        while let Some(part) = reader.part()? {
            // Two adjacent runs mean the same as one.
            if part != Part::Run || parts.last() != Some(&Part::Run) {
                parts.push(part);
            }
        }
        Ok(Self { pattern: pattern.into(), parts: parts.into() })
    }

    /// Returns the pattern as it was written.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.pattern
    }

    /// Returns the literals of the pattern: the longest runs of characters that stand for
    /// themselves, in their order. A pattern that matches one name only has one literal, which is
    /// both its begin and its end.
    #[must_use]
    pub fn literals(&self) -> Vec<Literal> {
        let mut literals = Vec::new();
        let mut run = Literal { bytes: Vec::new(), is_begin: true, is_end: false };
        for part in &self.parts {
            match part.only() {
                Some(unit) => unit.write(&mut run.bytes),
                None => {
                    let next = Literal { bytes: Vec::new(), is_begin: false, is_end: false };
                    literals.push(std::mem::replace(&mut run, next));
                }
            }
        }
        run.is_end = true;
        literals.push(run);
        literals.retain(|run| !run.bytes.is_empty() || run.is_begin && run.is_end);
        literals
    }

    /// Returns whether the pattern matches a name. The time is at most proportional to the product
    /// of their lengths: if the parts after a run do not match, only the last run grows, because a
    /// longer earlier run could reach no position that the last run cannot reach.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        let mut part = 0;
        let mut at = 0;
        // The part after the last run, and the offset in the name up to which the run has matched.
        let mut run: Option<(usize, usize)> = None;
        loop {
            let next = Unit::at(name, at);
            match (self.parts.get(part), next) {
                (Some(Part::Run), _) => {
                    part += 1;
                    run = Some((part, at));
                    continue;
                }
                (Some(one), Some((unit, length))) if one.takes(unit) => {
                    part += 1;
                    at += length;
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            let Some((behind, from)) = run else { return false };
            let Some((_, length)) = Unit::at(name, from) else { return false };
            run = Some((behind, from + length));
            part = behind;
            at = from + length;
        }
    }
}

impl Part {
    /// Returns the character that the part matches, if it matches only one.
    fn only(&self) -> Option<Unit> {
        match self {
            Self::One(one) => Some(*one),
            Self::Class { is_negated: false, ranges } => match ranges[..] {
                [(first, last)] if first == last => Some(first),
                _ => None,
            },
            Self::Any | Self::Class { .. } | Self::Run => None,
        }
    }

    fn takes(&self, unit: Unit) -> bool {
        match self {
            Self::One(one) => *one == unit,
            Self::Any => true,
            Self::Class { is_negated, ranges } => {
                let is_in = ranges.iter().any(|(first, last)| (*first..=*last).contains(&unit));
                is_in != *is_negated
            }
            Self::Run => false,
        }
    }
}

struct Reader<'a> {
    pattern: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    /// Reads the next part; returns `None` at the end.
    fn part(&mut self) -> Result<Option<Part>, GlobError> {
        let offset = self.at;
        let Some(unit) = self.unit() else { return Ok(None) };
        Ok(Some(match unit {
            STAR => Part::Run,
            QUESTION => Part::Any,
            OPEN => self.class(offset)?,
            unit => Part::One(self.escaped(unit, offset)?),
        }))
    }

    /// Reads the class after a `[` at an offset.
    fn class(&mut self, offset: usize) -> Result<Part, GlobError> {
        let is_negated = self.take(EXCLAMATION);
        let mut ranges = Vec::new();
        loop {
            let from = self.at;
            let first = match self.unit().ok_or(GlobError::Unclosed { offset })? {
                CLOSE if ranges.is_empty() => return Err(GlobError::EmptyClass { offset }),
                CLOSE => return Ok(Part::Class { is_negated, ranges: ranges.into() }),
                unit => self.escaped(unit, from)?,
            };
            let last = self.end_of_range(first, offset)?;
            if last < first {
                return Err(GlobError::Range { offset: from });
            }
            ranges.push((first, last));
        }
    }

    /// Reads the `-` and the end of a range, if there are any. A `-` before the `]` is a character.
    fn end_of_range(&mut self, first: Unit, offset: usize) -> Result<Unit, GlobError> {
        let before = self.at;
        if !self.take(DASH) {
            return Ok(first);
        }
        let from = self.at;
        match self.unit().ok_or(GlobError::Unclosed { offset })? {
            CLOSE => {
                self.at = before;
                Ok(first)
            }
            unit => self.escaped(unit, from),
        }
    }

    /// Returns a unit that was read at an offset, or the next unit if it is a backslash.
    fn escaped(&mut self, unit: Unit, offset: usize) -> Result<Unit, GlobError> {
        if unit == BACKSLASH { self.unit().ok_or(GlobError::Escape { offset }) } else { Ok(unit) }
    }

    fn take(&mut self, expected: Unit) -> bool {
        let is_there = Unit::at(self.pattern, self.at).is_some_and(|(unit, _)| unit == expected);
        self.at += usize::from(is_there);
        is_there
    }

    fn unit(&mut self) -> Option<Unit> {
        let (unit, length) = Unit::at(self.pattern, self.at)?;
        self.at += length;
        Some(unit)
    }
}

const STAR: Unit = Unit::ascii(b'*');
const QUESTION: Unit = Unit::ascii(b'?');
const OPEN: Unit = Unit::ascii(b'[');
const CLOSE: Unit = Unit::ascii(b']');
const EXCLAMATION: Unit = Unit::ascii(b'!');
const DASH: Unit = Unit::ascii(b'-');
const BACKSLASH: Unit = Unit::ascii(b'\\');

#[cfg(test)]
mod tests;
