//! A client that sends and receives frame by frame, also frames that no correct client sends.
#![allow(dead_code, reason = "each test uses its part")]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use pelago_wire::codec::encode_call;
use pelago_wire::frame::{FrameKind, HEADER_BYTES, Header};
use pelago_wire::handshake::{Closing, Refused, Welcome};
use pelago_wire::{OpenId, Request};

/// A deadline for each read; no test waits for it.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// A time within which a frame would arrive that must not.
const A_WHILE: Duration = Duration::from_millis(200);

/// Returns the bytes of a frame.
pub(crate) fn frame(kind: FrameKind, number: u64, body: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(body.len()).unwrap();
    let header = Header { number, ..Header::new(kind, bytes, 0) };
    [&header.encode()[..], body].concat()
}

/// A client over a socket, or over TLS.
pub(crate) struct RawClient<S>(S);

impl RawClient<UnixStream> {
    /// Connects to a Unix socket.
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
        Self(stream)
    }

    /// Asserts that nothing arrives for a while.
    pub(crate) fn receive_nothing(&mut self) {
        self.0.set_read_timeout(Some(A_WHILE)).unwrap();
        let error = self.0.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        self.0.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    }
}

impl<S: Read + Write> RawClient<S> {
    pub(crate) const fn new(stream: S) -> Self {
        Self(stream)
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, kind: FrameKind, number: u64, body: &[u8]) {
        self.send_bytes(&frame(kind, number, body));
    }

    /// Sends bytes.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
        self.0.flush().unwrap();
    }

    /// Returns all bytes until the end of the connection.
    pub(crate) fn receive_rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).unwrap();
        rest
    }

    /// Returns the next frame, its bulk after its body; `None` at the end of the connection.
    pub(crate) fn receive(&mut self) -> Option<(Header, Vec<u8>)> {
        let mut header = [0; HEADER_BYTES];
        self.0.read_exact(&mut header).ok()?;
        let header = Header::decode(&header).unwrap();
        let mut body = vec![0; (header.body + header.bulk) as usize];
        self.0.read_exact(&mut body).unwrap();
        Some((header, body))
    }

    /// Returns the next frame, which is a welcome.
    pub(crate) fn receive_welcome(&mut self) -> Welcome {
        let (header, body) = self.receive().unwrap();
        assert_eq!(header.kind, FrameKind::Welcome);
        Welcome::decode(&body).unwrap()
    }

    /// Returns the next frame, which is a refusal and the last one.
    pub(crate) fn receive_refused(&mut self) -> Refused {
        let (header, body) = self.receive().unwrap();
        assert_eq!(header.kind, FrameKind::Refused);
        assert!(self.receive().is_none(), "a refusal is the last frame");
        Refused::decode(&body).unwrap()
    }

    /// Returns the next frame, which says why the connection ends, and is the last one.
    pub(crate) fn receive_closing(&mut self) -> Closing {
        let (header, body) = self.receive().unwrap();
        assert_eq!(header.kind, FrameKind::Closing);
        assert!(self.receive().is_none(), "it is the last frame");
        Closing::decode(&body).unwrap()
    }

    /// Sends a read, and waits for its reply.
    pub(crate) fn read(&mut self) {
        let mut body = Vec::new();
        let read = Request::Read { open: OpenId(1), offset: 0, size: 1 };
        encode_call(0, 0, 0, &read, &mut body).unwrap();
        self.send(FrameKind::Request, 1, &body);
        assert_eq!(self.receive().unwrap().0.kind, FrameKind::Reply);
    }
}
