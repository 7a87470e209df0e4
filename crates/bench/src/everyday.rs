//! The everyday work of a programmer, measured with the real programs: `tar`, `cp`, `grep`, `git`
//! and `rm` over a tree like a program's source.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::children_cpu;
use crate::programs::Programs;
use crate::timing::{Sample, Stopwatch};
use crate::{BenchError, Contender, drop_caches, settle, turns};

pub use report::{EverydayReport, JobFigures, JobTimes};

use job::{JOBS, Job, TREE};
use sources::Sources;

pub(crate) mod generated;
mod job;
mod report;
mod sources;

/// The programs that do the jobs and check them.
const PROGRAMS: [&str; 6] = ["tar", "cp", "grep", "git", "rm", "diff"];

/// The size of a measurement of [`everyday()`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EverydayOptions {
    /// Rounds over all directories.
    pub rounds: u32,
    /// The tree to work on; without one it is made.
    pub tree: Option<PathBuf>,
    /// Files of the tree that is made.
    pub files: u64,
    /// The seed of the tree that is made.
    pub seed: u64,
    /// The word that `grep` searches; the tree that is made has it.
    pub word: String,
    /// True if the kernel's caches are dropped before every job, not only `tar` and `grep`.
    pub cold: bool,
}

impl Default for EverydayOptions {
    fn default() -> Self {
        Self { rounds: 5, tree: None, files: 4800, seed: 1, word: "TODO".to_owned(), cold: false }
    }
}

/// Measures the five jobs in directories that alternate. A directory does all of them before the
/// next one begins, because what drops the kernel's caches for one drops those of all. Before each
/// job the disks are idle, and if this is root, the kernel's caches are dropped before `tar`, which
/// begins a turn, and before `grep`. In the first round the results are checked.
///
/// The contenders' directories and `work`, a directory on a local disk, are empty. After a success
/// those of the contenders are empty again.
///
/// # Errors
/// [`BenchError::NoContender`]; [`BenchError::NoProgram`], before anything has begun;
/// [`BenchError::Program`] with the first program that fails; [`BenchError::Search`] and
/// [`BenchError::Wrong`] if a result is not what it should be.
pub fn everyday(
    contenders: &[Contender],
    work: &Path,
    options: &EverydayOptions,
) -> Result<EverydayReport, BenchError> {
    if contenders.is_empty() {
        return Err(BenchError::NoContender);
    }
    let programs = Programs::new(work.join("home"), &PROGRAMS)?;
    let sources = Sources::new(work, options, &programs)?;
    let desk = Desk { programs, sources, cold: options.cold, drops: drop_caches() };
    let mut samples = vec![vec![Vec::new(); contenders.len()]; JOBS.len()];
    for round in 0..options.rounds {
        for turn in turns(round, contenders.len()) {
            for (job, samples) in JOBS.into_iter().zip(&mut samples) {
                samples[turn].push(desk.run(job, &contenders[turn])?);
                if round == 0 {
                    desk.check(job, &contenders[turn])?;
                }
            }
        }
    }
    let jobs = JOBS.into_iter().zip(&samples);
    let mut jobs: Vec<JobTimes> =
        jobs.map(|(job, samples)| JobTimes::new(&desk.name(job), samples)).collect();
    jobs.push(JobTimes::new("all five", &sums(&samples)));
    Ok(EverydayReport {
        setup: format!(
            "{}, {} rounds, {}",
            desk.sources.describe(options),
            options.rounds,
            match (desk.drops, desk.cold) {
                (true, true) => "caches dropped before each job",
                (true, false) => "caches dropped before tar and grep",
                (false, _) => "caches as they were",
            },
        ),
        contenders: contenders.iter().map(|contender| contender.name.clone()).collect(),
        jobs,
    })
}

/// Runs jobs, all with the same programs and sources.
struct Desk {
    programs: Programs,
    sources: Sources,
    /// True if every job is cold.
    cold: bool,
    /// True if dropping the kernel's caches is permitted.
    drops: bool,
}

impl Desk {
    fn run(&self, job: Job, contender: &Contender) -> Result<Sample, BenchError> {
        self.prepare(job, contender)?;
        let dir = contender.path.join(job.folder());
        let lines = job.commands(&self.sources);
        let mut printed = Vec::new();
        let children = children_cpu();
        let watch = Stopwatch::start(contender);
        for (program, arguments) in &lines {
            printed = self.programs.run(program, arguments, &dir)?.stdout;
        }
        let mut sample = watch.stop();
        sample.own_cpu = children_cpu().saturating_sub(children);
        if job == Job::Search {
            self.sources.check_search(&dir, &printed)?;
        }
        Ok(sample)
    }

    /// Makes the disks idle, and the caches cold or warm as the job wants them.
    fn prepare(&self, job: Job, contender: &Contender) -> Result<(), BenchError> {
        if job == Job::Unpack {
            let tree = contender.path.join(TREE);
            let made = fs::create_dir(&tree);
            made.map_err(|source| BenchError::Fill { path: tree, source })?;
        }
        settle(&contender.path)?;
        // Files that the last turn has removed make an ext4 without a journal slow while they are
        // in memory: a new file gets no inode that was removed less than a minute ago, and the
        // search for another one takes up to twelve times as long.
        if self.is_cold(job) || self.drops && job == Job::Unpack {
            drop_caches();
        }
        for (program, _) in job.commands(&self.sources) {
            self.programs.start_once(program)?;
        }
        match job {
            Job::Unpack => self.sources.read_tarball(),
            _ => Ok(()),
        }
    }

