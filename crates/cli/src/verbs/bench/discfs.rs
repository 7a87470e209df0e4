//! `bench discfs`: the measurements of DisCFS's paper.

use std::path::PathBuf;

use pelago_bench::{DiscfsOptions, MemoryLimit, discfs};

use super::{Directories, Scratch, bench_failed};
use crate::failure::Outcome;
use crate::{output, size};

const AFTER: &str = "\
Each DIR in turn: `bonnie++ -f -n 0` with a file, `find -exec wc` over a tree, cold and warm, and \
`make` of a generated program. The programs get half as much memory as the file has bytes, pages \
of files included, and 64 MiB at least: by a group of the kernel (cgroups, version 1), which needs \
root. bonnie++ and make are Debian packages of those names, and cc is in gcc.";

/// The least memory of the programs: the compiler needs some.
const LEAST_MEMORY: u64 = 64 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) on: Directories,
    /// Size of bonnie++'s file, in whole MiB
    #[arg(long, value_parser = size::parse, default_value = "512MiB")]
    size: u64,
    /// Files of the tree that is searched
    #[arg(long, default_value_t = DiscfsOptions::default().files)]
    files: u64,
    /// C files of the program that is built
    #[arg(long, default_value_t = DiscfsOptions::default().sources)]
    sources: u32,
    /// The memory group (a folder of cgroups, version 1) for the programs of each DIR in turn,
    /// instead of a new one
    #[arg(long, value_name = "GROUP")]
    memory_group: Vec<PathBuf>,
}

pub(super) fn run(args: &Args) -> Outcome<()> {
    let options = args.options();
    let work = Scratch::new(&std::env::temp_dir(), "discfs-source")?;
    let folders = args.on.dirs.iter().map(|dir| Scratch::new(dir, "discfs"));
    let folders: Vec<Scratch> = folders.collect::<Outcome<_>>()?;
    let mut contenders = super::contenders(&args.on);
    for (contender, folder) in contenders.iter_mut().zip(&folders) {
        contender.path.clone_from(&folder.path);
    }
    let limits: Vec<_> = (0..contenders.len()).map(|number| args.limit(number)).collect();
    let report = discfs(&contenders, &limits, &work.path, &options).map_err(bench_failed)?;
    if args.on.json {
        output::print_json(&report.to_json())
    } else {
        output::print(&report.render_text())
    }
}

impl Args {
    fn options(&self) -> DiscfsOptions {
        let default = DiscfsOptions::default();
        DiscfsOptions {
            rounds: self.on.rounds.unwrap_or(default.rounds),
            mib: (self.size >> 20).max(2),
            files: self.files,
            sources: self.sources,
            seed: self.on.seed,
        }
    }

    /// Returns the limit for the programs of a directory. Without one they run too, and the report
    /// says so.
    fn limit(&self, number: usize) -> Option<MemoryLimit> {
        if let Some(group) = self.memory_group.get(number) {
            return Some(MemoryLimit::of_group(group));
        }
        match MemoryLimit::new(number, (self.size / 2).max(LEAST_MEMORY)) {
            Ok(limit) => Some(limit),
            Err(error) => {
                output::print_error(&format!("the programs' memory is not limited: {error}"));
                None
            }
        }
    }
}
