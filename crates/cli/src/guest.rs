//! A guest: its credentials, and the tree that it mounts.
//!
//! One credential of a folder is a mount of that folder. One of a file, or several, are a mount of
//! a directory that has each of them under its name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelago_holder::{Attached, Flat, FlatName, FlatTarget, View};
use pelago_keynote::SharedObject;
use pelago_net::ClientRole;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_wire::{InodeId, LeasedService, Name, Time, limits};
use rustix::process::{getgid, getuid};

use crate::credential::{Chain, Whereabouts};
use crate::failure::{Exit, Failure, Outcome};
use crate::licensed_key::licensed_key;

/// The credentials of a guest, and its tree.
#[derive(Debug, Clone)]
pub(crate) struct Guest {
    /// The texts of each chain: that which may change something first.
    pub(crate) chains: Vec<Vec<String>>,
    /// The tree that they grant.
    tree: Tree,
}

/// The tree of a guest.
#[derive(Debug, Clone)]
enum Tree {
    /// A folder, by one chain.
    Folder(InodeId),
    /// A directory with the name of each chain, in their order.
    Names(Vec<FlatName>),
}

/// The chain in a file.
pub(crate) struct FromFile {
    /// The file, or `-`.
    pub(crate) file: PathBuf,
    pub(crate) chain: Chain,
}

/// The limit for the credentials that are attached together.
const MOST: usize = limits::ATTACHED_CHAINS;

#[derive(Debug, thiserror::Error)]
enum GuestError {
    #[error("{} does not say under which name it is shown", .0.display())]
    NoName(PathBuf),
    #[error("{} is for the whole volume, which is attached alone", .0.display())]
    WholeVolume(PathBuf),
    #[error("{} and {} are both shown as {name}", first.display(), second.display())]
    SameName { first: PathBuf, second: PathBuf, name: Name },
    #[error("{} is for another {what} than {}", second.display(), first.display())]
    Other { first: PathBuf, second: PathBuf, what: &'static str },
    #[error("{0} credentials are too many: {MOST} can be attached together")]
    TooMany(usize),
}

impl Guest {
    /// Returns the guest with one chain, which has no tree to be mounted unless it is a folder's.
    pub(crate) fn of(chain: &Chain) -> Self {
        let tree = Tree::Folder(InodeId::from_raw(chain.last.share.object.inode()));
        Self { chains: vec![chain.texts()], tree }
    }

    /// Returns the guest with the chains of some files, at least one, its key, and the address of
    /// the server.
    pub(crate) fn of_files(files: Vec<FromFile>) -> Outcome<(Self, PrivateKey, ServerAddress)> {
        let unusable = |error, hint| Failure::new(Exit::Usage, error).hint(hint);
        if files.len() > MOST {
            let error = GuestError::TooMany(files.len());
            return Err(unusable(error, "attach the others in another folder"));
        }
        let mut files = files;
        // The chain that is presented first must be one that may change something, if any does.
        files.sort_by_key(|from| !from.chain.may_change());
        let Some(first) = files.first() else {
            return Err(unusable(GuestError::TooMany(0), "name a file"));
        };
        let licensees = |chain: &Chain| chain.last.licensees().collect::<Vec<_>>();
        let key = licensed_key(&licensees(&first.chain))?;
        let address = first.chain.address()?;
        for second in files.iter().skip(1) {
            let other = |what| {
                let second = second.file.clone();
                let error = GuestError::Other { first: first.file.clone(), second, what };
                unusable(error, "attach it in another folder")
            };
            if second.chain.address()?.key() != address.key() {
                return Err(other("server"));
            }
            if second.chain.last.share.volume != first.chain.last.share.volume {
                return Err(other("volume"));
            }
            if !licensees(&second.chain).contains(&key.public()) {
                return Err(other("key"));
            }
        }
        let tree = Tree::of(&files)?;
        let chains = files.iter().map(|from| from.chain.texts()).collect();
        Ok((Self { chains, tree }, key, address))
    }

