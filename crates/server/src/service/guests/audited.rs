//! The requests of guests in the audit log: first uses of rights, and denials.

use pelago_data::OpenKey;
use pelago_keynote::Right;
use pelago_meta::shard::Placement;
use pelago_wire::{Code, Error, Handle, InodeId};

use super::GuestCall;
use crate::policy::Subject;

impl GuestCall {
    /// Records the first use of a right in this session.
    #[inline]
    pub(super) fn note_use(&self, rights: &[Right], position: Option<&Placement>) {
        let Some(position) = position else { return };
        let policy = &self.dispatcher.parts.policy;
        let operation = self.request.describe().operation;
        let node = Some(position.ino);
        policy.note_use(&self.guest, &Subject { operation, rights, node });
    }

    /// Records a denial. A node that does not exist is not denied.
    #[cold]
    pub(super) fn note_denied(&self, rights: &[Right], error: Error) {
        let node = self.first_subject();
        let is_denial = match (error.code, node) {
            (Code::AccessDenied, _) => true,
            (Code::Stale, Some(node)) => {
                self.dispatcher.parts.shard.placement(Handle::own(node), true).is_ok()
            }
            _ => false,
        };
        if is_denial {
            let operation = self.request.describe().operation;
            let subject = Subject { operation, rights, node };
            self.dispatcher.parts.policy.note_denied(&self.guest, &subject);
        }
    }

    /// Returns the first node that the request is about.
    fn first_subject(&self) -> Option<InodeId> {
        let subjects = self.request.describe().subjects;
        let opens = &self.dispatcher.parts.opens;
        let session = self.context.session;
        let of_open = |open| opens.inode_of(OpenKey { session, open }).ok();
        subjects.each_inode().next().or_else(|| subjects.each_open().find_map(of_open))
    }
}
