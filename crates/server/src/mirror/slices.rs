//! The steps of a verification, between two groups: its questions to the mirror.

use pelago_store::clock;
use pelago_store::table::TableRead;
use pelago_wire::mirror::MirrorLink;

use super::group::{GroupSender, SendError};
use super::resync::Comparing;
use super::sender::Sender;
use super::verify::Verification;

impl Sender<'_> {
    /// Compares the rows of a cut, which the mirror has just got.
    pub(super) fn verify_rows(
        &mut self,
        link: &mut dyn MirrorLink,
        snapshot: &dyn TableRead,
    ) -> Result<(), SendError> {
        let Some(mut verification) = self.verification.take() else { return Ok(()) };
        let mut group = GroupSender::begin(link, self.course.begin_question(), clock::now())?;
        let mut comparing = Comparing::new(self.mirror, &mut group, snapshot);
        let mut differing = Vec::new();
        let compared = comparing.differing_keys(&mut |row_key| differing.push(row_key));
        let rows = comparing.rows();
        self.end_question(group, compared)?;
        if verification.end_rows(self.mirror, rows, &differing) {
            self.course.start_over();
        }
        self.show_verified(verification, false);
        Ok(())
    }

    /// Compares some content files, if a verification is under way.
    pub(super) fn verify_some(&mut self, link: &mut dyn MirrorLink) -> Result<(), SendError> {
        if let Some(repairs) = self.mirror.state.lock().wanted_verification.take() {
            self.verification = Some(Verification::new(repairs));
        }
        let Some(verification) = &self.verification else { return Ok(()) };
        if verification.wants_rows() || !self.course.follows() {
            return Ok(());
        }
        let Some(mut verification) = self.verification.take() else { return Ok(()) };
        let mut group = GroupSender::begin(link, self.course.begin_question(), clock::now())?;
        let mut comparing = Comparing::new(self.mirror, &mut group, &*self.mirror.parts.table);
        let compared = verification.compare_some(self.mirror, &mut comparing);
        let goes_on = self.end_question(group, compared);
        let has_ended = matches!(goes_on, Ok(false));
        self.show_verified(verification, has_ended);
        goes_on.map(drop)
    }

    /// Gives the group of a question up, unless the connection has ended.
    fn end_question<T>(
        &mut self,
        group: GroupSender<'_>,
        result: Result<T, SendError>,
    ) -> Result<T, SendError> {
        if !matches!(result, Err(SendError::Link(_) | SendError::Mirror(_))) {
            group.abort()?;
            self.course.gave_up();
        }
        result
    }

    fn show_verified(&mut self, mut verification: Verification, has_ended: bool) {
        let result = verification.result(has_ended.then(clock::now));
        self.mirror.state.lock().verified = Some(result);
        self.mirror.changed.notify_all();
        if !has_ended {
            self.verification = Some(verification);
        }
    }
}
