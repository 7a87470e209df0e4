//! The time of a reply: at once, from a thread of the pool, or after a group commit. Also the log
//! lines of requests that failed.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use pelago_store::table;
use pelago_wire::{
    Bulk, Code, Done, Error, Handle, NewMode, Reply, Request, Service, WriteFlags, limits,
};

use crate::testing::log::Log;
use crate::testing::{BOTH, CALLER, Rig, answer, name};

mod other_sessions;

type Replies = Receiver<Result<Reply, Error>>;

/// Returns the reply that came at once, and where a later one comes if a callback was asked for.
fn ask(rig: &Rig, request: Request) -> (Option<Result<Reply, Error>>, Option<Replies>) {
    let mut replies = None;
    let mut later = || -> Done {
        let (sender, receiver) = channel();
        assert!(replies.replace(receiver).is_none(), "a callback is asked for once");
        Box::new(move |reply| drop(sender.send(reply)))
    };
    let now = rig.router.ask(&CALLER, request, Bulk::None, &mut later);
    (now, replies)
}

/// Returns the reply of a request that asks for no callback.
fn ask_now(rig: &Rig, request: Request) -> Result<Reply, Code> {
    let (now, later) = ask(rig, request);
    assert!(later.is_none(), "the reply comes at once, and needs no callback");
    now.unwrap().map_err(|error| error.code)
}

/// Returns where the reply comes of a request that asks for a callback.
fn ask_later(rig: &Rig, request: Request) -> Replies {
    let (now, later) = ask(rig, request);
    assert!(now.is_none(), "the reply comes later, not now");
    later.unwrap()
}

#[test]
fn a_reply_that_is_ready_needs_no_callback() {
    let rig = Rig::new();
    let (_, open) = rig.create("f", BOTH);
    assert!(matches!(ask_now(&rig, Request::Flush { open, owner: None }), Ok(Reply::Done)));
}

#[test]
fn an_error_that_is_ready_needs_no_callback() {
    let rig = Rig::new();
    let missing = Request::Lookup { dir: Handle::ROOT, name: name("g") };
    assert_eq!(ask_now(&rig, missing).err(), Some(Code::NotFound));
}

#[test]
fn an_fsync_of_a_directory_waits_for_the_group_commit() {
    let rig = Rig::new();
    let _created = rig.create("f", BOTH);
    let replies = ask_later(&rig, Request::FsyncDir { dir: Handle::ROOT, since: None });
    assert!(replies.try_recv().is_err());
    rig.commit.run().unwrap();
    assert!(matches!(answer(&replies), Ok(Reply::Done)));
}

#[test]
fn a_request_that_may_block_runs_on_a_thread() {
    let rig = Rig::new();
    let replies = ask_later(&rig, Request::StatFs);
    assert!(matches!(answer(&replies), Ok(Reply::Volume(_))));
}

#[test]
fn after_a_stop_requests_are_refused_at_once() {
    let rig = Rig::new();
    let (_, open) = rig.create("f", BOTH);
    rig.router.stop();
    assert_eq!(ask_now(&rig, Request::Release { open }).err(), Some(Code::Unavailable));
}

/// No request is refused because too many wait for a thread.
#[test]
fn requests_that_wait_are_all_carried_out() {
    const COUNT: usize = 3000;
    let rig = Rig::new();
    rig.table.set_pressure(true);
    let busy = BusyPool::new(&rig);
    let make = |number: usize| Request::MakeDir {
        dir: Handle::ROOT,
        name: name(&number.to_string()),
        mode: NewMode::exactly(0o755),
    };
    let replies: Vec<_> = (0..COUNT).map(|number| rig.begin(make(number), &[])).collect();
    assert!(replies.iter().all(|reply| reply.try_recv().is_err()), "every thread is busy");
    busy.release();
    for reply in replies {
        assert!(matches!(answer(&reply), Ok(Reply::Entry(_))));
    }
}

