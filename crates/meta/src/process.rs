//! Permission checks for processes: the rights of a process to a file of the table. For the answers
//! to searches, which the kernel does not check.

use pelago_store::rows::Rnode;
use pelago_wire::{ModeRights, Permissions};

use crate::acl::Acl;

pub use pelago_wire::Process;

/// Returns whether the mode, or the access list, of a file or directory grants these rights. `list`
/// reads the access list, and is called only if the rnode has one; a missing list grants nothing.
///
/// # Errors
/// Those of `list`.
pub(crate) fn may<E>(
    process: &Process<'_>,
    wanted: ModeRights,
    rnode: &Rnode,
    list: impl FnOnce() -> Result<Option<Acl>, E>,
) -> Result<bool, E> {
    let Rnode { uid, gid, mode, flags, .. } = *rnode;
    let file = Permissions { uid, gid, mode, has_acl: flags.has_acl };
    process.may(wanted, &file, || {
        let is_in = |gid| process.is_in(gid);
        let rights = |list: Acl| list.rights_of(process.uid, is_in, gid, wanted.bits());
        Ok(list()?.map_or(0, rights))
    })
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

    fn rnode(mode: u16) -> Rnode {
        let flags = RnodeFlags { has_acl: true, ..RnodeFlags::default() };
        let root = Rnode::root(Owner { uid: OWNER, gid: GROUP }, Time::default());
        Rnode { mode, flags, ..root }
    }

    fn process(uid: u32, gid: u32, groups: &[u32]) -> Process<'_> {
        Process { uid, gid, groups, reads_all: false }
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
        let may = |process: Process<'_>, wanted| {
            let list = || Ok::<_, Infallible>(list(&entries));
            may(&process, wanted, &rnode(0o077), list).unwrap()
        };
        let read = |process| may(process, ModeRights::READ);
        assert!(!read(process(OWNER, 1, &[])));
        assert!(
            read(process(20, 1, &[])) && !may(process(20, 1, &[]), ModeRights::LIST_AND_SEARCH)
        );
        // The mask allows both.
        assert!(may(process(21, 1, &[]), ModeRights::LIST_AND_SEARCH));
        // A group that is named and does not suffice is not among the others.
        assert!(!read(process(9, GROUP, &[])) && !read(process(9, 1, &[31])));
        assert!(read(process(9, GROUP, &[30])) && read(process(9, 31, &[30])));
        // Neither of two groups has both rights.
        assert!(!may(process(9, 31, &[30]), ModeRights::LIST_AND_SEARCH));
        assert!(may(process(9, 1, &[]), ModeRights::LIST_AND_SEARCH));
    }

    #[test]
    fn a_list_that_is_missing_grants_nothing() {
        let none = || Ok::<_, Infallible>(None);
        let process = process(9, 9, &[]);
        assert!(!may(&process, ModeRights::READ, &rnode(0o777), none).unwrap());
    }
}
