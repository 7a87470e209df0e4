//! Measures operations on names: one process, one directory, names in a random order.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::time::Duration;

use pelago_random::{Random, bytes_of};
use rustix::fs::{self, AtFlags, Dir, Mode, OFlags};
use rustix::io::{self, Errno};

use crate::report::Row;
use crate::timing::{Sample, Stopwatch};
use crate::{BenchError, Contender, Report, drop_caches, turns};

/// The size of a measurement of [`meta`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaOptions {
    /// Names in each step.
    pub names: u32,
    /// Rounds over all directories.
    pub rounds: u32,
    /// The longest time of a step; it then ends with fewer names.
    pub at_most: Duration,
    /// The seed of the random orders.
    pub seed: u64,
    /// True if the kernel's caches are dropped before cold steps, which needs root.
    pub cold: bool,
}

impl Default for MetaOptions {
    fn default() -> Self {
        Self { names: 20_000, rounds: 9, at_most: Duration::from_secs(3), seed: 1, cold: false }
    }
}

/// Measures operations on names in directories that alternate.
///
/// # Errors
/// [`BenchError::NoContender`], or [`BenchError::Step`] with the first call that fails.
pub fn meta(contenders: &[Contender], options: &MetaOptions) -> Result<Report, BenchError> {
    if contenders.is_empty() {
        return Err(BenchError::NoContender);
    }
    let cold = options.cold && drop_caches();
    let steps: Vec<Step> =
        STEPS.into_iter().filter(|step| cold || *step != Step::StatCold).collect();
    let mut samples = vec![vec![Vec::new(); contenders.len()]; steps.len()];
    for round in 0..options.rounds {
        let seed = options.seed.wrapping_add(u64::from(round));
        let mut folders = Vec::new();
        for contender in contenders {
            folders.push(TestFolder::new(contender, options, seed)?);
        }
        for (step, samples) in steps.iter().zip(&mut samples) {
            for turn in turns(round, contenders.len()) {
                if cold && step.may_be_cold() {
                    drop_caches();
                }
                samples[turn].push(folders[turn].run(*step, options.at_most)?);
            }
        }
        folders.into_iter().try_for_each(TestFolder::remove)?;
    }
    let rows = steps.iter().zip(&samples);
    let rows = rows.map(|(step, samples)| Row::new(step.name(cold), None, samples)).collect();
    let MetaOptions { names, rounds, at_most, seed, .. } = options;
    Ok(Report {
        bench: "meta",
        setup: format!(
            "{names} names, {rounds} rounds, at most {} s a step, seed {seed}, {}",
            at_most.as_secs_f64(),
            if cold { "caches dropped before cold steps" } else { "caches as they were" },
        ),
        contenders: contenders.iter().map(|contender| contender.name.clone()).collect(),
        rows,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Create,
    StatWarm,
    Open,
    StatCold,
    WriteSmall,
    ReadSmall,
    List,
    Rename,
    Unlink,
    MakeDir,
    RemoveDir,
}

/// `Open` precedes the steps that drop caches: dropping them for one contender would empty those of
/// the others.
const STEPS: [Step; 11] = [
    Step::Create,
    Step::StatWarm,
    Step::Open,
    Step::StatCold,
    Step::WriteSmall,
    Step::ReadSmall,
    Step::List,
    Step::Rename,
    Step::Unlink,
    Step::MakeDir,
    Step::RemoveDir,
];

impl Step {
    const fn name(self, cold: bool) -> &'static str {
        match self {
            Self::Create => "create",
            Self::StatWarm => "stat warm",
            Self::StatCold => "stat cold",
            Self::Open => "open-close",
            Self::WriteSmall => "create and write 4 KiB",
            Self::ReadSmall if cold => "read 4 KiB cold",
            Self::ReadSmall => "read 4 KiB",
            Self::List => "readdir entries",
            Self::Rename => "rename",
            Self::Unlink => "unlink",
            Self::MakeDir => "mkdir",
            Self::RemoveDir => "rmdir",
        }
    }

    const fn may_be_cold(self) -> bool {
        matches!(self, Self::StatCold | Self::ReadSmall)
    }

    /// Returns whether it creates the names of a later step.
    const fn creates(self) -> bool {
        matches!(self, Self::Create | Self::WriteSmall | Self::MakeDir)
    }
}

/// The names of a step, in the order in which it uses them.
#[derive(Debug, Default)]
struct Names(Vec<CString>);

/// The folder of one round in one directory.
struct TestFolder<'a> {
    contender: &'a Contender,
    folder: String,
    dir: OwnedFd,
    random: Random,
    count: u32,
    /// Names that exist: of empty files, small files and directories.
    empty: Names,
    small: Names,
    dirs: Names,
    block: Vec<u8>,
    buffer: Vec<u8>,
}