/// Payloads that wait are bounded. A write whose payload is not kept is carried out nevertheless.
#[test]
fn payloads_that_wait_are_kept_to_a_limit() {
    const COUNT: usize = 64;
    let rig = Rig::new();
    let (_, open) = rig.create("f", BOTH);
    rig.table.set_pressure(true);
    let busy = BusyPool::new(&rig);
    let bytes = vec![7; limits::IO_BYTES];
    let writes: Vec<_> = (0..COUNT)
        .map(|number| {
            let offset = (number * bytes.len()) as u64;
            let request = Request::Write { open, offset, flags: WriteFlags::NONE };
            rig.begin(request, &bytes)
        })
        .collect();
    let replied: Vec<_> = writes.iter().map(|reply| reply.try_recv().is_ok()).collect();
    let waiting = replied.iter().filter(|replied| !**replied).count();
    assert!(waiting > 0 && waiting * bytes.len() <= limits::POOL_BYTES, "{waiting} wait");
    busy.release();
    for (reply, replied) in writes.iter().zip(replied) {
        assert!(replied || matches!(answer(reply), Ok(Reply::Written { .. })));
    }
    let size = rig.lookup("f").unwrap().attr.size;
    assert_eq!(size, (COUNT * bytes.len()) as u64);
}

/// The caller of a rig occupies all threads that it may use, until this is released.
struct BusyPool(Vec<Sender<()>>);

impl BusyPool {
    fn new(rig: &Rig) -> Self {
        let (began, begins) = channel();
        let gates = (0..limits::POOL_SHARE).map(|_| {
            let (go, gate) = channel::<()>();
            let began = began.clone();
            let mut done: Option<Done> = Some(Box::new(move |_| {
                let _late = began.send(());
                let _gone = gate.recv();
            }));
            let now =
                rig.router.ask(&CALLER, Request::StatFs, Bulk::None, &mut || done.take().unwrap());
            assert!(now.is_none(), "it runs on a thread");
            go
        });
        let gates: Vec<_> = gates.collect();
        begins.recv().unwrap();
        begins.recv().unwrap();
        Self(gates)
    }

    fn release(self) {
        drop(self.0);
    }
}

#[test]
fn the_log_names_a_request_that_failed_in_the_storage() {
    let rig = Rig::new();
    rig.table.fail_at(0, io_error());
    let log = Log::of_errors();
    let make =
        Request::MakeDir { dir: Handle::ROOT, name: name("d"), mode: NewMode::exactly(0o755) };
    let result = log.during(|| ask_now(&rig, make));
    assert_eq!(result.err(), Some(Code::Io));
    let log = log.text();
    let line = log.lines().find(|line| line.contains("a request failed")).unwrap();
    for field in ["operation=\"mkdir\"", "inode=1 ", "session="] {
        assert!(line.contains(field), "{field} in {line}");
    }
}

#[test]
fn the_log_names_one_request_for_each_stop_of_the_table() {
    let rig = Rig::new();
    let log = Log::of_errors();
    let make =
        || Request::MakeDir { dir: Handle::ROOT, name: name("d"), mode: NewMode::exactly(0o755) };
    for stop in 1..=2 {
        rig.table.fail_at(0, io_error());
        for _ in 0..3 {
            let result = log.during(|| ask_now(&rig, make()));
            assert_eq!(result.err(), Some(Code::Io));
        }
        assert_eq!(log.text().matches("a request failed").count(), stop);
        assert!(rig.commit.reopen_table());
    }
}

fn io_error() -> table::Error {
    table::Error::Io { doing: "testing", source: Arc::new(std::io::Error::other("broken")) }
}

#[test]
fn the_log_does_not_name_a_request_that_was_refused() {
    let rig = Rig::new();
    let log = Log::of_errors();
    let missing = Request::Lookup { dir: Handle::ROOT, name: name("g") };
    let result = log.during(|| ask_now(&rig, missing));
    assert_eq!(result.err(), Some(Code::NotFound));
    assert_eq!(log.text(), "");
}
