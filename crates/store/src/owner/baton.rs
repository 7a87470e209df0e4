//! The baton: the file whose renames are the order of all that is safe.

use std::error::Error as _;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::error::OwnerError;
use super::moment::AtomicTime;
use super::names::{BatonName, ProcessId, RunName};
use super::shard;
use crate::clock;
use crate::folder::Folder;
use crate::sync::Mutex;

/// The pause before a failed rename is tried again.
const PAUSE: Duration = Duration::from_millis(100);
/// The time between two lines of one wait in the log.
const LOG_PAUSE: Duration = Duration::from_secs(10);
/// Most renames that are tried while each finds no file with the old name, and a listing shows a
/// baton of this run.
const TRIES: u32 = 8;

/// The baton of a shard, in the hands of this process.
pub struct Baton {
    shard: Folder,
    run: RunName,
    turn: Mutex<u64>,
    is_fenced: AtomicBool,
    /// The time at which calls stop waiting for the store.
    gives_up: AtomicTime,
    on_fenced: Mutex<Vec<OnFenced>>,
}

type OnFenced = Box<dyn FnOnce() + Send>;

/// The state of the baton after a rename found no file with its old name.
#[derive(Debug, PartialEq, Eq)]
enum AfterGone {
    /// The release was done before: its answer was lost.
    Released,
    /// The baton is still this process's, with this turn: a rename was done whose answer was lost,
    /// or the store has lost its power, and the last renames with it. Only another rename proves
    /// that the baton still is this process's.
    RenameFrom(u64),
    /// Another process has the baton.
    Fenced,
}

/// Returns the state of the baton by the batons of a listing, `seen`; `wanted` is the new name in
/// the failed rename.
fn after_gone(run: RunName, wanted: BatonName, seen: &[BatonName]) -> AfterGone {
    if wanted.process.is_none() && seen.contains(&wanted) {
        return AfterGone::Released;
    }
    let is_ours = |name: &&BatonName| name.epoch == run.epoch && name.process == Some(run.process);
    match seen.iter().filter(is_ours).map(|name| name.turn).max() {
        Some(turn) => AfterGone::RenameFrom(turn),
        None => AfterGone::Fenced,
    }
}

impl Baton {
    pub(super) fn new(shard: Folder, run: RunName) -> Self {
        Self {
            shard,
            run,
            turn: Mutex::new(0),
            is_fenced: AtomicBool::new(false),
            gives_up: AtomicTime::never(),
            on_fenced: Mutex::new(Vec::new()),
        }
    }

