//! The open files of a client's programs. Those that were opened under a lease are reported to the
//! server only when something needs that.

use std::collections::HashMap;

use pelago_wire::{Code, Handle, InodeId, OpenFlags, OpenId, Request, SessionId};

use crate::caller::Caller;
use crate::changes::LeaseEra;

/// A callback that waits until the server knows an open, or has refused it.
pub(crate) type OnReport = Box<dyn FnOnce(Result<(), Code>) + Send>;

/// The open files of a mount.
#[derive(Default)]
pub(crate) struct OpenFiles {
    all: HashMap<OpenId, Open>,
    /// The number of opens that the server does not know.
    unreported: usize,
    /// The number of opens that write: each recall asks whether a file has any.
    writers: usize,
    /// The number of opens with an error that no program has got.
    errors: usize,
}

struct Open {
    node: Handle,
    writes: Writes,
    at: At,
    /// The file may have been changed through this open.
    has_written: bool,
    /// The error by which written bytes were lost, until a program has got it.
    error: Option<Code>,
}

/// The way in which an open writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writes {
    /// It only reads.
    No,
    /// It only reads. Each read changes the time of access, so the server gets all of them.
    NoWithReadTimes,
    /// Write-back: its writes may be buffered under a lease.
    Back,
    /// Write-back. Each read changes the time of access, so the server gets all of them.
    BackWithReadTimes,
    /// Write-through (`O_SYNC`): its writes are safe when they are answered.
    Through,
    /// Write-through for a session of another process, which has not written what is buffered here.
    ThroughForOther,
}

impl Writes {
    /// Returns whether writes may be buffered.
    pub(crate) const fn is_back(self) -> bool {
        matches!(self, Self::Back | Self::BackWithReadTimes)
    }

    /// Returns whether an open writes at all.
    const fn is_any(self) -> bool {
        !matches!(self, Self::No | Self::NoWithReadTimes)
    }

    /// Returns whether bytes that were written through such an open, or beside it by programs of
    /// this process, may be buffered here and lost.
    const fn may_lose(self) -> bool {
        matches!(self, Self::Back | Self::BackWithReadTimes | Self::Through)
    }

    /// Returns how an open with these flags writes. That of another session than this process's own
    /// writes through: its client would not lose with this process what is buffered here.
    pub(crate) const fn of(flags: OpenFlags, session: SessionId) -> Self {
        let OpenFlags { write, sync, strict_atime, no_atime, .. } = flags;
        let has_read_times = strict_atime && !no_atime;
        match (write, has_read_times) {
            (false, true) => Self::NoWithReadTimes,
            (false, false) => Self::No,
            (true, _) if session.0 != SessionId::DIRECT.0 => Self::ThroughForOther,
            (true, _) if sync => Self::Through,
            (true, true) => Self::BackWithReadTimes,
            (true, false) => Self::Back,
        }
    }
}

/// The ends at which an open is known.
enum At {
    /// Only here: it was made under leases of this era, if under any.
    Here { flags: OpenFlags, caller: Caller, leases: LeaseEra },
    /// A report to the server is under way.
    Reporting { flags: OpenFlags, caller: Caller, leases: LeaseEra, waiting: Vec<OnReport> },
    /// At the server.
    Server,
    /// Nowhere: the server has refused it.
    Failed(Code),
}

/// The report that a request waits for which names an open.
pub(crate) enum Report {
    /// Nothing: the server knows the open, or it is not one of this client.
    Known,
    /// Nothing: the server has refused the open.
    Failed(Code),
    /// The report under way. The callback is stored.
    UnderWay,
    /// A report, by this request on this caller's behalf, whose reply goes to
    /// [`OpenFiles::reported`]. The callback is stored.
    Ask { request: Request, caller: Caller },
}

