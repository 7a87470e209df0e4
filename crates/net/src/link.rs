//! One connection: its socket, its TLS, and the queue of bytes that the socket has not taken.
//!
//! A thread that sends a frame writes the socket itself. Bytes that the socket does not take stay
//! in the queue, and the reactor's thread sends them later. So no sender waits for a slow peer, and
//! no other thread is woken for a fast one.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mio::Token;
use parking_lot::Mutex;
use pelago_wire::frame::HEADER_BYTES;
use pelago_wire::{Buffer, limits};

use self::cipher::Cipher;
use crate::account::{Account, Resume};
use crate::clock::boot_time;
use crate::log_limit::LogLimit;
use crate::reverse::Detached;
use crate::stream::Stream;

mod cipher;

/// Pieces that one system call writes.
const SLICES: usize = 16;
/// Bytes that are encrypted at a time.
const PLAIN_BYTES: usize = 64 << 10;
static FAILED_WRITES: LogLimit = LogLimit::new();

/// A connection. Dropping the last reference closes it.
pub(crate) struct Link {
    stream: Stream,
    pub(crate) token: Token,
    reader: Arc<dyn Resume>,
    /// A leaf lock.
    out: Mutex<Out>,
    /// The account of the bytes in the queue, until the connection has a session.
    own: Arc<Account>,
    /// The account of its session, which counts them from then on.
    joined: OnceLock<Arc<Account>>,
    /// The connection is closed: the reactor reads it to its end, even if too many bytes are held.
    ended: AtomicBool,
    // Milliseconds of `boot_time`.
    /// When bytes arrived last.
    heard: AtomicU64,
    /// When a frame was sent last.
    said: AtomicU64,
    /// When the socket took queued bytes last.
    taken: AtomicU64,
    /// When the reactor's thread has called [`Link::look`] last.
    looked: AtomicU64,
}

struct Out {
    tls: Option<Box<rustls::Connection>>,
    cipher: Cipher,
    queue: VecDeque<Piece>,
    /// Bytes in the queue.
    queued: usize,
    closed: bool,
}

/// Bytes to send.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// The header of a frame.
    Header([u8; HEADER_BYTES]),
    /// A body.
    Owned(Vec<u8>),
    /// The stored reply to a mutation, or a request that may be sent again.
    Shared(Arc<[u8]>),
    /// Bytes of a file, in memory that returns to its pool.
    Read(Buffer),
}

struct Piece {
    bytes: Bytes,
    /// The number of bytes that were sent.
    sent: usize,
}

impl Bytes {
    /// No bytes.
    pub(crate) const NONE: Self = Self::Owned(Vec::new());

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Header(bytes) => bytes,
            Self::Owned(bytes) => bytes,
            Self::Shared(bytes) => bytes,
            Self::Read(buffer) => buffer.as_bytes(),
        }
    }
}

impl Link {
    /// Returns a connection over a socket that the reactor of this mailbox polls under `token`.
    pub(crate) fn new(
        stream: Stream,
        mut tls: Option<Box<rustls::Connection>>,
        reader: Arc<dyn Resume>,
        token: Token,
    ) -> Self {
        if let Some(tls) = &mut tls {
            // `flush_tls` bounds the bytes that TLS holds. The limit of rustls would count the
            // heads of records, too, and would not take `PLAIN_BYTES`.
            tls.set_buffer_limit(None);
        }
        let cipher = Cipher::default();
        let queue = VecDeque::new();
        let out = Out { tls, cipher, queue, queued: 0, closed: false };
        let own = Account::new(limits::SESSION_BYTES);
        let joined = OnceLock::new();
        let ended = AtomicBool::new(false);
        let out = Mutex::new(out);
        let [heard, said, taken, looked] = Default::default();
        let link =
            Self { stream, token, reader, out, own, joined, ended, heard, said, taken, looked };
        link.look();
        link
    }

    /// Counts the queued bytes in the account of a session from now on.
    pub(crate) fn join(&self, account: &Arc<Account>) {
        let out = self.out.lock();
        if self.joined.set(Arc::clone(account)).is_ok() {
            account.add(out.queued);
            self.own.let_go(out.queued);
        }
    }

    /// Returns the account of the queued bytes.
    fn account(&self) -> &Arc<Account> {
        self.joined.get().unwrap_or(&self.own)
    }

