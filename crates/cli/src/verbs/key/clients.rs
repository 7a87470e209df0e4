//! `pelago key allow`, `remove` and `list`: the machines that may connect to a volume.

use std::path::{Path, PathBuf};

use pelago_keynote::key::named::{NamedChangeError, NamedKeys};
use pelago_net::clients::date::Date;
use pelago_net::clients::file::{self, ClientsFileError};
use pelago_net::clients::{
    Allowed, AllowedClient, ClientRef, ClientRefError, KeyName, KeyNameError,
};
use pelago_net::key::PublicKey;
use pelago_store::volume;
use serde_json::{Value, json};

use super::{names, own_file};
use crate::failure::{Exit, Failure, Outcome};
use crate::key_argument::{self, KeyArgumentError};
use crate::key_names::{clients_failed, described, edit_clients, keys_failed, keys_of};
use crate::{json, locate, output};

pub(super) const ALLOW: &str = "\
A listed machine is believed its user ids, root included, as NFS with sec=sys does: who is root \
there can read and change every file of the volume, and act as every user. A server that is up \
follows the list; nothing has to be started again. The list is the file `clients` in the volume's \
folder, which may also be edited by hand.";

pub(super) const REMOVE: &str = "\
If the server is up, the sessions of the machine end within a second.";

