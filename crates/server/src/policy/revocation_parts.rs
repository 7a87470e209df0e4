//! The comparison of the revocations of two sites.
//!
//! The set of revocations only grows, but for credentials that have ended long since. A site finds
//! those that it lacks by the hashes of 256 parts: a part has the ids that begin with one byte.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pelago_keynote::{Revocation, RevocationSubject};
use pelago_wire::{Code, Error, PassedRevocation, limits};

use super::revocations::{InForceRevocation, Revoked};
use super::{Policy, moment};

/// The parts of all revocations.
const PARTS: usize = 256;
/// Bytes of the hash of a part.
const PART_BYTES: usize = limits::REVOKED_PARTS_BYTES / PARTS;

/// Two clocks that differ a little leave ended revocations out at the same time, but for a moment.
const HOUR: u64 = 60 * 60;

/// The hashes of the revocations of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RevocationParts {
    /// The hash of each part, one after another.
    pub(crate) parts: Vec<u8>,
    /// The hash of all.
    pub(crate) whole: [u8; 32],
}

/// The hashes that were made last, with the number of changes and the hour for which they hold.
#[derive(Default)]
pub(super) struct CachedParts(Option<(u64, u64, Arc<RevocationParts>)>);

impl RevocationParts {
    /// Returns the hashes of a set, which is in order.
    fn of(sorted: &[[u8; 32]]) -> Self {
        let mut parts = Vec::with_capacity(limits::REVOKED_PARTS_BYTES);
        for part in 0..=u8::MAX {
            let begin = sorted.partition_point(|id| id[0] < part);
            let end = sorted.partition_point(|id| id[0] <= part);
            let mut hasher = blake3::Hasher::new();
            sorted.get(begin..end).unwrap_or_default().iter().for_each(|id| {
                hasher.update(id);
            });
            parts.extend_from_slice(&hasher.finalize().as_bytes()[..PART_BYTES]);
        }
        let whole = *blake3::hash(&parts).as_bytes();
        Self { parts, whole }
    }
}

/// Returns a bit for each part whose hash differs: part 0 is bit 0 of the first byte.
///
/// # Errors
/// `Invalid` if there are not as many hashes as parts.
pub(crate) fn differing(one: &[u8], other: &[u8]) -> Result<[u8; 32], Error> {
    let mut bits = [0; 32];
    if one.len() != limits::REVOKED_PARTS_BYTES || other.len() != one.len() {
        return Err(Code::Invalid.into());
    }
    let pairs = one.chunks(PART_BYTES).zip(other.chunks(PART_BYTES));
    for (part, (one, other)) in pairs.enumerate() {
        if one != other
            && let Some(byte) = bits.get_mut(part / 8)
        {
            *byte |= 1 << (part % 8);
        }
    }
    Ok(bits)
}

/// Returns whether what has this id lies in one of these parts.
fn is_in(bits: &[u8; 32], id: &[u8; 32]) -> bool {
    let part = id[0];
    bits.get(usize::from(part / 8)).is_some_and(|byte| byte & (1 << (part % 8)) != 0)
}

impl Policy {
    /// Returns the hashes of the revocations that are in force.
    pub(crate) fn revocation_parts(&self) -> Arc<RevocationParts> {
        let mut cached = self.parts.lock();
        // Before they are read: if there is another one meanwhile, they are read again.
        let changes = self.revocations.load(Ordering::Acquire);
        let hour = moment::seconds() / HOUR;
        if let Some((of, at, parts)) = &cached.0
            && (*of, *at) == (changes, hour)
        {
            return Arc::clone(parts);
        }
        let parts = Arc::new(RevocationParts::of(&self.revoked_in(&[u8::MAX; 32])));
        cached.0 = Some((changes, hour, Arc::clone(&parts)));
        parts
    }

    /// Returns what is taken back in these parts, in order, without what has ended.
    pub(crate) fn revoked_in(&self, bits: &[u8; 32]) -> Vec<[u8; 32]> {
        let hour = moment::seconds() / HOUR * HOUR;
        let counts = |(id, taken): &(&[u8; 32], &InForceRevocation)| {
            // A damaged row has no sentence to pass on.
            is_in(bits, id) && taken.by.is_some() && !taken.has_ended(hour)
        };
        let revoked = self.revoked.read();
        let mut found: Vec<_> = revoked.iter().filter(counts).map(|(id, _)| *id).collect();
        found.sort_unstable();
        found
    }

    /// Reads a revocation that the first site has passed on. That one has checked the rights of who
    /// has signed it.
    ///
    /// # Errors
    /// `Invalid` if it is no revocation for this volume.
    pub(crate) fn read_passed(&self, passed: &PassedRevocation) -> Result<Revoked, Error> {
        let revocation = self.read_sentence(&passed.sentence)?;
        let id = revocation.subject.bytes();
        let end = end_of(&revocation, passed.end);
        // It must be kept, whatever room there is.
        Ok(Revoked { id, by: revocation.by, is_of_root: true, end, ended: vec![] })
    }

    /// Reads a revocation that another site than the first one has made, which has checked the
    /// rights of who has signed it.
    ///
    /// # Errors
    /// `Invalid` if it is no revocation for this volume, or one of a root; `NoSpace`.
    pub(crate) fn read_passed_by_site(&self, passed: &PassedRevocation) -> Result<Revoked, Error> {
        let revocation = self.read_sentence(&passed.sentence)?;
        if let RevocationSubject::Key(key) = revocation.subject
            && self.is_root(&key)
        {
            return Err(Code::Invalid.into());
        }
        self.with_room(&revocation, end_of(&revocation, passed.end))
    }

    /// Reads and verifies a sentence.
    fn read_sentence(&self, sentence: &[u8]) -> Result<Revocation, Error> {
        let invalid = |why: &str| {
            tracing::error!(why, "a revocation that another office passes on is refused");
            Error::from(Code::Invalid)
        };
        let revocation =
            Revocation::parse(sentence).map_err(|error| invalid(&error.to_string()))?;
        if revocation.volume != self.volume.0 {
            return Err(invalid("it is of another volume"));
        }
        revocation.verify().map_err(|error| invalid(&error.to_string()))?;
        Ok(revocation)
    }
}

/// Returns the end of what a revocation takes back: a key has none.
const fn end_of(revocation: &Revocation, end: u64) -> u64 {
    match revocation.subject {
        RevocationSubject::Key(_) => 0,
        RevocationSubject::Credential(_) => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_parts_that_differ_are_named() {
        let id = |first: u8, last: u8| {
            let mut id = [first; 32];
            id[31] = last;
            id
        };
        let some = RevocationParts::of(&[id(0, 1), id(9, 1), id(255, 1)]);
        assert_eq!(differing(&some.parts, &some.parts), Ok([0; 32]));
        let other = RevocationParts::of(&[id(0, 1), id(9, 1), id(9, 2), id(254, 1)]);
        assert_ne!(some.whole, other.whole);
        let bits = differing(&some.parts, &other.parts).unwrap();
        for part in 0..=u8::MAX {
            assert_eq!(is_in(&bits, &id(part, 0)), [9, 254, 255].contains(&part), "{part}");
        }
        for wrong in [0, 1, limits::REVOKED_PARTS_BYTES - 1, limits::REVOKED_PARTS_BYTES + 1] {
            let refused = differing(&vec![0; wrong], &some.parts);
            assert_eq!(refused.map_err(|error| error.code), Err(Code::Invalid), "{wrong}");
        }
    }
}
