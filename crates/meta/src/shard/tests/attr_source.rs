//! Files that programs write without requests: on a disk that does not answer, and in listings.

use std::fmt;
use std::sync::Weak;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use pelago_store::sync::Mutex;
use pelago_wire::Attr;

use super::*;
use crate::shard::AttrSource;

/// Reports each refresh, and does not end it until the other end is gone.
#[derive(Debug)]
struct Stalled {
    refreshed: Sender<()>,
    gate: Mutex<Receiver<()>>,
}

impl AttrSource for Stalled {
    fn refresh(&self) {
        self.refreshed.send(()).unwrap();
        let _gone = self.gate.lock().recv();
    }

    fn merge(&self, attr: Attr) -> Attr {
        Attr { size: 77, volatile: true, ..attr }
    }
}

/// While the refresh of one file waits for the disk, other files can be made, listed, opened and
/// removed.
#[test]
fn a_stalled_disk_stops_only_requests_for_its_file() {
    let rig = Arc::new(Rig::new());
    let stalled = rig.file(ROOT, "stalled", 1).handle;
    let other = rig.file(ROOT, "other", 1).handle;
    rig.shard.acquire(stalled).unwrap();
    rig.shard.acquire(other).unwrap();
    let (refreshed, refreshes) = channel();
    let (go, gate) = channel();
    let source = Stalled { refreshed, gate: Mutex::new(gate) };
    rig.shard.set_attr_source(stalled.ino, Some(Arc::new(source)));
    let waits = {
        let rig = Arc::clone(&rig);
        let ask = move || rig.shard.attr(stalled).unwrap();
        thread::Builder::new().spawn(ask).unwrap()
    };
    refreshes.recv().unwrap();
    let (did, done) = channel();
    {
        let rig = Arc::clone(&rig);
        let others = move || {
            assert_eq!(rig.shard.attr(other).unwrap().size, 0);
            rig.lookup(ROOT, "other").unwrap();
            rig.shard.record_read(other, at(9), false).unwrap();
            let made = rig.file(ROOT, "made", 2).handle;
            rig.shard.acquire(made).unwrap();
            rig.shard.release(made.ino);
            rig.shard.unlink(ROOT, &name("made"), at(3)).unwrap();
            // Its name can be removed, and its row written, without a refresh.
            let removed = rig.shard.unlink(ROOT, &name("stalled"), at(4)).unwrap();
            assert_eq!((removed.attr.size, removed.attr.volatile), (77, true));
            did.send(()).unwrap();
        };
        thread::Builder::new().spawn(others).unwrap();
    }
    done.recv_timeout(Duration::from_secs(60)).expect("no other operation waits");
    drop(go);
    assert_eq!(waits.join().unwrap().size, 77);
}

/// Changes the mode of another file while it is refreshed, as another thread could.
struct ChangesAnother {
    rig: Weak<Rig>,
    other: Handle,
}

impl fmt::Debug for ChangesAnother {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChangesAnother")
    }
}

impl AttrSource for ChangesAnother {
    fn refresh(&self) {
        let rig = self.rig.upgrade().unwrap();
        let set = SetAttr { mode: Some(0o123), ..SetAttr::default() };
        rig.shard.set_attr(self.other, &set, at(5)).unwrap();
    }

    fn merge(&self, attr: Attr) -> Attr {
        attr
    }
}

/// The rows of a page are read before files are refreshed, and shown after that (I-4).
#[test]
fn a_listing_shows_what_was_answered_while_it_was_read() {
    let rig = Arc::new(Rig::new());
    let open = rig.file(ROOT, "open", 1).handle;
    let other = rig.file(ROOT, "other", 1).handle;
    rig.shard.acquire(open).unwrap();
    let source = ChangesAnother { rig: Arc::downgrade(&rig), other };
    rig.shard.set_attr_source(open.ino, Some(Arc::new(source)));
    let page = Page { dir: ROOT, after: Cookie::START, behind: None, entries: 9, attributes: true };
    let (entries, _) = rig.shard.list(page).unwrap();
    let listed = entries.iter().find(|entry| entry.name == name("other")).unwrap();
    assert_eq!(listed.entry.as_ref().unwrap().attr.mode, 0o123);
}
