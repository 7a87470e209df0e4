//! What a run has measured, and whether that is good.

use std::time::Duration;

use serde_json::{Value, json};

use super::Options;
use super::latency::{KINDS, Kind};
use super::load::Outcome;

/// The longest time of an operation, beside the longest gap of the spinner.
const LONGEST: Duration = Duration::from_millis(200);
/// The least part of their rate that the stats keep, in the processor time that is left for them.
const KEPT: f64 = 0.5;

/// Both phases, and what was wrong after them.
pub(super) struct Report {
    pub(super) options: Options,
    /// Only the stats, and one change a second.
    pub(super) alone: Outcome,
    pub(super) together: Outcome,
    pub(super) wrong: Vec<String>,
}

impl Report {
    /// Returns whether nothing was wrong, nothing took too long, and the stats kept their rate.
    pub(super) fn is_good(&self) -> bool {
        self.wrongs() == 0 && self.slow().is_empty() && self.kept_in_time() >= KEPT
    }

    /// Counts what programs saw and should not have seen.
    pub(super) fn wrongs(&self) -> u64 {
        self.wrong.len() as u64 + self.alone.wrong.count + self.together.wrong.count
    }

    fn limit(&self) -> Duration {
        LONGEST + self.together.gaps.longest
    }

    /// Returns the kinds with an operation that took too long.
    fn slow(&self) -> Vec<&'static str> {
        let is_slow =
            |kind| kind != Kind::Disk && self.together.times.of(kind).longest > self.limit();
        KINDS.iter().filter(|(kind, _)| is_slow(*kind)).map(|(_, name)| *name).collect()
    }

    fn kept(&self) -> f64 {
        stats_per_second(&self.together) / stats_per_second(&self.alone)
    }

    /// Returns the part of its rate that the spinner kept: a program that needs only a processor.
    fn spinner_kept(&self) -> f64 {
        self.together.gaps.rate / self.alone.gaps.rate
    }

    /// Returns the part of their rate that the stats kept in the processor time that they got: on a
    /// machine whose processors are never idle the spinner keeps less, too.
    fn kept_in_time(&self) -> f64 {
        self.kept() / self.spinner_kept().min(1.0)
    }

    pub(super) fn print(&self) {
        println!(
            "{:<12}{:>12}{:>12}{:>14}{:>8}",
            "", "count", "99.9 %, ms", "longest, ms", "at, s"
        );
        print_line("stat alone", &self.alone, Kind::Stat);
        for (kind, name) in KINDS {
            print_line(name, &self.together, kind);
        }
        let gap = millis(self.together.gaps.longest);
        let limit = millis(self.limit());
        println!(
            "the clock alone: longest gap {gap:.1} ms, so an operation may take {limit:.1} ms"
        );
        let alone = stats_per_second(&self.alone);
        let together = stats_per_second(&self.together);
        println!(
            "stats a second: {alone:.0} alone, {together:.0} beside the others, {:.2} of it; the \
             clock alone kept {:.2}, so the stats {:.2} in their time; processors idle for {:.2} \
             and {:.2} of the time",
            self.kept(),
            self.spinner_kept(),
            self.kept_in_time(),
            self.alone.gaps.idle,
            self.together.gaps.idle
        );
        let phases = [&self.alone.wrong, &self.together.wrong];
        for what in phases.iter().flat_map(|wrong| &wrong.first).chain(&self.wrong) {
            println!("wrong: {what}");
        }
        for name in self.slow() {
            println!("too slow: {name}");
        }
        if self.kept_in_time() < KEPT {
            println!("the stats keep less than {KEPT} of their rate in their time");
        }
        println!("{} wrong; {}", self.wrongs(), if self.is_good() { "good" } else { "failed" });
    }

    pub(super) fn json(&self) -> Value {
        let kind = |(kind, name): &(Kind, &str)| {
            let latency = self.together.times.of(*kind);
            json!({
                "kind": name,
                "count": latency.count,
                "p999_ms": millis(latency.quantile(0.999)),
                "longest_ms": millis(latency.longest),
            })
        };
        json!({
            "version": 1,
            "seed": self.options.seed,
            "seconds": self.options.seconds,
            "kinds": KINDS.iter().map(kind).collect::<Vec<_>>(),
            "longest_gap_ms": millis(self.together.gaps.longest),
            "stats_alone": stats_per_second(&self.alone),
            "stats_together": stats_per_second(&self.together),
            "idle_alone": self.alone.gaps.idle,
            "idle_together": self.together.gaps.idle,
            "spinner_kept": self.spinner_kept(),
            "wrong": self.wrongs(),
            "is_good": self.is_good(),
        })
    }
}

fn print_line(name: &str, outcome: &Outcome, kind: Kind) {
    let latency = outcome.times.of(kind);
    let most = millis(latency.quantile(0.999));
    let longest = millis(latency.longest);
    let at = latency.when.map_or(0.0, |when| (when - outcome.started).as_secs_f64());
    println!("{name:<12}{:>12}{most:>12.2}{longest:>14.1}{at:>8.1}", latency.count);
}

fn stats_per_second(outcome: &Outcome) -> f64 {
    outcome.times.of(Kind::Stat).count as f64 / outcome.seconds
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
