//! `pelago attach`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use pelago_mount::{Atime, Trusts};
use pelago_net::ServerTarget;
use pelago_wire::InodeId;

use super::mount::serve;
use super::serving::ServingArgs;
use crate::credential::{self, Whereabouts};
use crate::data_path::RequestArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::far_mount::{FarPlan, Guest};
use crate::{locate, output};
use licensed_key::licensed_key;

mod licensed_key;

const AFTER: &str = "\
FILE is the credential that `pelago share` printed, a mail with it, or `-` for the input. It shows \
who has signed it and where the volume is, and mounts the folder for this user, to be read. The \
key is this user's (`pelago key new`), or ~/.ssh/id_ed25519 if the credential is for that one. \
Everything there seems to belong to this user. Nothing is kept here: each read asks the server, so \
what is taken back there ends here at once. Ctrl-C, SIGTERM and `pelago unmount` end the mount.";

/// Mount a folder that was shared with this user.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// The file with the credential
    file: PathBuf,
    /// Mount on this empty folder
    point: PathBuf,
    /// Continue in the background
    #[arg(long)]
    detach: bool,
    /// Fail operations after this many seconds without the server, instead of waiting for it
    #[arg(long, value_name = "SECONDS")]
    soft: Option<u64>,
    #[command(flatten)]
    requests: RequestArgs,
    #[command(flatten)]
    serving: ServingArgs,
    /// Print one JSON object when the folder is mounted
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, thiserror::Error)]
enum AttachError {
    #[error("the input cannot be read in the background")]
    Input,
}

/// Connects as a guest, mounts, and serves the mount until it is unmounted.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    if args.detach && args.file.as_os_str() == "-" {
        return Err(Failure::new(Exit::Usage, AttachError::Input)
            .hint("save the credential to a file first"));
    }
    if let Some(code) = args.serving.begin(args.detach)? {
        return Ok(code);
    }
    serve(&plan(args)?, args.serving.printing(args.json))
}

fn plan(args: &Args) -> Outcome<FarPlan> {
    let received = credential::read(&args.file)?;
    let key = licensed_key(&received.licensees())?;
    let address = received.address()?;
    if !args.json {
        let name = Whereabouts::name_in(received.credential.comment()).unwrap_or_default();
        let signer = received.signer().map(|key| key.to_string()).unwrap_or_default();
        output::print(&format!("shared    {name}, to be read, by {signer}\n"))?;
    }
    let source = address.to_string();
    Ok(FarPlan {
        target: ServerTarget::Tcp { address, key: Arc::new(key) },
        source,
        point: locate::absolute(&args.point)?,
        read_only: false,
        // A guest changes nothing.
        atime: Atime::Never,
        trusts: Trusts::default(),
        give_up: args.soft.map(Duration::from_secs),
        io_uring: args.requests.io_uring,
        memory_bytes: args.serving.memory,
        guest: Some(Guest {
            credentials: received.chain,
            directory: InodeId::from_raw(received.share.directory),
        }),
    })
}
