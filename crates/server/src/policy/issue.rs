//! Credentials that the server issues to the makers of files and directories.
//!
//! A guest that has made a file gets all rights to it, which it can use and share on from anywhere;
//! of a directory it gets those that it has there, because what is in it need not be its own. They
//! end with the chain by which it may create there: the credential counts only in a chain that
//! begins with that one ([`IssuedGrant`]). A root has let the server issue credentials by a licence
//! ([`IssuingLicence`]), which is in the volume's folder.

use std::cell::Cell;
use std::io::Read as _;
use std::sync::Arc;

use pelago_keynote::key::PrivateKey;
use pelago_keynote::share::printable;
use pelago_keynote::{
    AddressRange, Assertion, CREDENTIAL_BYTES, Credential, Grant, IssuedGrant, Principal, Right,
    Rights, SharedObject,
};
use pelago_meta::shard::{Placement, Shard};
use pelago_store::folder::Folder;
use pelago_store::volume;
use pelago_wire::codec::chain_bytes;
use pelago_wire::{Code, Error, FileKind, Handle, InodeId, Name, Operation, limits};
use rustix::fs::OFlags;

use super::chain::{Chain, Link};
use super::decision::Question;
use super::made::IssuedPlace;
use super::roots::Roots;
use super::{Guest, Policy, QUESTION_STEPS, Sought, moment};

/// The first words of the line with the address of the server in the comment of a credential.
const AT: &str = "at ";

/// A node for which a guest asks for a credential.
#[derive(Clone, Copy)]
pub(crate) struct IssuedNode<'a> {
    pub(crate) position: &'a Placement,
    pub(crate) kind: FileKind,
}

/// The right of a server to issue credentials.
struct Licence {
    link: Link,
    key: PrivateKey,
}

impl Policy {
    /// Returns a chain by which a guest has all rights to a file that it has made in this session,
    /// or those of its chain to a directory: the chain by which it may create where the node is,
    /// the licence of the server, and a new credential. A second call returns the same one. Reads
    /// files of the volume's folder.
    ///
    /// # Errors
    /// `AccessDenied` if the session has not made the node, may not create where it is, or the
    /// credential was taken back; `Invalid` for what is neither a file nor a directory or has no
    /// name, and if the chain has conditions of another form than Pelago's or no room for two
    /// credentials more; `NotSupported` without a licence; `NoSpace` if the session was issued too
    /// many; `Busy` if directories have moved since; errors of the table.
    pub(crate) fn issue(
        &self,
        shard: &Shard,
        node: IssuedNode<'_>,
        guest: &Guest,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let IssuedNode { position, kind } = node;
        let ino = position.ino;
        if !guest.made_nodes().has(ino) {
            return Err(Code::AccessDenied.into());
        }
        let object = match kind {
            FileKind::Directory => SharedObject::Folder(ino.raw()),
            FileKind::Regular => SharedObject::File(ino.raw()),
            FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice => return Err(Code::Invalid.into()),
        };
        if position.dirs.is_empty() {
            return Err(Code::Invalid.into());
        }
        let licence = self.licence().ok_or(Code::NotSupported)?;
        let (dir, chain) = self.creating_chain(shard, position, guest)?;
        let bound = bound(&chain).ok_or(Code::Invalid)?;
        let rights = match object {
            // What others put into it, and what is linked into it, is granted by it no further
            // than by the share.
            SharedObject::Folder(_) => self
                .granted(shard, position, guest, &chain, Rights::OF_MAKER)?
                .ok_or(Code::AccessDenied)?,
            SharedObject::File(_) | SharedObject::Name { .. } => Rights::OF_MAKER,
        };
        let grant = Grant { object, rights, volume: self.volume.0, ..bound };
        let place = self.place_of(shard, node, dir, guest)?;
        let mut made = guest.made_nodes();
        let place = made.place(ino, place)?;
        let text = licence.sign(&chain, guest, &IssuedGrant { grant, chain: chain.id }, &place)?;
        let id = Assertion::credential(text.as_bytes()).map_err(|_| Code::Invalid)?.id().0;
        let is_taken_back = {
            // The one by another chain has another id, and taking back one is taking back all.
            let revoked = self.revoked.read();
            made.ids(ino).iter().chain([&id]).any(|id| revoked.contains_key(id))
        };
        if is_taken_back {
            return Err(Code::AccessDenied.into());
        }
        let mut texts: Vec<Vec<u8>> = chain.links.iter().map(Link::text).collect();
        if chain.links.iter().all(|link| link.id != licence.link.id) {
            texts.push(licence.link.text());
        }
        texts.push(text.into_bytes());
        if texts.len() > limits::CHAIN_LINKS || chain_bytes(&texts) > limits::CHAIN_BYTES {
            return Err(Code::Invalid.into());
        }
        if made.issue(ino, place, id)?
            && let Some(audit) = &self.audit
        {
            audit.issued(moment::seconds(), guest, position, &id);
        }
        Ok(texts)
    }

