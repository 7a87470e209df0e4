//! Recalls of all that guests have cached, if the policy changes or the users as whom they act. No
//! chain ends by these changes.

use pelago_keynote::policy;
use pelago_wire::{Handle, Recalled};

use super::keys;
use super::world::{Guest, World, principal};
use crate::harness::until;

/// Has two guests cache something, makes a change, and waits for the recalls. Returns the world,
/// the guests, and the directory that is shared with them.
fn recalled_by(change: impl FnOnce(&World, Handle)) -> (World, [Guest; 2], Handle) {
    let world = World::new();
    let recalls = world.connections();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let guests = [2, 3].map(|number| world.guest(number, shared.ino));
    guests.iter().for_each(|guest| world.lease(guest, shared));
    let service = world.server.session_service();
    service.look_at_guests();
    assert_eq!(*recalls.sent.lock(), [], "nothing has changed");
    change(&world, shared);
    // The file is looked at twice a second, and guests once.
    until("something is recalled", || {
        service.look_at_guests();
        !recalls.sent.lock().is_empty()
    });
    let sent = recalls.sent.lock().clone();
    assert_eq!(sent, guests.map(|guest| (guest.session, Recalled::Everything)));
    for guest in &guests {
        assert!(service.has_access(&guest.grant), "its chain holds");
    }
    (world, guests, shared)
}

#[test]
fn a_change_of_the_policy_recalls_everything_from_all_guests() {
    let (world, guests, shared) = recalled_by(|world, shared| {
        // A right of each guest ends, and the chains are whole.
        let roots = policy(&[principal(1)], &[]).unwrap();
        let conditions = format!("Conditions: object != \"{:x}\";\n", shared.ino.raw());
        world.set_policy(&format!("{roots}{conditions}"));
    });
    for guest in &guests {
        assert!(world.attr(guest, shared).is_err(), "the right has ended");
    }
}

#[test]
fn a_change_of_the_users_recalls_everything_from_all_guests() {
    recalled_by(|world, _| keys::put(world, &keys::line(2, "5002")));
}
