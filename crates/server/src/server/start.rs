//! The start of a server: opens the volume, recovers it after a crash, and builds the parts above
//! it.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use pelago_data::{self as data, Space};
use pelago_meta::durability::Durability;
use pelago_meta::recovery::{self as meta_recovery, FirstRows, RecoverError};
use pelago_meta::shard::{self, Shard};
use pelago_search::{IndexPlace, SearchIndex};
use pelago_store::clock;
use pelago_store::content::ContentStore;
use pelago_store::folder::Folder;
use pelago_store::reserve::Reserve;
use pelago_store::rows::{SiteRow, SiteState, SiteTokensRow};
use pelago_store::table::{self, SharedTable};
use pelago_store::volume::{SiteOf, Volume, VolumeOptions};
use pelago_wire::{Code, Error, Handle, RecordedPeer, SessionId, SessionRecord, Time, limits};

use super::core::{Built, Core, WorkerNotifies, notifier};
use super::primary::without_passthrough;
use super::table_opening::open_table;
use super::{Joining, OpenVolume, Options, Parts, Running, Server, StartError};
use crate::chains::Chains;
use crate::grace::Grace;
use crate::host::Host;
use crate::memory::{MEMORY_BYTES, fetch_limits};
use crate::origins::Origins;
use crate::policy::Policy;
use crate::recovery::{self, Measured, RecoveryReport};
use crate::sites::{SiteParts, SiteRows, Sites};
use crate::stays::Stays;
use crate::unfinished::{Unfinished, changes_of_sites};

impl Server {
    /// Serves the volume in `dir`, which is created if it does not exist. When this returns, the
    /// volume is marked as in use, and is recovered if the last run ended in a crash. From then on
    /// SIGIO does not end the process.
    ///
    /// # Errors
    /// [`StartError`]. Only the recovery has changed the volume then.
    pub fn start(dir: &Path, options: Options) -> Result<Self, StartError> {
        let joining = options.joining.as_ref();
        let created = VolumeOptions {
            inline_bytes: options.inline_bytes,
            site: joining.map(|joining| SiteOf { volume: joining.volume, site: joining.site }),
        };
        let mut volume = match options.adopts {
            true => Volume::open_mirror(dir)?,
            false => Volume::open_or_create(dir, created)?,
        };
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
        Self::start_with(parts, options, Some(reserve), Some(open), None)
    }

    /// Serves these parts, without a volume around them.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_on(parts: Parts, options: Options) -> Result<Self, StartError> {
        Self::start_with(parts, options, None, None, None)
    }

    /// As [`Server::start_on`], with guests: the folder has the files `format`, `policy` and `keys`
    /// of a volume. If it has the seed of the table too, the volume can have a mirror. There is no
    /// audit log.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_on_with_guests(
        parts: Parts,
        options: Options,
        folder: Folder,
    ) -> Result<Self, StartError> {
        Self::start_with(parts, options, None, None, Some(folder))
    }

    /// Starts a server over these parts, in three steps: recovers what the last run has left,
    /// builds the parts above it, and starts the threads. Without a volume, `guests` is the folder
    /// that has the policy.
    pub(super) fn start_with(
        parts: Parts,
        options: Options,
        reserve: Option<Arc<Reserve>>,
        volume: Option<OpenVolume>,
        guests: Option<Folder>,
    ) -> Result<Self, StartError> {
        let dir = volume.as_ref().map(|open| open.volume.dir().to_path_buf()).unwrap_or_default();
        let started = clock::now();
        let notifies = WorkerNotifies::new();
        let Recovered { core, report, still_written, sessions } =
            recover(parts, options, reserve, volume.as_ref(), guests, &dir, &notifies, started)?;
        let built = core.build(volume.as_ref(), &dir, &notifies, still_written, sessions)?;
        // Without a volume it is unknown how the last run ended.
        let started_clean = volume.as_ref().is_some_and(|open| open.volume.was_clean());
        core.start_threads(&built, volume.as_ref(), &dir, &notifies, started_clean)?;
        tracing::info!(volume = %core.parts.volume, epoch = core.epoch, "the volume is served");
        let Built { opens, replaced, mirror, service } = built;
        Ok(Self {
            dir,
            started,
            started_clean,
            recovered: report,
            core,
            opens,
            replaced,
            mirror,
            service,
            running: Mutex::new(Running { volume, stopped: false }),
        })
    }
}