    /// Returns the first chain in force of a guest that lets it create where a node is, and the
    /// directory.
    fn creating_chain(
        &self,
        shard: &Shard,
        position: &Placement,
        guest: &Guest,
    ) -> Result<(InodeId, Arc<Chain>), Error> {
        let chains = self.chains_in_force(guest);
        for dir in &position.dirs {
            // A directory's own position: the right is that of making names in it.
            let there = shard.placement(Handle::own(*dir), false)?;
            for chain in &chains {
                let create = Rights::only(Right::Create);
                if self.granted(shard, &there, guest, chain, create)?.is_some() {
                    return Ok((*dir, Arc::clone(chain)));
                }
            }
        }
        Err(Code::AccessDenied.into())
    }

    /// Returns those of some rights that a chain grants to a directory; `None` for no right.
    fn granted(
        &self,
        shard: &Shard,
        dir: &Placement,
        guest: &Guest,
        chain: &Chain,
        of: Rights,
    ) -> Result<Option<Rights>, Error> {
        let (_, moment) = self.now();
        let Some(policy) = self.roots.as_ref().and_then(Roots::policy) else { return Ok(None) };
        let question = Question {
            policy: &policy,
            chain,
            principal: Principal(guest.principal),
            operation: Some(Operation::Issue),
            object: dir.ino,
            name: None,
            volume: &self.volume_text,
            ancestors: &shard.ancestors(dir.ino, dir.directory_moves)?,
            address: guest.address.as_deref(),
            moment: &moment,
        };
        let has = |right: &Right| question.decide(*right, &Cell::new(QUESTION_STEPS)).is_granted;
        let granted = of.iter().filter(has);
        let add = |all: Option<Rights>, right| {
            Some(all.map_or_else(|| Rights::only(right), |all| all.with(right)))
        };
        Ok(granted.fold(None, add))
    }

    /// Returns the present place of a node in a directory. The directory above one may be outside
    /// of what is granted, and is not told then.
    fn place_of(
        &self,
        shard: &Shard,
        node: IssuedNode<'_>,
        dir: InodeId,
        guest: &Guest,
    ) -> Result<IssuedPlace, Error> {
        let terms = self.terms();
        let IssuedNode { position, kind } = node;
        if kind != FileKind::Directory {
            let name: Option<Name> = shard.names_in(position, dir)?.into_iter().next();
            return Ok(IssuedPlace { dir: Some(dir), name });
        }
        let (above, name) = shard.name_of_dir(dir)?;
        let there = shard.placement(Handle::own(above), false)?;
        let sought = Sought { operation: Operation::Issue, rights: &Right::ALL, terms };
        let rights = self.rights(guest, shard, &there, above, sought)?;
        Ok(match rights.is_empty() {
            true => IssuedPlace { dir: None, name: None },
            false => IssuedPlace { dir: Some(above), name },
        })
    }

