//! Frames over a socket with TLS whose reads and writes block, each for a limited time.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::DerefMut;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pelago_wire::frame::{FrameError, FrameKind, HEADER_BYTES, Header};
use pelago_wire::mirror::{CloseLink, TakenCount};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustls::{ConnectionCommon, SideData, StreamOwned};

use super::{IO_TIMEOUT, KEEPALIVE_TIMEOUT};
use crate::key::PublicKey;
use crate::tls;

/// Bytes that are buffered before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// The longest time of the last message of TLS.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A socket whose reads and writes block for a limited time.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    wait: Wait,
    /// Bytes that the kernel has taken.
    taken: TakenCount,
}

/// The limit of the time for which a socket waits.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wait {
    /// For each read or write by itself.
    Each(Duration),
    /// For all of them together, until this moment.
    Until(Instant),
}

impl Socket {
    pub(super) fn new(stream: TcpStream, wait: Wait) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        set_keepalive(&stream)?;
        Ok(Self { stream, wait, taken: TakenCount::default() })
    }

    /// Returns another descriptor of the socket.
    pub(super) fn another(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }

    pub(super) const fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }

    /// Returns whether a read returns at once.
    fn is_readable(&self) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.stream, PollFlags::IN)];
        match poll(&mut polled, Some(&Timespec::default())) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = match self.wait {
            Wait::Each(each) => each,
            Wait::Until(until) => until.saturating_duration_since(Instant::now()),
        };
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer).map_err(as_timeout)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        let taken = self.stream.write(bytes).map_err(as_timeout)?;
        self.taken.fetch_add(taken as u64, Ordering::Relaxed);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Has the kernel end the connection if the other machine is gone: it sends probes while the
/// connection is idle, and waits for a limited time for the confirmation of bytes.
fn set_keepalive(stream: &TcpStream) -> io::Result<()> {
    let third = KEEPALIVE_TIMEOUT / 3;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, third)?;
    sockopt::set_tcp_keepintvl(stream, third)?;
    sockopt::set_tcp_keepcnt(stream, 2)?;
    let millis = u32::try_from(KEEPALIVE_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(stream, millis)?)
}

/// Returns `TimedOut` for `WouldBlock`, which a read or write returns after its time.
fn as_timeout(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

/// The reason for which no frame was received.
#[derive(Debug, thiserror::Error)]
pub(super) enum FramesError {
    /// The socket or TLS failed, or the other end has closed it.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The header of a frame is malformed.
    #[error(transparent)]
    Malformed(#[from] FrameError),
}

/// Waits for a frame. Its body is within the limit of its kind, and it has no bulk bytes.
pub(super) fn receive(from: &mut impl Read) -> Result<(FrameKind, Vec<u8>), FramesError> {
    let mut head = [0; HEADER_BYTES];
    from.read_exact(&mut head)?;
    let header = Header::decode(&head)?;
    if header.bulk > 0 {
        return Err(FrameError::Bulk { kind: header.kind, bytes: header.bulk }.into());
    }
    let mut body = vec![0; header.body as usize];
    from.read_exact(&mut body)?;
    Ok((header.kind, body))
}

/// Frames in both directions. `T` is an end of a connection of rustls.
pub(super) struct Frames<T> {
    tls: StreamOwned<T, Socket>,
    out: Vec<u8>,
}

impl<T, S> Frames<T>
where
    T: DerefMut<Target = ConnectionCommon<S>>,
    S: SideData,
{
    pub(super) const fn new(tls: StreamOwned<T, Socket>) -> Self {
        Self { tls, out: Vec::new() }
    }

    /// Completes the handshake of TLS.
    pub(super) fn shake_hands(&mut self) -> io::Result<()> {
        let StreamOwned { conn, sock } = &mut self.tls;
        while conn.is_handshaking() {
            conn.complete_io(sock)?;
        }
        Ok(())
    }

    /// Returns the key that the other end has proved.
    pub(super) fn peer_key(&self) -> Option<PublicKey> {
        tls::peer_key(&self.tls.conn)
    }

    pub(super) fn set_wait(&mut self, wait: Wait) {
        self.tls.sock.set_wait(wait);
    }

    /// Sets the limit of each read and write after the handshake.
    pub(super) fn set_usual_wait(&mut self) {
        self.set_wait(Wait::Each(IO_TIMEOUT));
    }

    /// Returns what ends the connection from another thread.
    pub(super) fn closer(&self) -> CloseLink {
        let socket = self.tls.sock.another();
        Box::new(move || {
            if let Ok(socket) = socket {
                // It may have ended already.
                let _closed = socket.shutdown(Shutdown::Both);
            }
        })
    }

    /// Returns the count of the bytes that the kernel has taken.
    pub(super) fn taken(&self) -> TakenCount {
        Arc::clone(&self.tls.sock.taken)
    }

    /// Buffers a frame until [`Frames::flush`], or until the buffer is full.
    pub(super) fn send(&mut self, kind: FrameKind, body: &[u8]) -> io::Result<()> {
        let bytes = u32::try_from(body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.out.extend_from_slice(&Header::new(kind, bytes, 0).encode());
        self.out.extend_from_slice(body);
        if self.out.len() >= BUFFER_BYTES { self.write_out() } else { Ok(()) }
    }

    /// Writes the buffered bytes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.write_out()?;
        self.tls.flush()
    }

    fn write_out(&mut self) -> io::Result<()> {
        let written = self.tls.write_all(&self.out);
        self.out.clear();
        written
    }

    /// Waits for a frame.
    pub(super) fn receive(&mut self) -> Result<(FrameKind, Vec<u8>), FramesError> {
        receive(&mut self.tls)
    }

    /// Returns a frame if one has begun to arrive, and waits for the rest of that one; `None` if
    /// nothing has.
    pub(super) fn poll(&mut self) -> Result<Option<(FrameKind, Vec<u8>)>, FramesError> {
        loop {
            let StreamOwned { conn, sock } = &mut self.tls;
            let state = conn.process_new_packets();
            let state = state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if state.plaintext_bytes_to_read() > 0 {
                return self.receive().map(Some);
            }
            if !sock.is_readable()? {
                return Ok(None);
            }
            if state.peer_has_closed() || conn.read_tls(sock)? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }

    /// Returns the end of the connection, of which keys are exported.
    pub(super) fn tls(&self) -> &ConnectionCommon<S> {
        &self.tls.conn
    }

    /// Returns another descriptor of the socket.
    pub(super) fn another_socket(&self) -> io::Result<TcpStream> {
        self.tls.sock.another()
    }

    /// Ends the connection by a message of TLS. Reads and drops bytes of the other end for the time
    /// `linger`: a socket that is closed with unread bytes resets its connection, and the other end
    /// would lose the last frames.
    pub(super) fn close(&mut self, linger: Duration) {
        self.set_wait(Wait::Until(Instant::now() + linger.max(CLOSE_TIMEOUT)));
        self.tls.conn.send_close_notify();
        // The other end may not read any more.
        let _sent = self.tls.flush();
        let socket = &mut self.tls.sock;
        // It may be closed already, and then nothing is read.
        let _closed = socket.stream.shutdown(Shutdown::Write);
        if !linger.is_zero() {
            let mut thrown_away = [0; 16 << 10];
            while matches!(socket.read(&mut thrown_away), Ok(1..)) {}
        }
        let _closed = socket.stream.shutdown(Shutdown::Both);
    }
}
