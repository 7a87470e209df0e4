//! The audit log for those who may know a part of it.

use pelago_data::{MayBlock, OpError};
use pelago_wire::{
    AuditPage, AuditPlace, Code, Error, FileKind, Handle, InodeId, Operation, Reply,
};

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
        let page = match parts.policy.asker(session) {
            Asker::Trusted => self.page_of(dir.ino, after, dir.ino == InodeId::ROOT, &|_| Ok(true)),
            Asker::Guest(guest) => {
                let operation = Operation::Audited;
                let rights = GuestRights { parts, guest: &guest, session, operation, terms: None };
                let has_all = dir.ino == InodeId::ROOT && rights.may_audit_below(dir)?;
                self.page_of(dir.ino, after, has_all, &|below| rights.may_audit(below))
            }
            Asker::AbsentGuest => Err(Code::Stale.into()),
        };
        Ok(Reply::Audited(page?).into())
    }

    /// Returns a page of the lines about a directory and those below it that pass a test.
    fn page_of(
        &self,
        top: InodeId,
        after: AuditPlace,
        has_all: bool,
        passes: &dyn Fn(Handle) -> Result<bool, Error>,
    ) -> Result<AuditPage, Error> {
        let has = |dir| Ok(self.is_below(dir, top)? && passes(Handle::own(dir))?);
        self.parts.policy.read_audit(after, &AuditScope { has_all, has: &has })
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
