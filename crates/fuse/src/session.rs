//! Sessions: threads that read requests and call a file system.

use std::error::Error;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::device::Device;
use crate::filesystem::Filesystem;
use crate::init::{Capabilities, Init, InitOptions, MAJOR, MajorReply, Negotiated, negotiate};
use crate::interrupts::Interrupts;
use crate::notify::Notifier;
use crate::operation::Operation;
use crate::reader::Reader;
use crate::reply::Encode;
use crate::request::{Header, Layouts, parse};
use crate::reserve::Reserve;
use crate::ring::{NoRing, Ring, RingUse};
use crate::server::Server;

/// Bytes of a request besides the data to write, and the least that the kernel writes at once.
const REQUEST_BYTES: u32 = 4096;

/// The least buffer that the kernel reads a request into (`FUSE_MIN_READ_BUFFER`).
const INIT_REQUEST_BYTES: usize = 8192;

/// Options of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionOptions {
    /// Threads that read requests from the device; at least one is started, and only one beside a
    /// ring.
    pub threads: usize,
    /// True if each thread gets a descriptor of its own, so that threads do not contend for one
    /// lock in the kernel; needs the right to open the device.
    pub clone_device: bool,
    /// Use of io_uring.
    pub ring: RingUse,
    /// Options of the negotiation.
    pub init_options: InitOptions,
}

/// The path by which requests come: the ring or the device. It changes once at most, if the kernel
/// refuses a ring to which it had agreed.
#[derive(Debug, Clone)]
pub struct RequestPath(Arc<Mutex<Result<(), NoRing>>>);

impl RequestPath {
    fn new(path: Result<(), NoRing>) -> Self {
        Self(Arc::new(Mutex::new(path)))
    }

    /// Returns whether requests come over io_uring.
    ///
    /// # Errors
    /// Why they come by the device.
    pub fn ring(&self) -> Result<(), NoRing> {
        self.0.lock().clone()
    }
}

/// A negotiated connection with the kernel, ready to serve.
#[derive(Debug)]
pub struct Session {
    device: Arc<Device>,
    interrupts: Arc<Interrupts>,
    negotiated: Negotiated,
    ring: Result<Ring, NoRing>,
    path: RequestPath,
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
        let (negotiated, ring) = exchange_init(&device, &options)?;
        let path = RequestPath::new(ring.as_ref().map(|_| ()).map_err(Clone::clone));
        Ok(Self { device, interrupts: Arc::default(), negotiated, ring, path, options })
    }

    /// Returns the result of the negotiation.
    #[must_use]
    pub const fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Returns the path by which requests come.
    #[must_use]
    pub const fn request_path(&self) -> &RequestPath {
        &self.path
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
    fn serve(self, filesystem: &Arc<dyn Filesystem>) -> io::Result<()> {
        let Self { device, interrupts, negotiated, ring, path, options } = self;
        let layouts = Layouts::from(&negotiated);
        let filesystem = Arc::clone(filesystem);
        let shared = Arc::clone(&interrupts);
        let server = Arc::new(Server::new(filesystem, shared, layouts));
        // The device is not read yet, and so no interrupt has come.
        let ring = ring.and_then(|ring| ring.serve(&server));
        match &ring {
            Ok(ring) => interrupts.retry_by(Arc::clone(ring.retries())),
            Err(no_ring) => {
                if path.ring().is_ok() {
                    tracing::warn!(%no_ring, "requests come by /dev/fuse");
                }
                *path.0.lock() = Err(no_ring.clone());
            }
        }
        // Beside a ring only FUSE_FORGET and FUSE_INTERRUPT come by the device.
        let threads = if ring.is_ok() { 1 } else { options.threads.max(1) };
        let bytes = negotiated.max_write.max(REQUEST_BYTES).saturating_add(REQUEST_BYTES) as usize;
        let clone = options.clone_device;
        let devices = Devices { first: device, interrupts, clone, bytes, is_aside: ring.is_ok() };
        let mut reserve = devices.reserve(&server);
        let killed = Arc::clone(&server);
        let looks = thread::Builder::new().name("fuse-waiters".to_owned());
        let looks = looks.spawn(move || {
            killed.give_up_killed(|| reserve.start());
            reserve.join();
        });
        if let Err(error) = &looks {
            tracing::error!(%error, "programs that wait cannot be killed: a thread does not start");
        }
        let served = devices.serve(&server, threads);
        server.end();
        if looks.is_ok_and(|looks| looks.join().is_err()) {
            tracing::error!("the thread that looks at callers panicked");
        }
        if let Ok(ring) = ring {
            ring.end();
        }
        served
    }
}

/// The threads that read requests from the device.
struct Devices {
    first: Arc<Device>,
    interrupts: Arc<Interrupts>,
    /// True if each thread gets a descriptor of its own.
    clone: bool,
    /// Limit of the bytes of a request.
    bytes: usize,
    /// Requests come by a ring.
    is_aside: bool,
}

impl Devices {
    /// Returns the thread that reads if no other one is left.
    fn reserve(&self, server: &Arc<Server>) -> Reserve {
        let device = Arc::clone(&self.first);
        let interrupts = Arc::clone(&self.interrupts);
        Reserve::new(device, interrupts, Arc::clone(server), self.bytes)
    }

