//! The handover of a volume to its mirror: a planned promotion, which loses nothing.
//!
//! The server has stopped to carry out requests, and everything is safe here. Once the mirror has
//! all of it, this folder is marked as one that is not the primary, and the mirror is asked to be
//! it. If it refuses, the mark is taken away. If its answer is lost, it is asked again; and if none
//! comes in time, the mark stays: then a person decides which one goes on, and never two do.

use std::time::{Duration, Instant};

use pelago_store::volume;
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
    /// The mirror did not become the primary, for this reason.
    Refused(String),
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
    /// The mirror refuses, for this reason: this folder is the primary.
    #[error("the mirror was not made the primary: {0}")]
    Refused(String),
    /// The mirror was asked, and does not answer: it may be the primary.
    #[error("the mirror was asked to be the primary, and does not answer")]
    NotAnswered,
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
                Some(HandOver::Refused(why)) => return Err(HandOverError::Refused(why.clone())),
                Some(HandOver::Wanted) | None => {}
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                state.hand_over = None;
                return Err(HandOverError::NotAnswered);
            }
        }
    }

    /// Returns whether the mirror is to be asked now.
    pub(super) fn wants_hand_over(&self) -> bool {
        matches!(self.state.lock().hand_over, Some(HandOver::Wanted)) && !self.has_changes()
    }

    /// Asks the mirror to be the primary. If the connection is lost, the next one asks again.
    ///
    /// # Errors
    /// [`LinkError::Replaced`] if it is from now on.
    pub(super) fn ask_to_take_over(&self, link: &mut dyn MirrorLink) -> Result<(), SendError> {
        if let Some(folder) = &self.parts.folder
            && let Err(error) = volume::set_not_primary(folder)
        {
            return self.refused(error.to_string());
        }
        link.send(&GroupPart::HandOver.encode()?)?;
        match link.receive()? {
            GroupState { says: MirrorSays::Promoted, reign, .. } => {
                Err(LinkError::Replaced { reign }.into())
            }
            GroupState { says: MirrorSays::Failed(why), .. } => self.refused(why),
            GroupState { says, .. } => {
                Err(LinkError::Lost(format!("the mirror answers a handover with {says:?}")).into())
            }
        }
    }

    /// Records that the mirror is not the primary: this folder is.
    fn refused(&self, why: String) -> Result<(), SendError> {
        if let Some(folder) = &self.parts.folder
            && let Err(error) = volume::set_primary_again(folder)
        {
            tracing::error!(%error, "this folder is still marked as one that is not the primary");
        }
        self.state.lock().hand_over = Some(HandOver::Refused(why.clone()));
        self.changed.notify_all();
        Err(SendError::Mirror(why))
    }
}
