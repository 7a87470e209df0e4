//! Starting a server: opens the volume, recovers it after a crash, and builds the parts over it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_data::{self as data, OpenFiles, Passthrough, PassthroughStatus, Space, WakeWorker};
use pelago_meta::durability::Durability;
use pelago_meta::recovery::{self as meta_recovery, FirstRows, RecoverError};
use pelago_meta::shard::{self, Shard};
use pelago_search::{BuildIndex, IndexPlace, SearchIndex};
use pelago_store::clock;
use pelago_store::content::ContentStore;
use pelago_store::folder::Folder;
use pelago_store::reserve::Reserve;
use pelago_store::rows::{SiteRow, SiteState};
use pelago_store::table::{self, SharedTable};
use pelago_store::volume::{SiteOf, Volume, VolumeOptions};
use pelago_wire::{Error, Served, SessionId, SessionRecord, Time, limits};

use super::primary::{expect_primary, without_passthrough};
use super::table_opening::open_table;
use super::{Joining, LastSafe, OpenVolume, Options, Parts, Running, Server, StartError};
use crate::background::{
    ClosePending, CompleteTags, Notify, Recount, ReleaseReplaced, RemoveOrphans, WatchSpace,
    Writeback,
};
use crate::grace::Grace;
use crate::group_commit::GroupCommit;
use crate::host::Host;
use crate::memory::MEMORY_BYTES;
use crate::mirror::{Mirror, MirrorParts, SetMirrorError};
use crate::ownership::Ownership;
use crate::policy::Policy;
use crate::recovery::{self, RecoveryReport};
use crate::replaced::ReplacedFiles;
use crate::service::{self, LocalService};
use crate::sites::{SiteParts, Sites};

impl Server {
    /// Serves the volume in `dir`, which is created if it does not exist. When this returns, the
    /// volume is marked as in use, and is recovered if the last run ended in a crash. From then on
    /// SIGIO does not end the process.
    ///
    /// # Errors
    /// [`StartError`]; nothing but the recovery has changed the volume then.
    pub fn start(dir: &Path, options: Options) -> Result<Self, StartError> {
        let joining = options.joining.as_ref();
        let created = VolumeOptions {
            inline_bytes: options.inline_bytes,
            site: joining.map(|joining| SiteOf { volume: joining.volume, site: joining.site }),
        };
        let mut volume = Volume::open_or_create(dir, created)?;
        let options = Options { inline_bytes: volume.inline_bytes() as u32, ..options };
        let (file, path) = volume.open_reserve()?;
        let reserve = Arc::new(Reserve::open(file, path, limits::RESERVE_BYTES)?);
        let table = open_table(volume.table(), volume.dir(), &reserve, &options)?;
        volume.confirm_seed(&*table)?;
        let mut content = ContentStore::open_in(volume.content())?;
        if options.memory_bytes < MEMORY_BYTES {
            content = content.without_readahead();
        }
        let content = Arc::new(content);
        volume.mark_unclean()?;
        let parts = Parts {
            table: Arc::clone(&table) as SharedTable,
            content,
            volume: volume.id(),
            shard: volume.shard_id(),
            hasher: volume.hasher(),
        };
        let open = OpenVolume { table, volume, ownership: None };
        Self::start_over(parts, options, Some(reserve), Some(open))
    }

