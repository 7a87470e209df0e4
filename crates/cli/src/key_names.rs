//! The names of keys in a volume: of the machines that may connect (`clients`), and of the persons
//! to whom folders are shared (`keys`). A name stands for one key in both.

use std::path::{Path, PathBuf};

use pelago_keynote::key::named::{NamedChangeError, NamedKeys, NamedKeysError};
use pelago_net::clients::file::{self, ClientsFileError};
use pelago_net::clients::{Clients, KeyName};
use pelago_net::key::PublicKey;
use pelago_net::own_file::{OwnFile, OwnFileError, Readers};
use pelago_store::volume;
use pelago_wire::{Kind, limits};

use crate::charter;
use crate::failure::{Exit, Failure, Outcome};
use crate::key_argument::{self, KeyArgumentError};
use crate::verbs::key::own_file;

/// The reason why the list of named keys is not read or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyNamesError {
    /// The file is open to others, is being changed, or a system call failed.
    #[error(transparent)]
    File(#[from] OwnFileError),
    /// A line is wrong.
    #[error("{} cannot be used", path.display())]
    Text {
        path: PathBuf,
        #[source]
        source: NamedKeysError,
    },
    /// The change does not fit the list.
    #[error(transparent)]
    Change(#[from] NamedChangeError),
    /// The lists were edited by hand.
    #[error("the name {0} stands for one key in `keys` and for another one in `clients`")]
    TwoKeys(KeyName),
}

/// The names of keys in a volume.
pub(crate) struct KeyNames {
    clients: Clients,
    keys: NamedKeys,
    /// Those of the first office, in the folder of another one. The own ones go first.
    elsewhere: NamedKeys,
}

impl KeyNames {
    /// Reads the names of the volume in this folder.
    pub(crate) fn of(dir: &Path) -> Outcome<Self> {
        let clients = clients_of(&own_file(dir, volume::CLIENTS)?)?;
        Ok(Self { clients, keys: keys_of(dir)?, elsewhere: charter::named_keys(dir)? })
    }

    /// Returns the key with this name, if there is one.
    pub(crate) fn key(&self, name: &KeyName) -> Outcome<Option<PublicKey>> {
        let of_machine = self.clients.iter().find(|client| client.name.as_ref() == Some(name));
        let of_machine = of_machine.map(|client| client.key);
        let named = self.keys.find(name).map(|named| named.key);
        if let (Some(machine), Some(named)) = (of_machine, named)
            && machine != named
        {
            return Err(keys_failed(KeyNamesError::TwoKeys(name.clone())));
        }
        let elsewhere = || self.elsewhere.find(name).map(|named| named.key);
        Ok(named.or(of_machine).or_else(elsewhere))
    }

    /// Returns the name of a key, if it has one.
    pub(crate) fn name(&self, key: &PublicKey) -> Option<&KeyName> {
        let named = self.keys.iter().find(|named| named.key == *key).map(|named| &named.name);
        named.or_else(|| self.machine(key)?.name.as_ref()).or_else(|| {
            let named = self.elsewhere.iter().find(|named| named.key == *key);
            named.map(|named| &named.name)
        })
    }

    /// Returns whether the key is that of a machine that may connect.
    pub(crate) fn is_machine(&self, key: &PublicKey) -> bool {
        self.machine(key).is_some()
    }

    fn machine(&self, key: &PublicKey) -> Option<&pelago_net::clients::AllowedClient> {
        self.clients.iter().find(|client| client.key == *key)
    }
}

/// A key that an argument names.
pub(crate) struct Person {
    pub(crate) key: PublicKey,
    /// Its name in the volume, if it has one there.
    pub(crate) name: Option<KeyName>,
}

impl Person {
    /// Returns the key of the argument `text`, which has one or is the path of a file with one, or
    /// is a name of the volume in `dir`. Without a volume there are no names.
    pub(crate) fn read(
        text: &str,
        dir: Option<&Path>,
        failed: impl Fn(KeyArgumentError) -> Failure,
    ) -> Outcome<Self> {
        let names = dir.map(KeyNames::of);
        let Ok(name) = text.parse::<KeyName>() else {
            let key = key_argument::read(text).map_err(failed)?;
            // The name is only shown: a list that cannot be read changes nothing.
            let names = names.and_then(Result::ok);
            let name = names.and_then(|names| names.name(&key).cloned());
            return Ok(Self { key, name });
        };
        let named = names.transpose()?.map(|names| names.key(&name)).transpose()?.flatten();
        match (named, Path::new(text).exists()) {
            (Some(_), true) => Err(failed(KeyArgumentError::Ambiguous(name))),
            (Some(key), false) => Ok(Self { key, name: Some(name) }),
            (None, _) => Ok(Self { key: key_argument::read(text).map_err(failed)?, name: None }),
        }
    }

    /// Returns the key for people, with its name.
    pub(crate) fn described(&self) -> String {
        described(&self.key, self.name.as_ref())
    }
}

/// Returns a key for people, with its name.
pub(crate) fn described(key: &PublicKey, name: Option<&KeyName>) -> String {
    match name {
        Some(name) => format!("{key} ({name})"),
        None => key.to_string(),
    }
}

/// Returns the named keys of the volume in this folder.
pub(crate) fn keys_of(dir: &Path) -> Outcome<NamedKeys> {
    read(&own_file(dir, volume::KEYS)?).map_err(keys_failed)
}

/// Changes the list of machines, beside the named keys as they are.
///
/// The lock of this list is that of all names, so that two commands do not give one name to two
/// keys at once.
pub(crate) fn edit_clients<T>(
    dir: &Path,
    change: impl FnOnce(&mut Clients, &NamedKeys) -> Outcome<T>,
) -> Outcome<T> {
    let file = own_file(dir, volume::CLIENTS)?;
    let edit = file.edit().map_err(file_failed)?;
    let before = clients_of(&file)?;
    let mut clients = before.clone();
    let result = change(&mut clients, &keys_of(dir)?)?;
    if clients != before {
        edit.finish(&clients.to_text()).map_err(file_failed)?;
    }
    Ok(result)
}

/// Changes the named keys, and the list of machines if one of these gets another name.
pub(crate) fn edit_keys<T>(
    dir: &Path,
    change: impl FnOnce(&mut NamedKeys, &mut Clients) -> Outcome<T>,
) -> Outcome<T> {
    edit_clients(dir, |clients, keys| {
        let file = own_file(dir, volume::KEYS)?;
        let edit = file.edit().map_err(file_failed)?;
        let mut changed = keys.clone();
        let result = change(&mut changed, clients)?;
        if changed != *keys {
            edit.finish(&changed.to_text()).map_err(file_failed)?;
        }
        Ok(result)
    })
}

fn clients_of(file: &OwnFile) -> Outcome<Clients> {
    file::read(file).map_err(clients_failed)
}

/// Reads the list. A missing file is an empty list.
fn read(file: &OwnFile) -> Result<NamedKeys, KeyNamesError> {
    let text = match file.read(Readers::Everybody, limits::KEYS_BYTES) {
        Err(OwnFileError::Missing { .. }) => return Ok(NamedKeys::default()),
        read => read?.0,
    };
    NamedKeys::parse(&text)
        .map_err(|source| KeyNamesError::Text { path: file.path().to_owned(), source })
}

fn file_failed(error: OwnFileError) -> Failure {
    Failure::new(Exit::from(error.kind()), error)
}

/// Returns the failure of the list of machines, with a hint.
pub(crate) fn clients_failed(error: ClientsFileError) -> Failure {
    let exit = Exit::from(error.kind());
    let hint = match &error {
        ClientsFileError::Text { path, source } => {
            format!("correct or remove line {} of {}", source.line, path.display())
        }
        ClientsFileError::Change(pelago_net::clients::ChangeError::NotListed { .. }) => {
            "`pelago key list` prints the machines that may connect".to_owned()
        }
        ClientsFileError::Change(pelago_net::clients::ChangeError::NameTaken { name, .. }) => {
            format!("choose another name, or take it back: `pelago key remove {name}`")
        }
        _ => return Failure::new(exit, error),
    };
    Failure::new(exit, error).hint(hint)
}

/// Returns the failure of the list of named keys, with a hint.
pub(crate) fn keys_failed(error: KeyNamesError) -> Failure {
    let exit = match &error {
        KeyNamesError::File(error) => Exit::from(error.kind()),
        KeyNamesError::Change(NamedChangeError::NotListed { .. }) => Exit::NotFound,
        KeyNamesError::Change(NamedChangeError::NameTaken { .. }) => Exit::from(Kind::Exists),
        KeyNamesError::Text { .. } | KeyNamesError::TwoKeys(_) | KeyNamesError::Change(_) => {
            Exit::Failed
        }
    };
    let hint = match &error {
        KeyNamesError::Text { path, source } => {
            format!("correct or remove line {} of {}", source.line, path.display())
        }
        KeyNamesError::TwoKeys(_) => "change one of these lists by hand".to_owned(),
        KeyNamesError::Change(NamedChangeError::NotListed { .. }) => {
            "`pelago key list` prints the names".to_owned()
        }
        KeyNamesError::Change(NamedChangeError::NameTaken { name, .. }) => {
            format!("choose another name, or take it back: `pelago key unname {name}`")
        }
        _ => return Failure::new(exit, error),
    };
    Failure::new(exit, error).hint(hint)
}
