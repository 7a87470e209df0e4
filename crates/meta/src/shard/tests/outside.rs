//! Files whose bytes change without a request, on a medium that does not answer.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_wire::Attr;

use super::*;
use crate::shard::AttrSource;

/// Says that it was asked to look, and does not answer until the other end is gone.
#[derive(Debug)]
struct Stalled {
    asked: Sender<()>,
    gate: Mutex<Receiver<()>>,
}

impl AttrSource for Stalled {
    fn refresh(&self) {
        self.asked.send(()).unwrap();
        let _gone = self.gate.lock().recv();
    }

    fn merge(&self, attr: Attr) -> Attr {
        Attr { size: 77, volatile: true, ..attr }
    }
}

/// A medium that stalls while one file is measured stops nobody who asks for others, nor anybody
/// who makes, lists, opens or removes some.
#[test]
fn a_stalled_medium_stops_nobody_but_who_asks_for_its_file() {
    let rig = Arc::new(Rig::new());
    let stalled = rig.file(ROOT, "stalled", 1).handle;
    let other = rig.file(ROOT, "other", 1).handle;
    rig.shard.hold(stalled).unwrap();
    rig.shard.hold(other).unwrap();
    let (asked, asks) = channel();
    let (go, gate) = channel();
    let outside = Stalled { asked, gate: Mutex::new(gate) };
    rig.shard.set_outside(stalled.ino, Some(Arc::new(outside)));
    let waits = {
        let rig = Arc::clone(&rig);
        let ask = move || rig.shard.attr(stalled).unwrap();
        thread::Builder::new().spawn(ask).unwrap()
    };
    asks.recv().unwrap();
    let (did, done) = channel();
    {
        let rig = Arc::clone(&rig);
        let others = move || {
            assert_eq!(rig.shard.attr(other).unwrap().size, 0);
            rig.look(ROOT, "other").unwrap();
            rig.shard.read(other, at(9), false).unwrap();
            let made = rig.file(ROOT, "made", 2).handle;
            rig.shard.hold(made).unwrap();
            rig.shard.let_go(made.ino);
            rig.shard.unlink(ROOT, &name("made"), at(3)).unwrap();
            // Its name may go, and its row be written, without a look at its bytes.
            let removed = rig.shard.unlink(ROOT, &name("stalled"), at(4)).unwrap();
            assert_eq!((removed.attr.size, removed.attr.volatile), (77, true));
            did.send(()).unwrap();
        };
        thread::Builder::new().spawn(others).unwrap();
    }
    done.recv_timeout(Duration::from_secs(60)).expect("nobody else waits");
    drop(go);
    assert_eq!(waits.join().unwrap().size, 77);
}