    /// Sends a frame: header, body and bulk. Never waits; on a connection that has ended it does
    /// nothing.
    pub(crate) fn send<const PIECES: usize>(&self, frame: [Bytes; PIECES]) {
        let mut out = self.out.lock();
        if out.closed {
            return;
        }
        let mut total = 0;
        for bytes in frame {
            let length = bytes.as_slice().len();
            if length > 0 {
                total += length;
                out.queue.push_back(Piece { bytes, sent: 0 });
            }
        }
        if out.queued == 0 {
            // The queue was empty: from now on bytes wait for the peer.
            note_now(&self.taken);
        }
        out.queued += total;
        self.account().add(total);
        note_now(&self.said);
        self.flush_locked(&mut out);
    }

    /// Sends queued bytes, as far as the socket takes them.
    pub(crate) fn flush(&self) {
        let mut out = self.out.lock();
        let before = out.queued;
        self.flush_locked(&mut out);
        if out.queued < before {
            note_now(&self.taken);
        }
    }

    fn flush_locked(&self, out: &mut Out) {
        let sent = match &mut out.tls {
            None => flush_plain(&self.stream, &mut out.queue),
            Some(tls) => flush_tls(&self.stream, tls, &mut out.queue),
        };
        match sent {
            Ok(bytes) => {
                out.queued -= bytes;
                self.account().let_go(bytes);
            }
            Err(error) => {
                if let Some(left_out) = FAILED_WRITES.admit() {
                    tracing::info!(%error, left_out, "a connection cannot be written to");
                }
                self.close_locked(out);
            }
        }
    }

