//! A share by a guest, who passes on a part of what was shared with him. No server is asked: his
//! own credentials and the new one are a chain, which the server evaluates when it is used.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use pelago_keynote::{SharedObject, unarmor};
use pelago_net::key::PublicKey;
use pelago_wire::InodeId;

use super::error::{ShareError, elsewhere, not_here};
use super::object::{Object, examine};
use super::{Shared, Terms};
use crate::control::{AskError, ControlReply, Request, ask};
use crate::credential::{self, Chain, Wanted, Whereabouts, printable};
use crate::failure::{Exit, Failure, Outcome};
use crate::guest::first_name;
use crate::licensed_key::licensed_key;
use crate::locate;
use crate::moment::Moment;
use crate::up_volume::PATIENCE;

/// The subject of a new credential.
struct Signed {
    /// It, as the comment says.
    node: Object,
    object: SharedObject,
}

/// Signs a credential for a folder or a file in the mount at `point`, whose process has the socket
/// in `dir`.
pub(super) fn share(
    dir: &Path,
    point: &Path,
    path: &Path,
    to: &PublicKey,
    terms: &Terms,
) -> Outcome<Shared> {
    let node = examine(point, path)?;
    let chain = chain_of(dir, point, path)?;
    let node = node.outside(&chain);
    let object = match &chain.last.share.object {
        SharedObject::Folder(_) => node.shared(path, terms.by_name)?,
        SharedObject::File(_) if terms.by_name => {
            return Err(Failure::new(Exit::Usage, ShareError::FileByName(path.to_owned()))
                .hint("share it on without `--by-name`"));
        }
        // It is what was shared.
        same => same.clone(),
    };
    if node.ino.site() != InodeId::from_raw(chain.last.share.object.inode()).site() {
        return Err(elsewhere(path));
    }
    sign(path, &chain, Signed { node, object }, to, terms)
}

/// Signs a credential for what the credential in a file grants. Neither a mount nor a server is
/// needed for it.
pub(super) fn share_whole(path: &Path, to: &PublicKey, terms: &Terms) -> Outcome<Shared> {
    let chain = credential::read(path)?;
    let object = chain.last.share.object.clone();
    if terms.by_name && !matches!(object, SharedObject::Name { .. }) {
        return Err(Failure::new(Exit::Usage, ShareError::FileByName(path.to_owned()))
            .hint("share it on without `--by-name`"));
    }
    let comment = chain.last.credential.comment();
    let own = InodeId::from_raw(object.inode());
    let node = Object {
        ino: Whereabouts::object_in(comment).unwrap_or(own),
        parent: Whereabouts::parent_in(comment).unwrap_or(InodeId::ROOT),
        name: Whereabouts::raw_name_in(comment).unwrap_or_default(),
        is_root: true,
        is_folder: matches!(object, SharedObject::Folder(_)),
    };
    sign(path, &chain, Signed { node, object }, to, terms)
}

/// Signs a credential that follows those of a chain.
fn sign(
    path: &Path,
    chain: &Chain,
    signed: Signed,
    to: &PublicKey,
    terms: &Terms,
) -> Outcome<Shared> {
    let Signed { node, object } = signed;
    let key = licensed_key(&chain.last.licensees().collect::<Vec<_>>())?;
    let address = chain.address()?;
    let wanted = Wanted {
        rights: terms.rights,
        may_share: terms.may_share,
        until: terms.until.as_deref(),
        from: terms.from,
    };
    let grant = chain.narrowed(object, wanted, &Moment::now().digits()).map_err(|source| {
        Failure::new(Exit::Denied, ShareError::Narrow { path: path.to_owned(), source })
            .hint("ask for more the person who has shared it with you, or ask for less")
    })?;
    let mut texts = chain.texts();
    texts.push(node.credential(&address, to, &grant, &key)?);
    Ok(Shared { chain: texts, grant, to: *to, address, spare: None })
}

/// A file or folder in the mount of a guest, as the server knows it.
pub(crate) struct NamedNode {
    pub(crate) ino: InodeId,
    /// Of a file: its directory, and its name there as printable ASCII.
    pub(crate) file: Option<(InodeId, String)>,
}

/// Finds a file or folder in the mount at `point`, whose process has the socket in `dir`.
pub(crate) fn named_in_mount(dir: &Path, point: &Path, path: &Path) -> Outcome<NamedNode> {
    let node = examine(point, path)?;
    let node = node.outside(&chain_of(dir, point, path)?);
    let file = (!node.is_folder).then(|| (node.parent, printable(&node.name)));
    Ok(NamedNode { ino: node.ino, file })
}

/// Asks the process of a mount for the credentials by which it is a guest.
pub(crate) fn chain_of(dir: &Path, point: &Path, path: &Path) -> Outcome<Chain> {
    let silent =
        |exit, source| Failure::new(exit, ShareError::Silent { point: point.to_owned(), source });
    let name = first_name(point, &locate::absolute(path)?).map(|name| printable(name.as_bytes()));
    let block = match ask(dir, Request::Credentials { name }, PATIENCE) {
        Ok((ControlReply::Credentials(block), _)) if block.is_empty() => {
            return Err(Failure::new(Exit::Usage, ShareError::Names(path.to_owned()))
                .hint("share one of the names in it"));
        }
        Ok((ControlReply::Credentials(block), _)) => block,
        // It is a mount of a machine that the server knows.
        Err(AskError::Refused { .. }) => return Err(not_here(locate::absolute(path)?)),
        Ok(_) => return Err(silent(Exit::Failed, AskError::Garbled)),
        Err(error) => {
            return Err(silent(Exit::Unreachable, error).hint("attach the folder again"));
        }
    };
    let texts = unarmor(&block).map_err(|error| Failure::new(Exit::Failed, error))?;
    Chain::parse(&texts).map_err(|error| Failure::new(Exit::Failed, ShareError::Mounted(error)))
}

impl Object {
    /// Returns the object with the inode numbers of the server. The root of the mount has another
    /// one there, or is none at all if files were attached one by one.
    fn outside(self, chain: &Chain) -> Self {
        let comment = chain.last.credential.comment();
        let attached = InodeId::from_raw(chain.last.share.object.inode());
        let is_folder = matches!(chain.last.share.object, SharedObject::Folder(_));
        if is_folder && !self.is_root && self.ino != attached {
            let parent = if self.parent == InodeId::ROOT { attached } else { self.parent };
            return Self { parent, ..self };
        }
        Self {
            ino: if self.is_root { attached } else { self.ino },
            parent: Whereabouts::parent_in(comment).unwrap_or(InodeId::ROOT),
            // Not that of the mount point, which the guest has chosen.
            name: Whereabouts::raw_name_in(comment).unwrap_or(self.name),
            ..self
        }
    }
}
