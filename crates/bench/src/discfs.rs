//! The measurements of DisCFS's paper (`pelago bench discfs`): bonnie++ on a file of twice the
//! memory, a search of a tree of sources, and the build of a program.

use std::fs;
use std::path::{Path, PathBuf};

use crate::everyday::generated::SourceTree;
use crate::process::children_cpu;
use crate::programs::Programs;
use crate::timing::{Sample, Stopwatch};
use crate::{BenchError, Contender, MemoryLimit, drop_caches, settle, turns};

pub use job::Paper;
pub use report::{DiscfsFigures, DiscfsReport, DiscfsRow};

use c_tree::{CTree, PROGRAM};
use job::STEPS;

mod bonnie;
mod c_tree;
mod job;
mod report;

/// The folders of a contender.
const TREE: &str = "tree";
const SOURCES: &str = "sources";
/// `make` first: it is missing more often than the others.
const PROGRAMS: [&str; 5] = ["make", "cc", "find", "wc", "bonnie++"];
/// A search as one types it, with few starts of `wc`.
const SEARCH: [&str; 7] = [TREE, "-type", "f", "-exec", "wc", "{}", "+"];
/// The name in the line of a sum that `wc` prints.
const SUM: &str = "total";

/// The size of a measurement of [`discfs()`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscfsOptions {
    /// Rounds over all directories.
    pub rounds: u32,
    /// MiB of the large file, at least 2. The memory of the programs is limited to half of it.
    pub mib: u64,
    /// Files of the tree that is searched.
    pub files: u64,
    /// C files of the program that is built.
    pub sources: u32,
    /// The seed of the tree and of the program.
    pub seed: u64,
}

impl Default for DiscfsOptions {
    fn default() -> Self {
        Self { rounds: 5, mib: 512, files: 4800, sources: 300, seed: 1 }
    }
}

/// Measures directories that alternate: a directory does all steps before the next one begins. As
/// root the kernel's caches are dropped before bonnie++, the cold search and the build; the memory
/// of the processes that serve a directory stays. The programs for each directory run within its
/// limit of `limits`, which are as many, and in each round their results are checked.
///
/// The contenders' directories and `work`, a directory on a local disk, are empty. Files stay in
/// all of them.
///
/// # Errors
/// [`BenchError::NoContender`]; [`BenchError::NoProgram`], before anything has begun;
/// [`BenchError::Fill`]; [`BenchError::Program`] with the first program that fails;
/// [`BenchError::Wrong`] if a result is not what it should be.
pub fn discfs(
    contenders: &[Contender],
    limits: &[Option<MemoryLimit>],
    work: &Path,
    options: &DiscfsOptions,
) -> Result<DiscfsReport, BenchError> {
    if contenders.is_empty() {
        return Err(BenchError::NoContender);
    }
    let programs = Programs::new(work.join("home"), &PROGRAMS)?;
    let tree = SourceTree::new(options.files, options.seed);
    let sources = CTree::new(options.sources, options.seed);
    for contender in contenders {
        fill(contender, &tree, &sources)?;
    }
    // The compiler has more parts than `cc`, which are in memory too when it is measured.
    sources.fill(&work.join(SOURCES))?;
    let desk = Desk {
        programs,
        bytes: tree.bytes(),
        files: options.files,
        mib: options.mib,
        output: sources.output(),
        warm: work.join(SOURCES),
        drops: drop_caches(),
    };
    let mut samples = vec![vec![Vec::new(); contenders.len()]; STEPS.len()];
    for round in 0..options.rounds {
        for turn in turns(round, contenders.len()) {
            let limit = limits.get(turn).and_then(Option::as_ref);
            let measured = desk.turn(&contenders[turn], limit)?;
            for (samples, sample) in samples.iter_mut().zip(measured) {
                samples[turn].push(sample);
            }
        }
    }
    let rows = STEPS.into_iter().zip(&samples);
    Ok(DiscfsReport {
        setup: describe(options, &desk, limits),
        contenders: contenders.iter().map(|contender| contender.name.clone()).collect(),
        rows: rows.map(|(step, samples)| DiscfsRow::new(step, samples)).collect(),
    })
}