    /// Returns the role in which a guest connects.
    pub(crate) fn role(&self) -> ClientRole {
        let bytes = |chain: &Vec<String>| {
            chain.iter().map(|text| text.clone().into_bytes()).collect::<Vec<_>>()
        };
        ClientRole::Guest(self.chains.iter().map(bytes).collect())
    }

    /// Returns the tree, over the server's service.
    pub(crate) fn tree(
        &self,
        service: Arc<dyn LeasedService>,
        now: Time,
    ) -> Arc<dyn LeasedService> {
        let view = self.view();
        match &self.tree {
            Tree::Folder(_) => Arc::new(Attached::new(service, view)),
            Tree::Names(names) => Arc::new(Flat::new(service, names.clone(), view, now)),
        }
    }

    /// Returns the view that this process has of the tree.
    pub(crate) fn view(&self) -> View {
        let directory = match &self.tree {
            Tree::Folder(folder) => *folder,
            Tree::Names(_) => InodeId::ROOT,
        };
        View::new(directory, getuid().as_raw(), getgid().as_raw())
    }

    /// Returns the name under which the object of a chain is shown, for people.
    pub(crate) fn shown(&self, index: usize) -> String {
        match &self.tree {
            Tree::Names(names) => names.get(index).map(|named| named.shown.to_string()),
            Tree::Folder(_) => None,
        }
        .unwrap_or_default()
    }

    /// Returns the chain by which the guest has a name in the root of its mount; that of a mounted
    /// folder for each name, and for the root itself (`None`).
    pub(crate) fn chain_of(&self, name: Option<&[u8]>) -> Option<&Vec<String>> {
        let index = match &self.tree {
            Tree::Folder(_) => 0,
            Tree::Names(names) => {
                let name = name?;
                names.iter().position(|named| named.shown.as_bytes() == name)?
            }
        };
        self.chains.get(index)
    }
}

impl Tree {
    fn of(files: &[FromFile]) -> Outcome<Self> {
        if let [FromFile { chain, .. }] = files
            && let SharedObject::Folder(folder) = chain.last.share.object
        {
            return Ok(Self::Folder(InodeId::from_raw(folder)));
        }
        let mut names: Vec<FlatName> = Vec::new();
        for from in files {
            if from.chain.last.share.object == SharedObject::Folder(InodeId::ROOT.raw()) {
                // The root of the mount has its number.
                return Err(Failure::new(Exit::Usage, GuestError::WholeVolume(from.file.clone()))
                    .hint("attach it in another folder"));
            }
            let named = from.named()?;
            if let Some(at) = names.iter().position(|other| other.shown == named.shown) {
                let first = files.get(at).map(|first| first.file.clone()).unwrap_or_default();
                let error =
                    GuestError::SameName { first, second: from.file.clone(), name: named.shown };
                return Err(Failure::new(Exit::Usage, error).hint("attach one in another folder"));
            }
            names.push(named);
        }
        Ok(Self::Names(names))
    }
}

impl FromFile {
    /// Returns the name under which the object of the credential is shown. It is that of the signed
    /// conditions, else that of the comment, if it can be the name of a file.
    fn named(&self) -> Outcome<FlatName> {
        let comment = self.chain.last.credential.comment();
        let no_name = || {
            Failure::new(Exit::Failed, GuestError::NoName(self.file.clone()))
                .hint("ask for one that `pelago share` has written")
        };
        let shown = self.chain.name().and_then(|name| Name::new(&name).ok());
        let shown = shown.ok_or_else(no_name)?;
        let name = shown.clone();
        let target = match &self.chain.last.share.object {
            SharedObject::Folder(ino) => FlatTarget::Folder(InodeId::from_raw(*ino)),
            SharedObject::File(ino) => {
                // Without it the file is sought by its number.
                let dir = Whereabouts::parent_in(comment).unwrap_or(InodeId::ROOT);
                FlatTarget::File { ino: InodeId::from_raw(*ino), dir, name }
            }
            SharedObject::Name { directory, .. } => {
                FlatTarget::Name { dir: InodeId::from_raw(*directory), name }
            }
        };
        Ok(FlatName { shown, target })
    }
}

/// Returns the first name below a mount point on the way to a path.
pub(crate) fn first_name<'a>(point: &Path, path: &'a Path) -> Option<&'a std::ffi::OsStr> {
    Some(path.strip_prefix(point).ok()?.components().next()?.as_os_str())
}

