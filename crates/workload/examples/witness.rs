//! The witness as a process of its own, for crash tests.
//!
//! `witness run DIR LOG SEED [OPS]` works until DIR's file system dies or the process is killed.
//! `witness verify LOG DIR` prints what is missing, and exits with 1 if something is missing.

use std::path::Path;
use std::process::ExitCode;

use pelago_workload::witness::{WitnessError, run, verify};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["run", dir, log, seed] => start(dir, log, seed, None),
        ["run", dir, log, seed, ops] => start(dir, log, seed, Some(ops)),
        ["verify", log, dir] => check(log, dir),
        _ => {
            eprintln!("usage: witness run DIR LOG SEED [OPS] | witness verify LOG DIR");
            return ExitCode::from(2);
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("{error}{}", source_of(&error));
        ExitCode::FAILURE
    })
}

fn start(dir: &str, log: &str, seed: &str, ops: Option<&str>) -> Result<ExitCode, WitnessError> {
    let (Ok(seed), Ok(ops)) = (seed.parse(), ops.map(str::parse).transpose()) else {
        eprintln!("SEED and OPS must be numbers");
        return Ok(ExitCode::from(2));
    };
    let ran = run(Path::new(dir), Path::new(log), seed, ops)?;
    match ran.died {
        Some(errno) => println!("answered {}, then error {errno}", ran.answered),
        None => println!("answered {}", ran.answered),
    }
    Ok(ExitCode::SUCCESS)
}

fn check(log: &str, dir: &str) -> Result<ExitCode, WitnessError> {
    let report = verify(Path::new(log), Path::new(dir))?;
    print!("{report}");
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn source_of(error: &WitnessError) -> String {
    std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default()
}
