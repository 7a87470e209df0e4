//! Measures searches through a mount, on a corpus that depends only on a seed and on its number of
//! files.
//!
//! Questions go through the control file, as any program may ask: open, write, read to the end or to
//! the first 100 files, close. One question lists a folder of a query. The corpus knows how many
//! files each answer has, and another number is an error.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::{BenchError, Contender};

pub use corpus::Corpus;
pub use creates::{CreateCost, create_cost};
pub use files::FilledCorpus;
pub use questions::Question;
pub use report::{Answered, FindReport, Times};

use questions::{Form, questions};

mod ask;
mod corpus;
mod creates;
mod files;
mod questions;
mod report;

/// The size of a measurement of [`find`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindOptions {
    /// Files of the corpus.
    pub files: u64,
    /// Rounds over all questions.
    pub rounds: u32,
    /// After this time a question is not repeated in a round, if it has enough answers.
    pub at_most: Duration,
    /// The seed of names, texts and tags.
    pub seed: u64,
}

impl Default for FindOptions {
    fn default() -> Self {
        Self { files: 1_000_000, rounds: 5, at_most: Duration::from_secs(1), seed: 1 }
    }
}

/// The most and the least repetitions of a question in a round.
const MOST: usize = 200;
const LEAST: usize = 3;
/// The least pause between two checks whether searches use the index, and the ratio of a pause to
/// the time of the last check, because a search without an index is work for the daemon.
const POLL: Duration = Duration::from_millis(20);
const POLL_TIMES: u32 = 20;
/// Questions that no file answers: they examine no file once the index has all.
const NO_NAME: &[u8] = b"name=pelago-bench-no-such-name";
const NO_WORD: &[u8] = b"text:pelagobenchnosuchword";

/// Asks the questions in rounds, in a directory with the corpus.
///
/// # Errors
/// [`BenchError::Search`] if a question cannot be asked, if its answer ends with an error, or if it
/// has another number of files than the corpus.
pub fn find(dir: &Path, options: &FindOptions) -> Result<FindReport, BenchError> {
    let corpus = Corpus::new(options.files, options.seed);
    let questions = questions(&corpus);
    let contender = Contender::new(dir);
    let mut answered: Vec<Answered> = questions.into_iter().map(Answered::new).collect();
    let mut repetition = 0;
    for _ in 0..options.rounds {
        for answered in &mut answered {
            let began = Instant::now();
            let mut times = Times::begin(&contender);
            let mut is_warm = false;
            while times.len() < LEAST || began.elapsed() < options.at_most && times.len() < MOST {
                repetition += 1;
                let asked = Instant::now();
                let hits = ask_one(dir, &answered.question, repetition)?;
                let took = asked.elapsed();
                check(dir, &answered.question, hits)?;
                // The first one is warm for all that follow.
                if std::mem::replace(&mut is_warm, true) {
                    times.add(took);
                } else {
                    times = Times::begin(&contender);
                }
            }
            answered.add(&times);
        }
    }
    Ok(FindReport { files: options.files, rounds: options.rounds, seed: options.seed, answered })
}

fn ask_one(dir: &Path, question: &Question, repetition: u64) -> Result<u64, BenchError> {
    match &question.form {
        Form::Control { most } => {
            let asked = ask::control(dir, question.query.as_bytes(), *most);
            Ok(asked.map_err(|error| of_search(dir, question, &error))?.hits)
        }
        Form::Folder => {
            let listed = ask::folder(dir, &question.query, repetition);
            listed.map_err(|error| of_search(dir, question, &error))
        }
    }
}

fn check(dir: &Path, question: &Question, hits: u64) -> Result<(), BenchError> {
    if hits == question.hits {
        return Ok(());
    }
    let why = format!("{hits} files instead of {}", question.hits);
    Err(of_search(dir, question, &io::Error::other(why)))
}

fn of_search(dir: &Path, question: &Question, error: &io::Error) -> BenchError {
    BenchError::Search {
        query: question.query.clone(),
        path: dir.to_owned(),
        why: error.to_string(),
    }
}

/// The time until searches used the index.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Indexed {
    /// Until a search for a name examined no file.
    pub names: Duration,
    /// Until a search for a word examined no file either.
    pub texts: Duration,
}

/// Asks until the index has every change below a directory: then a question that no file answers
/// examines none. The first question starts the build of an index. `meanwhile` is called again and
/// again.
///
/// # Errors
/// [`BenchError::Search`] if a question fails, or if `limit` passes.
pub fn wait_until_indexed(
    dir: &Path,
    limit: Duration,
    mut meanwhile: impl FnMut(),
) -> Result<Indexed, BenchError> {
    let began = Instant::now();
    let mut times = [Duration::ZERO; 2];
    for (query, time) in [NO_NAME, NO_WORD].into_iter().zip(&mut times) {
        let failed = |why: String| BenchError::Search {
            query: String::from_utf8_lossy(query).into_owned(),
            path: PathBuf::from(dir),
            why,
        };
        loop {
            meanwhile();
            let looked = Instant::now();
            // A search that reads all rows is left at its first record.
            let asked = ask::first(dir, query).map_err(|error| failed(error.to_string()))?;
            *time = began.elapsed();
            if asked.is_whole && asked.examined == 0 {
                break;
            }
            if *time > limit {
                return Err(failed("no index".to_owned()));
            }
            std::thread::sleep(POLL.max(looked.elapsed() * POLL_TIMES));
        }
    }
    Ok(Indexed { names: times[0], texts: times[1] })
}
