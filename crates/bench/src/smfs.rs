//! The measurements of SMFS's paper (`pelago bench smfs`): testers that append messages, each of
//! which is synced, while the folder says how safe it has to be.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use pelago_random::bytes_of;
use pelago_wire::Level;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::process::{cpu_of_all, own_cpu};
use crate::{BenchError, Contender, turns};

pub use report::{SmfsFigures, SmfsLevel, SmfsReport};

mod report;

/// The message of the paper, in bytes.
const MESSAGE_BYTES: u32 = 4_000;
const TESTERS: u32 = 64;
/// The attribute that sets the level of what is below a folder.
const LEVEL: &str = "user.pelago.level";
const PREFIX: &str = ".pelago-smfs";

/// Waits until the mirror of a folder's volume has all that was done; returns whether it has.
pub type MirrorWait = Box<dyn Fn() -> bool>;

/// A folder to measure.
pub struct SmfsFolder {
    /// The folder, and the processes that serve it.
    pub contender: Contender,
    /// The wait for its mirror, between two turns.
    pub mirrored: MirrorWait,
}

/// The size of a measurement of [`smfs()`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmfsOptions {
    /// The levels, which alternate.
    pub levels: Vec<Level>,
    /// Testers, divided over the folders. Each has one message outstanding.
    pub testers: u32,
    /// Bytes of a message.
    pub bytes: u32,
    /// The time before messages count.
    pub warm_up: Duration,
    /// The time in which they do.
    pub time: Duration,
    /// Rounds over all levels.
    pub rounds: u32,
    /// The seed of the bytes.
    pub seed: u64,
}

impl Default for SmfsOptions {
    fn default() -> Self {
        Self {
            levels: vec![Level::Local, Level::Network, Level::Remote],
            testers: TESTERS,
            bytes: MESSAGE_BYTES,
            warm_up: Duration::from_secs(1),
            time: Duration::from_secs(10),
            rounds: 3,
            seed: 1,
        }
    }
}

/// Measures the levels in turn, on all folders together: each tester has a file of its own, appends
/// a message, syncs it, and goes on with the next one.
///
/// After each turn the mirrors get all that was done, so that no level works off what another one
/// has left. A level that a folder cannot have is not measured, and the report says why. Files are
/// removed afterwards, also after an error.
///
/// # Errors
/// [`BenchError::NoContender`]; [`BenchError::Step`] with the first call that fails.
pub fn smfs(folders: &[SmfsFolder], options: &SmfsOptions) -> Result<SmfsReport, BenchError> {
    if folders.is_empty() {
        return Err(BenchError::NoContender);
    }
    let made = options.levels.iter().map(|level| Yard::new(folders, *level));
    let yards = made.collect::<Result<Vec<_>, _>>()?;
    let ready: Vec<usize> = (0..yards.len()).filter(|at| yards[*at].refused.is_none()).collect();
    let message = bytes_of(options.seed, options.bytes as usize);
    let mut measured: Vec<Vec<Turn>> = yards.iter().map(|_| Vec::new()).collect();
    for round in 0..options.rounds {
        for turn in turns(round, ready.len()) {
            let at = ready[turn];
            measured[at].push(yards[at].measure(folders, options, &message)?);
        }
    }
    let levels = yards.iter().zip(&measured);
    let levels = levels.map(|(yard, turns)| yard.report(turns, options)).collect();
    let removed = yards.iter().try_for_each(Yard::remove);
    removed?;
    Ok(SmfsReport::new(folders, options, levels))
}

/// The folders of one level. Its drop removes what [`Yard::remove`] has not.
struct Yard {
    level: Level,
    folders: Vec<PathBuf>,
    /// The reason for which the level is not measured.
    refused: Option<String>,
}

/// The messages of one turn of a level.
#[derive(Debug, Default)]
struct Turn {
    /// Milliseconds of each message that began in the time that counts.
    millis: Vec<f64>,
    /// Messages that were answered in it.
    answered: u64,
    /// Messages that began in it, and were answered later.
    late: u64,
    own_cpu: Duration,
    daemon_cpu: Duration,
    /// The time after the turn until the mirrors had all; `None` if a folder has none.
    drained: Option<Duration>,
}

/// When a message began and how long it took.
#[derive(Debug, Clone, Copy)]
struct Message {
    began: Duration,
    took: Duration,
}

impl Yard {
    /// Makes a folder of the level in each folder.
    fn new(folders: &[SmfsFolder], level: Level) -> Result<Self, BenchError> {
        let mut yard = Self { level, folders: Vec::new(), refused: None };
        for SmfsFolder { contender, .. } in folders {
            let name = format!("{PREFIX}-{}-{level}", std::process::id());
            let path = contender.path.join(name);
            fs::create_dir(&path).map_err(|source| step("mkdir", &path, &source))?;
            yard.folders.push(path.clone());
            match rustix::fs::setxattr(&path, LEVEL, level.name().as_bytes(), XattrFlags::empty()) {
                Ok(()) => {}
                Err(Errno::OPNOTSUPP) => {
                    let at = contender.path.display();
                    let why = match level {
                        Level::Network => "its volume has no relay (`site mirror --relay`)",
                        Level::Async | Level::Local | Level::Remote => "it has no levels",
                    };
                    yard.refused = Some(format!("{at}: {why}"));
                    break;
                }
                Err(source) => return Err(BenchError::Step { step: "setxattr", path, source }),
            }
        }
        Ok(yard)
    }

