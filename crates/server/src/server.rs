//! A server of one volume: its parts, how they come to life, and how they end.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use pelago_store::content::ContentStore;
use pelago_store::folder::Folder;
use pelago_store::hash::NameHasher;
use pelago_store::reserve::Reserve;
use pelago_store::table::fjall::FjallTable;
use pelago_store::table::{self, SharedTable};
use pelago_store::volume::{Volume, VolumeId, VolumeOptions};
use pelago_wire::{Error, Service, Time, limits};

use crate::background::{
    ClosePending, Notify, Recount, RemoveOrphans, STOP_TIMEOUT, WatchSpace, Workers, Writeback,
};
use crate::group_commit::{Committer, GroupCommit, SYNC_INTERVAL};
use crate::memory::{MEMORY_BYTES, Memory, MemoryUse};
use crate::pool::Pool;
use crate::recovery::{self, Recovered};
use crate::service::{self, Router};
use crate::status::{ProgressStatus, SpaceStatus, Status};
use pelago_data::{
    self as data, FdBudget, Notifier, OpenFiles, Passthrough, PassthroughStatus, Space,
};
use pelago_meta::durability::Durability;
use pelago_meta::recovery::{self as meta_recovery, RecoverError};
use pelago_meta::shard::{self, Shard};
use pelago_store::clock;
use pelago_store::volume::Owner;

pub use error::{StartError, StopError};

mod error;

/// What can be chosen about a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How often what was done is made safe, at the least.
    pub sync_interval: Duration,
    /// Bytes of a file that are kept in the table, to [`limits::INLINE_BYTES`]. It counts when a
    /// volume is made.
    pub inline_bytes: u32,
    /// Bytes of all caches together.
    pub memory_bytes: u64,
    /// Changes are refused.
    pub read_only: bool,
    /// Who owns the root directory of a volume that is made.
    pub owner: Owner,
    /// When files are handed out as descriptors to who can use them.
    pub passthrough: Passthrough,
    /// Whether work that can wait is done. A test that drives everything itself says no.
    pub workers: bool,
    /// A test's door: the server starts no thread. What waits for one is done on the caller's, and
    /// the rest when the test calls [`Server::step`].
    pub stepped: bool,
}

impl Default for Options {
    fn default() -> Self {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        Self {
            sync_interval: SYNC_INTERVAL,
            inline_bytes: limits::INLINE_DEFAULT_BYTES as u32,
            memory_bytes: MEMORY_BYTES,
            read_only: false,
            owner: Owner { uid: uid.as_raw(), gid: gid.as_raw() },
            passthrough: Passthrough::Auto,
            workers: true,
            stepped: false,
        }
    }
}

/// One turn of a thread that a stepped server does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The group commit, and a reopening of the table where it has stopped.
    Commit,
    /// The worker of this name, until it has nothing more to do at once.
    Work(&'static str),
}

/// What a server serves, where there is no volume around it: for tests.
#[derive(Clone)]
pub struct Parts {
    /// The rows.
    pub table: SharedTable,
    /// The bytes.
    pub content: Arc<ContentStore>,
    /// Whose they are.
    pub volume: VolumeId,
    /// The hash of names.
    pub hasher: NameHasher,
}

/// A server of one volume.
///
/// Dropped without [`Server::stop`] it leaves the volume as a crash of the process would, but that
/// all its threads have ended.
pub struct Server {
    dir: PathBuf,
    since: Time,
    started_clean: bool,
    recovered: Recovered,
    core: Core,
    opens: Arc<OpenFiles>,
    router: Arc<Router>,
    committer: Committer,
    /// The newest safe batch that `status` saw, and when. A leaf.
    seen: Mutex<(u64, Instant)>,
    /// Taken before all others, while the server stops.
    life: Mutex<Life>,
}

/// What ends with a server.
struct Life {
    workers: Workers,
    held: Option<Held>,
    stopped: bool,
}

/// What a server holds of its volume. The table is closed before the volume is let go.
struct Held {
    table: Arc<FjallTable>,
    volume: Volume,
}

