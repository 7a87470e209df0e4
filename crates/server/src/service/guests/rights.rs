//! The check of a guest's rights to the subjects of a request.

use pelago_data::OpenKey;
use pelago_keynote::Right;
use pelago_meta::reply_cache::ExpectedNodes;
use pelago_meta::shard::Placement;
use pelago_wire::{
    Code, Error, FileKind, ForGuest, GuestRight, GuestSubject, Handle, InodeId, Name, Needs,
    OpenId, Operation, RenameFlags, Request, SessionId,
};
use smallvec::SmallVec;

use crate::policy::{Guest, RightSet, Sought, Terms};
use crate::service::Parts;

/// The number of attempts to find a position while directories move.
const ATTEMPTS: u32 = 8;

/// The rights of a guest, and the parts that decide about them.
#[derive(Clone, Copy)]
pub(in crate::service) struct GuestRights<'a> {
    pub(in crate::service) parts: &'a Parts,
    pub(in crate::service) guest: &'a Guest,
    pub(in crate::service) session: SessionId,
    /// The operation that the rights are for.
    pub(in crate::service) operation: Operation,
    /// The terms from before all that decides is read; `None` if they are read for each decision.
    pub(in crate::service) terms: Option<Terms>,
}

/// The subjects of a request: most have one.
pub(super) type Subjects = SmallVec<[Found; 1]>;

/// The position of a subject, and the rights of the guest to it.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) position: Placement,
    pub(super) rights: RightSet,
}