impl OpenFiles {
    /// Adds an open that only this mount knows.
    pub(crate) fn add_here(
        &mut self,
        open: OpenId,
        node: Handle,
        flags: OpenFlags,
        caller: Caller,
        leases: LeaseEra,
    ) {
        self.unreported += 1;
        let at = At::Here { flags, caller, leases };
        let open_file = Open { node, writes: Writes::No, at, has_written: false, error: None };
        self.all.insert(open, open_file);
    }

    /// Adds an open that the server has made.
    pub(crate) fn add_at_server(&mut self, open: OpenId, ino: InodeId, writes: Writes) {
        self.remove(open);
        self.writers += usize::from(writes.is_any());
        let node = Handle::own(ino);
        let open_file = Open { node, writes, at: At::Server, has_written: false, error: None };
        self.all.insert(open, open_file);
    }

    /// Returns the inode of an open.
    pub(crate) fn inode_of(&self, open: OpenId) -> Option<InodeId> {
        self.all.get(&open).map(|open| open.node.ino)
    }

    /// Returns the inode of an open, if the open writes.
    pub(crate) fn written_inode(&self, open: OpenId) -> Option<InodeId> {
        self.all.get(&open).filter(|open| open.writes.is_any()).map(|open| open.node.ino)
    }

    /// Records that a write through an open is sent or buffered.
    pub(crate) fn note_write(&mut self, open: OpenId) {
        if let Some(open) = self.all.get_mut(&open) {
            open.has_written = true;
        }
    }

    /// Returns whether the file of an open may have been changed through it.
    pub(crate) fn has_written(&self, open: OpenId) -> bool {
        self.all.get(&open).is_some_and(|open| open.has_written)
    }

    /// Returns whether a file is open for writing.
    pub(crate) fn is_written(&self, ino: InodeId) -> bool {
        let writes = |open: &Open| open.writes.is_any() && open.node.ino == ino;
        self.writers > 0 && self.all.values().any(writes)
    }

    /// Returns the inodes of all files that are open for writing.
    pub(crate) fn written(&self) -> Vec<InodeId> {
        let written = self.all.values().filter(|open| open.writes.is_any());
        let mut inodes: Vec<InodeId> = written.map(|open| open.node.ino).collect();
        inodes.sort_unstable();
        inodes.dedup();
        inodes
    }

    /// Returns the inode of an open whose writes may be buffered.
    pub(crate) fn write_back_inode(&self, open: OpenId) -> Option<InodeId> {
        self.all.get(&open).filter(|open| open.writes.is_back()).map(|open| open.node.ino)
    }

    /// Returns the inode of an open whose reads may be answered from bytes that were read ahead.
    pub(crate) fn read_ahead_inode(&self, open: OpenId) -> Option<InodeId> {
        self.all.get(&open).filter(|open| open.writes == Writes::Back).map(|open| open.node.ino)
    }

    /// Returns the inode of an open that only reads, if its reads may be answered from bytes that
    /// were fetched.
    pub(crate) fn fetch_inode(&self, open: OpenId) -> Option<InodeId> {
        self.all.get(&open).filter(|open| open.writes == Writes::No).map(|open| open.node.ino)
    }

    /// Records that bytes of a file were lost: each open that may have written them reports it
    /// once.
    pub(crate) fn note_error(&mut self, ino: InodeId, code: Code) {
        let writers = self.all.values_mut();
        for open in writers.filter(|open| open.node.ino == ino && open.writes.may_lose()) {
            self.errors += usize::from(open.error.replace(code).is_none());
        }
    }

    /// Returns the error of an open that no program has got.
    pub(crate) fn error(&self, open: OpenId) -> Option<Code> {
        if self.errors == 0 { None } else { self.all.get(&open)?.error }
    }

    /// Returns whether an open has an error that no program has got.
    pub(crate) const fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Takes the error of an open, for a program.
    pub(crate) fn take_error(&mut self, open: OpenId) -> Option<Code> {
        let code = self.all.get_mut(&open)?.error.take()?;
        self.errors -= 1;
        Some(code)
    }

