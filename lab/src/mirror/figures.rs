//! `mirror figures`: Figures 8 to 11 of SMFS's paper, with `pelago bench smfs` on volumes whose
//! line to the mirror is the limit. Figures 6 and 7 are those of disasters (`cargo xtask
//! disaster`).
//!
//! All volumes, the relay and both ends of the line are on this machine, and lie in memory. Three
//! sets of volumes are up at the same time and take turns at each point: one whose groups go over
//! the kernel's TCP with cubic, as the paper's do without a code, one with a code, and one with a
//! relay.

mod report;

use std::path::{Path, PathBuf};

use pelago_testbed::{VerbResult, arguments, verdict};
use serde_json::Value;

use super::sites::{Place, Sites};
use report::Measured;

/// The line: bytes a second, and microseconds each way.
const RATE: u32 = 2_500_000;
const DELAY: u32 = 50_000;
/// Lost packets of a million, and the lengths of their runs.
const LOSSES: [[u32; 2]; 7] =
    [[0, 1], [1_000, 1], [5_000, 1], [10_000, 1], [1_000, 4], [5_000, 4], [10_000, 4]];
/// Microseconds each way of Figure 10.
const DELAYS: [u32; 3] = [25_000, 50_000, 100_000];
/// Seconds that may pile up for the line.
const LAG: &str = "2";

/// A set of volumes: its name, the options of `pelago up`, and the levels that are measured with
/// their names in the paper.
struct Kind {
    name: &'static str,
    repair: Option<&'static str>,
    has_relay: bool,
    levels: &'static [(&'static str, &'static str)],
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "tcp",
        repair: None,
        has_relay: false,
        levels: &[("local", "local"), ("remote", "remote")],
    },
    Kind {
        name: "code",
        repair: Some("auto"),
        has_relay: false,
        levels: &[("local", "local+fec"), ("remote", "remote+fec")],
    },
    Kind {
        name: "relay",
        repair: Some("auto"),
        has_relay: true,
        levels: &[("network", "network")],
    },
];

/// What is measured.
#[derive(Debug)]
struct Plan {
    figures: Vec<u32>,
    /// Names of the sets that are measured.
    sets: Vec<String>,
    volumes: u32,
    testers: u32,
    seconds: u32,
    rounds: u32,
    losses: Vec<[u32; 2]>,
    delays: Vec<u32>,
    svg: Option<PathBuf>,
    is_json: bool,
}

/// A state of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Point {
    loss: u32,
    run: u32,
    delay: u32,
    testers: u32,
}

/// A set of volumes that is up.
struct Set {
    kind: &'static Kind,
    sites: Sites,
    volumes: Vec<String>,
}

/// Measures, and prints the figures.
pub(super) fn run(logs: &Path, words: &[String]) -> VerbResult {
    let plan = Plan::of(words)?;
    let kinds = KINDS.iter().filter(|kind| plan.sets.iter().any(|set| set == kind.name));
    let sets = kinds.map(|kind| Set::start(logs, kind, plan.volumes));
    let mut sets = sets.collect::<Result<Vec<Set>, String>>()?;
    let mut measured = Measured::default();
    for point in plan.points() {
        for set in &mut sets {
            for (name, figures) in set.measure(point, &plan)? {
                measured.add(point, name, figures);
            }
        }
        println!("{}", measured.lines_of(point));
    }
    print!("{}", measured.render_text(&plan));
    if let Some(path) = &plan.svg {
        crate::kit::report::write_page(path, &measured.render_svg(&plan))?;
    }
    if plan.is_json {
        println!("{}", measured.to_json());
    }
    verdict(true)
}

