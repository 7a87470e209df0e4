//! Open files: those that the server does not know, because they were opened under a lease.

use std::collections::HashMap;

use pelago_wire::{Code, Handle, InodeId, OpenFlags, OpenId, Request};

use crate::changes::LeaseEra;

/// What waits until the server knows an open.
pub(crate) type OnReport = Box<dyn FnOnce(Result<(), Code>) + Send>;

/// The open files of a mount.
#[derive(Default)]
pub(crate) struct OpenFiles {
    all: HashMap<OpenId, Open>,
    /// Those that the server does not know.
    unreported: usize,
    /// Those that write: each recall asks whether a file has any.
    writers: usize,
    /// Those with an error that is not reported.
    errors: usize,
}

struct Open {
    node: Handle,
    writes: Writes,
    at: At,
    /// It may have changed the file.
    has_written: bool,
    /// Why bytes are lost that were written, until that is reported.
    error: Option<Code>,
}

/// Whether an open writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writes {
    /// It only reads.
    No,
    /// What it writes may be kept back under a lease.
    Held,
    /// What it writes is safe when it is answered.
    Through,
}

impl Writes {
    /// Returns whether an open with these flags writes.
    pub(crate) const fn of(flags: OpenFlags) -> Self {
        match (flags.write, flags.sync) {
            (false, _) => Self::No,
            (true, false) => Self::Held,
            (true, true) => Self::Through,
        }
    }
}

/// Where an open is known.
enum At {
    /// Only here, since leases of this time.
    Here { flags: OpenFlags, caller: (u32, u32), leases: LeaseEra },
    /// The server is being told.
    Reporting(Vec<OnReport>),
    /// At the server.
    Server,
    /// The server could not open it.
    Failed(Code),
}

/// What is to be done with a request that names an open.
pub(crate) enum Report {
    /// Nothing: the server knows it, or it is none of ours.
    Known,
    /// The server could not open it.
    Failed(Code),
    /// The server is being told: the callback is kept.
    UnderWay,
    /// This is to be asked for this caller, and its answer given to [`OpenFiles::reported`]; the
    /// callback is kept.
    Ask { request: Request, caller: (u32, u32) },
}

impl OpenFiles {
    /// Adds an open that only this mount knows.
    pub(crate) fn add_here(
        &mut self,
        open: OpenId,
        node: Handle,
        flags: OpenFlags,
        caller: (u32, u32),
        leases: LeaseEra,
    ) {
        self.unreported += 1;
        let at = At::Here { flags, caller, leases };
        let writes = Writes::No;
        let has_written = false;
        self.all.insert(open, Open { node, writes, at, has_written, error: None });
    }

    /// Adds an open that the server has made.
    pub(crate) fn add_at_server(&mut self, open: OpenId, ino: InodeId, writes: Writes) {
        let node = Handle::own(ino);
        self.remove(open);
        self.writers += usize::from(writes != Writes::No);
        let at = At::Server;
        let has_written = false;
        self.all.insert(open, Open { node, writes, at, has_written, error: None });
    }

    /// Returns the inode of an open.
    pub(crate) fn inode_of(&self, open: OpenId) -> Option<InodeId> {
        self.all.get(&open).map(|open| open.node.ino)
    }

    /// Returns the inode of an open that may write it.
    pub(crate) fn written_inode(&self, open: OpenId) -> Option<InodeId> {
        self.all.get(&open).filter(|open| open.writes != Writes::No).map(|open| open.node.ino)
    }