    /// Checks the result of a job.
    fn check(&self, job: Job, contender: &Contender) -> Result<(), BenchError> {
        let dir = contender.path.join(job.folder());
        for (program, arguments) in job.checks(&self.sources) {
            let printed = self.programs.run(program, &arguments, &dir)?.stdout;
            if !printed.is_empty() {
                let said = String::from_utf8_lossy(&printed).trim().to_owned();
                return Err(BenchError::Wrong { job: job.name(), path: dir, said });
            }
        }
        Ok(())
    }

    fn is_cold(&self, job: Job) -> bool {
        self.drops && (self.cold || job == Job::Search)
    }

    fn name(&self, job: Job) -> String {
        format!("{}{}", job.name(), if self.is_cold(job) { ", cold" } else { "" })
    }
}

/// Returns the sums over all jobs, from `samples[job][contender][round]`.
fn sums(samples: &[Vec<Vec<Sample>>]) -> Vec<Vec<Sample>> {
    let mut sums: Vec<Vec<Sample>> = Vec::new();
    for job in samples {
        if sums.is_empty() {
            sums.clone_from(job);
            continue;
        }
        for (sum, sample) in sums.iter_mut().flatten().zip(job.iter().flatten()) {
            sum.elapsed += sample.elapsed;
            sum.own_cpu += sample.own_cpu;
            sum.daemon_cpu += sample.daemon_cpu;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contenders(dirs: &[tempfile::TempDir]) -> Vec<Contender> {
        dirs.iter().map(|dir| Contender::new(dir.path())).collect()
    }

    #[test]
    fn every_job_is_done_in_every_round_and_nothing_stays() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let work = tempfile::tempdir().unwrap();
        let options = EverydayOptions { files: 50, rounds: 2, ..EverydayOptions::default() };
        let report = everyday(&contenders(&dirs), work.path(), &options).unwrap();
        assert!(report.setup.starts_with("50 files in 3 folders, 0.4 MB, of seed 1, 1 lines"));
        let names: Vec<&str> = report.jobs.iter().map(|job| job.job.as_str()).collect();
        assert!(names[2].starts_with("grep -r"));
        assert_eq!((names.len(), names[0], names[5]), (6, "tar x", "all five"));
        for job in &report.jobs {
            assert!(job.figures.iter().all(|it| it.rounds == 2 && it.seconds[0] > 0.0), "{job:?}");
            assert_eq!(job.ratios.len(), 1);
        }
        let sum: f64 = report.jobs[..5].iter().map(|job| job.figures[0].seconds[0]).sum();
        assert!(report.jobs[5].figures[0].seconds[2] >= sum * 0.99);
        assert!(dirs.iter().all(|dir| fs::read_dir(dir.path()).unwrap().count() == 0));
    }

    #[test]
    fn a_tree_that_is_given_is_worked_on() {
        let [tree, work] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let dirs = [tempfile::tempdir().unwrap()];
        fs::write(tree.path().join("file"), "a word\n").unwrap();
        std::os::unix::fs::symlink("nowhere", tree.path().join("link")).unwrap();
        let options = EverydayOptions {
            tree: Some(tree.path().to_owned()),
            word: "word".to_owned(),
            rounds: 1,
            ..EverydayOptions::default()
        };
        let report = everyday(&contenders(&dirs), work.path(), &options).unwrap();
        assert!(report.setup.starts_with("2 files in 1 folders"), "{}", report.setup);
        assert!(report.setup.contains("1 lines with word"), "{}", report.setup);
    }

    /// Each check finds what it is there to find.
    #[test]
    fn a_result_that_is_wrong_ends_the_measurement() {
        let [work, dir] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let options = EverydayOptions { files: 20, ..EverydayOptions::default() };
        let programs = Programs::new(work.path().join("home"), &PROGRAMS).unwrap();
        let sources = Sources::new(work.path(), &options, &programs).unwrap();
        let desk = Desk { programs, sources, cold: false, drops: false };
        let contender = Contender::new(dir.path());
        let run = |job| desk.run(job, &contender).unwrap();
        run(Job::Unpack);
        run(Job::Copy);
        desk.check(Job::Copy, &contender).unwrap();
        fs::write(dir.path().join("copy/more"), "").unwrap();
        let failed = desk.check(Job::Copy, &contender).unwrap_err().to_string();
        assert!(failed.contains("`diff`") && failed.contains("more"), "{failed}");
        run(Job::Commit);
        desk.check(Job::Commit, &contender).unwrap();
        fs::write(dir.path().join("tree/more"), "").unwrap();
        let failed = desk.check(Job::Commit, &contender).unwrap_err().to_string();
        assert!(failed.contains("git") && failed.ends_with("?? more"), "{failed}");
    }

    #[test]
    fn a_measurement_of_nothing_is_an_error() {
        let nothing = everyday(&[], Path::new("/"), &EverydayOptions::default());
        assert!(matches!(nothing, Err(BenchError::NoContender)));
    }
}
