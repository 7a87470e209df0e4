//! The users as whom guests act, as the file `keys` of the volume binds them to keys.

use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use nix::unistd::{Uid, User as Account, getgrouplist};
use parking_lot::RwLock;
use pelago_keynote::Principal;
use pelago_keynote::key::named::{NamedKeys, UserRef};
use pelago_store::folder::Folder;
use pelago_store::volume;
use pelago_wire::Time;
use pelago_wire::limits::KEYS_BYTES;
use rustix::fs::fstat;
use rustix::process::geteuid;

use super::chain::{Chain, Link};
use super::watched::{Source, Watched};

/// The group of a number that no account has: "nogroup", to which no user belongs.
const NO_GROUP: u32 = 65_534;

/// A user with its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The other groups; `gid` may be among them.
    pub(crate) groups: Vec<u32>,
}

/// The users to whom keys are bound.
#[derive(Default)]
pub(super) struct Bound {
    users: HashMap<Principal, Arc<User>>,
    /// The text of the list.
    text: String,
}

/// The users to whom the charter binds keys; `None` for one whom this machine does not have.
#[derive(Default)]
pub(super) struct BoundElsewhere(HashMap<Principal, Option<Arc<User>>>);

/// The users as whom guests act, which follow changes of the file.
///
/// Accounts are looked up when the file is read, and not again before it changes: a request of a
/// guest must not wait for a directory of accounts.
pub(super) struct Users {
    file: Watched<Arc<Bound>>,
    /// The users of further keys, as the first site has them.
    elsewhere: RwLock<Arc<BoundElsewhere>>,
    /// The number of changes of `elsewhere`.
    changes_elsewhere: AtomicU64,
    /// The user of the volume.
    of_volume: OnceLock<Arc<User>>,
}

impl Users {
    pub(super) fn new(folder: Folder) -> Self {
        let source = Source { name: volume::KEYS, what: "the keys", limit: KEYS_BYTES, read };
        Self {
            file: Watched::new(folder, source),
            elsewhere: RwLock::default(),
            changes_elsewhere: AtomicU64::new(0),
            of_volume: OnceLock::new(),
        }
    }

    /// Returns the text of the list that is in force; `None` if there is none that can be used.
    pub(super) fn text(&self) -> Option<String> {
        let state = self.file.checked();
        state.is_known.then(|| state.content.text.clone())
    }

    /// Puts the list of the first site in force beside the own one, which goes first. A user whom
    /// this machine does not have is nobody here: the key has no guest.
    pub(super) fn set_elsewhere(&self, bound: BoundElsewhere) {
        *self.elsewhere.write() = Arc::new(bound);
        self.changes_elsewhere.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of changes of the file, at this present time.
    #[inline]
    pub(super) fn changes(&self, now: Time) -> u64 {
        // Both only grow.
        self.file.changes(now) + self.changes_elsewhere.load(Ordering::Acquire)
    }

    /// Returns the own list that is in force; `None` if there is none that can be used yet: the
    /// volume's user may do more than the one whom it binds. May wait for a directory of accounts.
    pub(super) fn own(&self) -> Option<Arc<Bound>> {
        let state = self.file.checked();
        state.is_known.then(|| Arc::clone(&state.content))
    }

    /// Returns the user as whom a guest with this key and chain acts: that of the nearest key
    /// towards the root that is bound to a user, by the own list or that of the first site, else
    /// that of the volume.
    ///
    /// `None` if the first site binds one of the keys to a user whom this machine does not have, or
    /// if several paths lead to different users: each would be cut by the modes of one user, and
    /// the guest would act with the envelope of both.
    pub(super) fn of_chain(
        &self,
        own: &Bound,
        chain: &Chain,
        guest: &Principal,
        is_root: impl Fn(&Principal) -> bool,
    ) -> Option<Arc<User>> {
        let elsewhere = Arc::clone(&self.elsewhere.read());
        // The users of each link; a link is signed by a root, or by a licensee of links before.
        let mut of_links: Vec<Vec<Arc<User>>> = Vec::with_capacity(chain.links.len());
        let licences: Vec<&Link> = chain
            .links
            .iter()
            .filter(|link| link.licence.is_some() && is_root(&link.authorizer))
            .collect();
        for link in &chain.links {
            let key = &link.authorizer;
            let is_licence = licences.iter().any(|licence| licence.id == link.id);
            let of_key = own.users.get(key).map(Some).or_else(|| {
                let found = elsewhere.0.get(key)?;
                Some(found.as_ref())
            });
            of_links.push(match of_key {
                // The maker of a node goes on as the user as whom it has made that, by the chain
                // to which the credential is bound.
                _ if is_licence || link.is_issued_by(&licences) => Vec::new(),
                Some(Some(user)) => vec![Arc::clone(user)],
                Some(None) => return None,
                None if is_root(key) => vec![self.of_volume()],
                None => users_above(chain, &of_links, key),
            });
        }
        match users_above(chain, &of_links, guest).as_slice() {
            [user] => Some(Arc::clone(user)),
            _ => None,
        }
    }

    /// Returns the owner of the volume's folder.
    fn of_volume(&self) -> Arc<User> {
        let find = || {
            let folder = fstat(self.file.folder()).ok();
            let uid = folder.map_or_else(|| geteuid().as_raw(), |stat| stat.st_uid);
            let gid = folder.map_or(NO_GROUP, |stat| stat.st_gid);
            let groups = match of_uid(uid) {
                Ok(user) => user.groups,
                Err(problem) => {
                    tracing::warn!(%problem, "guests act without the groups of the volume's user");
                    Vec::new()
                }
            };
            User { uid, gid, groups }
        };
        Arc::clone(self.of_volume.get_or_init(|| Arc::new(find())))
    }
}

impl BoundElsewhere {
    /// Reads the list of the first site, and looks up those of its users whom this machine has: may
    /// wait for a directory of accounts.
    ///
    /// # Errors
    /// If it is no list.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let list = parse(text)?;
        let mut bound = HashMap::new();
        for (line, named) in list.lines() {
            let Some(user) = &named.user else { continue };
            let found = find(user).map(Arc::new);
            let found = found.inspect_err(|problem| {
                tracing::warn!(line, problem, "a key of the first office has no guest here");
            });
            bound.insert(Principal(*named.key.as_bytes()), found.ok());
        }
        Ok(Self(bound))
    }
}

