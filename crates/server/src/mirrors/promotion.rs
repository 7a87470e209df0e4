//! The promotion of a mirror to the primary of its volume.
//!
//! First the rows of the mirror become those of a primary with a higher reign, on stable storage.
//! Then a file beside the mirrors says so, and last the folder can be served. A promotion that was
//! cut short in between is completed by the next one; meanwhile no group is taken.

use pelago_store::rows::MirrorRole;
use pelago_store::volume::{Volume, VolumeError};

use super::error::MirrorError;
use super::slot::{Slot, State};
use super::{Promoted, promoted};

impl Slot {
    /// Makes the mirror the primary, on stable storage, and closes it.
    ///
    /// # Errors
    /// [`MirrorError`]; [`MirrorError::Missing`]; [`MirrorError::Promoted`]. After any error but
    /// the last, the folder is still a mirror, or the call must be repeated.
    pub(super) fn promote(&self, state: &mut State) -> Result<Promoted, MirrorError> {
        let volume = self.volume;
        let path = self.path();
        if let Some(reign) = promoted::read(&self.folders.spool, volume)? {
            return self.complete_promotion(reign);
        }
        self.settle(state)?;
        let missing = || MirrorError::Missing { volume, path: self.folders.dir.clone() };
        self.readers.close();
        let image = state.image.take().ok_or_else(missing)?;
        let row = image.known_row()?;
        let (reign, number) = match row.role {
            MirrorRole::Mirror => (image.make_primary(&row)?, Some(row.number)),
            MirrorRole::Primary | MirrorRole::Replaced => (row.reign, None),
        };
        let mut opened = image.close()?;
        promoted::write(&self.folders.spool, volume, reign)?;
        opened.set_primary()?;
        drop(opened);
        state.spool.clear()?;
        let cut = self.shown().cut;
        self.show(|shown| shown.promoted = Some(reign));
        self.show_connected(None);
        tracing::warn!(%volume, reign, "the mirror is the primary of its volume from now on");
        Ok(Promoted { volume, reign, number, cut, path })
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
