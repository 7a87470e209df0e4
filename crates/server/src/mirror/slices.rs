//! The steps of a verification, between two groups: its questions to the mirror.

use pelago_store::clock;
use pelago_store::table::TableRead;
use pelago_wire::mirror::MirrorLink;

use super::group::{GroupSender, SendError};
use super::resync::Comparing;
use super::sender::Sender;
use super::verify::{DifferingRows, Step, Verification};

impl Sender<'_> {
    /// Compares the rows of a cut, which the mirror has just got. Nobody is held back meanwhile.
    /// After an error the rows of the next cut are compared.
    pub(super) fn verify_rows(
        &mut self,
        link: &mut dyn MirrorLink,
        snapshot: &dyn TableRead,
    ) -> Result<(), SendError> {
        self.mirror.state.lock().compares_rows = true;
        let compared = self.compare_rows(link, snapshot);
        self.mirror.state.lock().compares_rows = false;
        let (differing, rows) = compared?;
        let Some(mut verification) = self.verification.take() else { return Ok(()) };
        match verification.end_rows(self.mirror, snapshot, rows, &differing) {
            Ok(true) => self.course.start_over(),
            Ok(false) => {}
            Err(error) => {
                self.verification = Some(verification);
                return Err(error);
            }
        }
        self.show_verified(verification, Step::GoesOn);
        Ok(())
    }

    /// Returns the rows that differ, and the number of all.
    fn compare_rows(
        &mut self,
        link: &mut dyn MirrorLink,
        snapshot: &dyn TableRead,
    ) -> Result<(DifferingRows, u64), SendError> {
        let mut group = GroupSender::begin(link, self.course.begin_question(), clock::now())?;
        let mut comparing = Comparing::new(self.mirror, &mut group, snapshot);
        let mut differing = DifferingRows::default();
        let compared = comparing.differing_keys(&mut |row_key, next| differing.add(row_key, next));
        let rows = comparing.rows();
        self.end_question(group, compared)?;
        Ok((differing, rows))
    }

    /// Compares some content files, if a verification is under way. Returns whether it goes on
    /// without a pause.
    pub(super) fn verify_some(&mut self, link: &mut dyn MirrorLink) -> Result<bool, SendError> {
        if let Some(wanted) = self.mirror.state.lock().wanted_verification.take() {
            self.verification = Some(Verification::new(wanted));
        }
        let group = self.course.safe();
        let Some(verification) = &mut self.verification else { return Ok(false) };
        if verification.wants_rows()
            || !self.course.follows()
            || verification.waits_for_group(group)
        {
            return Ok(false);
        }
        let Some(mut verification) = self.verification.take() else { return Ok(false) };
        let step = self.compare_some(link, &mut verification, group);
        self.show_verified(verification, *step.as_ref().unwrap_or(&Step::GoesOn));
        match step {
            Ok(step) => Ok(step == Step::GoesOn),
            // What cannot be read here is tried again; groups go on meanwhile.
            Err(error) if error.leaves_connection() => {
                tracing::warn!(%error, "some content is not compared with the mirror yet");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn compare_some(
        &mut self,
        link: &mut dyn MirrorLink,
        verification: &mut Verification,
        group: u64,
    ) -> Result<Step, SendError> {
        let mut asks = GroupSender::begin(link, self.course.begin_question(), clock::now())?;
        let mut comparing = Comparing::new(self.mirror, &mut asks, &*self.mirror.parts.table);
        let compared = verification.compare_some(self.mirror, &mut comparing, group);
        self.end_question(asks, compared)
    }

    /// Gives the group of a question up, unless the connection has ended or ends now.
    fn end_question<T>(
        &mut self,
        group: GroupSender<'_>,
        result: Result<T, SendError>,
    ) -> Result<T, SendError> {
        if result.as_ref().err().is_none_or(SendError::leaves_connection) {
            group.abort()?;
            self.course.gave_up();
        }
        result
    }

    fn show_verified(&mut self, mut verification: Verification, step: Step) {
        let has_ended = step == Step::Ended;
        let result = verification.result(has_ended.then(clock::now));
        let mut state = self.mirror.state.lock();
        if has_ended && result.below.is_none() {
            state.verified_whole = Some(result.clone());
        }
        state.verified = Some(result);
        drop(state);
        self.mirror.changed.notify_all();
        if !has_ended {
            self.verification = Some(verification);
        }
    }
}
