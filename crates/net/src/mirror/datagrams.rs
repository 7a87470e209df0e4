//! Groups in datagrams: the drivers of [`pelago_proto::fec`] and [`pelago_proto::link`] at both
//! ends, as `docs/protocol.md` has them (3.3.1).
//!
//! At the primary one thread of a connection owns the encoder, the link and the socket ([`pump`]).
//! Who writes a group puts bytes into a bounded buffer, and waits while that is full. At the mirror
//! one thread has the socket for all connections ([`port`]), and hands the bytes that are complete
//! to the threads of the connections, which read frames from them as if they came by TLS.
//!
//! Packets that the code cannot rebuild are sent again ([`kept`]). Nothing is acknowledged here but
//! for that purpose: a group is safe only once the mirror says so over the connection.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_proto::fec::RepairMode;
use pelago_wire::frame::{FrameKind, Header};
use pelago_wire::mirror::TakenCount;
use rustix::net::sockopt;

pub(super) use incoming::IncomingReader;
use outbox::{End, Outbox};
pub(super) use port::Port;
use pump::Pump;
pub(super) use seal::Seals;
pub(super) use waker::Waker;

use super::IO_TIMEOUT;

mod incoming;
mod kept;
mod outbox;
mod port;
mod pump;
mod receiver;
mod seal;
mod stamps;
mod waker;

/// The time after which datagrams are tried again that did not arrive.
const BLOCKED_TIME: Duration = Duration::from_secs(600);
/// Bytes of the buffers of a socket, if the system permits them: of the default, a fifth of a
/// megabyte, 180 datagrams fill all.
const SOCKET_BYTES: usize = 4 << 20;

/// The longest time of one send of a primary: a network device may have stopped.
const SEND_TIMEOUT: Duration = Duration::from_millis(100);

/// Datagrams for the groups of a primary: how they are repaired, and what is known of the way to
/// the mirror. All connections of a run share it.
#[derive(Debug, Clone)]
pub struct Datagrams {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    mode: RepairMode,
    /// A leaf lock.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When they did not arrive.
    closed: Option<Instant>,
    status: Option<DatagramStatus>,
}

/// The counts and estimates of the datagrams of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DatagramStatus {
    /// Bytes per second that the link delivers, as far as it was ever full.
    pub rate: u64,
    /// The upper bound of the share of datagrams that it loses, 0 to 1.
    pub loss: f64,
    /// The mean round trip; `None` before the first report.
    pub trip: Option<Duration>,
    /// The chance that what has left this machine, and has not arrived, cannot be rebuilt from it.
    pub residual: f64,
    /// Data packets that were sent, each counted once.
    pub data: u64,
    /// Repair packets of both layers that were sent.
    pub repair: u64,
    /// Data packets that were sent again.
    pub again: u64,
    /// Datagrams that came and were none of this connection's reports.
    pub refused: u64,
}

impl Datagrams {
    /// Returns datagrams that are repaired in this way, over a way that is not known.
    #[must_use]
    pub fn new(mode: RepairMode) -> Self {
        Self { shared: Arc::new(Shared { mode, state: Mutex::default() }) }
    }

    /// Returns the way in which they are repaired.
    #[must_use]
    pub fn mode(&self) -> RepairMode {
        self.shared.mode
    }

    /// Returns what is known of the connection that has them; `None` if none has, or nothing has
    /// arrived yet.
    #[must_use]
    pub fn status(&self) -> Option<DatagramStatus> {
        self.shared.state.lock().status
    }

    /// Returns whether the next connection has them: not for ten minutes after they did not arrive.
    #[must_use]
    pub fn are_tried(&self) -> bool {
        let closed = self.shared.state.lock().closed;
        closed.is_none_or(|closed| closed.elapsed() >= BLOCKED_TIME)
    }

    /// Has the next connections made without them for a while.
    pub(super) fn close(&self, why: &str) {
        let before = self.shared.state.lock().closed.replace(Instant::now());
        if before.is_none_or(|before| before.elapsed() >= BLOCKED_TIME) {
            let minutes = BLOCKED_TIME.as_secs() / 60;
            tracing::warn!(why, minutes, "the mirror gets no datagrams for some minutes, only TLS");
        }
    }

