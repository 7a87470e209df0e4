//! The rights that a process has to a file, by the file's mode or access list: for requests that no
//! kernel checks, those of searches, over HTTP and of guests.

/// A process, with the ids and the capability that decide what it may use.
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

/// Rights, as the bits that each class of a mode has for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeRights(u16);

impl ModeRights {
    /// To read a file.
    pub const READ: Self = Self(4);
    /// To write a file.
    pub const WRITE: Self = Self(2);
    /// To look names up in a directory.
    pub const SEARCH: Self = Self(1);
    /// To execute a file.
    pub const EXECUTE: Self = Self(1);
    /// To add names to a directory, and to remove names.
    pub const CHANGE_NAMES: Self = Self(3);
    /// To list a directory, and to look names up in it.
    pub const LIST_AND_SEARCH: Self = Self(5);

    /// Returns the bits.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }
}

/// The attributes of a file that decide who may use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permissions {
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its mode. With an access list the bits of the group are the list's mask.
    pub mode: u16,
    /// It has an access list.
    pub has_acl: bool,
}

impl Process<'_> {
    /// Returns whether mode or access list of a file or directory grant all these rights
    /// (`path_resolution(7)`, `acl(5)`). `list` returns the bits that the access list gives the
    /// process; it is called if there is such a list, and it decides.
    ///
    /// # Errors
    /// Those of `list`.
    pub fn may<E>(
        &self,
        wanted: ModeRights,
        file: &Permissions,
        list: impl FnOnce() -> Result<u16, E>,
    ) -> Result<bool, E> {
        let has = |rights: u16| rights & wanted.0 == wanted.0;
        if self.reads_all {
            return Ok(true);
        }
        if self.uid == file.uid {
            return Ok(has(file.mode >> 6));
        }
        if file.has_acl {
            return list().map(has);
        }
        let class = if self.is_in(file.gid) { 3 } else { 0 };
        Ok(has(file.mode >> class))
    }

    /// Returns whether a group is among those of the process.
    #[must_use]
    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const OWNER: u32 = 7;
    const GROUP: u32 = 8;

    fn process(uid: u32, gid: u32, groups: &[u32]) -> Process<'_> {
        Process { uid, gid, groups, reads_all: false }
    }

    fn may(process: Process<'_>, wanted: ModeRights, mode: u16) -> bool {
        let file = Permissions { uid: OWNER, gid: GROUP, mode, has_acl: false };
        let list = || -> Result<u16, Infallible> { unreachable!("there is no list") };
        process.may(wanted, &file, list).unwrap()
    }

    #[test]
    fn the_first_class_of_the_mode_that_a_process_is_in_decides() {
        let reads = |process, mode| may(process, ModeRights::READ, mode);
        let owner = process(OWNER, GROUP, &[]);
        let other = process(9, 1, &[2]);
        let members = [process(9, GROUP, &[]), process(9, 1, &[2, GROUP])];
        assert!(reads(owner, 0o400) && !reads(owner, 0o044));
        for member in members {
            assert!(reads(member, 0o040) && !reads(member, 0o404));
        }
        assert!(reads(other, 0o004) && !reads(other, 0o440));
        let enters = |mode| may(other, ModeRights::LIST_AND_SEARCH, mode);
        assert!(enters(0o005) && !enters(0o004) && !enters(0o001));
        let passes = |mode| may(other, ModeRights::SEARCH, mode);
        assert!(passes(0o001) && !passes(0o004));
        assert!(may(Process { reads_all: true, ..other }, ModeRights::LIST_AND_SEARCH, 0));
        // Being user 0 is no capability.
        assert!(!reads(process(0, 0, &[]), 0));
    }

    #[test]
    fn an_access_list_decides_for_all_but_the_owner() {
        let file = Permissions { uid: OWNER, gid: GROUP, mode: 0o477, has_acl: true };
        let reads = |process: Process<'_>, rights| {
            process.may(ModeRights::READ, &file, || Ok::<_, Infallible>(rights)).unwrap()
        };
        assert!(reads(process(OWNER, 1, &[]), 0));
        assert!(!reads(process(9, GROUP, &[]), 0) && reads(process(9, GROUP, &[]), 4));
        let failed = process(9, 9, &[]).may(ModeRights::READ, &file, || Err("damaged"));
        assert_eq!(failed, Err("damaged"));
    }
}
