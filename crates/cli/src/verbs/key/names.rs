//! `pelago key name` and `unname`: the names of keys of a volume, and the users as whom guests act.

use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::User;
use pelago_keynote::key::named::{Named, NamedKey, UserRef, UserRefError};
use pelago_net::clients::date::Date;
use pelago_net::clients::file::ClientsFileError;
use pelago_net::clients::{ChangeError, Clients, KeyName, KeyNameError};
use pelago_net::key::PublicKey;
use serde_json::{Value, json};

use crate::failure::{Exit, Failure, Outcome};
use crate::key_argument::{self, KeyArgumentError};
use crate::key_names::{clients_failed, described, edit_keys, keys_failed};
use crate::{json, locate, output};

pub(super) const NAME: &str = "\
NAME then stands for KEY: `pelago share --to NAME`, `pelago revoke NAME`, and what is printed of \
its guests. It is also the name of that machine, if it may connect. With `--user` those to whom \
KEY shares folders on act as this user of the machine of the volume: with these modes and groups, \
and what they make belongs to that user. Without a user they act as the one from whom KEY has the \
folder, in the end as the owner of the volume. A name that is given again keeps its user. The list \
is the file `keys` in the volume's folder, which may also be edited by hand.";

pub(super) const UNNAME: &str = "\
The key keeps what was shared with it: `pelago revoke NAME`, before, takes that back.";

#[derive(Debug, clap::Args)]
pub(super) struct NameArgs {
    /// The name: letters, digits, dots, hyphens, underscores and @
    #[arg(value_name = "NAME")]
    name: String,
    /// The public key: `pelago key show` prints it there. Or an OpenSSH key, 'ssh-ed25519 AAAA...',
    /// or a file with one, such as id_ed25519.pub
    #[arg(value_name = "KEY")]
    key: String,
    /// The user as whom guests act that have their folders from this key: a name, or a number
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// The volume's folder
    #[arg(short = 'V', long, value_name = "DIR")]
    volume: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct UnnameArgs {
    /// The name
    #[arg(value_name = "NAME")]
    name: String,
    /// The volume's folder
    #[arg(short = 'V', long, value_name = "DIR")]
    volume: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, thiserror::Error)]
enum NameError {
    #[error("KEY is not a public key")]
    Key(#[source] KeyArgumentError),
    #[error(transparent)]
    Name(#[from] KeyNameError),
    #[error("USER is not a user")]
    User(#[from] UserRefError),
    #[error("this machine has no user `{0}`")]
    NoUser(String),
    #[error("the user `{user}` cannot be looked up")]
    LookUp {
        user: String,
        #[source]
        source: io::Error,
    },
}

/// Gives a key a name.
pub(super) fn name(args: &NameArgs) -> Outcome<()> {
    let name: KeyName = parse_name(&args.name)?;
    let key = key_argument::read(&args.key).map_err(|error| {
        Failure::new(Exit::Usage, NameError::Key(error))
            .hint("there, `pelago key show` prints it; ~/.ssh/id_ed25519.pub has one too")
    })?;
    let user = args.user.as_deref().map(user).transpose()?;
    let dir = locate::find(args.volume.as_deref(), None)?.dir;
    let (state, named) = edit_keys(&dir, |keys, clients| {
        rename_machine(clients, key, &name)?;
        let listed = keys.iter().find(|named| named.key == key);
        let user = user.or_else(|| listed.and_then(|named| named.user.clone()));
        let named = NamedKey { key, name, user };
        let state = keys.set(named.clone()).map_err(|error| keys_failed(error.into()))?;
        Ok((state, named))
    })?;
    let word = match state {
        Named::New => "named",
        Named::Changed => "renamed",
        Named::Unchanged => "was-named",
    };
    if args.json {
        return print_key(&dir, &named, word);
    }
    let acts = named.user.as_ref().map_or_else(String::new, |user| {
        format!("acts      those to whom it shares folders on act as the user {user}\n")
    });
    let name = &named.name;
    output::print(&format!(
        "named     {}\n{acts}next      `pelago share FOLDER --to {name}`; \
         `pelago revoke {name}` takes all back\n",
        described(&key, Some(name)),
    ))
}

/// Takes a name back.
pub(super) fn unname(args: &UnnameArgs) -> Outcome<()> {
    let name = parse_name(&args.name)?;
    let dir = locate::find(args.volume.as_deref(), None)?.dir;
    let named =
        edit_keys(&dir, |keys, _| keys.remove(&name).map_err(|error| keys_failed(error.into())))?;
    if args.json {
        return print_key(&dir, &named, "unnamed");
    }
    let acts = named.user.as_ref().map_or_else(String::new, |user| {
        format!("acts      those to whom it shares folders on act as {user} no more\n")
    });
    output::print(&format!("unnamed   {}\n{acts}", described(&named.key, Some(&named.name))))
}

/// Gives a machine that may connect the name of its key. A name has one key in both lists.
fn rename_machine(clients: &mut Clients, key: PublicKey, name: &KeyName) -> Outcome<()> {
    let failed = |error: ChangeError| clients_failed(ClientsFileError::Change(error));
    let has_name = |listed: &Option<KeyName>| listed.as_ref() == Some(name);
    let taken = clients.iter().find(|client| has_name(&client.name) && client.key != key);
    if let Some(taken) = taken {
        return Err(failed(ChangeError::NameTaken { name: name.clone(), key: taken.key }));
    }
    let has_other = clients.iter().any(|client| client.key == key && client.name.is_some());
    if has_other {
        clients.allow(key, Some(name.clone()), Date::today()).map_err(failed)?;
    }
    Ok(())
}

/// Returns a user of this machine. A number needs no account.
fn user(text: &str) -> Outcome<UserRef> {
    let failed = |exit, error| {
        Failure::new(exit, error).hint("give the name of a user of this machine, or a number")
    };
    let user = text.parse().map_err(|error: UserRefError| failed(Exit::Usage, error.into()))?;
    let UserRef::Name(name) = &user else { return Ok(user) };
    match User::from_name(name) {
        Ok(Some(_)) => Ok(user),
        Ok(None) => Err(failed(Exit::NotFound, NameError::NoUser(name.clone()))),
        Err(error) => {
            let source = io::Error::from(error);
            Err(failed(Exit::Failed, NameError::LookUp { user: name.clone(), source }))
        }
    }
}

fn parse_name(text: &str) -> Outcome<KeyName> {
    text.parse().map_err(|error: KeyNameError| {
        Failure::new(Exit::Usage, NameError::Name(error))
            .hint("a name is, for example, bob or ann@laptop")
    })
}

/// Returns the line of a named key in the list of names.
pub(super) fn list_line(named: &NamedKey) -> String {
    let user = named.user.as_ref().map_or_else(String::new, |user| format!("  user={user}"));
    format!("{}  {:<10}  {}{user}\n", named.key, "named", named.name)
}

pub(super) fn to_json(named: &NamedKey) -> Value {
    json!({
        "key": named.key.to_string(),
        "name": named.name.as_str(),
        "user": named.user.as_ref().map(UserRef::to_string),
    })
}

fn print_key(dir: &Path, named: &NamedKey, state: &str) -> Outcome<()> {
    output::print_json(&json!({
        "version": json::VERSION,
        "volume": { "dir": dir.to_string_lossy() },
        "key": to_json(named),
        "state": state,
    }))
}
