//! Whether a file matches.

use std::borrow::Cow;
use std::cmp::Ordering;

use pelago_wire::{FileKind, Time};

use crate::expr::{Expr, FileOwner, Term, When};

/// A file of which a query is asked.
pub trait Candidate {
    /// Returns the last component of the file's path.
    fn name(&self) -> &[u8];

    /// Returns the kind of the file.
    fn kind(&self) -> FileKind;

    /// Returns the bytes of the file.
    fn size(&self) -> u64;

    /// Returns the time of the last change of the bytes.
    fn mtime(&self) -> Time;

    /// Returns the number of the owner.
    fn uid(&self) -> u32;

    /// Returns the value of the tag with this key, the extended attribute `user.tag.KEY`.
    fn tag(&self, key: &str) -> Option<Cow<'_, [u8]>>;

    /// Returns whether the text of the file has all these words, at least one, which are as
    /// [`words`](crate::words) makes them.
    fn has_text(&self, words: &[String]) -> bool;

    /// Returns the number of the user with this name; `None` if there is none, who then owns
    /// nothing.
    fn uid_of(&self, name: &str) -> Option<u32>;
}

/// Returns whether a file matches at a time. Parts are asked in the order in which they stand, as
/// far as needed.
pub(crate) fn matches(expr: &Expr, file: &(impl Candidate + ?Sized), now: Time) -> bool {
    match expr {
        Expr::And(parts) => parts.iter().all(|part| matches(part, file, now)),
        Expr::Or(parts) => parts.iter().any(|part| matches(part, file, now)),
        Expr::Not(part) => !matches(part, file, now),
        Expr::Term(term) => term_matches(term, file, now),
    }
}

fn term_matches(term: &Term, file: &(impl Candidate + ?Sized), now: Time) -> bool {
    match term {
        Term::Tag { key, value } => file.tag(key.as_str()).is_some_and(|found| *found == **value),
        Term::HasTag(key) => file.tag(key.as_str()).is_some(),
        Term::Name(name) => file.name() == name.as_bytes(),
        Term::NameLike(glob) => glob.matches(file.name()),
        Term::Size { comparison, bytes } => comparison.holds(file.size().cmp(bytes)),
        Term::Mtime { comparison, when } => comparison.holds(order(*when, file.mtime(), now)),
        Term::Kind(kind) => file.kind() == *kind,
        Term::Owner(FileOwner::Uid(uid)) => file.uid() == *uid,
        Term::Owner(FileOwner::Name(name)) => file.uid_of(name) == Some(file.uid()),
        Term::Text(words) => file.has_text(words),
    }
}

/// Returns how the age of a change compares with an age, or its day with a day. A change after
/// `now` has a negative age.
fn order(when: When, mtime: Time, now: Time) -> Ordering {
    match when {
        When::Ago(seconds) => {
            let age =
                nanos(now.seconds.into(), now.nanos) - nanos(mtime.seconds.into(), mtime.nanos);
            age.cmp(&nanos(seconds.into(), 0))
        }
        When::Day(day) => day.order(mtime),
    }
}

/// Returns nanoseconds; those of any 65 bits of seconds fit.
fn nanos(seconds: i128, nanos: u32) -> i128 {
    seconds * 1_000_000_000 + i128::from(nanos)
}

#[cfg(test)]
mod tests;