    fn set_status(&self, status: Option<DatagramStatus>) {
        self.shared.state.lock().status = status;
    }
}

/// The primary's end of the datagrams of a connection. Dropping it ends both.
pub(super) struct DatagramSender {
    outbox: Arc<Outbox>,
    thread: Option<JoinHandle<()>>,
}

impl DatagramSender {
    /// Starts the thread that sends them.
    pub(super) fn start(
        seals: Seals,
        socket: UdpSocket,
        tcp: TcpStream,
        datagrams: Datagrams,
    ) -> io::Result<Self> {
        let outbox = Arc::new(Outbox::new()?);
        let pump = Pump::new(Arc::clone(&outbox), socket, seals, tcp, datagrams)?;
        Self::spawn(outbox, pump)
    }

    /// Starts it as [`DatagramSender::start`] does, and has it say how much has left this machine
    /// ([`DatagramSender::sent`]). A thread is woken when that, or anything else, has changed.
    pub(super) fn start_with_stamps(
        seals: Seals,
        socket: UdpSocket,
        tcp: TcpStream,
        datagrams: Datagrams,
        listener: Arc<Waker>,
    ) -> io::Result<Self> {
        let outbox = Arc::new(Outbox::new()?);
        outbox.set_listener(listener);
        let mut pump = Pump::new(Arc::clone(&outbox), socket, seals, tcp, datagrams)?;
        pump.ask_for_stamps()?;
        Self::spawn(outbox, pump)
    }

    fn spawn(outbox: Arc<Outbox>, pump: Pump) -> io::Result<Self> {
        let thread =
            thread::Builder::new().name("mirror-pump".to_owned()).spawn(move || pump.run())?;
        Ok(Self { outbox, thread: Some(thread) })
    }

    /// Returns whether [`DatagramSender::send`] does not wait for the link.
    pub(super) fn has_room(&self) -> bool {
        self.outbox.has_room()
    }

    /// Returns the bytes of all frames that were given so far.
    pub(super) fn given(&self) -> u64 {
        self.outbox.pushed()
    }

    /// Returns how many of them have left this machine, with as many repair packets as a waiter
    /// needs; always 0 without stamps.
    pub(super) fn sent(&self) -> u64 {
        self.outbox.sent()
    }

    /// Sends a frame; it may be buffered until [`DatagramSender::flush`]. Fails with the reason for
    /// which no more is sent.
    pub(super) fn send(&self, kind: FrameKind, body: &[u8]) -> Result<(), String> {
        let bytes = u32::try_from(body.len()).map_err(|_| "a part is too long".to_owned())?;
        self.outbox.push(&[&Header::new(kind, bytes, 0).encode(), body])
    }

    /// Sends the buffered frames, for which a caller waits.
    pub(super) fn flush(&self) {
        self.outbox.flush();
    }

    /// Sends the buffered frames, for which no caller waits: with fewer repair packets.
    pub(super) fn release(&self) {
        self.outbox.release();
    }

    /// Returns the count of the data packets that are complete at the mirror.
    pub(super) fn taken(&self) -> TakenCount {
        Arc::clone(&self.outbox.taken)
    }

    /// Returns the reason for which the datagrams have ended the connection, if they have.
    pub(super) fn failure(&self) -> Option<String> {
        self.outbox.failure()
    }
}

impl Drop for DatagramSender {
    fn drop(&mut self) {
        self.outbox.end(End::Connection);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the datagrams has panicked");
        }
    }
}

impl fmt::Debug for DatagramSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramSender").finish_non_exhaustive()
    }
}

/// Returns the primary's socket for the datagrams of a connection. It is not connected: a closed
/// port would make every second send fail.
pub(super) fn socket_of(tcp: &TcpStream) -> io::Result<UdpSocket> {
    let mut address = tcp.local_addr()?;
    address.set_port(0);
    let socket = bound_socket(address)?;
    // Only `recv` is asked not to wait: a send waits until the system has sent others.
    socket.set_nonblocking(false)?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    Ok(socket)
}

/// Returns a socket that does not block, with large buffers.
fn bound_socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    // Beyond the system's limit it takes a right that few programs have.
    if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES)?;
    }
    sockopt::set_socket_send_buffer_size(&socket, SOCKET_BYTES)?;
    Ok(socket)
}
