//! The answers to cancels.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::os::unix::net::UnixStream;
use std::path::Path;

use pelago_wire::codec::decode_answer;
use pelago_wire::frame::FrameKind;
use pelago_wire::handshake::Hello;
use pelago_wire::{
    Attr, Bulk, Code, Context, Done, Entry, Error, FileKind, Handle, InodeId, Reply, Request,
    Service, SessionId,
};

use crate::harness::WithSessions;
use crate::raw::RawClient;

#[path = "harness/all.rs"]
mod harness;
#[path = "harness/raw.rs"]
mod raw;

/// A service that must get no request.
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

type UnixClient = RawClient<UnixStream>;

/// Begins a session, or resumes one. Returns its id.
fn greet(socket: &Path, resume: Option<SessionId>) -> (UnixClient, SessionId) {
    let mut client = RawClient::connect(socket);
    let hello = Hello { resume, ..Hello::new([9; 16]) };
    client.send(FrameKind::Hello, 0, &hello.encode());
    let welcome = client.receive_welcome();
    (client, welcome.session)
}

/// Cancels a mutation, and returns the answer.
fn cancel(client: &mut UnixClient, number: u64, mutation: u64) -> Result<Reply, Error> {
    client.send(FrameKind::Cancel, number, &mutation.to_le_bytes());
    loop {
        let (header, body) = client.receive().unwrap();
        if header.kind == FrameKind::Reply {
            assert_eq!(header.number, number);
            return decode_answer(&body, Vec::new()).unwrap().result;
        }
    }
}

/// The server was killed after it had carried out a mutation, before it answered, and the client
/// cancels the mutation while the server is away.
#[test]
fn a_mutation_that_an_earlier_run_has_done_is_not_called_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let first = WithSessions::of_run(3, None, Unasked);
    let server = first.serve(&socket);
    let (client, session) = greet(&socket, None);
    drop((client, server));
    let next = WithSessions::of_run(4, Some(&first), Unasked);
    let ino = InodeId::from_raw(7);
    let entry = Entry { handle: Handle::own(ino), attr: Attr::empty(ino, FileKind::Directory) };
    next.stored.lock().insert(2, entry);
    let _server = next.serve(&socket);
    let (mut client, resumed) = greet(&socket, Some(session));
    assert_eq!(resumed, session);
    let is_entry = |answer| matches!(answer, Ok(Reply::Entry(found)) if found == entry);
    let interrupted = |answer: Result<Reply, Error>| answer.unwrap_err().code == Code::Interrupted;
    assert!(interrupted(cancel(&mut client, 11, 1)));
    assert!(is_entry(cancel(&mut client, 12, 2)));
    // The answer to a mutation does not change.
    next.stored.lock().clear();
    assert!(interrupted(cancel(&mut client, 11, 1)));
    assert!(is_entry(cancel(&mut client, 12, 2)));
}