    /// Serves these parts, without a volume around them.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_on(parts: Parts, options: Options) -> Result<Self, StartError> {
        Self::start_over(parts, options, None, None)
    }

    pub(super) fn start_over(
        parts: Parts,
        options: Options,
        reserve: Option<Arc<Reserve>>,
        volume: Option<OpenVolume>,
    ) -> Result<Self, StartError> {
        let dir = volume.as_ref().map(|open| open.volume.dir().to_path_buf()).unwrap_or_default();
        let failed = |source| StartError::Recover { path: dir.clone(), source };
        let started = clock::now();
        let begun = begin(&dir, &parts, &first_rows(&options), started, reserve.as_deref())?;
        let mended = volume.as_ref().map(|open| mend(&open.volume)).unwrap_or_default();
        let notifies = WorkerNotifies::new();
        let space = Space::new(Arc::clone(&parts.content), reserve, notifier(&notifies.space));
        let host = Host::new(&options.of_host(), Arc::new(space))?;
        let durability = Arc::new(Durability::default());
        let shard = new_shard(&parts, &begun, &durability, host.memory.rows, started);
        let options = without_passthrough(options, &shard).map_err(failed)?;
        let detects_writers = data::can_detect_writers(&parts.content)?;
        let passthrough = data::probe(options.passthrough, detects_writers);
        let measured =
            recovery::measure_written(&shard, &*parts.table, &parts.content, detects_writers);
        let (recovered, still_written) = measured.map_err(failed)?;
        host.space.refresh().map_err(failed)?;
        let earlier = shard.earlier_sessions().map_err(failed)?;
        let revoked = shard.revocations().map_err(failed)?;
        let folder = volume.as_ref().map(|open| open.volume.folder().clone());
        let ownership = volume.as_ref().and_then(|open| open.ownership.clone());
        let others = shard.sites().map_err(failed)?;
        let policy = Arc::new(Policy::new(parts.volume, folder.clone(), revoked));
        let sites = sites(&parts, folder, &shard, &durability, others, options.remote_timeout);
        let grace = grace(&earlier, &options);
        let core = Core {
            host,
            index: search_index(volume.as_ref(), &options, &notifies),
            parts,
            options,
            epoch: begun.epoch,
            passthrough,
            durability,
            shard,
            grace,
            policy,
            sites,
            ownership,
        };
        let opens = core.open_files(&notifies);
        core.load_writing_rows(&opens).map_err(failed)?;
        for handle in still_written {
            opens.resume_external_writes(handle).map_err(failed)?;
        }
        let replaced = ReplacedFiles::new(Arc::clone(&opens), notifier(&notifies.replaced));
        let replaced = Arc::new(replaced);
        let mirror = core.mirror(&opens, volume.as_ref()).map_err(failed)?;
        expect_primary(&mirror, volume.as_ref())?;
        let service = core.service(&notifies, &opens, &replaced, earlier);
        if !core.options.stepped {
            service.wait_for_sessions(core.options.grace)?;
        }
        core.start_commits(&dir, &opens, &service, &mirror)?;
        // Without a volume it is unknown how the last run ended.
        let started_clean = volume.as_ref().is_some_and(|open| open.volume.was_clean());
        core.start_workers(&notifies, &opens, &replaced, !started_clean)?;
        core.complete_tags(&notifies, volume.as_ref())?;
        tracing::info!(volume = %core.parts.volume, epoch = begun.epoch, "the volume is served");
        Ok(Self {
            dir,
            started,
            started_clean,
            recovered: RecoveryReport { mended, ..recovered },
            core,
            opens,
            replaced,
            mirror,
            service,
            last_safe: Mutex::new(LastSafe { batch: 0, seen: Instant::now() }),
            running: Mutex::new(Running { volume, stopped: false }),
        })
    }
}

/// Returns what waits for the sessions of the last run; for none if there is no time for it.
fn grace(earlier: &[(SessionId, SessionRecord)], options: &Options) -> Arc<Grace> {
    let waits_for = earlier.iter().filter(|_| !options.grace.is_zero()).map(|(id, _)| *id);
    Arc::new(Grace::new(waits_for.collect()))
}

/// Returns the sites of the volume, of which `others` are in the table.
fn sites(
    parts: &Parts,
    folder: Option<Folder>,
    shard: &Arc<Shard>,
    durability: &Arc<Durability>,
    others: Vec<(u16, SiteRow)>,
    timeout: Duration,
) -> Arc<Sites> {
    Arc::new(Sites::new(SiteParts {
        own: parts.shard.site,
        volume: parts.volume,
        folder,
        shard: Arc::clone(shard),
        durability: Arc::clone(durability),
        others,
        timeout,
    }))
}

