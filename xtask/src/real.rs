//! `real`: programs that people use, each on a volume of its own, which must be whole afterwards.
//!
//! One file per program. A program answers with nothing or with what went wrong.

mod archive;
mod cargo;
mod git;
mod postgres;
mod sqlite;
mod stress;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use crate::mounted::{self, Mounted};
use crate::{Answer, machine, tools};

/// One program.
struct Program {
    name: &'static str,
    /// What it needs from Debian.
    packages: &'static [&'static str],
    needs_root: bool,
    run: fn(&Mounted) -> Result<(), String>,
}

const PROGRAMS: &[Program] = &[
    Program { name: "git", packages: &["git"], needs_root: false, run: git::run },
    Program { name: "sqlite", packages: &["sqlite3"], needs_root: false, run: sqlite::run },
    Program {
        name: "postgres",
        packages: &["postgresql-15"],
        // It refuses to be root, and somebody has to become its user.
        needs_root: true,
        run: postgres::run,
    },
    Program { name: "cargo", packages: &[], needs_root: false, run: cargo::run },
    Program {
        name: "tar",
        packages: &["tar", "attr", "rsync"],
        needs_root: true,
        run: archive::tar,
    },
    Program {
        name: "rsync",
        packages: &["rsync", "attr", "acl"],
        // Devices and owners.
        needs_root: true,
        run: archive::rsync,
    },
    Program { name: "stress", packages: &["stress-ng"], needs_root: false, run: stress::run },
];

/// All programs, or the one that is named.
pub(crate) fn run(arguments: &[String]) -> Answer {
    let chosen: Vec<&Program> = match arguments {
        [] => PROGRAMS.iter().collect(),
        [name] => PROGRAMS.iter().filter(|program| program.name == name).collect(),
        _ => return Err("takes the name of one program".to_owned()),
    };
    if chosen.is_empty() {
        let names: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
        return Err(format!("knows {}", names.join(", ")));
    }
    let logs = mounted::log_folder("real")?;
    let pelago = mounted::build()?;
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for program in chosen {
        let name = program.name;
        if program.needs_root && !machine::is_root() {
            skipped += 1;
            println!("skipped: {name}: needs root");
            continue;
        }
        match attempt(program, &pelago, &logs) {
            Ok(seconds) => {
                passed += 1;
                println!("{name} ok {seconds:.0}");
            }
            Err(why) => {
                failed += 1;
                println!("{name} failed: {why}");
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Seconds from the mount of a new volume to the end of its check.
fn attempt(program: &Program, pelago: &Path, logs: &Path) -> Result<f64, String> {
    tools::install_packages(program.packages, logs)?;
    let start = Instant::now();
    let volume = Mounted::start(pelago, logs, program.name)?;
    (program.run)(&volume)?;
    volume.finish()?;
    Ok(start.elapsed().as_secs_f64())
}
