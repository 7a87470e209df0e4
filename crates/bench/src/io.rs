//! Measures reads and writes of one large file.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use pelago_random::{Random, bytes_of};
use rustix::fs::{self, Advice, Mode, OFlags};
use rustix::io::{self, Errno};

use crate::report::Row;
use crate::timing::{Sample, Stopwatch};
use crate::{BenchError, Contender, Report, drop_caches, turns};

const CHUNK: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// The size of a measurement of [`io()`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoOptions {
    /// Bytes of the file, rounded down to whole MiB; at least 1 MiB.
    pub bytes: u64,
    /// Writes of 4 KiB at random offsets.
    pub random_writes: u64,
    /// Rounds over all directories.
    pub rounds: u32,
    /// The seed of the bytes and offsets.
    pub seed: u64,
}

impl Default for IoOptions {
    fn default() -> Self {
        Self { bytes: 1 << 30, random_writes: 16_384, rounds: 3, seed: 1 }
    }
}

/// Measures a large file in directories that alternate: write and fsync, cold read, rewrite and
/// fsync, random writes and fsync. Before a cold read all caches are dropped as root, otherwise
/// this file's pages.
///
/// # Errors
/// [`BenchError::NoContender`], or [`BenchError::Step`] with the first call that fails.
pub fn io(contenders: &[Contender], options: &IoOptions) -> Result<Report, BenchError> {
    if contenders.is_empty() {
        return Err(BenchError::NoContender);
    }
    let mut samples = vec![vec![Vec::new(); contenders.len()]; STEPS.len()];
    let mut cold = true;
    for round in 0..options.rounds {
        let seed = options.seed.wrapping_add(u64::from(round));
        let mut files = Vec::new();
        for contender in contenders {
            let open = || TestFile::new(contender, options, seed);
            files.push(open().map_err(|source| error(contender, "creating a file", source))?);
        }
        for (step, samples) in STEPS.iter().zip(&mut samples) {
            for turn in turns(round, contenders.len()) {
                let file = &mut files[turn];
                let mut run = || {
                    let sample = file.run(*step);
                    sample.map_err(|source| error(file.contender, step.name(), source))
                };
                if *step == Step::Read {
                    // Memory freed after a read is in larger pieces than memory freed after writes,
                    // and makes the next read faster. So each contender reads once before.
                    drop(run()?);
                    cold &= drop_caches();
                }
                samples[turn].push(run()?);
            }
        }
    }
    let rows = STEPS.iter().zip(&samples);
    let rows = rows.map(|(step, samples)| Row::new(step.name(), Some(step.bytes()), samples));
    let IoOptions { bytes, random_writes, rounds, seed } = options;
    Ok(Report {
        bench: "io",
        setup: format!(
            "{bytes} bytes, {random_writes} random writes, {rounds} rounds, seed {seed}, caches {}",
            if cold { "dropped before reading" } else { "given up by advice before reading" },
        ),
        contenders: contenders.iter().map(|contender| contender.name.clone()).collect(),
        rows: rows.collect(),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Write,
    Read,
    Rewrite,
    Random,
}

const STEPS: [Step; 4] = [Step::Write, Step::Read, Step::Rewrite, Step::Random];

impl Step {
    const fn name(self) -> &'static str {
        match self {
            Self::Write => "write and fsync",
            Self::Read => "read cold",
            Self::Rewrite => "rewrite and fsync",
            Self::Random => "random 4 KiB writes and fsync",
        }
    }

    const fn bytes(self) -> u64 {
        if matches!(self, Self::Random) { BLOCK } else { CHUNK }
    }
}

/// The file of one round in one directory; removed on drop.
struct TestFile<'a> {
    contender: &'a Contender,
    path: PathBuf,
    file: OwnedFd,
    chunks: u64,
    random_writes: u64,
    random: Random,
    data: Vec<u8>,
}

impl<'a> TestFile<'a> {
    fn new(contender: &'a Contender, options: &IoOptions, seed: u64) -> Result<Self, Errno> {
        let name = format!(".pelago-bench-{}-{seed}", std::process::id());
        let path = contender.path.join(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Self {
            contender,
            path,
            file,
            chunks: (options.bytes / CHUNK).max(1),
            random_writes: options.random_writes,
            random: Random::new(seed),
            data: bytes_of(seed, CHUNK as usize),
        })
    }

    fn run(&mut self, step: Step) -> Result<Sample, Errno> {
        if step == Step::Read {
            fs::fadvise(&self.file, 0, None, Advice::DontNeed)?;
        }
        let mut watch = Stopwatch::start(self.contender);
        if step == Step::Random {
            let (block, _) = self.data.split_at(BLOCK as usize);
            let blocks = self.chunks * (CHUNK / BLOCK);
            for _ in 0..self.random_writes {
                write_all(&self.file, block, self.random.below(blocks) * BLOCK)?;
                watch.lap(1);
            }
        } else {
            for chunk in 0..self.chunks {
                let offset = chunk * CHUNK;
                match step {
                    Step::Read => read_all(&self.file, &mut self.data, offset)?,
                    _ => write_all(&self.file, &self.data, offset)?,
                }
                watch.lap(1);
            }
        }
        if step != Step::Read {
            fs::fsync(&self.file)?;
            watch.lap(0);
        }
        Ok(watch.stop())
    }
}

impl Drop for TestFile<'_> {
    fn drop(&mut self) {
        // The measurement is complete, and a file left behind is visible.
        let _removed = std::fs::remove_file(&self.path);
    }
}

fn write_all(file: &OwnedFd, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match io::pwrite(file, rest, offset + done as u64)? {
            0 => return Err(Errno::NOSPC),
            more => done += more,
        }
    }
    Ok(())
}

fn read_all(file: &OwnedFd, bytes: &mut [u8], offset: u64) -> Result<(), Errno> {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match io::pread(file, rest, offset + done as u64)? {
            0 => return Err(Errno::IO),
            more => done += more,
        }
    }
    Ok(())
}

fn error(contender: &Contender, step: &'static str, source: Errno) -> BenchError {
    BenchError::Step { step, path: contender.path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_runs_in_every_round() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let contenders = [0, 1].map(|index: usize| Contender::new(dirs[index].path()));
        let options = IoOptions { bytes: 2 << 20, random_writes: 5, rounds: 2, seed: 3 };
        let report = io(&contenders, &options).unwrap();
        let counts: Vec<u64> = report.rows.iter().map(|row| row.figures[1].count).collect();
        assert_eq!(counts, [4, 4, 4, 10]);
        assert!(report.rows.iter().all(|row| row.unit == "MB/s" && row.ratios.len() == 1));
    }

    #[test]
    fn the_file_is_removed_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let options = IoOptions { bytes: 1 << 20, random_writes: 1, rounds: 1, seed: 3 };
        io(&[Contender::new(dir.path())], &options).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
