//! Handling of a request, whether it came by the device or by a ring.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pelago_trace::{Described, RequestSpan};

use crate::Errno;
use crate::device::Device;
use crate::filesystem::{Filesystem, dispatch};
use crate::hand::Hand;
use crate::interrupts::Interrupts;
use crate::operation::{Operation, Wait};
use crate::parked::{Note, Parked};
use crate::reply_to::ReplyTo;
use crate::request::{Header, Layouts, Malformed};
use crate::waiters::Waiters;

/// Calls a file system with requests.
pub(crate) struct Server {
    pub(crate) layouts: Layouts,
    filesystem: Arc<dyn Filesystem>,
    interrupts: Arc<Interrupts>,
    waiters: Waiters,
    parked: Parked,
    /// A malformed request was reported: one line in the log is enough.
    has_complained: AtomicBool,
}

impl Server {
    pub(crate) fn new(
        filesystem: Arc<dyn Filesystem>,
        interrupts: Arc<Interrupts>,
        layouts: Layouts,
    ) -> Self {
        let waiters = Waiters::default();
        let parked = Parked::default();
        let has_complained = AtomicBool::new(false);
        Self { layouts, filesystem, interrupts, waiters, parked, has_complained }
    }

    /// Calls the file system with a request, or fails one that is malformed.
    #[inline]
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

    /// Gives up requests whose callers were killed, until [`Server::end`]. `all_hang` is called
    /// again and again while each thread that reads from the device hangs: it must start one that
    /// parks requests.
    pub(crate) fn give_up_killed(&self, mut all_hang: impl FnMut()) {
        self.waiters.run(&*self.filesystem, || {
            self.parked.begin();
            self.parked.drop_unwanted();
            all_hang();
        });
    }

    /// Adds the hand of a thread that reads from the device, to look at its requests.
    pub(crate) fn add_reader(&self, hand: &Arc<Hand>) {
        self.waiters.add_reader(hand);
    }

    /// Records that a thread that reads from the device has a request in its hand.
    pub(crate) fn begins(&self) {
        self.waiters.begins();
    }

    /// Returns the requests that were read while no thread was left to carry them out.
    pub(crate) const fn parked(&self) -> &Parked {
        &self.parked
    }

    /// Parks requests that are read from a descriptor, until a thread is back that carries them
    /// out.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn park(&self, device: &Arc<Device>, bytes: usize) -> Result<(), Errno> {
        self.parked.read(device, bytes, self.layouts, |note| self.note(note))
    }

    /// Records that the caller of a parked request waits.
    fn note(&self, note: &Note) {
        if let Some(request) = note.interrupts {
            self.waiters.interrupted(request);
        }
        if note.wait != Wait::WriteBack {
            self.waiters.add(&note.to, &note.header, note.wait);
        }
    }

    /// Ends [`Server::give_up_killed`] and [`Server::park`].
    pub(crate) fn end(&self) {
        self.waiters.end();
        self.parked.end();
    }

    fn call(&self, to: &ReplyTo, header: &Header, operation: Operation<'_>) {
        let wait = operation.wait();
        if let Operation::Interrupt { unique } = operation {
            self.waiters.interrupted(unique);
        }
        let span = RequestSpan::begin(|| Described {
            operation: operation.name(),
            inode: Some(header.node.0),
            session: None,
            thread: Some(header.pid),
        });
        // The file system must bear work that is half done: its locks do not poison.
        let called = panic::catch_unwind(AssertUnwindSafe(|| {
            span.in_scope(|| {
                dispatch(&*self.filesystem, &self.interrupts, to, header, operation, &span);
            });
        }));
        if called.is_err() {
            tracing::error!(?header, "a method of the file system panicked");
        }
        if to.has(header.unique) && wait != Wait::WriteBack {
            self.waiters.add(to, header, wait);
        }
    }
}