#[derive(Debug, clap::Args)]
pub(super) struct AllowArgs {
    /// The public key of the machine: `pelago key show` prints it there. Or an OpenSSH key,
    /// 'ssh-ed25519 AAAA...', or a file with one, such as id_ed25519.pub
    #[arg(value_name = "KEY")]
    key: String,
    /// A name for it, for people and for `remove`
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    on: Target,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct RemoveArgs {
    /// The public key of the machine, or its name in the list
    #[arg(value_name = "KEY|NAME")]
    client: String,
    #[command(flatten)]
    on: Target,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    on: Target,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// The volume that is meant.
#[derive(Debug, clap::Args)]
struct Target {
    /// The volume's folder
    #[arg(short = 'V', long, value_name = "DIR")]
    volume: Option<PathBuf>,
}

impl Target {
    fn find(&self) -> Outcome<PathBuf> {
        Ok(locate::find_any(self.volume.as_deref(), None)?.dir)
    }
}

/// The error of an argument that is not a client.
#[derive(Debug, thiserror::Error)]
enum ArgumentError {
    #[error("KEY is not a public key")]
    Key(#[source] KeyArgumentError),
    #[error(transparent)]
    Name(KeyNameError),
    #[error("{key} has the name {name}")]
    Named { key: PublicKey, name: KeyName },
}

/// Adds a client to the list.
pub(super) fn allow(args: &AllowArgs) -> Outcome<()> {
    let key = key_argument::read(&args.key)
        .map_err(|error| argument_failed(ArgumentError::Key(error)))?;
    let name = args.name.as_deref().map(str::parse::<KeyName>).transpose();
    let name = name.map_err(|error| argument_failed(ArgumentError::Name(error)))?;
    let dir = args.on.find()?;
    let (allowed, client) = edit_clients(&dir, |clients, keys| {
        let name = name_in_both(keys, key, name)?;
        let allowed = clients
            .allow(key, name, Date::today())
            .map_err(|error| clients_failed(ClientsFileError::Change(error)))?;
        let listed = clients.iter().find(|client| client.key == key).cloned();
        Ok((allowed, listed.unwrap_or(AllowedClient { key, name: None, since: None })))
    })?;
    if args.json {
        return print_client(&dir, &client, state(allowed));
    }
    output::print(&allowed_lines(&dir, &client, allowed))
}

/// Returns the name that a machine gets: the given one, else that of its key in the list of named
/// keys. A name stands for one key in both lists.
fn name_in_both(
    keys: &NamedKeys,
    key: PublicKey,
    given: Option<KeyName>,
) -> Outcome<Option<KeyName>> {
    let own = keys.iter().find(|named| named.key == key).map(|named| named.name.clone());
    let Some(given) = given else { return Ok(own) };
    if let Some(taken) = keys.find(&given).filter(|taken| taken.key != key) {
        let error = NamedChangeError::NameTaken { name: given, key: taken.key };
        return Err(keys_failed(error.into()));
    }
    match own.filter(|own| *own != given) {
        Some(name) => Err(Failure::new(Exit::Failed, ArgumentError::Named { key, name })
            .hint(format!("`pelago key name {given} {key}` gives it another name everywhere"))),
        None => Ok(Some(given)),
    }
}

/// Removes a client from the list.
pub(super) fn remove(args: &RemoveArgs) -> Outcome<()> {
    let which = args.client.parse::<ClientRef>().map_err(|error| {
        argument_failed(match error {
            ClientRefError::Key(error) => ArgumentError::Key(error.into()),
            ClientRefError::Name(error) => ArgumentError::Name(error),
            error => return Failure::new(Exit::Usage, error),
        })
    })?;
    let dir = args.on.find()?;
    let clients = own_file(&dir, volume::CLIENTS)?;
    let client = file::edit(&clients, |clients| clients.remove(&which)).map_err(clients_failed)?;
    if args.json {
        return print_client(&dir, &client, "removed");
    }
    output::print(&format!(
        "removed   {}: it may no longer connect to {}\n",
        described(&client.key, client.name.as_ref()),
        dir.display()
    ))
}

/// Prints the list.
pub(super) fn list(args: &ListArgs) -> Outcome<()> {
    let dir = args.on.find()?;
    let clients = file::read(&own_file(&dir, volume::CLIENTS)?).map_err(clients_failed)?;
    let clients: Vec<&AllowedClient> = clients.iter().collect();
    // A folder that keeps mirrors has no names.
    let keys = keys_of(&dir)?;
    if args.json {
        let clients: Vec<Value> = clients.into_iter().map(client_json).collect();
        return output::print_json(&json!({
            "version": json::VERSION,
            "volume": { "dir": dir.to_string_lossy() },
            "clients": clients,
            "names": keys.iter().map(names::to_json).collect::<Vec<Value>>(),
        }));
    }
    if clients.is_empty() && keys.iter().next().is_none() {
        return output::print(&format!(
            "no machine may connect to {}\nnext      `pelago key allow KEY` lets one connect\n",
            dir.display()
        ));
    }
    let machines = clients.into_iter().map(list_line);
    output::print(&machines.chain(keys.iter().map(names::list_line)).collect::<String>())
}

fn list_line(client: &AllowedClient) -> String {
    let since = client.since.map_or_else(|| "-".to_owned(), |since| since.to_string());
    let name = client.name.as_ref().map_or("-", KeyName::as_str);
    format!("{}  {since:<10}  {name}\n", client.key)
}

/// Returns the lines that are printed after `allow`.
fn allowed_lines(dir: &Path, client: &AllowedClient, allowed: Allowed) -> String {
    let what = match allowed {
        Allowed::New => "may connect to",
        Allowed::Renamed => "has this name now at",
        Allowed::Unchanged => "was allowed already at",
    };
    let address = match server_key(dir) {
        Some(key) => format!("`pelago mount {key}@HOST:PORT POINT`"),
        None => "`pelago mount ADDRESS POINT`; the server prints its ADDRESS".to_owned(),
    };
    format!(
        "allowed   {} {what} {}\n\
         trusted   it is believed its user ids, root included, as NFS with sec=sys does\n\
         next      there: {address}\n",
        described(&client.key, client.name.as_ref()),
        dir.display(),
    )
}

/// Returns the key of the volume's server, if it has one: for a hint.
fn server_key(dir: &Path) -> Option<PublicKey> {
    let file = own_file(dir, volume::KEY).ok()?;
    Some(pelago_net::key::file::read_from(&file).ok()?.public())
}

const fn state(allowed: Allowed) -> &'static str {
    match allowed {
        Allowed::New => "allowed",
        Allowed::Renamed => "renamed",
        Allowed::Unchanged => "was-allowed",
    }
}

fn print_client(dir: &Path, client: &AllowedClient, state: &str) -> Outcome<()> {
    output::print_json(&json!({
        "version": json::VERSION,
        "volume": { "dir": dir.to_string_lossy() },
        "client": client_json(client),
        "state": state,
    }))
}

fn client_json(client: &AllowedClient) -> Value {
    json!({
        "key": client.key.to_string(),
        "name": client.name.as_ref().map(KeyName::as_str),
        "since": client.since.map(|since| since.to_string()),
    })
}

fn argument_failed(error: ArgumentError) -> Failure {
    let hint = match &error {
        ArgumentError::Key(_) => {
            "on the machine that is to connect, `pelago key show` prints its public key"
        }
        ArgumentError::Name(_) | ArgumentError::Named { .. } => {
            "a name is, for example, laptop or ann@laptop"
        }
    };
    Failure::new(Exit::Usage, error).hint(hint)
}
