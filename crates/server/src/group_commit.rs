//! The group commit: what was done becomes safe, each interval or when somebody hurries, on a
//! thread of its own.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_store::table::{self, SharedTable};
use pelago_wire::{Code, Error};

use pelago_data::OpenFiles;
use pelago_meta::durability::Durability;
use pelago_meta::shard::Shard;
use pelago_store::report::table_failed;

/// How often what was done is made safe, unless told otherwise.
pub(crate) const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// What a group commit is about.
pub(crate) struct GroupCommit {
    pub(crate) opens: Arc<OpenFiles>,
    pub(crate) shard: Arc<Shard>,
    pub(crate) table: SharedTable,
    pub(crate) durability: Arc<Durability>,
    /// Why the table has stopped, where a group commit saw it. A leaf.
    cause: Mutex<Option<Error>>,
}

impl GroupCommit {
    /// The group commit of these.
    pub(crate) fn new(
        opens: Arc<OpenFiles>,
        shard: Arc<Shard>,
        table: SharedTable,
        durability: Arc<Durability>,
    ) -> Self {
        Self { opens, shard, table, durability, cause: Mutex::default() }
    }

    /// Makes safe what is done, if there is something. Whoever waits for it is told.
    ///
    /// # Errors
    /// Where a file could not be committed, or the table fails.
    pub(crate) fn run(&self) -> Result<(), Error> {
        // A file that fails does not keep the others from becoming safe.
        let committed = self.opens.commit_dirty();
        // It is no promise: nobody is told that the time of a read waits for the next time.
        if let Err(error) = self.shard.commit_reads() {
            tracing::debug!(%error, "times of reads are not written");
        }
        // Nor do counts: where they cannot be written, their directories stay marked.
        let counted = self.shard.write_counts();
        // Before: what changes from here on may be part of it, or not.
        self.shard.begin_group_commit();
        let made = self.make_safe();
        match made {
            Ok(()) => self.durability.writeback_errors.all_safe(),
            // Its callers are told once every open file knows what was lost.
            Err(error) if self.has_stopped() => *self.cause.lock() = Some(error),
            Err(error) => self.durability.failed(error),
        }
        let done = made.and_then(|()| counted.map(drop)).and(committed);
        if done.is_err_and(|error| error.code == Code::NoSpace) {
            self.opens.note_disk_full();
        }
        done
    }

    fn make_safe(&self) -> Result<(), Error> {
        let sequence = self.durability.done();
        if sequence > self.durability.safe() {
            self.table.persist().map_err(|error| table_failed("making it safe", &error))?;
        }
        // Also where it was safe before: somebody may wait who was not told.
        self.durability.made_safe(sequence);
        Ok(())
    }

    /// What was begun and not made safe is lost: everybody who must know will be told.
    fn lose(&self, cause: Error) {
        self.durability.writeback_errors.lose();
        self.opens.record_losses(cause);
    }

    fn has_stopped(&self) -> bool {
        matches!(self.table.get(&[0]), Err(table::Error::Stopped))
    }

    /// OpenFiles the table again where it has stopped. Answers whether it goes.
    pub(crate) fn revive(&self) -> bool {
        if !self.has_stopped() {
            return true;
        }
        let cause = self.cause.lock().unwrap_or(Code::Io.into());
        // While nothing can be read: nobody shall meet the table with what is remembered of rows
        // that it has lost.
        self.shard.begin_group_commit();
        self.shard.forget_rows();
        self.opens.invalidate();
        let is_known = self.table.has_failed_sync();
        if is_known {
            self.lose(cause);
        }
        // Behind that: a request that begins from here on finds the errors of what was lost. Before
        // anything can be found safe again.
        self.durability.doubt();
        match self.shard.reopen() {
            // The engine itself may have met the failure, which was not known before it ended.
            Ok(true) if !is_known => {
                self.lose(cause);
                self.durability.doubt();
            }
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, "the table could not be opened again");
                self.durability.failed(cause);
                return false;
            }
        }
        *self.cause.lock() = None;
        let measured = self.opens.remeasure();
        self.durability.lost(cause);
        if let Err(error) = measured {
            tracing::error!(%error, "the table failed again");
            return false;
        }
        tracing::warn!("the table was opened again; what was not safe before may be lost");
        true
    }
}

/// The thread of the group commit.
pub(crate) struct Committer {
    durability: Arc<Durability>,
    /// Where a test takes the thread's place.
    stepped: Option<GroupCommit>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Committer {
    /// Starts the thread.
    ///
    /// # Errors
    /// Where the system gives none.
    pub(crate) fn start(commit: GroupCommit, interval: Duration) -> io::Result<Self> {
        let durability = Arc::clone(&commit.durability);
        let thread =
            Builder::new().name("pelago-commit".into()).spawn(move || go_on(&commit, interval))?;
        Ok(Self { durability, stepped: None, thread: Mutex::new(Some(thread)) })
    }

    /// One without a thread: [`Committer::step`] takes its turns.
    pub(crate) fn stepped(commit: GroupCommit) -> Self {
        let durability = Arc::clone(&commit.durability);
        Self { durability, stepped: Some(commit), thread: Mutex::default() }
    }

    /// One turn of the thread, on this one.
    ///
    /// # Errors
    /// As [`GroupCommit::run`]; `Unavailable` where the table could not be opened again.
    pub(crate) fn step(&self) -> Result<(), Error> {
        let Some(commit) = &self.stepped else { return Ok(()) };
        let done = commit.run();
        if commit.revive() { done } else { Err(Code::Unavailable.into()) }
    }

    /// Ends the thread. Nothing becomes safe any more, and those who wait are told so: whoever
    /// stops a server runs the last [`GroupCommit::run`] before.
    pub(crate) fn stop(&self) {
        self.durability.stop();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the group commit has panicked");
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A failed group commit is tried again after this, then after twice as long, and so on.
const LAST_RETRY: Duration = Duration::from_secs(10);

fn go_on(commit: &GroupCommit, interval: Duration) {
    let mut wait = interval;
    let mut well = true;
    while commit.durability.wait_for_work(wait) {
        let done = commit.run();
        if let (Err(error), true) = (done, well) {
            tracing::error!(%error, "a group commit failed; it is tried again");
        }
        // Also where it went well: a request may have met the end of the table when nothing was
        // left to commit.
        wait = if commit.revive() { interval } else { (wait * 2).min(LAST_RETRY) };
        well = done.is_ok();
    }
}