/// Returns the search index. There is none without a folder, or if a test counts each step.
fn search_index(
    volume: Option<&OpenVolume>,
    options: &Options,
    notifies: &WorkerNotifies,
) -> Arc<SearchIndex> {
    let place = volume
        .filter(|open| !options.stepped && !open.volume.is_shared())
        .map(|open| IndexPlace { folder: open.volume.folder().clone(), volume: open.volume.id() });
    let index = SearchIndex::new(place, options.indexing, notifier(&notifies.index));
    Arc::new(index.with_on_reading(options.on_index_reading))
}

/// Writes small files of the volume again that are damaged or missing, and says so. Returns how
/// many were damaged.
fn mend(volume: &Volume) -> u64 {
    let damaged = || volume.mends().iter().filter(|mend| mend.is_damage);
    for mend in damaged() {
        let path = mend.path.display();
        let says = "a file of the volume is written again from its second one";
        tracing::warn!(%path, mend.what, "{says}");
    }
    if let Err(error) = volume.mend() {
        // The next start tries it again.
        tracing::warn!(%error, "the second files of the volume are not as they should be");
    }
    damaged().count() as u64
}

/// Returns the shard over the rows of a table that was taken over.
fn new_shard(
    parts: &Parts,
    begun: &meta_recovery::Start,
    durability: &Arc<Durability>,
    cache_bytes: u64,
    started: Time,
) -> Arc<Shard> {
    Arc::new(Shard::new(shard::Parts {
        id: parts.shard,
        table: Arc::clone(&parts.table),
        hasher: parts.hasher,
        durability: Arc::clone(durability),
        epoch: begun.epoch,
        next_id: begun.next_id,
        cache_bytes: cache_bytes as usize,
        started,
    }))
}

/// Returns what a new table begins with.
fn first_rows(options: &Options) -> FirstRows {
    let founder = options.joining.as_ref().map(|Joining { founder, founder_name, .. }| {
        let state = SiteState::Joined { key: founder.key, invitation: [0; 32] };
        let address = founder.address.clone();
        (founder.site, SiteRow { state, name: founder_name.clone(), address })
    });
    FirstRows { owner: options.owner, sites: founder.into_iter().collect() }
}

/// Takes over the table and begins a new epoch; on a full disk, a second time with the space of the
/// reserve.
fn begin(
    dir: &Path,
    parts: &Parts,
    first: &FirstRows,
    now: Time,
    reserve: Option<&Reserve>,
) -> Result<meta_recovery::Start, StartError> {
    let begin = || meta_recovery::begin(&*parts.table, parts.volume, parts.shard, first, now);
    let mut begun = begin();
    if let (Err(RecoverError::Table(table::Error::NoSpace)), Some(reserve)) = (&begun, reserve)
        && reserve.release()?
    {
        begun = begin();
    }
    begun.map_err(|error| StartError::from_recover(dir, error))
}

/// The parts that all others are built over: the host, and what belongs to the shard.
pub(super) struct Core {
    pub(super) host: Host,
    pub(super) parts: Parts,
    pub(super) options: Options,
    /// The run of the server.
    pub(super) epoch: u32,
    pub(super) passthrough: PassthroughStatus,
    pub(super) durability: Arc<Durability>,
    pub(super) shard: Arc<Shard>,
    pub(super) grace: Arc<Grace>,
    pub(super) policy: Arc<Policy>,
    pub(super) sites: Arc<Sites>,
    pub(super) index: Arc<SearchIndex>,
    /// `None` unless the volume lies on a shared store.
    pub(super) ownership: Option<Arc<Ownership>>,
}

/// One [`Notify`] for each worker. They exist before the workers, because the parts that make work
/// for a worker are built first.
struct WorkerNotifies {
    orphans: Arc<Notify>,
    pending_close: Arc<Notify>,
    recount: Arc<Notify>,
    replaced: Arc<Notify>,
    index: Arc<Notify>,
    space: Arc<Notify>,
    tags: Arc<Notify>,
    writeback: Arc<Notify>,
}

