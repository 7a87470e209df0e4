//! The measurements of Ringer's paper (`pelago bench ringer`): calls for the metadata of a file,
//! and sequential writes and reads from 2 B to 2 MiB.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pelago_random::bytes_of;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::{BenchError, drop_caches, settle, turns};

pub use job::RingerPaper;
pub use report::{RingerFigures, RingerReport, RingerRow};

use job::{Group, Job, Pass};
use probe::Probe;

mod job;
mod probe;
mod report;

/// The number of calls of the paper, and of its runs of a transfer.
const PAPER_CALLS: u32 = 1000;
const PAPER_RUNS: u32 = 50;
/// The paper moved 2 B to 2 MB.
const SIZE_LOGS: Range<u32> = 1..22;
/// The fewest runs of a transfer, however many bytes it moves.
const LEAST_RUNS: u64 = 3;
/// Files of which the requests are counted.
const COUNTED: u32 = 2;
/// A few round trips of a slow line.
const QUIET: Duration = Duration::from_millis(100);
/// The first letters of the names of all files.
const PREFIX: &str = ".pelago-ringer";

/// Returns how many requests the server of a folder has sent to other offices; `None` if that is
/// not known.
pub type RequestCounter = Box<dyn Fn() -> Option<u64>>;

/// A folder to measure.
pub struct RingerFolder {
    /// Its name in reports.
    pub name: String,
    /// The folder.
    pub path: PathBuf,
    /// The same folder by the mount that makes the files which are new to `path`; that path itself
    /// if there is no other mount.
    pub other: PathBuf,
    /// The counter of its server.
    pub requests: RequestCounter,
}

impl RingerFolder {
    /// Returns the number of files of which requests are counted.
    fn counted(&self) -> u32 {
        if (self.requests)().is_some() { COUNTED } else { 0 }
    }
}

/// The size of a measurement of [`ringer()`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingerOptions {
    /// Calls of each kind.
    pub calls: u32,
    /// Runs of each transfer.
    pub runs: u32,
    /// Bytes of the transfers.
    pub sizes: Vec<u64>,
    /// Most bytes of all runs of a transfer together; there are three runs even so.
    pub most: Option<u64>,
    /// The pause without a request after which all requests of a call count as sent.
    pub quiet: Duration,
    /// The seed of the bytes.
    pub seed: u64,
}

impl Default for RingerOptions {
    fn default() -> Self {
        let sizes = SIZE_LOGS.map(|log| 1 << log).collect();
        Self { calls: PAPER_CALLS, runs: PAPER_RUNS, sizes, most: None, quiet: QUIET, seed: 1 }
    }
}

/// Measures folders that alternate: after a twentieth of the calls, and after each transfer, the
/// next folder has its turn. Then the requests of some more calls and transfers are counted, with
/// pauses, so that what is sent late counts for what has caused it.
///
/// Files are made in the folders themselves, because a new folder would have its home where it is
/// made; they are removed by the other mount, also after an error. If a folder has no other mount,
/// the kernel's caches are dropped as root once its files are made, so that each first read is one.
///
/// # Errors
/// [`BenchError::NoContender`]; [`BenchError::Step`] with the first call that fails;
/// [`BenchError::Fill`]; [`BenchError::Wrong`] if bytes are not those that were written.
pub fn ringer(
    folders: &[RingerFolder],
    options: &RingerOptions,
) -> Result<RingerReport, BenchError> {
    if folders.is_empty() {
        return Err(BenchError::NoContender);
    }
    let groups = options.groups();
    let desk = Desk::new(folders, options)?;
    let measured = desk.measure_all(&groups);
    let removed = folders.iter().try_for_each(|folder| remove_files(&folder.other));
    let (rows, dropped) = measured?;
    removed?;
    let RingerOptions { calls, runs, most, seed, .. } = options;
    let most = most.map_or_else(String::new, |most| format!(", at most {most} bytes a size"));
    Ok(RingerReport {
        setup: format!(
            "{calls} calls, {runs} runs of each transfer{most}, seed {seed}, caches {}",
            if dropped { "dropped before" } else { "as they were" },
        ),
        folders: folders.iter().map(|folder| folder.name.clone()).collect(),
        rows,
    })
}

impl RingerOptions {
    fn groups(&self) -> Vec<Group> {
        let mut groups = Group::of_calls(self.calls);
        for bytes in &self.sizes {
            let most = self.most.map_or(u64::MAX, |most| (most / bytes.max(&1)).max(LEAST_RUNS));
            let runs = u32::try_from(most).unwrap_or(u32::MAX).min(self.runs);
            groups.push(Group::of_transfer(*bytes, runs));
        }
        groups
    }
}

/// Times and requests of the rows of a group.
struct Measured {
    /// Microseconds of `[row][folder][call]`.
    times: Vec<Vec<Vec<f64>>>,
    /// Requests of `[row][folder][call]`.
    requests: Vec<Vec<Vec<Option<u64>>>>,
}

