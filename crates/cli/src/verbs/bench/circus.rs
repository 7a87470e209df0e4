//! `bench circus`: crowds that download the same files.

use std::path::PathBuf;

use pelago_bench::circus::{CircusOptions, CircusScope, circus};

use super::svg_file::SvgFile;
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
    /// Write charts to this file, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &Args) -> Outcome<()> {
    let scope = if args.quick { CircusScope::Policies } else { CircusScope::Paper };
    // Before minutes of work.
    let svg = args.svg.as_deref().map(SvgFile::create).transpose()?;
    let report = circus(&CircusOptions { seed: args.seed, scope });
    if let Some(svg) = svg {
        svg.write(&report.render_svg())?;
    }
    if args.json {
        output::print_json(&report.to_json())
    } else {
        output::print(&report.render_text())
    }
}
