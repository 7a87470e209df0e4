//! A server of one volume: its services, its settings while it runs, its status and its stop.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_data::OpenFiles;
use pelago_keynote::key::PrivateKey;
use pelago_store::content::ContentStore;
use pelago_store::folder::Folder;
use pelago_store::hash::NameHasher;
use pelago_store::report::content_failed;
use pelago_store::table::SharedTable;
use pelago_store::table::fjall::FjallTable;
use pelago_store::volume::{Volume, VolumeId};
use pelago_wire::{
    Code, DirectoryCache, DirectoryLeases, Error, Handle, InodeId, Level, LocalCache, PinError,
    Pinned, Pins, Request, Service, SessionService, ShardId, SitePass, Time,
};

use crate::copies::CopyStatus;
use crate::memory::MemoryUse;
use crate::mirror::{
    Commit, ConnectMirror, ConnectRelay, HandOverError, Mirror, MirrorProgress, OnReplaced,
    RelayedMirror, SetMirrorError, Verified,
};
use crate::ownership::{OnLost, Ownership};
use crate::recovery::{self, RecoveryReport};
use crate::replaced::ReplacedFiles;
use crate::service::LocalService;
use crate::sites::{ConnectSite, InviteError, LeaveError, Neighbour, SiteStatus};
use crate::status::{ProgressStatus, SpaceStatus, Status};
use crate::stays::{KeptVersion, StayStatus};

pub use error::{StartError, StopError};
pub use options::{COPY_BYTES, Joining, Options, Step};

use self::core::Core;

mod core;
mod error;
mod options;
mod owner;
mod primary;
mod readers;
mod start;
mod table_opening;

/// The longest time for which a clean stop waits until the mirror has the last changes.
const LAST_GROUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The parts of a volume that a server serves. Tests pass them without a volume around them.
#[derive(Clone)]
pub struct Parts {
    /// The rows: names, attributes and the bytes of small files.
    pub table: SharedTable,
    /// The content files: the bytes of all other files.
    pub content: Arc<ContentStore>,
    /// The volume's id. The table must have the same id, or none yet.
    pub volume: VolumeId,
    /// The shard that is served, and its site.
    pub shard: ShardId,
    /// The volume's keyed hash of names.
    pub hasher: NameHasher,
}

/// A server of one volume.
///
/// If it is dropped without [`Server::stop`], it ends all its threads but leaves the volume as a
/// crash of the process would.
pub struct Server {
    /// The volume's folder; empty for a server without a volume.
    dir: PathBuf,
    started: Time,
    started_clean: bool,
    recovered: RecoveryReport,
    core: Core,
    opens: Arc<OpenFiles>,
    replaced: Arc<ReplacedFiles>,
    mirror: Arc<Mirror>,
    service: Arc<LocalService>,
    /// The first lock to be taken while the server stops.
    running: Mutex<Running>,
}

/// The state of a server that ends with its stop.
struct Running {
    /// `None` after the stop, and for a server without a volume.
    volume: Option<OpenVolume>,
    stopped: bool,
}

/// An open volume and its table, which must be closed before the volume is released.
struct OpenVolume {
    table: Arc<FjallTable>,
    volume: Volume,
    /// `None` unless the volume lies on a shared store.
    ownership: Option<Arc<Ownership>>,
}

impl OpenVolume {
    /// Closes the table, and marks the volume as stopped cleanly.
    fn close(&self) -> Result<(), StopError> {
        self.table.close().map_err(StopError::Table)?;
        match &self.ownership {
            None => self.volume.mark_clean()?,
            Some(ownership) => ownership.release()?,
        }
        Ok(())
    }

    /// Closes the table, and leaves the volume as a crash would: the next start recovers it.
    fn close_unclean(self) {
        if let Err(error) = self.table.close() {
            tracing::warn!(%error, "the table did not close cleanly");
        }
        if let Some(ownership) = &self.ownership {
            ownership.stop_without_release();
        }
    }
}

