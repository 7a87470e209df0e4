//! The workload itself.

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
use crate::witness::log::{Account, Log};
use crate::witness::perform::Hands;
use crate::witness::state::State;
use crate::witness::verify::{Settlement, examine, open_dir};
use crate::witness::{THREADS, WitnessError};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ran {
    /// Operations that were answered in this run.
    pub answered: u64,
    /// The file system died meanwhile, with this error number.
    pub died: Option<i32>,
}

/// Works on `dir` until the file system dies, or each thread has done `ops` operations, and logs to
/// `log`, which must lie elsewhere. A log that exists is gone on with: first the directory must be
/// what it says.
///
/// # Errors
/// Where the directory is not what the log says, the log cannot be written, or an operation that
/// must go well is refused.
pub fn run(dir: &Path, log: &Path, seed: u64, ops: Option<u64>) -> Result<Ran, WitnessError> {
    match start(dir, log, seed, ops) {
        Err(WitnessError::Dir { source, .. }) if is_death(source) => {
            Ok(Ran { answered: 0, died: Some(source.raw_os_error()) })
        }
        result => result,
    }
}

fn start(dir: &Path, log: &Path, seed: u64, ops: Option<u64>) -> Result<Ran, WitnessError> {
    let account = Account::read(log)?;
    let root = open_dir(dir)?;
    let file = Log::open(log).map_err(|source| log_error(log, source))?;
    if account.runs > 0 {
        let (report, settlements) = examine(&account, &root)?;
        if !report.is_clean() {
            return Err(WitnessError::Lost(Box::new(report)));
        }
        settle(&file, &account, &settlements).map_err(|source| log_error(log, source))?;
    }
    make_tops(&root)?;
    file.begin().map_err(|source| log_error(log, source))?;
    let threads = Account::read(log)?.threads;
    let (xattrs, stop) = (keeps_xattrs(&root), AtomicBool::new(false));
    let mut workers = Vec::new();
    for (thread, known) in threads.into_iter().enumerate() {
        let seed = seed.wrapping_mul(THREADS as u64).wrapping_add(thread as u64);
        workers.push(Worker {
            log: &file,
            stop: &stop,
            hands: Hands::new(open_dir(dir)?),
            chooser: Chooser { random: Random::new(seed), thread, xattrs },
            state: known.state,
            answered: 0,
        });
    }
    sum_up(work_together(workers, ops), log)
}

fn work_together(workers: Vec<Worker<'_>>, ops: Option<u64>) -> Vec<(u64, Result<(), Stop>)> {
    thread::scope(|scope| {
        let handles: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(move || worker.work(ops))).collect();
        let join = |handle: thread::ScopedJoinHandle<'_, _>| {
            handle.join().expect("a worker returns its errors")
        };
        handles.into_iter().map(join).collect()
    })
}

fn sum_up(ends: Vec<(u64, Result<(), Stop>)>, log: &Path) -> Result<Ran, WitnessError> {
    let mut ran = Ran { answered: 0, died: None };
    for (answered, end) in ends {
        ran.answered += answered;
        match end {
            Ok(()) => {}
            Err(Stop::Died(errno)) => ran.died = Some(errno.raw_os_error()),
            Err(Stop::Refused(action, source)) => {
                return Err(WitnessError::Refused { action: action.to_string(), source });
            }
            Err(Stop::Log(source)) => return Err(log_error(log, source)),
        }
    }
    Ok(ran)
}

enum Stop {
    Died(Errno),
    Refused(Box<Action>, Errno),
    Log(std::io::Error),
}

struct Worker<'a> {
    log: &'a Log,
    stop: &'a AtomicBool,
    hands: Hands,
    chooser: Chooser,
    state: State,
    answered: u64,
}

impl Worker<'_> {
    fn work(mut self, ops: Option<u64>) -> (u64, Result<(), Stop>) {
        let result = self.work_on(ops);
        if result.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        (self.answered, result)
    }

    fn work_on(&mut self, ops: Option<u64>) -> Result<(), Stop> {
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

    fn perform(&mut self, action: &Action) -> Result<(), Stop> {
        let thread = self.chooser.thread;
        self.log.intend(thread, action).map_err(Stop::Log)?;
        let sight = self.hands.perform(action, &self.state).map_err(|errno| match errno {
            _ if is_death(errno) => Stop::Died(errno),
            _ => Stop::Refused(Box::new(action.clone()), errno),
        })?;
        self.log.answer(thread, sight).map_err(Stop::Log)?;
        let now = u64::try_from(clock::wall().as_millis()).unwrap_or(u64::MAX);
        if let (Action::Stat { path }, Some(sight)) = (action, sight) {
            self.state.see(path, sight);
        } else {
            self.state.apply(action, now).expect("the chooser's actions fit the state");
        }
        Ok(())
    }
}

/// What a program sees when the process behind a mount is gone.
const fn is_death(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOTCONN
            | Errno::CONNABORTED
            | Errno::IO
            | Errno::NODEV
            | Errno::SHUTDOWN
            | Errno::HOSTDOWN
            | Errno::INTR
    )
}

fn settle(log: &Log, account: &Account, settlements: &[Settlement]) -> std::io::Result<()> {
    for (thread, settlement) in settlements.iter().enumerate() {
        if let Some(done) = settlement.done {
            log.settle(thread, done)?;
        }
        for (node, kept) in &settlement.kept {
            log.keep(thread, *node, *kept)?;
        }
    }
    debug_assert_eq!(account.threads.len(), settlements.len());
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
