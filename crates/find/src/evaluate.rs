//! Evaluation of a query for one file.

use std::borrow::Cow;
use std::cmp::Ordering;

use pelago_wire::{FileKind, Time};

use crate::expr::{Expr, FileOwner, Term, When};

/// A file for which a query is evaluated.
pub trait Candidate {
    /// Returns the last component of the file's path.
    fn name(&self) -> &[u8];

    /// Returns the kind of the file.
    fn kind(&self) -> FileKind;

    /// Returns the size of the file in bytes.
    fn size(&self) -> u64;

    /// Returns the time of the last change of the bytes.
    fn mtime(&self) -> Time;

    /// Returns the number of the owner.
    fn uid(&self) -> u32;

    /// Returns the value of the tag with this key, the extended attribute `user.tag.KEY`.
    fn tag(&self, key: &str) -> Option<Cow<'_, [u8]>>;

    /// Returns whether the text of the file has all these words. They are at least one, in the form
    /// that [`words`](crate::words) returns.
    fn has_text(&self, words: &[String]) -> bool;

    /// Returns the id of the user with this name; `None` if there is no such user, who then owns no
    /// file.
    fn uid_of(&self, name: &str) -> Option<u32>;
}

/// Returns whether a file matches at the time `now`. Parts are evaluated in their order, until the
/// result is certain.
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

/// Returns the order of a change's age to an age, or of its day to a day. A change after `now` has
/// a negative age.
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

/// Returns nanoseconds. The result fits for every number of seconds with 65 bits.
fn nanos(seconds: i128, nanos: u32) -> i128 {
    seconds * 1_000_000_000 + i128::from(nanos)
}

#[cfg(test)]
mod tests;
