//! A crowd as a process of its own, for measurements.
//!
//! `crowd get ADDRESS:PORT/PATH [blocks] [WORD=NUMBER...]` prints one JSON object. Words:
//! `clients=RATE:COUNT` (bytes a second, 0 for no limit; once or more), `window` and `limit` in
//! seconds, `seed`, `samples`; `files=COUNT` for PATH0, PATH1 and so on instead of
//! PATH. `crowd make FILE BYTES SEED` writes a file and prints its root.

use std::fs::File;
use std::io::{self, Write as _};
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::Duration;

use pelago_workload::crowd::{CrowdClass, CrowdPlan, DownloadForm, RootHasher, hex, run};

/// Bytes of a file that are made at once, from a seed of their own.
const PART_BYTES: u64 = 1 << 20;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["make", path, bytes, seed] => make(path, bytes, seed),
        ["get", url, rest @ ..] => match plan(url, rest) {
            Some(plan) => run(&plan).map(|outcome| outcome.to_json().to_string()),
            None => return usage(),
        },
        _ => return usage(),
    };
    match done {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: crowd get ADDRESS:PORT/PATH [blocks] clients=RATE:COUNT [WORD=NUMBER...]");
    eprintln!("       crowd make FILE BYTES SEED");
    ExitCode::from(2)
}

fn plan(url: &str, words: &[&str]) -> Option<CrowdPlan> {
    let (server, path) = url.split_once('/')?;
    let mut plan = CrowdPlan {
        server: server.parse().ok()?,
        paths: vec![format!("/{path}")],
        form: DownloadForm::Plain,
        classes: Vec::new(),
        window: Duration::ZERO,
        limit: Duration::from_secs(3600),
        seed: 1,
        samples: 1,
    };
    for word in words {
        match word.split_once('=') {
            None if *word == "blocks" => plan.form = DownloadForm::Blocks,
            Some(("clients", class)) => {
                let (rate, clients) = class.split_once(':')?;
                let rate: f64 = rate.parse().ok()?;
                let rate = (rate > 0.0).then_some(rate);
                plan.classes.push(CrowdClass { rate, clients: clients.parse().ok()? });
            }
            Some(("window", number)) => plan.window = seconds(number)?,
            Some(("limit", number)) => plan.limit = seconds(number)?,
            Some(("files", number)) => {
                let count: NonZeroU32 = number.parse().ok()?;
                plan.paths = (0..count.get()).map(|file| format!("/{path}{file}")).collect();
            }
            Some(("seed", number)) => plan.seed = number.parse().ok()?,
            Some(("samples", number)) => plan.samples = number.parse().ok()?,
            _ => return None,
        }
    }
    Some(plan)
}

fn seconds(number: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(number.parse().ok()?).ok()
}

fn make(path: &str, bytes: &str, seed: &str) -> io::Result<String> {
    let wrong = |_| io::Error::other("BYTES and SEED must be numbers");
    let mut left: u64 = bytes.parse().map_err(wrong)?;
    let mut seed: u64 = seed.parse().map_err(wrong)?;
    let mut file = File::create(path)?;
    let mut hasher = RootHasher::default();
    while left > 0 {
        let part = left.min(PART_BYTES);
        let bytes = pelago_random::bytes_of(seed, part as usize);
        file.write_all(&bytes)?;
        hasher.update(&bytes);
        left -= part;
        seed = seed.wrapping_add(1);
    }
    file.sync_all()?;
    let root = hasher.finish().ok_or_else(|| io::Error::other("the file is too large"))?;
    Ok(hex(&root))
}
