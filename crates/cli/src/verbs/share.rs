//! `pelago share`.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pelago_keynote::{
    Assertion, AssertionError, CREDENTIAL_BYTES, Credential, Principal, SharedFolder, WriteError,
    armor, policy,
};
use pelago_net::key::address::ServerAddress;
use pelago_net::key::{PrivateKey, PublicKey};
use pelago_net::own_file::{OwnFileError, Readers};
use pelago_store::volume;
use pelago_wire::InodeId;
use serde_json::json;

use super::key::{own_file, own_key};
use super::site::sites_of;
use crate::credential::{Whereabouts, printable};
use crate::failure::{Exit, Failure, Outcome};
use crate::key_argument::{self, KeyArgumentError};
use crate::locate::{self, VolumeRef};
use crate::up_volume::{listen, volume_id};
use crate::{json, output};

const AFTER: &str = "\
It prints a credential: a signed text that lets the holder of KEY, who needs no account, read this \
folder and all below it, whatever the modes say, from any machine that reaches this one. Send it \
by mail; it is of no use to anyone else. It follows the folder if that is renamed. There it is \
used by `pelago attach FILE DIR`; here `pelago revoke FILE` takes it back.

The first share makes this user's key a root of the volume, and prints a spare one.";

/// Share a folder with a person, who gets to read it.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// The folder, in the mount of a volume that is up on this machine
    path: PathBuf,
    /// The person's public key, which `pelago key show` prints there. Or that person's OpenSSH key,
    /// 'ssh-ed25519 AAAA...', or a file with it, such as id_ed25519.pub
    #[arg(long, value_name = "KEY")]
    to: String,
    /// The address of this machine for others, HOST:PORT, if the volume does not listen yet
    /// [default: all addresses, port 7440, by the name of this machine]
    #[arg(long, value_name = "ADDR")]
    at: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    later: LaterArgs,
}

/// Options of a later version, which are refused by their names.
#[derive(Debug, clap::Args)]
struct LaterArgs {
    /// The rights that are granted
    #[arg(long, hide = true)]
    rights: Option<String>,
    /// When the share ends
    #[arg(long, hide = true)]
    until: Option<String>,
    /// From where it can be used
    #[arg(long, hide = true)]
    from: Option<String>,
    /// The person may share it on
    #[arg(long, hide = true)]
    may_share: bool,
    /// It follows the name
    #[arg(long, hide = true)]
    by_name: bool,
}

impl LaterArgs {
    /// Returns the first option that was given.
    fn given(&self) -> Option<&'static str> {
        [
            ("--rights", self.rights.is_some()),
            ("--until", self.until.is_some()),
            ("--from", self.from.is_some()),
            ("--may-share", self.may_share),
            ("--by-name", self.by_name),
        ]
        .into_iter()
        .find_map(|(option, is_given)| is_given.then_some(option))
    }
}

