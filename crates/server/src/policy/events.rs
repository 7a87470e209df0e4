//! The events of guests that the audit log has.

use pelago_keynote::Principal;
use pelago_wire::{AuditPage, AuditPlace, Code, Error};

use super::audit::reading::AuditScope;
use super::audit::{End, Subject};
use super::chain::{Chain, Link};
use super::{Guest, Policy, moment};

impl Policy {
    /// Records the first use of a right in a session.
    #[inline]
    pub(crate) fn note_use(&self, guest: &Guest, subject: &Subject<'_>) {
        if let Some(audit) = &self.audit
            && guest.audit.is_first_use(subject.rights)
        {
            audit.first_use(moment::seconds(), guest, subject);
        }
    }

    /// Records a denial.
    pub(crate) fn note_denied(&self, guest: &Guest, subject: &Subject<'_>) {
        if let Some(audit) = &self.audit {
            audit.denial(moment::seconds(), guest, subject);
        }
    }

    /// Records that a chain opens no session any more.
    pub(super) fn note_refused(&self, principal: &[u8; 32], chain: &Chain) {
        let Some(audit) = &self.audit else { return };
        if let Some((why, link)) = self.fault_of(chain, principal) {
            audit.refusal(moment::seconds(), &Principal(*principal), chain, &why, Some(link));
        }
    }

    /// Records that a chain cannot be attached any more; counts it if the session has had too many
    /// denials in this second.
    pub(super) fn note_not_attached(&self, guest: &Guest, chain: &Chain) {
        let seconds = moment::seconds();
        if guest.audit.may_deny(seconds) {
            self.note_refused(&guest.principal, chain);
        }
    }

    /// Records the end of a session.
    pub(super) fn note_ended(&self, guest: &Guest) {
        let Some(audit) = &self.audit else { return };
        self.note_all_lapsed(guest);
        let (why, link) = match self.fault_of(&guest.chain, &guest.principal) {
            Some((why, link)) => (why, Some(link)),
            None => (End::Closed, None),
        };
        audit.end(moment::seconds(), guest, &why, link);
    }

    /// Records a chain that a session has attached.
    pub(super) fn note_attached(&self, guest: &Guest, chain: &Chain) {
        if let Some(audit) = &self.audit {
            audit.begin(moment::seconds(), guest, chain);
        }
    }

    /// Records once that a chain which a session has attached holds no more.
    pub(super) fn note_lapsed(&self, guest: &Guest, chain: &Chain) {
        let Some(audit) = &self.audit else { return };
        if let Some((why, link)) = self.fault_of(chain, &guest.principal)
            && guest.attached.lapses(chain)
        {
            audit.lapse(moment::seconds(), guest, &why, link);
        }
    }

    /// Records each chain which a session has attached and that holds no more.
    pub(super) fn note_all_lapsed(&self, guest: &Guest) {
        let attached = guest.chains().into_iter().skip(1);
        attached.for_each(|chain| self.note_lapsed(guest, &chain));
    }

    /// Writes the lines of the audit log that wait. Blocks on the disk.
    pub(crate) fn write_audit(&self) {
        if let Some(audit) = &self.audit {
            audit.write();
        }
    }

    /// Returns the lines of the audit log from a place on that are in a scope. Blocks on the disk.
    ///
    /// # Errors
    /// `NotSupported` if there is no log; `Io`; those of the scope.
    pub(crate) fn read_audit(
        &self,
        after: AuditPlace,
        scope: &AuditScope<'_>,
    ) -> Result<AuditPage, Error> {
        let audit = self.audit.as_ref().ok_or(Code::NotSupported)?;
        audit.write();
        audit.read(after, scope)
    }

    /// Returns the reason why a chain to a guest holds no more, and the link to blame; `None` if it
    /// holds.
    fn fault_of<'a>(&self, chain: &'a Chain, principal: &[u8; 32]) -> Option<(End, &'a Link)> {
        let first = chain.links.first()?;
        if !self.is_root(&first.authorizer) {
            return Some((End::NoRoot, first));
        }
        let revoked = self.revoked.read();
        if let Some(link) = chain.links.iter().find(|link| {
            let is_void = |id: &[u8; 32]| revoked.contains_key(id);
            is_void(&link.id)
                || is_void(&link.authorizer.0)
                || link.licenses(&Principal(*principal)) && is_void(principal)
        }) {
            return Some((End::Revoked, link));
        }
        drop(revoked);
        let (_, moment) = self.now();
        let ended = chain.links.iter().find(|link| {
            let until = link.share.as_ref().and_then(|share| share.until.as_deref());
            until.is_some_and(|until| until <= moment.now.as_str())
        });
        ended.map(|link| (End::Expired, link))
    }
}
