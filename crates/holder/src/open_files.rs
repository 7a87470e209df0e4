//! Open files: those that the server does not know, because they were opened under a lease.

use std::collections::HashMap;

use pelago_wire::{Code, Handle, InodeId, OpenFlags, OpenId, Request};

/// What waits until the server knows an open.
pub(crate) type OnReport = Box<dyn FnOnce(Result<(), Code>) + Send>;

/// The open files of a mount.
#[derive(Default)]
pub(crate) struct OpenFiles {
    all: HashMap<OpenId, Open>,
    /// Those that the server does not know.
    unreported: usize,
}

struct Open {
    node: Handle,
    writes: bool,
    at: At,
}

/// Where an open is known.
enum At {
    /// Only here.
    Here { flags: OpenFlags, caller: (u32, u32) },
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
    ) {
        self.unreported += 1;
        self.all.insert(open, Open { node, writes: false, at: At::Here { flags, caller } });
    }

    /// Adds an open that the server has made.
    pub(crate) fn add_at_server(&mut self, open: OpenId, ino: InodeId, writes: bool) {
        self.all.insert(open, Open { node: Handle::own(ino), writes, at: At::Server });
    }

    /// Returns the inode of an open.
    pub(crate) fn inode_of(&self, open: OpenId) -> Option<InodeId> {
        self.all.get(&open).map(|open| open.node.ino)
    }

    /// Returns the inode of an open that may write it.
    pub(crate) fn written_inode(&self, open: OpenId) -> Option<InodeId> {
        self.all.get(&open).filter(|open| open.writes).map(|open| open.node.ino)
    }

    /// Returns whether the server does not know an open, and is not being told.
    pub(crate) fn is_here(&self, open: OpenId) -> bool {
        self.all.get(&open).is_some_and(|open| matches!(open.at, At::Here { .. }))
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
        if let Some(Open { at: At::Here { .. }, .. }) = self.all.remove(&open) {
            self.unreported -= 1;
        }
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
            At::Here { flags, caller } => {
                let (flags, caller) = (*flags, *caller);
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
