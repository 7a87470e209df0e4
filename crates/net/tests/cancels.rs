//! What a client is told of a request that it gives up, frame by frame.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use pelago_wire::codec::decode_answer;
use pelago_wire::frame::{FrameKind, HEADER_BYTES, Header};
use pelago_wire::handshake::{Hello, Welcome};
use pelago_wire::{
    Attr, Bulk, Code, Context, Done, Entry, Error, FileKind, Handle, InodeId, Reply, Request,
    Service, SessionId,
};

use crate::harness::{PATIENCE, WithSessions};

#[path = "harness/all.rs"]
mod harness;

/// Is not asked.
struct Unasked;

impl Service for Unasked {
    fn ask(
        &self,
        _: &Context,
        request: Request,
        _: Bulk<'_>,
        _: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        panic!("a cancel carries nothing out: {request:?}");
    }
}

/// A client that sends single frames.
struct Client(UnixStream);

impl Client {
    /// Begins a session, or resumes one. Returns its id.
    fn hello(socket: &Path, resume: Option<SessionId>) -> (Self, SessionId) {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Self(stream);
        let hello = Hello { resume, ..Hello::new([9; 16]) };
        client.send(FrameKind::Hello, 0, &hello.encode());
        let (kind, _, body) = client.hear();
        assert_eq!(kind, FrameKind::Welcome);
        (client, Welcome::decode(&body).unwrap().session)
    }

    fn send(&mut self, kind: FrameKind, number: u64, body: &[u8]) {
        let bytes = u32::try_from(body.len()).unwrap();
        let header = Header { body: bytes, bulk: 0, kind, is_overdue: false, number, progress: 0 };
        self.0.write_all(&[&header.encode()[..], body].concat()).unwrap();
    }

    /// Returns kind, number and body of the next frame.
    fn hear(&mut self) -> (FrameKind, u64, Vec<u8>) {
        let mut header = [0; HEADER_BYTES];
        self.0.read_exact(&mut header).unwrap();
        let header = Header::decode(&header).unwrap();
        let mut body = vec![0; header.body as usize];
        self.0.read_exact(&mut body).unwrap();
        (header.kind, header.number, body)
    }

    /// Gives a mutation up, and returns the answer.
    fn cancel(&mut self, number: u64, mutation: u64) -> Result<Reply, Error> {
        self.send(FrameKind::Cancel, number, &mutation.to_le_bytes());
        loop {
            let (kind, about, body) = self.hear();
            if kind == FrameKind::Reply {
                assert_eq!(about, number);
                return decode_answer(&body, Vec::new()).unwrap().result;
            }
        }
    }
}

/// The server was killed behind what it had done, before it answered, and its client gives up
/// while it is away.
#[test]
fn a_mutation_that_an_earlier_run_has_done_is_not_called_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let first = WithSessions::of_run(3, None, Unasked);
    let server = first.serve(&socket);
    let (client, session) = Client::hello(&socket, None);
    drop((client, server));
    let next = WithSessions::of_run(4, Some(&first), Unasked);
    let ino = InodeId::from_raw(7);
    let entry = Entry { handle: Handle::own(ino), attr: Attr::empty(ino, FileKind::Directory) };
    next.stored.lock().insert(2, entry);
    let _server = next.serve(&socket);
    let (mut client, resumed) = Client::hello(&socket, Some(session));
    assert_eq!(resumed, session);
    let is_entry = |answer| matches!(answer, Ok(Reply::Entry(found)) if found == entry);
    let interrupted = |answer: Result<Reply, Error>| answer.unwrap_err().code == Code::Interrupted;
    assert!(interrupted(client.cancel(11, 1)));
    assert!(is_entry(client.cancel(12, 2)));
    // The answer to a mutation does not change.
    next.stored.lock().clear();
    assert!(interrupted(client.cancel(11, 1)));
    assert!(is_entry(client.cancel(12, 2)));
}
