//! The mirrors that a server keeps: volumes that are changed by the groups of their primaries,
//! until they are promoted.
//!
//! A group of changes is spooled first, and answered when it is safe there. Then it is carried out;
//! after a kill in between it is carried out again. A whole volume comes as a copy, into a folder
//! beside the mirror, which takes the place of the mirror in one step when it is complete. So a
//! mirror always has one state of its volume, and can be promoted at any time. `docs/format.md`,
//! 6.2, describes the folder. A mirror that cannot keep a group reports it to its primary and in
//! its status.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_store::folder::Folder;
use pelago_store::rows::MirrorRole;
use pelago_store::volume::VolumeId;
use pelago_wire::mirror::{Groups, MirrorSays, Mirrors, OfferRefused, PrimaryRun, Via};
use pelago_wire::{Time, limits};

use crate::server::Server;

use connection::{Connection, Offered};
use image::Image;
use slot::{Folders, Slot};

pub use adopt::Adopted;
pub use error::MirrorError;
pub use kept::{KeptChange, KeptChanges, kept_changes, kept_count};
pub use own_changes::OwnChange;
pub use readers::{ListenForReaders, ReadableMirror};

mod adopt;
mod apply;
mod compare;
mod connection;
mod error;
mod image;
mod kept;
mod own_changes;
mod promoted;
mod promotion;
mod read_table;
mod readers;
mod slot;
mod touched;

/// The name of the folder of the mirrors, in the folder of their server.
const MIRRORS: &str = "mirrors";
/// The name of the folder of the spools.
const SPOOL: &str = "spool";

/// The longest time for which a primary that connects waits for what its relay has sent.
const TAKEOVER: Duration = Duration::from_secs(3);
/// The longest time for which a promotion waits for that: the primary and the relay may be lost.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// The mirrors of a folder. Dropping it closes them.
pub struct MirrorStore {
    folders: Arc<Folders>,
    /// A leaf lock.
    slots: Mutex<BTreeMap<[u8; 16], Arc<Slot>>>,
}

/// The status of a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorStatus {
    /// The volume.
    pub volume: VolumeId,
    /// The reign of its primary; 0 if there is no complete copy yet.
    pub reign: u64,
    /// The last group that the mirror has.
    pub number: u64,
    /// The time at which that group was cut, by the clock of the primary; `None` if no group came
    /// since the start.
    pub cut: Option<Time>,
    /// True if the primary is connected, or its relay.
    pub is_connected: bool,
    /// The time since which that is so; `None`: since the start.
    pub since: Option<Time>,
    /// The reign with which it was promoted; `None` if it is a mirror.
    pub promoted: Option<u64>,
    /// The folder was the primary, and waits for the one that has replaced it.
    pub is_adopted: bool,
    /// The number of mounts that read it.
    pub readers: usize,
    /// The reason why the last group was not kept, for people.
    pub error: Option<String>,
}

/// A mirror that was promoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promoted {
    /// The volume.
    pub volume: VolumeId,
    /// Its reign.
    pub reign: u64,
    /// The last group of the earlier primary that it has; `None` if an earlier call has promoted
    /// the mirror and was cut short.
    pub number: Option<u64>,
    /// The time at which that group was cut, by the clock of that primary; `None` if it is not
    /// known.
    pub cut: Option<Time>,
    /// The folder of the volume.
    pub path: PathBuf,
}

impl MirrorStore {
    /// Opens the mirrors in `dir`, a folder that is no volume, and makes the folders that are
    /// missing there. Groups that were safe are carried out. A mirror that cannot be opened stays
    /// as it is, and is tried again when its primary connects.
    ///
    /// # Errors
    /// [`MirrorError`]; [`MirrorError::InUse`] if another process keeps them.
    pub fn open(dir: &Folder) -> Result<Self, MirrorError> {
        let folders = Arc::new(Folders {
            dir: dir.path().to_path_buf(),
            mirrors: dir.create_folder(MIRRORS)?,
            spool: dir.create_folder(SPOOL)?,
            kept: dir.create_folder(kept::KEPT)?,
            listen: OnceLock::new(),
        });
        if !folders.spool.try_lock()? {
            return Err(MirrorError::InUse { path: folders.dir.clone() });
        }
        dir.sync()?;
        let store = Self { folders, slots: Mutex::default() };
        for name in store.folders.mirrors.entries()? {
            let volume = name.to_str().and_then(|name| VolumeId::parse(name.split('.').next()?));
            let Some(volume) = volume else { continue };
            let slot = store.slot(volume)?;
            if slot.shown().promoted.is_some() {
                continue;
            }
            if let Err(error) = slot.settle(&mut slot.state.lock()) {
                tracing::error!(%volume, error = error.says(), "a mirror is not kept");
                slot.show_error(&error);
            }
        }
        Ok(store)
    }

    /// Returns the status of each mirror, in the order of the volumes. Does not wait for a mirror
    /// that carries out a group.
    #[must_use]
    pub fn list(&self) -> Vec<MirrorStatus> {
        let slots: Vec<_> = self.slots.lock().values().map(Arc::clone).collect();
        slots.iter().map(|slot| status(slot)).collect()
    }

    /// Sets the function that listens for readers, and calls it for each mirror that has a whole
    /// state. A second call does nothing.
    pub fn set_listen(&self, listen: ListenForReaders) {
        if self.folders.listen.set(listen).is_err() {
            return;
        }
        let slots: Vec<_> = self.slots.lock().values().map(Arc::clone).collect();
        for slot in slots {
            let state = slot.state.lock();
            slot.readers.close();
            slot.let_readers_in(&state);
        }
    }

