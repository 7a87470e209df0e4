//! A server that stands by at a shared store, and becomes its owner.
//!
//! It looks again and again who owns the volume. If no living server does, it takes the baton and
//! serves. If it cannot serve, it gives the baton back, so that another server can try.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pelago_store::owner::{
    self, Baton, Candidate, Claim, Look, OwnerError, ProcessRecord, ServerRecord, Taken,
};
use pelago_store::reserve::Reserve;
use pelago_store::volume::{SharedOptions, Volume, VolumeError, VolumeId};

use crate::ownership::{BeatError, BeatThread, Ownership};
use crate::server::{Options, Server, StartError};

/// The longest time for which a server that cannot serve the volume tries to give it back.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// A server that stands by at a shared store.
pub struct Standby {
    store: PathBuf,
    id: VolumeId,
    record: ProcessRecord,
    options: Options,
    beat: Arc<BeatThread>,
    candidate: Candidate,
    stop: StandbyStop,
}

/// Stops a server that stands by, even if its store does not answer.
#[derive(Debug, Clone, Default)]
pub struct StandbyStop(Arc<Mutex<StopState>>);

#[derive(Debug, Default)]
struct StopState {
    is_stopped: bool,
    /// The baton that was taken and not given back.
    baton: Option<Arc<Baton>>,
}

impl StandbyStop {
    /// Limits a takeover that is under way to some seconds of waiting for the store.
    pub fn stop(&self) {
        let mut state = self.0.lock();
        state.is_stopped = true;
        if let Some(baton) = &state.baton {
            baton.stop_within(RELEASE_TIMEOUT);
        }
    }

    fn record_taken(&self, baton: &Arc<Baton>) {
        let mut state = self.0.lock();
        if state.is_stopped {
            baton.stop_within(RELEASE_TIMEOUT);
        }
        state.baton = Some(Arc::clone(baton));
    }
}

/// The result of a look at the owner of the volume.
pub enum Standing {
    /// Another server owns the volume: given by its record, if it is known.
    Waits(Option<ProcessRecord>),
    /// This server owns the volume now, and serves it.
    Owns(Box<Server>),
}

impl Standby {
    /// Begins to stand by at the store in the folder `store`, which must have the volume `known`.
    /// For `None`, the store is made if the folder is empty or missing. `own` is what this process
    /// publishes about itself.
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
        let beat = Arc::new(BeatThread::start(volume.folder(), &record)?);
        let candidate = Candidate::new(volume.folder(), beat.beat().process(), record.clone());
        let store = store.to_owned();
        let stop = StandbyStop::default();
        Ok(Self { store, id: volume.id(), record, options, beat, candidate, stop })
    }

    /// Returns the id of the volume.
    #[must_use]
    pub const fn id(&self) -> VolumeId {
        self.id
    }

    /// Looks who owns the volume, and takes it if no living server does. Called about once a
    /// second: a server counts as dead if looks over some seconds find its files unmoved.
    ///
    /// # Errors
    /// [`StartError`] if the volume cannot be taken, or was taken and cannot be served: then it is
    /// free for others again. See [`StartError::is_passing`]. An error of the look alone is only
    /// logged, because the next look may succeed.
    pub fn look(&mut self) -> Result<Standing, StartError> {
        if self.beat.is_lost() {
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

    /// Begins again under a new process id: other servers have taken this process for dead while it
    /// took the volume, and would not see its old beat.
    fn begin_again(&mut self) -> Result<(), StartError> {
        let volume = self.volume()?;
        let beat = Arc::new(BeatThread::start(volume.folder(), &self.record)?);
        let process = beat.beat().process();
        self.candidate = Candidate::new(volume.folder(), process, self.record.clone());
        std::mem::replace(&mut self.beat, beat).end();
        tracing::warn!("another server has taken this one for dead; it stands by again");
        Ok(())
    }

    /// Returns the handle that stops a takeover which waits for the store.
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
        self.stop.record_taken(&baton);
        match self.serve(taken) {
            Ok(server) => Ok(Standing::Owns(Box::new(server))),
            Err(error) => {
                // Another server may be able to serve the volume.
                baton.stop_within(RELEASE_TIMEOUT);
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
        let ownership = Ownership::new(Arc::clone(&self.beat), taken);
        Server::start_owner(volume, Arc::new(ownership), self.options.clone())
    }

    /// Stops standing by: the process leaves the store.
    pub fn end(&self) {
        self.beat.end();
    }
}

impl From<BeatError> for StartError {
    fn from(error: BeatError) -> Self {
        match error {
            BeatError::Owner(error) => Self::Store(error),
            BeatError::Thread(error) => Self::Thread(error),
        }
    }
}

impl From<OwnerError> for StartError {
    fn from(error: OwnerError) -> Self {
        Self::Store(error)
    }
}
