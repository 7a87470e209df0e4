//! Whether a process may read a file or search a directory, for answers that the kernel does not
//! check: those of a search.

use pelago_store::rows::Rnode;

use crate::acl::Acl;

/// A process, with the ids and the capability that decide what it may read.
#[derive(Debug, Clone, Copy)]
pub struct Process<'a> {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its supplementary groups.
    pub groups: &'a [u32],
    /// It has `CAP_DAC_READ_SEARCH`.
    pub reads_all: bool,
}

/// A right, as bits of a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// To read a file.
    Read = 4,
    /// To list a directory, and to look names up in it.
    ListAndSearch = 5,
}

impl Process<'_> {
    /// Returns whether mode or access list of a file or directory grant a right
    /// (`path_resolution(7)`, `acl(5)`). `list` reads the access list; it is called if there is
    /// that is missing grants nothing.
    ///
    /// # Errors
    /// Those of `list`.
    pub(crate) fn may<E>(
        &self,
        wish: Wish,
        rnode: &Rnode,
        list: impl FnOnce() -> Result<Option<Acl>, E>,
    ) -> Result<bool, E> {
        let wanted = wish as u16;
        let has = |rights: u16| rights & wanted == wanted;
        if self.reads_all {
            return Ok(true);
        }
        if self.uid == rnode.uid {
            return Ok(has(rnode.mode >> 6));
        }
        if rnode.flags.has_acl {
            let is_in = |gid| self.is_in(gid);
            let list = list()?;
            return Ok(
                list.is_some_and(|list| has(list.rights_of(self.uid, is_in, rnode.gid, wanted)))
            );
        }
        let class = if self.is_in(rnode.gid) { 3 } else { 0 };
        Ok(has(rnode.mode >> class))
    }

    fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use pelago_store::rows::RnodeFlags;
    use pelago_store::volume::Owner;
    use pelago_wire::Time;

    use super::*;

    const OWNER: u32 = 7;
    const GROUP: u32 = 8;

    fn rnode(mode: u16, has_acl: bool) -> Rnode {
        let flags = RnodeFlags { has_acl, ..RnodeFlags::default() };
        let root = Rnode::root(Owner { uid: OWNER, gid: GROUP }, Time::default());
        Rnode { mode, flags, ..root }
    }

    fn process(uid: u32, gid: u32, groups: &[u32]) -> Process<'_> {
        Process { uid, gid, groups, reads_all: false }
    }

    fn may(process: Process<'_>, wish: Wish, mode: u16) -> bool {
        let none = || Ok::<_, Infallible>(None);
        process.may(wish, &rnode(mode, false), none).unwrap()
    }

    /// Encodes an access list of these tags, rights and ids.
    fn list(entries: &[(u16, u16, u32)]) -> Option<Acl> {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            bytes.extend(tag.to_le_bytes().into_iter().chain(rights.to_le_bytes()));
            bytes.extend(id.to_le_bytes());
        }
        Acl::decode(&bytes).unwrap()
    }

    #[test]
    fn the_first_class_of_the_mode_that_a_process_is_in_decides() {
        let (owner, other) = (process(OWNER, GROUP, &[]), process(9, 1, &[2]));
        let members = [process(9, GROUP, &[]), process(9, 1, &[2, GROUP])];
        assert!(may(owner, Wish::Read, 0o400) && !may(owner, Wish::Read, 0o044));
        for member in members {
            assert!(may(member, Wish::Read, 0o040) && !may(member, Wish::Read, 0o404));
        }
        assert!(may(other, Wish::Read, 0o004) && !may(other, Wish::Read, 0o440));
        assert!(may(other, Wish::ListAndSearch, 0o005));
        assert!(!may(other, Wish::ListAndSearch, 0o004) && !may(other, Wish::ListAndSearch, 0o001));
        assert!(may(Process { reads_all: true, ..other }, Wish::ListAndSearch, 0));
        // Being user 0 is no capability.
        assert!(!may(process(0, 0, &[]), Wish::Read, 0));
    }

    #[test]
    fn an_access_list_decides_for_all_but_the_owner() {
        let entries = [
            (0x01, 0, u32::MAX),
            (0x02, 4, 20),
            (0x02, 7, 21),
            (0x04, 0, u32::MAX),
            (0x08, 4, 30),
            (0x08, 1, 31),
            (0x10, 5, u32::MAX),
            (0x20, 7, u32::MAX),
        ];
        let may = |process: Process<'_>, wish| {
            let list = || Ok::<_, Infallible>(list(&entries));
            process.may(wish, &rnode(0o077, true), list).unwrap()
        };
        let read = |process| may(process, Wish::Read);
        assert!(!read(process(OWNER, 1, &[])));
        assert!(read(process(20, 1, &[])) && !may(process(20, 1, &[]), Wish::ListAndSearch));
        // The mask allows both.
        assert!(may(process(21, 1, &[]), Wish::ListAndSearch));
        // A group that is named and does not suffice is not among the others.
        assert!(!read(process(9, GROUP, &[])) && !read(process(9, 1, &[31])));
        assert!(read(process(9, GROUP, &[30])) && read(process(9, 31, &[30])));
        // Neither of two groups has both rights.
        assert!(!may(process(9, 31, &[30]), Wish::ListAndSearch));
        assert!(may(process(9, 1, &[]), Wish::ListAndSearch));
    }

    #[test]
    fn a_list_that_is_missing_grants_nothing() {
        let none = || Ok::<_, Infallible>(None);
        assert!(!process(9, 9, &[]).may(Wish::Read, &rnode(0o777, true), none).unwrap());
    }
}