#[derive(Debug, thiserror::Error)]
enum ShareError {
    #[error("KEY is not a public key")]
    To(#[source] KeyArgumentError),
    #[error("{0} is not built yet")]
    NotBuilt(&'static str),
    #[error("{} is not in the mount of a volume that this machine serves", .0.display())]
    NotHere(PathBuf),
    #[error("{} cannot be examined", path.display())]
    Examined {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} is not a folder: sharing single files is not built yet", .0.display())]
    NotFolder(PathBuf),
    #[error("{} has its home in another office", .0.display())]
    Elsewhere(PathBuf),
    #[error("your key {0} is not a root of this volume")]
    NoRoot(PublicKey),
    #[error("the volume's file `policy` cannot be used")]
    Policy(#[source] AssertionError),
    #[error(transparent)]
    Written(#[from] WriteError),
}

/// A spare root, which was just created.
struct Spare {
    /// The text of the private half of its key, which is printed once.
    secret: String,
}

/// Writes a credential.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    if let Some(option) = args.later.given() {
        return Err(Failure::new(Exit::Usage, ShareError::NotBuilt(option))
            .hint("share without it: the folder can be read until you revoke that"));
    }
    let to = key_argument::read(&args.to).map_err(|error| {
        Failure::new(Exit::Usage, ShareError::To(error))
            .hint("there, `pelago key show` prints it; ~/.ssh/id_ed25519.pub has one too")
    })?;
    let found = locate::find(None, Some(&args.path))?;
    let directory = examine(&found, &args.path)?;
    let key = own_key()?;
    let VolumeRef { dir, .. } = found;
    let (own_site, _) = sites_of(&dir)?;
    if directory.ino.site() != own_site {
        return Err(Failure::new(Exit::Usage, ShareError::Elsewhere(args.path.clone()))
            .hint("share it in the office in which it was made"));
    }
    let address = listen(&dir, args.at.as_deref())?;
    let share = SharedFolder { volume: volume_id(&dir)?, directory: directory.ino.raw() };
    // After all steps that may fail, because the spare key is printed once.
    let spare = become_root(&dir, &key)?;
    let whereabouts = Whereabouts {
        address: address.clone(),
        directory: directory.ino,
        parent: directory.parent,
        name: directory.name,
    };
    let credential = Credential {
        comment: &whereabouts.to_lines(),
        licensee: Principal(*to.as_bytes()),
        conditions: &share.conditions(),
    };
    let text = credential.sign(&key.signing_key()).map_err(written_failed)?;
    let block =
        armor(std::slice::from_ref(&text)).map_err(|error| Failure::new(Exit::Failed, error))?;
    if args.json {
        output::print_json(&json!({
            "version": json::VERSION,
            "credential": block,
            "to": to.to_string(),
            "address": address.to_string(),
            "spare": spare.as_ref().map(|spare| spare.secret.clone()),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    // Not to the standard output, which gets the credential and may be a file or a mail.
    output::print_error(&said(&args.path, &to, &address, spare.as_ref()));
    output::print(&block)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the lines for a person.
fn said(path: &Path, to: &PublicKey, address: &ServerAddress, spare: Option<&Spare>) -> String {
    let mut text = format!(
        "shared    {} with {to}, to be read\n\
         listening {address}\n\
         next      send the block; there: `pelago attach FILE DIR`; `pelago revoke FILE` ends it",
        path.display()
    );
    if let Some(Spare { secret }) = spare {
        text.push_str(&format!(
            "\nspare     {secret}\n          \
             a second root of the volume, printed only now: keep it on paper, away from here"
        ));
    }
    text
}

/// A folder that is shared.
struct Directory {
    ino: InodeId,
    parent: InodeId,
    name: String,
}

/// Finds the inode of the folder.
fn examine(found: &VolumeRef, path: &Path) -> Outcome<Directory> {
    let absolute = locate::absolute(path)?;
    let not_here = || {
        Failure::new(Exit::NotFound, ShareError::NotHere(absolute.clone()))
            .hint("run it on the machine of the volume, with a path in its mount")
    };
    let is_served = locate::is_volume(&found.dir);
    let point = found.mounted.as_ref().filter(|point| is_served && absolute.starts_with(point));
    let point = point.ok_or_else(not_here)?;
    let failed = |source| {
        Failure::new(Exit::NotFound, ShareError::Examined { path: path.to_owned(), source })
    };
    let meta = fs::metadata(path).map_err(failed)?;
    // A symbolic link, or another mount, may lead to a tree with other inode numbers.
    if meta.dev() != fs::metadata(point).map_err(failed)?.dev() {
        return Err(not_here());
    }
    if !meta.is_dir() || InodeId::from_raw(meta.ino()).is_of_mount() {
        return Err(Failure::new(Exit::Usage, ShareError::NotFolder(absolute))
            .hint("share the folder that it is in"));
    }
    let parent = fs::metadata(path.join("..")).map_err(failed)?.ino();
    let is_root = *point == absolute;
    let name = absolute.file_name().map(|name| printable(name.as_bytes())).unwrap_or_default();
    Ok(Directory {
        ino: InodeId::from_raw(meta.ino()),
        parent: if is_root { InodeId::ROOT } else { InodeId::from_raw(parent) },
        name,
    })
}

/// Makes this user's key a root of the volume if this is its first share, and creates a spare root.
fn become_root(dir: &Path, key: &PrivateKey) -> Outcome<Option<Spare>> {
    let file = own_file(dir, volume::POLICY)?;
    let failed = |error: OwnFileError| Failure::new(Exit::from(error.kind()), error);
    let own = Principal(*key.public().as_bytes());
    // Of two first shares at once, the second waits for the first, and then finds its file.
    let edit = file.edit().map_err(failed)?;
    match file.read(Readers::Everybody, CREDENTIAL_BYTES) {
        Ok((text, _)) => {
            let present = Assertion::parse(text.as_bytes()).map_err(|error| {
                Failure::new(Exit::Damaged, ShareError::Policy(error))
                    .hint("restore the file `policy` from a copy")
            })?;
            match present.licensees().contains(&own) {
                true => Ok(None),
                false => Err(Failure::new(Exit::Denied, ShareError::NoRoot(key.public()))
                    .hint("use the key of the first share, or its spare: set PELAGO_KEY")),
            }
        }
        Err(OwnFileError::Missing { .. }) => {
            let spare =
                PrivateKey::generate().map_err(|error| Failure::new(Exit::Failed, error))?;
            let roots = [own, Principal(*spare.public().as_bytes())];
            let comment =
                ["the roots of this volume: whose credentials its server accepts".to_owned()];
            let text = policy(&roots, &comment).map_err(written_failed)?;
            edit.finish(&text).map_err(failed)?;
            Ok(Some(Spare { secret: spare.to_secret_text() }))
        }
        Err(error) => Err(failed(error)),
    }
}

fn written_failed(error: WriteError) -> Failure {
    Failure::new(Exit::Failed, ShareError::Written(error))
}
