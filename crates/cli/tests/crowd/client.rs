//! A client that reads on command, and compares each byte when it arrives.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use rustix::net::sockopt::set_socket_recv_buffer_size;

/// Bytes that are read in one turn.
const TURN: usize = 16 << 10;
/// Bytes in front of the blocks.
const HEAD: usize = 24;
/// Bytes of the head of a frame.
const FRAME: usize = 16;

/// The request of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Blocks,
    Plain,
}

/// The end of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    Changed,
    Cut,
}

/// A client.
pub(crate) struct Client {
    stream: TcpStream,
    kind: Kind,
    /// It reads in one of so many turns.
    pub(crate) each: usize,
    /// Bytes that were received and not parsed yet.
    buffer: Vec<u8>,
    has_head: bool,
    /// Bytes of the file that came.
    received: usize,
    end: Option<End>,
}

impl Client {
    /// Connects, and asks for a file.
    pub(crate) fn ask(address: &str, name: &str, kind: Kind) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        set_socket_recv_buffer_size(&stream, 64 << 10).unwrap();
        let accept = match kind {
            Kind::Blocks => "application/vnd.pelago.blocks",
            Kind::Plain => "*/*",
        };
        // An answer to HTTP/1.0 has no chunks.
        let text = format!("GET /{name} HTTP/1.0\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n");
        stream.write_all(text.as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let buffer = Vec::new();
        let has_head = false;
        let received = 0;
        let end = None;
        Self { stream, kind, each: 1, buffer, has_head, received, end }
    }

    /// Returns how many bytes of the file have come.
    pub(crate) const fn received(&self) -> usize {
        self.received
    }

    pub(crate) const fn end(&self) -> Option<End> {
        self.end
    }

    /// Reads a little if there is anything, and compares it.
    pub(crate) fn read(&mut self, expected: &[u8]) {
        if self.end.is_some() {
            return;
        }
        let mut piece = [0; TURN];
        match self.stream.read(&mut piece) {
            Ok(0) => {
                let is_whole = self.kind == Kind::Plain && self.received == expected.len();
                self.end = Some(if is_whole { End::Whole } else { End::Cut });
            }
            Ok(count) => self.take(&piece[..count], expected),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.end = Some(End::Cut),
            Err(error) => panic!("{error}"),
        }
    }

    fn take(&mut self, bytes: &[u8], expected: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        if !self.has_head {
            let Some(end) = self.buffer.windows(4).position(|it| it == b"\r\n\r\n") else { return };
            let end = end + 4;
            assert!(self.buffer.starts_with(b"HTTP/1.0 200"), "{:?}", self.buffer);
            let extra = if self.kind == Kind::Blocks { HEAD } else { 0 };
            if self.buffer.len() < end + extra {
                return;
            }
            self.buffer.drain(..end + extra);
            self.has_head = true;
        }
        match self.kind {
            Kind::Plain => {
                let end = self.received + self.buffer.len();
                assert!(expected[self.received..end] == self.buffer, "from {}", self.received);
                self.received = end;
                self.buffer.clear();
            }
            Kind::Blocks => while self.take_frame(expected) {},
        }
    }

    /// Takes a frame that is there as a whole.
    fn take_frame(&mut self, expected: &[u8]) -> bool {
        let Some(head) = self.buffer.first_chunk::<FRAME>() else { return false };
        let number = |at: usize, len: usize| {
            let mut bytes = [0; 8];
            bytes[..len].copy_from_slice(&head[at..at + len]);
            u64::from_le_bytes(bytes) as usize
        };
        let offset = number(0, 8);
        let len = number(8, 4);
        let kind = number(12, 2);
        let Some(payload) = self.buffer.get(FRAME..FRAME + len) else { return false };
        match kind {
            1 => {
                assert!(expected[offset..offset + len] == *payload, "at {offset}");
                self.received += len;
            }
            // Downloads of `get` compare the hashes.
            2 => {}
            4 => self.end = Some(End::Changed),
            // Each block comes once.
            6 if self.received == expected.len() => self.end = Some(End::Whole),
            _ => panic!("a frame {kind}"),
        }
        self.buffer.drain(..FRAME + len);
        true
    }
}