    /// A request that changes the file of an open is sent or kept back.
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
        let writes = |open: &Open| open.writes != Writes::No && open.node.ino == ino;
        self.writers > 0 && self.all.values().any(writes)
    }

    /// Returns the inode of an open whose writes may be kept back.
    pub(crate) fn held_inode(&self, open: OpenId) -> Option<InodeId> {
        self.all.get(&open).filter(|open| open.writes == Writes::Held).map(|open| open.node.ino)
    }

    /// Bytes of a file are lost: each open that may have written them reports that once.
    pub(crate) fn note_error(&mut self, ino: InodeId, code: Code) {
        let writers = self.all.values_mut();
        for open in writers.filter(|open| open.node.ino == ino && open.writes != Writes::No) {
            self.errors += usize::from(open.error.replace(code).is_none());
        }
    }

    /// Returns the error of an open that is not reported.
    pub(crate) fn error(&self, open: OpenId) -> Option<Code> {
        if self.errors == 0 { None } else { self.all.get(&open)?.error }
    }

    /// Returns whether any open has an error that is not reported.
    pub(crate) const fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Returns the error of an open, which counts as reported now.
    pub(crate) fn take_error(&mut self, open: OpenId) -> Option<Code> {
        let code = self.all.get_mut(&open)?.error.take()?;
        self.errors -= 1;
        Some(code)
    }

    /// Returns whether the server does not know an open, and is not being told.
    pub(crate) fn is_here(&self, open: OpenId) -> bool {
        self.all.get(&open).is_some_and(|open| matches!(open.at, At::Here { .. }))
    }

    /// Returns whether the server does not know an open, and no lease has ended since it was made
    /// but by a recall.
    pub(crate) fn is_here_under(&self, open: OpenId, now: LeaseEra) -> bool {
        let is_it = |open: &Open| matches!(open.at, At::Here { leases, .. } if leases == now);
        self.all.get(&open).is_some_and(is_it)
    }

    /// Returns whether the server does not know an open, or not yet.
    pub(crate) fn is_unreported(&self, open: OpenId) -> bool {
        let is_it = |open: &Open| matches!(open.at, At::Here { .. } | At::Reporting(_));
        self.all.get(&open).is_some_and(is_it)
    }

    /// Returns why the server could not open the file of an open.
    pub(crate) fn failure(&self, open: OpenId) -> Option<Code> {
        match self.all.get(&open)?.at {
            At::Failed(code) => Some(code),
            _ => None,
        }
    }

    /// Ends an open.
    pub(crate) fn remove(&mut self, open: OpenId) {
        let Some(Open { at, error, writes, .. }) = self.all.remove(&open) else { return };
        self.writers -= usize::from(writes != Writes::No);
        self.unreported -= usize::from(matches!(at, At::Here { .. }));
        self.errors -= usize::from(error.is_some());
    }

    /// Returns the opens of an inode that the server does not know, or not yet; with `None` all.
    pub(crate) fn unreported(&self, of: Option<InodeId>) -> Vec<OpenId> {
        if self.unreported == 0 {
            return Vec::new();
        }
        let is_wanted = |(_, open): &(&OpenId, &Open)| {
            matches!(open.at, At::Here { .. } | At::Reporting(_))
                && of.is_none_or(|ino| open.node.ino == ino)
        };
        self.all.iter().filter(is_wanted).map(|(id, _)| *id).collect()
    }

    /// Says what a request that names an open has to wait for.
    pub(crate) fn report(&mut self, id: OpenId, then: OnReport) -> (Report, Option<OnReport>) {
        let Some(open) = self.all.get_mut(&id) else { return (Report::Known, Some(then)) };
        match &mut open.at {
            At::Server => (Report::Known, Some(then)),
            At::Failed(code) => (Report::Failed(*code), Some(then)),
            At::Reporting(waiting) => {
                waiting.push(then);
                (Report::UnderWay, None)
            }
            At::Here { flags, caller, .. } => {
                let flags = *flags;
                let caller = *caller;
                let request = Request::Open { node: open.node, flags, open: id };
                open.at = At::Reporting(vec![then]);
                (Report::Ask { request, caller }, None)
            }
        }
    }

    /// The server has answered a report. Returns what waits for it.
    pub(crate) fn reported(&mut self, id: OpenId, result: Result<(), Code>) -> Vec<OnReport> {
        let Some(open) = self.all.get_mut(&id) else { return Vec::new() };
        let at = match result {
            Ok(()) => At::Server,
            Err(code) => At::Failed(code),
        };
        match std::mem::replace(&mut open.at, at) {
            At::Reporting(waiting) => {
                self.unreported -= 1;
                waiting
            }
            _ => Vec::new(),
        }
    }
}
