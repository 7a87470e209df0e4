//! The client's end of a session: the numbers of requests, and the mutations that may have to be
//! replayed.

use std::collections::BTreeMap;

use pelago_wire::codec::ReplyStamp;

/// The client's end of a session. It numbers requests, and records which are not answered, and
/// which mutations are answered and not safe. The latter are *kept*: a server that has lost them
/// carries them out again.
#[derive(Debug)]
pub struct ClientSession {
    last_number: u64,
    last_mutation: u64,
    /// The mutation number of each request under way; 0 for one that is no mutation.
    under_way: BTreeMap<u64, u64>,
    /// Mutations above `acknowledged` that were answered; `Some` for one that is kept.
    answered: BTreeMap<u64, Option<Kept>>,
    /// Every mutation up to this one was answered and is safe.
    acknowledged: u64,
    /// The newest stamp that is safe.
    safe: ReplyStamp,
}

/// A mutation that was answered and is not safe.
#[derive(Debug, Clone, Copy)]
struct Kept {
    number: u64,
    /// The stamp of its first answer: its place among the replayed mutations.
    first: ReplyStamp,
    /// The stamp of its last answer, which must become safe.
    last: ReplyStamp,
    /// It is replayed, and the replay is not answered.
    is_replayed: bool,
}

impl Kept {
    const fn new(number: u64, stamp: ReplyStamp) -> Self {
        Self { number, first: stamp, last: stamp, is_replayed: false }
    }
}