impl WorkerNotifies {
    fn new() -> Self {
        let [index, orphans, pending_close, recount, replaced, space, tags, writeback] = [
            "index",
            "orphans",
            "pending_close",
            "recount",
            "replaced",
            "space",
            "tags",
            "writeback",
        ]
        .map(Notify::new);
        Self { orphans, pending_close, recount, replaced, index, space, tags, writeback }
    }
}

/// Returns a function that notifies the worker.
fn notifier(notify: &Arc<Notify>) -> WakeWorker {
    let notify = Arc::clone(notify);
    Arc::new(move || notify.notify())
}

impl Core {
    fn open_files(&self, notifies: &WorkerNotifies) -> Arc<OpenFiles> {
        let options = data::Options {
            inline_bytes: (self.options.inline_bytes as usize).min(limits::INLINE_BYTES),
            open_bytes: self.host.memory.opens as usize,
            passthrough: self.options.passthrough,
            can_detect_writers: self.passthrough == PassthroughStatus::Available,
            ..data::Options::default()
        };
        Arc::new(OpenFiles::new(data::Parts {
            shard: Arc::clone(&self.shard),
            table: Arc::clone(&self.parts.table),
            content: Arc::clone(&self.parts.content),
            durability: Arc::clone(&self.durability),
            space: Arc::clone(&self.host.space),
            fd_budget: Arc::clone(&self.host.descriptors),
            read_only: self.options.read_only,
            notify_orphans: notifier(&notifies.orphans),
            notify_pending_close: notifier(&notifies.pending_close),
            options,
        }))
    }

    /// Loads the files that may have bytes which are not safe; on a shared store, some of them may
    /// be lost with the last owner's machine.
    fn load_writing_rows(&self, opens: &OpenFiles) -> Result<(), Error> {
        opens.load_writing_rows()?;
        if self.ownership.as_ref().is_some_and(|ownership| ownership.taken().may_lack_bytes()) {
            let files = opens.note_lost_bytes();
            tracing::warn!(files, "the last owner's machine may have had bytes that are lost");
        }
        Ok(())
    }

    fn service(
        &self,
        notifies: &WorkerNotifies,
        opens: &Arc<OpenFiles>,
        replaced: &Arc<ReplacedFiles>,
        earlier: Vec<(SessionId, SessionRecord)>,
    ) -> Arc<LocalService> {
        Arc::new(LocalService::new(service::Parts {
            shard: Arc::clone(&self.shard),
            opens: Arc::clone(opens),
            content: Arc::clone(&self.parts.content),
            index: Arc::clone(&self.index),
            table: Arc::clone(&self.parts.table),
            durability: Arc::clone(&self.durability),
            space: Arc::clone(&self.host.space),
            pool: Arc::clone(&self.host.pool),
            served: Served {
                volume: self.parts.volume.0,
                epoch: self.epoch,
                read_only: self.options.read_only,
                site: self.parts.shard.site,
            },
            notify_orphans: notifier(&notifies.orphans),
            replaced: Arc::clone(replaced),
            earlier,
            grace: Arc::clone(&self.grace),
            leases: self.host.leases,
            policy: Arc::clone(&self.policy),
            sites: Arc::clone(&self.sites),
            ownership: self.ownership.clone(),
        }))
    }