fn fill(contender: &Contender, tree: &SourceTree, sources: &CTree) -> Result<(), BenchError> {
    let path = contender.path.join(TREE);
    fs::create_dir(&path).map_err(|source| BenchError::Fill { path: path.clone(), source })?;
    tree.fill(&path, "TODO")?;
    sources.fill(&contender.path.join(SOURCES))
}

fn describe(options: &DiscfsOptions, desk: &Desk, limits: &[Option<MemoryLimit>]) -> String {
    let bytes = limits.iter().map(|limit| limit.as_ref().and_then(|limit| limit.bytes().ok()));
    let bytes: Vec<Option<u64>> = bytes.collect();
    let memory = match bytes.as_slice() {
        [first, others @ ..] if others.iter().all(|other| other == first) => first.map_or_else(
            || "memory not limited".to_owned(),
            |bytes| format!("programs within {} MiB", bytes >> 20),
        ),
        _ => "memory not limited alike".to_owned(),
    };
    let DiscfsOptions { rounds, mib, files, sources, seed } = options;
    format!(
        "a file of {mib} MiB, {files} files of {:.1} MB, {sources} C files, seed {seed}, {rounds} \
         rounds, {memory}, caches {}",
        desk.bytes as f64 / 1e6,
        if desk.drops { "dropped before cold steps" } else { "as they were" },
    )
}

/// Runs steps, all with the same programs.
struct Desk {
    programs: Programs,
    /// Files and bytes of the tree.
    files: u64,
    bytes: u64,
    /// MiB of the large file.
    mib: u64,
    /// The output of the program that is built.
    output: String,
    /// Sources on a local disk.
    warm: PathBuf,
    /// True if dropping the kernel's caches is permitted.
    drops: bool,
}

impl Desk {
    /// Returns a sample for each of [`STEPS`].
    fn turn(
        &self,
        contender: &Contender,
        limit: Option<&MemoryLimit>,
    ) -> Result<[Sample; 6], BenchError> {
        self.cool(contender, &["bonnie++"])?;
        let [write, rewrite, read] = bonnie::run(&self.programs, contender, limit, self.mib)?;
        self.cool(contender, &["find", "wc"])?;
        let cold = self.search(contender, limit)?;
        let warm = self.search(contender, limit)?;
        self.cool(contender, &["make", "cc"])?;
        let build = self.build(contender, limit)?;
        Ok([write, rewrite, read, cold, warm, build])
    }

