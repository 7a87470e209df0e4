//! `pelago attach`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use pelago_mount::{Atime, Trusts};
use pelago_net::ServerTarget;
use pelago_net::key::PublicKey;

use super::mount::serve;
use super::serving::ServingArgs;
use crate::credential::{self, Chain, until};
use crate::data_path::RequestArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::far_mount::FarPlan;
use crate::guest::{FromFile, Guest};
use crate::moment::Moment;
use crate::{locate, output};

const AFTER: &str = "\
FILE is the credential that `pelago share` printed, a mail with it, or `-` for the input. A line \
for each person who has shared it on says what and until when. The folder of the last one is \
mounted for this user. If it is for one file, or if there are several FILEs, DIR has each of them \
under its name: they are of one volume and for one key, and a name that has ended is not there. \
The key is this user's (`pelago key new`), or \
~/.ssh/id_ed25519 if the credential is for that one. \
Everything there seems to belong to this user. What is taken back there ends here at once; without \
a connection nothing that was read before is shown for longer than three seconds. Ctrl-C, SIGTERM \
and `pelago unmount` end the mount.";

/// Mount folders or files that were shared with this user.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// The file with the credential; several are mounted together
    #[arg(value_name = "FILE", required = true, num_args = 1..)]
    files: Vec<PathBuf>,
    /// Mount on this empty folder
    #[arg(value_name = "DIR")]
    point: PathBuf,
    /// Continue in the background
    #[arg(long)]
    detach: bool,
    /// Mount read-only
    #[arg(long)]
    read_only: bool,
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
    #[error("what {by} has granted ended at {end}")]
    Ended {
        by: PublicKey,
        /// The end, for people.
        end: String,
    },
    #[error("the input cannot be read in the background")]
    Input,
    #[error("the input is one credential")]
    InputTwice,
}

/// Connects as a guest, mounts, and serves the mount until it is unmounted.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let inputs = args.files.iter().filter(|file| file.as_os_str() == "-").count();
    if inputs > 1 {
        return Err(Failure::new(Exit::Usage, AttachError::InputTwice)
            .hint("save the credentials to files first"));
    }
    if args.detach && inputs > 0 {
        return Err(Failure::new(Exit::Usage, AttachError::Input)
            .hint("save the credential to a file first"));
    }
    if let Some(code) = args.serving.begin(args.detach)? {
        return Ok(code);
    }
    serve(&plan(args)?, args.serving.printing(args.json))
}

fn plan(args: &Args) -> Outcome<FarPlan> {
    let read = |file: &PathBuf| -> Outcome<FromFile> {
        Ok(FromFile { file: file.clone(), chain: credential::read(file)? })
    };
    let files = args.files.iter().map(read).collect::<Outcome<Vec<FromFile>>>()?;
    let chains: Vec<Chain> = files.iter().map(|from| from.chain.clone()).collect();
    let (guest, key, address) = Guest::of_files(files)?;
    for link in chains.iter().flat_map(Chain::shown).filter(|_| !args.json) {
        output::print(&format!("shared    {}\n", link.words()))?;
    }
    chains.iter().try_for_each(expect_in_force)?;
    let source = address.to_string();
    Ok(FarPlan {
        target: ServerTarget::Tcp { address, key: Arc::new(key) },
        source,
        point: locate::absolute(&args.point)?,
        read_only: args.read_only,
        // A guest changes nothing.
        atime: Atime::Never,
        trusts: Trusts::default(),
        give_up: args.soft.map(Duration::from_secs),
        io_uring: args.requests.io_uring,
        memory_bytes: args.serving.memory,
        guest: Some(guest),
    })
}

/// Checks that no credential of a chain has ended, by the clock of this machine.
fn expect_in_force(chain: &Chain) -> Outcome<()> {
    let Some(link) = chain.ended(&Moment::now().digits()) else { return Ok(()) };
    let end = link.share.until.as_deref().map(until).unwrap_or_default();
    Err(Failure::new(Exit::Denied, AttachError::Ended { by: link.signer, end })
        .hint("ask for another one; if the clock of this machine is wrong, set it"))
}
