//! The execution of requests: each goes to the shard, for names and attributes, or to the open
//! files, for bytes.

use std::cell::Cell;

use pelago_data::{MayBlock, NewPlace, OpError, Opening};
use pelago_meta::reply_cache::{ExpectedNodes, OpContext};
use pelago_meta::shard::{Move, NewInode, Page, SetXattr};
use pelago_store::clock;
use pelago_wire::{Attr, Code, Context, Entry, Error, OpenEffect, Reply, Request, xattr};

use super::{OpResult, Parts};
use crate::locks::Locks;

/// The number of attempts while directories move.
const ATTEMPTS: u32 = 8;

/// The context in which one request is executed, apart from the request itself.
pub(super) struct Executor<'a> {
    pub(super) parts: &'a Parts,
    pub(super) locks: &'a Locks,
    pub(super) context: &'a Context,
    pub(super) expected: Option<ExpectedNodes>,
    /// The bytes of the request.
    pub(super) bytes: &'a [u8],
    /// Memory of the caller for the bytes of the reply.
    pub(super) room: Cell<Option<&'a mut [u8]>>,
    pub(super) may_block: MayBlock,
    /// True for a request of a guest, from its check on.
    pub(super) is_guest: Cell<bool>,
}

impl Executor<'_> {
    /// Executes a request that was admitted.
    pub(super) fn execute(&self, request: &Request) -> OpResult {
        match self.context.replayed {
            Some(replayed) => self.execute_again(request, replayed),
            None => self.execute_or_bring_back(request),
        }
    }

    /// Executes a request. A file that has lost its last name a moment ago counts as open, because
    /// a kernel may still refer to it.
    fn execute_or_bring_back(&self, request: &Request) -> OpResult {
        let result = self.execute_new(request);
        let Err(OpError::Failed(Error { code: Code::Stale | Code::NoXattr })) = result else {
            return result;
        };
        let shard = &self.parts.shard;
        if let Request::GetAttr { node } = request {
            // The attributes of a removed file are in memory.
            return shard
                .removed_attr(node.ino)
                .map_or(result, |attr| Ok(Reply::Attr(attr).into()));
        }
        let held = request.describe().subjects.held_node();
        let Some(ino) = held.filter(|ino| shard.can_bring_back(*ino)) else { return result };
        match shard.bring_back(ino) {
            Ok(true) => self.execute_new(request),
            Ok(false) => result,
            Err(error) => {
                tracing::debug!(?error, inode = ino.raw(), "a removed file stays removed");
                result
            }
        }
    }

    /// Executes a request as if for the first time. The match has no wildcard, so the compiler
    /// names a new operation here.
    pub(super) fn execute_new(&self, request: &Request) -> OpResult {
        let shard = &self.parts.shard;
        match request {
            Request::Lookup { dir, name } => entry(shard.lookup(*dir, name)),
            Request::Parent { dir } => entry(shard.parent(*dir)),
            Request::Find { ino } => self.find(*ino),
            Request::GetAttr { node } => attr(shard.attr(*node)),
            Request::SetAttr { node, open, set } => self.set_attr(*node, *open, set),
            Request::Create { dir, name, mode, flags, open } => {
                self.create(*dir, name, *mode, *open, *flags)
            }
            Request::CreateUnnamed { dir, mode, flags, open } => {
                self.create_unnamed(*dir, *mode, *open, *flags)
            }
            Request::Open { node, flags, open } => self.open(*node, *open, *flags),
            Request::Reopen { node, flags, open } => self.reopen(*node, *open, *flags),
            Request::MakeDir { dir, name, mode } => self.make_dir(*dir, name, *mode),
            Request::MakeNode { dir, name, kind, mode, rdev } => {
                let new = NewInode { kind: *kind, rdev: *rdev, ..NewInode::file(*mode) };
                self.make_node(*dir, name, new)
            }
            Request::Symlink { dir, name, target } => self.symlink(*dir, name, target),
            Request::ReadLink { node } => bytes(self.read_link(*node)),
            Request::Link { node, dir, name } => self.link(*node, *dir, name),
            Request::Unlink { dir, name } => {
                self.removed(shard.unlink(*dir, name, self.op_context()))
            }
            Request::RemoveDir { dir, name } => {
                self.removed(shard.remove_dir(*dir, name, self.op_context()))
            }
            Request::Rename { from_dir, from, to_dir, to, flags } => {
                self.rename(Move { from_dir: *from_dir, from, to_dir: *to_dir, to }, *flags)
            }
            Request::Flush { open, owner } => self.flush(*open, *owner),
            Request::Release { open } => self.release(*open),
            Request::GetLock { open, owner, lock } => self.get_lock(*open, *owner, lock),
            Request::SetLock { open, owner, lock, wait } => {
                self.set_lock(*open, *owner, *lock, *wait)
            }
            Request::ReclaimLock { open, owner, lock } => self.reclaim_lock(*open, *owner, *lock),
            Request::Fsync { open, data_only } => self.sync(self.key(*open), *data_only),
            Request::FsyncAt { open, level } => self.sync_at(self.key(*open), *level),
            Request::FsyncDir { dir, since } => self.fsync_dir(*dir, *since),
            Request::Read { open, offset, size } => self.read(*open, *offset, *size),
            Request::Write { open, offset, flags } => self.write(*open, *offset, *flags),
            Request::List { dir, after, behind, entries, attributes } => {
                let behind = behind.as_ref();
                let attributes = *attributes;
                let entries = usize::try_from(*entries).unwrap_or(usize::MAX);
                self.list(Page { dir: *dir, after: *after, behind, entries, attributes })
            }
            Request::GetXattr { node, name } if name == xattr::SITES => {
                bytes(self.sites_of_file(*node))
            }
            Request::GetXattr { node, name } if name == xattr::REACHED => {
                bytes(self.reached(*node))
            }
            Request::GetXattr { node, name } => bytes(shard.get_xattr(*node, name)),
            Request::ListXattr { node } => bytes(shard.list_xattr(self.context, *node)),
            Request::SetXattr { name, .. } if xattr::is_computed(name) => {
                Err(Error::from(Code::NotSupported).into())
            }
            Request::SetXattr { node, name, value, flags, kill_setgid } => {
                if name == xattr::LEVEL {
                    self.expect_level(value)?;
                }
                let xattr = SetXattr { name, value, flags: *flags, kill_setgid: *kill_setgid };
                done(shard.set_xattr(*node, &xattr, self.op_context()))
            }
            Request::RemoveXattr { node, name } => {
                if name == xattr::LEVEL {
                    self.expect_may_set_level()?;
                }
                done(shard.remove_xattr(*node, name, self.op_context()))
            }
            Request::StatFs => self.stat_fs(),
            Request::Allocate { open, offset, length, mode } => {
                self.allocate(self.key(*open), *offset, *length, *mode)
            }
            Request::Seek { open, from } => self.seek(*open, *from),
            Request::CopyRange { from, from_offset, to, to_offset, length } => {
                let from = self.key(*from);
                let to = self.key(*to);
                self.copy(from, *from_offset, to, *to_offset, *length)
            }
            Request::Search { dir, search } => self.search(*dir, search),
            Request::Tags { dir, tags } => self.tags(*dir, tags),
            // Only a guest has chains.
            Request::Attach { .. } => Err(Error::from(Code::AccessDenied).into()),
            Request::Revoke { sentence, chain } => self.revoke(sentence, chain),
            Request::Issue { node } => self.issue(*node),
            Request::Access { node, chain, after } => self.access(*node, chain, *after),
            Request::Audited { dir, after } => self.audited(*dir, *after),
            Request::Step { dir, to } => self.step(*dir, to.as_ref()),
            Request::AddDir { dir, name, made } => self.add_dir(*dir, name, *made),
            Request::DropDir { dir, name, removed } => self.drop_dir(*dir, name, *removed),
            Request::RemoveNamedDir { dir, parent, name } => self.close_dir(*dir, *parent, name),
            Request::SiteAddress { address } => self.site_address(address),
            Request::SiteList { text } => self.site_list(text),
            Request::LeaveSite => self.leave_site(),
            Request::Charter { known } => self.charter(*known),
            Request::Revoked { parts, after } => self.revoked(parts, after.as_ref()),
            Request::PassRevocation { sentence, end } => self.pass_revocation(sentence, *end),
            Request::CharterChanged => self.charter_changed(),
            Request::SetBytes { node, at, size, mtime, since, flags } => {
                let [mtime, since] = [*mtime, *since];
                let place = NewPlace { node: *at, size: *size, mtime, since, flags: *flags };
                self.set_bytes(*node, &place)
            }
            Request::GiveBytes { node, file } => self.give_bytes(node.ino, *file),
            Request::DropBytes { node, file } => self.drop_bytes(node.ino, *file),
            Request::Clock => self.clock(),
            Request::Hashes { open, offset, blocks } => self.hashes(*open, *offset, *blocks),
            Request::RenewToken { token } => self.renew_token(token),
            Request::KeepToken { token } => self.keep_token(token),
            Request::Servers => self.servers(),
        }
    }

    /// Answers a request that was carried out before with the stored reply. A file that it has
    /// created or opened is opened again, if it is not open; a client that got the reply asks for
    /// that by itself.
    pub(super) fn replay(&self, request: &Request, reply: Reply) -> OpResult {
        if self.context.replayed.is_some() {
            return Ok(reply.into());
        }
        if matches!(request, Request::Write { flags, .. } if flags.append) {
            // Its bytes may be missing.
            return self.execute(request);
        }
        match (request.opens(), reply) {
            (OpenEffect::Makes { node, open, flags }, Reply::Opened { .. }) => {
                self.reopen(node, open, flags)
            }
            (OpenEffect::Creates { open, flags }, Reply::Created { entry, .. }) => {
                let Opening { attr, path } = self.open_again(entry.handle, open, flags)?;
                Ok(Reply::Created { entry: Entry { attr, ..entry }, path }.into())
            }
            (_, reply) => Ok(reply.into()),
        }
    }

    /// Returns the caller and the time of a change of rows.
    pub(super) fn op_context(&self) -> OpContext {
        OpContext {
            expected: self.expected,
            ..OpContext::by(self.context, clock::of_request(self.context))
        }
    }
}

pub(super) fn entry(found: Result<Entry, Error>) -> OpResult {
    Ok(Reply::Entry(found?).into())
}

fn attr(found: Result<Attr, Error>) -> OpResult {
    Ok(Reply::Attr(found?).into())
}

fn bytes(found: Result<Vec<u8>, Error>) -> OpResult {
    Ok(Reply::Bytes(found?).into())
}

pub(super) fn done<E: Into<OpError>>(result: Result<(), E>) -> OpResult {
    result.map(|()| Reply::Done.into()).map_err(Into::into)
}

/// Repeats something while it is `Busy`, because directories move.
pub(super) fn while_busy<T>(mut of: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 0..ATTEMPTS {
        match of() {
            Err(error) if error.code == Code::Busy => {}
            result => return result,
        }
    }
    Err(Code::Busy.into())
}