impl Server {
    /// Serves the volume in `dir`, which is made where there is none. When this returns, the volume
    /// is marked as in use, and what a crash has left was recovered. From then on SIGIO does not
    /// end the process.
    ///
    /// # Errors
    /// [`StartError`]: nothing was changed but what recovering changes.
    pub fn start(dir: &Path, options: Options) -> Result<Self, StartError> {
        let made = VolumeOptions { inline_bytes: options.inline_bytes };
        let volume = Volume::open_or_create(dir, made)?;
        let options = Options { inline_bytes: volume.inline_bytes() as u32, ..options };
        let (file, path) = volume.open_reserve()?;
        let reserve = Arc::new(Reserve::open(file, path, limits::RESERVE_BYTES)?);
        let table = open_table(&volume, &reserve, &options)?;
        table.set_reserve(Arc::clone(&reserve));
        let content = Arc::new(ContentStore::open_in(volume.content())?);
        volume.mark_unclean()?;
        let parts = Parts {
            table: Arc::clone(&table) as SharedTable,
            content,
            volume: volume.id(),
            hasher: volume.hasher(),
        };
        Self::build(parts, options, Some(reserve), Some(Held { table, volume }))
    }

    /// Serves these parts.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_on(parts: Parts, options: Options) -> Result<Self, StartError> {
        Self::build(parts, options, None, None)
    }

    fn build(
        parts: Parts,
        options: Options,
        reserve: Option<Arc<Reserve>>,
        held: Option<Held>,
    ) -> Result<Self, StartError> {
        let dir = held.as_ref().map(|held| held.volume.dir().to_path_buf()).unwrap_or_default();
        let failed = |source| StartError::Recover { path: dir.clone(), source };
        let since = clock::now();
        let begin = || meta_recovery::begin(&*parts.table, parts.volume, options.owner, since);
        let mut begun = begin();
        if let (Err(RecoverError::Table(table::Error::NoSpace)), Some(reserve)) = (&begun, &reserve)
            && reserve.release()?
        {
            begun = begin();
        }
        let start = begun.map_err(|error| StartError::from_recover(&dir, error))?;
        let memory = Memory::of(options.memory_bytes);
        let durability = Arc::new(Durability::default());
        let shard = Arc::new(Shard::new(shard::Parts {
            table: Arc::clone(&parts.table),
            hasher: parts.hasher,
            durability: Arc::clone(&durability),
            epoch: start.epoch,
            next_id: start.next_id,
            cache_bytes: memory.rows as usize,
            started: since,
        }));
        let tells = data::can_detect_writers(&parts.content)?;
        let passthrough = data::probe(options.passthrough, tells);
        let recovered = recovery::measure_written(&shard, &*parts.table, &parts.content, tells);
        let (recovered, written) = recovered.map_err(failed)?;
        let notifies = Notifies::new();
        let content = Arc::clone(&parts.content);
        let space = Arc::new(Space::new(content, reserve, notifier(&notifies.space)));
        space.refresh().map_err(failed)?;
        let core = Core { parts, options, passthrough, memory, durability, shard, space };
        let opens = core.opens(&notifies);
        opens.load_writing_rows().map_err(failed)?;
        written
            .into_iter()
            .try_for_each(|handle| opens.resume_external_writes(handle))
            .map_err(failed)?;
        let router = core.router(&notifies, &opens)?;
        let committer = core.committer(&opens)?;
        // Without a volume nobody knows how the life before ended.
        let started_clean = held.as_ref().is_some_and(|held| held.volume.was_clean());
        let workers = core.workers(&notifies, &opens, !started_clean)?;
        tracing::info!(volume = %core.parts.volume, epoch = start.epoch, "the volume is served");
        let seen = Mutex::new((0, Instant::now()));
        let life = Mutex::new(Life { workers, held, stopped: false });
        Ok(Self {
            dir,
            since,
            started_clean,
            recovered,
            core,
            opens,
            router,
            committer,
            seen,
            life,
        })
    }

    /// Where requests go.
    #[must_use]
    pub fn service(&self) -> Arc<dyn Service> {
        Arc::clone(&self.router) as Arc<dyn Service>
    }

    /// Returns the folder of the volume, open, until the server is stopped.
    #[must_use]
    pub fn folder(&self) -> Option<Folder> {
        self.life.lock().held.as_ref().map(|held| held.volume.folder().clone())
    }

    /// How the server is now. Never waits for a request.
    #[must_use]
    pub fn status(&self) -> Status {
        let Core { parts, options, durability, space, .. } = &self.core;
        let medium = space.stats().map_err(|error| tracing::warn!(%error, "no space to show")).ok();
        let files = self.opens.counts();
        Status {
            volume: parts.volume,
            dir: self.dir.clone(),
            since: self.since,
            started_clean: self.started_clean,
            recovered: self.recovered,
            read_only: options.read_only,
            progress: ProgressStatus {
                done: durability.done(),
                safe: durability.safe(),
                sync_interval: options.sync_interval,
                unsafe_for: self.unsafe_for(),
            },
            open_files: files.opens as u64,
            passthrough: self.core.passthrough,
            lingering_files: files.closed as u64,
            space: medium.map(|medium| SpaceStatus {
                medium,
                holds_reserve: space.holds_reserve(),
                is_short: space.is_short(),
            }),
            memory: self.memory(),
            workers: self.life.lock().workers.status(),
            table: parts.table.usage(),
            pressure: parts.table.pressure(),
        }
    }

    /// For [`Options::stepped`]: does on this thread what a thread would do.
    ///
    /// # Errors
    /// What failed; the next step tries it again.
    pub fn step(&self, step: Step) -> Result<(), Error> {
        match step {
            Step::Commit => self.committer.step(),
            Step::Work(name) => self.life.lock().workers.step(name),
        }
    }

    /// Ends the server: requests are answered `Unavailable` from now on, what is open is committed,
    /// everything is made safe, and the volume is marked as clean. A second call does nothing.
    ///
    /// # Errors
    /// [`StopError`]: all threads have ended all the same, and the next start recovers the volume.
    pub fn stop(&self) -> Result<(), StopError> {
        let mut life = self.life.lock();
        if std::mem::replace(&mut life.stopped, true) {
            return Ok(());
        }
        self.router.stop();
        life.workers.stop(STOP_TIMEOUT);
        let settled = self.settle();
        self.committer.stop();
        let Some(Held { table, volume }) = life.held.take() else { return settled };
        let closed = table.close().map_err(StopError::Table);
        settled.and(closed)?;
        volume.mark_clean()?;
        tracing::info!(volume = %self.core.parts.volume, "the volume was stopped cleanly");
        Ok(())
    }

    /// Makes everything safe, so that the next start has nothing to recover.
    fn settle(&self) -> Result<(), StopError> {
        let Core { parts, durability, shard, .. } = &self.core;
        // Programs may write on by descriptors and mappings: the next start measures those files.
        let mut written = self.opens.externally_written();
        self.opens.commit_all().map_err(StopError::Commit)?;
        self.opens.sync_writing()?;
        // Their bytes are not on the medium, whatever its memory shows: so the next life knows.
        written.extend(self.opens.inodes_in_error());
        recovery::forget_marks(shard, &*parts.table, &written).map_err(StopError::Commit)?;
        shard.finish().map_err(StopError::Commit)?;
        let done = durability.done();
        parts.table.persist().map_err(StopError::Table)?;
        durability.made_safe(done);
        Ok(())
    }

    /// Since when something waits to be safe, as far as status has seen it.
    fn unsafe_for(&self) -> Duration {
        let Core { durability, options, .. } = &self.core;
        let mut seen = self.seen.lock();
        let safe = durability.safe();
        if durability.done() == safe {
            *seen = (safe, Instant::now());
            return Duration::ZERO;
        }
        if seen.0 != safe {
            *seen = (safe, Instant::now());
        }
        seen.1.elapsed().max(options.sync_interval)
    }

    fn memory(&self) -> Vec<MemoryUse> {
        let Core { parts, memory, shard, .. } = &self.core;
        let (rows, filters) = shard.memory();
        let table = parts.table.usage().memory_bytes;
        [
            ("TABLE_MEMORY_BYTES", memory.table, table),
            ("ROW_CACHE_BYTES", memory.rows, rows),
            ("FILTER_BYTES", memory.filters, filters),
            ("OPEN_BYTES", memory.opens, self.opens.memory()),
        ]
        .map(|(name, limit, used)| MemoryUse { name, limit, used })
        .into()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut life = self.life.lock();
        if life.stopped {
            return;
        }
        self.router.stop();
        life.workers.stop(STOP_TIMEOUT);
        self.committer.stop();
        if let Some(Held { table, volume }) = life.held.take() {
            if let Err(error) = table.close() {
                tracing::warn!(%error, "the table did not close cleanly");
            }
            drop(volume);
        }
    }
}

