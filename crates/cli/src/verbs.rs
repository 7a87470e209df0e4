//! The command line. A verb that does not work yet does not exist.

use clap::{Parser, Subcommand};

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod status;
pub(crate) mod unmount;
pub(crate) mod up;
pub(crate) mod version;

const HELP: &str = "\
{about}

{usage-heading} {usage}

Start:
  up        Bring a volume up: make it if there is none, mount it, serve it
  unmount   Unmount a volume and stop it
  status    Say how a volume is, without touching the mount

Run:
  check     Look a volume over while it is down; --apply repairs
  bench     Measure any directory, or the file system without a mount
  version   Say which pelago this is
  help      Say more about one of these

Options:
{options}{after-help}";

const AFTER: &str = "\
Begin with `pelago up`. A command finds its volume by a path in its mount, by -V DIR, by the
current folder, or because only one is up.";

/// A file system for people who work far apart.
#[derive(Debug, Parser)]
#[command(name = "pelago", version, help_template = HELP, after_help = AFTER, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Bring a volume up.
    Up(up::Args),
    /// Unmount a volume and stop it.
    Unmount(unmount::Args),
    /// Say how a volume is.
    Status(status::Args),
    /// Look a volume over while it is down.
    Check(check::Args),
    /// Measure.
    Bench(bench::Args),
    /// Say which pelago this is.
    Version(version::Args),
}

impl Verb {
    /// Whether a failure is to be told as an object, too.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            Self::Up(args) => args.json,
            Self::Unmount(args) => args.json,
            Self::Status(args) => args.json,
            Self::Check(args) => args.json,
            Self::Bench(args) => args.json(),
            Self::Version(args) => args.json,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn verify_app() {
        Cli::command().debug_assert();
    }

    /// The groups of the help are written by hand; none may be missing in them.
    #[test]
    fn every_verb_is_in_a_group() {
        for verb in Cli::command().get_subcommands() {
            let line = format!("\n  {:<10}", verb.get_name());
            assert!(HELP.contains(&line), "{} is in no group", verb.get_name());
        }
    }
}