impl Plan {
    fn of(words: &[String]) -> Result<Self, String> {
        let mut plan = Self {
            figures: Vec::new(),
            sets: KINDS.iter().map(|kind| kind.name.to_owned()).collect(),
            volumes: 8,
            testers: 64,
            seconds: 10,
            rounds: 1,
            losses: LOSSES.to_vec(),
            delays: DELAYS.to_vec(),
            svg: None,
            is_json: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
            match word.as_str() {
                "--quick" => {
                    plan.volumes = 2;
                    plan.testers = 16;
                    plan.seconds = 4;
                    plan.losses = vec![LOSSES[0], LOSSES[3]];
                    plan.delays = vec![DELAYS[0], DELAYS[2]];
                }
                "--json" => plan.is_json = true,
                "--svg" => plan.svg = Some(PathBuf::from(value()?)),
                "--sets" => plan.sets = value()?.split(',').map(str::to_owned).collect(),
                "--volumes" => plan.volumes = arguments::number(value()?, "volumes")?,
                "--testers" => plan.testers = arguments::number(value()?, "testers")?,
                "--seconds" => plan.seconds = arguments::number(value()?, "seconds")?,
                "--rounds" => plan.rounds = arguments::number(value()?, "rounds")?,
                "8" | "9" | "10" | "11" => plan.figures.push(arguments::number(word, "figure")?),
                "6" | "7" => {
                    return Err("`cargo xtask disaster` measures Figures 6 and 7".to_owned());
                }
                _ => return Err(format!("`mirror figures` does not know `{word}`")),
            }
        }
        if plan.figures.is_empty() {
            plan.figures = vec![8, 9, 10, 11];
        }
        Ok(plan)
    }

    fn has(&self, figure: u32) -> bool {
        self.figures.contains(&figure)
    }

    /// Returns the states of the line that the figures need, each once.
    fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        let mut add = |point: Point| {
            if !points.contains(&point) {
                points.push(point);
            }
        };
        let testers = self.testers;
        let at = |[loss, run]: [u32; 2]| Point { loss, run, delay: DELAY, testers };
        if self.has(8) || self.has(9) {
            self.losses.iter().for_each(|loss| add(at(*loss)));
        }
        if self.has(10) {
            self.delays.iter().for_each(|delay| add(Point { delay: *delay, ..at([0, 1]) }));
        }
        if self.has(11) {
            let single = self.losses.iter().filter(|[_, run]| *run == 1);
            single.for_each(|loss| add(Point { testers: 1, ..at(*loss) }));
        }
        points
    }
}

impl Point {
    fn words(self) -> String {
        let Self { loss, run, delay, .. } = self;
        format!("delay={delay} rate={RATE} loss={loss} burst={run}")
    }

    /// Returns what is special about it.
    fn name(self) -> String {
        let Self { loss, run, delay, testers } = self;
        let runs = if run > 1 { format!(" in runs of {run}") } else { String::new() };
        let loss = f64::from(loss) / 1e4;
        format!("loss {loss} %{runs}, {} ms, {testers} testers", delay / 1_000)
    }
}

impl Set {
    fn start(logs: &Path, kind: &'static Kind, volumes: u32) -> Result<Self, String> {
        let [rate, delay] = [format!("rate={RATE}"), format!("delay={DELAY}")];
        let logs = logs.join(kind.name);
        std::fs::create_dir_all(&logs).map_err(|why| crate::kit::report::failed(&logs, &why))?;
        let mut sites = Sites::start(&logs, Place::Memory, &[&rate, &delay])?;
        sites.set_control("cubic")?;
        if kind.has_relay {
            sites.start_relay()?;
        }
        let volumes: Vec<String> = (0..volumes).map(|number| format!("volume{number}")).collect();
        let repair = kind.repair.map_or(vec![], |repair| vec!["--repair", repair]);
        for volume in &volumes {
            sites.up_with(volume, &[&["--lag", LAG][..], &repair].concat())?;
            sites.mirror(volume)?;
        }
        Ok(Self { kind, sites, volumes })
    }

    /// Returns the figures of each level by its name in the paper.
    fn measure(&mut self, point: Point, plan: &Plan) -> Result<Vec<(&'static str, Value)>, String> {
        self.sites.tell(&point.words())?;
        let levels: Vec<&str> = self.kind.levels.iter().map(|(level, _)| *level).collect();
        let numbers = [point.testers, plan.seconds, plan.rounds].map(|number| number.to_string());
        let words = ["smfs", "--level", &levels.join(","), "--warm-up", "3", "--testers"];
        let more = [&numbers[0], "--seconds", &numbers[1], "--rounds", &numbers[2]];
        let report = self.sites.bench(&[&words[..], &more[..]].concat(), &self.volumes)?;
        let levels = self.kind.levels.iter().enumerate();
        let figures =
            levels.map(|(at, (_, name))| (*name, report["levels"][at]["figures"].clone()));
        Ok(figures.collect())
    }
}