/// The result of the first step of a start: rows that a new epoch has taken over.
struct Recovered {
    core: Core,
    report: RecoveryReport,
    /// Files that a process still writes by a descriptor of an earlier run.
    still_written: Vec<Handle>,
    /// The sessions of the last run.
    sessions: Vec<(SessionId, SessionRecord)>,
}

/// Takes over the table in a new epoch, corrects the rows of files that were written when the last
/// run ended, and reads the rows of sessions, revocations and sites.
fn recover(
    parts: Parts,
    options: Options,
    reserve: Option<Arc<Reserve>>,
    volume: Option<&OpenVolume>,
    guests: Option<Folder>,
    dir: &Path,
    notifies: &WorkerNotifies,
    started: Time,
) -> Result<Recovered, StartError> {
    let failed = |source| StartError::Recover { path: dir.to_path_buf(), source };
    let begun = begin(dir, &parts, &first_rows(&options), started, reserve.as_deref())?;
    let mended = volume.map(|open| mend(&open.volume)).unwrap_or_default();
    let space = Space::new(Arc::clone(&parts.content), reserve, notifier(&notifies.space));
    let host = Host::new(&options.of_host(), Arc::new(space))?;
    let durability = Arc::new(Durability::default());
    let shard = new_shard(&parts, &begun, &durability, host.memory.rows, started);
    let options = without_passthrough(options, &shard).map_err(failed)?;
    // The test makes a file, and readers of a mirror have no passthrough.
    let detects_writers = options.groups.is_none() && data::can_detect_writers(&parts.content)?;
    let passthrough = data::probe(options.passthrough, detects_writers);
    let others = shard.sites().map_err(failed)?;
    if others.iter().any(|(site, _)| *site == parts.shard.site) {
        // Only a site that has left has a row of its own.
        return Err(StartError::HasLeft { path: dir.to_path_buf() });
    }
    let has_mirror = !shard.mirror_row().map_err(failed)?.peer.is_empty();
    let is_copied = !others.is_empty() || has_mirror || options.adopts;
    let Measured { report, still_written } = match options.groups {
        // A promotion does it.
        Some(_) => Measured::default(),
        None => recovery::measure_written(
            &shard,
            &*parts.table,
            &parts.content,
            detects_writers,
            is_copied,
        )
        .map_err(failed)?,
    };
    host.space.refresh().map_err(failed)?;
    let mut sessions = shard.earlier_sessions().map_err(failed)?;
    let origins = Origins::of_last_run(&sessions);
    sessions.retain(|(_, record)| !matches!(record.peer, RecordedPeer::Origin { .. }));
    let revoked = shard.revocations().map_err(failed)?;
    let tokens = tokens_of_sites(&shard, &others).map_err(failed)?;
    let of_sites = SiteRows {
        tokens,
        others,
        list: shard.site_list().map_err(failed)?,
        chains: Chains::new(parts.shard.site, shard.ancestry().map_err(failed)?),
        unfinished: Unfinished::new(changes_of_sites(&shard).map_err(failed)?),
        stays: Stays::new(Arc::clone(&shard), shard.stays().map_err(failed)?),
        origins,
    };
    let folder = volume.map(|open| open.volume.folder().clone());
    // The folder of a shared store is not this server's alone.
    let is_audited = !options.read_only && volume.is_some_and(|open| !open.volume.is_shared());
    let audited = is_audited.then(|| Arc::clone(&host.pool));
    let of_files = folder.clone().or(guests);
    let policy = Arc::new(Policy::new(parts.volume, of_files.clone(), revoked, audited));
    let sites = sites(&parts, folder, &shard, &durability, of_sites, &options);
    policy.load_charter(sites.is_first());
    let core = Core {
        host,
        grace: grace(&sessions, &options),
        index: search_index(volume, &options, notifies),
        ownership: volume.and_then(|open| open.ownership.clone()),
        parts,
        options,
        epoch: begun.epoch,
        passthrough,
        durability,
        shard,
        policy,
        sites,
        folder: of_files,
    };
    Ok(Recovered { core, report: RecoveryReport { mended, ..report }, still_written, sessions })
}

