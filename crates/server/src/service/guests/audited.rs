//! The requests of guests in the audit log: first uses of rights, and denials.

use pelago_data::OpenKey;
use pelago_keynote::Right;
use pelago_meta::shard::Placement;
use pelago_wire::{
    Code, Error, ForGuest, GuestRight, GuestSubject, Handle, InodeId, Operation, Request,
};
use smallvec::SmallVec;

use super::rights::Found;
use super::{Granted, GuestCall};
use crate::policy::Subject;

/// A node that a denied request names.
struct Denied {
    /// The node as it was named; `None` for a request without one.
    handle: Option<Handle>,
    /// The rights to it that are missing, or are needed.
    rights: Vec<Right>,
}

impl GuestCall {
    /// Records the first use of rights in this session, each with the node to which it is.
    #[inline]
    pub(super) fn note_use(&self, granted: &Granted) {
        match self.request.for_guest() {
            ForGuest::Needs(needs) => {
                let used = needs.each().zip(&granted.subjects);
                used.for_each(|((right, _), found)| self.note_use_of(named(right), found));
            }
            ForGuest::Parent(_)
            | ForGuest::Own
            | ForGuest::Commit(_)
            | ForGuest::CommitDir(_)
            | ForGuest::Space
            | ForGuest::NoXattr(_)
            | ForGuest::NotSupported(_)
            | ForGuest::Attach
            | ForGuest::Revoke
            | ForGuest::Never => {
                let used = granted.subjects.last();
                used.into_iter().for_each(|found| self.note_use_of(&Right::ALL, found));
            }
        }
    }

    #[inline]
    fn note_use_of(&self, rights: &[Right], found: &Found) {
        let policy = &self.dispatcher.parts.policy;
        let operation = self.operation;
        let Placement { ino, dirs, .. } = &found.position;
        let subject = Subject { operation, rights, node: Some(*ino), dirs, by_modes: false };
        policy.note_use(&self.guest, &subject);
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
        let removes =
            matches!(self.operation, Operation::Unlink | Operation::RemoveDir | Operation::Rename);
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

    /// Records a denial, in a line for each node to which a right is missing: a line tells nothing
    /// of the directories of another node.
    fn note(&self, error: Error, by_modes: bool) {
        let policy = &self.dispatcher.parts.policy;
        let must_exist = match error.code {
            Code::AccessDenied => false,
            Code::Stale if policy.admits(&self.guest) => true,
            _ => return,
        };
        for Denied { handle, rights } in self.denied(by_modes) {
            let position = handle.map(|node| self.dispatcher.parts.shard.placement(node, true));
            if must_exist && !matches!(position, Some(Ok(_))) {
                continue;
            }
            let node = handle.map(|handle| handle.ino);
            let dirs: SmallVec<[InodeId; 2]> = match position {
                Some(Ok(position)) => position.dirs,
                _ => SmallVec::new(),
            };
            let operation = self.operation;
            let subject = Subject { operation, rights: &rights, node, dirs: &dirs, by_modes };
            policy.note_denied(&self.guest, &subject);
        }
    }

    /// Returns each node to which the request lacks a right; all of its nodes if it lacks none now,
    /// or none decides.
    fn denied(&self, by_modes: bool) -> Vec<Denied> {
        let mut denied: Vec<Denied> = Vec::new();
        let mut add = |handle: Option<Handle>, rights: &[Right]| {
            let same = denied.iter_mut().find(|other| {
                let ino = |handle: Option<Handle>| handle.map(|handle| handle.ino);
                ino(other.handle) == ino(handle)
            });
            match same {
                Some(Denied { rights: known, .. }) => {
                    let new = rights.iter().filter(|right| !known.contains(right));
                    let new: Vec<Right> = new.copied().collect();
                    known.extend(new);
                }
                None => denied.push(Denied { handle, rights: rights.to_vec() }),
            }
        };
        let named_nodes = self.request.describe().subjects;
        match self.request.for_guest() {
            ForGuest::Needs(_) => {
                for (right, subject) in self.lacking(by_modes) {
                    add(self.handle_of(subject), named(right));
                }
            }
            ForGuest::Parent(node)
            | ForGuest::CommitDir(node)
            | ForGuest::NoXattr(node)
            | ForGuest::NotSupported(node) => add(Some(node), &Right::ALL),
            ForGuest::Commit(open) => add(self.handle_of(GuestSubject::Open(open)), &Right::ALL),
            ForGuest::Own | ForGuest::Space | ForGuest::Attach => add(None, &Right::ALL),
            ForGuest::Revoke => add(None, &[Right::Audit]),
            ForGuest::Never => {
                named_nodes.each_inode().for_each(|node| add(Some(Handle::own(node)), &[]));
                let opens = named_nodes.each_open().map(GuestSubject::Open);
                opens.for_each(|open| add(self.handle_of(open), &[]));
                if named_nodes.each_inode().next().is_none()
                    && named_nodes.each_open().next().is_none()
                {
                    add(None, &[]);
                }
            }
        }
        denied
    }

    /// Returns the needs of the request that are not met; all if each of them is, as when a node
    /// has moved meanwhile.
    fn lacking(&self, by_modes: bool) -> Vec<(GuestRight, GuestSubject)> {
        let ForGuest::Needs(needs) = self.request.for_guest() else { return Vec::new() };
        let rights = self.rights(None);
        let is_missing = |need: &(GuestRight, GuestSubject)| {
            let checked = rights.check_right(need.0, need.1);
            checked.is_err_and(|error| matches!(error.code, Code::AccessDenied | Code::Stale))
        };
        let is_denied = |need: &(GuestRight, GuestSubject)| match need {
            _ if !by_modes => is_missing(need),
            (GuestRight::Any, _) => false,
            (_, GuestSubject::Node(dir)) if matches!(self.operation, Operation::Rename) => {
                !self.modes().may_change_names(*dir)
            }
            _ => true,
        };
        let mut lacking: Vec<(GuestRight, GuestSubject)> = needs.each().filter(is_denied).collect();
        if lacking.is_empty()
            && !by_modes
            && let Request::Rename { to_dir, .. } = &self.request
        {
            // For the name that it would replace.
            let removes = (GuestRight::Delete, GuestSubject::Node(*to_dir));
            lacking.extend(Some(removes).filter(is_missing));
        }
        if lacking.is_empty() {
            lacking.extend(needs.each());
        }
        lacking
    }

    /// Returns the handle of a subject: a file is found by its name. `None` for an open that is
    /// none any more.
    fn handle_of(&self, subject: GuestSubject) -> Option<Handle> {
        let session = self.context.session;
        match subject {
            GuestSubject::Node(node) => Some(node),
            GuestSubject::Open(open) => {
                self.dispatcher.parts.opens.handle_of(OpenKey { session, open }).ok()
            }
        }
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