impl GuestRights<'_> {
    /// Returns all subjects, if the guest has all rights that are needed.
    ///
    /// # Errors
    /// As [`GuestRights::find`], for any subject; `AccessDenied` if the guest has other rights to
    /// all of them.
    pub(super) fn check(&self, needs: &Needs) -> Result<Subjects, Error> {
        let mut all = Subjects::new();
        let mut is_granted = true;
        for (right, subject) in needs.each() {
            let found = self.find(subject)?;
            is_granted &= self.suffices(right, subject, found.rights);
            all.push(found);
        }
        match is_granted {
            true => Ok(all),
            false => Err(Code::AccessDenied.into()),
        }
    }

    /// Returns whether the guest may audit a node; not if there is none.
    ///
    /// # Errors
    /// `Busy` if directories move all the time; errors of the table.
    pub(in crate::service) fn may_audit(&self, node: Handle) -> Result<bool, Error> {
        match self.find_rights(GuestSubject::Node(node), &[Right::Audit]) {
            Ok(found) => Ok(found.rights.has(Right::Audit)),
            Err(error) if error.code == Code::Stale => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the guest may audit a directory and all below it; not if there is none.
    ///
    /// # Errors
    /// As [`GuestRights::may_audit`].
    pub(in crate::service) fn may_audit_below(&self, dir: Handle) -> Result<bool, Error> {
        let Parts { policy, shard, .. } = self.parts;
        for _ in 0..ATTEMPTS {
            let position = match self.position(GuestSubject::Node(dir)) {
                Err(error) if error.code == Code::Stale => return Ok(false),
                position => position?,
            };
            if position.version.is_some() {
                // It is a file.
                return Ok(false);
            }
            let right = Right::Audit;
            match policy.grants_below(self.guest, shard, &position, right, self.operation) {
                Err(error) if error.code == Code::Busy => {}
                Err(error) if error.code == Code::Stale => return Ok(false),
                decided => return decided,
            }
        }
        Err(Code::Busy.into())
    }

    /// Checks one right to one subject.
    ///
    /// # Errors
    /// As [`GuestRights::check`].
    pub(super) fn check_right(
        &self,
        right: GuestRight,
        subject: GuestSubject,
    ) -> Result<(), Error> {
        match self.suffices(right, subject, self.find(subject)?.rights) {
            true => Ok(()),
            false => Err(Code::AccessDenied.into()),
        }
    }

    /// Returns whether rights to a subject suffice. By an open that has created its file, the guest
    /// may write without the right to.
    fn suffices(&self, right: GuestRight, subject: GuestSubject, rights: RightSet) -> bool {
        let has = |right| rights.has(right);
        match (right, subject) {
            (GuestRight::Any, _) => true,
            (GuestRight::Read, _) => has(Right::Read),
            (GuestRight::Write, GuestSubject::Node(_)) => has(Right::Write),
            (GuestRight::Write, GuestSubject::Open(open)) => {
                has(Right::Write) || self.has_made(open)
            }
            (GuestRight::Create, _) => has(Right::Create),
            (GuestRight::Delete, _) => has(Right::Delete),
            (GuestRight::Audit, _) => has(Right::Audit),
        }
    }

    /// Returns whether the guest has created the file of an open by that open. A number may have
    /// been used before.
    fn has_made(&self, open: OpenId) -> bool {
        let made = self.guest.made().get(&open).copied();
        let opened = self.parts.opens.inode_of(OpenKey { session: self.session, open }).ok();
        made.is_some() && made == opened
    }

    /// Returns the present position of a subject, and the rights of the guest to it.
    ///
    /// # Errors
    /// `Stale` if it has none, as for a node that does not exist; `BadOpen`; `Busy` if directories
    /// move all the time.
    pub(super) fn find(&self, subject: GuestSubject) -> Result<Found, Error> {
        self.find_rights(subject, &Right::ALL)
    }

    /// As [`GuestRights::find`], but only these rights, and those that were decided before, are
    /// looked at.
    ///
    /// # Errors
    /// As [`GuestRights::find`]; `Stale` if it has none of them.
    pub(super) fn find_rights(
        &self,
        subject: GuestSubject,
        rights: &[Right],
    ) -> Result<Found, Error> {
        self.find_at(|| self.position(subject), rights)
    }

    /// Returns the present position of a subject.
    ///
    /// # Errors
    /// `Stale`; `BadOpen`.
    fn position(&self, subject: GuestSubject) -> Result<Placement, Error> {
        let node = match subject {
            GuestSubject::Node(node) => node,
            GuestSubject::Open(open) => {
                self.parts.opens.handle_of(OpenKey { session: self.session, open })?
            }
        };
        let is_open = matches!(subject, GuestSubject::Open(_));
        let position = self.parts.shard.placement(node, is_open)?;
        let has_made = || self.guest.made().values().any(|made| *made == node.ino);
        let has_it_open = || self.parts.opens.is_open_in(self.session, node.ino) || has_made();
        // A kernel asks for the attributes of an open file that was removed by its handle.
        match position.dirs.is_empty() && !is_open && has_it_open() {
            true => self.parts.shard.placement(node, true),
            false => Ok(position),
        }
    }

    /// Returns whether all opens among the subjects are of the files that were found. A number that
    /// is released can be used again.
    pub(super) fn have_files(&self, needs: &Needs, found: &[Found]) -> bool {
        needs.each().zip(found).all(|((_, subject), found)| match subject {
            GuestSubject::Node(_) => true,
            GuestSubject::Open(open) => {
                let opened = self.parts.opens.inode_of(OpenKey { session: self.session, open });
                opened.is_ok_and(|opened| opened == found.position.ino)
            }
        })
    }

    /// Returns whether all subjects are where they were found.
    pub(super) fn are_where(&self, needs: &Needs, found: &[Found]) -> bool {
        needs.each().count() == found.len()
            && needs.each().zip(found).all(|((_, subject), found)| {
                self.position(subject).is_ok_and(|position| position == found.position)
            })
    }

    /// Returns the file to which a name in a directory leads that is not granted itself. A share of
    /// a file grants nothing of its directory, so the file decides; all else there looks as if that
    /// did not exist.
    ///
    /// # Errors
    /// As [`GuestRights::find`].
    pub(super) fn find_named(&self, dir: Handle, name: &Name) -> Result<Found, Error> {
        self.find_at(|| self.parts.shard.placement_of_name(dir.ino, name), &Right::ALL)
    }

    fn find_at(
        &self,
        position: impl Fn() -> Result<Placement, Error>,
        rights: &[Right],
    ) -> Result<Found, Error> {
        for _ in 0..ATTEMPTS {
            let position = position()?;
            match self.rights(&position, rights) {
                // A directory has moved meanwhile.
                Err(error) if error.code == Code::Busy => {}
                Err(error) => return Err(error),
                Ok(rights) if rights.is_empty() => return Err(Code::Stale.into()),
                Ok(rights) => return Ok(Found { position, rights }),
            }
        }
        Err(Code::Busy.into())
    }

    /// Returns those of some rights that the guest has in any directory of a node.
    ///
    /// # Errors
    /// `Busy` if directories have moved since; errors of the table.
    fn rights(&self, position: &Placement, rights: &[Right]) -> Result<RightSet, Error> {
        let Parts { policy, shard, .. } = self.parts;
        let terms = self.terms.unwrap_or_else(|| policy.terms());
        let sought = Sought { operation: self.operation, rights, terms };
        let mut all = RightSet::default();
        for dir in &position.dirs {
            all = all.or(policy.rights(self.guest, shard, position, *dir, sought)?);
        }
        Ok(all)
    }

    /// Checks a change again, while no right changes and no node moves.
    ///
    /// # Errors
    /// As [`GuestRights::check`]; `CrossHome` if a node would get a name in a directory that grants
    /// more; `Busy` if its names lead to other nodes all the time.
    pub(super) fn check_change(
        &self,
        request: &Request,
        expected: Option<ExpectedNodes>,
    ) -> Result<(), Error> {
        if let ForGuest::Needs(needs) = request.for_guest() {
            self.check(&needs)?;
        }
        let policy = &self.parts.policy;
        if matches!(request, Request::Link { .. } | Request::Rename { .. })
            && (policy.reads_names(self.guest) || policy.reads_operation(self.guest))
        {
            // The new name may grant more; so may the new directory, for other operations.
            return Err(Code::CrossHome.into());
        }
        match request {
            Request::SetAttr { node, open: Some(open), .. } => {
                // The rights to one file are none to another.
                let opened = OpenKey { session: self.session, open: *open };
                match self.parts.opens.inode_of(opened)? == node.ino {
                    true => Ok(()),
                    false => Err(Code::BadOpen.into()),
                }
            }
            Request::Link { node, dir, .. } => self.check_no_gain(*node, *dir),
            Request::Rename { from_dir, to_dir, flags, .. } => {
                let ExpectedNodes { first, second } = expected.ok_or(Code::Busy)?;
                let is_replaced = second.is_some() && flags.replaces();
                if is_replaced && !self.find(GuestSubject::Node(*to_dir))?.rights.has(Right::Delete)
                {
                    return Err(Code::AccessDenied.into());
                }
                if from_dir.ino == to_dir.ino {
                    return Ok(());
                }
                self.check_moved(first, *to_dir)?;
                let back = second.filter(|_| *flags == RenameFlags::Exchange);
                self.check_moved(back, *from_dir)
            }
            _ => Ok(()),
        }
    }

    fn check_moved(&self, node: Option<InodeId>, dir: Handle) -> Result<(), Error> {
        let Some(node) = node.map(Handle::own) else { return Ok(()) };
        // Below a directory there may be one to which the guest has fewer rights, and would get
        // those of the new place.
        let is_dir = self.parts.shard.attr(node)?.kind == FileKind::Directory;
        match is_dir && !self.parts.policy.grants_all_below(self.guest) {
            true => Err(Code::CrossHome.into()),
            false => self.check_no_gain(node, dir),
        }
    }

    /// Checks that a guest gains no right to a node by a name in a directory: it could link a file
    /// that it may read into a directory where it may write. Its key may have credentials for that
    /// directory of which this session does not know, so a name in another directory is only for
    /// what it may read and write anyway.
    ///
    /// # Errors
    /// `CrossHome`, so that programs copy the file; `Stale` if the node is not granted.
    fn check_no_gain(&self, node: Handle, dir: Handle) -> Result<(), Error> {
        let there = self.find(GuestSubject::Node(dir))?.rights;
        let Found { position, rights } = self.find(GuestSubject::Node(node))?;
        let needed = match position.dirs.contains(&dir.ino) {
            true => there,
            false => there.or(RightSet::of(&[Right::Read, Right::Write])),
        };
        match rights.has_all(needed) {
            true => Ok(()),
            false => Err(Code::CrossHome.into()),
        }
    }
}
