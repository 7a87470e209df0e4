//! Two large folders as programs meet them: `find` and `ls` over many names, and every one of many
//! small files read behind a fresh start.

use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use crate::process::children_cpu;
use crate::report::Row;
use crate::timing::{Sample, Stopwatch};
use crate::{BenchError, Contender, Report, drop_caches, fill, turns};
use pelago_random::bytes_of;

/// A directory to measure, and how what serves it is started afresh.
pub struct Side {
    /// What reports call it.
    pub name: String,
    /// The directory; what is made in it stays.
    pub path: PathBuf,
    /// Ends what serves the directory and starts it again; nothing where the kernel serves it.
    pub restart: Option<Restart>,
}

/// Ends what serves a directory and starts it again.
pub type Restart = Box<dyn Fn() -> io::Result<()>>;

/// How much is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeOptions {
    /// Empty files in one folder.
    pub names: u64,
    /// Files of 4 KiB in the other.
    pub small: u64,
    /// Rounds over all directories.
    pub rounds: u32,
    /// What the bytes follow from.
    pub seed: u64,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self { names: 100_000, small: 20_000, rounds: 9, seed: 1 }
    }
}

/// Measures two large folders in directories that alternate. What is called cold comes after a
/// restart of what serves the directory, and without the kernel's caches where this process is
/// root.
///
/// # Errors
/// Where a directory does not take an operation; where `find` or `ls` fails or is not there.
pub fn tree(sides: &[Side], options: &TreeOptions) -> Result<Report, BenchError> {
    if sides.is_empty() {
        return Err(BenchError::NoContender);
    }
    let folders: Vec<Folders<'_>> = sides.iter().map(Folders::of).collect();
    for folders in &folders {
        folders.make(options)?;
    }
    let dropped = drop_caches();
    let mut samples = vec![vec![Vec::new(); sides.len()]; STEPS.len()];
    for round in 0..options.rounds {
        for (step, samples) in STEPS.iter().zip(&mut samples) {
            for turn in turns(round, sides.len()) {
                samples[turn].push(folders[turn].run(*step, options)?);
            }
        }
    }
    let rows = STEPS.iter().zip(&samples);
    let rows = rows.map(|(step, samples)| Row::new(step.name(), None, samples)).collect();
    let TreeOptions { names, small, rounds, seed } = options;
    Ok(Report {
        bench: "tree",
        setup: format!(
            "{names} names, {small} files of 4 KiB, {rounds} rounds, seed {seed}, cold: {}",
            if dropped { "restarted, caches dropped" } else { "restarted, caches as they were" },
        ),
        contenders: sides.iter().map(|side| side.name.clone()).collect(),
        rows,
    })
}

impl fmt::Debug for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Side").field("name", &self.name).field("path", &self.path).finish()
    }
}

/// Each leaves the kernel's caches as the next one wants them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    FindCold,
    FindWarm,
    LongList,
    ReadCold,
}

const STEPS: [Step; 4] = [Step::FindCold, Step::FindWarm, Step::LongList, Step::ReadCold];

impl Step {
    const fn name(self) -> &'static str {
        match self {
            Self::FindCold => "find -printf %s, cold",
            Self::FindWarm => "find -printf %s, warm",
            Self::LongList => "ls -l, warm",
            Self::ReadCold => "read 4 KiB files, cold",
        }
    }

    const fn is_cold(self) -> bool {
        matches!(self, Self::FindCold | Self::ReadCold)
    }
}

/// The two folders of a side.
struct Folders<'a> {
    side: &'a Side,
    many: PathBuf,
    small: PathBuf,
}

impl<'a> Folders<'a> {
    fn of(side: &'a Side) -> Self {
        Self { side, many: side.path.join("many"), small: side.path.join("small") }
    }

    /// Another side may lead to the same directory, and have made them.
    fn make(&self, options: &TreeOptions) -> Result<(), BenchError> {
        if self.many.exists() {
            return Ok(());
        }
        for folder in [&self.many, &self.small] {
            let made = fs::mkdir(folder, Mode::RWXU);
            made.map_err(|source| error(folder, "making a folder", source))?;
        }
        fill(&self.many, options.names)?;
        let bytes = bytes_of(options.seed, BLOCK);
        for number in 0..options.small {
            let path = self.small.join(format!("s{number:08}"));
            let written = std::fs::write(&path, &bytes);
            written.map_err(|source| io_error(&path, "writing", &source))?;
        }
        Ok(())
    }

