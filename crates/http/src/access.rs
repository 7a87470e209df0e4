//! Access checks by mode bits, for the user as whom the server reads.
//!
//! Below a mount the kernel checks access; over HTTP only this module does. A file or directory
//! with an access control list is refused before this check, because the server evaluates no lists.

use std::convert::Infallible;

use pelago_wire::{Attr, ModeRights, Permissions, Process};

/// The user as whom the server reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadAs {
    /// The user id; 0 may read everything.
    pub uid: u32,
    /// The id of the user's group.
    pub gid: u32,
    /// The ids of all groups of the user.
    pub gids: Vec<u32>,
}

impl ReadAs {
    /// Returns whether the mode of a file or directory without an access control list grants these
    /// rights (path_resolution(7)).
    pub(crate) fn may(&self, wanted: ModeRights, attr: &Attr) -> bool {
        let process =
            Process { uid: self.uid, gid: self.gid, groups: &self.gids, reads_all: self.uid == 0 };
        let Attr { uid, gid, mode, .. } = *attr;
        let file = Permissions { uid, gid, mode, has_acl: false };
        let Ok(may) = process.may(wanted, &file, || Ok::<_, Infallible>(0));
        may
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::{FileKind, InodeId};

    use super::*;

    #[test]
    fn a_reader_is_in_all_its_groups_and_user_0_reads_all() {
        let attr = |mode| Attr {
            uid: 7,
            gid: 8,
            mode,
            ..Attr::empty(InodeId::from_raw(20), FileKind::Regular)
        };
        let reader = |uid, gids: &[u32]| ReadAs { uid, gid: 1, gids: gids.to_vec() };
        let may = |reader: &ReadAs, mode| reader.may(ModeRights::READ, &attr(mode));
        let group = reader(9, &[1, 8]);
        assert!(may(&group, 0o040) && !may(&group, 0o404));
        assert!(!may(&reader(9, &[1]), 0o440));
        assert!(may(&reader(0, &[0]), 0));
    }
}
