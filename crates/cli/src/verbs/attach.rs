//! `pelago attach`.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
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
mounted for this user, on DIR, or else on a new folder of its name. If it is for one \
file, or if there are several FILEs, DIR has each of them under its name: they are of one volume \
and for one key, and a name that has ended is not there. The key is this user's (`pelago key \
new`), or ~/.ssh/id_ed25519 if the credential is for that one. \
Everything there seems to belong to this user. What is taken back there ends here at once; without \
a connection nothing that was read before is shown for longer than three seconds. Ctrl-C, SIGTERM, \
SIGHUP and `pelago unmount` end the mount.";

/// Mount folders or files that were shared with this user.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER, override_usage = "pelago attach [OPTIONS] <FILE>... [DIR]")]
pub(crate) struct Args {
    /// The file with the credential; several are mounted together. Then the empty folder to mount
    /// on; after one FILE it may be left out
    #[arg(value_name = "FILE", required = true, num_args = 1..)]
    paths: Vec<PathBuf>,
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
    #[error("the name in {} cannot be that of a folder here", .0.display())]
    NoName(PathBuf),
    #[error("the folder {} cannot be made", path.display())]
    Folder {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Connects as a guest, mounts, and serves the mount until it is unmounted.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let (files, _) = args.divided();
    let inputs = files.iter().filter(|file| file.as_os_str() == "-").count();
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
    let mut made = None;
    let served =
        plan(args, &mut made).and_then(|plan| serve(&plan, args.serving.printing(args.json)));
    if let Some(made) = made {
        // Only if it is still empty, and not a mount.
        let _stays = fs::remove_dir(made);
    }
    served
}

impl Args {
    /// Returns the files, and the folder to mount on if there is one.
    fn divided(&self) -> (&[PathBuf], Option<&PathBuf>) {
        match self.paths.as_slice() {
            [files @ .., point] if !files.is_empty() => (files, Some(point)),
            files => (files, None),
        }
    }
}

/// Returns the plan of the mount. If it has made the folder to mount on, `made` has its path.
fn plan(args: &Args, made: &mut Option<PathBuf>) -> Outcome<FarPlan> {
    let (paths, point) = args.divided();
    let read = |file: &PathBuf| -> Outcome<FromFile> {
        Ok(FromFile { file: file.clone(), chain: credential::read(file)? })
    };
    let files = paths.iter().map(read).collect::<Outcome<Vec<FromFile>>>()?;
    let chains: Vec<Chain> = files.iter().map(|from| from.chain.clone()).collect();
    let (guest, key, address) = Guest::of_files(files)?;
    for link in chains.iter().flat_map(Chain::shown).filter(|_| !args.json) {
        output::print(&format!("shared    {}\n", link.words()))?;
    }
    chains.iter().try_for_each(expect_in_force)?;
    let point = match (point, chains.as_slice()) {
        (Some(point), _) => point.clone(),
        (None, chains) => named_folder(paths, chains, made)?,
    };
    let source = address.to_string();
    Ok(FarPlan {
        target: ServerTarget::Tcp { address, key: Arc::new(key) },
        source,
        point: locate::absolute(&point)?,
        read_only: args.read_only,
        // The times of access are those of the owner.
        atime: Atime::Never,
        trusts: Trusts::default(),
        give_up: args.soft.map(Duration::from_secs),
        io_uring: args.requests.io_uring,
        memory_bytes: args.serving.memory,
        guest: Some(guest),
    })
}

/// Makes a folder of the name in the only chain, in the working directory. `made` gets its path.
///
/// The writer of a credential chooses the name, so the folder must not exist: programs may use one
/// that does, also if it is empty. It is never that of a hidden file, by which programs are
/// configured, nor one that looks like an option, or that a terminal shows as another one.
fn named_folder(
    paths: &[PathBuf],
    chains: &[Chain],
    made: &mut Option<PathBuf>,
) -> Outcome<PathBuf> {
    let no_name = || {
        let file = paths.first().cloned().unwrap_or_default();
        Failure::new(Exit::Usage, AttachError::NoName(file)).hint("name a folder to mount on")
    };
    let name = chains.first().and_then(Chain::name).ok_or_else(no_name)?;
    let name = String::from_utf8(name).map_err(|_| no_name())?;
    if name.starts_with(['.', '-']) || output::name(&name) != name {
        return Err(no_name());
    }
    let here = env::current_dir().map_err(|source| folder_failed(Path::new("."), source))?;
    let path = here.join(name);
    fs::create_dir(&path).map_err(|source| folder_failed(&path, source))?;
    *made = Some(path.clone());
    Ok(path)
}

fn folder_failed(path: &Path, source: io::Error) -> Failure {
    let error = AttachError::Folder { path: path.to_owned(), source };
    Failure::new(Exit::Failed, error).hint("name an empty folder to mount on")
}

/// Checks that no credential of a chain has ended, by the clock of this machine.
fn expect_in_force(chain: &Chain) -> Outcome<()> {
    let Some(link) = chain.ended(&Moment::now().digits()) else { return Ok(()) };
    let end = link.share.until.as_deref().map(until).unwrap_or_default();
    Err(Failure::new(Exit::Denied, AttachError::Ended { by: link.signer, end })
        .hint("ask for another one; if the clock of this machine is wrong, set it"))
}
