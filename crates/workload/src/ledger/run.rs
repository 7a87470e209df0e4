//! A run: one thread for each writer.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pelago_random::bytes_of;
use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use super::book::Book;
use super::plan::{Plan, Step};
use super::{LEVEL, LedgerError, folder_of, seed_of};
use crate::witness::is_death;

/// The result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerSummary {
    /// Steps that were answered.
    pub steps: usize,
    /// The errno with which the file system died; `None` if it did not.
    pub died: Option<i32>,
}

/// Works below `root`, one writer for each of `levels`, until the file system dies or each writer
/// has done `most` steps. The ledger, which lies elsewhere, is made.
///
/// # Errors
/// [`LedgerError::Folder`] or [`LedgerError::Ledger`] if the folders or the ledger cannot be made;
/// [`LedgerError::Refused`] if a step fails that must succeed.
pub fn run(
    root: &Path,
    ledger: &Path,
    seed: u64,
    levels: &[&str],
    most: Option<usize>,
) -> Result<LedgerSummary, LedgerError> {
    let failed = |source| LedgerError::Ledger { path: ledger.to_owned(), source };
    let folders: Result<Vec<OwnedFd>, LedgerError> =
        levels.iter().enumerate().map(|(writer, level)| folder(root, writer, level)).collect();
    let folders = folders?;
    let book = Book::create(ledger).map_err(failed)?;
    for (writer, level) in levels.iter().enumerate() {
        book.level(writer, level).map_err(failed)?;
    }
    let stop = AtomicBool::new(false);
    let ends: Vec<(usize, Result<(), StepError>)> = thread::scope(|scope| {
        let mut writers = Vec::new();
        for (number, folder) in folders.into_iter().enumerate() {
            let plan = Plan::new(seed_of(seed, number));
            let open = BTreeMap::new();
            let writer = Writer { number, folder, open, plan, book: &book, stop: &stop, done: 0 };
            writers.push(scope.spawn(move || writer.work(most)));
        }
        let join = |writer: thread::ScopedJoinHandle<'_, _>| {
            writer.join().expect("a writer returns its errors")
        };
        writers.into_iter().map(join).collect()
    });
    let mut answered = LedgerSummary { steps: 0, died: None };
    for (writer, (steps, end)) in ends.into_iter().enumerate() {
        answered.steps += steps;
        match end {
            Ok(()) => {}
            Err(StepError::Died(errno)) => answered.died = Some(errno.raw_os_error()),
            Err(StepError::Refused(source)) => {
                return Err(LedgerError::Refused { writer, step: steps + 1, source });
            }
            Err(StepError::Book(source)) => return Err(failed(source)),
        }
    }
    Ok(answered)
}

/// Makes the folder of a writer, with its level.
fn folder(root: &Path, writer: usize, level: &str) -> Result<OwnedFd, LedgerError> {
    let path = folder_of(writer);
    let make = || {
        rustix::fs::mkdir(root.join(&path), Mode::from_raw_mode(0o755))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(root.join(&path), flags, Mode::empty())?;
        rustix::fs::fsetxattr(&folder, LEVEL, level.as_bytes(), XattrFlags::empty())?;
        Ok(folder)
    };
    make().map_err(|source| LedgerError::Folder { path: path.clone(), source })
}

/// The reason for which a writer stopped early.
enum StepError {
    Died(Errno),
    Refused(Errno),
    Book(std::io::Error),
}

/// One writer of a run.
struct Writer<'a> {
    number: usize,
    folder: OwnedFd,
    open: BTreeMap<String, OwnedFd>,
    plan: Plan,
    book: &'a Book,
    stop: &'a AtomicBool,
    done: usize,
}

impl Writer<'_> {
    /// Works, and returns how many steps were answered.
    fn work(mut self, most: Option<usize>) -> (usize, Result<(), StepError>) {
        let end = self.work_on(most);
        if end.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        (self.done, end)
    }

    fn work_on(&mut self, most: Option<usize>) -> Result<(), StepError> {
        while most.is_none_or(|most| self.done < most) && !self.stop.load(Ordering::Relaxed) {
            let step = self.plan.step();
            self.book.intend(self.number, self.done + 1).map_err(StepError::Book)?;
            self.perform(&step).map_err(|errno| match is_death(errno) {
                true => StepError::Died(errno),
                false => StepError::Refused(errno),
            })?;
            self.book.answer(self.number, self.done + 1).map_err(StepError::Book)?;
            self.done += 1;
        }
        Ok(())
    }

    fn perform(&mut self, step: &Step) -> Result<(), Errno> {
        let folder = &self.folder;
        match step {
            Step::Create { name } => {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let file = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(0o644))?;
                self.open.insert(name.clone(), file);
            }
            Step::Write { name, offset, seed, length } => {
                // A server that dies can have taken a part; then the rest finds it dead.
                let bytes = bytes_of(*seed, *length);
                let mut written = 0;
                while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
                    let at = offset + written as u64;
                    written += rustix::io::pwrite(self.file(name)?, rest, at)?;
                }
            }
            Step::Resize { name, size } => rustix::fs::ftruncate(self.file(name)?, *size)?,
            Step::Rename { from, to } => {
                rustix::fs::renameat(folder, from, folder, to)?;
                if let Some(file) = self.open.remove(from) {
                    self.open.insert(to.clone(), file);
                }
            }
            Step::Remove { name } => {
                rustix::fs::unlinkat(folder, name, rustix::fs::AtFlags::empty())?;
                self.open.remove(name);
            }
            Step::Sync { name } => rustix::fs::fsync(self.file(name)?)?,
        }
        Ok(())
    }

    fn file(&self, name: &str) -> Result<&OwnedFd, Errno> {
        self.open.get(name).ok_or(Errno::BADF)
    }
}
