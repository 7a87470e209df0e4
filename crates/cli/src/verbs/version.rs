//! `pelago version`.

use std::process::ExitCode;

use pelago_store::volume::FORMAT_VERSION;
use serde_json::json;

use crate::failure::Outcome;
use crate::{json, output};

/// Print the version of pelago, and of the volume format that it writes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints both versions.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let version = env!("CARGO_PKG_VERSION");
    if args.json {
        output::print_json(&json!({
            "version": json::VERSION,
            "pelago": version,
            "format": FORMAT_VERSION,
        }))?;
    } else {
        output::print(&format!("pelago {version}, volume format {FORMAT_VERSION}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
