//! Parked requests: they are read while no thread is left that carries them out.
//!
//! Linux lets a killed caller go whose request was not read, except in the close of a file: FLUSH
//! waits until it is read and answered. If the file system hangs, and with it each thread that
//! reads, a thread in reserve reads on. It carries nothing out: it parks requests, so that callers
//! which are killed get a reply, and their requests are dropped. The first thread that comes back
//! carries the others out, in their order.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::device::Device;
use crate::operation::{Operation, Wait};
use crate::reply_to::ReplyTo;
use crate::request::{Header, Layouts, parse};

/// Limits of parked requests. Beyond them requests stay in the kernel.
const REQUESTS: usize = 8192;
const BYTES: usize = 64 << 20;
/// Longest time until the thread in reserve sees that it is not needed.
const PAUSE: Duration = Duration::from_millis(250);

/// The requests that are parked.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    /// Requests may be parked. It changes under the lock.
    is_on: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    requests: VecDeque<Request>,
    /// Bytes of all requests.
    bytes: usize,
}

/// A request that is parked.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) note: Note,
    /// The bytes as they were read.
    pub(crate) bytes: Vec<u8>,
}

/// The facts about a request that is parked, without its bytes.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    pub(crate) header: Header,
    pub(crate) wait: Wait,
    pub(crate) to: ReplyTo,
    /// The request whose caller got a signal, if this is an interrupt.
    pub(crate) interrupts: Option<u64>,
}

impl Request {
    /// Parses a request that was read from a descriptor. `None` for one that no kernel sends.
    fn new(device: &Arc<Device>, bytes: &[u8], layouts: Layouts) -> Option<Self> {
        let (header, operation) = match parse(bytes, layouts) {
            Ok(parsed) => parsed,
            Err(malformed) => {
                let unique = malformed.unique?;
                ReplyTo::parked(device, unique).send(unique, Some(Errno::IO), &[]);
                return None;
            }
        };
        let interrupts =
            if let Operation::Interrupt { unique } = operation { Some(unique) } else { None };
        let wait = operation.wait();
        let to = ReplyTo::parked(device, header.unique);
        Some(Self { note: Note { header, wait, to, interrupts }, bytes: bytes.to_vec() })
    }

    /// Returns whether the request is to be carried out. A close is also if its caller was killed,
    /// since it ends locks.
    fn is_wanted(&self) -> bool {
        let Note { header, wait, to, .. } = &self.note;
        match wait {
            Wait::Other => to.has(header.unique),
            Wait::Close | Wait::WriteBack => true,
        }
    }
}

impl Parked {
    /// Returns whether requests may be parked. A thread that could carry requests out reads it.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Lets requests be parked from now on.
    pub(crate) fn begin(&self) {
        let _queue = self.queue.lock();
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Lets no more requests be parked: the mount has ended.
    pub(crate) fn end(&self) {
        let _queue = self.queue.lock();
        self.is_on.store(false, Ordering::Relaxed);
    }

    /// Returns the first request. With `None` no more are parked.
    pub(crate) fn next(&self) -> Option<Request> {
        let mut queue = self.queue.lock();
        let next = queue.take_first();
        if next.is_none() {
            self.is_on.store(false, Ordering::Relaxed);
        }
        next
    }

    /// Drops the requests of callers that were killed.
    pub(crate) fn drop_unwanted(&self) {
        let mut queue = self.queue.lock();
        queue.requests.retain(Request::is_wanted);
        queue.bytes = queue.requests.iter().map(|request| request.bytes.len()).sum();
    }

    /// Parks the request that `read` returns, if there is room. The lock is held meanwhile, so that
    /// a thread that comes back finds all requests that were read.
    fn park(&self, read: impl FnOnce() -> Option<Request>) -> Option<Note> {
        let mut queue = self.queue.lock();
        if !self.is_on() || queue.is_full() {
            return None;
        }
        let request = read()?;
        let note = request.note.clone();
        queue.bytes += request.bytes.len();
        queue.requests.push_back(request);
        Some(note)
    }

    /// Reads requests from a descriptor of its own until a thread that carries them out is back.
    /// Calls `tell` with each.
    ///
    /// # Errors
    /// Those of the device; the mount has ended.
    pub(crate) fn read(
        &self,
        device: &Arc<Device>,
        bytes: usize,
        layouts: Layouts,
        tell: impl Fn(&Note),
    ) -> Result<(), Errno> {
        let mut buffer = vec![0; bytes];
        while self.is_on() {
            if self.queue.lock().is_full() {
                thread::sleep(PAUSE);
                continue;
            }
            wait_for(device)?;
            let mut failed = None;
            let note = self.park(|| match device.receive(&mut buffer) {
                Ok(length) => Request::new(device, &buffer[..length], layouts),
                Err(error) => {
                    failed = Some(error);
                    None
                }
            });
            note.iter().for_each(&tell);
            match failed {
                // Another thread was first; a signal; a request that was aborted.
                None | Some(Errno::AGAIN | Errno::INTR | Errno::NOENT) => {}
                Some(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Queue {
    fn is_full(&self) -> bool {
        self.requests.len() >= REQUESTS || self.bytes >= BYTES
    }

    fn take_first(&mut self) -> Option<Request> {
        loop {
            let first = self.requests.pop_front()?;
            self.bytes -= first.bytes.len();
            if first.is_wanted() {
                return Some(first);
            }
        }
    }
}

/// Returns another descriptor of the connection, at which reads do not wait: a read that waits
/// could not be ended when the thread is not needed any more.
///
/// # Errors
/// Those of the system calls.
pub(crate) fn descriptor(first: &Device) -> Result<Device, Errno> {
    let device = first.duplicate()?;
    fcntl_setfl(&device, fcntl_getfl(&device)? | OFlags::NONBLOCK)?;
    Ok(device)
}

/// Waits until there may be a request, and not for long.
fn wait_for(device: &Device) -> Result<(), Errno> {
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(PAUSE.subsec_nanos()) };
    let mut polled = [PollFd::from_borrowed_fd(device.as_fd(), PollFlags::IN)];
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