/// What the parts of a server share.
struct Core {
    parts: Parts,
    options: Options,
    passthrough: PassthroughStatus,
    memory: Memory,
    durability: Arc<Durability>,
    shard: Arc<Shard>,
    space: Arc<Space>,
}

/// What wakes up each worker.
struct Notifies {
    orphans: Arc<Notify>,
    pending_close: Arc<Notify>,
    recount: Arc<Notify>,
    space: Arc<Notify>,
    writeback: Arc<Notify>,
}

impl Notifies {
    fn new() -> Self {
        let [orphans, pending_close, recount, space, writeback] =
            ["orphans", "pending_close", "recount", "space", "writeback"].map(Notify::new);
        Self { orphans, pending_close, recount, space, writeback }
    }

    /// Returns what tells the worker `orphans` that a file has lost its last name.
    fn orphans(&self) -> Notifier {
        notifier(&self.orphans)
    }
}

fn notifier(notify: &Arc<Notify>) -> Notifier {
    let notify = Arc::clone(notify);
    Arc::new(move || notify.notify())
}

impl Core {
    fn opens(&self, notifies: &Notifies) -> Arc<OpenFiles> {
        let options = data::Options {
            inline_bytes: (self.options.inline_bytes as usize).min(limits::INLINE_BYTES),
            open_bytes: self.memory.opens as usize,
            passthrough: self.options.passthrough,
            can_detect_writers: self.passthrough == PassthroughStatus::Available,
            ..data::Options::default()
        };
        Arc::new(OpenFiles::new(data::Parts {
            shard: Arc::clone(&self.shard),
            table: Arc::clone(&self.parts.table),
            content: Arc::clone(&self.parts.content),
            durability: Arc::clone(&self.durability),
            space: Arc::clone(&self.space),
            fd_budget: FdBudget::of_process(),
            read_only: self.options.read_only,
            notify_orphans: notifies.orphans(),
            notify_pending_close: notifier(&notifies.pending_close),
            options,
        }))
    }

