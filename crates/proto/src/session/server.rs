//! The server's end of a session: the mutations that run, and the stored answers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use pelago_wire::limits;

/// The server's end of a session: the mutations that run, and the answers that the client may not
/// have yet.
#[derive(Debug, Default)]
pub struct ServerSession {
    /// Every mutation up to this one is answered, and the client has the answer.
    acknowledged: u64,
    /// Mutations above `acknowledged` that arrived.
    mutations: BTreeMap<u64, Mutation>,
    earlier: Earlier,
}

/// The mutations that an earlier epoch of the server may have answered, which this epoch does not
/// know.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Earlier {
    /// Nothing: the session began in this epoch.
    #[default]
    None,
    /// Unknown, until the client has acknowledged a mutation.
    Unknown,
    /// Mutations up to this one at most: the client had no more under way.
    UpTo(u64),
}

/// A mutation that arrived.
#[derive(Debug)]
struct Mutation {
    /// A hash of the request: another request under this number is a mistake. `None` if the
    /// mutation was cancelled before it arrived.
    hash: Option<u64>,
    /// The answer as it was sent; `None` while the mutation runs.
    answer: Option<Arc<[u8]>>,
}

/// The treatment of a mutation that arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repetition {
    /// It is carried out: it did not arrive before.
    None,
    /// It runs already, and is answered once it is over.
    Running,
    /// It is over: this answer is sent again.
    Answered(Arc<[u8]>),
}

/// A mutation that no correct client sends. The session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionError {
    /// The client has said that it has the answer to this mutation.
    Acknowledged(u64),
    /// The number belongs to another request.
    OtherRequest(u64),
    /// The number is too far above the acknowledged one.
    TooFar(u64),
    /// The client acknowledges a mutation that was never answered.
    NotAnswered(u64),
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acknowledged(number) => {
                write!(f, "mutation {number} came again after its answer was acknowledged")
            }
            Self::OtherRequest(number) => {
                write!(f, "mutation {number} came again as another request")
            }
            Self::TooFar(number) => write!(
                f,
                "mutation {number} is more than {} above the acknowledged one",
                limits::SESSION_MUTATIONS
            ),
            Self::NotAnswered(number) => {
                write!(f, "mutation {number} was acknowledged before it was answered")
            }
        }
    }
}

impl std::error::Error for SessionError {}

impl ServerSession {
    /// Returns the end of a session that began in an earlier run of the server. The client will say
    /// which answers it has.
    #[must_use]
    pub fn of_earlier_run() -> Self {
        Self { earlier: Earlier::Unknown, ..Self::default() }
    }

    /// Begins a new epoch. Answered mutations may be lost, and the client repeats them; running
    /// ones are answered once they are over.
    pub fn begin_epoch(&mut self) {
        self.mutations.retain(|_, mutation| mutation.answer.is_none());
        if self.earlier != Earlier::Unknown {
            let last = self.acknowledged.saturating_add(limits::SESSION_MUTATIONS);
            self.earlier = Earlier::UpTo(last);
        }
    }

    /// Decides how a mutation is treated whose request has this hash.
    ///
    /// # Errors
    /// [`SessionError`]: the session must end.
    pub fn mutation(&mut self, number: u64, hash: u64) -> Result<Repetition, SessionError> {
        self.check(number)?;
        match self.mutations.get(&number) {
            Some(known) if known.hash.is_some_and(|known| known != hash) => {
                Err(SessionError::OtherRequest(number))
            }
            Some(Mutation { answer: Some(answer), .. }) => {
                Ok(Repetition::Answered(Arc::clone(answer)))
            }
            Some(Mutation { answer: None, .. }) => Ok(Repetition::Running),
            None => {
                self.mutations.insert(number, Mutation { hash: Some(hash), answer: None });
                Ok(Repetition::None)
            }
        }
    }

    /// Cancels a mutation. Returns its answer; `None` while it runs. A mutation that did not arrive
    /// will not be carried out: `never` is its answer.
    ///
    /// # Errors
    /// [`SessionError`]: the session must end.
    pub fn cancel(
        &mut self,
        number: u64,
        never: &Arc<[u8]>,
    ) -> Result<Option<Arc<[u8]>>, SessionError> {
        self.check(number)?;
        let cancelled = || Mutation { hash: None, answer: Some(Arc::clone(never)) };
        Ok(self.mutations.entry(number).or_insert_with(cancelled).answer.clone())
    }

    fn check(&self, number: u64) -> Result<(), SessionError> {
        if number <= self.acknowledged {
            return Err(SessionError::Acknowledged(number));
        }
        if number - self.acknowledged > limits::SESSION_MUTATIONS {
            return Err(SessionError::TooFar(number));
        }
        Ok(())
    }

    /// Stores the answer to a mutation that ran.
    pub fn answered(&mut self, number: u64, answer: Arc<[u8]>) {
        if let Some(known) = self.mutations.get_mut(&number) {
            known.answer = Some(answer);
        }
    }

    /// Forgets the answers up to this mutation: the client has them.
    ///
    /// # Errors
    /// [`SessionError::NotAnswered`]: the session must end.
    pub fn acknowledge(&mut self, number: u64) -> Result<(), SessionError> {
        if self.earlier == Earlier::Unknown {
            self.acknowledged = number;
            self.earlier = Earlier::UpTo(number.saturating_add(limits::SESSION_MUTATIONS));
        }
        while self.acknowledged < number {
            let next = self.acknowledged + 1;
            match self.mutations.remove(&next) {
                Some(Mutation { answer: Some(_), .. }) => self.acknowledged = next,
                Some(running) => {
                    self.mutations.insert(next, running);
                    return Err(SessionError::NotAnswered(next));
                }
                // The earlier epoch has answered it.
                None if self.earlier.has(next) => self.acknowledged = next,
                None => return Err(SessionError::NotAnswered(next)),
            }
        }
        Ok(())
    }

