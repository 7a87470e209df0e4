//! The client's end of a session.

use std::collections::{BTreeMap, BTreeSet};

/// The client's end of a session: numbers requests, and knows which are not answered.
#[derive(Debug)]
pub struct ClientSession {
    last_number: u64,
    last_mutation: u64,
    /// The mutation number of each request under way; 0 for one that is no mutation.
    under_way: BTreeMap<u64, u64>,
    /// Mutations that were answered, above `acknowledged`.
    answered: BTreeSet<u64>,
    /// Every mutation up to this one was answered.
    acknowledged: u64,
}

/// The numbers of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// The request's number in its session, from 1.
    pub number: u64,
    /// Its number among the mutations, from 1; 0 if it is none.
    pub mutation: u64,
}

impl ClientSession {
    /// Returns a session without requests.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            last_number: 0,
            last_mutation: 0,
            under_way: BTreeMap::new(),
            answered: BTreeSet::new(),
            acknowledged: 0,
        }
    }

    /// Numbers a request, which is under way from now on.
    pub fn begin(&mut self, is_mutation: bool) -> Numbers {
        self.last_number += 1;
        let mutation = if is_mutation {
            self.last_mutation += 1;
            self.last_mutation
        } else {
            0
        };
        self.under_way.insert(self.last_number, mutation);
        Numbers { number: self.last_number, mutation }
    }

    /// Records an answer. Returns whether the request was under way: an answer to any other number
    /// is one that was repeated, or a mistake of the server.
    pub fn answered(&mut self, number: u64) -> bool {
        let Some(mutation) = self.under_way.remove(&number) else { return false };
        if mutation > 0 {
            self.answered.insert(mutation);
            while self.answered.remove(&(self.acknowledged + 1)) {
                self.acknowledged += 1;
            }
        }
        true
    }

    /// Returns the newest mutation up to which all are answered.
    #[must_use]
    pub const fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Returns how many mutations the server must remember at most.
    #[must_use]
    pub const fn unacknowledged(&self) -> u64 {
        self.last_mutation - self.acknowledged
    }

    /// Returns the numbers of the requests under way, in the order in which they began: the order
    /// in which they are sent again over a new connection.
    pub fn under_way(&self) -> impl Iterator<Item = u64> + '_ {
        self.under_way.keys().copied()
    }

    /// Begins again in a session that the server does not know: numbers begin from 1. `keep` says
    /// which of the requests under way are asked again; the others are over. Returns, for each that
    /// is asked again, its old number and its new numbers.
    pub fn renumber(&mut self, mut keep: impl FnMut(u64) -> bool) -> Vec<(u64, Numbers)> {
        let old = std::mem::take(&mut self.under_way);
        *self = Self::new();
        let kept = old.into_iter().filter(|(number, _)| keep(*number));
        kept.map(|(number, mutation)| (number, self.begin(mutation > 0))).collect()
    }
}

impl Default for ClientSession {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_are_dense_and_acknowledged_in_order() {
        let mut session = ClientSession::new();
        let [one, read, two, three] = [true, false, true, true].map(|is| session.begin(is));
        assert_eq!([one, read, two, three].map(|it| it.mutation), [1, 0, 2, 3]);
        assert!(session.answered(two.number));
        assert_eq!((session.acknowledged(), session.unacknowledged()), (0, 3));
        assert!(session.answered(one.number));
        assert_eq!((session.acknowledged(), session.unacknowledged()), (2, 1));
        assert!(!session.answered(one.number), "an answer counts once");
        assert_eq!(session.under_way().collect::<Vec<_>>(), [read.number, three.number]);
    }

    /// What is not asked again leaves no gap: the new server never sees its number.
    #[test]
    fn a_new_session_numbers_what_is_asked_again_in_its_order() {
        let mut session = ClientSession::new();
        let numbers = [true, false, true, true].map(|is| session.begin(is));
        assert!(session.answered(numbers[0].number));
        let again = session.renumber(|number| number != numbers[2].number);
        let expected =
            [(2, Numbers { number: 1, mutation: 0 }), (4, Numbers { number: 2, mutation: 1 })];
        assert_eq!(again, expected);
        assert_eq!((session.acknowledged(), session.unacknowledged()), (0, 1));
    }
}
