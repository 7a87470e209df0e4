//! The bytes of the stream between the mirror's thread of datagrams and that of a connection.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pelago_wire::limits;

use super::waker::Waker;

/// The most bytes that a primary may have under way while no progress is reported.
const MOST: usize = limits::STREAM_READY_BYTES + limits::STREAM_KEPT_BYTES;

/// Bytes that a connection has not read.
#[derive(Debug)]
pub(super) struct Incoming {
    /// A leaf lock.
    state: Mutex<State>,
    has_bytes: Condvar,
    waker: Arc<Waker>,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<Vec<u8>>,
    /// Bytes of all of them, each counted with [`limits::STREAM_PACKET_BYTES`] more.
    bytes: usize,
    /// No more come.
    ended: Option<End>,
    /// The reader has gone.
    is_closed: bool,
}

/// The reason for which no more bytes come.
#[derive(Debug, Clone)]
pub(super) enum End {
    /// The connection of the primary has ended.
    Lost,
    /// The primary breaks the protocol.
    Broken(&'static str),
}

impl Incoming {
    pub(super) fn new(waker: Arc<Waker>) -> Self {
        Self { state: Mutex::default(), has_bytes: Condvar::new(), waker }
    }

    /// Adds bytes, unless the stream has ended.
    pub(super) fn push(&self, piece: Vec<u8>) {
        let mut state = self.state.lock();
        if state.ended.is_some() || state.is_closed {
            return;
        }
        state.bytes += piece.len() + limits::STREAM_PACKET_BYTES;
        state.pieces.push_back(piece);
        if state.bytes > MOST {
            state.ended = Some(End::Broken("more of the stream is under way than permitted"));
        }
        self.has_bytes.notify_one();
    }

    /// Ends the stream after what is here.
    pub(super) fn end(&self, end: End) {
        self.state.lock().ended.get_or_insert(end);
        self.has_bytes.notify_all();
    }

    /// Returns whether so much is here that no progress is reported.
    pub(super) fn is_full(&self) -> bool {
        self.state.lock().bytes > limits::STREAM_READY_BYTES
    }

    /// Returns whether the reader has gone.
    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Returns the next piece; waits for it for a time.
    fn next(&self, time: Duration) -> io::Result<Vec<u8>> {
        let mut state = self.state.lock();
        let is_waiting = |state: &mut State| state.pieces.is_empty() && state.ended.is_none();
        self.has_bytes.wait_while_for(&mut state, is_waiting, time);
        let was_full = state.bytes > limits::STREAM_READY_BYTES;
        if let Some(piece) = state.pieces.pop_front() {
            state.bytes -= piece.len() + limits::STREAM_PACKET_BYTES;
            if was_full && state.bytes <= limits::STREAM_READY_BYTES {
                self.waker.wake();
            }
            return Ok(piece);
        }
        Err(match &state.ended {
            Some(End::Lost) => io::ErrorKind::UnexpectedEof.into(),
            Some(End::Broken(why)) => io::Error::new(io::ErrorKind::InvalidData, *why),
            None => io::ErrorKind::TimedOut.into(),
        })
    }
}

/// The reader of a stream. Dropping it ends the stream.
#[derive(Debug)]
pub(in super::super) struct IncomingReader {
    incoming: Arc<Incoming>,
    piece: Vec<u8>,
    at: usize,
    time: Duration,
}

impl IncomingReader {
    /// Returns the reader, whose reads wait for a limited time.
    pub(super) const fn new(incoming: Arc<Incoming>, time: Duration) -> Self {
        Self { incoming, piece: Vec::new(), at: 0, time }
    }
}

impl Read for IncomingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() {
            self.piece = self.incoming.next(self.time)?;
            self.at = 0;
        }
        let mut rest = self.piece.get(self.at..).unwrap_or_default();
        let read = rest.read(buffer)?;
        self.at += read;
        Ok(read)
    }
}

impl Drop for IncomingReader {
    fn drop(&mut self) {
        self.incoming.state.lock().is_closed = true;
        self.incoming.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Arc<Incoming>, IncomingReader) {
        let incoming = Arc::new(Incoming::new(Arc::new(Waker::new().unwrap())));
        (Arc::clone(&incoming), IncomingReader::new(incoming, Duration::from_millis(10)))
    }

    #[test]
    fn bytes_are_read_in_order_and_then_the_end() {
        let (incoming, mut reader) = pair();
        incoming.push(vec![1, 2, 3]);
        incoming.push(vec![4]);
        let mut four = [0; 4];
        reader.read_exact(&mut four).unwrap();
        assert_eq!(four, [1, 2, 3, 4]);
        assert_eq!(reader.read(&mut four).unwrap_err().kind(), io::ErrorKind::TimedOut);
        incoming.push(vec![5]);
        incoming.end(End::Lost);
        incoming.push(vec![6]);
        assert_eq!(reader.read(&mut four).unwrap(), 1);
        assert_eq!(reader.read(&mut four).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        drop(reader);
        assert!(incoming.is_closed());
    }

    #[test]
    fn a_primary_that_sends_more_than_it_may_is_stopped() {
        let (incoming, mut reader) = pair();
        let pieces = MOST / (1000 + limits::STREAM_PACKET_BYTES);
        (0..=pieces + 10).for_each(|_| incoming.push(vec![0; 1000]));
        assert!(incoming.is_full());
        let error = io::copy(&mut reader, &mut io::sink()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(!incoming.is_full());
    }
}
