//! The report of a run: latencies, rates of the stats, and findings.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Options, kinds};
use crate::kit::latency::Kind;
use crate::kit::load::Outcome;
use crate::kit::report::millis;

/// The longest time of an operation, beside the longest gap of the clock.
const LONGEST: Duration = Duration::from_millis(200);
/// The least part of their rate that the stats keep, in the processor time that is left for them.
const KEPT: f64 = 0.5;

/// The outcomes of both phases, and the findings after them.
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

    /// Returns the number of findings of the programs and of the checks after them.
    pub(super) fn wrongs(&self) -> u64 {
        self.wrong.len() as u64 + self.alone.findings.count + self.together.findings.count
    }

    fn limit(&self) -> Duration {
        LONGEST + self.together.gaps.longest
    }

    /// Returns the kinds with an operation that took too long.
    fn slow(&self) -> Vec<Kind> {
        let longest = |kind| self.together.latencies.of(kind).longest;
        let is_slow = |kind: &Kind| *kind != kinds::DISK && longest(kind) > self.limit();
        kinds::ALL.into_iter().filter(is_slow).collect()
    }

    fn kept(&self) -> f64 {
        stats_per_second(&self.together) / stats_per_second(&self.alone)
    }

    /// Returns the part of its rate that the thread of the clock kept, which needs only a
    /// processor.
    fn spinner_kept(&self) -> f64 {
        self.together.gaps.rate / self.alone.gaps.rate
    }

    /// Returns the part of their rate that the stats kept in the processor time that they got: on a
    /// machine whose processors are never idle the thread of the clock keeps less, too.
    fn kept_in_time(&self) -> f64 {
        self.kept() / self.spinner_kept().min(1.0)
    }

    pub(super) fn print(&self) {
        println!(
            "{:<12}{:>12}{:>12}{:>14}{:>8}",
            "", "count", "99.9 %, ms", "longest, ms", "at, s"
        );
        print_line("stat alone", &self.alone, kinds::STAT);
        for kind in kinds::ALL {
            print_line(kind, &self.together, kind);
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
        let phases = [&self.alone.findings, &self.together.findings];
        for what in phases.iter().flat_map(|findings| &findings.first).chain(&self.wrong) {
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
        let kind = |kind: Kind| {
            let latency = self.together.latencies.of(kind);
            json!({
                "kind": kind,
                "count": latency.count,
                "p999_ms": millis(latency.quantile(0.999)),
                "longest_ms": millis(latency.longest),
            })
        };
        json!({
            "version": 1,
            "seed": self.options.seed,
            "seconds": self.options.seconds,
            "kinds": kinds::ALL.map(kind),
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
    let latency = outcome.latencies.of(kind);
    let most = millis(latency.quantile(0.999));
    let longest = millis(latency.longest);
    let at = latency.when.map_or(0.0, |when| (when - outcome.started).as_secs_f64());
    println!("{name:<12}{:>12}{most:>12.2}{longest:>14.1}{at:>8.1}", latency.count);
}

fn stats_per_second(outcome: &Outcome) -> f64 {
    outcome.latencies.of(kinds::STAT).count as f64 / outcome.seconds
}
