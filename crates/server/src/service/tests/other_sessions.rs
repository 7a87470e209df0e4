//! Requests of other sessions than that of the server's own mount.

use std::sync::mpsc::channel;

use pelago_store::table;
use pelago_wire::{
    Bulk, Code, Context, Done, OpenFlags, OpenId, RecordedPeer, Reply, Request, RequestId, Service,
    SessionId, SessionRecord, SessionService,
};

use crate::testing::{BOTH, Rig, answer};

const SESSION: SessionId = SessionId(7);

/// Returns the context of a request that may be repeated.
fn asks(session: SessionId, number: u64) -> Context {
    let request = RequestId(number);
    Context { session, request, mutation: number, ..Context::direct(10, 20) }
}

fn begin(rig: &Rig, session: SessionId) {
    let record = SessionRecord { nonce: [0; 16], peer: RecordedPeer::User(0) };
    rig.router.begin_session(session, record).unwrap();
}

fn call(rig: &Rig, context: &Context, request: Request) -> Result<Reply, Code> {
    let (send, reply) = channel();
    let mut later = || -> Done {
        let send = send.clone();
        Box::new(move |answer| drop(send.send(answer)))
    };
    if let Some(now) = rig.router.ask(context, request, Bulk::None, &mut later) {
        later()(now);
    }
    answer(&reply)
}

/// Its client does not release what it could not open.
#[test]
fn an_open_that_failed_leaves_nothing_open() {
    let rig = Rig::new();
    begin(&rig, SESSION);
    let node = rig.file("f", b"bytes").handle;
    rig.commit.run().unwrap();
    let flags = OpenFlags { truncate: true, ..BOTH };
    let open = Request::Open { node, flags, open: OpenId(1) };
    for failing in 0..2 {
        // First the commit of the truncation fails, then the batch with the reply.
        rig.table.fail_at(failing, table::Error::NoSpace);
        let failed = call(&rig, &asks(SESSION, 1), open.clone());
        assert_eq!(failed.err(), Some(Code::NoSpace), "write {failing}");
        assert_eq!(rig.opens.count(), 0, "write {failing}");
    }
    call(&rig, &asks(SESSION, 1), open).unwrap();
    assert_eq!(rig.opens.count(), 1);
}
