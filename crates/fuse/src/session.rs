//! Threads that read requests and call a file system.

use std::error::Error;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::io::Errno;

use crate::device::Device;
use crate::dispatch::dispatch;
use crate::filesystem::Filesystem;
use crate::init::{Agreement, MAJOR, OurMajor, Wishes, agree};
use crate::notify::Notifier;
use crate::operation::Operation;
use crate::reply::{Encode, send};
use crate::request::{Header, Layouts, parse};

/// What a request can have beside the bytes to write, and the least that the kernel writes at once.
const REQUEST_BYTES: u32 = 4096;

/// What the kernel wants to be given room for in any case (`FUSE_MIN_READ_BUFFER`).
const GREETING_BYTES: usize = 8192;

/// How a session serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionOptions {
    /// Threads that take requests; at least one.
    pub threads: usize,
    /// A descriptor for each thread, so that they do not meet at one lock; needs the right to open
    /// the device.
    pub clone_device: bool,
    /// What to agree on.
    pub wishes: Wishes,
}

/// A connection with the kernel, agreed and ready to serve.
#[derive(Debug)]
pub struct Session {
    device: Arc<Device>,
    agreement: Agreement,
    options: SessionOptions,
}

impl Session {
    /// Agrees with the kernel over a mounted device: reads FUSE_INIT and answers it. Requests wait
    /// until [`Session::run`].
    ///
    /// # Errors
    /// The device's; [`io::ErrorKind::Unsupported`] with [`crate::init::Refusal`].
    pub fn start(device: OwnedFd, options: SessionOptions) -> io::Result<Self> {
        let device = Arc::new(Device::new(device));
        let agreement = greet(&device, &options.wishes)?;
        Ok(Self { device, agreement, options })
    }

    /// What was agreed.
    #[must_use]
    pub const fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    /// The connection; for registering descriptors.
    #[must_use]
    pub const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Tells the kernel what it does not see.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        Notifier(Arc::clone(&self.device))
    }

    /// Serves until it is unmounted, then calls [`Filesystem::end`].
    ///
    /// A method that panics leaves its request answered with `EIO`, and the session goes on: one
    /// program hears of it, where an end would take the mount from all of them.
    ///
    /// # Errors
    /// The device's, other than that it was unmounted.
    pub fn run(self, filesystem: Arc<dyn Filesystem>) -> io::Result<()> {
        let served = self.serve(&filesystem);
        filesystem.end();
        served
    }

    /// Waits for all threads; the first error is the one that is told.
    fn serve(&self, filesystem: &Arc<dyn Filesystem>) -> io::Result<()> {
        let mut threads = Vec::with_capacity(self.options.threads);
        for number in 0..self.options.threads.max(1) {
            match self.spawn(number, filesystem) {
                Ok(thread) => threads.push(thread),
                // Fewer can do it as well.
                Err(error) if number > 0 => {
                    tracing::warn!(%error, number, "a thread fewer takes requests");
                }
                Err(error) => return Err(error),
            }
        }
        let mut served = Ok(());
        for thread in threads {
            let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a panic")));
            served = served.and(ended);
        }
        served
    }

    fn spawn(
        &self,
        number: usize,
        filesystem: &Arc<dyn Filesystem>,
    ) -> io::Result<JoinHandle<io::Result<()>>> {
        let mut device = Arc::clone(&self.device);
        if number > 0 && self.options.clone_device {
            match device.another() {
                Ok(another) => device = Arc::new(another),
                Err(error) => tracing::debug!(%error, "threads share a descriptor"),
            }
        }
        let bytes = self.agreement.max_write.max(REQUEST_BYTES).saturating_add(REQUEST_BYTES);
        let server = Server {
            device,
            filesystem: Arc::clone(filesystem),
            layouts: Layouts::from(&self.agreement),
            bytes: bytes as usize,
        };
        thread::Builder::new().name(format!("fuse-{number}")).spawn(move || server.serve())
    }
}

/// One thread.
struct Server {
    device: Arc<Device>,
    filesystem: Arc<dyn Filesystem>,
    layouts: Layouts,
    /// The most that a request has.
    bytes: usize,
}

impl Server {
    fn serve(&self) -> io::Result<()> {
        let mut buffer = vec![0; self.bytes];
        let mut complained = false;
        loop {
            let request = match receive(&self.device, &mut buffer) {
                Ok(request) => request,
                Err(Errno::NODEV) => return Ok(()),
                Err(error) => {
                    tracing::warn!(%error, "requests can no longer be read");
                    return Err(error.into());
                }
            };
            match parse(request, self.layouts) {
                Ok((header, operation)) => self.call(&header, operation),
                // That was no kernel.
                Err(malformed) if request.len() < Header::BYTES => return Err(invalid(malformed)),
                Err(malformed) => {
                    if !mem::replace(&mut complained, true) {
                        tracing::error!(%malformed, "the kernel is not understood");
                    }
                    if let Some(unique) = malformed.unique {
                        send(&self.device, unique, Some(Errno::IO), &[]);
                    }
                }
            }
        }
    }

    fn call(&self, header: &Header, operation: Operation<'_>) {
        // What a method left half done is the file system's to bear: its locks do not poison.
        let called = panic::catch_unwind(AssertUnwindSafe(|| {
            dispatch(&*self.filesystem, &self.device, header, operation);
        }));
        if called.is_err() {
            tracing::error!(?header, "a method of the file system panicked");
        }
    }
}

/// Waits for a request, through interruptions.
fn receive<'a>(device: &Device, buffer: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    loop {
        match device.receive(buffer) {
            Ok(length) => return Ok(&buffer[..length]),
            // A signal; nothing there after all; a request that was taken back meanwhile.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads FUSE_INIT and answers it.
fn greet(device: &Arc<Device>, wishes: &Wishes) -> io::Result<Agreement> {
    let mut buffer = vec![0; GREETING_BYTES];
    loop {
        let request = receive(device, &mut buffer)?;
        let (header, operation) = parse(request, Layouts::default()).map_err(invalid)?;
        let Operation::Init(offer) = operation else {
            device.answer(header.unique, Some(Errno::IO), &[])?;
            return Err(invalid("a request before FUSE_INIT"));
        };
        if offer.major > MAJOR {
            answer(device, &header, &OurMajor)?;
            continue;
        }
        match agree(&offer, wishes) {
            Ok(agreement) => {
                answer(device, &header, &agreement)?;
                tracing::debug!(?offer, ?agreement, "agreed with the kernel");
                return Ok(agreement);
            }
            Err(refusal) => {
                device.answer(header.unique, Some(Errno::PROTO), &[])?;
                return Err(io::Error::new(io::ErrorKind::Unsupported, refusal));
            }
        }
    }
}

fn answer(device: &Device, header: &Header, answer: &impl Encode) -> Result<(), Errno> {
    let mut sent = Ok(());
    answer.with_bytes(&mut |bytes| sent = device.answer(header.unique, None, bytes));
    sent
}

fn invalid(why: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
