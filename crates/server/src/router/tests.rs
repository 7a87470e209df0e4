//! Which answers come at once.

use std::sync::mpsc::{Receiver, channel};

use pelago_wire::{Bulk, Code, Done, Error, Handle, Reply, Request, Service};

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

    let (now, told) = ask(&rig, Request::FsyncDir { dir: Handle::ROOT });
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