impl Server {
    /// Has the other sites get what the own mount has written to their files and is held back here:
    /// before the sessions there end. Waits for at most [`Options::remote_timeout`].
    pub fn flush_sites(&self) {
        self.core.sites.flush();
    }

    /// Returns the service that carries out requests.
    #[must_use]
    pub fn service(&self) -> Arc<dyn Service> {
        Arc::clone(&self.service) as Arc<dyn Service>
    }

    /// Returns the service for sessions of other processes.
    #[must_use]
    pub fn session_service(&self) -> Arc<dyn SessionService> {
        Arc::clone(&self.service) as Arc<dyn SessionService>
    }

    /// Sets the cache of the server's own mount, which is notified of changes by other sessions.
    /// Called before the mount is used and before the first session begins. Returns whether it was
    /// the first call; later calls have no effect.
    pub fn set_local_cache(&self, cache: Arc<dyn LocalCache>) -> bool {
        self.service.others().set_cache(cache)
    }

    /// Sets the cache of directories of other sites below the own mount, which keeps them under
    /// [`Server::leases_elsewhere`]. Called before the mount is used; later calls have no effect.
    pub fn set_directory_cache(&self, cache: Arc<dyn DirectoryCache>) {
        self.core.sites.set_kernel(cache);
    }

    /// Returns the leases on directories of other sites, under which the own mount may keep them.
    #[must_use]
    pub fn leases_elsewhere(&self) -> Arc<dyn DirectoryLeases> {
        Arc::new(self.core.sites.leases_elsewhere())
    }

    /// Returns the open folder of the volume; `None` after the stop, or if the server has no
    /// volume.
    #[must_use]
    pub fn folder(&self) -> Option<Folder> {
        self.running.lock().volume.as_ref().map(|open| open.volume.folder().clone())
    }

    /// Returns the number of this server's site.
    #[must_use]
    pub fn site(&self) -> u16 {
        self.core.parts.shard.site
    }

    /// Sets the function that connects to the servers of other sites. Called before the first
    /// request; a second call does nothing.
    pub fn set_connect(&self, connect: ConnectSite) {
        self.core.sites.set_connect(connect);
        if !self.core.options.stepped && !self.core.sites.is_first() {
            self.service.keep_charter();
        }
    }

    /// Invites a site of this name to the volume. `key` is the public half of an Ed25519 key whose
    /// private half is given to the site. The invitation expires at `until`, in seconds since 1970.
    /// Returns the number of the site. Blocks until the invitation is safe.
    ///
    /// # Errors
    /// [`InviteError`].
    pub fn invite_site(&self, name: &str, key: [u8; 32], until: u64) -> Result<u16, InviteError> {
        if self.core.ownership.is_some() {
            return Err(InviteError::SharedStore);
        }
        self.core.sites.invite(name, key, until)
    }

    /// Returns the servers of the other sites that have joined.
    #[must_use]
    pub fn neighbours(&self) -> Vec<Neighbour> {
        self.core.sites.neighbours()
    }

    /// Makes the session at another site, whose server has connected to this one.
    pub fn expect_site(&self, site: u16) {
        if let Err(error) = self.core.sites.upstream(site) {
            tracing::debug!(site, %error, "a site that has connected is not asked");
        }
    }

    /// Returns what this server shows to that of another site, by which that notices an older
    /// folder.
    #[must_use]
    pub fn site_pass(&self, site: u16) -> Arc<dyn SitePass> {
        self.core.sites.pass(site)
    }

    /// Has all other sites notice from now on if a copy of this folder is served, or an older one.
    /// Called after [`Server::set_connect`]; a second call does nothing.
    pub fn keep_tokens(&self) {
        if !self.core.options.stepped {
            self.core.sites.begin_tokens();
        }
    }

    /// Has another site give this one a new token now. Blocks until that is safe at both.
    ///
    /// # Errors
    /// Those of the other site; `HostDown` if this folder is an older one.
    pub fn renew_token(&self, site: u16) -> Result<(), Error> {
        self.core.sites.renew_token(site)
    }

