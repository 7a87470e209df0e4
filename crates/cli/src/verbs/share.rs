//! `pelago share`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pelago_keynote::{AddressRange, Grant, Rights, SharedObject, armor};
use pelago_net::key::PublicKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::own_file::{OwnFile, OwnFileError};
use serde_json::json;

use self::error::ShareError;
use crate::credential::{granted, until};
use crate::failure::{Exit, Failure, Outcome};
use crate::key_names::Person;
use crate::locate::VolumeRef;
use crate::moment::{Moment, Zone};
use crate::{credential, json, locate, output, runtime_dir};

pub(crate) use by_guest::{NamedNode, chain_of, named_in_mount};

mod by_guest;
mod by_root;
mod error;
mod object;

const AFTER: &str = "\
It prints a credential: a signed text that lets the holder of KEY, who needs no account, read this \
folder and all below it, or this file, whatever the modes say, from any machine that reaches the \
server. Send it by mail; it is of no use to anyone else. There it is used by `pelago attach FILE \
DIR`; here `pelago revoke FILE` takes it back.

It follows the folder or the file if that is renamed. Many programs save a file by writing another \
one and renaming that over it: a share of the file ends with this, and one with `--by-name` goes \
on. That one is for the file which has this name in this folder at the time.

RIGHTS are letters: r to read, x to run programs, g to share it on, a to see what others have and \
do. UNTIL is a day, which ends with it (2026-12-31), a time (2026-12-31T18:00, of this machine's \
zone, or with Z or an offset), or from now on: 30s, 90m, 36h, 14d.

A folder that was shared with you by `--may-share` is shared on in the mount of `pelago attach`: \
no more of it, and no longer, than you have it yourself. The server is not asked. Offline, `pelago \
share FILE --to KEY` shares on all that the credential in FILE grants.

The first share makes this user's key a root of the volume, and prints a spare one.";

/// Share a folder or a file with a person, to read it or to change it.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// The folder or file, in the mount of a volume that is up on this machine, or of `pelago
    /// attach`; or the file of a credential, or `-`, to share on all that it grants
    path: PathBuf,
    /// The person's public key, which `pelago key show` prints there. Or that person's OpenSSH key,
    /// 'ssh-ed25519 AAAA...', or a file with it, such as id_ed25519.pub; or the name that `pelago
    /// key name` has given to it
    #[arg(long, value_name = "KEY|NAME")]
    to: String,
    /// What the person may do [default: rx, to read]
    #[arg(long, value_name = "RIGHTS")]
    rights: Option<Rights>,
    /// When the share ends [default: never]
    #[arg(long, value_name = "UNTIL")]
    until: Option<String>,
    /// The addresses from which it can be used, as 192.0.2.0/24 [default: all]
    #[arg(long, value_name = "CIDR")]
    from: Option<AddressRange>,
    /// The person may share it on, or a part of it
    #[arg(long)]
    may_share: bool,
    /// Grant whatever file has this name in its folder, also after it was replaced
    #[arg(long)]
    by_name: bool,
    /// Write the credential to this new file, instead of printing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print what was signed, to be read by a person, instead of the credential
    #[arg(long, conflicts_with = "json")]
    text: bool,
    /// The address of this machine for others, HOST:PORT, if the volume does not listen yet
    /// [default: all addresses, port 7440, by the name of this machine]
    #[arg(long, value_name = "ADDR")]
    at: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The terms of a share.
struct Terms {
    /// The rights; `None` for those to read.
    rights: Option<Rights>,
    /// The right to share it on comes with them.
    may_share: bool,
    /// The end, as 14 digits.
    until: Option<String>,
    from: Option<AddressRange>,
    /// The file is shared by its name.
    by_name: bool,
}

/// A folder or a file that was shared.
struct Shared {
    /// The credentials, from that of a root to the new one.
    chain: Vec<String>,
    /// The rights of the new one.
    grant: Grant,
    /// The key to which the new one grants it.
    to: PublicKey,
    address: ServerAddress,
    /// The spare root, if it was just created.
    spare: Option<Spare>,
}

/// A spare root, which was just created.
struct Spare {
    /// The text of the private half of its key, which is printed once.
    secret: String,
}

/// Writes a credential.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let terms = Terms::of(args)?;
    let found = locate::find(None, Some(&args.path));
    let is_credential = match &found {
        Ok(_) => credential::is_input(&args.path) || credential::is_file(&args.path),
        Err(_) => credential::is_in(&args.path),
    };
    if is_credential && found.is_ok() && !credential::is_input(&args.path) {
        return Err(Failure::new(Exit::Usage, ShareError::Credential(args.path.clone())).hint(
            "`pelago share - --to KEY < FILE` shares on what it grants; to share the file itself, \
             share a folder with it",
        ));
    }
    let volume = found.as_ref().ok().map(|found| found.dir.as_path());
    let person = Person::read(&args.to, volume.filter(|dir| locate::is_volume(dir)), |error| {
        Failure::new(Exit::Usage, ShareError::To(error)).hint(
            "there, `pelago key show` prints it; ~/.ssh/id_ed25519.pub has one too; \
             `pelago key name NAME KEY` gives it a name here",
        )
    })?;
    let to = person.key;
    let found = if is_credential { None } else { Some(found?) };
    let out = args.out.as_deref().map(new_file).transpose()?;
    let is_guest = found.as_ref().is_none_or(|found| runtime_dir::is_one(&found.dir));
    if is_guest && args.at.is_some() {
        return Err(Failure::new(Exit::Usage, ShareError::At).hint("share it without `--at`"));
    }
    let shared = match found {
        None => by_guest::share_whole(&args.path, &to, &terms),
        Some(VolumeRef { dir, mounted: Some(point) }) if is_guest => {
            by_guest::share(&dir, &point, &args.path, &to, &terms)
        }
        Some(found) => by_root::share(found, &args.path, &to, args.at.as_deref(), &terms),
    }?;
    let block = armor(&shared.chain).map_err(|source| {
        let path = args.path.clone();
        Failure::new(Exit::Failed, ShareError::TooLong { path, source })
            .hint("ask a person who is nearer to the first share")
    })?;
    if !args.json {
        // Not to the standard output, which gets the credential and may be a file or a mail.
        output::print_error(&said(args, &person, &shared));
    }
    let is_in_file = out.is_some();
    if let Some(file) = out {
        file.create(&block).map_err(file_failed)?;
    }
    if args.json {
        output::print_json(&to_json(&shared, &block))?;
    } else if args.text {
        output::print(&shared.chain.join("\n"))?;
    } else if !is_in_file {
        output::print(&block)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Terms {
    fn of(args: &Args) -> Outcome<Self> {
        let until = args.until.as_deref().map(end).transpose()?;
        let Args { rights, may_share, from, by_name, .. } = *args;
        Ok(Self { rights, may_share, until, from, by_name })
    }
}

/// Parses the end of a share, which must be in the future.
fn end(text: &str) -> Outcome<String> {
    let now = Moment::now();
    let failed = |error| {
        Failure::new(Exit::Usage, error)
            .hint("give a day such as 2026-12-31, a time such as 2026-12-31T18:00Z, or 14d")
    };
    let end =
        Moment::parse(text, now, Zone::local).map_err(|error| failed(ShareError::Until(error)))?;
    match end > now {
        true => Ok(end.digits()),
        false => Err(failed(ShareError::Past(end.to_string()))),
    }
}

/// Returns the location of the file of `--out`, which must not exist. It is created at the end.
pub(super) fn new_file(path: &Path) -> Outcome<OwnFile> {
    match path.symlink_metadata() {
        Ok(_) => Err(file_failed(OwnFileError::Exists { path: path.to_owned() })),
        Err(_) => OwnFile::of(path).map_err(file_failed),
    }
}

pub(super) fn file_failed(error: OwnFileError) -> Failure {
    Failure::new(Exit::from(error.kind()), error)
        .hint("name a file that does not exist, in a folder that you can write")
}

/// Returns the lines for a person.
fn said(args: &Args, to: &Person, shared: &Shared) -> String {
    let Shared { grant, address, spare, chain, .. } = shared;
    let from = if chain.len() == 1 { "listening" } else { "server   " };
    let send = match &args.out {
        Some(path) => format!("send {}", path.display()),
        None if args.text => "send what it prints without `--text`".to_owned(),
        None => "send the block".to_owned(),
    };
    let mut text = format!(
        "shared    {} with {}, {}\n\
         {from} {address}\n\
         next      {send}; there: `pelago attach FILE DIR`; `pelago revoke FILE` ends it",
        args.path.display(),
        to.described(),
        granted(grant),
    );
    if let SharedObject::File(_) = grant.object {
        text.push_str(
            "\nnote      a program that saves by replacing the file ends this share; one with \
             `--by-name` goes on",
        );
    }
    if let Some(Spare { secret }) = spare {
        text.push_str(&format!(
            "\nspare     {secret}\n          \
             a second root of the volume, printed only now: keep it on paper, away from here"
        ));
    }
    text
}

fn to_json(shared: &Shared, block: &str) -> serde_json::Value {
    let Shared { grant, to, address, spare, chain } = shared;
    json!({
        "version": json::VERSION,
        "credential": block,
        "to": to.to_string(),
        "address": address.to_string(),
        "rights": grant.rights.to_string(),
        "until": grant.until.as_deref().map(until),
        "from": grant.from.map(|from| from.to_string()),
        "links": chain.len(),
        "spare": spare.as_ref().map(|spare| spare.secret.clone()),
    })
}
