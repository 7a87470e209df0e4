//! The requests of guests in the audit log: first uses of rights, and denials.

use pelago_data::OpenKey;
use pelago_keynote::Right;
use pelago_meta::shard::Placement;
use pelago_wire::{
    Code, Error, ForGuest, GuestRight, GuestSubject, Handle, InodeId, Operation, Request,
};
use smallvec::SmallVec;

use super::{Granted, GuestCall};
use crate::policy::Subject;

impl GuestCall {
    /// Records the first use of rights in this session.
    #[inline]
    pub(super) fn note_use(&self, granted: &Granted) {
        let Some(found) = granted.subjects.last() else { return };
        let policy = &self.dispatcher.parts.policy;
        let operation = self.request.describe().operation;
        let Placement { ino, dirs, .. } = &found.position;
        self.each_need(|rights| {
            let subject = Subject { operation, rights, node: Some(*ino), dirs, by_modes: false };
            policy.note_use(&self.guest, &subject);
        });
    }

    /// Records a denial. A node that does not exist is not denied, and the end of a session has a
    /// line of its own.
    #[cold]
    pub(super) fn note_denied(&self, error: Error) {
        self.note(error, false);
    }

    /// Records the denial of a request that was granted before: because rights ended or a node
    /// moved meanwhile, or because a mode or an access list denies it.
    #[cold]
    pub(super) fn note_denied_late(&self, error: Error) {
        let by_modes = self.is_denied_by_modes(error);
        match error.code {
            Code::AccessDenied | Code::Stale => self.note(error, by_modes),
            Code::NotPermitted if by_modes => self.note(Code::AccessDenied.into(), true),
            _ => {}
        }
    }

    /// Returns whether the modes deny the request with this error. Only the sticky bit depends on
    /// the node that a name leads to, which is not known any more.
    fn is_denied_by_modes(&self, error: Error) -> bool {
        let removes = matches!(
            self.request.describe().operation,
            Operation::Unlink | Operation::RemoveDir | Operation::Rename
        );
        if let Request::Rename { from_dir, to_dir, .. } = &self.request
            && error.code == Code::AccessDenied
        {
            return ![from_dir, to_dir].iter().all(|dir| self.modes().may_change_names(**dir));
        }
        match self.modes().check(&self.request, None) {
            Err(denial) if denial.code == Code::Busy => removes && error.code == Code::NotPermitted,
            Err(denial) => denial.code == error.code,
            Ok(()) => false,
        }
    }

    fn note(&self, error: Error, by_modes: bool) {
        let policy = &self.dispatcher.parts.policy;
        let is_denial = match error.code {
            Code::AccessDenied => true,
            Code::Stale => policy.admits(&self.guest) && self.names_a_node(),
            _ => false,
        };
        if is_denial {
            let operation = self.request.describe().operation;
            let rights = &self.needed();
            let node = self.first_node();
            let dirs = &node.map(|node| self.dirs_of(node)).unwrap_or_default();
            policy.note_denied(&self.guest, &Subject { operation, rights, node, dirs, by_modes });
        }
    }

    /// Returns whether a node that the request names exists.
    fn names_a_node(&self) -> bool {
        let is_there = |node| self.dispatcher.parts.shard.placement(node, true).is_ok();
        match self.request.for_guest() {
            ForGuest::Needs(needs) => needs.each().any(|(_, subject)| match subject {
                GuestSubject::Node(node) => is_there(node),
                // It was granted when it was opened.
                GuestSubject::Open(_) => true,
            }),
            ForGuest::Parent(node)
            | ForGuest::CommitDir(node)
            | ForGuest::NoXattr(node)
            | ForGuest::NotSupported(node) => is_there(node),
            ForGuest::Own
            | ForGuest::Commit(_)
            | ForGuest::Space
            | ForGuest::Attach
            | ForGuest::Revoke
            | ForGuest::Never => {
                self.request.describe().subjects.each_inode().map(Handle::own).any(is_there)
            }
        }
    }

    /// Calls `note` with each right that the request needs; with all rights, of which one
    /// suffices, for a need of any.
    fn each_need(&self, note: impl Fn(&[Right])) {
        match self.request.for_guest() {
            ForGuest::Needs(needs) => needs.each().for_each(|(right, _)| note(named(right))),
            _ => note(&Right::ALL),
        }
    }

    /// Returns the rights that the request needs; none if no guest may make it.
    fn needed(&self) -> Vec<Right> {
        match self.request.for_guest() {
            ForGuest::Needs(needs) => {
                let mut rights: Vec<Right> = Vec::new();
                for right in needs.each().flat_map(|(right, _)| named(right)) {
                    if !rights.contains(right) {
                        rights.push(*right);
                    }
                }
                rights
            }
            ForGuest::Never => Vec::new(),
            ForGuest::Revoke => vec![Right::Audit],
            _ => Right::ALL.to_vec(),
        }
    }

    /// Returns the directories in which a node of the request is; none if they are not known.
    fn dirs_of(&self, node: InodeId) -> SmallVec<[InodeId; 2]> {
        let parts = &self.dispatcher.parts;
        let session = self.context.session;
        let handle_of = |subject| match subject {
            GuestSubject::Node(node) => Some(node),
            GuestSubject::Open(open) => parts.opens.handle_of(OpenKey { session, open }).ok(),
        };
        // A file is found by its name.
        let named = match self.request.for_guest() {
            ForGuest::Needs(needs) => needs
                .each()
                .filter_map(|(_, subject)| handle_of(subject))
                .find(|handle| handle.ino == node),
            ForGuest::Commit(open) => handle_of(GuestSubject::Open(open)),
            ForGuest::Parent(node)
            | ForGuest::CommitDir(node)
            | ForGuest::NoXattr(node)
            | ForGuest::NotSupported(node) => Some(node),
            ForGuest::Own
            | ForGuest::Space
            | ForGuest::Attach
            | ForGuest::Revoke
            | ForGuest::Never => None,
        };
        let position = parts.shard.placement(named.unwrap_or_else(|| Handle::own(node)), true);
        position.map(|position| position.dirs).unwrap_or_default()
    }

    /// Returns the first node that the request is about.
    fn first_node(&self) -> Option<InodeId> {
        let subjects = self.request.describe().subjects;
        let opens = &self.dispatcher.parts.opens;
        let session = self.context.session;
        let of_open = |open| opens.inode_of(OpenKey { session, open }).ok();
        subjects.each_inode().next().or_else(|| subjects.each_open().find_map(of_open))
    }
}

/// Returns the rights of which a need names one.
const fn named(right: GuestRight) -> &'static [Right] {
    match right {
        GuestRight::Any => &Right::ALL,
        GuestRight::Read => &[Right::Read],
        GuestRight::Write => &[Right::Write],
        GuestRight::Create => &[Right::Create],
        GuestRight::Delete => &[Right::Delete],
        GuestRight::Audit => &[Right::Audit],
    }
}