    /// Returns the newest mutation whose answer the client has.
    #[must_use]
    pub const fn acknowledged(&self) -> u64 {
        self.acknowledged
    }
}

impl Earlier {
    const fn has(self, number: u64) -> bool {
        matches!(self, Self::UpTo(last) if number <= last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Arc<[u8]> {
        Arc::from(text.as_bytes())
    }

    /// The connection dies while a mutation runs; it is repeated, joins, and gets its one answer,
    /// as often as it asks, until that is acknowledged.
    #[test]
    fn twins_run_once() {
        let mut session = ServerSession::default();
        assert_eq!(session.mutation(1, 7), Ok(Repetition::None));
        assert_eq!(session.mutation(1, 7), Ok(Repetition::Running));
        session.answered(1, answer("done"));
        assert_eq!(session.mutation(1, 7), Ok(Repetition::Answered(answer("done"))));
        assert_eq!(session.acknowledge(1), Ok(()));
        assert_eq!(session.mutation(1, 7), Err(SessionError::Acknowledged(1)));
    }

    /// A request was given up after a deadline, and the connection comes back. The request is not
    /// carried out after later requests of its program.
    #[test]
    fn a_cancelled_mutation_is_answered_by_what_it_did_or_never_runs() {
        let mut session = ServerSession::default();
        let never = answer("never");
        assert_eq!(session.mutation(1, 7), Ok(Repetition::None));
        assert_eq!(session.cancel(1, &never), Ok(None));
        session.answered(1, answer("done"));
        assert_eq!(session.cancel(1, &never), Ok(Some(answer("done"))));
        assert_eq!(session.cancel(2, &never), Ok(Some(never.clone())));
        assert_eq!(session.mutation(2, 8), Ok(Repetition::Answered(never.clone())));
        assert_eq!(session.acknowledge(2), Ok(()));
        assert_eq!(session.cancel(2, &never), Err(SessionError::Acknowledged(2)));
    }

    #[test]
    fn another_request_under_a_number_is_refused() {
        let mut session = ServerSession::default();
        assert_eq!(session.mutation(2, 7), Ok(Repetition::None));
        assert_eq!(session.mutation(2, 8), Err(SessionError::OtherRequest(2)));
    }

    #[test]
    fn what_was_not_answered_cannot_be_acknowledged() {
        let mut session = ServerSession::default();
        assert_eq!(session.acknowledge(1), Err(SessionError::NotAnswered(1)));
        assert_eq!(session.mutation(1, 0), Ok(Repetition::None));
        assert_eq!(session.acknowledge(1), Err(SessionError::NotAnswered(1)));
        session.answered(1, answer(""));
        assert_eq!(session.mutation(2, 0), Ok(Repetition::None));
        assert_eq!(session.acknowledge(2), Err(SessionError::NotAnswered(2)));
        assert_eq!(session.acknowledged(), 1);
    }

    #[test]
    fn the_number_of_remembered_answers_is_bounded() {
        let mut session = ServerSession::default();
        let last = limits::SESSION_MUTATIONS;
        assert_eq!(session.mutation(last, 0), Ok(Repetition::None));
        assert_eq!(session.mutation(last + 1, 0), Err(SessionError::TooFar(last + 1)));
    }

    /// The table may have lost what was answered: it is carried out again, and so is what the
    /// client repeats without an answer. What still runs is not.
    #[test]
    fn a_new_epoch_forgets_answers_and_not_what_runs() {
        let mut session = ServerSession::default();
        for number in 1..=3 {
            assert_eq!(session.mutation(number, 7), Ok(Repetition::None));
        }
        session.answered(1, answer("acknowledged"));
        session.answered(3, answer("lost"));
        assert_eq!(session.acknowledge(1), Ok(()));
        session.begin_epoch();
        assert_eq!(session.mutation(1, 7), Err(SessionError::Acknowledged(1)));
        assert_eq!(session.mutation(2, 7), Ok(Repetition::Running));
        assert_eq!(session.mutation(3, 7), Ok(Repetition::None));
        session.answered(2, answer("done"));
        session.answered(3, answer("again"));
        assert_eq!(session.mutation(3, 7), Ok(Repetition::Answered(answer("again"))));
        let last = 1 + limits::SESSION_MUTATIONS;
        assert_eq!(session.acknowledge(last), Ok(()), "so many can have been answered");
        assert_eq!(session.acknowledge(last + 1), Err(SessionError::NotAnswered(last + 1)));
    }

    /// The server was killed after it had answered 6 and 8, and before it answered 7. The client
    /// repeats 7; then it has the answers up to 8, which this run never saw.
    #[test]
    fn an_earlier_run_may_have_answered_what_this_one_does_not_know() {
        let mut session = ServerSession::of_earlier_run();
        assert_eq!(session.acknowledge(6), Ok(()));
        assert_eq!(session.mutation(6, 1), Err(SessionError::Acknowledged(6)));
        assert_eq!(session.mutation(7, 1), Ok(Repetition::None));
        assert_eq!(session.acknowledge(8), Err(SessionError::NotAnswered(7)));
        session.answered(7, answer("done"));
        assert_eq!(session.acknowledge(8), Ok(()));
        let last = 6 + limits::SESSION_MUTATIONS;
        assert_eq!(session.acknowledge(last), Ok(()), "so many can have been under way");
        let error = SessionError::NotAnswered(last + 1);
        assert_eq!(session.acknowledge(last + 1), Err(error));
    }
}
