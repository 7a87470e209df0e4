//! `bench circus`: crowds that download the same files.

use pelago_bench::circus::{CircusOptions, CircusScope, circus};

use crate::failure::Outcome;
use crate::output;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Simulate the clients, their links and the disk in virtual time
    #[arg(long = "virtual", required = true)]
    is_virtual: bool,
    /// Leave out the figures of Circus's paper, which take two minutes
    #[arg(long)]
    quick: bool,
    /// The seed of the times at which clients arrive
    #[arg(long, default_value_t = CircusOptions::default().seed)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &Args) -> Outcome<()> {
    let scope = if args.quick { CircusScope::Policies } else { CircusScope::Paper };
    let report = circus(&CircusOptions { seed: args.seed, scope });
    if args.json {
        output::print_json(&report.to_json())
    } else {
        output::print(&report.render_text())
    }
}