    /// Makes the disks idle and, if that is permitted, the caches empty but for the programs.
    fn cool(&self, contender: &Contender, names: &[&'static str]) -> Result<(), BenchError> {
        settle(&contender.path)?;
        if self.drops {
            drop_caches();
        }
        names.iter().try_for_each(|program| self.programs.start_once(program))?;
        if names.contains(&"cc") {
            self.programs.run(
                "cc",
                &["-c", "main.c", "-Iinclude"].map(AsRef::as_ref),
                &self.warm,
            )?;
        }
        Ok(())
    }

    /// Counts the lines, words and bytes of all files of the tree.
    fn search(
        &self,
        contender: &Contender,
        limit: Option<&MemoryLimit>,
    ) -> Result<Sample, BenchError> {
        let measured = self.measure(contender, limit, "find", &SEARCH, &contender.path)?;
        let printed = String::from_utf8_lossy(&measured.printed);
        match counted(&printed) {
            (files, bytes) if (files, bytes) == (self.files, self.bytes) => Ok(measured.sample),
            (files, bytes) => {
                let said = format!(
                    "{files} files with {bytes} bytes instead of {} with {}",
                    self.files, self.bytes
                );
                Err(BenchError::Wrong { job: "find -exec wc", path: contender.path.clone(), said })
            }
        }
    }

    /// Builds the program, compares what it prints, and removes it again.
    fn build(
        &self,
        contender: &Contender,
        limit: Option<&MemoryLimit>,
    ) -> Result<Sample, BenchError> {
        let dir = contender.path.join(SOURCES);
        let measured = self.measure(contender, limit, "make", &[], &dir)?;
        let ran = std::process::Command::new(dir.join(PROGRAM)).output();
        let failed = |source| BenchError::Tree { path: dir.join(PROGRAM), source };
        let printed = ran.map_err(failed)?.stdout;
        if printed != self.output.as_bytes() {
            let printed = String::from_utf8_lossy(&printed);
            let said = format!("the program prints {:?} instead of {:?}", printed, self.output);
            return Err(BenchError::Wrong { job: "make", path: dir, said });
        }
        self.programs.run_within(limit, "make", &["clean"], &dir)?;
        Ok(measured.sample)
    }

    fn measure(
        &self,
        contender: &Contender,
        limit: Option<&MemoryLimit>,
        program: &'static str,
        arguments: &[&str],
        dir: &Path,
    ) -> Result<Measured, BenchError> {
        let children = children_cpu();
        let watch = Stopwatch::start(contender);
        let printed = self.programs.run_within(limit, program, arguments, dir)?.stdout;
        let mut sample = watch.stop();
        sample.count = 1;
        sample.own_cpu = children_cpu().saturating_sub(children);
        Ok(Measured { sample, printed })
    }
}

/// A program that was measured, with what it printed.
struct Measured {
    sample: Sample,
    printed: Vec<u8>,
}

/// Returns the number of files that `wc` counted, and of their bytes.
fn counted(printed: &str) -> (u64, u64) {
    let bytes = printed.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(2);
        let bytes: u64 = fields.next()?.parse().ok()?;
        (fields.next()? != SUM).then_some(bytes)
    });
    bytes.fold((0, 0), |(files, sum), bytes| (files + 1, sum + bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> DiscfsOptions {
        DiscfsOptions { rounds: 1, mib: 8, files: 40, sources: 3, seed: 2 }
    }

    #[test]
    fn every_step_is_done_in_every_round() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let contenders: Vec<Contender> =
            dirs.iter().map(|dir| Contender::new(dir.path())).collect();
        let work = tempfile::tempdir().unwrap();
        let limits = [None, None];
        let report = match discfs(&contenders, &limits, work.path(), &tiny()) {
            Err(why @ BenchError::NoProgram { .. }) => {
                println!("skipped: {why}");
                return;
            }
            measured => measured.unwrap(),
        };
        assert!(report.setup.starts_with("a file of 8 MiB, 40 files of 0."), "{}", report.setup);
        assert!(report.setup.contains("1 rounds, memory not limited, "), "{}", report.setup);
        let names: Vec<&str> = report.rows.iter().map(|row| row.step).collect();
        assert_eq!(names[..3], ["block write", "rewrite", "block read"]);
        assert_eq!(names[3..], ["tree search, cold", "tree search, warm", "build"]);
        for row in &report.rows {
            assert_eq!((row.figures.len(), row.speeds.len()), (2, 1));
            assert!(row.figures.iter().all(|it| it.rounds == 1 && it.median[1] > 0.0), "{row:?}");
        }
        // All but the trees is removed.
        for dir in &dirs {
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
            assert!(!dir.path().join(SOURCES).join(PROGRAM).exists());
        }
    }

    #[test]
    fn sums_of_wc_are_no_files() {
        let printed = " 10 20 300 tree/a b.c\n  1  2    3 tree/c.h\n 11 22  303 total\n\
                       0 0 0 tree/total\n 0 0 0 total\n";
        assert_eq!(counted(printed), (3, 303));
        assert_eq!(counted("no such file\n"), (0, 0));
    }

    /// A tree that lacks a file, or bytes of one, is found out.
    #[test]
    fn a_search_that_misses_something_ends_the_measurement() {
        let [work, dir] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let programs = Programs::new(work.path().join("home"), &["find", "wc"]).unwrap();
        let contender = Contender::new(dir.path());
        let tree = SourceTree::new(20, 1);
        fill(&contender, &tree, &CTree::new(1, 1)).unwrap();
        let mut desk = Desk {
            programs,
            files: 20,
            bytes: tree.bytes(),
            mib: 8,
            output: String::new(),
            warm: work.path().to_owned(),
            drops: false,
        };
        assert_eq!(desk.search(&contender, None).unwrap().count, 1);
        desk.bytes += 1;
        let failed = desk.search(&contender, None).unwrap_err().to_string();
        assert!(failed.contains("`find -exec wc`") && failed.contains("20 files"), "{failed}");
    }

    #[test]
    fn a_measurement_of_nothing_is_an_error() {
        let nothing = discfs(&[], &[], Path::new("/"), &DiscfsOptions::default());
        assert!(matches!(nothing, Err(BenchError::NoContender)));
    }
}
