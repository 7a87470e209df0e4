//! What happens with a request, whether it came by the device or by a ring.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Errno;
use crate::filesystem::{Filesystem, dispatch};
use crate::interrupts::Interrupts;
use crate::operation::Operation;
use crate::reply_to::ReplyTo;
use crate::request::{Header, Layouts, Malformed};

/// Calls a file system with requests.
pub(crate) struct Server {
    pub(crate) layouts: Layouts,
    filesystem: Arc<dyn Filesystem>,
    interrupts: Arc<Interrupts>,
    /// A malformed request was reported: one line is enough.
    has_complained: AtomicBool,
}

impl Server {
    pub(crate) fn new(
        filesystem: Arc<dyn Filesystem>,
        interrupts: Arc<Interrupts>,
        layouts: Layouts,
    ) -> Self {
        Self { layouts, filesystem, interrupts, has_complained: AtomicBool::new(false) }
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

    fn call(&self, to: &ReplyTo, header: &Header, operation: Operation<'_>) {
        // Half-done work is for the file system to bear: its locks do not poison.
        let called = panic::catch_unwind(AssertUnwindSafe(|| {
            dispatch(&*self.filesystem, &self.interrupts, to, header, operation);
        }));
        if called.is_err() {
            tracing::error!(?header, "a method of the file system panicked");
        }
    }
}
