//! The user of a query, with the groups and capabilities that decide which files it may read.

use pelago_fuse::{Errno, Header};
use pelago_wire::{Asker, Context, limits};

use crate::process::Process;

/// `CAP_DAC_OVERRIDE` and `CAP_DAC_READ_SEARCH`: with one of them a process reads every file.
const READS_ALL: u64 = 1 << 1 | 1 << 2;

/// The rights of a process at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rights {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) asker: Asker,
}

impl Rights {
    /// Returns the rights of the caller of a request. If `/proc` does not show the caller, its user
    /// and group alone count.
    ///
    /// # Errors
    /// `E2BIG` if the caller is in more groups than a search has room for.
    pub(super) fn of(header: &Header) -> Result<Self, Errno> {
        let process = Process::of(header);
        let asker = match process.status() {
            Ok(status) => Asker {
                groups: status.groups().collect(),
                reads_all: status.has(READS_ALL) && process.maps_all(),
            },
            Err(_) => Asker { groups: Vec::new(), reads_all: header.uid == 0 },
        };
        if asker.groups.len() > limits::ASKER_GROUPS {
            return Err(Errno::TOOBIG);
        }
        Ok(Self { uid: header.uid, gid: header.gid, asker })
    }

    /// Returns the context of a search with these rights.
    pub(super) const fn context(&self) -> Context {
        Context::direct(self.uid, self.gid)
    }
}
