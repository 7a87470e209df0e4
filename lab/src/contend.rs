//! `contend`: two far mounts of one volume by other processes, whose programs work on the same
//! names and the same file at the same time.
//!
//! Each program compares what it sees with the replies to earlier requests of all mounts. The
//! latency of each kind of operation is printed beside the longest gap in a thread that only reads
//! the clock. Stats of a directory that changes once a second must keep their rate.

mod appends;
mod cable;
mod checks;
mod disk;
mod held;
mod kinds;
mod lane;
mod locker;
mod locks;
mod names;
mod report;
mod stats;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pelago_testbed::mounted::{self, Mounted};
use pelago_testbed::run_as::{RunAs, Way};
use pelago_testbed::{VerbResult, arguments, machine, verdict};

use self::appends::Appends;
use self::names::Names;
use self::report::Report;
use self::stats::Stats;
use crate::kit::load::{Load, Outcome};

const DEFAULT_SECONDS: f64 = 60.0;
/// The stats are measured alone for this part of the time, within these bounds in seconds.
const ALONE_PART: f64 = 0.2;
const ALONE_LEAST: f64 = 1.0;
const ALONE_MOST: f64 = 5.0;
/// Threads of each far mount that work on the names of one directory.
const NAMERS: usize = 8;
/// Threads of each far mount that append to the one file.
const APPENDERS: usize = 2;
/// Threads of each far mount that ask for attributes.
const STATERS: usize = 2;

/// The options of the command line.
#[derive(Debug, Clone, PartialEq)]
struct Options {
    seconds: f64,
    seed: u64,
    /// Pause after each step of a thread that does not ask for attributes.
    pause: Duration,
    json: bool,
    /// The number of stops of mounts that hold locks, in place of everything else.
    locks: Option<u64>,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self {
            seconds: DEFAULT_SECONDS,
            seed: 1,
            pause: Duration::ZERO,
            json: false,
            locks: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
            match word.as_str() {
                "--json" => options.json = true,
                "--locks" => {
                    options.locks = Some(arguments::number(value()?, "rounds")?);
                }
                "--seed" => options.seed = arguments::number(value()?, "as a seed")?,
                "--pause" => {
                    options.pause =
                        Duration::from_micros(arguments::number(value()?, "microseconds")?);
                }
                word if word.starts_with('-') => return Err(format!("no option `{word}`")),
                word => options.seconds = arguments::number(word, "seconds")?,
            }
        }
        if (0.1..=86_400.0).contains(&options.seconds) {
            Ok(options)
        } else {
            Err("takes 0.1 to 86400 seconds".to_owned())
        }
    }
}

/// Runs the load, checks the mounts, and prints the report.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    let options = Options::parse(arguments)?;
    if let Some(rounds) = options.locks {
        let wrong = locks::run(&mounted::build()?, rounds, options.seed)?;
        wrong.iter().for_each(|wrong| println!("WRONG: {wrong}"));
        return verdict(wrong.is_empty());
    }
    let report = contend(&mounted::build()?, &options)?;
    if options.json {
        println!("{}", report.json());
    }
    verdict(report.is_good())
}

fn contend(pelago: &Path, options: &Options) -> Result<Report, String> {
    println!("seed {}, {} s, {}", options.seed, options.seconds, machine::pressure());
    let logs = mounted::log_folder("contend")?;
    let run_as = RunAs::default().by(&[Way::Own, Way::Tls, Way::Unix]);
    let volume = Mounted::start(pelago, &logs, "contend", &run_as)?;
    let mut field = Field::prepare(volume)?;
    let alone_seconds = (options.seconds * ALONE_PART).clamp(ALONE_LEAST, ALONE_MOST);
    let alone = field.phase(options, alone_seconds, false)?;
    let together = field.phase(options, options.seconds, true)?;
    let mut report = Report { options: options.clone(), alone, together, wrong: Vec::new() };
    field.check(&mut report.wrong);
    report.print();
    field.volume.finish()?;
    println!("after the run: unmounted, and `pelago check` found nothing");
    Ok(report)
}

