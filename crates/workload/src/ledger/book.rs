//! The ledger: a file with one line for each event, each written by one call.
//!
//! ```text
//! l WRITER LEVEL    the writer has a folder of this level
//! i WRITER STEP     it is about to do this step
//! a WRITER STEP     the step was answered
//! ```

use std::os::fd::OwnedFd;
use std::path::Path;
use std::{fs, io};

use rustix::fs::{Mode, OFlags};

use super::LedgerError;
use super::plan::{Plan, Step};
use super::seed_of;

/// A ledger open for writing, by several threads.
#[derive(Debug)]
pub(super) struct Book(OwnedFd);

impl Book {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::APPEND;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(Self(rustix::fs::open(path, flags | OFlags::CLOEXEC, mode)?))
    }

    pub(super) fn level(&self, writer: usize, level: &str) -> io::Result<()> {
        self.line(&format!("l {writer} {level}\n"))
    }

    pub(super) fn intend(&self, writer: usize, step: usize) -> io::Result<()> {
        self.line(&format!("i {writer} {step}\n"))
    }

    pub(super) fn answer(&self, writer: usize, step: usize) -> io::Result<()> {
        self.line(&format!("a {writer} {step}\n"))
    }

    fn line(&self, line: &str) -> io::Result<()> {
        let count = rustix::io::write(&self.0, line.as_bytes())?;
        if count == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

/// What a ledger says of one writer.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) level: String,
    /// Steps that it was about to do; the last one may not be answered.
    pub(super) begun: usize,
    pub(super) answered: usize,
    /// The syncs that were answered, by their steps.
    pub(super) synced: Vec<usize>,
    /// The steps that must be there, because a sync of a level that survives covers them.
    pub(super) promised: usize,
    plan: Plan,
    /// True if the step that was begun last is a sync.
    is_syncing: bool,
    /// The steps of all writers that were answered as this one began its last step.
    before: Vec<usize>,
}

/// Reads a ledger. Syncs of the levels in `surviving` promise what was answered before them.
pub(super) fn read(path: &Path, seed: u64, surviving: &[&str]) -> Result<Vec<Course>, LedgerError> {
    let source = |source| LedgerError::Ledger { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(source)?;
    let mut courses: Vec<Course> = Vec::new();
    // A line that was torn has no end.
    let whole = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or_default());
    for (number, line) in whole.lines().enumerate() {
        note(&mut courses, line, seed, surviving).ok_or(LedgerError::Line { line: number + 1 })?;
    }
    Ok(courses)
}

/// Notes a line; returns `None` if it is invalid.
fn note(courses: &mut Vec<Course>, line: &str, seed: u64, surviving: &[&str]) -> Option<()> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let writer: usize = words.next()?.parse().ok()?;
    let word = words.next()?;
    if kind == "l" {
        (courses.len() == writer).then_some(())?;
        courses.push(Course::new(word, seed_of(seed, writer)));
        return Some(());
    }
    let step: usize = word.parse().ok()?;
    let answered: Vec<usize> = courses.iter().map(|course| course.answered).collect();
    let course = courses.get_mut(writer)?;
    match kind {
        "i" => {
            (step == course.begun + 1 && course.begun == course.answered).then_some(())?;
            course.begun = step;
            course.is_syncing = matches!(course.plan.step(), Step::Sync { .. });
            course.before = answered;
        }
        "a" => {
            (step == course.begun && step == course.answered + 1).then_some(())?;
            course.answered = step;
            if course.is_syncing {
                course.synced.push(step);
                if surviving.contains(&course.level.as_str()) {
                    let mut covered = std::mem::take(&mut course.before);
                    *covered.get_mut(writer)? = step;
                    for (course, steps) in courses.iter_mut().zip(covered) {
                        course.promised = course.promised.max(steps);
                    }
                }
            }
        }
        _ => return None,
    }
    Some(())
}

impl Course {
    fn new(level: &str, seed: u64) -> Self {
        Self {
            level: level.to_owned(),
            begun: 0,
            answered: 0,
            synced: Vec::new(),
            promised: 0,
            plan: Plan::new(seed),
            is_syncing: false,
            before: Vec::new(),
        }
    }
}
