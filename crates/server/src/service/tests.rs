//! Which answers come at once.

use std::sync::mpsc::{Receiver, channel};

use pelago_wire::{Bulk, Code, Done, Error, Handle, NewMode, Reply, Request, Service, limits};

use crate::testing::{BOTH, CALLER, Rig, answer, name};

type Told = Receiver<Result<Reply, Error>>;

/// What is answered at once, and the answer that comes later where a callback was asked for.
fn ask(rig: &Rig, request: Request) -> (Option<Result<Reply, Error>>, Option<Told>) {
    let mut told = None;
    let mut later = || -> Done {
        let (tell, answers) = channel();
        assert!(told.replace(answers).is_none(), "it is asked for once");
        Box::new(move |answer| drop(tell.send(answer)))
    };
    let now = rig.router.ask(&CALLER, request, Bulk::None, &mut later);
    (now, told)
}

#[test]
fn a_callback_is_asked_for_where_the_answer_comes_later_and_only_there() {
    let rig = Rig::new();
    let (_, open) = rig.create("f", BOTH);
    let (now, told) = ask(&rig, Request::Flush { open });
    assert!(matches!(now, Some(Ok(Reply::Done))) && told.is_none());
    let missing = Request::Lookup { dir: Handle::ROOT, name: name("g") };
    let (now, told) = ask(&rig, missing);
    assert!(matches!(now, Some(Err(error)) if error.code == Code::NotFound) && told.is_none());

    let (now, told) = ask(&rig, Request::FsyncDir { dir: Handle::ROOT, since: None });
    let told = told.unwrap();
    assert!(now.is_none() && told.try_recv().is_err(), "it waits for the group commit");
    rig.commit.run().unwrap();
    assert!(matches!(answer(&told), Ok(Reply::Done)));
    let (now, told) = ask(&rig, Request::StatFs);
    assert!(now.is_none());
    assert!(matches!(answer(&told.unwrap()), Ok(Reply::Volume(_))), "a thread may wait");

    rig.router.stop();
    let (now, told) = ask(&rig, Request::Release { open });
    assert!(matches!(now, Some(Err(error)) if error.code == Code::Unavailable) && told.is_none());
}

/// However many requests wait for a thread, none is refused.
#[test]
fn requests_that_wait_are_all_carried_out() {
    const COUNT: usize = 3000;
    let rig = Rig::new();
    rig.table.set_pressure(true);
    let closed = Closed::pool(&rig);
    let make = |number: usize| Request::MakeDir {
        dir: Handle::ROOT,
        name: name(&number.to_string()),
        mode: NewMode::exactly(0o755),
    };
    let told: Vec<_> = (0..COUNT).map(|number| rig.begin(make(number), &[])).collect();
    assert!(told.iter().all(|told| told.try_recv().is_err()), "the door is closed");
    closed.open();
    for told in told {
        assert!(matches!(answer(&told), Ok(Reply::Entry(_))));
    }
}

/// The bytes of writes that wait are kept to a limit, and what is not kept is written all the same.
#[test]
fn payloads_that_wait_are_kept_to_a_limit() {
    const COUNT: usize = 64;
    let rig = Rig::new();
    let (_, open) = rig.create("f", BOTH);
    rig.table.set_pressure(true);
    let closed = Closed::pool(&rig);
    let bytes = vec![7; limits::IO_BYTES];
    let writes: Vec<_> = (0..COUNT)
        .map(|number| {
            let offset = (number * bytes.len()) as u64;
            let request = Request::Write { open, offset, kill_privileges: false };
            rig.begin(request, &bytes)
        })
        .collect();
    let answered: Vec<_> = writes.iter().map(|told| told.try_recv().is_ok()).collect();
    let waiting = answered.iter().filter(|answered| !**answered).count();
    assert!(waiting > 0 && waiting * bytes.len() <= limits::POOL_BYTES, "{waiting} wait");
    closed.open();
    for (told, answered) in writes.iter().zip(answered) {
        assert!(answered || matches!(answer(told), Ok(Reply::Written { .. })));
    }
    let size = rig.lookup("f").unwrap().attr.size;
    assert_eq!(size, (COUNT * bytes.len()) as u64);
}

/// All threads that the caller of a rig may use stand behind a door.
struct Closed(Vec<std::sync::mpsc::Sender<()>>);

impl Closed {
    fn pool(rig: &Rig) -> Self {
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
            assert!(now.is_none(), "a thread may wait");
            go
        });
        let gates: Vec<_> = gates.collect();
        begins.recv().unwrap();
        begins.recv().unwrap();
        Self(gates)
    }

    fn open(self) {
        drop(self.0);
    }
}
