//! The group commit: what was done becomes safe, each interval or when somebody hurries, on a
//! thread of its own.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_store::table::{self, SharedTable};
use pelago_wire::{Code, Error};

use crate::open::Opens;
use crate::progress::Progress;
use crate::shard::{Shard, failed};

/// How often what was done is made safe, unless told otherwise.
pub(crate) const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// What a group commit is about.
pub(crate) struct GroupCommit {
    pub(crate) opens: Arc<Opens>,
    pub(crate) shard: Arc<Shard>,
    pub(crate) table: SharedTable,
    pub(crate) progress: Arc<Progress>,
}

impl GroupCommit {
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
        let made = self.make_safe();
        match made {
            Ok(()) => self.progress.losses.all_safe(),
            Err(_) => self.progress.failed(),
        }
        let done = made.and_then(|()| counted.map(drop)).and(committed);
        if done.is_err_and(|error| error.code == Code::NoSpace) {
            self.opens.met_full();
        }
        done
    }

    fn make_safe(&self) -> Result<(), Error> {
        let sequence = self.progress.done();
        if sequence > self.progress.safe() {
            self.table.persist().map_err(|error| failed("making it safe", &error))?;
        }
        // Also where it was safe before: somebody may wait who was not told.
        self.progress.made_safe(sequence);
        Ok(())
    }

    /// Opens the table again where it has stopped. Answers whether it goes.
    pub(crate) fn revive(&self) -> bool {
        if !matches!(self.table.get(&[0]), Err(table::Error::Stopped)) {
            return true;
        }
        // Before they are forgotten.
        let changed = self.shard.changed_directories();
        // Before anything can be found safe again, and while nothing can be read: nobody shall meet
        // the table with what is remembered of rows that it has lost.
        self.progress.doubt();
        self.shard.forget_rows();
        self.opens.doubt();
        if let Err(error) = self.shard.reopen() {
            tracing::error!(%error, "the table could not be opened again");
            return false;
        }
        self.progress.losses.lose(&changed);
        let measured = self.opens.measure_again();
        // Whoever began to wait meanwhile may wait for what is lost.
        self.progress.failed();
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
    progress: Arc<Progress>,
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
        let progress = Arc::clone(&commit.progress);
        let thread =
            Builder::new().name("pelago-commit".into()).spawn(move || go_on(&commit, interval))?;
        Ok(Self { progress, stepped: None, thread: Mutex::new(Some(thread)) })
    }

    /// One without a thread: [`Committer::step`] takes its turns.
    pub(crate) fn stepped(commit: GroupCommit) -> Self {
        let progress = Arc::clone(&commit.progress);
        Self { progress, stepped: Some(commit), thread: Mutex::default() }
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
        self.progress.stop();
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
    while commit.progress.wait_for_work(wait) {
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
