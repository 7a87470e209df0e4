//! The caller of a request, and whether it keeps the setgid bit of a file that it changes.

use pelago_fuse::Header;
use pelago_wire::{Attr, Context, Handle};

use crate::process::{Process, is_mapped};
use crate::state::State;

/// A process that waits for a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    uid: u32,
    gid: u32,
    process: Process,
}

/// The capability to keep the setgid bit of files of other groups.
const CAP_FSETID: u64 = 1 << 4;
const SETGID: u16 = 0o2000;

impl Caller {
    /// Returns the caller of a request.
    pub(crate) const fn of(header: &Header) -> Self {
        Self { uid: header.uid, gid: header.gid, process: Process::of(header) }
    }

    /// Returns the context that the server gets.
    pub(crate) const fn context(self) -> Context {
        Context::direct(self.uid, self.gid)
    }

    /// Calls `go` with true if a change by this caller clears the setgid bit of a file even if its
    /// group may not execute it: the bit is set, and the caller neither is in the file's group nor
    /// has the capability to keep the bit (`in_group_or_capable` in Linux). No request says so.
    pub(crate) fn kills_setgid(
        self,
        state: &State,
        node: Handle,
        go: impl FnOnce(bool) + Send + 'static,
    ) {
        let attr = state.files.get_attr(&self.context(), node);
        attr.then(move |attr| {
            go(attr.is_ok_and(|attr| attr.mode & SETGID != 0 && !self.keeps_setgid(&attr)));
        });
    }

    fn keeps_setgid(self, attr: &Attr) -> bool {
        if self.gid == attr.gid {
            return true;
        }
        let Ok(status) = self.process.status() else { return self.uid == 0 };
        status.is_member(attr.gid) || (status.has(CAP_FSETID) && self.maps_owners(attr))
    }

    /// Returns whether owner and group of a file are mapped in the caller's user namespace. The
    /// capabilities of that namespace count for such files only (`capable_wrt_inode_uidgid` in
    /// Linux).
    fn maps_owners(self, attr: &Attr) -> bool {
        let maps = |file, id| self.process.read(file).is_ok_and(|map| is_mapped(&map, id));
        maps("uid_map", attr.uid) && maps("gid_map", attr.gid)
    }
}
