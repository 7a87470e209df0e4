//! Requests for pages of the audit log.

use pelago_data::{MayBlock, OpError};
use pelago_wire::{AuditPlace, Code, Error, FileKind, Handle, InodeId, Operation, Reply};

use super::OpResult;
use super::execute::{Executor, while_busy};
use super::guests::GuestRights;
use crate::policy::{Asker, AuditScope};

impl Executor<'_> {
    /// Returns a page of the audit log about a directory and all below it. A guest gets the lines
    /// about nodes in directories which it may audit now.
    pub(super) fn audited(&self, dir: Handle, after: AuditPlace) -> OpResult {
        if self.may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let parts = self.parts;
        if parts.shard.attr(dir)?.kind != FileKind::Directory {
            return Err(Error::from(Code::NotDirectory).into());
        }
        let session = self.context.session;
        let is_root = dir.ino == InodeId::ROOT;
        let page = match parts.policy.asker(session) {
            Asker::Trusted => {
                let has = |below| self.is_below(below, dir.ino);
                let scope = AuditScope { has_all: &|| Ok(is_root), has: &has };
                parts.policy.read_audit(after, &scope)
            }
            Asker::Guest(guest) => {
                let operation = Operation::Audited;
                let rights = GuestRights { parts, guest: &guest, session, operation, terms: None };
                let has_all = || Ok(is_root && rights.may_audit_below(dir)?);
                let has = |below| {
                    Ok(self.is_below(below, dir.ino)? && rights.may_audit(Handle::own(below))?)
                };
                parts.policy.read_audit(after, &AuditScope { has_all: &has_all, has: &has })
            }
            Asker::AbsentGuest => Err(Code::Stale.into()),
        };
        Ok(Reply::Audited(page?).into())
    }

    /// Returns whether a directory is another one or below it; not if there is none any more.
    fn is_below(&self, dir: InodeId, top: InodeId) -> Result<bool, Error> {
        let shard = &self.parts.shard;
        match while_busy(|| shard.ancestors(dir, shard.directory_moves())) {
            Ok(ancestors) => Ok(ancestors.dirs.contains(&top)),
            Err(error) if error.code == Code::Stale => Ok(false),
            Err(error) => Err(error),
        }
    }
}
