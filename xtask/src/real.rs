//! `real`: programs that people use, each on a volume of its own, which must be whole afterwards.
//!
//! One file per program. A program answers with nothing or with what went wrong. Root runs them on
//! both ways that bytes can take: the volume's own choice, and passthrough for every file.

mod archive;
mod bonnie;
mod cargo;
mod git;
mod overlay;
mod postgres;
mod sqlite;
mod stress;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use crate::manner::Manner;
use crate::mounted::{self, Mounted};
use crate::{Answer, tools};

/// One program.
struct Program {
    name: &'static str,
    /// What it needs from Debian.
    packages: &'static [&'static str],
    /// Only root can run it.
    needs_root: bool,
    run: fn(&Mounted) -> Result<(), String>,
}

const PROGRAMS: &[Program] = &[
    Program { name: "git", packages: &["git"], needs_root: false, run: git::run },
    Program { name: "sqlite", packages: &["sqlite3"], needs_root: false, run: sqlite::run },
    Program {
        name: "postgres",
        packages: &["postgresql-15"],
        needs_root: false,
        run: postgres::run,
    },
    Program { name: "cargo", packages: &[], needs_root: false, run: cargo::run },
    Program {
        name: "tar",
        packages: &["tar", "attr", "acl", "rsync"],
        needs_root: false,
        run: archive::tar,
    },
    Program {
        name: "rsync",
        packages: &["rsync", "attr", "acl"],
        needs_root: false,
        run: archive::rsync,
    },
    Program { name: "overlay", packages: &["attr"], needs_root: true, run: overlay::run },
    Program { name: "stress", packages: &["stress-ng"], needs_root: false, run: stress::run },
    Program { name: "bonnie", packages: &["bonnie++"], needs_root: false, run: bonnie::run },
];

/// All programs, or those that are named.
pub(crate) fn run(arguments: &[String]) -> Answer {
    let (manner, names) = Manner::take(arguments)?;
    let known = |name: &String| PROGRAMS.iter().any(|program| program.name == name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let names: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
        return Err(format!("does not know `{unknown}`, but {}", names.join(", ")));
    }
    if let Some(code) = manner.enter("real", arguments)? {
        return Ok(code);
    }
    let chosen = |program: &&Program| names.is_empty() || names.iter().any(|n| n == program.name);
    let logs = mounted::log_folder("real")?;
    let pelago = mounted::build()?;
    let ways = match manner.way {
        Some(way) => vec![way],
        None if manner.may_pass() => vec!["auto", "always"],
        None => vec!["auto"],
    };
    let (mut passed, mut skipped, mut failed) = (0, 0, Vec::new());
    for way in ways {
        for program in PROGRAMS.iter().filter(chosen) {
            let what = format!("{} ({way})", program.name);
            if program.needs_root && !manner.may_pass() {
                println!("{what} skipped: needs root");
                skipped += 1;
                continue;
            }
            match attempt(program, (&pelago, &logs), &manner.on(way)) {
                Ok(seconds) => {
                    passed += 1;
                    println!("{what} ok, {seconds:.0} s");
                }
                Err(why) => {
                    println!("{what} failed: {why}");
                    failed.push(what);
                }
            }
        }
    }
    for what in &failed {
        println!("failed: {what}");
    }
    println!("{passed} passed, {} failed, {skipped} skipped", failed.len());
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Seconds from the mount of a new volume to the end of its check.
fn attempt(
    program: &Program,
    (pelago, logs): (&Path, &Path),
    manner: &Manner,
) -> Result<f64, String> {
    tools::install_packages(program.packages, logs)?;
    let start = Instant::now();
    let volume = Mounted::start(pelago, logs, program.name, manner)?;
    (program.run)(&volume)?;
    volume.finish()?;
    Ok(start.elapsed().as_secs_f64())
}
