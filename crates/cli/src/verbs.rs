//! The command line. Only verbs that work exist.

use clap::{Parser, Subcommand};

pub(crate) mod access;
pub(crate) mod attach;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod conflicts;
pub(crate) mod credential;
pub(crate) mod find;
pub(crate) mod get;
pub(crate) mod join;
pub(crate) mod key;
mod level_args;
pub(crate) mod log;
pub(crate) mod mount;
pub(crate) mod reached;
pub(crate) mod relay;
pub(crate) mod revoke;
pub(crate) mod serve;
pub(crate) mod serving;
pub(crate) mod share;
pub(crate) mod site;
pub(crate) mod status;
pub(crate) mod tag;
pub(crate) mod unmount;
pub(crate) mod up;
pub(crate) mod verify;
pub(crate) mod version;
pub(crate) mod wait;

const HELP: &str = "\
{about}

{usage-heading} {usage}

Use a volume:
  up         Mount a volume and serve it; create it if it does not exist
  serve      Serve a volume without mounting it
  mount      Mount a volume that another process serves
  unmount    Unmount a volume and stop its process
  status     Print the state of a volume, without touching the mount

Find in it:
  find       Find files by tags, names, sizes, times and texts
  tag        Set, remove and print the tags of a file

Read from it, without a mount:
  get        Download a file from `up --http`; every MiB is checked

Share it:
  share      Share a folder or a file with a person
  attach     Mount what was shared with this user
  revoke     Take a credential back
  credential Print the credential for what was made in an attached folder
  access     Print which guests have which rights to a path, and why
  log        Print who has used a volume as a guest, and what was refused
  key        Create keys, name them, and say which machines may connect

Work on it in several offices:
  site       Invite an office to a volume, and give the volume a mirror
  conflicts  List, save and decide what two offices have written at once
  join       Join a volume of another office, by the ticket that it has printed

Keep it safe elsewhere:
  wait       Wait until what was done is safe here, or at the mirror too
  reached    Print how far the last changes of files have come
  verify     Compare the mirror with the volume; --apply repairs it
  relay      Pass changes on to mirrors, though a server may be gone

Maintain it:
  check      Check an unmounted volume for damage (fsck); --apply repairs it
  bench      Benchmark directories, or a volume without a mount
  version    Print the version of pelago and of its volume format
  help       Print the help of a command

Options:
{options}{after-help}";

const AFTER: &str = "\
Begin with `pelago up`. A command finds its volume by -V DIR, by a path in its mount or folder, by
the current folder, or because only one is up.";

/// A file system for people who work far apart.
#[derive(Debug, Parser)]
#[command(name = "pelago", version, help_template = HELP, after_help = AFTER, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// A verb with its arguments. The doc comments of the arguments are the help.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Up(up::Args),
    Serve(serve::Args),
    Mount(mount::Args),
    Unmount(unmount::Args),
    Status(status::Args),
    Find(find::Args),
    Tag(tag::Args),
    Get(get::Args),
    Share(share::Args),
    Attach(attach::Args),
    Revoke(revoke::Args),
    Credential(credential::Args),
    Access(access::Args),
    Log(log::Args),
    Site(site::Args),
    Wait(wait::Args),
    Reached(reached::Args),
    Verify(verify::Args),
    Relay(relay::Args),
    Join(join::Args),
    Conflicts(conflicts::Args),
    Key(key::Args),
    Check(check::Args),
    Bench(bench::Args),
    Version(version::Args),
}

impl Verb {
    /// Returns whether `--json` was given, so that a failure is printed as an object too.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            Self::Up(args) => args.json,
            Self::Serve(args) => args.json,
            Self::Mount(args) => args.json,
            Self::Unmount(args) => args.json,
            Self::Status(args) => args.json,
            Self::Find(args) => args.json,
            Self::Tag(args) => args.json,
            Self::Get(args) => args.json,
            Self::Share(args) => args.json,
            Self::Attach(args) => args.json,
            Self::Revoke(args) => args.json,
            Self::Credential(args) => args.json,
            Self::Access(args) => args.json,
            Self::Log(args) => args.json,
            Self::Site(args) => args.json(),
            Self::Wait(args) => args.json,
            Self::Reached(args) => args.json,
            Self::Verify(args) => args.json,
            Self::Relay(args) => args.json,
            Self::Join(args) => args.json,
            Self::Conflicts(args) => args.json,
            Self::Key(args) => args.json(),
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

    /// The groups in the help are written by hand.
    #[test]
    fn every_verb_is_in_a_group() {
        for verb in Cli::command().get_subcommands() {
            let line = format!("\n  {:<10}", verb.get_name());
            assert!(HELP.contains(&line), "{} is in no group", verb.get_name());
        }
    }
}