    fn run(&self, step: Step, options: &TreeOptions) -> Result<Sample, BenchError> {
        if step.is_cold() {
            if let Some(restart) = &self.side.restart {
                let path = &self.side.path;
                let failed = |source| BenchError::Restart { path: path.clone(), source };
                restart().map_err(failed)?;
            }
            drop_caches();
        }
        // After a restart it is another process.
        let contender = Contender::new(&self.side.path);
        match step {
            Step::FindCold => self.program(&contender, FIND, options.names),
            Step::FindWarm => {
                self.program(&contender, FIND, options.names)?;
                self.program(&contender, FIND, options.names)
            }
            Step::LongList => {
                self.program(&contender, LONG_LIST, options.names)?;
                self.program(&contender, LONG_LIST, options.names)
            }
            Step::ReadCold => self.read_all(&contender, options.small),
        }
    }

    fn program(
        &self,
        contender: &Contender,
        (program, options): (&'static str, &[&str]),
        count: u64,
    ) -> Result<Sample, BenchError> {
        let mut command = Command::new(program);
        match program {
            "find" => command.arg(&self.many).args(options),
            _ => command.args(options).arg(&self.many),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let children = children_cpu();
        let mut watch = Stopwatch::start(contender);
        let status = command.status();
        watch.lap(count);
        let mut sample = watch.stop();
        sample.own_cpu += children_cpu().saturating_sub(children);
        match status {
            Ok(status) if status.success() => Ok(sample),
            Ok(_) => Err(error(&self.many, program, Errno::IO)),
            Err(source) => Err(io_error(&self.many, program, &source)),
        }
    }

    /// In the order in which the directory lists them, as `tar` and `grep -r` do.
    fn read_all(&self, contender: &Contender, count: u64) -> Result<Sample, BenchError> {
        let mut watch = Stopwatch::start(contender);
        let mut read = || -> io::Result<u64> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = fs::open(&self.small, flags, Mode::empty())?;
            let mut buffer = vec![0; BLOCK + 1];
            let mut files = 0;
            for entry in fs::Dir::read_from(&dir)? {
                let name = CString::from(entry?.file_name());
                if name.as_bytes().starts_with(b".") {
                    continue;
                }
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                let mut file = File::from(fs::openat(&dir, &name, flags, Mode::empty())?);
                if file.read(&mut buffer)? != BLOCK {
                    return Err(Errno::IO.into());
                }
                watch.lap(1);
                files += 1;
            }
            Ok(files)
        };
        match read() {
            Ok(files) if files == count => Ok(watch.stop()),
            Ok(_) => Err(error(&self.small, "reading as many files as there are", Errno::IO)),
            Err(source) => Err(io_error(&self.small, "reading", &source)),
        }
    }
}

const BLOCK: usize = 4096;
const FIND: (&str, &[&str]) = ("find", &["-printf", "%s"]);
const LONG_LIST: (&str, &[&str]) = ("ls", &["-l"]);

fn error(path: &Path, step: &'static str, source: Errno) -> BenchError {
    BenchError::Step { step, path: path.to_owned(), source }
}

fn io_error(path: &Path, step: &'static str, source: &io::Error) -> BenchError {
    error(path, step, Errno::from_io_error(source).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn every_step_sees_every_file_and_cold_ones_begin_afresh() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let restarts = Rc::new(Cell::new(0));
        let counted = Rc::clone(&restarts);
        let restart: Restart = Box::new(move || {
            counted.set(counted.get() + 1);
            Ok(())
        });
        let side = |index: usize, restart| Side {
            name: format!("{index}"),
            path: dirs[index].path().to_owned(),
            restart,
        };
        // The third leads where the second does.
        let sides = [side(0, Some(restart)), side(1, None), side(1, None)];
        let options = TreeOptions { names: 30, small: 7, rounds: 2, seed: 1 };
        let report = tree(&sides, &options).unwrap();
        assert_eq!(restarts.get(), 4);
        let counts: Vec<u64> = report.rows.iter().map(|row| row.figures[0].count).collect();
        assert_eq!(counts, [60, 60, 60, 14]);
        assert!(report.rows.iter().all(|row| row.ratios.len() == 2));
        assert!(matches!(tree(&[], &options), Err(BenchError::NoContender)));
    }

    #[test]
    fn a_side_that_cannot_restart_ends_the_measurement() {
        let dir = tempfile::tempdir().unwrap();
        let restart: Restart = Box::new(|| Err(Errno::BUSY.into()));
        let side =
            Side { name: String::new(), path: dir.path().to_owned(), restart: Some(restart) };
        let options = TreeOptions { names: 1, small: 1, rounds: 1, seed: 1 };
        let failed = tree(&[side], &options).unwrap_err();
        assert!(matches!(failed, BenchError::Restart { .. }), "{failed:?}");
    }
}
