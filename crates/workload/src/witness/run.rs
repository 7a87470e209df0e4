//! A run: several threads that work and log.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pelago_random::Random;
use rustix::fs::{Mode, XattrFlags};
use rustix::io::Errno;

use crate::clock;
use crate::witness::action::Action;
use crate::witness::choose::Chooser;
use crate::witness::log::{Log, LogContents};
use crate::witness::perform::Performer;
use crate::witness::state::ThreadState;
use crate::witness::verify::{Settlement, check_threads, open_dir};
use crate::witness::{THREADS, WitnessError};

/// The result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunSummary {
    /// Operations acknowledged in this run.
    pub answered: u64,
    /// The errno with which the file system died; `None` if it did not.
    pub died: Option<i32>,
}

/// Works on `dir` until the file system dies or each thread has performed `ops` operations, and
/// logs to `log`, which lies elsewhere. An existing log is continued, after the directory was
/// compared with it.
///
/// # Errors
/// [`WitnessError::Lost`] if the directory contradicts the log; [`WitnessError::Log`] if the log
/// cannot be written; [`WitnessError::Refused`] if an operation that must succeed fails.
pub fn run(
    dir: &Path,
    log: &Path,
    seed: u64,
    ops: Option<u64>,
) -> Result<RunSummary, WitnessError> {
    match start(dir, log, seed, ops) {
        Err(WitnessError::Dir { source, .. }) if is_death(source) => {
            Ok(RunSummary { answered: 0, died: Some(source.raw_os_error()) })
        }
        result => result,
    }
}

fn start(dir: &Path, log: &Path, seed: u64, ops: Option<u64>) -> Result<RunSummary, WitnessError> {
    let contents = LogContents::read(log)?;
    let root = open_dir(dir)?;
    let file = Log::open(log).map_err(|source| log_error(log, source))?;
    if contents.runs > 0 {
        let (report, settlements) = check_threads(&contents, &root)?;
        if !report.is_clean() {
            return Err(WitnessError::Lost(Box::new(report)));
        }
        settle(&file, &contents, &settlements).map_err(|source| log_error(log, source))?;
    }
    make_tops(&root)?;
    file.begin().map_err(|source| log_error(log, source))?;
    let threads = LogContents::read(log)?.threads;
    let xattrs = keeps_xattrs(&root);
    let stop = AtomicBool::new(false);
    let mut workers = Vec::new();
    for (thread, known) in threads.into_iter().enumerate() {
        let seed = seed.wrapping_mul(THREADS as u64).wrapping_add(thread as u64);
        workers.push(Worker {
            log: &file,
            stop: &stop,
            performer: Performer::new(open_dir(dir)?),
            chooser: Chooser { random: Random::new(seed), thread, xattrs },
            state: known.state,
            answered: 0,
        });
    }
    sum_up(work_together(workers, ops), log)
}

fn work_together(workers: Vec<Worker<'_>>, ops: Option<u64>) -> Vec<(u64, Result<(), RunError>)> {
    thread::scope(|scope| {
        let handles: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(move || worker.work(ops))).collect();
        let join = |handle: thread::ScopedJoinHandle<'_, _>| {
            handle.join().expect("a worker returns its errors")
        };
        handles.into_iter().map(join).collect()
    })
}

fn sum_up(ends: Vec<(u64, Result<(), RunError>)>, log: &Path) -> Result<RunSummary, WitnessError> {
    let mut summary = RunSummary { answered: 0, died: None };
    for (answered, end) in ends {
        summary.answered += answered;
        match end {
            Ok(()) => {}
            Err(RunError::Died(errno)) => summary.died = Some(errno.raw_os_error()),
            Err(RunError::Refused(action, source)) => {
                return Err(WitnessError::Refused { action: action.to_string(), source });
            }
            Err(RunError::Log(source)) => return Err(log_error(log, source)),
        }
    }
    Ok(summary)
}

/// The reason for which a thread stopped early.
enum RunError {
    Died(Errno),
    Refused(Box<Action>, Errno),
    Log(std::io::Error),
}

/// One thread of a run.
struct Worker<'a> {
    log: &'a Log,
    stop: &'a AtomicBool,
    performer: Performer,
    chooser: Chooser,
    state: ThreadState,
    answered: u64,
}

impl Worker<'_> {
    fn work(mut self, ops: Option<u64>) -> (u64, Result<(), RunError>) {
        let result = self.work_on(ops);
        if result.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        (self.answered, result)
    }

    fn work_on(&mut self, ops: Option<u64>) -> Result<(), RunError> {
        while ops.is_none_or(|ops| self.answered < ops) && !self.stop.load(Ordering::Relaxed) {
            let action = self.chooser.choose(&self.state);
            self.perform(&action)?;
            self.answered += 1;
        }
        for node in self.state.open.clone() {
            self.perform(&Action::Close { node })?;
        }
        Ok(())
    }

    fn perform(&mut self, action: &Action) -> Result<(), RunError> {
        let thread = self.chooser.thread;
        self.log.intend(thread, action).map_err(RunError::Log)?;
        let stat = self.performer.perform(action, &self.state).map_err(|errno| match errno {
            _ if is_death(errno) => RunError::Died(errno),
            _ => RunError::Refused(Box::new(action.clone()), errno),
        })?;
        self.log.answer(thread, stat).map_err(RunError::Log)?;
        let now = u64::try_from(clock::wall().as_millis()).unwrap_or(u64::MAX);
        if let (Action::Stat { path }, Some(stat)) = (action, stat) {
            self.state.observe(path, stat);
        } else {
            self.state.apply(action, now).expect("the chooser's actions fit the state");
        }
        Ok(())
    }
}

/// Returns whether a program gets this error after the process of a mount has ended.
pub(crate) const fn is_death(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOTCONN
            | Errno::CONNABORTED
            | Errno::CANCELED
            | Errno::IO
            | Errno::NODEV
            | Errno::SHUTDOWN
            | Errno::HOSTDOWN
            | Errno::INTR
    )
}

fn settle(log: &Log, contents: &LogContents, settlements: &[Settlement]) -> std::io::Result<()> {
    for (thread, settlement) in settlements.iter().enumerate() {
        if let Some(done) = settlement.done {
            log.settle(thread, done)?;
        }
        for (node, kept) in &settlement.kept {
            log.keep(thread, *node, *kept)?;
        }
    }
    debug_assert_eq!(contents.threads.len(), settlements.len());
    Ok(())
}

fn make_tops(root: &OwnedFd) -> Result<(), WitnessError> {
    let tops = (0..THREADS).map(|thread| format!("t{thread}"));
    for path in tops.chain(["shared".to_owned()]) {
        match rustix::fs::mkdirat(root, &path, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(source) => return Err(WitnessError::Dir { path, source }),
        }
    }
    Ok(())
}

fn keeps_xattrs(root: &OwnedFd) -> bool {
    let set = rustix::fs::fsetxattr(root, "user.probe", b"", XattrFlags::empty());
    set.is_ok() && rustix::fs::fremovexattr(root, "user.probe").is_ok()
}

fn log_error(path: &Path, source: std::io::Error) -> WitnessError {
    WitnessError::Log { path: path.to_owned(), source }
}