#[cfg(test)]
mod tests {
    use pelago_keynote::{Credential, Grant, Principal, SharedName};

    use super::*;

    fn from(comment: &[&str], object: SharedObject) -> FromFile {
        let key = PrivateKey::from_seed([1; 32]);
        let grant = Grant { object, ..Grant::to_read([5; 16], 0x2a) };
        let comment: Vec<String> = comment.iter().map(|line| (*line).to_owned()).collect();
        let licensee = Principal(*PrivateKey::from_seed([2; 32]).public().as_bytes());
        let conditions = grant.conditions();
        let credential = Credential { comment: &comment, licensee, conditions: &conditions };
        let text = credential.sign(&key.signing_key()).unwrap();
        FromFile { file: "cred".into(), chain: Chain::parse(&[text]).unwrap() }
    }

    #[test]
    fn a_name_that_is_no_name_of_a_file_is_refused() {
        for name in ["..", ".", "a%2Fb", "%2F", "a%00b", "%1B%5B2J", "a%0A", "%zz", ""] {
            let line = format!("name {name}");
            let from = from(&["a file", line.trim_end()], SharedObject::File(0x2b));
            assert!(from.named().is_err(), "{name}");
        }
        let none = from(&["a file"], SharedObject::File(0x2b));
        assert!(none.named().is_err(), "no name");
    }

    #[test]
    fn a_file_is_shown_by_the_name_that_was_signed() {
        let lines = ["a file", "file 2b in 20", "name Pl%C3%A4n%20b"];
        let file = from(&lines, SharedObject::File(0x2b)).named().unwrap();
        let name = Name::new("Plän b".as_bytes()).unwrap();
        let dir = InodeId::from_raw(0x20);
        let target = FlatTarget::File { ino: InodeId::from_raw(0x2b), dir, name: name.clone() };
        assert_eq!(file, FlatName { shown: name.clone(), target });
        let signed = SharedName::new("Plän b".as_bytes()).unwrap();
        let object = SharedObject::Name { directory: 0x20, name: signed };
        let by_name = from(&["a file", "name other"], object).named().unwrap();
        assert_eq!(by_name.shown, name, "that of the conditions");
        assert_eq!(by_name.target, FlatTarget::Name { dir, name });
    }

    #[test]
    fn one_folder_is_the_root_and_others_are_names_in_it() {
        let tree = |files: Vec<FromFile>| match Tree::of(&files) {
            Ok(Tree::Folder(_)) => "folder".to_owned(),
            Ok(Tree::Names(names)) => {
                names.iter().map(|named| named.shown.to_string()).collect::<Vec<_>>().join(" ")
            }
            Err(_) => "error".to_owned(),
        };
        let docs = || from(&["a folder", "name docs"], SharedObject::Folder(0x21));
        let report = || from(&["a file", "name report"], SharedObject::File(0x22));
        assert_eq!(tree(vec![docs()]), "folder");
        assert_eq!(tree(vec![report()]), "report");
        assert_eq!(tree(vec![docs(), report()]), "docs report");
        assert_eq!(tree(vec![report(), report()]), "error", "one name twice");
        let all = || from(&["a folder", "name files"], SharedObject::Folder(1));
        assert_eq!(tree(vec![all()]), "folder");
        assert_eq!(tree(vec![all(), report()]), "error", "the whole volume");
    }
}