    /// Runs all testers for one turn.
    fn measure(
        &self,
        folders: &[SmfsFolder],
        options: &SmfsOptions,
        message: &[u8],
    ) -> Result<Turn, BenchError> {
        let daemons: Vec<u32> =
            folders.iter().flat_map(|folder| folder.contender.daemons.clone()).collect();
        let files = (0..options.testers).map(|tester| self.file(tester));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        let end = options.warm_up + options.time;
        let barrier = Barrier::new(files.len());
        let cpu = (own_cpu(), cpu_of_all(&daemons));
        let all = thread::scope(|scope| {
            let testers: Vec<_> = files
                .iter()
                .map(|(path, file)| {
                    scope.spawn(|| {
                        barrier.wait();
                        append(file, message, end).map_err(|source| step("append", path, &source))
                    })
                })
                .collect();
            let join = |tester: thread::ScopedJoinHandle<'_, _>| {
                tester.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            testers.into_iter().map(join).collect::<Result<Vec<Vec<Message>>, BenchError>>()
        })?;
        let mut turn = Turn {
            own_cpu: own_cpu().saturating_sub(cpu.0),
            daemon_cpu: cpu_of_all(&daemons).saturating_sub(cpu.1),
            ..Turn::default()
        };
        all.iter().flatten().for_each(|message| turn.add(*message, options.warm_up, end));
        let began = Instant::now();
        let is_mirrored = folders.iter().all(|folder| (folder.mirrored)());
        turn.drained = is_mirrored.then(|| began.elapsed());
        Ok(turn)
    }

    /// Opens the file of a tester, which grows from turn to turn.
    fn file(&self, tester: u32) -> Result<(PathBuf, File), BenchError> {
        let folder = &self.folders[tester as usize % self.folders.len()];
        let path = folder.join(tester.to_string());
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(|source| step("open", &path, &source))?;
        Ok((path, file))
    }

    fn report(&self, turns: &[Turn], options: &SmfsOptions) -> SmfsLevel {
        SmfsLevel {
            level: self.level.name(),
            refused: self.refused.clone(),
            figures: (!turns.is_empty()).then(|| SmfsFigures::new(turns, options)),
        }
    }

    fn remove(&self) -> Result<(), BenchError> {
        self.folders.iter().try_for_each(|folder| match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(step("remove", folder, &error))
            }
            Ok(()) | Err(_) => Ok(()),
        })
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        // After an error, which says more than another one.
        let _first_error_counts = self.remove();
    }
}

impl Turn {
    /// Adds a message. The time counts from the end of the warm-up on.
    fn add(&mut self, message: Message, warm_up: Duration, end: Duration) {
        let counts = warm_up..end;
        let answered = message.began + message.took;
        self.answered += u64::from(counts.contains(&answered));
        if counts.contains(&message.began) {
            self.late += u64::from(answered >= end);
            self.millis.push(message.took.as_secs_f64() * 1e3);
        }
    }
}

/// Appends and syncs messages until the end, which the last one exceeds.
fn append(mut file: &File, message: &[u8], end: Duration) -> io::Result<Vec<Message>> {
    let mut messages = Vec::new();
    let clock = Instant::now();
    loop {
        let began = clock.elapsed();
        if began >= end {
            return Ok(messages);
        }
        file.write_all(message)?;
        file.sync_all()?;
        messages.push(Message { began, took: clock.elapsed() - began });
    }
}

fn step(step: &'static str, path: &Path, source: &io::Error) -> BenchError {
    let source = Errno::from_io_error(source).unwrap_or(Errno::IO);
    BenchError::Step { step, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    fn folder(path: &Path, waits: &Rc<Cell<u32>>) -> SmfsFolder {
        let waits = Rc::clone(waits);
        let mirrored = move || {
            waits.set(waits.get() + 1);
            true
        };
        SmfsFolder { contender: Contender::new(path), mirrored: Box::new(mirrored) }
    }

    fn tiny() -> SmfsOptions {
        SmfsOptions {
            levels: vec![Level::Async, Level::Local],
            testers: 3,
            warm_up: Duration::from_millis(10),
            time: Duration::from_millis(100),
            rounds: 2,
            ..SmfsOptions::default()
        }
    }

    #[test]
    fn each_level_is_measured_in_each_round_and_nothing_is_left() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let waits = Rc::default();
        let folders = dirs.each_ref().map(|dir| folder(dir.path(), &waits));
        let report = smfs(&folders, &tiny()).unwrap();
        for level in &report.levels {
            let figures = level.figures.as_ref().unwrap();
            assert_eq!(figures.rounds, 2);
            assert!(figures.messages > 0 && figures.per_second[1] > 0.0, "{level:?}");
            assert!(figures.drained_seconds.is_some(), "{level:?}");
        }
        assert_eq!(waits.get(), 2 * 2 * 2);
        for dir in &dirs {
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "files stay behind");
        }
    }

    #[test]
    fn nothing_is_left_after_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let waits = Rc::default();
        let folders = [folder(dir.path(), &waits), folder(&gone, &waits)];
        assert!(matches!(smfs(&folders, &tiny()), Err(BenchError::Step { step: "mkdir", .. })));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// The time that counts is from 10 to 20 ms. A message before it, one into it, one inside, and
    /// one that its end cuts.
    #[test]
    fn a_message_counts_when_it_is_answered_and_its_time_when_it_began() {
        let ms = Duration::from_millis;
        let mut turn = Turn::default();
        for (began, took) in [(0, 5), (8, 4), (12, 6), (18, 9)] {
            let message = Message { began: ms(began), took: ms(took) };
            turn.add(message, ms(10), ms(20));
        }
        assert_eq!((turn.answered, turn.late, turn.millis), (2, 1, vec![6.0, 9.0]));
    }
}
