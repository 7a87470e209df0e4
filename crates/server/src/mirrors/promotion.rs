//! The promotion of a mirror to the primary of its volume.
//!
//! First the rows of the mirror become those of a primary with a higher reign, on stable storage.
//! Then a file beside the mirrors says so, and last the folder can be served. A promotion that was
//! cut short in between is completed by the next one, or when its old primary connects; meanwhile
//! no group is taken.

use pelago_store::rows::MirrorRole;
use pelago_store::volume::{Volume, VolumeError};

use super::error::MirrorError;
use super::image::{Image, PrimaryRows};
use super::slot::{Slot, State};
use super::{Promoted, promoted};

impl Slot {
    /// Makes the mirror the primary, on stable storage, and closes it.
    ///
    /// # Errors
    /// [`MirrorError::Promoted`]; [`MirrorError::Unfinished`] if it may have begun, and must be
    /// repeated. After any other error the folder is still a mirror.
    pub(super) fn promote(&self, state: &mut State) -> Result<Promoted, MirrorError> {
        let volume = self.volume;
        let path = self.path();
        self.complete_adoption(state)?;
        if let Some(reign) = promoted::read(&self.folders.spool, volume)? {
            return self.complete_promotion(reign);
        }
        self.settle(state)?;
        let missing = || MirrorError::Missing { volume, path: self.folders.dir.clone() };
        self.readers.close();
        let image = state.image.take().ok_or_else(missing)?;
        let row = image.known_row()?;
        let (reign, number) = match row.role {
            MirrorRole::Mirror | MirrorRole::Adopted => {
                let PrimaryRows { reign, batch } = image.as_primary(&row)?;
                image.write_safely(&batch).map_err(|error| self.unfinished(error))?;
                (reign, (row.role == MirrorRole::Mirror).then_some(row.number))
            }
            MirrorRole::Primary | MirrorRole::Replaced => (row.reign, None),
        };
        self.finish_promotion(state, image, reign).map_err(|error| self.unfinished(error))?;
        let cut = self.shown().cut;
        self.show(|shown| shown.promoted = Some(reign));
        self.show_connected(None);
        tracing::warn!(%volume, reign, "the mirror is the primary of its volume from now on");
        Ok(Promoted { volume, reign, number, cut, path })
    }

    /// Closes a mirror whose rows are those of a primary, and has its folder served.
    fn finish_promotion(
        &self,
        state: &mut State,
        image: Image,
        reign: u64,
    ) -> Result<(), MirrorError> {
        let mut opened = image.close()?;
        promoted::write(&self.folders.spool, self.volume, reign)?;
        opened.set_primary()?;
        drop(opened);
        Ok(state.spool.clear()?)
    }

    fn unfinished(&self, source: MirrorError) -> MirrorError {
        MirrorError::Unfinished { path: self.path(), source: Box::new(source) }
    }

    /// Completes a promotion that was cut short, if there is one. Returns the reign of the promoted
    /// mirror; `None` if it was not promoted.
    ///
    /// # Errors
    /// [`MirrorError`] if the folder cannot be served yet.
    pub(super) fn promoted_reign(&self, state: &mut State) -> Result<Option<u64>, MirrorError> {
        self.complete_adoption(state)?;
        if let Some(reign) = promoted::read(&self.folders.spool, self.volume)? {
            return match self.complete_promotion(reign) {
                Ok(_) | Err(MirrorError::Promoted { .. }) => Ok(Some(reign)),
                // It was moved away.
                Err(MirrorError::Volume(VolumeError::Missing { .. })) => Ok(Some(reign)),
                Err(error) => Err(error),
            };
        }
        self.settle(state)?;
        let Some(image) = &state.image else { return Ok(None) };
        let row = image.known_row()?;
        let is_begun = image.volume.format().is_not_primary() && row.role == MirrorRole::Primary;
        match is_begun {
            true => self.promote(state).map(|promoted| Some(promoted.reign)),
            false => Ok(None),
        }
    }

    /// Completes a promotion that has written its file.
    fn complete_promotion(&self, reign: u64) -> Result<Promoted, MirrorError> {
        let volume = self.volume;
        let path = self.path();
        let promoted = || MirrorError::Promoted { path: path.clone(), reign };
        let mut opened = match Volume::open_mirror(&path) {
            // A server serves the folder.
            Err(VolumeError::InUse { .. }) => return Err(promoted()),
            opened => opened?,
        };
        if !opened.format().is_not_primary() {
            return Err(promoted());
        }
        opened.set_primary()?;
        self.show(|shown| shown.promoted = Some(reign));
        Ok(Promoted { volume, reign, number: None, cut: None, path })
    }
}
