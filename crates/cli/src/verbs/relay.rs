//! `pelago relay`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::serving::ProcessArgs;
use crate::failure::Outcome;
use crate::{locate, relay};

const AFTER: &str = "\
A relay is a machine at the edge of a site that does not burn with its server. fsync of level \
`network` returns once the server has the change on its disk, and the relay has sent it with \
repair packets: the mirror gets it though the server is lost in that moment, or the relay too.

`pelago key allow KEY -V DIR` lets the server of a volume send here, and the same at the mirror \
lets this relay send there. Then, at the server, `pelago site mirror ADDRESS --relay ADDRESS`. \
What the mirror does not have is kept in DIR. `pelago status DIR` lists the volumes, and \
`pelago unmount -V DIR` stops the relay.";

/// Pass the changes of volumes on to their mirrors, though a server may be gone.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// The folder of the relay; created if it does not exist
    dir: PathBuf,
    /// Listen at this address of this machine, HOST:PORT; the port is 7440 unless given
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Continue in the background; the log is DIR/log
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    process: ProcessArgs,
    /// Print one JSON object when the relay listens
    #[arg(long)]
    pub(crate) json: bool,
}

/// Passes changes on until it is stopped.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let dir = locate::absolute(&args.dir)?;
    if let Some(code) = args.process.begin(args.detach)? {
        return Ok(code);
    }
    relay::serve(&dir, args.listen.as_deref(), args.process.printing(args.json))
}
