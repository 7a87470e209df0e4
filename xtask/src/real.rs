//! `real`: programs that people use, each on a volume of its own, which must be whole afterwards.
//!
//! One file per program. Root runs each program twice: with the data path that the volume chooses
//! for each file, and with passthrough for every file.

mod archive;
mod bonnie;
mod cargo;
mod git;
mod overlay;
mod postgres;
mod sqlite;
mod stress;

use crate::mounted::Mounted;
use crate::steps::{self, Step};
use crate::{VerbResult, run_as};

/// One program.
struct Program {
    name: &'static str,
    /// Debian's packages that it needs.
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

/// Runs all programs, or the named ones.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    run_as::enter("real", arguments, |run_as, names| {
        let is_program = |name: &&String| PROGRAMS.iter().any(|program| program.name == **name);
        if let Some(unknown) = names.iter().find(|name| !is_program(name)) {
            let all: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
            return Err(format!("no program `{unknown}`, only {}", all.join(", ")));
        }
        let mut steps = Vec::new();
        for path in run_as.paths(&["auto", "always"]) {
            let is_chosen = |name: &str| names.is_empty() || names.iter().any(|it| it == name);
            steps.extend(PROGRAMS.iter().filter(|it| is_chosen(it.name)).map(|program| Step {
                name: format!("{} ({path})", program.name),
                path,
                packages: program.packages,
                needs_root: program.needs_root,
                run: Box::new(program.run),
            }));
        }
        steps::run_all("real", run_as, &steps)
    })
}