    /// Returns the warning that this folder is a copy, or older than another site has seen of it;
    /// `None` as long as it is not known to be one.
    #[must_use]
    pub fn outdated(&self) -> Option<String> {
        self.core.sites.says_outdated()
    }

    /// Asks the servers of the other sites for their clocks, which [`Server::sites`] tells then.
    /// Waits for the answers for at most `patience`; those that come later are kept for the next
    /// call. A site that is silent, or that was never asked for anything, is not asked.
    pub fn ask_clocks(&self, patience: Duration) {
        self.core.sites.ask_clocks(patience);
    }

    /// Returns how many copies of other sites' files are on this disk.
    #[must_use]
    pub fn copies(&self) -> CopyStatus {
        self.core.sites.copies()
    }

    /// Returns how many requests for other sites were answered while those were silent, from what
    /// was known before. Takes no lock.
    #[must_use]
    pub fn stale_answers(&self) -> u64 {
        self.core.sites.stale_answers.load(Ordering::Acquire)
    }

    /// Returns how many files of other sites have their bytes on this disk, and nowhere else.
    #[must_use]
    pub fn stays(&self) -> StayStatus {
        self.core.sites.stays.status()
    }

    /// Returns the versions that are kept because the files have got other bytes: of this file, or
    /// of all. A client reads one by opening its node.
    #[must_use]
    pub fn kept_versions(&self, file: Option<InodeId>) -> Vec<KeptVersion> {
        self.service.kept_versions(file)
    }

    /// Removes the kept version that a node has, with its bytes.
    ///
    /// # Errors
    /// `NotFound` if it has none; `ReadOnly`; those of the table.
    pub fn drop_kept(&self, node: InodeId) -> Result<(), Error> {
        self.service.drop_kept(node)
    }

    /// Returns the node of another site that has the bytes of a file; `None` if they are here.
    #[must_use]
    pub fn bytes_at(&self, file: Handle) -> Option<InodeId> {
        self.core.shard.stored_node(file).ok()?.rnode.bytes_at
    }

    /// Begins to sign the list of the sites and the charter of the volume with the server's key,
    /// and to send them to the others. Does nothing at another site than the first one.
    ///
    /// # Errors
    /// If the list cannot be recorded.
    pub fn begin_site_list(&self, key: PrivateKey) -> Result<(), Error> {
        self.core.sites.begin_list(key)?;
        if !self.core.options.stepped && self.core.sites.is_first() {
            self.service.keep_charter();
        }
        Ok(())
    }

    /// Leaves the volume: this site must be the home of nothing. Afterwards the server is to be
    /// stopped, and its folder is of no use. Blocks until the first site has recorded it.
    ///
    /// # Errors
    /// [`LeaveError`].
    pub fn leave_volume(&self) -> Result<(), LeaveError> {
        self.core.sites.leave()
    }

    /// Records that this site has left the volume, as its first site says.
    ///
    /// # Errors
    /// If the table fails.
    pub fn has_left_volume(&self) -> Result<(), Error> {
        self.core.sites.has_left()
    }

    /// Sends the address of this server, `HOST:PORT`, to the server of another site.
    ///
    /// # Errors
    /// The other server's; `TimedOut`, `HostDown`.
    pub fn tell_address(&self, site: u16, address: &str) -> Result<(), Error> {
        let upstream = self.core.sites.upstream(site)?;
        let request = Request::SiteAddress { address: address.as_bytes().to_vec() };
        upstream.ask_and_wait(request).map(drop)
    }

    /// Sets the function that connects to the mirror of the volume, and begins to send to the
    /// mirror if there is one. A second call does nothing.
    ///
    /// # Errors
    /// The system's, if it gives no thread.
    pub fn set_connect_mirror(
        &self,
        connect: ConnectMirror,
        on_replaced: OnReplaced,
    ) -> io::Result<()> {
        self.mirror.set_connect(connect, on_replaced)
    }

