//! The costs of a search index: time until it is complete, memory, disk, and slower creates.

use std::fmt::Write as _;

use pelago_bench::find::{
    Corpus, CreateCost, FilledCorpus, FindOptions, Indexed, create_cost, wait_until_indexed,
};
use serde_json::{Value, json};

use super::super::bench_failed;
use super::super::volume::{Resident, TestVolume};
use super::{INDEX_LIMIT, disk_bytes};
use crate::failure::Outcome;
use crate::output;

/// The goals: the ratio of the rates of creates with and without an index, and the additional CPU
/// time of a create in the caller and the threads for which it waits.
const WANTED_RATE: f64 = 0.9;
const WANTED_US: f64 = 2.0;

/// The costs of the index.
pub(super) struct Costs {
    pub(super) built: Built,
    /// The rounds of creates without and with an index.
    pub(super) rounds: Vec<Round>,
    /// The number of files of each.
    pub(super) creates: u64,
}

/// A round of creates without and with an index, and the time until the index had the latter.
pub(super) struct Round {
    without: CreateCost,
    with: CreateCost,
    caught_up: Indexed,
}

/// An index that was built for a whole corpus.
pub(super) struct Built {
    filled: FilledCorpus,
    took: Indexed,
    before: Resident,
    peak: Resident,
    after: Resident,
    disk_bytes: u64,
}

/// Creates the corpus, and waits until its index is built.
pub(super) fn build(volume: &TestVolume, options: &FindOptions) -> Outcome<Built> {
    let filled = Corpus::new(options.files, options.seed).fill(&volume.files());
    let filled = filled.map_err(bench_failed)?;
    let before = volume.resident_now()?;
    let mut peak = before;
    // Its first query starts the build of the index.
    let took = wait_until_indexed(&volume.files(), INDEX_LIMIT, || {
        peak = peak.max(volume.resident_now().unwrap_or_default());
    });
    let took = took.map_err(bench_failed)?;
    let disk_bytes = disk_bytes(&volume.folder().join("index"))?;
    Ok(Built { filled, took, before, peak, after: volume.resident_now()?, disk_bytes })
}

/// Creates files in volumes without and with an index, which take turns as the first.
pub(super) fn creates(
    [plain, indexed]: [&TestVolume; 2],
    rounds: u32,
    count: u64,
) -> Outcome<Vec<Round>> {
    let create = |volume: &TestVolume, round| {
        let folder = format!("creates-{round}");
        create_cost(&volume.files(), &folder, count).map_err(bench_failed)
    };
    let round = |round: u32| {
        let before = round.is_multiple_of(2).then(|| create(plain, round)).transpose()?;
        let with = create(indexed, round)?;
        let caught_up = wait_until_indexed(&indexed.files(), INDEX_LIMIT, || ());
        let caught_up = caught_up.map_err(bench_failed)?;
        let without = before.map_or_else(|| create(plain, round), Ok)?;
        Ok(Round { without, with, caught_up })
    };
    (0..rounds).map(round).collect()
}

