//! Runs of bonnie++ 2.00, and what it says: its table as comma-separated values, and on standard
//! error the phase that begins or ends.

use std::io::{self, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::geteuid;

use crate::process::{cpu_of, cpu_of_all};
use crate::programs::{self, Programs};
use crate::timing::Sample;
use crate::{BenchError, Contender, MemoryLimit};

const PROGRAM: &str = "bonnie++";
/// The phases that are measured: the announcement of each, and its field among the values, counted
/// from 0. Field 7 is the size of a call, not a rate.
const PHASES: [(&str, usize); 3] =
    [("Writing intelligently...", 11), ("Rewriting...", 13), ("Reading intelligently...", 17)];
/// The word of bonnie++ at the end of a phase.
const DONE: &str = "done";
/// The text that it prints in place of a rate if the phase took less than half a second.
const TOO_SHORT: &str = "+++++";
/// Most bytes of its messages that are kept.
const SAID_BYTES: usize = 64 << 10;

/// Runs bonnie++ in the contender's directory, and returns the samples of block write, rewrite and
/// block read. One of their operations is a MiB. The file has `mib` MiB, and bonnie++ is told that
/// the memory has half of it.
///
/// # Errors
/// [`BenchError::Program`] if it fails; [`BenchError::Wrong`] if it does not say what it did.
pub(super) fn run(
    programs: &Programs,
    contender: &Contender,
    limit: Option<&MemoryLimit>,
    mib: u64,
) -> Result<[Sample; 3], BenchError> {
    let mut command = programs.command(PROGRAM, limit);
    command.arg("-d").arg(&contender.path).args(["-f", "-n", "0", "-m", "pelago"]);
    command.args(["-s", &mib.to_string(), "-r", &(mib / 2).to_string()]);
    if geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    command.current_dir(&contender.path).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |source: io::Error| programs::not_started(PROGRAM, &contender.path, &source);
    let mut child = command.spawn().map_err(failed)?;
    let meter = Meter { pid: child.id(), daemons: &contender.daemons };
    let mut phases = Phases::new();
    if let Some(messages) = child.stderr.take() {
        phases.follow(messages, &meter).map_err(failed)?;
    }
    let mut output = child.wait_with_output().map_err(failed)?;
    output.stderr = std::mem::take(&mut phases.said).into_bytes();
    let output = programs::check(PROGRAM, &contender.path, output)?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let wrong =
        |said: String| BenchError::Wrong { job: PROGRAM, path: contender.path.clone(), said };
    let rates = rates(&printed).ok_or_else(|| wrong(printed.trim().to_owned()))?;
    let mut samples = phases.samples().ok_or_else(|| {
        wrong(format!("no end of a phase: {}", String::from_utf8_lossy(&output.stderr).trim()))
    })?;
    for (sample, kib_rate) in samples.iter_mut().zip(rates) {
        sample.count = mib;
        // Otherwise the phase was timed by its messages.
        let said = kib_rate.map(|rate| Duration::try_from_secs_f64((mib << 10) as f64 / rate));
        if let Some(Ok(elapsed)) = said {
            sample.elapsed = elapsed;
        }
    }
    Ok(samples)
}

/// Returns the rates of the phases in KiB/s, from the line of values among what bonnie++ has
/// printed; a phase that was too short for it has none. `None` if there is no such line, or it has
/// other fields than those of bonnie++ 2.00.
fn rates(printed: &str) -> Option<[Option<f64>; 3]> {
    let line = printed.lines().find(|line| line.split(',').nth(1).is_some_and(is_version))?;
    let fields: Vec<&str> = line.split(',').collect();
    let mut rates = [None; 3];
    for (rate, phase) in rates.iter_mut().zip(PHASES) {
        *rate = match *fields.get(phase.1)? {
            TOO_SHORT => None,
            text => Some(text.parse().ok().filter(|rate: &f64| *rate > 0.0)?),
        };
    }
    Some(rates)
}

fn is_version(field: &str) -> bool {
    field.starts_with("2.")
}

/// Reads the clocks of bonnie++ and of the processes that serve its file.
struct Meter<'a> {
    pid: u32,
    daemons: &'a [u32],
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Instant,
    own_cpu: Duration,
    daemon_cpu: Duration,
}

impl Meter<'_> {
    fn read(&self) -> Reading {
        Reading {
            at: Instant::now(),
            own_cpu: cpu_of(self.pid).unwrap_or_default(),
            daemon_cpu: cpu_of_all(self.daemons),
        }
    }
}

/// Finds the beginnings and ends of phases in messages.
struct Phases<R = Reading> {
    said: String,
    /// Bytes of `said` in which all that is announced has been found.
    read: usize,
    begins: Vec<R>,
    ends: Vec<R>,
}