    /// Checks that the server at this address, `KEY@HOST:PORT`, can be the mirror of the volume, as
    /// far as that is known without a connection.
    ///
    /// # Errors
    /// [`SetMirrorError`].
    pub fn check_mirror(&self, peer: &str) -> Result<(), SetMirrorError> {
        self.mirror.check_peer(peer)
    }

    /// Sets the function that connects to the relay of the volume, before
    /// [`Server::set_connect_mirror`]. A second call does nothing.
    pub fn set_connect_relay(&self, connect: ConnectRelay) {
        self.mirror.set_connect_relay(connect);
    }

    /// Makes the server at this address, `KEY@HOST:PORT`, the mirror of the volume, without a
    /// relay, for this run and all later ones.
    ///
    /// # Errors
    /// [`SetMirrorError`].
    pub fn set_mirror(&self, peer: &str) -> Result<(), SetMirrorError> {
        self.mirror.set_peer(peer, "")
    }

    /// Makes a server the mirror of the volume, and another one the relay to it, for this run and
    /// all later ones.
    ///
    /// # Errors
    /// [`SetMirrorError`].
    pub fn set_relayed_mirror(&self, relayed: &RelayedMirror) -> Result<(), SetMirrorError> {
        self.mirror.set_peer(&relayed.mirror, &relayed.relay)
    }

    /// Removes the mirror of the volume, for this run and all later ones. The mirror keeps its
    /// state.
    ///
    /// # Errors
    /// [`SetMirrorError`].
    pub fn remove_mirror(&self) -> Result<(), SetMirrorError> {
        self.mirror.remove_peer()
    }

    /// Returns the reign of this primary.
    #[must_use]
    pub fn reign(&self) -> u64 {
        self.mirror.reign()
    }

    /// Returns the state of the mirror; `None` if the volume has none.
    #[must_use]
    pub fn mirror(&self) -> Option<MirrorProgress> {
        self.mirror.status()
    }

    /// Returns the number of the next group commit: a mirror that has it has everything that is
    /// done now.
    ///
    /// # Errors
    /// `NotSupported` without a mirror.
    pub fn next_commit(&self) -> Result<Commit, Error> {
        self.mirror.next_commit()
    }

    /// Waits, for at most `patience`, until the mirror has on stable storage everything that was
    /// done before this group commit began. Returns whether it has.
    ///
    /// # Errors
    /// `Unavailable` if the server stops.
    pub fn wait_for_mirror(&self, commit: Commit, patience: Duration) -> Result<bool, Error> {
        self.mirror.wait(commit, patience)
    }

    /// Begins to compare the mirror with the volume, or with a file or folder of it and all below
    /// that. With `repairs` what differs is sent again. Returns false if a comparison is under way
    /// already.
    ///
    /// # Errors
    /// `Stale` if there is no such file or folder.
    pub fn verify_mirror(&self, repairs: bool, below: Option<InodeId>) -> Result<bool, Error> {
        self.mirror.begin_verification(repairs, below)
    }

    /// Returns the result of the last comparison of all of the volume; `None` if there was none in
    /// this run.
    #[must_use]
    pub fn verified_whole(&self) -> Option<Verified> {
        self.mirror.verified_whole()
    }

    /// Returns the state of the last comparison; `None` if there was none in this run.
    #[must_use]
    pub fn verified(&self) -> Option<Verified> {
        self.mirror.verified()
    }

    /// Makes all that is done safe on this machine, as `sync(2)` does.
    ///
    /// # Errors
    /// That of a file, of the disk or of the table: some of it may not be safe.
    pub fn make_safe(&self) -> Result<(), Error> {
        let durability = &self.core.durability;
        let invalidations = durability.invalidations();
        self.opens.commit_all()?;
        self.opens.sync_writing().map_err(|error| content_failed(&error))?;
        let (sender, answer) = mpsc::channel();
        let when_safe = Box::new(move |result| {
            let _waits_no_more = sender.send(result);
        });
        durability.when_safe(durability.done(), invalidations, when_safe);
        answer.recv().unwrap_or_else(|_| Err(Code::Unavailable.into()))
    }