    /// Runs the threads to their end and returns the first error.
    fn serve(&self, server: &Arc<Server>, count: usize) -> io::Result<()> {
        let mut threads = Vec::with_capacity(count);
        for number in 0..count {
            match self.spawn(number, server) {
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

    fn spawn(&self, number: usize, server: &Arc<Server>) -> io::Result<JoinHandle<io::Result<()>>> {
        let mut device = Arc::clone(&self.first);
        if number > 0 && self.clone {
            match device.duplicate() {
                Ok(another) => device = Arc::new(another),
                Err(error) => {
                    tracing::debug!(%error, "no descriptor for this thread: it shares the first")
                }
            }
        }
        self.interrupts.add_device(&device);
        let server = Arc::clone(server);
        let bytes = self.bytes;
        let pause = if self.is_aside { FORGET_PAUSE } else { Duration::ZERO };
        let thread = thread::Builder::new().name(format!("fuse-{number}"));
        thread.spawn(move || serve_device(device, &server, bytes, pause))
    }
}

/// Time between two reads of FUSE_FORGET from the device beside a ring. If a thread waits in
/// `read`, Linux wakes it for each inode; if none does, Linux gathers inodes for one
/// FUSE_BATCH_FORGET, and no process waits for them. An interrupt, or the end of the mount, is read
/// later by that time.
const FORGET_PAUSE: Duration = Duration::from_millis(5);

/// Serves the requests that are read from a descriptor, with a pause after each FUSE_FORGET.
fn serve_device(
    device: Arc<Device>,
    server: &Server,
    bytes: usize,
    pause: Duration,
) -> io::Result<()> {
    let mut buffer = vec![0; bytes];
    let mut reader = Reader::new(server, &device);
    loop {
        let request = match receive(&device, &mut buffer) {
            Ok(request) => request,
            // `ECONNABORTED` is the end too, if it finds this thread with a request in its hands.
            Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(()),
            Err(error) => {
                tracing::warn!(%error, "requests can no longer be read");
                return Err(error.into());
            }
        };
        let parsed = parse(request, server.layouts);
        match parsed {
            // No kernel sends so little.
            Err(malformed) if request.len() < Header::BYTES => return Err(invalid(malformed)),
            parsed => {
                let is_forget =
                    matches!(parsed, Ok((_, Operation::Forget { .. } | Operation::BatchForget(_))));
                reader.carry_out(parsed);
                if is_forget && !pause.is_zero() {
                    thread::sleep(pause);
                }
            }
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

/// Reads FUSE_INIT and replies. Returns the result of the negotiation, and the ring if one was
/// agreed on.
fn exchange_init(
    device: &Arc<Device>,
    options: &SessionOptions,
) -> io::Result<(Negotiated, Result<Ring, NoRing>)> {
    let mut buffer = vec![0; INIT_REQUEST_BYTES];
    loop {
        let request = receive(device, &mut buffer)?;
        let (header, operation) = parse(request, Layouts::default()).map_err(invalid)?;
        let Operation::Init(offer) = operation else {
            device.answer(header.unique, Some(Errno::IO), &[])?;
            return Err(invalid("a request before FUSE_INIT"));
        };
        // A kernel of a later major version sends FUSE_INIT again with ours.
        if offer.major > MAJOR {
            answer(device, &header, &MajorReply)?;
            continue;
        }
        match negotiate(&offer, &options.init_options) {
            Ok(mut negotiated) => {
                let ring = make_ring(device, &offer, &negotiated, options.ring);
                if ring.is_ok() {
                    negotiated.capabilities =
                        negotiated.capabilities.with(Capabilities::OVER_IO_URING);
                }
                answer(device, &header, &negotiated)?;
                tracing::debug!(?offer, ?negotiated, "negotiated with the kernel");
                return Ok((negotiated, ring));
            }
            Err(refusal) => {
                device.answer(header.unique, Some(Errno::PROTO), &[])?;
                return Err(io::Error::new(io::ErrorKind::Unsupported, refusal));
            }
        }
    }
}

/// Makes a ring before it is agreed on. From the reply with `OVER_IO_URING` on, Linux holds all
/// requests until each possible processor has a queue: if the ring could not be made then, the
/// mount would hang.
fn make_ring(
    device: &Arc<Device>,
    offer: &Init,
    negotiated: &Negotiated,
    wanted: RingUse,
) -> Result<Ring, NoRing> {
    if wanted == RingUse::Never {
        return Err(NoRing::NotWanted);
    }
    let offered = Capabilities(offer.capabilities);
    if !offered.has(Capabilities::INIT_EXT | Capabilities::OVER_IO_URING) {
        return Err(NoRing::not_offered());
    }
    Ring::new(device, negotiated.payload_bytes(), wanted)
}

fn answer(device: &Device, header: &Header, answer: &impl Encode) -> Result<(), Errno> {
    let mut sent = Ok(());
    answer.with_bytes(&mut |bytes| sent = device.answer(header.unique, None, bytes));
    sent
}

fn invalid(why: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests;