/// The folders, opened once: a call walks no path.
struct Desk<'a> {
    folders: &'a [RingerFolder],
    dirs: Vec<OwnedFd>,
    /// The bytes of all files, as many as the largest has.
    content: Vec<u8>,
    quiet: Duration,
}

impl<'a> Desk<'a> {
    fn new(folders: &'a [RingerFolder], options: &RingerOptions) -> Result<Self, BenchError> {
        let open = |folder: &RingerFolder| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(&folder.path, flags, Mode::empty()).map_err(|source| {
                BenchError::Step { step: "open", path: folder.path.clone(), source }
            })
        };
        let largest = options.sizes.iter().copied().max().unwrap_or(0).max(job::SMALL_BYTES);
        Ok(Self {
            folders,
            dirs: folders.iter().map(open).collect::<Result<_, _>>()?,
            content: bytes_of(options.seed, usize::try_from(largest).unwrap_or(usize::MAX)),
            quiet: options.quiet,
        })
    }

    /// Returns all rows, and whether the kernel's caches were dropped before.
    fn measure_all(&self, groups: &[Group]) -> Result<(Vec<RingerRow>, bool), BenchError> {
        for folder in self.folders {
            for group in groups {
                self.fill(folder, group)?;
            }
            settle(&folder.other)?;
        }
        let is_alone = |folder: &RingerFolder| folder.path == folder.other;
        let dropped = self.folders.iter().any(is_alone) && drop_caches();
        let mut rows = Vec::new();
        for group in groups {
            let measured = self.measure(group)?;
            self.folders.iter().try_for_each(|folder| self.check_written(folder, group))?;
            let passes = group.passes.iter().flat_map(|pass| &pass.rows);
            let figures = measured.times.iter().zip(&measured.requests);
            rows.extend(passes.zip(figures).map(|(row, (times, requests))| {
                RingerRow::new(row.clone(), times, requests, group.block)
            }));
        }
        Ok((rows, dropped))
    }

    /// Makes the files of a group that are new to the folder.
    fn fill(&self, folder: &RingerFolder, group: &Group) -> Result<(), BenchError> {
        if !group.passes.iter().any(|pass| pass.job.needs_file()) {
            return Ok(());
        }
        for number in 0..group.count + folder.counted() {
            let path = folder.other.join(name_of(group, "old", number));
            fs::write(&path, self.content_of(group))
                .map_err(|source| BenchError::Fill { path, source })?;
        }
        Ok(())
    }

    fn content_of(&self, group: &Group) -> &[u8] {
        &self.content[..usize::try_from(group.bytes).unwrap_or(usize::MAX)]
    }

    fn measure(&self, group: &Group) -> Result<Measured, BenchError> {
        let rows: usize = group.passes.iter().map(|pass| pass.rows.len()).sum();
        let mut measured = Measured {
            times: vec![vec![Vec::new(); self.folders.len()]; rows],
            requests: vec![vec![Vec::new(); self.folders.len()]; rows],
        };
        for (round, numbers) in (0..).zip(group.blocks()) {
            for turn in turns(round, self.folders.len()) {
                let mut row = 0;
                for pass in &group.passes {
                    for number in numbers.clone() {
                        let mut clock = Probe::clock();
                        self.run(turn, group, pass, number, &mut clock)?;
                        for (at, time) in clock.micros().enumerate() {
                            measured.times[row + at][turn].push(time);
                        }
                    }
                    row += pass.rows.len();
                }
            }
        }
        for (turn, folder) in self.folders.iter().enumerate() {
            let mut row = 0;
            for pass in &group.passes {
                for number in group.count..group.count + folder.counted() {
                    let mut counter = Probe::counter(&folder.requests, self.quiet);
                    self.run(turn, group, pass, number, &mut counter)?;
                    for (at, count) in counter.counts().enumerate() {
                        measured.requests[row + at][turn].push(count);
                    }
                }
                row += pass.rows.len();
            }
        }
        Ok(measured)
    }

    fn run(
        &self,
        turn: usize,
        group: &Group,
        pass: &Pass,
        number: u32,
        probe: &mut Probe<'_>,
    ) -> Result<(), BenchError> {
        let name = name_of(group, if pass.job.needs_file() { "old" } else { "new" }, number);
        let content = self.content_of(group);
        let failed = |source| BenchError::Step {
            step: pass.job.name(),
            path: self.folders[turn].path.join(&name),
            source,
        };
        let read = pass.job.run(&self.dirs[turn], &name, content, probe).map_err(failed)?;
        match pass.job {
            Job::Read if read != content => Err(BenchError::Wrong {
                job: pass.job.name(),
                path: self.folders[turn].path.join(&name),
                said: format!("{} bytes that differ from {}", read.len(), content.len()),
            }),
            _ => Ok(()),
        }
    }

    /// Compares the sizes of the files that were written, as the other mount has them.
    fn check_written(&self, folder: &RingerFolder, group: &Group) -> Result<(), BenchError> {
        if !group.passes.iter().any(|pass| pass.job == Job::Write) {
            return Ok(());
        }
        for number in 0..group.count + folder.counted() {
            let path = folder.other.join(name_of(group, "new", number));
            let size = fs::metadata(&path)
                .map_err(|source| BenchError::Tree { path: path.clone(), source })?
                .len();
            if size != group.bytes {
                let said = format!("{size} bytes instead of {}", group.bytes);
                return Err(BenchError::Wrong { job: Job::Write.name(), path, said });
            }
        }
        Ok(())
    }
}

