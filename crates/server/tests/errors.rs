//! Errors that no program meets through a mount: the kernel asks nothing that leads to them, or not
//! at will. Each code has a test of its name; `docs/semantics.md` lists them.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::sync::Arc;
use std::sync::mpsc;

use parking_lot::Mutex;
use pelago_wire::{Bulk, Code, Context, Handle, NewMode, Request, limits};

use harness::rig::{DEADLINE, Rig, by_hand, name};

#[path = "harness/all.rs"]
mod harness;

/// Everything that waits has its place in a queue, and who finds no place is told at once.
#[test]
fn busy() {
    let rig = Rig::new(by_hand());
    rig.table.set_pressure(true);
    let service = rig.server.service();
    let (told, tells) = mpsc::channel();
    // Nobody gets on behind this door.
    let door = Arc::new(Mutex::new(()));
    let closed = door.lock();
    let make = |number: usize| Request::MakeDir {
        dir: Handle::ROOT,
        name: name(&number.to_string()),
        mode: NewMode::exactly(0o755),
    };
    // All that the queue holds, and what a few threads have at hand.
    let count = limits::POOL_QUEUE + 64;
    for number in 0..count {
        let (told, door) = (told.clone(), Arc::clone(&door));
        let done = Box::new(move |reply: Result<_, pelago_wire::Error>| {
            let code = reply.err().map(|error| error.code);
            told.send(code).unwrap();
            if code.is_none() {
                drop(door.lock());
            }
        });
        service.call(&Context::direct(10, 20), make(number), Bulk::None, done);
    }
    drop(closed);
    let answers: Vec<_> = (0..count).map(|_| tells.recv_timeout(DEADLINE).unwrap()).collect();
    let refused = answers.iter().filter(|code| **code == Some(Code::Busy)).count();
    assert!(refused > 0 && refused <= 64, "{refused}");
    assert_eq!(answers.iter().filter(|code| code.is_none()).count(), count - refused);
    // Who asks again is served.
    rig.make_dir(Handle::ROOT, "again").unwrap();
}

/// From the moment it stops, a server answers so whatever it is asked.
#[test]
fn unavailable() {
    let rig = Rig::new(by_hand());
    let entry = rig.put(Handle::ROOT, "file", b"bytes").unwrap();
    rig.server.stop().unwrap();
    assert_eq!(rig.lookup(Handle::ROOT, "file").err(), Some(Code::Unavailable));
    assert_eq!(rig.open(entry.handle).err(), Some(Code::Unavailable));
    assert_eq!(rig.create(Handle::ROOT, "new").err(), Some(Code::Unavailable));
    assert_eq!(rig.call(Request::StatFs).err(), Some(Code::Unavailable));
}
