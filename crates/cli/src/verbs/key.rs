//! `pelago key`: the keys of this user and of a volume's server, the list of clients, and names of
//! keys.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use pelago_net::key::file::{self, KeyFileError};
use pelago_net::key::{PrivateKey, PublicKey};
use pelago_net::own_file::{OwnFile, OwnFileError};
use pelago_store::folder::Folder;
use pelago_store::volume::{self, VolumeError};
use serde_json::json;

use crate::failure::{Exit, Failure, Outcome};
use crate::{json, locate, output};

mod clients;
mod names;

const AFTER: &str = "\
A key is the identity of a machine: Ed25519, proved to the other end of each connection. `new` and \
`show` are for the user who connects; the others are for the user of the volume.";

const NEW: &str = "\
The file is $PELAGO_KEY, else $XDG_CONFIG_HOME/pelago/key, else ~/.config/pelago/key. Only its \
user can read it. An existing key is never overwritten. The file may also be one of OpenSSH: \
PELAGO_KEY=~/.ssh/id_ed25519, if it has no passphrase.";

const SHOW: &str = "\
It prints the key and nothing else, for a script or to be pasted. A volume's server gets its key \
with the first question for it, or when it first listens for other machines.";

/// Create keys, name them, and say which machines may connect.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: KeyVerb,
}

/// What to do with keys.
#[derive(Debug, Subcommand)]
enum KeyVerb {
    /// Create a key for this user
    #[command(after_help = NEW)]
    New(NewArgs),
    /// Print the public key of this user, or of a volume's server
    #[command(after_help = SHOW)]
    Show(ShowArgs),
    /// Let a machine connect to a volume
    #[command(after_help = clients::ALLOW)]
    Allow(clients::AllowArgs),
    /// Take back what `allow` did
    #[command(after_help = clients::REMOVE)]
    Remove(clients::RemoveArgs),
    /// Give a key a name, and a user as whom its guests act
    #[command(after_help = names::NAME)]
    Name(names::NameArgs),
    /// Take back what `name` did
    #[command(after_help = names::UNNAME)]
    Unname(names::UnnameArgs),
    /// List the machines that may connect to a volume, and the names of keys
    List(clients::ListArgs),
}

#[derive(Debug, clap::Args)]
struct NewArgs {
    /// Create this file instead of the default one
    #[arg(long, value_name = "FILE")]
    path: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// Read this file instead of the default one
    #[arg(long, value_name = "FILE", conflicts_with = "volume")]
    path: Option<PathBuf>,
    /// The folder of a volume, whose server's key is printed
    #[arg(short = 'V', long, value_name = "DIR")]
    volume: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Returns whether `--json` was given.
    pub(crate) const fn json(&self) -> bool {
        match &self.verb {
            KeyVerb::New(args) => args.json,
            KeyVerb::Show(args) => args.json,
            KeyVerb::Allow(args) => args.json,
            KeyVerb::Remove(args) => args.json,
            KeyVerb::Name(args) => args.json,
            KeyVerb::Unname(args) => args.json,
            KeyVerb::List(args) => args.json,
        }
    }
}

/// Runs the second word of the command.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    match &args.verb {
        KeyVerb::New(args) => new(args),
        KeyVerb::Show(args) => show(args),
        KeyVerb::Allow(args) => clients::allow(args),
        KeyVerb::Remove(args) => clients::remove(args),
        KeyVerb::Name(args) => names::name(args),
        KeyVerb::Unname(args) => names::unname(args),
        KeyVerb::List(args) => clients::list(args),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn new(args: &NewArgs) -> Outcome<()> {
    let path = path_of(&args.path)?;
    let key = file::create(&path).map_err(|error| key_file_failed(error, &args.path))?.public();
    if args.json {
        return print_key(key, &path);
    }
    output::print(&format!(
        "key       {key}\n\
         file      {} (secret: a copy of it can act as this machine)\n\
         next      where the volume is: `pelago key allow {key}`\n",
        path.display()
    ))
}