    /// Reads bytes that have arrived, decrypted. Returns 0 at the end of the stream. A read that
    /// does not fill `into` has emptied the socket, or is at its end.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has arrived; those of the socket, and `InvalidData` of TLS.
    pub(crate) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.read_now(into);
        if matches!(read, Ok(1..)) {
            note_now(&self.heard);
        }
        read
    }

    /// Returns when bytes arrived last, by [`boot_time`]. A frame of a megabyte may take longer
    /// than a term over a slow network.
    pub(crate) fn heard(&self) -> Duration {
        Duration::from_millis(self.heard.load(Ordering::Relaxed))
    }

    /// Returns when a frame was sent last, by [`boot_time`].
    pub(crate) fn said(&self) -> Duration {
        Duration::from_millis(self.said.load(Ordering::Relaxed))
    }

    /// Returns when the socket took bytes last that had waited for it, by [`boot_time`].
    pub(crate) fn taken(&self) -> Duration {
        Duration::from_millis(self.taken.load(Ordering::Relaxed))
    }

    /// Records that the reactor's thread is not held up.
    pub(crate) fn look(&self) {
        note_now(&self.looked);
    }

    /// Returns when [`Link::look`] was called last, by [`boot_time`].
    pub(crate) fn looked(&self) -> Duration {
        Duration::from_millis(self.looked.load(Ordering::Relaxed))
    }

    fn read_now(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut out = self.out.lock();
        if out.tls.is_none() {
            drop(out);
            return self.stream.read(into);
        }
        // A record of TLS has 16 KiB at most, and more of them may have arrived.
        let mut filled = 0;
        while filled < into.len() {
            let is_first = filled == 0;
            match self.read_record(&mut out, &mut into[filled..], is_first) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if filled > 0 && error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Reads bytes that TLS has decrypted; if there are none, reads the socket first. A socket that
    /// was emptied is read again for the `is_first` record only: an event of epoll follows when
    /// more bytes arrive.
    fn read_record(&self, out: &mut Out, into: &mut [u8], is_first: bool) -> io::Result<usize> {
        loop {
            match out.read_plain(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            let Out { tls: Some(tls), cipher, .. } = out else { return Ok(0) };
            if cipher.is_empty() && cipher.is_drained() && !is_first {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if cipher.is_empty() && cipher.fill(|into| self.stream.read(into))? == 0 {
                // TLS must see the end, too.
                tls.read_tls(&mut io::empty())?;
                return Ok(0);
            }
            tls.read_tls(cipher)?;
            let processed = tls.process_new_packets().map(|_| ());
            // Sends an answer of the handshake, or an alert.
            self.flush_locked(out);
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }

    /// Calls `look` with the TLS of this connection.
    pub(crate) fn with_tls<T>(&self, look: impl FnOnce(&rustls::Connection) -> T) -> Option<T> {
        self.out.lock().tls.as_deref().map(look)
    }

    /// Has the kernel control congestion for the line between two sites.
    pub(crate) fn set_long_line(&self) {
        self.stream.set_long_line();
    }

    /// Takes the socket and TLS out, for another connection that goes on with them. This one ends.
    /// Returns `None` if bytes wait to be sent or to be decrypted: the other end must be silent.
    pub(crate) fn detach(&self) -> Option<Detached> {
        let mut out = self.out.lock();
        if out.closed || out.queued > 0 || !out.cipher.is_empty() {
            return None;
        }
        let stream = match self.stream.duplicate() {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be taken over");
                return None;
            }
        };
        // So that the end of this connection shuts nothing down.
        out.closed = true;
        self.ended.store(true, Ordering::SeqCst);
        Some((stream, out.tls.take()))
    }

    /// Ends the connection. Queued bytes are dropped; those that the socket has taken are sent.
    pub(crate) fn close(&self) {
        self.close_locked(&mut self.out.lock());
    }

    fn close_locked(&self, out: &mut Out) {
        if !std::mem::replace(&mut out.closed, true) {
            out.queue.clear();
            self.stream.shut_down();
            self.ended.store(true, Ordering::SeqCst);
            self.account().let_go(std::mem::take(&mut out.queued));
            // The end of the connection must be read, even if too many bytes are held.
            if self.account().is_paused() {
                self.account().resume();
            }
        }
    }

    /// Returns whether bytes wait until the peer takes them.
    pub(crate) fn has_queued(&self) -> bool {
        self.out.lock().queued > 0
    }

    /// Returns whether the connection is paused, because too many bytes are held. The reactor is
    /// woken when it is resumed.
    pub(crate) fn must_pause(&self) -> bool {
        let account = self.account();
        let has_room = || account.has_room() || self.ended.load(Ordering::SeqCst);
        if has_room() {
            return false;
        }
        account.pause(&self.reader, self.token);
        if has_room() {
            // A thread that has freed bytes, or closed the connection, may have missed the pause.
            account.resume();
        }
        true
    }
}

impl Out {
    /// Reads bytes that TLS has decrypted.
    fn read_plain(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return Ok(0) };
        match tls.reader().read(into) {
            // A connection may end without the last message of TLS: frames have lengths, so that a
            // cut frame is not taken for a whole one.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            read => read,
        }
    }
}

impl AsRawFd for Link {
    fn as_raw_fd(&self) -> RawFd {
        match &self.stream {
            Stream::Unix(stream) => stream.as_raw_fd(),
            Stream::Tcp(stream) => stream.as_raw_fd(),
        }
    }
}

fn note_now(when: &AtomicU64) {
    let now = u64::try_from(boot_time().as_millis()).unwrap_or(u64::MAX);
    when.store(now, Ordering::Relaxed);
}

/// Writes pieces until all are sent or the socket is full. Returns the bytes sent.
fn flush_plain(stream: &Stream, queue: &mut VecDeque<Piece>) -> io::Result<usize> {
    let mut total = 0;
    while !queue.is_empty() {
        let mut slices = [IoSlice::new(&[]); SLICES];
        match stream.write(first_slices(queue, usize::MAX, &mut slices)) {
            Ok(sent) => {
                total += sent;
                advance(queue, sent);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

/// Returns the first bytes of the queue, at most `most`.
fn first_slices<'a, 'b>(
    queue: &'a VecDeque<Piece>,
    most: usize,
    slices: &'b mut [IoSlice<'a>; SLICES],
) -> &'b [IoSlice<'a>] {
    let mut left = most;
    let mut count = 0;
    for (piece, slice) in queue.iter().zip(slices.iter_mut()) {
        let bytes = &piece.bytes.as_slice()[piece.sent..];
        let bytes = &bytes[..bytes.len().min(left)];
        if bytes.is_empty() {
            break;
        }
        *slice = IoSlice::new(bytes);
        left -= bytes.len();
        count += 1;
    }
    &slices[..count]
}

/// Drops the first `sent` bytes of the queue.
fn advance(queue: &mut VecDeque<Piece>, mut sent: usize) {
    while let Some(piece) = queue.front_mut() {
        let left = piece.bytes.as_slice().len() - piece.sent;
        if sent < left {
            piece.sent += sent;
            return;
        }
        sent -= left;
        queue.pop_front();
    }
}

/// Encrypts and writes pieces until all are sent or the socket is full. Returns the bytes that left
/// the queue.
fn flush_tls(
    stream: &Stream,
    tls: &mut rustls::Connection,
    queue: &mut VecDeque<Piece>,
) -> io::Result<usize> {
    let mut total = 0;
    loop {
        while tls.wants_write() {
            match tls.write_tls(&mut Socket(stream)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(total),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if queue.is_empty() || tls.is_handshaking() {
            return Ok(total);
        }
        // Small pieces share a record.
        let mut slices = [IoSlice::new(&[]); SLICES];
        let taken = tls.writer().write_vectored(first_slices(queue, PLAIN_BYTES, &mut slices))?;
        if taken == 0 && !tls.wants_write() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        total += taken;
        advance(queue, taken);
    }
}

/// A socket, as rustls reads and writes it.
struct Socket<'a>(&'a Stream);

impl Read for Socket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
