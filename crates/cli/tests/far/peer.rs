//! A client of the test's own, which can say what no correct client says.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use pelago_wire::codec::{decode_answer, encode_call};
use pelago_wire::frame::{FrameKind, HEADER_BYTES, Header};
use pelago_wire::handshake::{Closing, Hello, Refused, Welcome};
use pelago_wire::{Error, Leases, Reply, Request};

use crate::harness::program::DEADLINE;

/// What sockets have in common.
pub(crate) trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A connection to a server.
pub(crate) struct Peer {
    stream: Box<dyn Stream>,
    /// What each frame says: every mutation up to this one is answered.
    pub(crate) progress: u64,
    /// It ends its session with the connection: one that vanishes keeps its leases for a term, and
    /// delays the good mounts for so long.
    leaves: bool,
}

impl Drop for Peer {
    fn drop(&mut self) {
        if self.leaves {
            // The server may have closed the connection.
            drop(self.send(&Header::new(FrameKind::Goodbye, 0, self.progress).encode()));
        }
    }
}

/// A frame of the server.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) header: Header,
    pub(crate) body: Vec<u8>,
    bulk: Vec<u8>,
}

impl Heard {
    /// Returns the answer that the frame is.
    pub(crate) fn answer(self) -> Result<Reply, Error> {
        decode_answer(&self.body, self.bulk).unwrap().result
    }
}

impl Peer {
    pub(crate) fn unix(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        Self::over(stream)
    }

    /// TCP without TLS.
    pub(crate) fn tcp(address: &str) -> Self {
        Self::over(tcp(address))
    }

    pub(crate) fn over(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), progress: 0, leaves: true }
    }

    /// Connects and begins a session.
    pub(crate) fn session(socket: &Path) -> (Self, Welcome) {
        let mut peer = Self::unix(socket);
        peer.send_hello(&hello());
        let welcome = peer.hear_welcome();
        (peer, welcome)
    }

    /// Sends bytes as they are. The server may have closed the connection.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush())
    }

    pub(crate) fn send_frame(&mut self, kind: FrameKind, number: u64, body: &[u8], bulk: &[u8]) {
        let [sizes, bulk_size] = [body, bulk].map(|bytes| bytes.len() as u32);
        let progress = self.progress;
        let header =
            Header { body: sizes, bulk: bulk_size, kind, is_overdue: false, number, progress };
        let frame = [&header.encode()[..], body, bulk].concat();
        self.send(&frame).unwrap();
    }

    pub(crate) fn send_hello(&mut self, hello: &Hello) {
        self.send_frame(FrameKind::Hello, 0, &hello.encode(), &[]);
    }

    pub(crate) fn send_call(&mut self, number: u64, mutation: u64, request: &Request) {
        self.send_frame(FrameKind::Request, number, &body(mutation, request), &[]);
    }

    /// Returns the next frame; `None` once the connection has ended.
    pub(crate) fn hear(&mut self) -> Option<Heard> {
        let mut header = [0; HEADER_BYTES];
        match self.stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if is_end(&error) => return None,
            Err(error) => panic!("{error}"),
        }
        let header = Header::decode(&header).unwrap();
        let mut body = vec![0; header.body as usize];
        let mut bulk = vec![0; header.bulk as usize];
        self.stream.read_exact(&mut body).and_then(|()| self.stream.read_exact(&mut bulk)).unwrap();
        if header.kind == FrameKind::Recall {
            // It keeps nothing. An error says that the connection has ended.
            let mut recalled = Header::new(FrameKind::Recalled, 0, self.progress);
            recalled.number = header.number;
            drop(self.send(&recalled.encode()));
            return self.hear();
        }
        Some(Heard { header, body, bulk })
    }

    /// Ends the connection, and not the session.
    pub(crate) fn vanish(mut self) {
        self.leaves = false;
    }

    pub(crate) fn hear_welcome(&mut self) -> Welcome {
        let heard = self.hear().unwrap();
        assert_eq!(heard.header.kind, FrameKind::Welcome);
        Welcome::decode(&heard.body).unwrap()
    }

    /// Returns the refusal, and asserts that the connection ends behind it.
    pub(crate) fn hear_refused(mut self) -> Refused {
        let heard = self.hear().unwrap();
        assert_eq!(heard.header.kind, FrameKind::Refused);
        assert!(self.hear().is_none());
        Refused::decode(&heard.body).unwrap()
    }

    /// Returns the closing, and asserts that the connection ends behind it.
    pub(crate) fn hear_closing(mut self) -> Closing {
        let heard = self.hear().unwrap();
        assert_eq!(heard.header.kind, FrameKind::Closing, "{heard:?}");
        assert!(self.hear().is_none());
        Closing::decode(&heard.body).unwrap()
    }

    /// Asserts that the server ends the connection without another frame.
    pub(crate) fn hear_end(mut self) {
        assert!(self.hear().is_none());
    }

    pub(crate) fn hear_answer(&mut self) -> (u64, Result<Reply, Error>) {
        let Heard { header, body, bulk } = self.hear().unwrap();
        assert_eq!(header.kind, FrameKind::Reply, "{body:?}");
        (header.number, decode_answer(&body, bulk).unwrap().result)
    }

    /// Returns what the next answer leases.
    pub(crate) fn hear_leases(&mut self) -> Leases {
        let Heard { header, body, bulk } = self.hear().unwrap();
        assert_eq!(header.kind, FrameKind::Reply, "{body:?}");
        decode_answer(&body, bulk).unwrap().granted.leases
    }

    /// Sends a request and returns its answer.
    pub(crate) fn ask(
        &mut self,
        number: u64,
        mutation: u64,
        request: &Request,
    ) -> Result<Reply, Error> {
        self.send_call(number, mutation, request);
        let (answered, result) = self.hear_answer();
        assert_eq!(answered, number);
        result
    }
}

/// Connects to `HOST:PORT`.
pub(crate) fn tcp(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// Returns the hello of a correct client.
pub(crate) fn hello() -> Hello {
    Hello::new([7; 16])
}

/// Returns the body of a request of root.
pub(crate) fn body(mutation: u64, request: &Request) -> Vec<u8> {
    let mut body = Vec::new();
    encode_call(0, 0, mutation, request, &mut body).unwrap();
    body
}

/// Returns whether an error says that the other end has closed the connection.
pub(crate) fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}
