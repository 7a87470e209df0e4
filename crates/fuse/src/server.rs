//! What happens with a request, whether it came by the device or by a ring.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Errno;
use crate::filesystem::{Filesystem, dispatch};
use crate::interrupts::Interrupts;
use crate::operation::{Operation, Wait};
use crate::reply_to::ReplyTo;
use crate::request::{Header, Layouts, Malformed};
use crate::waiters::Waiters;

/// Calls a file system with requests.
pub(crate) struct Server {
    pub(crate) layouts: Layouts,
    filesystem: Arc<dyn Filesystem>,
    interrupts: Arc<Interrupts>,
    waiters: Waiters,
    /// A malformed request was reported: one line is enough.
    has_complained: AtomicBool,
}

impl Server {
    pub(crate) fn new(
        filesystem: Arc<dyn Filesystem>,
        interrupts: Arc<Interrupts>,
        layouts: Layouts,
    ) -> Self {
        let waiters = Waiters::default();
        let has_complained = AtomicBool::new(false);
        Self { layouts, filesystem, interrupts, waiters, has_complained }
    }

    /// Calls the file system with a request, or fails one that is malformed.
    pub(crate) fn take(&self, to: &ReplyTo, request: Result<(Header, Operation<'_>), Malformed>) {
        match request {
            Ok((header, operation)) => self.call(to, &header, operation),
            Err(malformed) => {
                if !self.has_complained.swap(true, Ordering::Relaxed) {
                    tracing::error!(%malformed, "a malformed request: it fails with EIO");
                }
                if let Some(unique) = malformed.unique {
                    to.send(unique, Some(Errno::IO), &[]);
                }
            }
        }
    }

    /// Asks the file system to interrupt a request; see [`Filesystem::interrupt`].
    pub(crate) fn interrupt(&self, request: u64) -> bool {
        self.filesystem.interrupt(request)
    }

    /// Gives up requests whose callers were killed, until [`Server::end`].
    pub(crate) fn give_up_killed(&self) {
        self.waiters.run(&*self.filesystem);
    }

    /// Ends [`Server::give_up_killed`].
    pub(crate) fn end(&self) {
        self.waiters.end();
    }

    fn call(&self, to: &ReplyTo, header: &Header, operation: Operation<'_>) {
        let wait = operation.wait();
        if let Operation::Interrupt { unique } = operation {
            self.waiters.interrupted(unique);
        }
        // Half-done work is for the file system to bear: its locks do not poison.
        let called = panic::catch_unwind(AssertUnwindSafe(|| {
            dispatch(&*self.filesystem, &self.interrupts, to, header, operation);
        }));
        if called.is_err() {
            tracing::error!(?header, "a method of the file system panicked");
        }
        if to.has(header.unique) && wait != Wait::WriteBack {
            self.waiters.add(to, header, wait);
        }
    }
}
