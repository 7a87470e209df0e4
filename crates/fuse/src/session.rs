//! Sessions: threads that read requests and call a file system.

use std::error::Error;
use std::os::fd::OwnedFd;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::{io, mem};

use rustix::io::Errno;

use crate::device::Device;
use crate::filesystem::{Filesystem, dispatch};
use crate::init::{InitOptions, MAJOR, MajorReply, Negotiated, negotiate};
use crate::interrupts::Interrupts;
use crate::notify::Notifier;
use crate::operation::Operation;
use crate::reply::{Encode, send};
use crate::request::{Header, Layouts, parse};

/// Bytes of a request besides the data to write, and the least that the kernel writes at once.
const REQUEST_BYTES: u32 = 4096;

/// The least buffer that the kernel reads a request into (`FUSE_MIN_READ_BUFFER`).
const INIT_REQUEST_BYTES: usize = 8192;

/// Options of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionOptions {
    /// Threads that read requests; at least one is started.
    pub threads: usize,
    /// Whether each thread gets a descriptor of its own, so that threads do not contend for one
    /// lock in the kernel; needs the right to open the device.
    pub clone_device: bool,
    /// Options of the negotiation.
    pub init_options: InitOptions,
}

/// A negotiated connection with the kernel, ready to serve.
#[derive(Debug)]
pub struct Session {
    device: Arc<Device>,
    interrupts: Arc<Interrupts>,
    negotiated: Negotiated,
    options: SessionOptions,
}

impl Session {
    /// Negotiates with the kernel over a mounted device: reads FUSE_INIT and replies. Further
    /// requests wait until [`Session::run`].
    ///
    /// # Errors
    /// Errors of the device; [`io::ErrorKind::Unsupported`] with [`crate::init::InitError`].
    pub fn start(device: OwnedFd, options: SessionOptions) -> io::Result<Self> {
        let device = Arc::new(Device::new(device));
        let negotiated = exchange_init(&device, &options.init_options)?;
        Ok(Self { device, interrupts: Arc::default(), negotiated, options })
    }

    /// Returns the result of the negotiation.
    #[must_use]
    pub const fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Returns the device, on which descriptors are registered.
    #[must_use]
    pub const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns a sender of notices.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        Notifier(Arc::clone(&self.device))
    }

    /// Serves requests until the mount ends, then calls [`Filesystem::end`].
    ///
    /// If a method panics, its request fails with `EIO` and the session continues: an end would
    /// take the mount away from all programs.
    ///
    /// # Errors
    /// Errors of the device, except that it was unmounted.
    pub fn run(self, filesystem: Arc<dyn Filesystem>) -> io::Result<()> {
        let served = self.serve(&filesystem);
        filesystem.end();
        served
    }

    /// Runs the threads to their end and returns the first error.
    fn serve(&self, filesystem: &Arc<dyn Filesystem>) -> io::Result<()> {
        let mut threads = Vec::with_capacity(self.options.threads);
        for number in 0..self.options.threads.max(1) {
            match self.spawn(number, filesystem) {
                Ok(thread) => threads.push(thread),
                // The threads that have started suffice.
                Err(error) if number > 0 => {
                    tracing::warn!(%error, number, "a thread does not start: the others serve");
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
            match device.duplicate() {
                Ok(another) => device = Arc::new(another),
                Err(error) => {
                    tracing::debug!(%error, "no descriptor for this thread: it shares the first")
                }
            }
        }
        self.interrupts.add_device(&device);
        let bytes = self.negotiated.max_write.max(REQUEST_BYTES).saturating_add(REQUEST_BYTES);
        let server = Server {
            device,
            interrupts: Arc::clone(&self.interrupts),
            filesystem: Arc::clone(filesystem),
            layouts: Layouts::from(&self.negotiated),
            bytes: bytes as usize,
        };
        thread::Builder::new().name(format!("fuse-{number}")).spawn(move || server.serve())
    }
}

/// A thread of the session.
struct Server {
    device: Arc<Device>,
    interrupts: Arc<Interrupts>,
    filesystem: Arc<dyn Filesystem>,
    layouts: Layouts,
    /// Limit of the bytes of a request.
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
                // No kernel sends so little.
                Err(malformed) if request.len() < Header::BYTES => return Err(invalid(malformed)),
                Err(malformed) => {
                    if !mem::replace(&mut complained, true) {
                        tracing::error!(%malformed, "a malformed request: it fails with EIO");
                    }
                    if let Some(unique) = malformed.unique {
                        send(&self.device, unique, Some(Errno::IO), &[]);
                    }
                }
            }
        }
    }

    fn call(&self, header: &Header, operation: Operation<'_>) {
        // Half-done work is for the file system to bear: its locks do not poison.
        let called = panic::catch_unwind(AssertUnwindSafe(|| {
            dispatch(&*self.filesystem, &self.interrupts, &self.device, header, operation);
        }));
        if called.is_err() {
            tracing::error!(?header, "a method of the file system panicked");
        }
    }
}

/// Waits for a request, and again if the wait is interrupted.
fn receive<'a>(device: &Device, buffer: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    loop {
        match device.receive(buffer) {
            Ok(length) => return Ok(&buffer[..length]),
            // A signal; no request after all; a request that was aborted while it was read.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads FUSE_INIT, replies, and returns what was negotiated.
fn exchange_init(device: &Arc<Device>, init_options: &InitOptions) -> io::Result<Negotiated> {
    let mut buffer = vec![0; INIT_REQUEST_BYTES];
    loop {
        let request = receive(device, &mut buffer)?;
        let (header, operation) = parse(request, Layouts::default()).map_err(invalid)?;
        let Operation::Init(offer) = operation else {
            device.answer(header.unique, Some(Errno::IO), &[])?;
            return Err(invalid("a request before FUSE_INIT"));
        };
        if offer.major > MAJOR {
            answer(device, &header, &MajorReply)?;
            continue;
        }
        match negotiate(&offer, init_options) {
            Ok(negotiated) => {
                answer(device, &header, &negotiated)?;
                tracing::debug!(?offer, ?negotiated, "negotiated with the kernel");
                return Ok(negotiated);
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