/// The meaning of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerTo {
    /// The request was not under way: the answer was repeated, or is a mistake of the server.
    Nothing,
    /// It answers a request under way.
    Request {
        /// The request is a mutation that is not safe, and is kept.
        is_kept: bool,
    },
    /// It answers a replayed mutation.
    Replay {
        /// The mutation is still not safe, and is kept.
        is_kept: bool,
    },
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
            answered: BTreeMap::new(),
            acknowledged: 0,
            safe: ReplyStamp { epoch: 0, sequence: 0 },
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

    /// Records an answer. The sequence of its stamp is 0 if the mutation cannot be lost.
    pub fn answered(&mut self, number: u64, stamp: ReplyStamp) -> AnswerTo {
        let is_kept = stamp.sequence > 0 && !self.is_safe(stamp);
        if let Some(mutation) = self.under_way.remove(&number) {
            let is_kept = is_kept && mutation > 0;
            if mutation > 0 {
                let kept = is_kept.then(|| Kept::new(number, stamp));
                self.answered.insert(mutation, kept);
                self.acknowledge();
            }
            return AnswerTo::Request { is_kept };
        }
        let mut all = self.answered.values_mut();
        let replayed = |kept: &&mut Option<Kept>| {
            kept.as_ref().is_some_and(|kept| kept.number == number && kept.is_replayed)
        };
        let Some(answered) = all.find(replayed) else { return AnswerTo::Nothing };
        // The first stamp stays: later mutations may not be answered again before the server dies
        // once more, and the order of the first answers is the order of the replay.
        let anew = |kept| Kept { last: stamp, is_replayed: false, ..kept };
        *answered = answered.filter(|_| is_kept).map(anew);
        self.acknowledge();
        AnswerTo::Replay { is_kept }
    }

    /// Records that everything up to this stamp is safe. Returns the numbers of the requests that
    /// are not kept any longer.
    pub fn safe(&mut self, stamp: ReplyStamp) -> Vec<u64> {
        if stamp <= self.safe {
            return Vec::new();
        }
        self.safe = stamp;
        let mut over = Vec::new();
        for answered in self.answered.values_mut() {
            // A replayed mutation gets another stamp.
            if let Some(kept) = answered.filter(|kept| !kept.is_replayed)
                && kept.last.epoch == stamp.epoch
                && kept.last.sequence <= stamp.sequence
            {
                over.push(kept.number);
                *answered = None;
            }
        }
        self.acknowledge();
        over
    }

    const fn is_safe(&self, stamp: ReplyStamp) -> bool {
        stamp.epoch == self.safe.epoch && stamp.sequence <= self.safe.sequence
    }

    fn acknowledge(&mut self) {
        while let Some(None) = self.answered.get(&(self.acknowledged + 1)) {
            self.acknowledged += 1;
            self.answered.remove(&self.acknowledged);
        }
    }

    /// Begins a replay of all kept mutations, because the server has begun another epoch.
    pub fn replay(&mut self) {
        for kept in self.answered.values_mut().flatten() {
            kept.is_replayed = true;
        }
    }

    /// Returns the replayed mutations that are not answered again, in their order: the number of
    /// the request and the stamp of the first answer.
    pub fn replays(&self) -> impl Iterator<Item = (u64, ReplyStamp)> + '_ {
        let kept = self.answered.values().flatten().filter(|kept| kept.is_replayed);
        kept.map(|kept| (kept.number, kept.first))
    }

    /// Returns the newest mutation up to which all are answered and safe.
    #[must_use]
    pub const fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Returns the number of mutations that are not acknowledged: the server may have to store the
    /// answers to all of them.
    #[must_use]
    pub const fn unacknowledged(&self) -> u64 {
        self.last_mutation - self.acknowledged
    }

    /// Returns the numbers of the requests under way, in the order in which they began: the order
    /// in which they are sent again over a new connection.
    pub fn under_way(&self) -> impl Iterator<Item = u64> + '_ {
        self.under_way.keys().copied()
    }

    /// Begins a new session, because the server does not know the old one: numbers begin from 1.
    /// `keep` returns whether a request under way is repeated; the others are over. Returns the old
    /// number and the new numbers of each repeated request.
    pub fn renumber(&mut self, mut keep: impl FnMut(u64) -> bool) -> Vec<(u64, Numbers)> {
        let old = std::mem::take(&mut self.under_way);
        *self = Self { safe: self.safe, ..Self::new() };
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

    const NONE: ReplyStamp = ReplyStamp { epoch: 1, sequence: 0 };
    const OVER: AnswerTo = AnswerTo::Request { is_kept: false };
    const KEPT: AnswerTo = AnswerTo::Request { is_kept: true };

    fn at(epoch: u32, sequence: u64) -> ReplyStamp {
        ReplyStamp { epoch, sequence }
    }

    fn replays(session: &mut ClientSession) -> Vec<(u64, ReplyStamp)> {
        session.replay();
        session.replays().collect()
    }

    #[test]
    fn mutations_are_dense_and_acknowledged_in_order() {
        let mut session = ClientSession::new();
        let [one, read, two, three] = [true, false, true, true].map(|is| session.begin(is));
        assert_eq!([one, read, two, three].map(|it| it.mutation), [1, 0, 2, 3]);
        assert_eq!(session.answered(two.number, NONE), OVER);
        assert_eq!((session.acknowledged(), session.unacknowledged()), (0, 3));
        assert_eq!(session.answered(one.number, NONE), OVER);
        assert_eq!((session.acknowledged(), session.unacknowledged()), (2, 1));
        let again = session.answered(one.number, NONE);
        assert_eq!(again, AnswerTo::Nothing, "an answer counts once");
        assert_eq!(session.under_way().collect::<Vec<_>>(), [read.number, three.number]);
    }

    /// A mutation is acknowledged when it is answered and safe, and all before it are.
    #[test]
    fn what_is_not_safe_is_not_acknowledged() {
        let mut session = ClientSession::new();
        let [one, two, bytes, four] = [true; 4].map(|is| session.begin(is).number);
        assert_eq!(session.answered(one, at(1, 7)), KEPT);
        assert_eq!(session.answered(two, at(1, 5)), KEPT);
        assert_eq!(session.answered(bytes, NONE), OVER);
        assert_eq!(session.acknowledged(), 0);
        assert_eq!(session.safe(at(1, 6)), [two]);
        assert_eq!(session.acknowledged(), 0, "the first one is not safe");
        assert_eq!(session.answered(four, at(1, 6)), OVER, "it is safe already");
        assert_eq!(session.safe(at(1, 7)), [one]);
        assert_eq!((session.acknowledged(), session.unacknowledged()), (4, 0));
        assert!(session.safe(at(1, 7)).is_empty());
    }

    /// The sequences of an epoch say nothing of those of another one.
    #[test]
    fn what_is_safe_in_another_epoch_says_nothing() {
        let mut session = ClientSession::new();
        let one = session.begin(true).number;
        assert_eq!(session.answered(one, at(1, 7)), KEPT);
        assert!(session.safe(at(2, 100)).is_empty());
        assert_eq!(replays(&mut session), [(one, at(1, 7))]);
        assert!(session.safe(at(2, 200)).is_empty(), "it is not answered anew");
        assert_eq!(session.acknowledged(), 0);
    }

    /// Kept mutations are replayed in their order, and kept until that is safe. The place of each
    /// one is that of its first answer: later ones may not be answered again when the server dies
    /// again.
    #[test]
    fn what_is_repeated_gets_another_stamp() {
        let mut session = ClientSession::new();
        let [one, two, three] = [true; 3].map(|is| session.begin(is).number);
        for (number, sequence) in [(two, 8), (three, 9), (one, 10)] {
            assert_eq!(session.answered(number, at(1, sequence)), KEPT);
        }
        let stamps = [(one, at(1, 10)), (two, at(1, 8)), (three, at(1, 9))];
        assert_eq!(replays(&mut session), stamps);
        assert_eq!(session.answered(two, at(2, 4)), AnswerTo::Replay { is_kept: true });
        assert_eq!(session.answered(one, at(2, 0)), AnswerTo::Replay { is_kept: false });
        assert_eq!(session.answered(one, at(2, 0)), AnswerTo::Nothing);
        assert_eq!(session.acknowledged(), 1);
        // The server has died again.
        assert_eq!(session.replays().collect::<Vec<_>>(), [(three, at(1, 9))]);
        assert_eq!(replays(&mut session), [(two, at(1, 8)), (three, at(1, 9))]);
        assert_eq!(session.answered(two, at(3, 4)), AnswerTo::Replay { is_kept: true });
        assert_eq!(session.answered(three, at(3, 5)), AnswerTo::Replay { is_kept: true });
        assert_eq!(session.safe(at(3, 5)), [two, three]);
        assert_eq!(session.acknowledged(), 3);
    }

    /// A request that is not repeated leaves no gap: the new server never sees its number.
    #[test]
    fn a_new_session_numbers_what_is_asked_again_in_its_order() {
        let mut session = ClientSession::new();
        let numbers = [true, false, true, true].map(|is| session.begin(is));
        assert_eq!(session.answered(numbers[0].number, at(1, 3)), KEPT);
        let again = session.renumber(|number| number != numbers[2].number);
        let expected =
            [(2, Numbers { number: 1, mutation: 0 }), (4, Numbers { number: 2, mutation: 1 })];
        assert_eq!(again, expected);
        assert_eq!((session.acknowledged(), session.unacknowledged()), (0, 1));
    }
}
