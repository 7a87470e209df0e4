//! `cargo xtask VERB`: what a developer and CI run, so that Rust alone is enough to work on Pelago.
//!
//! One file per verb. A verb returns an exit code, or one sentence that says why it could not do
//! its work. The laboratories, which measure and search for minutes, are a program of their own
//! (`lab`). Nothing here is shipped.

mod bench;
mod check;
mod counts;
mod fsx;
mod fuzz;
mod golden;
mod io_uring;
mod lab;
mod posix;
mod real;
mod rounds;
mod schedules;
mod setup;
mod sim;
mod steps;
mod test;
mod tidy;
mod xfstests;

use std::process::ExitCode;

use pelago_testbed::{VerbResult, verdict, workspace};

/// One verb of the command line.
struct Verb {
    name: &'static str,
    arguments: &'static str,
    does: &'static str,
    run: fn(&[String]) -> VerbResult,
}

const VERBS: &[Verb] = &[
    Verb {
        name: "check",
        arguments: "",
        does: "runs rustfmt, clippy, rustdoc, tidy; builds fuzz and schedules; no tests",
        run: check::run,
    },
    Verb {
        name: "test",
        arguments: "[--quick] [--ring] [--no-passthrough] [FILTER]",
        does: "runs all tests that can run here; `meta` or `meta::NAME`: those of a package",
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
        does: "checks sizes, walls, names, documents; --report: sizes; --write: mends documents",
        run: tidy::run,
    },
    Verb {
        name: "bench",
        arguments: "meta|io|lib|leases|million|tree|find DIR... [OPTIONS]",
        does: "builds the binary and runs `pelago bench`",
        run: bench::run,
    },
    Verb {
        name: "crash",
        arguments: "[--far | [--ring] [--notices]] [ROUNDS]",
        does: "kills the binary in 200 rounds, not 20; --far: a far mount's server, not 5; \
               --notices: servers, mounts and guards under notices to the kernel, not 6",
        run: rounds::crash,
    },
    Verb {
        name: "disaster",
        arguments: "[ROUNDS]",
        does: "loses a site in 1000 rounds, not 20, and looks at its mirror; as root",
        run: rounds::disaster,
    },
    Verb {
        name: "loss",
        arguments: "[MOMENTS] | --errors [SEED [WITHIN] | CASE]",
        does: "cuts the power at 500 seeded moments, not 60; --errors: fails each call to the disk",
        run: rounds::loss,
    },
    Verb {
        name: "pairs",
        arguments: "[NAMES]",
        does: "races of each two mounts for 10,000 names, not 40; beside the disk below",
        run: rounds::pairs,
    },
    Verb {
        name: "soak",
        arguments: "[SECONDS]",
        does: "two offices and a machine at work for 600 s, not 60, with kills and cuts; as root",
        run: rounds::soak,
    },
    Verb {
        name: "strangers",
        arguments: "[SECONDS]",
        does: "garbage and 10,000 silent connections at a server for 30 s, beside two good mounts",
        run: rounds::strangers,
    },
    Verb {
        name: "bystander",
        arguments: "[--small] [SECONDS] [LOAD...]",
        does: "measures how long one user waits beside the load of another, compared with nullfs",
        run: |words| lab::run("bystander", words),
    },
    Verb {
        name: "contend",
        arguments: "[--seed N] [--pause MICROSECONDS] [--json] [SECONDS] | --locks ROUNDS",
        does: "works on the same names and bytes in far mounts, or has locks in mounts that stop",
        run: |words| lab::run("contend", words),
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
        does: "runs one fuzz target for SECONDS, 60 by default",
        run: fuzz::run,
    },
    Verb {
        name: "schedules",
        arguments: "[ROUNDS]",
        does: "runs threads over the shard and open files in chosen orders; 500 rounds by default",
        run: schedules::run,
    },
    Verb {
        name: "sim",
        arguments: "[SEEDS]",
        does: "runs a server, clients and programs in turns, with faults; 1000 seeds, not 60",
        run: sim::run,
    },
    Verb {
        name: "sim-mutants",
        arguments: "[WORD]",
        does: "plants bugs in a copy of the sources, and has the simulation or a test find each",
        run: sim::mutants::run,
    },
    Verb {
        name: "posix",
        arguments: "[--user NAME] [--passthrough MODE | --far unix|tls]",
        does: "runs pjdfstest with and without passthrough; compares skips with the committed list",
        run: posix::run,
    },
    Verb {
        name: "fsx",
        arguments: "[--user NAME] [--far unix|tls] [OPERATIONS] | --two [OPERATIONS]",
        does: "runs random reads, writes and mappings of files; 1000000 a mode by default",
        run: fsx::run,
    },
    Verb {
        name: "memory",
        arguments: "[--user NAME] [--passthrough MODE] [ROUNDS]",
        does: "measures resident memory during and after copies of large trees; 6 rounds",
        run: |words| lab::run("memory", words),
    },
    Verb {
        name: "mirror",
        arguments: "costs [ROUNDS [STEP]] | files [FILES] | large [MIB] | \
                    link [OPTIONS] | network [ROUNDS] | figures [8] [9] [10] [11] [OPTIONS]",
        does: "measures what a mirror costs, comparing a million files or 10 GiB, how its \
               datagrams use a line beside TCP, what a sync of level network takes, and the \
               figures of SMFS's paper; as root",
        run: |words| lab::run("mirror", words),
    },
    Verb {
        name: "small",
        arguments: "[FILES]",
        does: "works in three mounts and another office, each process in 64 MiB of memory; as root",
        run: |words| lab::run("small", words),
    },
    Verb {
        name: "real",
        arguments: "[--user NAME] [--passthrough MODE | --far unix|tls] [PROGRAM...]",
        does: "runs git, sqlite, postgres, cargo, tar, rsync, overlay, find and more on volumes",
        run: real::run,
    },
    Verb {
        name: "rivals",
        arguments: "[--rounds N] [--others LIST] [--benches LIST] \
                    [--bulk|--discfs|--guests|--ringer] [--json]",
        does: "measures far mounts and offices beside sshfs and gluster, over one line; as root",
        run: |words| lab::run("rivals", words),
    },
    Verb {
        name: "find-rivals",
        arguments: "[--quick] [--files N] [--rounds N] [--user NAME] [--svg FILE] [--json]",
        does: "measures searches beside find, getfattr, plocate and recoll, as an ordinary user",
        run: |words| lab::run("find-rivals", words),
    },
    Verb {
        name: "link",
        arguments: "",
        does: "compares the slow link of the measurements with ping and iperf3; as root",
        run: |words| lab::run("link", words),
    },
    Verb {
        name: "circus",
        arguments: "[--quick] [--rounds N] [--loads LIST] [--contenders LIST] [--json]",
        does: "serves a file to crowds from a slow disk, beside nginx; counts passes; as root",
        run: |words| lab::run("circus", words),
    },
    Verb {
        name: "xfstests",
        arguments: "PATH [--passthrough MODE] [TEST...]",
        does: "runs the quick group of the xfstests built in PATH, on Pelago and on ext4; as root",
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
        eprintln!("error: no verb `{name}`; these exist:");
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