fn show(args: &ShowArgs) -> Outcome<()> {
    let (key, path) = match &args.volume {
        Some(dir) => {
            let dir = locate::find_any(Some(dir), None)?.dir;
            let file = own_file(&dir, volume::KEY)?;
            // The key is created now: other machines list it before the server first connects to
            // them.
            (file::read_or_create(&file).map_err(server_key_failed)?, file.path().to_owned())
        }
        None => {
            let path = path_of(&args.path)?;
            (file::read(&path).map_err(|error| key_file_failed(error, &args.path))?, path)
        }
    };
    if args.json {
        return print_key(key.public(), &path);
    }
    output::print(&format!("{}\n", key.public()))
}

fn print_key(key: PublicKey, path: &Path) -> Outcome<()> {
    output::print_json(&json!({
        "version": json::VERSION,
        "key": key.to_string(),
        "path": path.to_string_lossy(),
    }))
}

/// Returns the key of this user.
pub(super) fn own_key() -> Outcome<PrivateKey> {
    file::read(&own_key_path()?).map_err(|error| key_file_failed(error, &None))
}

/// Returns the path of this user's key, absolute; the file may be missing.
pub(crate) fn own_key_path() -> Outcome<PathBuf> {
    path_of(&None)
}

/// Returns the path of this user's key, absolute.
fn path_of(given: &Option<PathBuf>) -> Outcome<PathBuf> {
    let path = match given {
        Some(path) => path.clone(),
        None => file::default_path(|name| std::env::var_os(name))
            .map_err(|error| key_file_failed(error, given))?,
    };
    std::path::absolute(path).map_err(|error| Failure::new(Exit::Failed, error))
}

/// Returns a file in a volume's folder; for a server of a shared store, in its own folder or the
/// store's. Refuses a volume of another user, because its server would refuse files of this user.
pub(crate) fn own_file(dir: &Path, name: &str) -> Outcome<OwnFile> {
    let folder = match locate::store_of(dir) {
        // The key is the server's; all other files belong to the volume.
        Some(store) if name != volume::KEY => volume::open_folder(&store)?,
        Some(_) => Folder::open(dir).map_err(VolumeError::from)?,
        None if locate::is_mirrors(dir) || locate::is_relay(dir) => {
            Folder::open(dir).map_err(VolumeError::from)?
        }
        None => volume::open_folder(dir)?,
    };
    OwnFile::at(&folder, folder.path(), name)
        .map_err(|error| Failure::new(Exit::from(error.kind()), error))
}

/// Returns the failure of this user's key, with a hint. `given` is the argument of `--path`.
fn key_file_failed(error: KeyFileError, given: &Option<PathBuf>) -> Failure {
    let exit = match &error {
        KeyFileError::NoHome => Exit::Usage,
        error => Exit::from(error.kind()),
    };
    let option = if given.is_some() { " --path FILE" } else { "" };
    let hint = match &error {
        KeyFileError::NoHome => "name the file: `--path FILE`, or set PELAGO_KEY".to_owned(),
        KeyFileError::File(OwnFileError::Missing { .. }) => {
            format!("`pelago key new{option}` creates one")
        }
        KeyFileError::File(OwnFileError::Exists { .. }) => {
            format!("`pelago key show{option}` prints its public key")
        }
        KeyFileError::File(OwnFileError::Permissions { .. }) => {
            "if another user may have copied it, create a new key instead".to_owned()
        }
        KeyFileError::OpenSsh { .. } => "make another file, `pelago key new --path FILE` or \
                                          `ssh-keygen -t ed25519 -N '' -f FILE`, and set \
                                          PELAGO_KEY to its path"
            .to_owned(),
        KeyFileError::Empty { .. } | KeyFileError::Several { .. } | KeyFileError::Line { .. } => {
            format!("restore the file, or remove it and run `pelago key new{option}`")
        }
        _ => return Failure::new(exit, error),
    };
    Failure::new(exit, error).hint(hint)
}

/// Returns the failure of the key of a volume's server, with a hint.
fn server_key_failed(error: KeyFileError) -> Failure {
    let hint = match &error {
        KeyFileError::Empty { .. } | KeyFileError::Several { .. } | KeyFileError::Line { .. } => {
            "restore the file; with a new key, each client needs the server's new address"
        }
        _ => return key_file_failed(error, &None),
    };
    Failure::new(Exit::from(error.kind()), error).hint(hint)
}
