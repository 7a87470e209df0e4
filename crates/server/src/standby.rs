//! A server that stands by at a shared store, and becomes its owner.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pelago_store::owner::{
    self, Baton, Candidate, Claim, Look, OwnerError, ProcessRecord, ServerRecord, Taken,
};
use pelago_store::reserve::Reserve;
use pelago_store::volume::{SharedOptions, Volume, VolumeError, VolumeId};

use crate::ownership::{Ownership, Pulse, PulseError};
use crate::server::{Options, Server, StartError};

/// How long a server that cannot serve what it has taken tries to give it back.
const RELEASED: Duration = Duration::from_secs(10);

/// A server that stands by at a shared store.
pub struct Standby {
    store: PathBuf,
    id: VolumeId,
    record: ProcessRecord,
    options: Options,
    pulse: Arc<Pulse>,
    candidate: Candidate,
    stop: StandbyStop,
}

/// Ends a server that stands by although its store does not answer.
#[derive(Debug, Clone, Default)]
pub struct StandbyStop(Arc<Mutex<StopState>>);

#[derive(Debug, Default)]
struct StopState {
    is_stopped: bool,
    /// The baton that was taken, and is not given back.
    baton: Option<Arc<Baton>>,
}

impl StandbyStop {
    /// Lets a takeover that is under way wait for the store for some seconds at most.
    pub fn stop(&self) {
        let mut state = self.0.lock();
        state.is_stopped = true;
        if let Some(baton) = &state.baton {
            baton.stop_within(RELEASED);
        }
    }

    fn note_taken(&self, baton: &Arc<Baton>) {
        let mut state = self.0.lock();
        if state.is_stopped {
            baton.stop_within(RELEASED);
        }
        state.baton = Some(Arc::clone(baton));
    }
}

/// What a server that stands by has found.
pub enum Standing {
    /// Another server owns the volume: this one, if it is known.
    Waits(Option<ProcessRecord>),
    /// This one owns it now, and serves it.
    Owns(Box<Server>),
}

impl Standby {
    /// Begins to stand by at the store in the folder `store`, which must have the volume `known`;
    /// if none is known, the store is made if the folder is empty or missing. `says` is what this
    /// process tells of itself.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn begin(
        store: &Path,
        known: Option<VolumeId>,
        record: ProcessRecord,
        options: Options,
    ) -> Result<Self, StartError> {
        let created = SharedOptions { inline_bytes: options.inline_bytes, shards: 1 };
        let volume = match known {
            Some(id) => Volume::open_shared(store, id)?,
            None => Volume::open_or_create_shared(store, created)?,
        };
        owner::prove(volume.folder())?;
        let address = match record.address.split_once('@') {
            Some((_, address)) => address.to_owned(),
            None => record.address.clone(),
        };
        owner::record_server(volume.folder(), &ServerRecord { key: record.key.clone(), address })?;
        let pulse = Arc::new(Pulse::start(volume.folder(), &record)?);
        let candidate = Candidate::new(volume.folder(), pulse.beat().process(), record.clone());
        let store = store.to_owned();
        let stop = StandbyStop::default();
        Ok(Self { store, id: volume.id(), record, options, pulse, candidate, stop })
    }

    /// Returns the id of the volume.
    #[must_use]
    pub const fn id(&self) -> VolumeId {
        self.id
    }

    /// Looks who owns the volume, and takes it if no living server does. Called about once a
    /// second: a server counts as dead if its files did not move between two looks for some
    /// seconds.
    ///
    /// # Errors
    /// [`StartError`] if the volume was taken and cannot be served, and is free for others then; or
    /// if it cannot be taken. See [`StartError::is_passing`]. An error of a look alone is none: the
    /// next one may succeed.
    pub fn look(&mut self) -> Result<Standing, StartError> {
        if self.pulse.is_lost() {
            self.begin_again()?;
        }
        match self.candidate.look() {
            Ok(Look::Owned(by)) => Ok(Standing::Waits(by)),
            Ok(Look::Free(claim)) => self.claim(claim),
            Err(error) => {
                tracing::warn!(%error, "cannot see who owns the store; will look again");
                Ok(Standing::Waits(None))
            }
        }
    }

    /// Begins as another process: this one was taken for dead while it took the volume, and no
    /// server would know that it lives.
    fn begin_again(&mut self) -> Result<(), StartError> {
        let volume = self.volume()?;
        let pulse = Arc::new(Pulse::start(volume.folder(), &self.record)?);
        let process = pulse.beat().process();
        self.candidate = Candidate::new(volume.folder(), process, self.record.clone());
        std::mem::replace(&mut self.pulse, pulse).end();
        tracing::warn!("another server has taken this one for dead; it stands by again");
        Ok(())
    }

    /// Returns what ends a takeover that waits for the store.
    #[must_use]
    pub fn stop_handle(&self) -> StandbyStop {
        self.stop.clone()
    }

    fn claim(&self, claim: Claim) -> Result<Standing, StartError> {
        let taken = match claim.take() {
            Ok(Some(taken)) => taken,
            Ok(None) => return Ok(Standing::Waits(None)),
            Err(error) => {
                if error.is_no_space() {
                    self.release_reserve();
                }
                return Err(error.into());
            }
        };
        let baton = taken.baton();
        self.stop.note_taken(&baton);
        match self.serve(taken) {
            Ok(server) => Ok(Standing::Owns(Box::new(server))),
            Err(error) => {
                // Another server may be able to serve it.
                baton.stop_within(RELEASED);
                if let Err(error) = baton.release() {
                    tracing::warn!(%error, "the store stays taken until others find it free");
                }
                Err(error)
            }
        }
    }

    /// Frees the reserve of a full store, so that there is room for a copy of the rows.
    fn release_reserve(&self) {
        let released = self.volume().map_err(StartError::from).and_then(|volume| {
            let (file, path) = volume.open_reserve()?;
            Ok(Reserve::open(file, path, 0)?.release()?)
        });
        if let Err(error) = released {
            tracing::warn!(%error, "cannot free the reserve of the store");
        }
    }

    /// Opens the volume. An earlier owner may have added features since the last time.
    fn volume(&self) -> Result<Volume, VolumeError> {
        Volume::open_shared(&self.store, self.id)
    }

    fn serve(&self, taken: Taken) -> Result<Server, StartError> {
        let volume = self.volume()?;
        let ownership = Ownership::new(Arc::clone(&self.pulse), taken);
        Server::start_owner(volume, Arc::new(ownership), self.options.clone())
    }

    /// Ends to stand by: the process leaves the store.
    pub fn end(&self) {
        self.pulse.end();
    }
}

impl From<PulseError> for StartError {
    fn from(error: PulseError) -> Self {
        match error {
            PulseError::Owner(error) => Self::Store(error),
            PulseError::Thread(error) => Self::Thread(error),
        }
    }
}

impl From<OwnerError> for StartError {
    fn from(error: OwnerError) -> Self {
        Self::Store(error)
    }
}
