//! The log. Each record is one line, written by one call, so a kill can only tear the last line.
//!
//! ```text
//! R                        a run begins: no file is open
//! i THREAD MS ACTION…      the thread is about to do this
//! a THREAD MS [SIZE S NS]  it has returned; after a stat with the size and mtime
//! s THREAD done|undone     whether the operation in flight at a crash has happened
//! k THREAD NODE APPLIED [CUT]   how many of a file's pending changes survived the crash
//! ```

use std::os::fd::OwnedFd;
use std::path::Path;
use std::{fs, io};

use rustix::fs::{Mode, OFlags};

use crate::clock;
use crate::witness::action::{Action, NodeId, number, parse_time};
use crate::witness::state::{Kept, StatResult, ThreadState};
use crate::witness::{THREADS, WitnessError};

/// A log open for writing, by several threads.
#[derive(Debug)]
pub(super) struct Log(OwnedFd);

impl Log {
    /// Opens the log for appending, and cuts off a torn last line.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
        let text = fs::read(path)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        rustix::fs::ftruncate(&file, whole as u64)?;
        Ok(Self(file))
    }

    pub(super) fn begin(&self) -> io::Result<()> {
        self.write("R".to_owned())
    }

    pub(super) fn intend(&self, thread: usize, action: &Action) -> io::Result<()> {
        self.write(format!("i {thread} {} {action}", clock::wall().as_millis()))
    }

    pub(super) fn answer(&self, thread: usize, stat: Option<StatResult>) -> io::Result<()> {
        let ms = clock::wall().as_millis();
        self.write(match stat {
            None => format!("a {thread} {ms}"),
            Some(StatResult { size, mtime }) => {
                format!("a {thread} {ms} {size} {} {}", mtime.seconds, mtime.nanos)
            }
        })
    }

    pub(super) fn settle(&self, thread: usize, done: bool) -> io::Result<()> {
        self.write(format!("s {thread} {}", if done { "done" } else { "undone" }))
    }

    pub(super) fn keep(&self, thread: usize, node: NodeId, kept: Kept) -> io::Result<()> {
        let Kept { applied, cut } = kept;
        let cut = cut.map(|cut| format!(" {cut}")).unwrap_or_default();
        self.write(format!("k {thread} {node} {applied}{cut}"))
    }

    fn write(&self, mut line: String) -> io::Result<()> {
        line.push('\n');
        let written = rustix::io::write(&self.0, line.as_bytes())?;
        if written == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

/// The part of one thread in a log.
#[derive(Debug, Clone, Default)]
pub(super) struct ThreadLog {
    pub(super) state: ThreadState,
    /// The operation that had not returned when the log ended.
    pub(super) in_flight: Option<Action>,
}

/// A parsed log.
#[derive(Debug, Clone)]
pub(super) struct LogContents {
    pub(super) threads: Vec<ThreadLog>,
    /// Runs that began.
    pub(super) runs: u64,
    /// Acknowledged operations, without stats.
    pub(super) answered: u64,
    /// The time of the last record, in milliseconds since 1970.
    pub(super) last_ms: u64,
}

impl LogContents {
    /// Reads a log. A missing file is an empty log.
    pub(super) fn read(path: &Path) -> Result<Self, WitnessError> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(WitnessError::Log { path: path.to_owned(), source }),
            Ok(text) => text,
        };
        let whole = text.rfind('\n').map_or(0, |last| last + 1);
        let mut contents =
            Self { threads: vec![ThreadLog::default(); THREADS], runs: 0, answered: 0, last_ms: 0 };
        for (index, line) in text.get(..whole).unwrap_or_default().lines().enumerate() {
            contents.add(line).ok_or(WitnessError::Line { line: index + 1 })?;
        }
        Ok(contents)
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let words = &mut line.split_ascii_whitespace();
        let verb = words.next()?;
        if verb == "R" {
            self.runs += 1;
            self.threads.iter_mut().for_each(|thread| thread.state.restart());
            return Some(());
        }
        let thread = self.threads.get_mut(number::<usize>(words)?)?;
        match verb {
            "i" => {
                self.last_ms = number(words)?;
                thread.in_flight = Some(Action::parse(words)?);
            }
            "a" => {
                let action = thread.in_flight.take()?;
                self.last_ms = number(words)?;
                if let Action::Stat { path } = &action {
                    let size = number(words)?;
                    let mtime = parse_time(words)?;
                    thread.state.observe(path, StatResult { size, mtime })?;
                } else {
                    thread.state.apply(&action, self.last_ms)?;
                    self.answered += 1;
                }
            }
            "s" => {
                let action = thread.in_flight.take()?;
                if words.next()? == "done" {
                    thread.state.apply(&action, self.last_ms)?;
                }
                thread.state.forget_time(&action);
            }
            "k" => {
                let node = number(words)?;
                let applied = number(words)?;
                let cut = words.next().map(str::parse).transpose().ok()?;
                thread.state.settle(node, Kept { applied, cut })?;
            }
            _ => return None,
        }
        Some(())
    }
}