    /// Returns the licence in the volume's folder; `None` if there is none for the key of this
    /// server by a present root.
    fn licence(&self) -> Option<Licence> {
        let roots = self.roots.as_ref()?;
        let key = own_key(roots.folder())?;
        let text = read(roots.folder(), volume::ISSUER, CREDENTIAL_BYTES)?;
        let link = Link::read(text.as_bytes()).ok()?.verified().ok()?;
        let own = Principal(*key.public().as_bytes());
        let is_revoked = {
            let revoked = self.revoked.read();
            [&link.id, &link.authorizer.0, &own.0].iter().any(|id| revoked.contains_key(*id))
        };
        let is_for_this = link.licence.is_some_and(|licence| licence.volume == self.volume.0)
            && link.licenses(&own)
            && roots.has(&link.authorizer);
        (is_for_this && !is_revoked).then_some(Licence { link, key })
    }
}

impl Licence {
    /// Returns the text of an issued credential. The same arguments give the same text.
    fn sign(
        &self,
        chain: &Chain,
        guest: &Guest,
        issued: &IssuedGrant,
        place: &IssuedPlace,
    ) -> Result<String, Error> {
        let IssuedPlace { dir, name } = place;
        let (what, kind) = match issued.grant.object {
            SharedObject::Folder(_) => ("a directory", "directory"),
            SharedObject::File(_) | SharedObject::Name { .. } => ("a file", "file"),
        };
        let mut comment = vec![format!("{what} for its maker; `pelago attach FILE DIR` shows it")];
        // Where the guest has found the server.
        let mut lines = chain.links.iter().rev().flat_map(|link| link.assertion.comment());
        comment.extend(lines.find(|line| line.starts_with(AT)).cloned());
        let ino = issued.grant.object.inode();
        comment.extend(dir.map(|dir| format!("{kind} {ino:x} in {:x}", dir.raw())));
        comment.extend(name.as_ref().map(|name| format!("name {}", printable(name.as_bytes()))));
        let conditions = issued.conditions();
        let licensee = Principal(guest.principal);
        let credential = Credential { comment: &comment, licensee, conditions: &conditions };
        credential.sign(&self.key.signing_key()).map_err(|_| Code::Invalid.into())
    }
}

/// Returns a grant with the end of a chain, and the addresses from which it can be used; `None` if
/// a link has another form than Pelago's, whose conditions are not known.
fn bound(chain: &Chain) -> Option<Grant> {
    let links = chain.links.iter().filter(|link| link.licence.is_none());
    let shares: Option<Vec<&Grant>> = links.map(|link| link.share.as_ref()).collect();
    let shares = shares?;
    let mut from: Option<AddressRange> = None;
    for next in shares.iter().filter_map(|share| share.from) {
        from = match from {
            Some(range) if range.is_within(&next) => Some(range),
            Some(range) if !next.is_within(&range) => return None,
            Some(_) | None => Some(next),
        };
    }
    let until = shares.iter().filter_map(|share| share.until.clone()).min();
    let first = (*shares.first()?).clone();
    Some(Grant { until, from, ..first })
}

/// Returns the key of the server in the volume's folder.
fn own_key(folder: &Folder) -> Option<PrivateKey> {
    let text = read(folder, volume::KEY, limits::KEY_FILE_BYTES)?;
    let lines = text.lines().map(str::trim);
    let mut keys = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    PrivateKey::from_secret_text(keys.next()?).ok().filter(|_| keys.next().is_none())
}

/// Returns the text of a file; `None` if it is missing, longer than the limit or cannot be read.
fn read(folder: &Folder, name: &str, limit: usize) -> Option<String> {
    let file = match folder.open_file(name, OFlags::RDONLY) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return None,
        Err(error) => {
            tracing::warn!(%error, "no credential can be issued");
            return None;
        }
    };
    let mut text = String::new();
    file.take(limit as u64 + 1).read_to_string(&mut text).ok()?;
    (text.len() <= limit).then_some(text)
}
