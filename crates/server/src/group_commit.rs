//! The group commit: makes batches that are done safe, once per interval or earlier on request, on
//! a thread of its own. Reopens the table if it has stopped: then changes that were not safe may be
//! lost, and each open file that is concerned reports an error once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_store::table::{self, SharedTable};
use pelago_wire::{Code, Error};

use pelago_data::OpenFiles;
use pelago_meta::durability::Durability;
use pelago_meta::shard::Shard;
use pelago_store::report::table_failed;

use crate::mirror::Mirror;
use crate::service::epochs::EpochChange;

/// The default time between two group commits. Linux sends neither `sync` nor `syncfs` to a file
/// system over `/dev/fuse`: so what is done must become safe without a request, after this time.
pub(crate) const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// One group commit, and what follows if it fails.
pub(crate) struct GroupCommit {
    pub(crate) opens: Arc<OpenFiles>,
    pub(crate) shard: Arc<Shard>,
    pub(crate) table: SharedTable,
    pub(crate) durability: Arc<Durability>,
    /// Notified when the table is opened again; `None` in tests of the group commit alone.
    epochs: Option<EpochChange>,
    /// The mirror of the volume, which gets cuts; `None` in tests of the group commit alone.
    mirror: Option<Arc<Mirror>>,
    /// The error with which a group commit found the table stopped. A leaf lock.
    cause: Mutex<Option<Error>>,
    /// True if the last attempt to open the table again has failed half-way.
    is_half_open: AtomicBool,
}

impl GroupCommit {
    /// Returns the group commit over these parts.
    pub(crate) fn new(
        opens: Arc<OpenFiles>,
        shard: Arc<Shard>,
        table: SharedTable,
        durability: Arc<Durability>,
        epochs: Option<EpochChange>,
        mirror: Option<Arc<Mirror>>,
    ) -> Self {
        let cause = Mutex::default();
        let is_half_open = AtomicBool::new(false);
        Self { opens, shard, table, durability, epochs, mirror, cause, is_half_open }
    }

    /// Makes batches that are done safe, if there are any, and calls back the requests that wait.
    ///
    /// # Errors
    /// The error of a file that could not be committed, or of the table.
    pub(crate) fn run(&self) -> Result<(), Error> {
        let turn = self.mirror.as_ref().map(|mirror| mirror.begin_commit());
        // A file that fails does not prevent the others from becoming safe.
        let committed = self.opens.commit_dirty();
        // Read times need not be safe: the next group commit writes them.
        if let Err(error) = self.shard.commit_read_times() {
            tracing::debug!(%error, "cannot write read times");
        }
        // Counts need not be safe either: if they cannot be written, their directories stay dirty.
        let counted = self.shard.write_counts();
        // Before the sync, which may or may not contain later changes.
        self.shard.begin_group_commit();
        if let (Some(mirror), Some(turn)) = (&self.mirror, turn) {
            mirror.cut_if_wanted(turn, committed == Ok(true));
        }
        let synced = self.make_safe();
        match synced {
            Ok(()) => self.durability.writeback_errors.clear(),
            // `reopen_table` fails the requests that wait, after it has recorded the losses in
            // every open file.
            Err(error) if self.has_stopped() => *self.cause.lock() = Some(error),
            Err(error) => self.durability.fail_all(error),
        }
        let done = synced.and_then(|()| counted.map(drop)).and_then(|()| committed.map(drop));
        if done.is_err_and(|error| error.code == Code::NoSpace) {
            self.opens.note_disk_full();
        }
        done
    }

    fn make_safe(&self) -> Result<(), Error> {
        let began = Instant::now();
        // In this order: both only grow, and other threads may make batches safe too.
        let safe = self.durability.safe();
        let sequence = self.durability.done();
        assert!(safe <= sequence, "I-2: batch {safe} is safe, and only {sequence} are done");
        if sequence > safe {
            self.table.persist().map_err(|error| table_failed("syncing the journal", &error))?;
        }
        // Even if all was safe before: a request may still wait to be called back.
        self.durability.persisted(sequence);
        self.durability.record_safe_until(began);
        Ok(())
    }

    /// Records that changes which were not safe are lost, so that later requests return the error.
    fn report_losses(&self, cause: Error) {
        self.durability.writeback_errors.record();
        self.opens.record_losses(cause);
    }