    fn router(&self, notifies: &Notifies, opens: &Arc<OpenFiles>) -> io::Result<Arc<Router>> {
        Ok(Arc::new(Router::new(service::Parts {
            shard: Arc::clone(&self.shard),
            opens: Arc::clone(opens),
            table: Arc::clone(&self.parts.table),
            durability: Arc::clone(&self.durability),
            space: Arc::clone(&self.space),
            pool: Arc::new(match self.options.stepped {
                true => Pool::inline(),
                false => Pool::start(limits::POOL_SHARE)?,
            }),
            read_only: self.options.read_only,
            reap: notifies.orphans(),
        })))
    }

    fn committer(&self, opens: &Arc<OpenFiles>) -> io::Result<Committer> {
        let (shard, table) = (Arc::clone(&self.shard), Arc::clone(&self.parts.table));
        let durability = Arc::clone(&self.durability);
        let commit = GroupCommit::new(Arc::clone(opens), shard, table, durability);
        match self.options.stepped {
            true => Ok(Committer::stepped(commit)),
            false => Committer::start(commit, self.options.sync_interval),
        }
    }

    fn workers(
        &self,
        notifies: &Notifies,
        opens: &Arc<OpenFiles>,
        unclean: bool,
    ) -> io::Result<Workers> {
        let mut workers = Workers::new(self.options.stepped);
        if !self.options.workers {
            return Ok(workers);
        }
        let shard = || Arc::clone(&self.shard);
        let recount = Recount::new(shard(), self.memory.filters, unclean);
        workers.start(&notifies.recount, recount)?;
        let (table, content) = (Arc::clone(&self.parts.table), Arc::clone(&self.parts.content));
        let orphans = RemoveOrphans::new(
            shard(),
            Arc::clone(&self.durability),
            table,
            content,
            Arc::clone(opens),
        );
        workers.start(&notifies.orphans, orphans)?;
        let pending = ClosePending::new(Arc::clone(opens), self.options.sync_interval);
        workers.start(&notifies.pending_close, pending)?;
        workers.start(&notifies.writeback, Writeback::new(Arc::clone(opens)))?;
        let table = Arc::clone(&self.parts.table);
        workers.start(&notifies.space, WatchSpace::new(Arc::clone(&self.space), table))?;
        Ok(workers)
    }
}

/// OpenFiles the table; where there is no space for that, with the space of the reserve.
fn open_table(
    volume: &Volume,
    reserve: &Reserve,
    options: &Options,
) -> Result<Arc<FjallTable>, StartError> {
    let held = Memory::of(options.memory_bytes).table_options();
    let opened = match FjallTable::open_in(volume.table(), held) {
        Err(table::Error::NoSpace) if reserve.release()? => {
            FjallTable::open_in(volume.table(), held)
        }
        opened => opened,
    };
    match opened {
        Ok(table) => Ok(Arc::new(table)),
        Err(error) => Err(StartError::from_table(volume.dir(), error)),
    }
}
