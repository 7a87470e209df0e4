//! The adoption of the folder of a primary that was replaced: it becomes a mirror of the primary
//! that has replaced it, without a copy.
//!
//! The folder is recovered, so that its rows say all that was done in it, and is moved beside the
//! other mirrors. The first comparison brings what differs; before that is carried out, what only
//! this folder has is kept. Each step is safe before the next one, so an adoption that was cut
//! short is repeated; until then the server of mirrors takes nothing for this volume, unless the
//! folder was at its place already.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use pelago_store::folder::{Folder, FolderError};
use pelago_store::rows::{MirrorRole, MirrorRow};
use pelago_store::volume::{Volume, VolumeId, set_not_primary};

use super::error::MirrorError;
use super::image::Image;
use super::slot::{Slot, State};
use super::{MirrorStore, kept, promoted};
use crate::server::Server;

/// A folder that was adopted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopted {
    /// The volume.
    pub volume: VolumeId,
    /// The reign of the primary that it was.
    pub reign: u64,
    /// The folder of the mirror.
    pub path: PathBuf,
}

impl MirrorStore {
    /// Makes the folder of a primary that was replaced a mirror, which the primary that has
    /// replaced it brings up to date. The folder is moved to the other mirrors, unless it is there.
    /// No other process may have it open. A call that was cut short is repeated.
    ///
    /// # Errors
    /// [`MirrorError`].
    pub fn adopt(&self, path: &Path) -> Result<Adopted, MirrorError> {
        if self.is_open_mirror(path) {
            return Err(MirrorError::IsMirror { path: path.into() });
        }
        let opened = Volume::open_mirror(path)?;
        let volume = opened.id();
        let slot = self.slot(volume)?;
        let mut state = slot.state.lock();
        let target = slot.path();
        let is_there = is_same_folder(path, &target)?;
        if !is_there {
            self.expect_place(path, &target, volume)?;
        }
        promoted::begin_adoption(&self.folders.spool, volume)?;
        // From now on no server takes it.
        set_not_primary(opened.folder())?;
        drop(opened);
        let reign = self.settle_rows(path, volume)?;
        promoted::remove(&self.folders.spool, volume)?;
        if !is_there {
            move_folder(path, &target, &self.folders.mirrors)?;
        }
        promoted::end_adoption(&self.folders.spool, volume)?;
        slot.show(|shown| {
            shown.promoted = None;
            shown.cut = None;
        });
        slot.settle(&mut state)?;
        tracing::warn!(%volume, reign, path = %target.display(), "the folder was the primary of \
            this reign, and becomes a mirror of the one that has replaced it");
        Ok(Adopted { volume, reign, path: target })
    }

    /// Returns whether a path is that of a mirror which this process has open.
    fn is_open_mirror(&self, path: &Path) -> bool {
        let slots: Vec<_> = self.slots.lock().values().map(std::sync::Arc::clone).collect();
        let is_it = |slot: &Slot| is_same_folder(path, &slot.path()).unwrap_or(false);
        slots.iter().any(|slot| slot.shown().promoted.is_none() && is_it(slot))
    }

    /// Checks that a folder can be moved to the mirrors.
    fn expect_place(
        &self,
        path: &Path,
        target: &Path,
        volume: VolumeId,
    ) -> Result<(), MirrorError> {
        let mirrors = &self.folders.mirrors;
        if mirrors.contains(&volume.to_string())? {
            return Err(MirrorError::Taken { path: target.into() });
        }
        match device_of(path)? == device_of(mirrors.path())? {
            true => Ok(()),
            false => Err(MirrorError::OtherFileSystem {
                path: path.into(),
                mirrors: mirrors.path().into(),
            }),
        }
    }

    /// Recovers the folder, and makes its rows those of an adopted one. Returns its reign.
    fn settle_rows(&self, path: &Path, volume: VolumeId) -> Result<u64, MirrorError> {
        let open = || match Image::open(path, volume)? {
            Some(image) => Ok(image),
            None => Err(MirrorError::Missing { volume, path: path.into() }),
        };
        // A mirror is not recovered: it is as its primary has it.
        let image = open()?;
        let MirrorRow { reign, .. } = image.own_row()?;
        drop(image.close()?);
        let kept = kept::name(volume, reign);
        if self.folders.kept.contains(&kept)? {
            return Err(MirrorError::Taken { path: self.folders.kept.path().join(kept) });
        }
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| MirrorError::NotRecovered {
            path: path.into(),
            source,
        };
        let server = Server::start_replaced(path).map_err(|error| failed(error.into()))?;
        server.stop().map_err(|error| failed(error.into()))?;
        drop(server);
        let image = open()?;
        let reign = image.make_adopted()?;
        drop(image.close()?);
        Ok(reign)
    }
}

impl Slot {
    /// Completes an adoption that was cut short after the folder was at its place.
    ///
    /// # Errors
    /// [`MirrorError::HalfAdopted`] if it was cut short before that: the folder may look like one
    /// whose promotion was cut short.
    pub(super) fn complete_adoption(&self, state: &State) -> Result<(), MirrorError> {
        let spool = &self.folders.spool;
        let Some(path) = promoted::begun_adoption(spool, self.volume)? else { return Ok(()) };
        let row = match &state.image {
            Some(image) => Some(image.own_row()?),
            None => match Image::open(&self.path(), self.volume)? {
                Some(image) => {
                    let row = image.own_row()?;
                    drop(image.close()?);
                    Some(row)
                }
                None => None,
            },
        };
        if row.is_none_or(|row| row.role != MirrorRole::Adopted) {
            return Err(MirrorError::HalfAdopted { path });
        }
        promoted::remove(spool, self.volume)?;
        promoted::end_adoption(spool, self.volume)
    }
}

/// Moves a folder to the mirrors, on stable storage.
fn move_folder(path: &Path, target: &Path, mirrors: &Folder) -> Result<(), MirrorError> {
    let moved = fs::rename(path, target);
    moved.map_err(|source| MirrorError::Kept { doing: "moving", path: path.into(), source })?;
    mirrors.sync()?;
    match path.parent() {
        Some(parent) => Ok(Folder::open(parent).and_then(|parent| parent.sync())?),
        None => Ok(()),
    }
}

fn is_same_folder(one: &Path, other: &Path) -> Result<bool, MirrorError> {
    let Ok(other) = fs::metadata(other) else { return Ok(false) };
    let one = examined(one)?;
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

fn device_of(path: &Path) -> Result<u64, MirrorError> {
    examined(path).map(|found| found.dev())
}

fn examined(path: &Path) -> Result<fs::Metadata, MirrorError> {
    let failed = |source| FolderError::Io { doing: "examining", path: path.into(), source };
    Ok(fs::metadata(path).map_err(failed)?)
}