impl<'a> TestFolder<'a> {
    fn new(contender: &'a Contender, options: &MetaOptions, seed: u64) -> Result<Self, BenchError> {
        const BLOCK: usize = 4096;
        let folder = format!(".pelago-bench-{}-{seed}", std::process::id());
        let make = || {
            let path = contender.path.join(&folder);
            fs::mkdir(&path, Mode::RWXU)?;
            fs::open(&path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        };
        let dir = make().map_err(|source| error(contender, "creating a folder", source))?;
        Ok(Self {
            contender,
            folder,
            dir,
            random: Random::new(seed),
            count: options.names,
            empty: Names::default(),
            small: Names::default(),
            dirs: Names::default(),
            block: bytes_of(seed, BLOCK),
            buffer: vec![0; BLOCK],
        })
    }

    fn run(&mut self, step: Step, at_most: Duration) -> Result<Sample, BenchError> {
        if step == Step::List {
            return self.list().map_err(|source| error(self.contender, "readdir", source));
        }
        let mut names = self.names_for(step);
        let mut watch = Stopwatch::start(self.contender);
        let mut done = 0;
        for name in &names.0 {
            self.apply(step, name)
                .map_err(|source| error(self.contender, step.name(false), source))?;
            watch.lap(1);
            done += 1;
            if watch.elapsed() > at_most {
                break;
            }
        }
        let sample = watch.stop();
        if step.creates() {
            names.0.truncate(done);
        } else if step == Step::Rename {
            rename_in(&mut names, done);
        }
        self.keep(step, names);
        Ok(sample)
    }

    fn apply(&mut self, step: Step, name: &CString) -> Result<(), Errno> {
        let dir = &self.dir;
        let read = OFlags::RDONLY | OFlags::CLOEXEC;
        let make = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match step {
            Step::Create => drop(fs::openat(dir, name, make, Mode::RUSR | Mode::WUSR)?),
            Step::StatWarm | Step::StatCold => {
                fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Step::Open => drop(fs::openat(dir, name, read, Mode::empty())?),
            Step::WriteSmall => {
                let file = fs::openat(dir, name, make, Mode::RUSR | Mode::WUSR)?;
                io::write(&file, &self.block)?;
            }
            Step::ReadSmall => {
                let file = fs::openat(dir, name, read, Mode::empty())?;
                io::read(&file, &mut self.buffer)?;
            }
            Step::Rename => fs::renameat(dir, name, dir, new_name(name))?,
            Step::Unlink => fs::unlinkat(dir, name, AtFlags::empty())?,
            Step::MakeDir => fs::mkdirat(dir, name, Mode::RWXU)?,
            Step::RemoveDir => fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?,
            Step::List => {}
        }
        Ok(())
    }

    fn list(&self) -> Result<Sample, Errno> {
        let mut watch = Stopwatch::start(self.contender);
        let mut count = 0;
        for entry in Dir::read_from(&self.dir)? {
            entry?;
            count += 1;
        }
        watch.lap(count);
        Ok(watch.stop())
    }

    fn names_for(&mut self, step: Step) -> Names {
        let mut names = match step {
            _ if step.creates() => {
                let letter = match step {
                    Step::Create => 'e',
                    Step::WriteSmall => 's',
                    _ => 'd',
                };
                let name = |number| CString::new(format!("{letter}{number:08}"));
                let names = (0..self.count).map(|number| name(number).expect("letters and digits"));
                Names(names.collect())
            }
            Step::ReadSmall => std::mem::take(&mut self.small),
            Step::RemoveDir => std::mem::take(&mut self.dirs),
            _ => std::mem::take(&mut self.empty),
        };
        self.random.shuffle(&mut names.0);
        names
    }

    fn keep(&mut self, step: Step, names: Names) {
        match step {
            Step::WriteSmall | Step::ReadSmall => self.small = names,
            Step::MakeDir => self.dirs = names,
            Step::Unlink | Step::RemoveDir => {}
            _ => self.empty = names,
        }
    }

    fn remove(self) -> Result<(), BenchError> {
        let path = self.contender.path.join(&self.folder);
        std::fs::remove_dir_all(path).map_err(|found| {
            let source = Errno::from_io_error(&found).unwrap_or(Errno::IO);
            error(self.contender, "removing the folder", source)
        })
    }
}

/// Returns the name after a rename: its first letter changes.
fn new_name(name: &CString) -> CString {
    let mut bytes = name.as_bytes().to_vec();
    if let Some(first) = bytes.first_mut() {
        *first = b'r';
    }
    CString::new(bytes).expect("a letter replaces a letter")
}

fn rename_in(names: &mut Names, done: usize) {
    for name in names.0.iter_mut().take(done) {
        *name = new_name(name);
    }
}

fn error(contender: &Contender, step: &'static str, source: Errno) -> BenchError {
    BenchError::Step { step, path: contender.path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_visits_every_name_in_every_round() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let contenders = [0, 1].map(|index: usize| Contender::new(dirs[index].path()));
        let at_most = Duration::from_secs(3600);
        let options = MetaOptions { names: 20, rounds: 2, at_most, ..MetaOptions::default() };
        let report = meta(&contenders, &options).unwrap();
        assert_eq!(report.rows.len(), STEPS.len() - 1);
        for row in &report.rows {
            assert_eq!((row.figures.len(), row.ratios.len()), (2, 1));
            // The listing shows 20 empty files, 20 small ones and two dots.
            let expected = if row.step == "readdir entries" { 84 } else { 40 };
            assert!(row.figures.iter().all(|figures| figures.count == expected), "{row:?}");
        }
    }

    #[test]
    fn the_folder_is_removed_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let options = MetaOptions { names: 3, rounds: 1, ..MetaOptions::default() };
        meta(&[Contender::new(dir.path())], &options).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// Later steps use the names that a shortened step has created.
    #[test]
    fn a_step_without_time_visits_one_name() {
        let dir = tempfile::tempdir().unwrap();
        let options =
            MetaOptions { names: 9, rounds: 1, at_most: Duration::ZERO, ..MetaOptions::default() };
        let report = meta(&[Contender::new(dir.path())], &options).unwrap();
        for row in report.rows.iter().filter(|row| row.step != "readdir entries") {
            assert_eq!(row.figures[0].count, 1, "{row:?}");
        }
    }

    #[test]
    fn a_measurement_of_nothing_is_an_error() {
        assert!(matches!(meta(&[], &MetaOptions::default()), Err(BenchError::NoContender)));
    }
}
