//! Whether the server's user may read a file or pass through a directory.
//!
//! The kernel checks that below a mount; here nothing else does. A file or directory with an access
//! control list is refused: what it says besides the mode is not looked at.

use pelago_wire::Attr;

/// The user as whom the server reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadAs {
    /// Its user id; 0 may read everything.
    pub uid: u32,
    /// The ids of all its groups.
    pub gids: Vec<u32>,
}

/// What is to be done, as bits of a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Pass = 1,
    Read = 4,
}

impl ReadAs {
    /// Returns whether the mode of a file or directory permits this (path_resolution(7)).
    pub(crate) fn may(&self, wish: Wish, attr: &Attr) -> bool {
        let class = if self.uid == attr.uid {
            6
        } else if self.gids.contains(&attr.gid) {
            3
        } else {
            0
        };
        self.uid == 0 || attr.mode >> class & wish as u16 != 0
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::{FileKind, InodeId};

    use super::*;

    #[test]
    fn the_first_class_decides_that_a_reader_is_in() {
        let attr = |mode| Attr {
            uid: 7,
            gid: 8,
            mode,
            ..Attr::empty(InodeId::from_raw(20), FileKind::Regular)
        };
        let reader = |uid, gids: &[u32]| ReadAs { uid, gids: gids.to_vec() };
        let (owner, group, other) = (reader(7, &[8]), reader(9, &[1, 8]), reader(9, &[1]));
        let may = |reader: &ReadAs, mode| reader.may(Wish::Read, &attr(mode));
        assert!(may(&owner, 0o400) && !may(&owner, 0o044));
        assert!(may(&group, 0o040) && !may(&group, 0o404));
        assert!(may(&other, 0o004) && !may(&other, 0o440));
        assert!(other.may(Wish::Pass, &attr(0o001)) && !other.may(Wish::Pass, &attr(0o004)));
        assert!(may(&reader(0, &[0]), 0));
    }
}
