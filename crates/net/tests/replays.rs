//! Clients whose server comes back without mutations that it had answered.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pelago_net::Remote;
use pelago_wire::{
    Attr, Bulk, Code, Context, DataPath, Done, Entry, Error, FileKind, Handle, InodeId,
    LeaseHolder, LeasedService, Name, NewMode, OpenFlags, OpenId, Reply, Request, Service, Then,
    Touched, WriteFlags, limits,
};

use crate::harness::{PATIENCE, WithSessions, connect, until};

#[path = "harness/all.rs"]
mod harness;

const OPEN: OpenId = OpenId(1);

/// Creates a file in the first run. In the next one the file is gone, and cannot be created.
struct Forgets {
    is_next: bool,
}

impl Service for Forgets {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        _: Bulk<'_>,
        _: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        Some(match request {
            Request::Create { .. } if !self.is_next => {
                let ino = InodeId::from_raw(7);
                let attr = Attr::empty(ino, FileKind::Regular);
                let entry = Entry { handle: Handle::own(ino), attr };
                Ok(Reply::Created { entry, path: DataPath::Cached })
            }
            Request::Create { .. } => {
                assert!(context.replayed.is_some());
                Err(Code::NoSpace.into())
            }
            Request::Reopen { .. } => Err(Code::Stale.into()),
            _ => Err(Code::BadOpen.into()),
        })
    }

    fn cancel(&self, _: &Context) {}
}

fn ask(remote: &Remote, request: Request) -> Result<Reply, Error> {
    let (sender, answer) = channel();
    let now = remote.ask(&Context::direct(1, 2), request, Bulk::None, &mut || -> Done {
        let sender = sender.clone();
        Box::new(move |result| sender.send(result).unwrap())
    });
    assert!(now.is_none());
    answer.recv_timeout(PATIENCE).unwrap()
}

#[test]
fn an_open_file_that_its_replay_cannot_make_again_is_told_as_lost() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let first = WithSessions::of_run(3, None, Forgets { is_next: false });
    let server = first.serve(&socket);
    let remote = connect(&socket);
    let dir = Handle::ROOT;
    let name = Name::new(b"file").unwrap();
    let mode = NewMode::exactly(0o644);
    let create = Request::Create { dir, name, mode, flags: OpenFlags::READ_WRITE, open: OPEN };
    ask(&remote, create).unwrap();
    drop(server);
    let next = WithSessions::of_run(4, Some(&first), Forgets { is_next: true });
    let _server = next.serve(&socket);
    let read = Request::Read { open: OPEN, offset: 0, size: 1 };
    assert_eq!(ask(&remote, read).unwrap_err().code, Code::Stale);
}

/// Holds writes, or all requests, until the test has them answered; answers other requests at once.
#[derive(Default)]
struct Keeps {
    keeps_all: bool,
    kept: Mutex<Vec<Done>>,
}

impl Keeps {
    fn count(&self) -> usize {
        self.kept.lock().len()
    }

    fn answer_all(&self) {
        let written = || Reply::Written { bytes: limits::IO_BYTES as u64, size: 1 << 30 };
        std::mem::take(&mut *self.kept.lock()).into_iter().for_each(|done| done(Ok(written())));
    }
}

impl Service for Keeps {
    fn ask(
        &self,
        _: &Context,
        request: Request,
        _: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        if self.keeps_all || matches!(request, Request::Write { .. }) {
            self.kept.lock().push(later());
            return None;
        }
        Some(Ok(Reply::Done))
    }

    fn cancel(&self, _: &Context) {}
}

/// Sends a buffered write of the largest size.
fn write_behind(remote: &Remote, number: usize) {
    let offset = (number * limits::IO_BYTES) as u64;
    let request = Request::Write { open: OPEN, offset, flags: WriteFlags::NONE };
    let bulk = Bulk::Owned(vec![7; limits::IO_BYTES]);
    remote.ask_first(&Context::direct(1, 2), request, bulk, Box::new(|_, _| {}));
}

/// A client has as many buffered writes as it may when its server ends. The next run reads all of
/// them before it answers any.
#[test]
fn as_much_as_a_client_may_keep_back_is_read_before_anything_goes_on() {
    const WRITES: usize = limits::DIRTY_BYTES / limits::IO_BYTES;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let first = WithSessions::of_run(3, None, Keeps::default());
    let server = first.serve(&socket);
    let remote = connect(&socket);
    drop(server);
    (0..WRITES).for_each(|number| write_behind(&remote, number));
    let next = WithSessions::of_starting_run(4, &first, Keeps::default());
    let _server = next.serve(&socket);
    until("all are read", || next.service.count() == WRITES);
}

