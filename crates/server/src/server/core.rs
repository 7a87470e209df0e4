//! The second and the third step of a start: the parts above the core, and the threads. The module
//! `start` builds the core.

use std::io;
use std::path::Path;
use std::sync::Arc;

use pelago_data::{self as data, OpenFiles, Passthrough, PassthroughStatus, WakeWorker};
use pelago_meta::durability::Durability;
use pelago_meta::shard::Shard;
use pelago_search::{BuildIndex, SearchIndex};
use pelago_store::folder::Folder;
use pelago_wire::{Error, Handle, Served, SessionId, SessionRecord, limits};

use super::primary::expect_primary;
use super::{OpenVolume, Options, Parts, StartError};
use crate::background::{
    ClosePending, CompleteTags, Notify, Recount, ReleaseReplaced, RemoveOrphans, WatchSpace,
    Writeback,
};
use crate::grace::Grace;
use crate::group_commit::GroupCommit;
use crate::host::Host;
use crate::mirror::{Mirror, MirrorParts, SetMirrorError};
use crate::ownership::Ownership;
use crate::policy::Policy;
use crate::replaced::ReplacedFiles;
use crate::service::{self, LocalService};
use crate::sites::Sites;

/// The result of the second step of a start: the parts that serve requests.
pub(super) struct Built {
    pub(super) opens: Arc<OpenFiles>,
    pub(super) replaced: Arc<ReplacedFiles>,
    pub(super) mirror: Arc<Mirror>,
    pub(super) service: Arc<LocalService>,
}

/// The parts over which all others are built: the host, and the parts of the shard.
pub(super) struct Core {
    pub(super) host: Host,
    pub(super) parts: Parts,
    pub(super) options: Options,
    /// The epoch of this run of the server.
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
    /// The folder that has the files beside the table; `None` for a server without a volume.
    pub(super) folder: Option<Folder>,
}

/// One [`Notify`] for each worker. They exist before the workers, because the parts that make work
/// for a worker are built first.
pub(super) struct WorkerNotifies {
    pub(super) orphans: Arc<Notify>,
    pub(super) pending_close: Arc<Notify>,
    pub(super) recount: Arc<Notify>,
    pub(super) replaced: Arc<Notify>,
    pub(super) index: Arc<Notify>,
    pub(super) space: Arc<Notify>,
    pub(super) tags: Arc<Notify>,
    pub(super) writeback: Arc<Notify>,
}

impl WorkerNotifies {
    pub(super) fn new() -> Self {
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
pub(super) fn notifier(notify: &Arc<Notify>) -> WakeWorker {
    let notify = Arc::clone(notify);
    Arc::new(move || notify.notify())
}

impl Core {
    /// Builds the parts that serve requests: open files, the mirror and the service. Loads the
    /// `writing` rows.
    ///
    /// # Errors
    /// `NotPrimary`, after the folder was marked, if the volume's mirror was promoted;
    /// errors of the table.
    pub(super) fn build(
        &self,
        volume: Option<&OpenVolume>,
        dir: &Path,
        notifies: &WorkerNotifies,
        still_written: Vec<Handle>,
        sessions: Vec<(SessionId, SessionRecord)>,
    ) -> Result<Built, StartError> {
        let failed = |source| StartError::Recover { path: dir.to_path_buf(), source };
        let opens = self.open_files(notifies);
        if self.options.groups.is_none() {
            self.load_writing_rows(&opens).map_err(failed)?;
        }
        for handle in still_written {
            opens.resume_external_writes(handle).map_err(failed)?;
        }
        let replaced = ReplacedFiles::new(Arc::clone(&opens), notifier(&notifies.replaced));
        let replaced = Arc::new(replaced);
        let mirror = self.mirror(&opens).map_err(failed)?;
        if !self.options.adopts {
            expect_primary(&mirror, volume)?;
        }
        let service = self.service(notifies, &opens, &replaced, &mirror, sessions);
        Ok(Built { opens, replaced, mirror, service })
    }

    /// Starts the threads: the wait for the sessions of the last run, the group commit, and the
    /// workers.
    pub(super) fn start_threads(
        &self,
        built: &Built,
        volume: Option<&OpenVolume>,
        dir: &Path,
        notifies: &WorkerNotifies,
        started_clean: bool,
    ) -> Result<(), StartError> {
        let Built { opens, replaced, mirror, service } = built;
        if !self.options.stepped {
            service.wait_for_sessions(self.options.grace)?;
        }
        self.start_commits(dir, opens, service, mirror)?;
        self.start_workers(notifies, opens, replaced, !started_clean)?;
        Ok(self.complete_tags(notifies, volume)?)
    }

    /// Builds the table of open files.
    fn open_files(&self, notifies: &WorkerNotifies) -> Arc<OpenFiles> {
        let options = data::Options {
            inline_bytes: (self.options.inline_bytes as usize).min(limits::INLINE_BYTES),
            open_bytes: self.host.memory.opens as usize,
            passthrough: self.options.passthrough,
            can_detect_writers: self.passthrough == PassthroughStatus::Available,
            trusts_rows: self.options.groups.is_some(),
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

    /// Loads the `writing` rows: the files that may have bytes which are not safe. On a shared
    /// store, bytes that were in the memory of the last owner's machine count as lost.
    fn load_writing_rows(&self, opens: &OpenFiles) -> Result<(), Error> {
        opens.load_writing_rows()?;
        if self.ownership.as_ref().is_some_and(|ownership| ownership.taken().may_lack_bytes()) {
            let files = opens.note_lost_bytes();
            tracing::warn!(files, "the last owner's machine may have had bytes that are lost");
        }
        Ok(())
    }

    /// Builds the service.
    fn service(
        &self,
        notifies: &WorkerNotifies,
        opens: &Arc<OpenFiles>,
        replaced: &Arc<ReplacedFiles>,
        mirror: &Arc<Mirror>,
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
            mirror: Some(Arc::clone(mirror)),
            groups: self.options.groups.clone(),
        }))
    }

    /// Builds the mirror of the volume, without a connection.
    fn mirror(&self, opens: &Arc<OpenFiles>) -> Result<Arc<Mirror>, Error> {
        let hindrance = match self.options.passthrough {
            _ if self.folder.is_none() => Some(SetMirrorError::NoVolume),
            _ if self.ownership.is_some() => Some(SetMirrorError::SharedStore),
            _ if self.options.read_only => Some(SetMirrorError::ReadOnly),
            Passthrough::Never => None,
            Passthrough::Auto | Passthrough::Always => Some(SetMirrorError::Passthrough),
        };
        let mirror = Mirror::new(MirrorParts {
            volume: self.parts.volume,
            folder: self.folder.clone(),
            shard: Arc::clone(&self.shard),
            opens: Arc::clone(opens),
            table: Arc::clone(&self.parts.table),
            content: Arc::clone(&self.parts.content),
            durability: Arc::clone(&self.durability),
            hindrance,
            lag: self.options.lag,
            when_cut: self.options.when_cut,
        });
        mirror.map(Arc::new)
    }

    /// Starts the group commit: from now on batches that are done become safe. On a shared store
    /// this makes the first rows safe and marks the run as ready, before anything else is called
    /// safe.
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

    /// Starts the workers, except that for tags.
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

    /// Records in the shard that each tag has its row, if the volume says so. Otherwise, unless the
    /// volume is read-only or there are no workers, starts a worker that adds the missing rows.
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