    /// Returns the level of the whole volume.
    #[must_use]
    pub fn level(&self) -> Level {
        self.mirror.volume_level()
    }

    /// Sets the callback for the loss of the shared store to another server; it is called at once
    /// if the store is lost already. The process must end then: none of its changes becomes safe.
    pub fn set_on_lost(&self, on_lost: OnLost) {
        if let Some(ownership) = &self.core.ownership {
            ownership.set_on_lost(on_lost);
        }
    }

    /// Returns the addresses of all servers of the shared store; `None` if the volume lies on none.
    #[must_use]
    pub fn store_servers(&self) -> Option<Vec<String>> {
        self.core.ownership.as_ref().map(|ownership| ownership.addresses())
    }

    /// Returns the other sites, in the order of their numbers.
    #[must_use]
    pub fn sites(&self) -> Vec<SiteStatus> {
        self.core.sites.status()
    }

    /// Returns the present state of the server, without waiting for a request.
    #[must_use]
    pub fn status(&self) -> Status {
        let Core { host, parts, options, durability, .. } = &self.core;
        let space = &host.space;
        let disk = space.stats();
        let disk = disk.map_err(|error| tracing::warn!(%error, "cannot measure free space")).ok();
        let files = self.opens.counts();
        let locks = self.service.locks().counts();
        Status {
            volume: parts.volume,
            dir: self.dir.clone(),
            since: self.started,
            started_clean: self.started_clean,
            recovered: self.recovered,
            read_only: options.read_only,
            progress: ProgressStatus {
                done: durability.done(),
                safe: durability.safe(),
                sync_interval: options.sync_interval,
                unsafe_for: durability.unsafe_for(),
            },
            awaited_sessions: self.core.grace.sessions() as u64,
            open_files: files.opens.saturating_sub(self.replaced.open_count()) as u64,
            locks: locks.locks as u64,
            lock_waiters: locks.waiters as u64,
            passthrough: self.core.passthrough,
            pending_closes: files.closed as u64,
            space: disk.map(|disk| SpaceStatus {
                disk,
                holds_reserve: space.holds_reserve(),
                is_short: space.is_short(),
            }),
            memory: self.memory(),
            workers: host.workers(),
            table: parts.table.usage(),
            pressure: parts.table.pressure(),
        }
    }

    /// Does on this thread one step of a background thread. Only for [`Options::stepped`].
    ///
    /// # Errors
    /// The error of the step; the next step tries again.
    pub fn step(&self, step: Step) -> Result<(), Error> {
        match step {
            Step::Commit => self.core.host.step_commit(),
            Step::Work(name) => self.core.host.step_worker(name),
        }
    }

    /// Stops the server: requests get `Unavailable` from now on, open files are committed,
    /// everything is made safe, and the volume is marked as clean; that of a shared store is given
    /// to the next owner. A second call does nothing and returns `Ok`.
    ///
    /// # Errors
    /// [`StopError`]: all threads have ended nevertheless, and the next start recovers the volume.
    pub fn stop(&self) -> Result<(), StopError> {
        let mut running = self.running.lock();
        if std::mem::replace(&mut running.stopped, true) {
            return Ok(());
        }
        let saved = self.stop_requests();
        self.mirror.stop(LAST_GROUP_TIMEOUT);
        self.end(&mut running, saved)
    }

    /// Waits, for at most `patience`, until the mirror of the volume has everything that is done.
    /// The server goes on.
    ///
    /// # Errors
    /// [`HandOverError::NoMirror`], [`HandOverError::Behind`].
    pub fn catch_up_mirror(&self, patience: Duration) -> Result<(), HandOverError> {
        self.mirror.catch_up(patience)
    }

