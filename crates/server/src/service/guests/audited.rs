//! The requests of guests in the audit log: first uses of rights, and denials.

use pelago_data::OpenKey;
use pelago_keynote::Right;
use pelago_meta::shard::Placement;
use pelago_wire::{Code, Error, Handle, InodeId};

use super::{GuestCall, Named};
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

    /// Records the denial of a subject, or of all that the request names. A node that does not
    /// exist is not denied.
    #[cold]
    pub(super) fn note_denied(&self, named: Named, rights: &[Right], error: Error) {
        let is_denial = match error.code {
            Code::AccessDenied => true,
            Code::Stale => self.exists(named),
            _ => false,
        };
        if is_denial {
            let operation = self.request.describe().operation;
            let subject = Subject { operation, rights, node: self.first_node(named) };
            self.dispatcher.parts.policy.note_denied(&self.guest, &subject);
        }
    }

    fn exists(&self, named: Named) -> bool {
        let is_there = |node| self.dispatcher.parts.shard.placement(node, false).is_ok();
        match named {
            Named::Node(node) => is_there(node),
            // It was opened when it was granted.
            Named::Open(_) => true,
            Named::Nothing => {
                self.request.describe().subjects.each_inode().map(Handle::own).any(is_there)
            }
        }
    }

    /// Returns the first node that the request is about.
    fn first_node(&self, named: Named) -> Option<InodeId> {
        let opens = &self.dispatcher.parts.opens;
        let session = self.context.session;
        let of_open = |open| opens.inode_of(OpenKey { session, open }).ok();
        match named {
            Named::Node(node) => Some(node.ino),
            Named::Open(open) => of_open(open),
            Named::Nothing => {
                let subjects = self.request.describe().subjects;
                subjects.each_inode().next().or_else(|| subjects.each_open().find_map(of_open))
            }
        }
    }
}