impl Costs {
    /// Returns lines for people.
    pub(super) fn render_text(&self) -> String {
        let Self { built, creates, .. } = self;
        let mut text = built.render_text();
        let mut line = |words: std::fmt::Arguments<'_>| {
            writeln!(text, "  {words}").expect("writing to a string cannot fail");
        };
        let [rate, without, with] = [
            self.quartiles(|round| round.with.rate / round.without.rate),
            self.quartiles(|round| round.without.rate),
            self.quartiles(|round| round.with.rate),
        ];
        line(format_args!(
            "{creates} creates: {:.0}/s without an index, {:.0}/s with one, ratio {:.2} ({:.2} to \
             {:.2}), goal {WANTED_RATE}: {}",
            without[1],
            with[1],
            rate[1],
            rate[0],
            rate[2],
            said(rate[1] >= WANTED_RATE)
        ));
        let [before, more, behind] = [
            self.quartiles(|round| round.without.caller_us),
            self.quartiles(|round| round.with.caller_us - round.without.caller_us),
            self.quartiles(|round| round.with.behind_us - round.without.behind_us),
        ];
        line(format_args!(
            "CPU of a create, where the caller waits: {:.1} µs, and {:.1} ({:.1} to {:.1}) more \
             with an index, goal {WANTED_US}: {}; in the background {:.1} ({:.1} to {:.1}) µs more",
            before[1],
            more[1],
            more[0],
            more[2],
            said(more[1] <= WANTED_US),
            behind[1],
            behind[0],
            behind[2]
        ));
        let [names, texts] = [
            self.quartiles(|round| round.caught_up.names.as_secs_f64()),
            self.quartiles(|round| round.caught_up.texts.as_secs_f64()),
        ];
        line(format_args!(
            "after the last create the index had all names after {:.2} ({:.2} to {:.2}) s, and \
             texts after {:.2} ({:.2} to {:.2}) s",
            names[1], names[0], names[2], texts[1], texts[0], texts[2]
        ));
        text
    }

    /// Returns a part of the object of `--json`.
    pub(super) fn to_json(&self) -> Value {
        let round = |round: &Round| {
            json!({
                "without": cost(round.without),
                "with": cost(round.with),
                "caught_up": indexed(round.caught_up),
            })
        };
        json!({
            "built": self.built.to_json(),
            "creates": self.creates,
            "rounds": self.rounds.iter().map(round).collect::<Vec<_>>(),
        })
    }

    fn quartiles(&self, figure: impl Fn(&Round) -> f64) -> [f64; 3] {
        pelago_bench::quartiles(self.rounds.iter().map(figure))
    }
}

impl Built {
    fn render_text(&self) -> String {
        let Self { filled, took, before, peak, after, disk_bytes } = self;
        let [names, texts] = [took.names, took.texts].map(|time| time.as_secs_f64());
        let rate = filled.files as f64 / filled.seconds.max(f64::MIN_POSITIVE);
        let mb_per_s = self.text_rate();
        let [before, peak, after] = [before, peak, after].map(|it| {
            format!("{} and {} of files", output::bytes(it.own), output::bytes(it.of_files))
        });
        format!(
            "costs\n  {} files made at {rate:.0}/s; index of names after {names:.1} s, of texts \
             {:.1} s later ({mb_per_s:.2} MB/s of texts); {} on the disk\n  resident before: \
             {before}; at most: {peak}; after: {after}\n",
            filled.files,
            texts - names,
            output::bytes(*disk_bytes)
        )
    }

    /// Returns the MB of texts that were indexed in a second.
    fn text_rate(&self) -> f64 {
        let seconds = self.took.texts.saturating_sub(self.took.names).as_secs_f64();
        self.filled.text_bytes as f64 / 1e6 / seconds.max(f64::MIN_POSITIVE)
    }

    fn to_json(&self) -> Value {
        let resident = |it: Resident| json!({ "own": it.own, "of_files": it.of_files });
        json!({
            "files": self.filled.files,
            "fill_seconds": self.filled.seconds,
            "text_bytes": self.filled.text_bytes,
            "indexed": indexed(self.took),
            "text_mb_per_s": self.text_rate(),
            "resident_before": resident(self.before),
            "resident_peak": resident(self.peak),
            "resident_after": resident(self.after),
            "disk_bytes": self.disk_bytes,
        })
    }
}

fn cost(cost: CreateCost) -> Value {
    let CreateCost { rate, caller_us, behind_us } = cost;
    json!({ "rate": rate, "cpu_us_caller": caller_us, "cpu_us_behind": behind_us })
}

fn indexed(took: Indexed) -> Value {
    json!({ "names_s": took.names.as_secs_f64(), "texts_s": took.texts.as_secs_f64() })
}

const fn said(is_met: bool) -> &'static str {
    if is_met { "met" } else { "MISSED" }
}