    /// Stops the server as [`Server::stop`] does, and makes the mirror the primary, which has
    /// everything then. Returns its reign.
    ///
    /// # Errors
    /// [`HandOverError`]. The server has stopped nevertheless. The volume can be served again here,
    /// but after [`HandOverError::NotAnswered`]: the mirror may be the primary then, and a person
    /// must look.
    pub fn hand_over(&self, patience: Duration) -> Result<u64, HandOverError> {
        let not_stopped = |why: &dyn std::fmt::Display| HandOverError::NotStopped(why.to_string());
        let mut running = self.running.lock();
        if std::mem::replace(&mut running.stopped, true) {
            return Err(not_stopped(&"it was stopped before"));
        }
        let saved = self.stop_requests();
        let handed_over = match &saved {
            Ok(()) => self.mirror.hand_over(patience),
            Err(error) => Err(not_stopped(error)),
        };
        self.mirror.stop(Duration::ZERO);
        let ended = self.end(&mut running, saved);
        let reign = handed_over?;
        ended.map_err(|error| not_stopped(&error))?;
        Ok(reign)
    }

    /// Stops all requests and workers, and makes everything safe.
    fn stop_requests(&self) -> Result<(), StopError> {
        if let Some(ownership) = &self.core.ownership {
            ownership.begin_stop();
            let is_reported = self.core.grace.is_over() && !self.opens.has_untold_errors();
            if ownership.taken().may_lack_bytes() && !is_reported {
                ownership.leave_unreported();
            }
        }
        self.service.stop();
        self.core.policy.write_audit();
        self.core.host.stop_workers();
        self.core.sites.stop_copies();
        self.replaced.release_all();
        match self.core.options.groups {
            // All is as its primary has it.
            Some(_) => Ok(()),
            None => self.save_all(),
        }
    }

    /// Ends the group commit, and closes the volume: as clean if everything was made safe.
    fn end(&self, running: &mut Running, saved: Result<(), StopError>) -> Result<(), StopError> {
        self.core.host.stop_commits();
        let Some(open) = running.volume.take() else { return saved };
        match saved {
            Ok(()) => open.close()?,
            Err(error) => {
                open.close_unclean();
                return Err(error);
            }
        }
        tracing::info!(volume = %self.core.parts.volume, "the volume was stopped cleanly");
        Ok(())
    }

    /// Makes all changes safe, so that the next start has nothing to recover.
    fn save_all(&self) -> Result<(), StopError> {
        let Core { parts, durability, shard, .. } = &self.core;
        // Processes may still write these files by descriptors and mappings: the files keep their
        // `writing` rows, and the next start measures them.
        let mut keep = self.opens.externally_written();
        self.opens.commit_all().map_err(StopError::Commit)?;
        self.opens.sync_writing()?;
        // Bytes of these files are not on the disk, even if the page cache shows them: the next run
        // knows it from their `writing` rows.
        keep.extend(self.opens.inodes_in_error());
        // An earlier owner of the store may still write these.
        keep.extend(self.opens.inodes_copy_on_write());
        recovery::forget_writing_rows(shard, &*parts.table, &keep).map_err(StopError::Commit)?;
        shard.finish().map_err(StopError::Commit)?;
        let done = durability.done();
        parts.table.persist().map_err(StopError::Table)?;
        durability.persisted(done);
        Ok(())
    }

    /// Returns the limits of memory, and the use of each.
    fn memory(&self) -> Vec<MemoryUse> {
        let Core { host, parts, shard, .. } = &self.core;
        let memory = &host.memory;
        let (rows, filters) = shard.memory_bytes();
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

impl Pins for Server {
    fn pin(&self, node: Handle) -> Result<Arc<dyn Pinned>, PinError> {
        if node.ino.site() != self.site() {
            return Err(Error::from(Code::Elsewhere).into());
        }
        Ok(Arc::new(self.opens.pin(node)?))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut running = self.running.lock();
        if running.stopped {
            return;
        }
        self.service.stop();
        self.core.policy.write_audit();
        self.core.host.stop_workers();
        self.core.sites.stop_copies();
        self.mirror.stop(Duration::ZERO);
        self.core.host.stop_commits();
        if let Some(open) = running.volume.take() {
            open.close_unclean();
        }
    }
}
