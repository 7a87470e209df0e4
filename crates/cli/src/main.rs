//! The binary `pelago`: a file system that one command brings up.
//!
//! One file per verb in [`verbs`]; each has its arguments, whose comments are its help, and a
//! `run`. [`daemon`] is a volume that is up, [`control`] how others ask it, [`place`] how a command
//! finds its volume, [`failure`] how anything says that it did not work.

#![forbid(unsafe_code)]

mod control;
mod daemon;
mod dead;
mod detach;
mod failure;
mod file_sizes;
mod json;
mod log;
mod output;
mod patience;
mod place;
mod size;
mod verbs;

use std::panic::PanicHookInfo;
use std::process::ExitCode;

use clap::Parser;
use pelago_store::table::fjall::panics_are_caught;
use tikv_jemallocator::Jemalloc;

use crate::failure::Outcome;
use crate::verbs::{Cli, Verb};

/// glibc's allocator keeps what it once had (decision 8).
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(stop_at_a_bug));
    file_sizes::prepare();
    let cli = Cli::parse();
    let json = cli.verb.wants_json();
    match run(cli.verb) {
        Ok(code) => code,
        Err(failure) => {
            if json {
                // Nobody is left to tell where this cannot be written.
                let _told = output::print_json(&failure.to_json());
            } else {
                output::tell(&failure.to_string());
            }
            ExitCode::from(failure.code())
        }
    }
}

/// Ends the process where a panic says that code of ours is wrong: its locks do not poison, so
/// going on could write what memory only half knows. A crash is what a volume recovers from.
/// Panics of the engine are caught where it is called, and become errors (decision 6).
fn stop_at_a_bug(panic: &PanicHookInfo<'_>) {
    if panics_are_caught() {
        tracing::error!(%panic, "a panic in the engine");
        return;
    }
    eprintln!("pelago {} has a bug and stops: {panic}", env!("CARGO_PKG_VERSION"));
    eprintln!("  data at risk: no, what was answered is kept; `pelago up` goes on from it");
    eprintln!("  next: report this text, and DIR/log if there is one, to the maintainers");
    std::process::abort();
}

fn run(verb: Verb) -> Outcome<ExitCode> {
    match verb {
        Verb::Up(args) => verbs::up::run(args),
        Verb::Unmount(args) => verbs::unmount::run(&args),
        Verb::Status(args) => verbs::status::run(&args),
        Verb::Check(args) => verbs::check::run(&args),
        Verb::Bench(args) => verbs::bench::run(args),
        Verb::Version(args) => verbs::version::run(&args),
    }
}
