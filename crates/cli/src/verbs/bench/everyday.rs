//! `bench everyday`: the everyday jobs of a programmer, with the real programs.

use std::path::PathBuf;

use pelago_bench::{EverydayOptions, everyday};

use super::{Directories, Scratch, bench_failed};
use crate::failure::Outcome;
use crate::output;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) on: Directories,
    /// A tree to work on; without it one like git's source is made in $TMPDIR
    #[arg(long, value_name = "TREE")]
    tree: Option<PathBuf>,
    /// Files of the tree that is made
    #[arg(long, default_value_t = EverydayOptions::default().files, conflicts_with = "tree")]
    files: u64,
    /// What `grep` looks for
    #[arg(long, default_value_t = EverydayOptions::default().word)]
    word: String,
    /// Drop the kernel's caches before every job, not only `tar` and `grep`; needs root
    #[arg(long)]
    cold: bool,
}

pub(super) fn run(args: &Args) -> Outcome<()> {
    let work = Scratch::new(&std::env::temp_dir(), "everyday-source")?;
    let folders = args.on.dirs.iter().map(|dir| Scratch::new(dir, "everyday"));
    let folders: Vec<Scratch> = folders.collect::<Outcome<_>>()?;
    let mut contenders = super::contenders(&args.on);
    for (contender, folder) in contenders.iter_mut().zip(&folders) {
        contender.path.clone_from(&folder.path);
    }
    let report = everyday(&contenders, &work.path, &args.options()).map_err(bench_failed)?;
    if args.on.json {
        output::print_json(&report.to_json())
    } else {
        output::print(&report.render_text())
    }
}

impl Args {
    fn options(&self) -> EverydayOptions {
        let default = EverydayOptions::default();
        EverydayOptions {
            rounds: self.on.rounds.unwrap_or(default.rounds),
            tree: self.tree.clone(),
            files: self.files,
            seed: self.on.seed,
            word: self.word.clone(),
            cold: self.cold,
        }
    }
}