    fn has_stopped(&self) -> bool {
        matches!(self.table.get(&[0]), Err(table::Error::Stopped))
    }

    /// Reopens the table if it has stopped. Returns whether it can be used.
    pub(crate) fn reopen_table(&self) -> bool {
        if !self.has_stopped() && !self.is_half_open.load(Ordering::Relaxed) {
            return true;
        }
        // Before any batch can be called safe again, and before a client can notice a loss.
        self.epochs.iter().for_each(EpochChange::end);
        let is_open = self.reopen_stopped();
        self.is_half_open.store(!is_open, Ordering::Relaxed);
        self.epochs.iter().for_each(match is_open {
            true => EpochChange::begin,
            false => EpochChange::fail,
        });
        is_open
    }

    fn reopen_stopped(&self) -> bool {
        let cause = self.cause.lock().unwrap_or(Code::Io.into());
        // While the table still fails every read: no request may use the reopened table together
        // with cached rows that it has lost.
        self.shard.begin_group_commit();
        self.shard.forget_rows();
        self.opens.invalidate();
        let sync_failed = self.table.has_failed_sync();
        if sync_failed {
            self.report_losses(cause);
        }
        // After the losses are recorded, so that a request that begins now finds the errors; and
        // before any batch can be called safe again.
        self.durability.invalidate();
        match self.shard.reopen() {
            // The engine may have failed a sync of its own, which shows only now.
            Ok(true) if !sync_failed => {
                self.report_losses(cause);
                self.durability.invalidate();
            }
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, "cannot reopen the table; every request fails until then");
                self.durability.fail_all(cause);
                return false;
            }
        }
        *self.cause.lock() = None;
        let measured = self.opens.remeasure();
        self.durability.fail_invalidated(cause);
        if let Err(error) = measured {
            tracing::error!(%error, "the table failed again after it was reopened");
            return false;
        }
        tracing::warn!("the table was reopened; changes that were not safe may be lost");
        true
    }
}

/// The thread of the group commit.
pub(crate) struct CommitThread {
    durability: Arc<Durability>,
    /// For tests, which call [`CommitThread::step`] in place of a thread.
    stepped: Option<GroupCommit>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl CommitThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's error if it cannot be started.
    pub(crate) fn start(commit: GroupCommit, interval: Duration) -> io::Result<Self> {
        let durability = Arc::clone(&commit.durability);
        let thread =
            Builder::new().name("pelago-commit".into()).spawn(move || run(&commit, interval))?;
        Ok(Self { durability, stepped: None, thread: Mutex::new(Some(thread)) })
    }

    /// Returns a group commit without a thread, which only [`CommitThread::step`] drives.
    pub(crate) fn stepped(commit: GroupCommit) -> Self {
        let durability = Arc::clone(&commit.durability);
        Self { durability, stepped: Some(commit), thread: Mutex::default() }
    }

    /// Does one round of the thread's work on this thread.
    ///
    /// # Errors
    /// As [`GroupCommit::run`]; `Unavailable` if the table could not be reopened.
    pub(crate) fn step(&self) -> Result<(), Error> {
        let Some(commit) = &self.stepped else { return Ok(()) };
        let done = commit.run();
        if commit.reopen_table() { done } else { Err(Code::Unavailable.into()) }
    }

    /// Ends the thread. No batch becomes safe any more, and requests that wait for that fail; so a
    /// clean stop makes all batches safe first.
    pub(crate) fn stop(&self) {
        self.durability.stop();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the group commit has panicked");
        }
    }
}

impl Drop for CommitThread {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The longest wait before a table is reopened; the wait doubles with each failure.
const RETRY_MAX: Duration = Duration::from_secs(10);

fn run(commit: &GroupCommit, interval: Duration) {
    let mut wait = interval;
    let mut healthy = true;
    while commit.durability.wait_for_work(wait) {
        let done = commit.run();
        if let (Err(error), true) = (done, healthy) {
            tracing::error!(%error, "a group commit failed; will retry");
        }
        // Even after a success: the table may have stopped in a request while there was nothing to
        // commit.
        wait = if commit.reopen_table() { interval } else { (wait * 2).min(RETRY_MAX) };
        healthy = done.is_ok();
    }
}
