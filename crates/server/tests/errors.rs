//! Errors that programs cannot cause through a mount. Each code has a test of its name;
//! `docs/semantics.md` lists them.

use pelago_wire::{Code, Handle, Request};

use crate::harness::rig::{Rig, by_hand};

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
