//! A server that has moved: its clients connect to it there, and their sessions go on.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use pelago_net::{Remote, ServerTarget};
use pelago_wire::{Bulk, Context, Done, Error, OpenId, Reply, Request, Service};

use crate::harness::{PATIENCE, Reads, WithSessions, connect};

#[path = "harness/all.rs"]
mod harness;

/// Sends a read. Its answer may come once the server is found.
fn begin_read(client: &Remote) -> Receiver<Result<Reply, Error>> {
    let (sender, answer) = channel();
    let request = Request::Read { open: OpenId(1), offset: 0, size: 1 };
    let mut later = || -> Done {
        let sender = sender.clone();
        Box::new(move |result| sender.send(result).unwrap())
    };
    let now = client.ask(&Context::direct(0, 0), request, Bulk::None, &mut later);
    assert!(now.is_none());
    answer
}

fn read(client: &Remote) {
    let answer = begin_read(client).recv_timeout(PATIENCE).unwrap();
    assert!(matches!(answer, Ok(Reply::Data(_))), "{answer:?}");
}

fn target(socket: &Path) -> ServerTarget {
    ServerTarget::Unix(socket.to_owned())
}

#[test]
fn a_session_goes_on_where_its_server_is() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new, wrong] = ["old", "new", "wrong"].map(|name| folder.path().join(name));
    let first = WithSessions::of_run(1, None, Reads);
    let server = first.serve(&old);
    let client = connect(&old);
    read(&client);
    let session = client.status().session;
    assert!(session.is_some());
    drop(server);
    let second = WithSessions::of_run(2, Some(&first), Reads);
    let server = second.serve(&new);
    let waiting = begin_read(&client);
    client.move_to(target(&new));
    assert!(waiting.recv_timeout(PATIENCE).unwrap().is_ok());
    assert_eq!(client.status().session, session);
    // An address that is wrong does no harm: the connection stays, and is made again.
    client.move_to(target(&wrong));
    read(&client);
    assert_eq!(client.status().connections, 2);
    drop(server);
    let third = WithSessions::of_run(3, Some(&second), Reads);
    let _server = third.serve(&new);
    read(&client);
    assert_eq!(client.status().session, session);
    client.end();
}