/// Returns the tokens that this site and each other one have given each other. Those of a damaged
/// row are lost: no site is refused for them.
fn tokens_of_sites(
    shard: &Shard,
    others: &[(u16, SiteRow)],
) -> Result<Vec<(u16, SiteTokensRow)>, Error> {
    let of_site = |site: &u16| match shard.site_tokens(*site) {
        Err(error) if error.code == Code::Corrupt => Ok((*site, SiteTokensRow::LOST)),
        tokens => tokens.map(|row| (*site, row)),
    };
    let tokens = others.iter().map(|(site, _)| of_site(site));
    let tokens = tokens.collect::<Result<Vec<(u16, SiteTokensRow)>, Error>>()?;
    if tokens.iter().any(|(_, row)| *row != SiteTokensRow::default()) {
        shard.make_site_tokens_safe()?;
    }
    Ok(tokens)
}

/// Returns the wait for the sessions of the last run. It waits for none if the options give it no
/// time.
fn grace(earlier: &[(SessionId, SessionRecord)], options: &Options) -> Arc<Grace> {
    let waits_for = earlier.iter().filter(|_| !options.grace.is_zero()).map(|(id, _)| *id);
    Arc::new(Grace::new(waits_for.collect()))
}

/// Returns the sites of the volume. `others` are those with rows in the table: all but this one;
/// with what is known of their directories.
fn sites(
    parts: &Parts,
    folder: Option<Folder>,
    shard: &Arc<Shard>,
    durability: &Arc<Durability>,
    rows: SiteRows,
    options: &Options,
) -> Arc<Sites> {
    Arc::new(Sites::new(SiteParts {
        own: parts.shard.site,
        volume: parts.volume,
        folder,
        shard: Arc::clone(shard),
        durability: Arc::clone(durability),
        rows,
        timeout: options.remote_timeout,
        copy_bytes: (!options.read_only).then_some(options.copy_bytes),
        fetched: fetch_limits(options.memory_bytes),
        guests_alone: options.guests_alone,
        stay_least_bytes: options.stay_least_bytes,
        is_stepped: options.stepped,
    }))
}

/// Returns the search index. There is none without a folder, on a shared store, or in a stepped
/// server.
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

/// Writes again the small files of the volume that are damaged or missing, from their second
/// copies, and logs it. Returns the number of damaged ones.
fn mend(volume: &Volume) -> u64 {
    let damaged = || volume.mends().iter().filter(|mend| mend.is_damage);
    for mend in damaged() {
        let path = mend.path.display();
        let message = "a file of the volume is written again from its second one";
        tracing::warn!(%path, mend.what, "{message}");
    }
    if let Err(error) = volume.mend() {
        // The next start tries again.
        tracing::warn!(%error, "the second files of the volume are not as they should be");
    }
    damaged().count() as u64
}

/// Returns the shard over the rows of a table that this epoch has taken over.
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

/// Returns the rows with which a new table begins.
fn first_rows(options: &Options) -> FirstRows {
    let founder = options.joining.as_ref().map(|Joining { founder, founder_name, .. }| {
        let state = SiteState::Joined { key: founder.key, invitation: [0; 32] };
        let address = founder.address.clone();
        (founder.site, SiteRow { state, name: founder_name.clone(), address })
    });
    FirstRows { owner: options.owner, sites: founder.into_iter().collect() }
}

/// Takes over the table and begins a new epoch. On a full disk it tries a second time with the
/// space of the reserve.
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