    /// Returns the epoch of this owner: higher than that of every earlier one.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.run.epoch
    }

    /// Returns the process that has the baton.
    #[must_use]
    pub const fn process(&self) -> ProcessId {
        self.run.process
    }

    /// Renames the baton to its next turn. What was made safe in the engine's folder before this
    /// call is in the table of every later owner when it returns. While the store fails, the call
    /// waits and tries again.
    ///
    /// # Errors
    /// [`OwnerError::Fenced`] if another process has the baton, for ever then;
    /// [`OwnerError::Stopped`] after [`Baton::stop_within`], if the store has not renamed it in
    /// time.
    pub fn advance(&self) -> Result<(), OwnerError> {
        let process = Some(self.run.process);
        self.rename(|epoch, turn| BatonName { epoch, process, turn })
    }

    /// Renames the baton to its next turn, by one try. For a baton that no other thread has yet: it
    /// calls nothing of [`Baton::on_fenced`].
    ///
    /// # Errors
    /// [`OwnerError`]; [`OwnerError::Fenced`] if another process has the baton, for ever then.
    pub(super) fn try_advance(&self) -> Result<(), OwnerError> {
        let process = Some(self.run.process);
        let wanted = |epoch, turn| BatonName { epoch, process, turn };
        self.rename_once(&mut self.turn.lock(), wanted)
    }

    /// Gives the baton away, at a clean stop, after the table was closed. The next owner need not
    /// wait. Later calls fail as if this process were fenced, without the calls of
    /// [`Baton::on_fenced`].
    ///
    /// # Errors
    /// As [`Baton::advance`].
    pub fn release(&self) -> Result<(), OwnerError> {
        self.rename(|epoch, turn| BatonName { epoch, process: None, turn })?;
        self.on_fenced.lock().clear();
        self.is_fenced.store(true, Ordering::Release);
        Ok(self.shard.sync()?)
    }

    /// Returns whether another process has the baton, as far as this one knows.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.is_fenced.load(Ordering::Acquire)
    }

    /// Calls `call` once, when this process finds that it is fenced: at once, if it has found it
    /// before. `call` must not block.
    pub fn on_fenced(&self, call: impl FnOnce() + Send + 'static) {
        self.on_fenced.lock().push(Box::new(call));
        if self.is_fenced() {
            self.notify_fenced();
        }
    }

    /// Makes calls give up at once: see [`Baton::stop_within`].
    pub fn stop(&self) {
        self.stop_within(Duration::ZERO);
    }

    /// Makes calls give up, those that wait already and later ones, once `patience` from now is
    /// over. It may have any length, by a clock that goes on while the machine sleeps. Each later
    /// call tries once. If a call has given up, what it was to confirm is not safe. Of several
    /// times the earliest counts.
    ///
    /// A system call that does not return, as on a network file system whose server is away, cannot
    /// be given up.
    pub fn stop_within(&self, patience: Duration) {
        self.gives_up.set_earlier(clock::since_boot().saturating_add(patience));
    }

    /// Renames the baton to the name that `wanted` returns for the epoch and the next turn.
    fn rename(&self, wanted: impl Fn(u32, u64) -> BatonName) -> Result<(), OwnerError> {
        let mut turn = self.turn.lock();
        let mut log = WaitLog::default();
        let done = loop {
            let error = match self.rename_once(&mut turn, &wanted) {
                Err(error) if !matches!(error, OwnerError::Fenced) => error,
                done => break done,
            };
            let now = clock::since_boot();
            let cause = error.source().map(ToString::to_string);
            let rest = self.gives_up.get().saturating_sub(now);
            if rest.is_zero() {
                tracing::warn!(%error, cause, "the baton was not renamed until this server stops");
                break Err(OwnerError::Stopped);
            }
            if let Some(left_out) = log.admit(now) {
                tracing::warn!(%error, cause, left_out, "cannot rename the baton; will retry");
            }
            // No event reports that a store that was away, or refused, works again.
            thread::sleep(PAUSE.min(rest));
        };
        // The call may use the baton.
        drop(turn);
        if self.is_fenced() {
            self.notify_fenced();
        }
        done
    }

    /// Renames the baton by one try; records its turn, or that this process is fenced.
    fn rename_once(
        &self,
        turn: &mut u64,
        wanted: impl Fn(u32, u64) -> BatonName,
    ) -> Result<(), OwnerError> {
        if self.is_fenced() {
            return Err(OwnerError::Fenced);
        }
        match self.try_rename(*turn, |turn| wanted(self.run.epoch, turn))? {
            Some(next) => {
                *turn = next;
                Ok(())
            }
            None => {
                self.is_fenced.store(true, Ordering::Release);
                Err(OwnerError::Fenced)
            }
        }
    }

    /// Renames the baton from `turn`. Returns its new turn, or `None` if another process has it.
    fn try_rename(
        &self,
        turn: u64,
        wanted: impl Fn(u64) -> BatonName,
    ) -> Result<Option<u64>, OwnerError> {
        let RunName { epoch, process } = self.run;
        let mut turn = turn;
        for _ in 0..TRIES {
            let next = turn.saturating_add(1);
            let old = BatonName { epoch, process: Some(process), turn };
            if shard::rename(&self.shard, &old.to_string(), &wanted(next).to_string())? {
                return Ok(Some(next));
            }
            let seen = shard::batons_if_any(&self.shard)?;
            match after_gone(self.run, wanted(next), &seen) {
                AfterGone::Released => return Ok(Some(next)),
                AfterGone::RenameFrom(seen) => turn = seen,
                AfterGone::Fenced => return Ok(None),
            }
        }
        let path = self.shard.path();
        Err(OwnerError::corrupt(path, "its baton is listed and cannot be renamed"))
    }

    fn notify_fenced(&self) {
        let calls = std::mem::take(&mut *self.on_fenced.lock());
        calls.into_iter().for_each(|call| call());
    }
}

/// The lines of one wait in the log: the first failure, then one each [`LOG_PAUSE`].
#[derive(Debug, Default)]
struct WaitLog {
    /// The time of the last line.
    written: Option<Duration>,
    /// Failures since then.
    left_out: u64,
}

impl WaitLog {
    /// Counts a failure. Returns the number that was left out since the last line; `None` if this
    /// one is left out too.
    fn admit(&mut self, now: Duration) -> Option<u64> {
        if self.written.is_some_and(|written| now.saturating_sub(written) < LOG_PAUSE) {
            self.left_out += 1;
            return None;
        }
        self.written = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

impl fmt::Debug for Baton {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Baton").field("run", &self.run.to_string()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_of_this_run_speaks_for_it() {
        let process = ProcessId::parse("00000000000000aa").unwrap();
        let other = ProcessId::parse("00000000000000bb");
        let run = RunName { epoch: 3, process };
        let own = |turn| BatonName { epoch: 3, process: Some(process), turn };
        let wanted = own(8);
        let after = |wanted, seen: &[BatonName]| after_gone(run, wanted, seen);
        assert_eq!(after(wanted, &[wanted]), AfterGone::RenameFrom(8));
        assert_eq!(after(wanted, &[own(5)]), AfterGone::RenameFrom(5));
        let taken = BatonName { epoch: 4, process: other, turn: 0 };
        assert_eq!(after(wanted, &[taken]), AfterGone::Fenced);
        assert_eq!(after(wanted, &[]), AfterGone::Fenced);
        // The same server that was restarted, or a twin of it, is another process.
        let twin = BatonName { process: other, ..wanted };
        assert_eq!(after(wanted, &[twin]), AfterGone::Fenced);
        let released = BatonName { process: None, ..wanted };
        assert_eq!(after(wanted, &[released]), AfterGone::Fenced);
        assert_eq!(after(released, &[released]), AfterGone::Released);
    }

    #[test]
    fn a_long_wait_has_one_line_each_ten_seconds() {
        let mut log = WaitLog::default();
        let lines: Vec<_> = (0..=250).map(|tick| log.admit(PAUSE * tick)).collect();
        let written = lines.iter().enumerate().filter_map(|(tick, line)| Some((tick, (*line)?)));
        assert_eq!(written.collect::<Vec<_>>(), [(0, 0), (100, 99), (200, 99)]);
    }
}
