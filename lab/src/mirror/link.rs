//! `mirror link`: how well groups in datagrams use a long line, beside the kernel's TCP.
//!
//! The transport of `pelago_net::mirror` runs with real sockets in two processes, without volumes
//! and disks. The rivals carry the same bytes over TLS and the kernel's TCP, with cubic and with
//! bbr, over the same forwarder with the same seeds of losses, in turn.

mod beside;
mod bulk;
mod lines;
mod message;
mod receiver;
mod sender;

use std::path::{Path, PathBuf};

use pelago_net::key::PrivateKey;
use pelago_testbed::{VerbResult, arguments, verdict};
use serde_json::{Value, json};

use crate::kit::slow_link::SlowLink;

/// The port of the mirror, and that of messages without a code.
const PORT: u16 = 7450;
const PLAIN_PORT: u16 = 7451;
/// The seeds of the keys of both ends, which prove nothing to anybody.
const MIRROR_SEED: u8 = 1;
const PRIMARY_SEED: u8 = 2;
const MESSAGE_BYTES: usize = 4_000;
/// The line of the measurements: bytes a second, and microseconds each way.
const RATE: u64 = 12_500_000;
const DELAY: u32 = 50_000;
const LOSSES: [u32; 3] = [1_000, 5_000, 10_000];

/// What is measured, and how often.
#[derive(Debug)]
struct Plan {
    rounds: u32,
    /// Seconds that count of each measurement.
    seconds: u32,
    /// Lost packets of a million.
    losses: Vec<u32>,
    parts: Vec<String>,
    is_json: bool,
}

/// A place to measure: the program of the line, and the folder of logs.
struct Bench<'a> {
    slowlink: &'a Path,
    logs: &'a Path,
}

/// A measurement: returns its object, and whether its limits are kept.
type Part = fn(&Bench<'_>, &Plan) -> Result<(Value, bool), String>;

const PARTS: [(&str, Part); 3] =
    [("bulk", bulk::of_bulk), ("beside", beside::measure), ("messages", bulk::of_messages)];

/// Measures, and prints each figure beside its limit.
pub(super) fn run(logs: &Path, words: &[String]) -> VerbResult {
    let plan = Plan::of(words)?;
    let slowlink: PathBuf = SlowLink::build()?;
    let bench = Bench { slowlink: &slowlink, logs };
    let mut is_good = true;
    let mut object = json!({ "version": 1, "lab": "mirror link" });
    for (name, measure) in PARTS {
        if plan.parts.iter().any(|part| part == name) {
            let (measured, is_met) = measure(&bench, &plan)?;
            object[name] = measured;
            is_good &= is_met;
        }
    }
    if plan.is_json {
        println!("{object}");
    }
    verdict(is_good)
}

/// Runs an end of the line: `receive` or `send`. The laboratory starts both.
pub(super) fn end(words: &[String]) -> VerbResult {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["receive", address, folder] => receiver::run(address, Path::new(folder)),
        ["send", how, address, volume, work, seconds] => {
            let volume = arguments::number(volume, "of a volume")?;
            sender::run(how, address, volume, work, arguments::number(seconds, "seconds")?)
        }
        _ => Err("an end of the line needs its words".to_owned()),
    }
}

impl Plan {
    fn of(words: &[String]) -> Result<Self, String> {
        let all = PARTS.map(|(name, _)| name.to_owned()).to_vec();
        let losses = LOSSES.to_vec();
        let mut plan = Self { rounds: 3, seconds: 10, losses, parts: all, is_json: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words.next().map(String::as_str).ok_or_else(|| format!("`{word}` needs a value"))
            };
            match word.as_str() {
                "--quick" => {
                    plan.rounds = 1;
                    plan.seconds = 5;
                }
                "--json" => plan.is_json = true,
                "--rounds" => plan.rounds = arguments::number(value()?, "rounds")?,
                "--seconds" => plan.seconds = arguments::number(value()?, "seconds")?,
                "--losses" => {
                    let numbers = value()?.split(',').map(|one| arguments::number(one, "ppm"));
                    plan.losses = numbers.collect::<Result<_, _>>()?;
                }
                "--only" => plan.parts = value()?.split(',').map(str::to_owned).collect(),
                _ => return Err(format!("`mirror link` does not know `{word}`")),
            }
        }
        Ok(plan)
    }
}

/// Returns the words of a line with this loss each way.
fn line_words(loss: u32) -> Vec<String> {
    vec![format!("delay={DELAY}"), format!("rate={RATE}"), format!("loss={loss}")]
}

/// Returns a loss as people write it.
fn percent(loss: u32) -> String {
    format!("{} %", f64::from(loss) / 1e4)
}

fn key_of(seed: u8) -> PrivateKey {
    PrivateKey::from_seed([seed; 32])
}
