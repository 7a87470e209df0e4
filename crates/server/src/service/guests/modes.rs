//! The check of modes for the user as whom a guest acts: a guest can do no more than the user who
//! has shared the directory. No kernel has checked that, because the guest's kernel is not trusted.

use pelago_data::OpenKey;
use pelago_keynote::Right;
use pelago_meta::reply_cache::ExpectedNodes;
use pelago_wire::{
    Attr, Code, Error, FileKind, Handle, InodeId, ModeRights, OpenId, Permissions, Process,
    Request, SessionId, SetAttr, SetTime,
};

use crate::policy::User;
use crate::service::Parts;

/// The bit of a directory in which only owners remove names (`unlink(2)`).
const STICKY: u16 = 0o1000;

/// A user, and the parts that have the modes.
#[derive(Clone, Copy)]
pub(in crate::service) struct UserModes<'a> {
    pub(in crate::service) parts: &'a Parts,
    pub(in crate::service) user: &'a User,
    pub(in crate::service) session: SessionId,
}

impl UserModes<'_> {
    /// Checks that the user may make a request (`path_resolution(7)`). Opens were checked when they
    /// were made.
    ///
    /// # Errors
    /// `AccessDenied`; `NotPermitted` for what only an owner may; `Stale`.
    pub(super) fn check(
        &self,
        request: &Request,
        expected: Option<ExpectedNodes>,
    ) -> Result<(), Error> {
        if self.user.uid == 0 {
            return Ok(());
        }
        match request {
            Request::Lookup { dir, .. } => self.needs(ModeRights::SEARCH, *dir),
            Request::List { dir, .. } => self.needs(ModeRights::READ, *dir),
            Request::GetXattr { node, .. } | Request::ListXattr { node } => {
                self.needs(ModeRights::READ, *node)
            }
            Request::SetXattr { node, .. } | Request::RemoveXattr { node, .. } => {
                self.needs(ModeRights::WRITE, *node)
            }
            // A client opens again what it had open; that it had is its word alone.
            Request::Open { node, flags, .. } | Request::Reopen { node, flags, .. } => {
                let writes = flags.write || flags.truncate;
                if flags.read || !writes {
                    self.needs(ModeRights::READ, *node)?;
                }
                if writes { self.needs(ModeRights::WRITE, *node) } else { Ok(()) }
            }
            Request::SetAttr { node, open, set } => {
                self.check_attributes(*node, open.is_some_and(|open| self.may_write(open)), set)
            }
            Request::Create { dir, .. }
            | Request::CreateUnnamed { dir, .. }
            | Request::MakeDir { dir, .. }
            | Request::MakeNode { dir, .. }
            | Request::Symlink { dir, .. }
            | Request::Link { dir, .. } => self.needs(ModeRights::CHANGE_NAMES, *dir),
            Request::Unlink { dir, .. } | Request::RemoveDir { dir, .. } => {
                self.needs(ModeRights::CHANGE_NAMES, *dir)?;
                self.check_sticky(*dir, expected.ok_or(Code::Busy)?.first)
            }
            Request::Rename { from_dir, to_dir, .. } => {
                let ExpectedNodes { first, second } = expected.ok_or(Code::Busy)?;
                self.needs(ModeRights::CHANGE_NAMES, *from_dir)?;
                self.needs(ModeRights::CHANGE_NAMES, *to_dir)?;
                self.check_sticky(*from_dir, first)?;
                self.check_sticky(*to_dir, second)?;
                match from_dir.ino == to_dir.ino {
                    true => Ok(()),
                    false => self.check_parent_changes([first, second]),
                }
            }
            // What is open was checked when it was opened. The others read no more than a lookup,
            // end what the session has, or are never made by guests.
            Request::Parent { .. }
            | Request::Find { .. }
            | Request::GetAttr { .. }
            | Request::ReadLink { .. }
            | Request::Flush { .. }
            | Request::Release { .. }
            | Request::GetLock { .. }
            | Request::SetLock { .. }
            | Request::ReclaimLock { .. }
            | Request::Fsync { .. }
            | Request::FsyncAt { .. }
            | Request::FsyncDir { .. }
            | Request::Read { .. }
            | Request::Write { .. }
            | Request::StatFs
            | Request::Allocate { .. }
            | Request::Seek { .. }
            | Request::CopyRange { .. }
            | Request::Search { .. }
            | Request::Tags { .. }
            | Request::Attach { .. }
            | Request::Issue { .. }
            | Request::Access { .. }
            | Request::Audited { .. }
            | Request::Revoke { .. }
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
            | Request::Servers => Ok(()),
        }
    }

    /// Returns whether the session has a file open to write.
    fn may_write(&self, open: OpenId) -> bool {
        let opened = self.parts.opens.opened(OpenKey { session: self.session, open });
        opened.is_ok_and(|(_, flags)| flags.write)
    }

    /// Checks that the user may write a file that is not open.
    ///
    /// # Errors
    /// As [`UserModes::check`].
    pub(super) fn check_write(&self, node: Handle) -> Result<(), Error> {
        match self.user.uid {
            0 => Ok(()),
            _ => self.needs(ModeRights::WRITE, node),
        }
    }

    /// Returns whether the user may change names in a directory.
    pub(super) fn may_change_names(&self, dir: Handle) -> bool {
        self.user.uid == 0 || self.needs(ModeRights::CHANGE_NAMES, dir).is_ok()
    }

    fn needs(&self, wanted: ModeRights, node: Handle) -> Result<(), Error> {
        match self.parts.shard.may(&self.process(), wanted, node)? {
            true => Ok(()),
            false => Err(Code::AccessDenied.into()),
        }
    }

    fn process(&self) -> Process<'_> {
        let User { uid, gid, groups } = self.user;
        Process { uid: *uid, gid: *gid, groups, reads_all: *uid == 0 }
    }

    /// Checks a change of attributes (`chmod(2)`, `truncate(2)`, `utimensat(2)`).
    fn check_attributes(&self, node: Handle, is_open: bool, set: &SetAttr) -> Result<(), Error> {
        if set.size.is_some() && !is_open {
            self.needs(ModeRights::WRITE, node)?;
        }
        let times = [set.atime, set.mtime];
        let are_now = times.iter().flatten().all(|time| *time == SetTime::Now);
        let sets_times = times.iter().flatten().count() > 0;
        if set.mode.is_none() && !sets_times {
            return Ok(());
        }
        if self.parts.shard.attr(node)?.uid == self.user.uid {
            return Ok(());
        }
        match set.mode.is_none() && are_now {
            // As a write, which an open may already make.
            true if is_open => Ok(()),
            true => self.needs(ModeRights::WRITE, node),
            false => Err(Code::NotPermitted.into()),
        }
    }

    /// Checks that the user may remove the name of a node from a directory with the sticky bit.
    fn check_sticky(&self, dir: Handle, node: Option<InodeId>) -> Result<(), Error> {
        let (Some(node), Attr { mode, uid, .. }) = (node, self.parts.shard.attr(dir)?) else {
            return Ok(());
        };
        if mode & STICKY == 0 || uid == self.user.uid {
            return Ok(());
        }
        match self.parts.shard.attr(Handle::own(node))?.uid == self.user.uid {
            true => Ok(()),
            false => Err(Code::NotPermitted.into()),
        }
    }

    /// Checks that the user may write directories that get another parent: their `..` changes.
    fn check_parent_changes(&self, nodes: [Option<InodeId>; 2]) -> Result<(), Error> {
        for node in nodes.into_iter().flatten().map(Handle::own) {
            if self.parts.shard.attr(node)?.kind == FileKind::Directory {
                self.needs(ModeRights::WRITE, node)?;
            }
        }
        Ok(())
    }

    /// Returns the user and the mode, if the mode or the access list of a node of these attributes
    /// denies the user a right; `None` if it does not, or says nothing of this right.
    pub(in crate::service) fn denial(&self, attr: &Attr, right: Right) -> Option<String> {
        let is_dir = attr.kind == FileKind::Directory;
        let wanted = match right {
            Right::Read => ModeRights::READ,
            Right::Write if !is_dir => ModeRights::WRITE,
            // No right is missing to a file that is no program.
            Right::Execute if !is_dir && attr.mode & 0o111 != 0 => ModeRights::EXECUTE,
            Right::Create | Right::Delete if is_dir => ModeRights::CHANGE_NAMES,
            Right::Write
            | Right::Execute
            | Right::Create
            | Right::Delete
            | Right::Grant
            | Right::Audit => return None,
        };
        if self.user.uid == 0 || self.bits(attr) & wanted.bits() == wanted.bits() {
            return None;
        }
        let Attr { mode, uid, gid, .. } = attr;
        let own = self.user.uid;
        Some(format!("user {own}: mode {mode:04o}, owner {uid}, group {gid}"))
    }

    /// Returns which of read (4), write (2) and execute (1) a node of these attributes grants to
    /// the user. User 0 may do everything; it sees the bits of the owner.
    pub(super) fn bits(&self, attr: &Attr) -> u16 {
        let Attr { mode, uid, gid, .. } = *attr;
        if self.user.uid == 0 {
            return mode >> 6 & 7;
        }
        // The node may have an access list, which its row says.
        let file = Permissions { uid, gid, mode, has_acl: attr.has_xattrs };
        let process = self.process();
        let listed = |wanted| self.parts.shard.may(&process, wanted, Handle::own(attr.ino));
        let may = |wanted: ModeRights| {
            let list = || listed(wanted).map(|may| if may { wanted.bits() } else { 0 });
            process.may(wanted, &file, list).unwrap_or(false)
        };
        let all = [ModeRights::READ, ModeRights::WRITE, ModeRights::EXECUTE];
        all.into_iter().filter(|wanted| may(*wanted)).fold(0, |bits, wanted| bits | wanted.bits())
    }
}