    /// Returns the server of the readers of a mirror, which is started if there is none.
    ///
    /// # Errors
    /// [`MirrorError::Missing`] if there is no mirror with a whole state; [`MirrorError::Readers`].
    pub fn reader(&self, volume: VolumeId) -> Result<Arc<Server>, MirrorError> {
        let slot = self.slots.lock().get(&volume.0).map(Arc::clone);
        let server = slot.and_then(|slot| slot.readers.server());
        server.ok_or_else(|| MirrorError::Missing { volume, path: self.folders.dir.clone() })?
    }

    /// Makes the mirror of a volume its primary, on stable storage, and closes it: its folder can
    /// be served. A call that was cut short is completed by the next one.
    ///
    /// # Errors
    /// [`MirrorError::Missing`]; [`MirrorError::Promoted`]; [`MirrorError::Unfinished`] if it may
    /// have begun, and must be repeated. After any other error the folder is still a mirror.
    pub fn promote(&self, volume: VolumeId) -> Result<Promoted, MirrorError> {
        let slot = self.slots.lock().get(&volume.0).map(Arc::clone);
        let missing = || MirrorError::Missing { volume, path: self.folders.dir.clone() };
        let slot = slot.ok_or_else(missing)?;
        slot.wait_for_relay(LAST_WORDS);
        // The connection of the primary ends with its next message.
        slot.next_turn();
        let mut state = slot.state.lock();
        slot.promote(&mut state)
    }

    /// Ends all connections with their next message, and closes each mirror after it has carried
    /// out its group.
    pub fn stop(&self) {
        let slots: Vec<_> = self.slots.lock().values().map(Arc::clone).collect();
        for slot in slots {
            slot.next_turn();
            slot.close();
        }
    }

    /// Returns the slot of a volume, which is made if there is none.
    fn slot(&self, volume: VolumeId) -> Result<Arc<Slot>, MirrorError> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.get(&volume.0) {
            return Ok(Arc::clone(slot));
        }
        if slots.len() >= limits::MIRRORS {
            return Err(MirrorError::TooMany);
        }
        let slot = Arc::new(Slot::new(&self.folders, volume)?);
        slots.insert(volume.0, Arc::clone(&slot));
        Ok(slot)
    }

    fn connect(
        &self,
        volume: VolumeId,
        reign: u64,
        run: PrimaryRun,
        via: Via,
    ) -> Result<Box<dyn Groups>, Refusal> {
        let slot = self.slot(volume)?;
        match via {
            Via::Relay => slot.wait_for_primary()?,
            Via::Primary => slot.wait_for_relay(TAKEOVER),
        }
        let turn = slot.next_turn();
        let mut state = slot.state.lock();
        if !slot.is_turn(turn) {
            return Err(MirrorError::Superseded.into());
        }
        let path = slot.path();
        let promoted = slot.promoted_reign(&mut state).inspect_err(|error| slot.show_error(error));
        match promoted? {
            Some(found) if found >= reign => return Err(Refusal::NotPrimary(found)),
            Some(found) => return Err(MirrorError::WasPromoted { path, reign: found }.into()),
            None => {}
        }
        match state.image.as_ref().map(Image::known_row).transpose()? {
            Some(row) if row.reign > reign => return Err(Refusal::NotPrimary(row.reign)),
            Some(row) => match row.role {
                MirrorRole::Mirror => {}
                MirrorRole::Adopted if row.reign < reign => {}
                MirrorRole::Adopted => return Err(MirrorError::SameReign { path, reign }.into()),
                // A person has put the folder of a primary here.
                MirrorRole::Primary | MirrorRole::Replaced if row.reign < reign => {
                    return Err(MirrorError::WasPromoted { path, reign: row.reign }.into());
                }
                MirrorRole::Primary | MirrorRole::Replaced => {
                    return Err(Refusal::NotPrimary(reign));
                }
            },
            None => {}
        }
        slot.show_connected(Some(via));
        let ready = slot.message(MirrorSays::Ready);
        drop(state);
        Ok(Box::new(Connection::new(slot, turn, Offered { reign, run, via }, ready)))
    }
}

impl Mirrors for MirrorStore {
    fn offer(
        &self,
        volume: [u8; 16],
        reign: u64,
        run: PrimaryRun,
        via: Via,
    ) -> Result<Box<dyn Groups>, OfferRefused> {
        if reign == 0 {
            return Err(OfferRefused::Failed("a primary has a reign from 1 on".to_owned()));
        }
        self.connect(VolumeId(volume), reign, run, via).map_err(|refusal| match refusal {
            Refusal::NotPrimary(reign) => OfferRefused::NotPrimary(reign),
            Refusal::Failed(error) => OfferRefused::Failed(error.says()),
        })
    }
}

impl Drop for MirrorStore {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for MirrorStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MirrorStore").field(&self.list()).finish()
    }
}

/// Returns whether `dir` has the folders of a server of mirrors.
#[must_use]
pub fn has_mirrors(dir: &Path) -> bool {
    let is_there = |folder: &Folder| Ok(folder.contains(MIRRORS)? && folder.contains(SPOOL)?);
    Folder::open(dir).and_then(|folder| is_there(&folder)).unwrap_or(false)
}

/// The reason why a primary is refused.
enum Refusal {
    NotPrimary(u64),
    Failed(MirrorError),
}

impl<E: Into<MirrorError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

fn status(slot: &Slot) -> MirrorStatus {
    let volume = slot.volume;
    let readers = slot.readers.count();
    let shown = slot.shown();
    MirrorStatus {
        volume,
        reign: shown.reign,
        number: shown.number,
        cut: shown.cut,
        is_connected: shown.via.is_some(),
        since: shown.since,
        promoted: shown.promoted,
        is_adopted: shown.is_adopted,
        readers,
        error: shown.error,
    }
}
