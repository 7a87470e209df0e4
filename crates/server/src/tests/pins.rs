//! Pins, and the content files that a kill leaves of them.

use pelago_wire::{Generation, OpenFlags, PinError, Pinned};

use crate::testing::{BOTH, Rig};

const LARGE: usize = 10_000;

#[test]
fn a_replacement_that_a_kill_left_is_removed_at_the_next_start() {
    let rig = Rig::new();
    let (entry, open) = rig.create("f", BOTH);
    rig.write(open, 0, &[1; LARGE]).unwrap();
    let ino = entry.handle.ino;
    rig.content.create(ino, Generation(2)).unwrap();
    let rig = rig.after_kill();
    assert!(!rig.content.exists(ino, Generation(2)).unwrap());
    assert_eq!(rig.bytes("f"), [1; LARGE]);
}

/// The row and the content file of a file that was emptied under a pin are those of one that was
/// not.
#[test]
fn a_file_that_was_emptied_under_a_pin_survives_a_kill() {
    let rig = Rig::new();
    let entry = rig.file("f", &[1; LARGE]);
    let pin = rig.opens.pin(entry.handle).unwrap();
    let open = rig.open(entry.handle, OpenFlags { truncate: true, ..BOTH }).unwrap();
    rig.write(open, 0, b"new").unwrap();
    assert_eq!(rig.opens.pin(entry.handle).unwrap_err(), PinError::Written);
    let mut bytes = [0; LARGE];
    assert_eq!((pin.read_at(&mut bytes, 0), bytes), (Ok(LARGE), [1; LARGE]));
    let rig = rig.after_kill();
    assert_eq!(rig.lookup("f").unwrap().attr.size, 3);
    assert_eq!(rig.bytes("f"), b"new");
}