/// Returns the different users of the links that license a key.
fn users_above(chain: &Chain, of_links: &[Vec<Arc<User>>], key: &Principal) -> Vec<Arc<User>> {
    let links = chain.links.iter().zip(of_links).filter(|(link, _)| link.licenses(key));
    let mut found: Vec<Arc<User>> = Vec::new();
    for user in links.flat_map(|(_, users)| users) {
        if !found.contains(user) {
            found.push(Arc::clone(user));
        }
    }
    found
}

/// Parses a list.
fn parse(text: &str) -> Result<NamedKeys, String> {
    NamedKeys::parse(text).map_err(|error| {
        let line = error.line;
        format!("line {line}: {}: correct or remove it", error.source)
    })
}

/// Reads the list, and looks up its users.
fn read(text: &[u8]) -> Result<Arc<Bound>, String> {
    let text = str::from_utf8(text).ok().filter(|text| text.len() <= KEYS_BYTES);
    let text = text.ok_or_else(|| {
        format!("it is not a text of at most {KEYS_BYTES} bytes: restore or shorten it")
    })?;
    let list = parse(text)?;
    let mut bound = HashMap::new();
    // A user is looked up once, whose name many lines may have.
    let mut users: HashMap<&UserRef, Arc<User>> = HashMap::new();
    for (line, named) in list.lines() {
        let Some(user) = &named.user else { continue };
        let found = match users.get(user) {
            Some(found) => Arc::clone(found),
            None => {
                let found = find(user).map_err(|problem| format!("line {line}: {problem}"))?;
                let found = Arc::new(found);
                users.insert(user, Arc::clone(&found));
                found
            }
        };
        bound.insert(Principal(*named.key.as_bytes()), found);
    }
    Ok(Arc::new(Bound { users: bound, text: text.to_owned() }))
}

/// Finds a user and its groups.
fn find(user: &UserRef) -> Result<User, String> {
    match user {
        UserRef::Uid(uid) => of_uid(*uid),
        UserRef::Name(name) => match Account::from_name(name) {
            Ok(Some(account)) => of_account(&account),
            Ok(None) => Err(format!("this machine has no user {name}: correct or remove it")),
            Err(error) => Err(failed(name, error)),
        },
    }
}

/// Returns the user with this number, who needs no account.
fn of_uid(uid: u32) -> Result<User, String> {
    match Account::from_uid(Uid::from_raw(uid)) {
        Ok(Some(account)) => of_account(&account),
        Ok(None) => Ok(User { uid, gid: NO_GROUP, groups: Vec::new() }),
        Err(error) => Err(failed(&uid.to_string(), error)),
    }
}

fn of_account(account: &Account) -> Result<User, String> {
    let name = &account.name;
    let text = CString::new(name.as_str()).map_err(|_| format!("the user {name:?} has a NUL"))?;
    let groups = getgrouplist(&text, account.gid).map_err(|error| failed(name, error))?;
    let groups = groups.iter().map(|gid| gid.as_raw()).collect();
    Ok(User { uid: account.uid.as_raw(), gid: account.gid.as_raw(), groups })
}

fn failed(name: &str, error: nix::Error) -> String {
    format!("the user {name} cannot be looked up: {}", io::Error::from(error))
}

#[cfg(test)]
mod tests;
