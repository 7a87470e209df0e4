//! `pelago credential`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pelago_keynote::unarmor;
use serde_json::json;

use super::share::{NamedNode, file_failed, named_in_mount, new_file};
use crate::control::{AskError, ControlReply, FileName, Request, ask};
use crate::credential::{Chain, ChainError, until};
use crate::failure::{Exit, Failure, Outcome};
use crate::up_volume::PATIENCE;
use crate::{json, locate, output, runtime_dir};

const AFTER: &str = "\
Who may create in a folder of another person has all rights to a file that he makes there, \
whatever the share says: to read and write it, and to share it on. Those to files that others have \
made stay as they were shared, and so do those to a folder that he makes, for theirs may be in it. \
With the credential he has these rights on every machine where his key is, by `pelago attach \
FILE`, and there he shares it on by `pelago share`.

It is for what was made in this mount since the server has started. It ends when the credential \
ends, or is taken back, by which the folder was attached. Asked for again it is the same one.";

/// Print the credential for a file or folder that was made here.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// A file or folder that was made in this mount of `pelago attach`
    path: PathBuf,
    /// Write the credential to this new file, instead of printing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, thiserror::Error)]
enum CredentialError {
    #[error("{} is in no mount of `pelago attach`", .0.display())]
    NotAttached(PathBuf),
    #[error("there is no credential for {}", path.display())]
    Refused {
        path: PathBuf,
        #[source]
        source: AskError,
    },
    #[error("the server has issued something else than a credential for {}", path.display())]
    Issued {
        path: PathBuf,
        #[source]
        source: ChainError,
    },
}

/// Has the server issue a credential, and prints it.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let path = &args.path;
    let not_attached = || {
        Failure::new(Exit::NotFound, CredentialError::NotAttached(path.clone()))
            .hint("what is in a volume of your own you share by `pelago share`")
    };
    let found = locate::find(None, Some(path))?;
    let point = found.mounted.filter(|_| runtime_dir::is_one(&found.dir));
    let point = point.ok_or_else(not_attached)?;
    let out = args.out.as_deref().map(new_file).transpose()?;
    let block = issue(&found.dir, path, named_in_mount(&found.dir, &point, path)?)?;
    let texts = unarmor(&block).map_err(|error| Failure::new(Exit::Failed, error))?;
    let chain = Chain::parse(&texts).map_err(|source| {
        Failure::new(Exit::Failed, CredentialError::Issued { path: path.clone(), source })
    })?;
    if !args.json {
        // Not to the standard output, which gets the credential and may be a file or a mail.
        let next = match &args.out {
            Some(file) => format!("`pelago attach {} DIR` elsewhere", file.display()),
            None => "keep the block; elsewhere `pelago attach FILE DIR`".to_owned(),
        };
        output::print_error(&format!("issued    {}\nnext      {next}", chain.last.words()));
    }
    let is_in_file = out.is_some();
    if let Some(file) = out {
        file.create(&block).map_err(file_failed)?;
    }
    if args.json {
        output::print_json(&json!({
            "version": json::VERSION,
            "credential": block,
            "rights": chain.last.share.rights.to_string(),
            "until": chain.last.share.until.as_deref().map(until),
            "links": texts.len(),
        }))?;
    } else if !is_in_file {
        output::print(&block)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks the process of a mount, whose session has made the file.
fn issue(dir: &Path, path: &Path, node: NamedNode) -> Outcome<String> {
    let NamedNode { ino, file } = node;
    let file = file.map(|(dir, name)| FileName { dir: dir.raw(), name });
    let refused = |exit, source| {
        Failure::new(exit, CredentialError::Refused { path: path.to_owned(), source })
    };
    match ask(dir, Request::Issue { ino: ino.raw(), file }, PATIENCE) {
        Ok((ControlReply::Credentials(block), _)) => Ok(block),
        Ok(_) => Err(refused(Exit::Failed, AskError::Garbled)),
        Err(error @ AskError::Refused { .. }) => Err(refused(Exit::Denied, error)
            .hint("ask for it in the mount in which it was made, while that is attached")),
        Err(error) => Err(refused(Exit::Unreachable, error).hint("attach the folder again")),
    }
}