impl<R> Phases<R> {
    const fn new() -> Self {
        Self { said: String::new(), read: 0, begins: Vec::new(), ends: Vec::new() }
    }

    /// Adds what bonnie++ says next, and notes a reading for each phase that begins or ends.
    fn add(&mut self, text: &str, mut reading: impl FnMut() -> R) {
        if self.said.len() < SAID_BYTES {
            self.said.push_str(text);
        }
        loop {
            let is_open = self.begins.len() > self.ends.len();
            let Some(phase) = PHASES.get(self.ends.len()) else { return };
            let sought = if is_open { DONE } else { phase.0 };
            let rest = self.said.get(self.read..).unwrap_or_default();
            let Some(at) = rest.find(sought) else { return };
            self.read += at + sought.len();
            if is_open { &mut self.ends } else { &mut self.begins }.push(reading());
        }
    }
}

impl Phases {
    /// Reads messages to their end.
    fn follow(&mut self, mut messages: impl Read, meter: &Meter<'_>) -> io::Result<()> {
        let mut buffer = [0; 512];
        loop {
            match messages.read(&mut buffer)? {
                0 => return Ok(()),
                length => {
                    let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                    self.add(&text, || meter.read());
                }
            }
        }
    }

    /// Returns what was measured between the beginning and the end of each phase; `None` if one did
    /// not end.
    fn samples(&self) -> Option<[Sample; 3]> {
        let sample = |phase: usize| {
            let [begin, end] = [self.begins.get(phase)?, self.ends.get(phase)?];
            Some(Sample {
                elapsed: end.at - begin.at,
                own_cpu: end.own_cpu.saturating_sub(begin.own_cpu),
                daemon_cpu: end.daemon_cpu.saturating_sub(begin.daemon_cpu),
                ..Sample::default()
            })
        };
        Some([sample(0)?, sample(1)?, sample(2)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
Version 2.00a       ------Sequential Output------ --Sequential Input- --Random-
Name:Size etc        /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP
x              512M            922m  62  501m  85           1.1g +++ +++++ +++

1.98,2.00a,x,1,1795856799,512M,,8192,5,,,944394,62,513044,85,,,1182034,90,+++++,+++,,,,,,,,,,,,,,,,\
,,,138us,77us,,64us,4036us,,,,,,
";

    #[test]
    fn rates_are_the_fields_12_14_and_18() {
        let found = rates(PRINTED).unwrap();
        assert_eq!(found, [Some(944_394.0), Some(513_044.0), Some(1_182_034.0)]);
    }

    #[test]
    fn a_phase_that_was_too_short_has_no_rate() {
        let found = rates(&PRINTED.replace("944394", "+++++").replace("1182034", "+++++"));
        assert_eq!(found, Some([None, Some(513_044.0), None]));
    }

    #[test]
    fn other_output_has_no_rates() {
        let cut = "1.98,2.00a,x,1,1795856799,512M,,8192,5,,,944394,62,513044";
        for wrong in [
            "",
            "1.98",
            cut,
            &PRINTED.replace("2.00a", "1.98"),
            &PRINTED.replace("513044", "fast"),
            &PRINTED.replace("513044", "-1"),
            &PRINTED.replace("513044", "0"),
            &PRINTED.replace("513044", "NaN"),
        ] {
            assert_eq!(rates(wrong), None, "{wrong}");
        }
    }

    /// Messages come in any pieces; an end counts only for the phase that was announced.
    #[test]
    fn phases_begin_and_end_where_it_says_so() {
        let whole = "Using uid:0, gid:0.\nWriting intelligently...done\nRewriting...done\n\
                     Reading intelligently...done\nstart 'em...done...done...\n";
        for size in [1, 5, 30, whole.len()] {
            let mut phases = Phases::<usize>::new();
            let mut seen = 0;
            for piece in whole.as_bytes().chunks(size) {
                seen += piece.len();
                phases.add(str::from_utf8(piece).unwrap(), || seen);
            }
            assert_eq!((phases.begins.len(), phases.ends.len()), (3, 3), "pieces of {size}");
            assert_eq!(phases.said, whole);
            let end = whole.find("Rewriting...done").unwrap() + "Rewriting...done".len();
            if size == 1 {
                assert_eq!((phases.begins[1], phases.ends[1]), (end - "done".len(), end));
            }
        }
    }

    #[test]
    fn a_phase_that_does_not_end_has_no_sample() {
        let mut phases = Phases::new();
        let meter = Meter { pid: std::process::id(), daemons: &[] };
        let messages = "Writing intelligently...done\nRewriting...Can't write block.\n";
        phases.follow(messages.as_bytes(), &meter).unwrap();
        assert!(phases.samples().is_none());
        phases.follow(&b"done\nReading intelligently...done\n"[..], &meter).unwrap();
        assert!(phases.samples().is_some());
    }
}
