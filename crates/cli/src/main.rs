//! The binary `pelago`: a file system that one command starts and mounts.
//!
//! [`verbs`] has one file per verb: its arguments, whose doc comments are the help, and a `run`.
//! [`daemon`] serves a volume, [`control`] is its socket for other commands, [`locate`] finds the
//! volume that a command means, and [`failure`] is the error with its exit code and hints.

#![forbid(unsafe_code)]

mod allocator;
mod charter;
mod complete;
mod control;
mod control_file;
mod credential;
mod daemon;
mod data_path;
mod detach;
mod dying;
mod failure;
mod far_mount;
mod file_sizes;
mod guard;
mod guest;
mod indexing;
mod json;
mod key_argument;
mod key_names;
mod licensed_key;
mod locate;
mod log;
mod mirror_socket;
mod mirrors;
mod moment;
mod mount_helper;
mod output;
mod relay;
mod retry;
mod runtime_dir;
mod server_session;
mod size;
mod stale_mount;
mod status_report;
mod ticket;
mod up_volume;
mod verbs;

use std::panic::PanicHookInfo;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use pelago_server::index_panics_are_caught;
use pelago_store::table::fjall::panics_are_caught;
use tikv_jemallocator::Jemalloc;

use crate::failure::Outcome;
use crate::verbs::{Cli, Verb};

/// glibc's allocator does not return freed memory to the system (decision 8).
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(abort_on_bug));
    let mut args = std::env::args_os();
    let program = args.next();
    if guard::process::is_meant(program.as_deref()) {
        return guard::process::run(args);
    }
    file_sizes::raise_limit();
    if mount_helper::is_meant(program.as_deref()) {
        return mount_helper::run(args);
    }
    if complete::is_meant() {
        return complete::run(Cli::command);
    }
    let cli = Cli::parse();
    let json = cli.verb.wants_json();
    match run(cli.verb) {
        Ok(code) => code,
        Err(failure) => {
            if json {
                // If even the error cannot be written, the exit code has to do.
                let _printed = output::print_json(&failure.to_json());
            } else {
                output::print_error(&failure.to_string());
            }
            ExitCode::from(failure.code())
        }
    }
}

/// Aborts the process on a panic. Pelago's locks are not poisoned, so other threads could write
/// inconsistent memory to disk; a volume recovers from a crash. Panics of the engine are caught by
/// its caller and become errors (decision 6).
fn abort_on_bug(panic: &PanicHookInfo<'_>) {
    if panics_are_caught() || index_panics_are_caught() {
        tracing::error!(%panic, "a panic in the engine");
        return;
    }
    eprintln!("pelago {} has a bug and stops: {panic}", env!("CARGO_PKG_VERSION"));
    eprintln!("  data at risk: no, acknowledged changes are kept; `pelago up` recovers them");
    eprintln!("  next: report this text, and DIR/log if there is one, to the maintainers");
    std::process::abort();
}

fn run(verb: Verb) -> Outcome<ExitCode> {
    match verb {
        Verb::Up(args) => verbs::up::run(args),
        Verb::Serve(args) => verbs::serve::run(&args),
        Verb::Mount(args) => verbs::mount::run(&args),
        Verb::Unmount(args) => verbs::unmount::run(&args),
        Verb::Status(args) => verbs::status::run(&args),
        Verb::Find(args) => verbs::find::run(&args),
        Verb::Tag(args) => verbs::tag::run(&args),
        Verb::Get(args) => verbs::get::run(&args),
        Verb::Key(args) => verbs::key::run(&args),
        Verb::Site(args) => verbs::site::run(&args),
        Verb::Relay(args) => verbs::relay::run(&args),
        Verb::Wait(args) => verbs::wait::run(&args),
        Verb::Reached(args) => verbs::reached::run(&args),
        Verb::Verify(args) => verbs::verify::run(&args),
        Verb::Join(args) => verbs::join::run(args),
        Verb::Conflicts(args) => verbs::conflicts::run(&args),
        Verb::Share(args) => verbs::share::run(&args),
        Verb::Attach(args) => verbs::attach::run(&args),
        Verb::Revoke(args) => verbs::revoke::run(&args),
        Verb::Credential(args) => verbs::credential::run(&args),
        Verb::Access(args) => verbs::access::run(&args),
        Verb::Log(args) => verbs::log::run(&args),
        Verb::Check(args) => verbs::check::run(&args),
        Verb::Bench(args) => verbs::bench::run(args),
        Verb::Version(args) => verbs::version::run(&args),
    }
}
