//! `cargo xtask VERB`: what a developer and CI run, so that Rust alone is enough to work on Pelago.
//!
//! One file per verb. A verb answers with an exit code, or with one sentence that says why it could
//! not do its work. Nothing here is shipped.

mod account;
mod bench;
mod bystander;
mod check;
mod crash;
mod fsx;
mod fuzz;
mod golden;
mod loss;
mod machine;
mod manner;
mod memory;
mod mounted;
mod posix;
mod process;
mod real;
mod setup;
mod test;
mod tidy;
mod tools;
mod workspace;
mod xfstests;

use std::process::ExitCode;

/// What a verb answers: an exit code after its own report, or why it could not run.
type Answer = Result<ExitCode, String>;

/// One verb of the command line.
struct Verb {
    name: &'static str,
    arguments: &'static str,
    does: &'static str,
    run: fn(&[String]) -> Answer,
}

const VERBS: &[Verb] = &[
    Verb {
        name: "check",
        arguments: "",
        does: "format, clippy, documentation and tidy; runs no tests",
        run: check::run,
    },
    Verb {
        name: "test",
        arguments: "[--quick] [FILTER]",
        does: "every test a fresh machine can run, in release; ends with the counts",
        run: test::run,
    },
    Verb {
        name: "setup",
        arguments: "",
        does: "fetches what the tests need (fusermount3, crates); installs the pre-commit hook",
        run: setup::run,
    },
    Verb {
        name: "tidy",
        arguments: "[--report] [--write]",
        does: "sizes, walls, documents; --report: what is large; --write: mends documents",
        run: tidy::run,
    },
    Verb {
        name: "bench",
        arguments: "meta|io|lib|million DIR... [OPTIONS]",
        does: "builds the binary and runs `pelago bench`",
        run: bench::run,
    },
    Verb {
        name: "crash",
        arguments: "[ROUNDS]",
        does: "the kill -9 witness for 200 rounds instead of the 20 of `test`",
        run: crash::run,
    },
    Verb {
        name: "loss",
        arguments: "[MOMENTS] | --errors [SEED [WITHIN] | CASE]",
        does: "power that fails at 500 seeded moments, not 60; --errors: every call that fails",
        run: loss::run,
    },
    Verb {
        name: "bystander",
        arguments: "[--small] [SECONDS] [LOAD...]",
        does: "what one user waits for while another does its worst, beside nullfs",
        run: bystander::run,
    },
    Verb {
        name: "golden",
        arguments: "",
        does: "accepts changed golden files; read the diff before you commit it",
        run: golden::run,
    },
    Verb {
        name: "fuzz",
        arguments: "TARGET [SECONDS]",
        does: "one fuzz target, 60 seconds unless told",
        run: fuzz::run,
    },
    Verb {
        name: "posix",
        arguments: "[--user NAME] [--passthrough WAY]",
        does: "pjdfstest on a volume, with and without passthrough; what it skips is committed",
        run: posix::run,
    },
    Verb {
        name: "fsx",
        arguments: "[--user NAME] [OPERATIONS]",
        does: "random reads, writes and mappings of files, 1000000 a mode unless told",
        run: fsx::run,
    },
    Verb {
        name: "memory",
        arguments: "[--user NAME] [--passthrough WAY] [ROUNDS]",
        does: "what copies of large trees leave resident, at the most and at rest; 6 rounds",
        run: memory::run,
    },
    Verb {
        name: "real",
        arguments: "[--user NAME] [--passthrough auto|always|never] [PROGRAM...]",
        does: "git, sqlite, postgres, cargo, tar, rsync, overlay, stress, bonnie, each on a volume",
        run: real::run,
    },
    Verb {
        name: "xfstests",
        arguments: "PATH [--passthrough WAY] [TEST...]",
        does: "the generic quick group of a built xfstests in PATH, ext4 beside; as root",
        run: xfstests::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = arguments.split_first() else {
        list_verbs();
        return ExitCode::SUCCESS;
    };
    let Some(verb) = VERBS.iter().find(|verb| verb.name == name) else {
        eprintln!("error: no verb `{name}`");
        list_verbs();
        return ExitCode::from(2);
    };
    match (verb.run)(rest) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("error: {}: {why}", verb.name);
            ExitCode::FAILURE
        }
    }
}

fn list_verbs() {
    println!("cargo xtask VERB\n");
    for verb in VERBS {
        println!("  {}", format!("{} {}", verb.name, verb.arguments).trim_end());
        println!("      {}", verb.does);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_have_different_names() {
        let mut names: Vec<_> = VERBS.iter().map(|verb| verb.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), VERBS.len());
    }
}