/// A slow disk leaves more mutations answered and not safe than a client may have under way. The
/// next run takes all of them, and the requests under way besides.
#[test]
fn replays_do_not_count_as_requests_under_way() {
    const REPLAYS: usize = limits::SESSION_REQUESTS + 100;
    const UNDER_WAY: usize = limits::SESSION_REQUESTS / 2 - 10;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let first = WithSessions::of_run(3, None, Keeps::default());
    let server = first.serve(&socket);
    let remote = connect(&socket);
    for _ in 0..REPLAYS {
        ask(&remote, Request::RemoveXattr { node: Handle::ROOT, name: b"user.x".to_vec() })
            .unwrap();
    }
    for _ in 0..UNDER_WAY {
        let write = Request::Write { open: OPEN, offset: 0, flags: WriteFlags::NONE };
        remote.ask_leased(
            &Context::direct(1, 2),
            write,
            Bulk::Owned(vec![7; 10]),
            Box::new(|_, _| {}),
        );
    }
    until("all are under way", || first.service.count() == UNDER_WAY);
    drop(server);
    let next =
        WithSessions::of_starting_run(4, &first, Keeps { keeps_all: true, ..Keeps::default() });
    let _server = next.serve(&socket);
    until("all have come", || next.service.count() == REPLAYS + UNDER_WAY);
}

/// A holder with dirty bytes whose writes are answered when the test says so.
#[derive(Default)]
struct KeepsBack(Mutex<Vec<Then>>);

impl LeaseHolder for KeepsBack {
    fn recalled(&self, _touched: Arc<[Touched]>, then: Then) {
        then();
    }

    fn lost(&self) {}

    fn flush(&self, then: Then) {
        self.0.lock().push(then);
    }
}

fn sync() -> Request {
    Request::FsyncDir { dir: Handle::ROOT, since: None }
}

/// The server of the next run, and of the one after that, gets Flushed once all buffered writes of
/// the client are answered, and then over each new connection.
#[test]
fn a_client_says_when_all_is_answered_that_it_had_kept_back() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let first = WithSessions::of_run(3, None, Keeps::default());
    let server = first.serve(&socket);
    let remote = connect(&socket);
    let holder = Arc::new(KeepsBack::default());
    let weak: Weak<KeepsBack> = Arc::downgrade(&holder);
    remote.set_holder(weak);
    ask(&remote, sync()).unwrap();
    drop(server);
    let second = WithSessions::of_run(4, Some(&first), Keeps::default());
    let server = second.serve(&socket);
    ask(&remote, sync()).unwrap();
    drop(server);
    let third = WithSessions::of_run(5, Some(&second), Keeps::default());
    let server = third.serve(&socket);
    let told = || third.flushed.lock().len();
    until("both runs are waited for", || holder.0.lock().len() == 2);
    ask(&remote, sync()).unwrap();
    let mut rounds = std::mem::take(&mut *holder.0.lock()).into_iter();
    rounds.next().unwrap()();
    ask(&remote, sync()).unwrap();
    assert_eq!((second.flushed.lock().len(), told()), (0, 0), "that of an earlier run");
    rounds.next().unwrap()();
    until("the server is told", || told() == 1);
    drop(server);
    let _server = third.serve(&socket);
    until("the server is told again", || told() == 2);
    assert!(holder.0.lock().is_empty(), "it is the same epoch");
}

/// Buffered writes go before others. Their number is bounded, too, by the limit of dirty writes:
/// until they are answered, and until they are safe.
#[test]
fn writes_that_go_first_are_bounded_until_they_are_safe() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let service = WithSessions::of_run(3, None, Keeps::default());
    let _server = service.serve(&socket);
    let remote = connect(&socket);
    let most = (limits::DIRTY_BYTES + limits::SESSION_BYTES) / limits::IO_BYTES;
    (0..4 * most).for_each(|number| write_behind(&remote, number));
    let sent = || remote.status().requests as usize;
    assert!((most / 2..=most).contains(&sent()), "{}", sent());
    until("all that were sent are answered, and none is safe", || {
        service.service.answer_all();
        remote.status().kept == sent()
    });
    assert!(sent() <= most, "{}", sent());
}
