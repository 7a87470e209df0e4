//! The ownership of a volume on a shared store by this server, and the beat that keeps it.
//!
//! A server of a store renames two files there. The name of the *baton* of the shard
//! ([`pelago_store::owner`]) says which server owns the rows: a batch counts as safe only if the
//! baton was still this server's after the sync, so safety needs no clock. The *beat* shows that
//! the process lives: another server takes the baton only if the beat has not moved for a while.
//! This server answers no client once its own beat is older than that. So two servers never answer
//! at one time, if the clocks of both run.
//!
//! If another server takes the baton, the ownership is *lost*, for ever: the process is to end.

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

/// The time after which the list of servers is read from the store again, for the status.
const READ_SERVERS: Duration = Duration::from_secs(limits::SERVERS_ASKED_SECONDS);

/// The longest time for which a clean stop waits for the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// Called once when the server has lost the store to another server.
pub type OnLost = Box<dyn FnOnce() + Send>;

/// The thread that renews the beat of this process.
pub(crate) struct BeatThread {
    shared: Arc<BeatState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct BeatState {
    store: Folder,
    /// The key of this server.
    key: String,
    beat: Beat,
    /// The servers of the store when they were last read. A leaf lock.
    servers: Mutex<Vec<ServerRecord>>,
    is_lost: AtomicBool,
    /// A leaf lock.
    on_lost: Mutex<Option<OnLost>>,
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl BeatThread {
    /// Begins the beat of this process at a store, and starts the thread.
    ///
    /// # Errors
    /// [`OwnerError`]; the system's, if it gives no thread.
    pub(crate) fn start(store: &Folder, record: &ProcessRecord) -> Result<Self, BeatError> {
        let beat = Beat::begin(store, record)?;
        let servers = owner::list_servers(store)?;
        let shared = Arc::new(BeatState {
            store: store.clone(),
            key: record.key.clone(),
            beat,
            servers: Mutex::new(servers),
            is_lost: AtomicBool::new(false),
            on_lost: Mutex::default(),
            stopped: Mutex::new(false),
            changed: Condvar::new(),
        });
        let state = Arc::clone(&shared);
        let thread = Builder::new().name("beat".to_owned()).spawn(move || state.run())?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Returns the beat.
    pub(crate) fn beat(&self) -> &Beat {
        &self.shared.beat
    }

    /// Returns the servers of the store, as of some seconds ago.
    pub(crate) fn servers(&self) -> Vec<ServerRecord> {
        self.shared.servers.lock().clone()
    }

    /// Reads the list of servers from the store.
    ///
    /// # Errors
    /// [`OwnerError`].
    pub(crate) fn read_servers(&self) -> Result<Vec<ServerRecord>, OwnerError> {
        self.shared.read_servers()
    }

    /// Returns the addresses of these servers, this one first, as many as a reply holds.
    fn addresses_of(&self, mut servers: Vec<ServerRecord>) -> Vec<String> {
        servers.sort_by_key(|server| server.key != self.shared.key);
        let address = |server: ServerRecord| format!("{}@{}", server.key, server.address);
        let fits = |address: &String| address.len() <= limits::SERVER_ADDRESS_BYTES;
        servers.into_iter().map(address).filter(fits).take(limits::STORE_SERVERS).collect()
    }

    /// Returns whether the store is lost: another server has taken this one for dead.
    pub(crate) fn is_lost(&self) -> bool {
        self.shared.is_lost.load(Ordering::Acquire)
    }

    /// Records that the server has lost the store, and calls the callback.
    pub(crate) fn lose(&self) {
        self.shared.lose();
    }

    /// Sets the callback for the loss of the store, and calls it if the store is lost already.
    pub(crate) fn set_on_lost(&self, on_lost: OnLost) {
        *self.shared.on_lost.lock() = Some(on_lost);
        if self.is_lost() {
            self.shared.lose();
        }
    }

    /// Ends the thread. The file of the beat stays, as after a crash.
    pub(crate) fn stop(&self) {
        *self.shared.stopped.lock() = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the beat has panicked");
        }
    }

    /// Ends the thread and removes the file of the beat: the process leaves the store.
    pub(crate) fn end(&self) {
        self.stop();
        self.shared.beat.end();
    }
}

impl Drop for BeatThread {
    fn drop(&mut self) {
        self.stop();
    }
}

impl BeatState {
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

/// An error at the start of [`BeatThread`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum BeatError {
    #[error(transparent)]
    Owner(#[from] OwnerError),
    #[error("the system gives no thread")]
    Thread(#[from] io::Error),
}

/// The ownership of the shard of a shared store by this process.
pub(crate) struct Ownership {
    beat: Arc<BeatThread>,
    taken: Taken,
    baton: Arc<Baton>,
    /// True if programs may not have got an error yet for bytes that are lost.
    has_unreported: AtomicBool,
}

impl Ownership {
    /// Returns the ownership of a shard that was taken.
    pub(crate) fn new(beat: Arc<BeatThread>, taken: Taken) -> Self {
        let baton = taken.baton();
        let of_baton = Arc::clone(&beat);
        baton.on_fenced(move || of_baton.lose());
        Self { beat, taken, baton, has_unreported: AtomicBool::new(false) }
    }

    /// Returns the shard that was taken.
    pub(crate) const fn taken(&self) -> &Taken {
        &self.taken
    }

    /// Makes safe the rows with which this owner begins, and has the next owner begin with them.
    /// Before that nothing may be called safe and no request answered: the next owner would not
    /// have it.
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

    /// Returns whether the server may answer clients: no other server can own the shard yet, if the
    /// clocks of both run.
    pub(crate) fn may_answer(&self) -> bool {
        !self.is_lost() && self.beat.beat().is_fresh()
    }

    /// Returns whether another server owns the shard.
    pub(crate) fn is_lost(&self) -> bool {
        self.beat.is_lost() || self.baton.is_fenced()
    }

    /// Returns the addresses of all servers of the store, as of some seconds ago.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.beat.addresses_of(self.beat.servers())
    }

    /// Reads the addresses of all servers of the store. Blocks on the store.
    ///
    /// # Errors
    /// [`OwnerError`].
    pub(crate) fn read_addresses(&self) -> Result<Vec<String>, OwnerError> {
        self.beat.read_servers().map(|servers| self.beat.addresses_of(servers))
    }

    /// Sets the callback for the loss of the shard to another server.
    pub(crate) fn set_on_lost(&self, on_lost: OnLost) {
        self.beat.set_on_lost(on_lost);
    }

    /// Limits the wait for the store from now on: if it does not answer in time, nothing more
    /// becomes safe.
    pub(crate) fn begin_stop(&self) {
        self.baton.stop_within(STORE_TIMEOUT);
    }

    /// Records that programs may not have got an error yet for bytes that are lost, so that the
    /// next owner reports it.
    pub(crate) fn leave_unreported(&self) {
        self.has_unreported.store(true, Ordering::Release);
    }

    /// Releases the shard, whose table is closed and whose bytes are all safe: another server can
    /// take it at once.
    ///
    /// # Errors
    /// [`OwnerError`]. Another server takes the shard after this one counts as dead.
    pub(crate) fn release(&self) -> Result<(), OwnerError> {
        let closed = match self.has_unreported.load(Ordering::Acquire) {
            true => Ok(()),
            false => self.taken.mark_closed(),
        };
        // Even if the end was not recorded: the next owner then says that bytes may be lost.
        let released = self.baton.release();
        self.beat.end();
        closed.and(released)
    }

    /// Ends the beat without a release, as a crash does.
    pub(crate) fn stop_without_release(&self) {
        self.baton.stop();
        self.beat.stop();
    }
}