    /// Returns whether an open is known only here, and not being reported.
    pub(crate) fn is_here(&self, open: OpenId) -> bool {
        self.all.get(&open).is_some_and(|open| matches!(open.at, At::Here { .. }))
    }

    /// Returns whether the server does not know an open yet that was made in this era of leases.
    pub(crate) fn is_unreported_under(&self, open: OpenId, now: LeaseEra) -> bool {
        let is_it = |open: &Open| match open.at {
            At::Here { leases, .. } | At::Reporting { leases, .. } => leases == now,
            At::Server | At::Failed(_) => false,
        };
        self.all.get(&open).is_some_and(is_it)
    }

    /// Returns whether the server does not know an open yet: its report may be under way.
    pub(crate) fn is_unreported(&self, open: OpenId) -> bool {
        let is_it = |open: &Open| matches!(open.at, At::Here { .. } | At::Reporting { .. });
        self.all.get(&open).is_some_and(is_it)
    }

    /// Returns the error with which the server has refused an open.
    pub(crate) fn failure(&self, open: OpenId) -> Option<Code> {
        match self.all.get(&open)?.at {
            At::Failed(code) => Some(code),
            At::Here { .. } | At::Reporting { .. } | At::Server => None,
        }
    }

    /// Removes an open that ends.
    pub(crate) fn remove(&mut self, open: OpenId) {
        let Some(Open { at, error, writes, .. }) = self.all.remove(&open) else { return };
        self.writers -= usize::from(writes.is_any());
        self.unreported -= usize::from(matches!(at, At::Here { .. }));
        self.errors -= usize::from(error.is_some());
    }

    /// Returns the opens of an inode that the server does not know yet; for `None` of all inodes.
    pub(crate) fn unreported(&self, of: Option<InodeId>) -> Vec<OpenId> {
        if self.unreported == 0 {
            return Vec::new();
        }
        let is_wanted = |(_, open): &(&OpenId, &Open)| {
            matches!(open.at, At::Here { .. } | At::Reporting { .. })
                && of.is_none_or(|ino| open.node.ino == ino)
        };
        self.all.iter().filter(is_wanted).map(|(id, _)| *id).collect()
    }

    /// Returns what a request that names an open waits for, and `then` if it was not stored.
    pub(crate) fn report(&mut self, id: OpenId, then: OnReport) -> (Report, Option<OnReport>) {
        let Some(open) = self.all.get_mut(&id) else { return (Report::Known, Some(then)) };
        match &mut open.at {
            At::Server => (Report::Known, Some(then)),
            At::Failed(code) => (Report::Failed(*code), Some(then)),
            At::Reporting { waiting, .. } => {
                waiting.push(then);
                (Report::UnderWay, None)
            }
            At::Here { flags, caller, leases } => {
                let flags = *flags;
                let caller = *caller;
                let leases = *leases;
                let request = Request::Open { node: open.node, flags, open: id };
                open.at = At::Reporting { flags, caller, leases, waiting: vec![then] };
                (Report::Ask { request, caller }, None)
            }
        }
    }

    /// Records the reply to a report. Returns the callbacks that wait for it. `HostDown` says that
    /// the report was not sent: the open is reported when something needs that again.
    pub(crate) fn reported(&mut self, id: OpenId, result: Result<(), Code>) -> Vec<OnReport> {
        let Some(open) = self.all.get_mut(&id) else { return Vec::new() };
        let At::Reporting { flags, caller, leases, waiting } = &mut open.at else {
            return Vec::new();
        };
        let waiting = std::mem::take(waiting);
        open.at = match result {
            Ok(()) => At::Server,
            Err(Code::HostDown) => At::Here { flags: *flags, caller: *caller, leases: *leases },
            Err(code) => At::Failed(code),
        };
        self.unreported -= usize::from(!matches!(open.at, At::Here { .. }));
        waiting
    }
}
