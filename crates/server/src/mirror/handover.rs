//! The handover of a volume to its mirror: a planned promotion, which loses nothing.
//!
//! The server has stopped to carry out requests, and everything is safe here. Once the mirror has
//! all of it, it is asked to be the primary, and this folder is one no more. If the answer is lost,
//! the next start asks the mirror, and hears of it.

use std::time::{Duration, Instant};

use pelago_wire::mirror::{GroupPart, GroupState, LinkError, MirrorLink, MirrorSays};

use super::group::SendError;
use super::{Mirror, MirrorPhase};

/// The state of a handover.
#[derive(Debug, Clone)]
pub(super) enum HandOver {
    /// The sender is to ask the mirror.
    Wanted,
    /// The mirror is the primary, with this reign.
    Done(u64),
    /// The mirror did not become the primary, or did not say so.
    Failed(String),
}

/// The reason for which a volume was not handed over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandOverError {
    /// It has no mirror.
    #[error("the volume has no mirror")]
    NoMirror,
    /// The mirror does not follow, or was not as far in time: the volume goes on here.
    #[error("the mirror does not have all changes")]
    Behind,
    /// The mirror did not become the primary, or did not say so, for this reason.
    #[error("the mirror was not made the primary: {0}")]
    NotAnswered(String),
    /// The server was stopped before, or could not make everything safe.
    #[error("the server has not stopped cleanly: {0}")]
    NotStopped(String),
}

impl Mirror {
    /// Waits, for at most `patience`, until the mirror has everything that is done, while programs
    /// go on.
    ///
    /// # Errors
    /// [`HandOverError::NoMirror`], [`HandOverError::Behind`].
    pub(crate) fn catch_up(&self, patience: Duration) -> Result<(), HandOverError> {
        let commit = self.next_commit().map_err(|_| HandOverError::NoMirror)?;
        if self.wait(commit, patience) != Ok(true)
            || self.state.lock().phase != MirrorPhase::Follows
        {
            return Err(HandOverError::Behind);
        }
        Ok(())
    }

    /// Makes the mirror the primary, after it has everything that is done, for at most `patience`.
    /// The caller has stopped all requests. Returns the reign of the mirror.
    ///
    /// # Errors
    /// [`HandOverError`].
    pub(crate) fn hand_over(&self, patience: Duration) -> Result<u64, HandOverError> {
        let deadline = Instant::now() + patience;
        self.catch_up(patience)?;
        let mut state = self.state.lock();
        state.hand_over = Some(HandOver::Wanted);
        self.changed.notify_all();
        loop {
            match &state.hand_over {
                Some(HandOver::Done(reign)) => return Ok(*reign),
                Some(HandOver::Failed(why)) => return Err(HandOverError::NotAnswered(why.clone())),
                Some(HandOver::Wanted) | None => {}
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                state.hand_over = None;
                return Err(HandOverError::NotAnswered("it did not answer in time".to_owned()));
            }
        }
    }

    /// Returns whether the mirror is to be asked now.
    pub(super) fn wants_hand_over(&self) -> bool {
        matches!(self.state.lock().hand_over, Some(HandOver::Wanted)) && !self.has_changes()
    }

    /// Asks the mirror to be the primary.
    ///
    /// # Errors
    /// [`LinkError::Replaced`] if it is from now on.
    pub(super) fn ask_to_take_over(&self, link: &mut dyn MirrorLink) -> Result<(), SendError> {
        let asked = GroupPart::HandOver.encode().map_err(SendError::from);
        let asked = asked.and_then(|body| Ok(link.send(&body)?));
        let answer = asked.and_then(|()| Ok(link.receive()?));
        let result = match answer {
            Ok(GroupState { says: MirrorSays::Promoted, reign, .. }) => {
                self.end_hand_over(HandOver::Done(reign));
                return Err(LinkError::Replaced { reign }.into());
            }
            Ok(GroupState { says: MirrorSays::Failed(why), .. }) => Err(SendError::Mirror(why)),
            Ok(GroupState { says, .. }) => {
                Err(LinkError::Lost(format!("the mirror answers a handover with {says:?}")).into())
            }
            Err(error) => Err(error),
        };
        if let Err(error) = &result {
            self.end_hand_over(HandOver::Failed(error.to_string()));
        }
        result
    }

    fn end_hand_over(&self, state: HandOver) {
        self.state.lock().hand_over = Some(state);
        self.changed.notify_all();
    }
}