/// The volume, and the state that its programs share.
struct Field {
    /// Dropped first: the detachment of a mount detaches the mounts below it, too.
    volume: Mounted,
    bound: Option<checks::Bound>,
    points: Vec<PathBuf>,
    names: Arc<Names>,
    appends: Arc<Appends>,
    stats: Arc<Stats>,
}

impl Field {
    /// Makes all folders and first files through the server's own mount.
    fn prepare(volume: Mounted) -> Result<Self, String> {
        let points = volume.points();
        let own = &points[0];
        let names = Arc::new(Names::prepare(own, NAMERS * (points.len() - 1))?);
        let appends = Arc::new(Appends::prepare(own, APPENDERS * (points.len() - 1))?);
        let stats = Arc::new(Stats::prepare(own)?);
        let bound = match machine::is_root() {
            true => Some(checks::Bound::mount(own, &points[1], &volume.scratch())?),
            false => {
                println!("skipped: a mount below a far mount needs root");
                None
            }
        };
        Ok(Self { volume, bound, points, names, appends, stats })
    }

    /// Runs the stats, and with `all` everything else beside them.
    fn phase(&self, options: &Options, seconds: f64, all: bool) -> Result<Outcome, String> {
        let mut load = Load::new(options.seed, options.pause).with_clock();
        let (own, far) = self.points.split_first().ok_or("no mounts")?;
        let stats = Arc::clone(&self.stats);
        load.start("changer", own, move |worker| stats.change(worker))?;
        load.start("disk", &self.volume.scratch(), disk::sync)?;
        for (number, point) in far.iter().enumerate() {
            for _ in 0..STATERS {
                let stats = Arc::clone(&self.stats);
                load.start("stat", point, move |worker| stats.look(worker))?;
            }
            if !all {
                continue;
            }
            for writer in number * NAMERS..(number + 1) * NAMERS {
                let names = Arc::clone(&self.names);
                load.start("names", point, move |worker| names.work(writer as u64, worker))?;
            }
            for writer in number * APPENDERS..(number + 1) * APPENDERS {
                let appends = Arc::clone(&self.appends);
                load.start("append", point, move |worker| appends.append(writer, worker))?;
            }
            let appends = Arc::clone(&self.appends);
            load.start("reader", point, move |worker| appends.read(worker))?;
        }
        load.finish(Duration::from_secs_f64(seconds))
    }

    /// Compares the mounts with each other and with the replies to all programs.
    fn check(&mut self, wrong: &mut Vec<String>) {
        if let Some(bound) = self.bound.take() {
            wrong.extend(bound.check().err());
        }
        wrong.extend(checks::same_trees(&self.volume, &self.points).err());
        for point in &self.points {
            wrong.extend(self.appends.check_all(point).err());
            wrong.extend(self.names.check_all(point).err());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_unknown_words_refused() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let options = Options::parse(&words("5 --seed 7 --json --pause 100")).unwrap();
        assert_eq!((options.seconds, options.seed, options.json), (5.0, 7, true));
        assert_eq!(options.pause, Duration::from_micros(100));
        for wrong in ["--slow", "0", "x", "--seed", "--seed x"] {
            assert!(Options::parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    /// The short form: a round takes 12 seconds, because sessions outlive a stop of 10.
    #[test]
    fn no_two_programs_have_a_lock_while_their_mounts_are_stopped() {
        if !machine::is_root() {
            println!("skipped: mounts by other processes for all users need root");
            return;
        }
        let pelago = mounted::build().unwrap();
        assert_eq!(locks::run(&pelago, 8, 3).unwrap(), Vec::<String>::new());
    }

    /// The short form: it asserts no latency.
    #[test]
    fn programs_on_the_same_names_and_bytes_in_several_mounts_see_nothing_wrong() {
        if !machine::is_root() {
            println!("skipped: mounts by other processes for all users need root");
            return;
        }
        let options =
            Options { seconds: 3.0, seed: 2, pause: Duration::ZERO, json: false, locks: None };
        let report = contend(&mounted::build().unwrap(), &options).unwrap();
        assert_eq!(report.wrongs(), 0);
    }
}
