//! `pelago revoke`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::time::Duration;

use pelago_keynote::{CredentialId, Revocation, SharedFolder};
use pelago_net::{ClientRole, ConnectError, Remote, RemoteOptions, ServerTarget};
use pelago_store::volume::VolumeId;
use pelago_store::{clock, volume};
use pelago_wire::{Bulk, Code, Context, Error, LeasedService as _, Request};
use serde_json::json;

use super::key::own_key;
use crate::control::ask_status;
use crate::credential::{self, Received};
use crate::failure::{Exit, Failure, Outcome};
use crate::status_report::StatusReport;
use crate::{json, locate, output};

const AFTER: &str = "\
It is for a root of the volume, on its machine, while the volume is up. The credential is void for \
ever, also after a restart: who came with it reads nothing more, by name or by an open file. What \
was read before stays read.";

/// The longest time that the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Take a credential back.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// The file with the credential that `pelago share` printed; `-` is the input
    file: PathBuf,
    /// The volume's folder
    #[arg(short = 'V', long, value_name = "DIR")]
    volume: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, thiserror::Error)]
enum RevokeError {
    #[error("the server of {} cannot be reached", dir.display())]
    Unreachable {
        dir: PathBuf,
        #[source]
        source: ConnectError,
    },
    #[error("the server of {} does not take it back", dir.display())]
    Refused {
        dir: PathBuf,
        #[source]
        source: Error,
    },
    #[error("the server does not answer")]
    Silent,
    #[error("no volume that is mounted here is the one of the credential")]
    NotUp,
}

/// Signs a revocation, and sends it to the server.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let Received { credential, share, .. } = credential::read(&args.file)?;
    let dir = match &args.volume {
        Some(dir) => locate::find(Some(dir), None)?.dir,
        None => volume_of(&share)?,
    };
    let key = own_key()?;
    let now = u64::try_from(clock::now().seconds).unwrap_or_default();
    let id = credential.id();
    let sentence = Revocation::sign(share.volume, id, now, &key.signing_key());
    ask(&dir, sentence.into_bytes())?;
    print(args, id)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the folder of a credential's volume, if it is up and mounted on this machine.
fn volume_of(share: &SharedFolder) -> Outcome<PathBuf> {
    let id = VolumeId(share.volume).to_string();
    let is_it = |dir: &PathBuf| match ask_status(dir, PATIENCE) {
        Ok(StatusReport::Up(report)) => report.id == id,
        Ok(_) | Err(_) => false,
    };
    locate::all_up().into_iter().find(is_it).ok_or_else(|| {
        Failure::new(Exit::NotFound, RevokeError::NotUp).hint("name its folder with `-V DIR`")
    })
}

fn print(args: &Args, id: CredentialId) -> Outcome<()> {
    if args.json {
        return output::print_json(&json!({
            "version": json::VERSION,
            "revoked": id.to_string(),
        }));
    }
    output::print(&format!("revoked   {}: it grants nothing any more\n", args.file.display()))
}

/// Sends a revocation to the server of the volume in `dir`, over its socket.
fn ask(dir: &Path, sentence: Vec<u8>) -> Outcome<()> {
    let folder = volume::open_folder(dir)?;
    let options = RemoteOptions {
        target: ServerTarget::Unix(volume::session_socket_path(&folder.proc_path())),
        read_only: false,
        role: ClientRole::Client,
        give_up: Some(PATIENCE),
    };
    let remote = Remote::connect(options, PATIENCE).map_err(|source| {
        let error = RevokeError::Unreachable { dir: dir.to_owned(), source };
        Failure::new(Exit::Unreachable, error).hint("start the volume: `pelago up`")
    })?;
    let (sender, answer) = channel();
    let done = Box::new(move |result, _granted| {
        // The other end waits below, or has given up.
        let _sent = sender.send(result);
    });
    remote.ask_leased(&Context::direct(0, 0), Request::Revoke { sentence }, Bulk::None, done);
    let answer = answer.recv_timeout(PATIENCE);
    let result = answer.map_err(|_| Failure::new(Exit::Unreachable, RevokeError::Silent));
    remote.end();
    result?.map(drop).map_err(|source: Error| {
        let hint = match source.code {
            Code::AccessDenied => "only a root takes it back: use the key of the first share",
            Code::Invalid => "the credential is of another volume: name that with `-V DIR`",
            Code::NoSpace => "the volume has as many revocations as it can have",
            _ => "the log of the volume says why",
        };
        let exit = Exit::from(source.kind());
        Failure::new(exit, RevokeError::Refused { dir: dir.to_owned(), source }).hint(hint)
    })
}
