//! The ownership of a volume on a shared store by this server, and the beat that keeps it.
//!
//! A server of a store has two files there that it renames. The *baton* of the shard
//! ([`pelago_store::owner`]) says who owns the rows: no batch counts as safe unless the baton was
//! still the server's afterwards, so what is safe needs no clock. The *beat* says that the process
//! lives: another server takes the baton only if the beat has not moved for a while. Clients are
//! told nothing once the own beat is older than that. So no two servers answer at one time, if the
//! clocks of both run.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pelago_store::folder::Folder;
use pelago_store::owner::{self, Baton, Beat, OwnerError, ProcessRecord, ServerRecord, Taken};
use pelago_store::table::Table;
use pelago_wire::limits;

use crate::server::StartError;

/// The time after which the servers of the store are read again, for the status.
const READ_SERVERS: Duration = Duration::from_secs(limits::SERVERS_ASKED_SECONDS);

/// How long a clean stop waits for a store that does not answer.
const STORE_ANSWERS: Duration = Duration::from_secs(10);

/// Called once when the server has lost the store to another one.
pub type OnLost = Box<dyn FnOnce() + Send>;

/// The beat of this process, and the thread that renews it.
pub(crate) struct Pulse {
    shared: Arc<PulseState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct PulseState {
    store: Folder,
    /// The key of this server.
    key: String,
    beat: Beat,
    /// The servers of the store, as they were read last. A leaf lock.
    servers: Mutex<Vec<ServerRecord>>,
    is_lost: AtomicBool,
    /// A leaf lock.
    on_lost: Mutex<Option<OnLost>>,
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Pulse {
    /// Begins to beat.
    ///
    /// # Errors
    /// [`OwnerError`]; the system's, if it gives no thread.
    pub(crate) fn start(store: &Folder, record: &ProcessRecord) -> Result<Self, PulseError> {
        let beat = Beat::begin(store, record)?;
        let servers = owner::list_servers(store)?;
        let shared = Arc::new(PulseState {
            store: store.clone(),
            key: record.key.clone(),
            beat,
            servers: Mutex::new(servers),
            is_lost: AtomicBool::new(false),
            on_lost: Mutex::default(),
            stopped: Mutex::new(false),
            changed: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        let thread = Builder::new().name("beat".to_owned()).spawn(move || own.run())?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Returns the beat.
    pub(crate) fn beat(&self) -> &Beat {
        &self.shared.beat
    }

    /// Returns the servers of the store, as they were read some seconds ago.
    pub(crate) fn servers(&self) -> Vec<ServerRecord> {
        self.shared.servers.lock().clone()
    }

    /// Reads the servers of the store.
    ///
    /// # Errors
    /// [`OwnerError`].
    pub(crate) fn read_servers(&self) -> Result<Vec<ServerRecord>, OwnerError> {
        self.shared.read_servers()
    }

    /// Returns the addresses of these servers, the own one first, as many as an answer holds.
    fn addresses_of(&self, mut servers: Vec<ServerRecord>) -> Vec<String> {
        servers.sort_by_key(|server| server.key != self.shared.key);
        let address = |server: ServerRecord| format!("{}@{}", server.key, server.address);
        let fits = |address: &String| address.len() <= limits::SERVER_ADDRESS_BYTES;
        servers.into_iter().map(address).filter(fits).take(limits::STORE_SERVERS).collect()
    }

    /// Returns whether another server has taken this one for dead.
    pub(crate) fn is_lost(&self) -> bool {
        self.shared.is_lost.load(Ordering::Acquire)
    }

    /// Notes that the server has lost the store.
    pub(crate) fn lose(&self) {
        self.shared.lose();
    }

    /// Sets who is told when the server has lost the store: at once if it has.
    pub(crate) fn set_on_lost(&self, on_lost: OnLost) {
        *self.shared.on_lost.lock() = Some(on_lost);
        if self.is_lost() {
            self.shared.lose();
        }
    }

    /// Ends the thread; the file stays, as after a crash.
    pub(crate) fn stop(&self) {
        *self.shared.stopped.lock() = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the beat has panicked");
        }
    }

    /// Ends the thread and removes the file: the process owns nothing any more.
    pub(crate) fn end(&self) {
        self.stop();
        self.shared.beat.end();
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.stop();
    }
}

impl PulseState {
    fn run(&self) {
        let mut read = Instant::now();
        let ended = self.beat.run(|pause| {
            if read.elapsed() >= READ_SERVERS {
                if let Err(error) = self.read_servers() {
                    tracing::warn!(%error, "cannot read the servers of the store");
                }
                read = Instant::now();
            }
            self.wait(pause)
        });
        if ended.is_err() {
            self.lose();
        }
    }

    /// Waits; returns `false` once it is stopped.
    fn wait(&self, pause: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.changed.wait_for(&mut stopped, pause);
        }
        !*stopped
    }

    fn read_servers(&self) -> Result<Vec<ServerRecord>, OwnerError> {
        let servers = owner::list_servers(&self.store)?;
        self.servers.lock().clone_from(&servers);
        Ok(servers)
    }

    fn lose(&self) {
        if !self.is_lost.swap(true, Ordering::AcqRel) {
            tracing::error!("another server has taken the volume over");
        }
        let on_lost = self.on_lost.lock().take();
        if let Some(on_lost) = on_lost {
            on_lost();
        }
    }
}

/// Why a process cannot beat.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PulseError {
    #[error(transparent)]
    Owner(#[from] OwnerError),
    #[error("the system gives no thread")]
    Thread(#[from] io::Error),
}

/// The ownership of the shard of a shared store by this process.
pub(crate) struct Ownership {
    pulse: Arc<Pulse>,
    taken: Taken,
    baton: Arc<Baton>,
    has_untold: AtomicBool,
}

impl Ownership {
    /// Returns the ownership of a shard that was taken.
    pub(crate) fn new(pulse: Arc<Pulse>, taken: Taken) -> Self {
        let baton = taken.baton();
        let of_baton = Arc::clone(&pulse);
        baton.on_fenced(move || of_baton.lose());
        Self { pulse, taken, baton, has_untold: AtomicBool::new(false) }
    }

    /// Returns what was taken.
    pub(crate) const fn taken(&self) -> &Taken {
        &self.taken
    }

    /// Makes the rows safe with which this owner begins, and lets the next one begin with them.
    /// Before that nothing may be called safe, and nothing answered: the next owner would not have
    /// it.
    ///
    /// # Errors
    /// Those of the table; [`OwnerError`].
    pub(crate) fn begin(&self, dir: &Path, table: &dyn Table) -> Result<(), StartError> {
        // The epoch of this run is among them: no later one may have it too.
        table.persist().map_err(|error| StartError::from_table(dir, error))?;
        self.taken.mark_ready()?;
        if let Err(error) = self.taken.remove_older() {
            tracing::warn!(%error, "the rows of earlier owners stay; the next owner removes them");
        }
        Ok(())
    }

    /// Returns whether no other server can own the shard yet, as far as clocks tell.
    pub(crate) fn may_answer(&self) -> bool {
        !self.is_lost() && self.pulse.beat().is_fresh()
    }

    /// Returns whether another server owns the shard.
    pub(crate) fn is_lost(&self) -> bool {
        self.pulse.is_lost() || self.baton.is_fenced()
    }

    /// Returns the addresses of all servers of the store, as they were read some seconds ago.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.pulse.addresses_of(self.pulse.servers())
    }

    /// Reads the addresses of all servers of the store. Blocks on the store.
    ///
    /// # Errors
    /// [`OwnerError`].
    pub(crate) fn read_addresses(&self) -> Result<Vec<String>, OwnerError> {
        self.pulse.read_servers().map(|servers| self.pulse.addresses_of(servers))
    }

    /// Sets who is told when another server owns the shard.
    pub(crate) fn set_on_lost(&self, on_lost: OnLost) {
        self.pulse.set_on_lost(on_lost);
    }

    /// Begins to stop: if the store does not answer for a while, nothing more becomes safe.
    pub(crate) fn begin_stop(&self) {
        self.baton.stop_within(STORE_ANSWERS);
    }

    /// Notes that programs may not have heard of bytes that are lost: the next owner tells them.
    pub(crate) fn leave_untold(&self) {
        self.has_untold.store(true, Ordering::Release);
    }

    /// Gives the shard away, which is closed with all its bytes: another server takes it at once.
    ///
    /// # Errors
    /// [`OwnerError`]. Another server takes it once this one counts as dead.
    pub(crate) fn release(&self) -> Result<(), OwnerError> {
        let closed = match self.has_untold.load(Ordering::Acquire) {
            true => Ok(()),
            false => self.taken.mark_closed(),
        };
        // Also if the end could not be noted: the next owner then tells of bytes that may be lost.
        let released = self.baton.release();
        self.pulse.end();
        closed.and(released)
    }

    /// Ends without a word, as a crash does.
    pub(crate) fn abandon(&self) {
        self.baton.stop();
        self.pulse.stop();
    }
}
