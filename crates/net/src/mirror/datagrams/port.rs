//! The UDP port of a server of mirrors, and the thread that takes the datagrams of all connections.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_wire::limits;
use rustix::event::PollFlags;

use super::incoming::{Incoming, IncomingReader};
use super::receiver::Receiver;
use super::seal::{Seals, number_of};
use super::waker::Waker;
use super::{IO_TIMEOUT, bound_socket};
use crate::log_limit::LogLimit;

/// Datagrams that are taken before streams are handed on and reports are sent.
const BATCH: usize = 64;
/// The pause after the wait for the sockets has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// The UDP port of a server of mirrors.
pub(in super::super) struct Port {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    socket: UdpSocket,
    waker: Arc<Waker>,
    /// New connections. A leaf lock.
    added: Mutex<Vec<Receiver>>,
    has_ended: AtomicBool,
    log: LogLimit,
}

impl Port {
    /// Takes datagrams at an address.
    pub(in super::super) fn start(address: SocketAddr) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            socket: bound_socket(address)?,
            waker: Arc::new(Waker::new()?),
            added: Mutex::default(),
            has_ended: AtomicBool::new(false),
            log: LogLimit::new(),
        });
        let with = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("mirror-datagrams".to_owned())
            .spawn(move || Taker::new(&with).run())?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Takes the datagrams of a connection from now on, and for a time after it has ended. Returns
    /// the stream that they carry.
    pub(in super::super) fn open(
        &self,
        seals: Seals,
        tcp: TcpStream,
        lingers: Duration,
    ) -> io::Result<IncomingReader> {
        let host = tcp.peer_addr()?.ip();
        let incoming = Arc::new(Incoming::new(Arc::clone(&self.shared.waker)));
        let receiver = Receiver::new(seals, Arc::clone(&incoming), tcp, host, lingers);
        self.shared.added.lock().push(receiver);
        self.shared.waker.wake();
        Ok(IncomingReader::new(incoming, IO_TIMEOUT))
    }

    /// Ends all streams, and waits for the thread.
    pub(in super::super) fn stop(&self) {
        self.shared.has_ended.store(true, Ordering::Release);
        self.shared.waker.wake();
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the datagrams has panicked");
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").finish_non_exhaustive()
    }
}

/// The state of the thread.
struct Taker<'a> {
    shared: &'a Shared,
    receivers: Vec<Receiver>,
    /// The receivers by the addresses from which their datagrams come.
    by_address: HashMap<SocketAddr, usize>,
    strangers: Strangers,
    origin: Instant,
}

impl<'a> Taker<'a> {
    fn new(shared: &'a Shared) -> Self {
        Self {
            shared,
            receivers: Vec::new(),
            by_address: HashMap::new(),
            strangers: Strangers::default(),
            origin: Instant::now(),
        }
    }

    fn run(&mut self) {
        while !self.shared.has_ended.load(Ordering::Acquire) {
            self.update();
            let taken = self.take();
            let now = self.now();
            let socket = &self.shared.socket;
            self.receivers.iter_mut().for_each(|receiver| receiver.work(now, socket));
            if taken < BATCH
                && let Err(error) = self.wait()
            {
                if let Some(left_out) = self.shared.log.admit() {
                    tracing::error!(%error, left_out, "the port of the datagrams fails");
                }
                // Nothing says when it works again.
                thread::sleep(PAUSE);
            }
        }
        let added = std::mem::take(&mut *self.shared.added.lock());
        self.receivers.extend(added);
        self.receivers.iter_mut().for_each(Receiver::end);
    }

    /// Adds new connections, and removes those that nobody reads.
    fn update(&mut self) {
        let added = std::mem::take(&mut *self.shared.added.lock());
        let is_closed = |receiver: &Receiver| receiver.incoming.is_closed();
        if added.is_empty() && !self.receivers.iter().any(is_closed) {
            return;
        }
        self.receivers.retain(|receiver| !is_closed(receiver));
        self.receivers.extend(added);
        let addresses = self.receivers.iter().enumerate();
        let addresses = addresses.filter_map(|(at, receiver)| Some((receiver.address?, at)));
        self.by_address = addresses.collect();
    }

    /// Takes the datagrams that are here, at most a batch. Returns how many.
    fn take(&mut self) -> usize {
        let mut buffer = [0; limits::DATAGRAM_BYTES + 1];
        for taken in 0..BATCH {
            let (length, from) = match self.shared.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return taken,
                // An answer of ICMP to a report: the other end is gone, or was never there.
                Err(_) => continue,
            };
            let sealed = buffer.get(..length).unwrap_or_default();
            if let Some(number) = number_of(sealed) {
                self.handle(number, from, sealed);
            }
        }
        BATCH
    }

    fn handle(&mut self, number: u64, from: SocketAddr, sealed: &[u8]) {
        let now = self.now();
        let known = self.by_address.get(&from).copied();
        if let Some(receiver) = known.and_then(|at| self.receivers.get_mut(at))
            && (!receiver.is_new(number) || receiver.handle(now, from, sealed))
        {
            return;
        }
        for (at, receiver) in self.receivers.iter_mut().enumerate() {
            if known == Some(at) || !receiver.is_new(number) {
                continue;
            }
            // A connection's first datagrams come from its host, which TLS has proved.
            let is_expected = receiver.address.is_none() && receiver.host == from.ip();
            if !is_expected && !self.strangers.admit(now) {
                continue;
            }
            let before = receiver.address;
            if receiver.handle(now, from, sealed) {
                // It came from elsewhere before: a router in between has another mapping.
                before.map(|before| self.by_address.remove(&before));
                self.by_address.insert(from, at);
                return;
            }
        }
    }

    /// Waits for datagrams, for the end of a connection, or until there is something else to do.
    fn wait(&mut self) -> io::Result<()> {
        let now = self.now();
        let timers = self.receivers.iter().filter_map(Receiver::poll_timeout);
        let time = timers.min().map(|at| at.saturating_sub(now));
        let open = self.receivers.iter().enumerate();
        let open = open.filter_map(|(at, receiver)| Some((at, receiver.tcp.as_ref()?.as_fd())));
        let (indexes, tcp): (Vec<usize>, Vec<BorrowedFd<'_>>) = open.unzip();
        let mut sockets = vec![(self.shared.socket.as_fd(), PollFlags::IN)];
        sockets.extend(tcp.into_iter().map(|tcp| (tcp, PollFlags::IN)));
        let readable = self.shared.waker.wait(&sockets, time)?;
        // The primary sends nothing more over the connection but its end.
        for (at, _) in indexes.into_iter().zip(readable.iter().skip(1)).filter(|(_, end)| **end) {
            if let Some(receiver) = self.receivers.get_mut(at) {
                receiver.handle_end(self.origin.elapsed());
            }
        }
        Ok(())
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// The limit of the work that strangers can cause: attempts to open seals in each second.
#[derive(Debug, Default)]
struct Strangers {
    second: u64,
    attempts: u32,
}

impl Strangers {
    fn admit(&mut self, now: Duration) -> bool {
        if now.as_secs() != self.second {
            *self = Self { second: now.as_secs(), attempts: 0 };
        }
        self.attempts = self.attempts.saturating_add(1);
        self.attempts <= limits::STRANGER_SEALS
    }
}
