//! Measures large folders with common programs: `find` and `ls` over many names, and reading many
//! small files after a restart.

use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pelago_random::bytes_of;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use crate::process::children_cpu;
use crate::report::Row;
use crate::timing::{Sample, Stopwatch};
use crate::{BenchError, Contender, Report, drop_caches, fill, turns};

/// A directory to measure, with a way to restart the process that serves it.
pub struct ColdContender {
    /// Its name in reports.
    pub name: String,
    /// The directory; files made in it stay.
    pub path: PathBuf,
    /// The processes whose CPU time counts as the file system's; if there are none here, the
    /// process of its FUSE mount.
    pub daemons: Vec<u32>,
    /// Restarts the process that serves the directory; `None` if the kernel serves it.
    pub restart: Option<Restart>,
}

/// Stops the process that serves a directory and starts it again.
pub type Restart = Box<dyn Fn() -> io::Result<()>>;

/// The size of a measurement of [`tree`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeOptions {
    /// Empty files in one folder.
    pub names: u64,
    /// Files of 4 KiB in the other.
    pub small: u64,
    /// Rounds over all directories.
    pub rounds: u32,
    /// The seed of the bytes.
    pub seed: u64,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self { names: 100_000, small: 20_000, rounds: 9, seed: 1 }
    }
}

/// Measures two large folders in directories that alternate. A cold step comes after a restart of
/// the process that serves the directory, and as root after the kernel's caches were dropped.
///
/// # Errors
/// [`BenchError::NoContender`]; [`BenchError::Restart`]; [`BenchError::Step`] with the first call
/// that fails, or if `find` or `ls` fails or is missing.
pub fn tree(contenders: &[ColdContender], options: &TreeOptions) -> Result<Report, BenchError> {
    if contenders.is_empty() {
        return Err(BenchError::NoContender);
    }
    let folders: Vec<Folders<'_>> = contenders.iter().map(Folders::of).collect();
    for folders in &folders {
        folders.make(options)?;
    }
    let dropped = drop_caches();
    let mut samples = vec![vec![Vec::new(); contenders.len()]; STEPS.len()];
    for round in 0..options.rounds {
        for (step, samples) in STEPS.iter().zip(&mut samples) {
            for turn in turns(round, contenders.len()) {
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
        contenders: contenders.iter().map(|contender| contender.name.clone()).collect(),
        rows,
    })
}

impl fmt::Debug for ColdContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ColdContender").field("name", &self.name).field("path", &self.path).finish()
    }
}

/// Each step leaves the kernel's caches as the next one needs them.
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

/// The two folders of a contender.
struct Folders<'a> {
    contender: &'a ColdContender,
    many: PathBuf,
    small: PathBuf,
}

impl<'a> Folders<'a> {
    fn of(contender: &'a ColdContender) -> Self {
        let path = &contender.path;
        Self { contender, many: path.join("many"), small: path.join("small") }
    }

    /// Creates the folders and their files, unless another contender with the same directory has.
    fn make(&self, options: &TreeOptions) -> Result<(), BenchError> {
        if self.many.exists() {
            return Ok(());
        }
        for folder in [&self.many, &self.small] {
            let made = fs::mkdir(folder, Mode::RWXU);
            made.map_err(|source| error(folder, "creating a folder", source))?;
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
            if let Some(restart) = &self.contender.restart {
                let path = &self.contender.path;
                let failed = |source| BenchError::Restart { path: path.clone(), source };
                restart().map_err(failed)?;
            }
            drop_caches();
        }
        // After a restart another process serves it.
        let mut contender = Contender::new(&self.contender.path);
        if !self.contender.daemons.is_empty() {
            contender.daemons.clone_from(&self.contender.daemons);
        }
        match step {
            Step::FindCold => self.list(&contender, &FIND, options.names),
            Step::FindWarm => {
                self.list(&contender, &FIND, options.names)?;
                self.list(&contender, &FIND, options.names)
            }
            Step::LongList => {
                self.list(&contender, &LONG_LIST, options.names)?;
                self.list(&contender, &LONG_LIST, options.names)
            }
            Step::ReadCold => self.read_all(&contender, options.small),
        }
    }

    /// Lists the large directory by a program of the system.
    fn list(
        &self,
        contender: &Contender,
        lister: &Lister,
        count: u64,
    ) -> Result<Sample, BenchError> {
        let Lister { program, options } = *lister;
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

    /// Reads every file, in the order of the listing, as `tar` and `grep -r` do.
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
            Ok(_) => Err(error(&self.small, "listing every file", Errno::IO)),
            Err(source) => Err(io_error(&self.small, "reading", &source)),
        }
    }
}

const BLOCK: usize = 4096;

/// A program that lists a directory.
struct Lister {
    program: &'static str,
    options: &'static [&'static str],
}

const FIND: Lister = Lister { program: "find", options: &["-printf", "%s"] };
const LONG_LIST: Lister = Lister { program: "ls", options: &["-l"] };

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
    fn every_step_visits_every_file_and_cold_ones_follow_a_restart() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let restarts = Rc::new(Cell::new(0));
        let counted = Rc::clone(&restarts);
        let restart: Restart = Box::new(move || {
            counted.set(counted.get() + 1);
            Ok(())
        });
        let contender = |index: usize, restart| ColdContender {
            name: format!("{index}"),
            path: dirs[index].path().to_owned(),
            daemons: Vec::new(),
            restart,
        };
        // The third one has the same directory as the second.
        let contenders = [contender(0, Some(restart)), contender(1, None), contender(1, None)];
        let options = TreeOptions { names: 30, small: 7, rounds: 2, seed: 1 };
        let report = tree(&contenders, &options).unwrap();
        assert_eq!(restarts.get(), 4);
        let counts: Vec<u64> = report.rows.iter().map(|row| row.figures[0].count).collect();
        assert_eq!(counts, [60, 60, 60, 14]);
        assert!(report.rows.iter().all(|row| row.ratios.len() == 2));
    }

    #[test]
    fn a_measurement_of_nothing_is_an_error() {
        assert!(matches!(tree(&[], &TreeOptions::default()), Err(BenchError::NoContender)));
    }

    #[test]
    fn a_contender_that_cannot_restart_ends_the_measurement() {
        let dir = tempfile::tempdir().unwrap();
        let restart: Restart = Box::new(|| Err(Errno::BUSY.into()));
        let contender = ColdContender {
            name: String::new(),
            path: dir.path().to_owned(),
            daemons: Vec::new(),
            restart: Some(restart),
        };
        let options = TreeOptions { names: 1, small: 1, rounds: 1, seed: 1 };
        let failed = tree(&[contender], &options).unwrap_err();
        assert!(matches!(failed, BenchError::Restart { .. }), "{failed:?}");
    }
}