    /// Returns the mirror of the volume, without a connection.
    fn mirror(
        &self,
        opens: &Arc<OpenFiles>,
        volume: Option<&OpenVolume>,
    ) -> Result<Arc<Mirror>, Error> {
        let hindrance = match self.options.passthrough {
            _ if volume.is_none() => Some(SetMirrorError::NoVolume),
            _ if self.ownership.is_some() => Some(SetMirrorError::SharedStore),
            _ if self.options.read_only => Some(SetMirrorError::ReadOnly),
            Passthrough::Never => None,
            Passthrough::Auto | Passthrough::Always => Some(SetMirrorError::Passthrough),
        };
        let mirror = Mirror::new(MirrorParts {
            volume: self.parts.volume,
            folder: volume.map(|open| open.volume.folder().clone()),
            shard: Arc::clone(&self.shard),
            opens: Arc::clone(opens),
            table: Arc::clone(&self.parts.table),
            content: Arc::clone(&self.parts.content),
            durability: Arc::clone(&self.durability),
            hindrance,
        });
        mirror.map(Arc::new)
    }

    /// Starts the group commit. From now on what is done becomes safe.
    fn start_commits(
        &self,
        dir: &Path,
        opens: &Arc<OpenFiles>,
        service: &LocalService,
        mirror: &Arc<Mirror>,
    ) -> Result<(), StartError> {
        if let Some(ownership) = &self.ownership {
            ownership.begin(dir, &*self.parts.table)?;
        }
        let shard = Arc::clone(&self.shard);
        let table = Arc::clone(&self.parts.table);
        let durability = Arc::clone(&self.durability);
        let epochs = Some(service.epoch_change(self.options.grace));
        let mirror = Some(Arc::clone(mirror));
        let commit = GroupCommit::new(Arc::clone(opens), shard, table, durability, epochs, mirror);
        Ok(self.host.start_commits(commit)?)
    }

    fn start_workers(
        &self,
        notifies: &WorkerNotifies,
        opens: &Arc<OpenFiles>,
        replaced: &Arc<ReplacedFiles>,
        unclean: bool,
    ) -> io::Result<()> {
        if !self.options.workers {
            return Ok(());
        }
        let host = &self.host;
        let recount = Recount::new(Arc::clone(&self.shard), host.memory.filters, unclean);
        host.start_worker(&notifies.recount, recount)?;
        let orphans = RemoveOrphans::new(
            Arc::clone(&self.shard),
            Arc::clone(&self.durability),
            Arc::clone(&self.parts.table),
            Arc::clone(&self.parts.content),
            Arc::clone(opens),
            Arc::clone(&self.grace),
        );
        host.start_worker(&notifies.orphans, orphans)?;
        let pending = ClosePending::new(Arc::clone(opens), self.options.sync_interval);
        host.start_worker(&notifies.pending_close, pending)?;
        host.start_worker(&notifies.replaced, ReleaseReplaced::new(Arc::clone(replaced)))?;
        host.start_worker(&notifies.writeback, Writeback::new(Arc::clone(opens)))?;
        let index = BuildIndex::new(
            Arc::clone(&self.index),
            Arc::clone(&self.shard),
            Arc::clone(&self.parts.content),
            Arc::clone(&self.durability),
        );
        host.start_worker(&notifies.index, index)?;
        let _none_yet = self.shard.remember_removed(!self.options.stepped);
        let space = WatchSpace::new(
            Arc::clone(&host.space),
            Arc::clone(&self.parts.table),
            Arc::clone(&self.shard),
            notifier(&notifies.orphans),
            !self.options.stepped,
        );
        host.start_worker(&notifies.space, space)
    }

    /// Tells the shard that each tag has its row, if the volume says so. Otherwise a worker adds
    /// what is missing.
    fn complete_tags(
        &self,
        notifies: &WorkerNotifies,
        open: Option<&OpenVolume>,
    ) -> io::Result<()> {
        if open.is_some_and(|open| open.volume.format().tags_are_complete()) {
            self.shard.set_tags_complete();
            return Ok(());
        }
        if !self.options.workers || self.options.read_only {
            return Ok(());
        }
        let shard = Arc::clone(&self.shard);
        let durability = Arc::clone(&self.durability);
        let folder = open.map(|open| open.volume.folder().clone());
        self.host.start_worker(&notifies.tags, CompleteTags::new(shard, durability, folder))
    }
}
