//! Replays: requests that an earlier run has answered and lost, stored replies, and replies that
//! build on changes which may be lost.

use pelago_data::{MayBlock, OpenKey};
use pelago_meta::reply_cache::RequestKey;
use pelago_wire::{
    Code, Context, Description, Effect, Error, OpenFlags, Replayed, Reply, Request, SessionId,
    SetAttr,
};

use super::execute::Executor;
use super::{Dispatcher, OpResult};

impl Executor<'_> {
    /// Carries out a request that an earlier run has answered and lost. Its opens may have ended
    /// since then. The match has no wildcard, so the compiler names a new request here.
    pub(super) fn execute_again(&self, request: &Request, replayed: Replayed) -> OpResult {
        match request {
            Request::SetAttr { node, open: Some(open), set }
                if self.parts.opens.inode_of(self.key(*open)).is_err() =>
            {
                self.execute_new(&Request::SetAttr { node: *node, open: None, set: *set })
            }
            // The client has opened the file again, if it still wants it open.
            Request::Open { node, flags, .. } => {
                let set = SetAttr {
                    size: flags.truncate.then_some(0),
                    kill_privileges: flags.kill_privileges,
                    ..SetAttr::default()
                };
                self.execute_new(&Request::SetAttr { node: *node, open: None, set })
            }
            // In a new epoch of the same run the open is still there, but its file is lost.
            Request::Create { open, .. } | Request::CreateUnnamed { open, .. }
                if self.parts.opens.inode_of(self.key(*open)).is_ok() =>
            {
                if let Err(error) = self.parts.opens.release(self.key(*open), MayBlock::Yes) {
                    tracing::debug!(?error, "an open of a file that is lost ends");
                }
                self.execute_new(request)
            }
            Request::Write { open, .. } | Request::Allocate { open, .. } => {
                self.with_open(self.key(*open), replayed, request)
            }
            Request::SetAttr { .. }
            | Request::Create { .. }
            | Request::CreateUnnamed { .. }
            | Request::Lookup { .. }
            | Request::Parent { .. }
            | Request::Find { .. }
            | Request::GetAttr { .. }
            | Request::MakeDir { .. }
            | Request::MakeNode { .. }
            | Request::Symlink { .. }
            | Request::ReadLink { .. }
            | Request::Link { .. }
            | Request::Unlink { .. }
            | Request::RemoveDir { .. }
            | Request::Rename { .. }
            | Request::Reopen { .. }
            | Request::Flush { .. }
            | Request::Release { .. }
            | Request::GetLock { .. }
            | Request::SetLock { .. }
            | Request::ReclaimLock { .. }
            | Request::Fsync { .. }
            | Request::FsyncAt { .. }
            | Request::FsyncDir { .. }
            | Request::Read { .. }
            | Request::List { .. }
            | Request::GetXattr { .. }
            | Request::ListXattr { .. }
            | Request::SetXattr { .. }
            | Request::RemoveXattr { .. }
            | Request::StatFs
            | Request::Seek { .. }
            | Request::CopyRange { .. }
            | Request::Search { .. }
            | Request::Tags { .. }
            | Request::Attach { .. }
            | Request::Revoke { .. }
            | Request::Issue { .. }
            | Request::Access { .. }
            | Request::Audited { .. }
            | Request::Step { .. }
            | Request::AddDir { .. }
            | Request::DropDir { .. }
            | Request::RemoveNamedDir { .. }
            | Request::SiteAddress { .. }
            | Request::SiteList { .. }
            | Request::LeaveSite
            | Request::Charter { .. }
            | Request::Revoked { .. }
            | Request::PassRevocation { .. }
            | Request::CharterChanged
            | Request::SetBytes { .. }
            | Request::GiveBytes { .. }
            | Request::DropBytes { .. }
            | Request::Clock
            | Request::Hashes { .. }
            | Request::RenewToken { .. }
            | Request::KeepToken { .. }
            | Request::Servers => self.execute_new(request),
        }
    }

    /// Executes a request with an open. An open that does not exist is made for it.
    fn with_open(&self, open: OpenKey, replayed: Replayed, request: &Request) -> OpResult {
        let opens = &self.parts.opens;
        if opens.inode_of(open).is_ok() {
            return self.execute_new(request);
        }
        let node = replayed.node.ok_or(Code::BadOpen)?;
        opens.open_again(open, node, OpenFlags::READ_WRITE, self.may_block)?;
        let result = self.execute_new(request);
        // Each request commits the bytes in memory, so the release has nothing to commit.
        opens.release(open, MayBlock::Yes)?;
        result
    }
}

impl Dispatcher {
    /// Returns whether a request that succeeded builds on an unsafe change of another session. A
    /// replayed request built on safe changes only; a request of the server's own mount is never
    /// replayed, and is lost together with the change on which it builds.
    pub(super) fn builds_on_others(
        &self,
        context: &Context,
        request: &Request,
        description: &Description,
    ) -> bool {
        let opened = request.opens().existing().map(|(node, _)| node.ino);
        (matches!(description.effect, Effect::Change { .. }) || opened.is_some())
            && context.session != SessionId::DIRECT
            && context.replayed.is_none()
            && self.parts.shard.builds_on_others(context.session, opened)
    }

    /// Returns the stored reply to a change, if it was carried out before.
    pub(super) fn stored_reply(
        &self,
        context: &Context,
        effect: Effect,
    ) -> Result<Option<Reply>, Error> {
        let Effect::Change { replayed, .. } = effect else { return Ok(None) };
        let is_repeated = context.origin.is_some_and(|origin| origin.may_be_repeated);
        let may_be_stored = replayed || self.is_of_earlier_epoch(context);
        match RequestKey::of(context).filter(|_| may_be_stored || is_repeated) {
            Some(request_key) => self.parts.shard.cached_reply(&request_key),
            None => Ok(None),
        }
    }

    /// Returns whether the session of a request began in an earlier epoch, which may have carried
    /// out the request.
    pub(super) fn is_of_earlier_epoch(&self, context: &Context) -> bool {
        context.session != SessionId::DIRECT && context.session.epoch() < self.parts.shard.epoch()
    }
}