fn name_of(group: &Group, kind: &str, number: u32) -> String {
    format!("{PREFIX}-{}-{kind}-{}-{number}", std::process::id(), group.name)
}

/// Removes the files of this process.
fn remove_files(dir: &Path) -> Result<(), BenchError> {
    let prefix = format!("{PREFIX}-{}-", std::process::id());
    let remove = || -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    };
    remove().map_err(|found| {
        let source = Errno::from_io_error(&found).unwrap_or(Errno::IO);
        BenchError::Step { step: "unlink", path: dir.to_owned(), source }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(path: &Path, requests: RequestCounter) -> RingerFolder {
        RingerFolder {
            name: path.display().to_string(),
            path: path.to_owned(),
            other: path.to_owned(),
            requests,
        }
    }

    fn tiny() -> RingerOptions {
        RingerOptions {
            calls: 45,
            runs: 5,
            sizes: vec![2, 4096],
            most: Some(8192),
            quiet: Duration::from_millis(1),
            seed: 3,
        }
    }

    #[test]
    fn each_call_and_transfer_is_done_in_each_folder() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let folders = dirs.each_ref().map(|dir| folder(dir.path(), Box::new(|| None)));
        let report = ringer(&folders, &tiny()).unwrap();
        assert!(report.setup.starts_with("45 calls, 5 runs of each transfer, "), "{report:?}");
        let rows: Vec<&str> = report.rows.iter().map(|row| row.step.as_str()).collect();
        assert_eq!(rows.len(), 12 + 2 * 3);
        assert_eq!(
            rows[12..],
            [
                "write 2 B",
                "first read 2 B",
                "second read 2 B",
                "write 4 KiB",
                "first read 4 KiB",
                "second read 4 KiB",
            ]
        );
        for (at, row) in report.rows.iter().enumerate() {
            // Three runs of 4 KiB, although 8 KiB are the most.
            let runs = [45, 5, 3][usize::from(at >= 12) + usize::from(at >= 15)];
            assert!(row.figures.iter().all(|it| it.runs == runs && it.micros[1] > 0.0), "{row:?}");
            assert!(row.figures.iter().all(|it| it.requests.is_none()), "{row:?}");
            assert_eq!(row.speeds.len(), 1);
        }
        for dir in &dirs {
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "files stay behind");
        }
    }

    /// The counter has the number of files, which rises where a file is made.
    #[test]
    fn requests_are_counted_for_each_call() {
        let dir = tempfile::tempdir().unwrap();
        let counted = dir.path().to_owned();
        let counter = move || Some(fs::read_dir(&counted).unwrap().count() as u64);
        let folders = [folder(dir.path(), Box::new(counter))];
        let report = ringer(&folders, &tiny()).unwrap();
        for row in &report.rows {
            let is_made = row.step.contains("create") || row.step.starts_with("write ");
            let requests = row.figures[0].requests;
            assert_eq!(requests, Some(f64::from(u8::from(is_made))), "{row:?}");
        }
    }

    #[test]
    fn a_file_that_lost_bytes_ends_the_measurement() {
        let dir = tempfile::tempdir().unwrap();
        let folders = [folder(dir.path(), Box::new(|| None))];
        let desk = Desk::new(&folders, &tiny()).unwrap();
        let group = Group::of_transfer(4096, 1);
        desk.fill(&folders[0], &group).unwrap();
        desk.measure(&group).unwrap();
        desk.check_written(&folders[0], &group).unwrap();
        for kind in ["old", "new"] {
            fs::write(dir.path().join(name_of(&group, kind, 0)), "short").unwrap();
        }
        let read = Pass { job: Job::Read, rows: Vec::new() };
        let wrong = desk.run(0, &group, &read, 0, &mut Probe::clock()).unwrap_err().to_string();
        assert!(wrong.contains("`read`") && wrong.contains("5 bytes"), "{wrong}");
        let wrong = desk.check_written(&folders[0], &group).unwrap_err().to_string();
        assert!(wrong.contains("`write`") && wrong.contains("5 bytes instead of 4096"), "{wrong}");
    }

    #[test]
    fn a_measurement_of_nothing_is_an_error() {
        let nothing = ringer(&[], &RingerOptions::default());
        assert!(matches!(nothing, Err(BenchError::NoContender)));
    }

    #[test]
    fn the_sizes_are_those_of_the_paper() {
        let sizes = RingerOptions::default().sizes;
        assert_eq!((sizes.len(), sizes[0], sizes[20]), (21, 2, 2 << 20));
    }
}
