//! The messages of a move of a directory: to the guests whose rights it may change, and to no
//! other.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pelago_wire::{
    Connections, Handle, LeasedAnswer, Recalled, RenameFlags, Request, SessionId, SessionService,
};

use super::world::{Guest, World};
use crate::harness::rig::name;

/// Guests whose rights no move here changes.
const UNCONCERNED: u8 = 128;

/// Connections that answer each recall at once.
pub(super) struct Recalls {
    service: Arc<dyn SessionService>,
    pub(super) sent: Mutex<Vec<(SessionId, Recalled)>>,
}

impl Connections for Recalls {
    fn suspend(&self) {}

    fn resume(&self) {}

    fn recall(&self, session: SessionId, number: u64, recalled: &Recalled) {
        self.sent.lock().push((session, recalled.clone()));
        self.service.recalled(session, number);
    }
}

impl World {
    /// Sets connections that note the recalls.
    pub(super) fn connections(&self) -> Arc<Recalls> {
        let service = self.server.session_service();
        let recalls = Arc::new(Recalls { service: Arc::clone(&service), sent: Mutex::default() });
        let connections: Weak<dyn Connections> = Arc::<Recalls>::downgrade(&recalls);
        service.set_connections(connections);
        recalls
    }

    /// Asks for the attributes of a node, and has them leased.
    pub(super) fn lease(&self, guest: &Guest, node: Handle) {
        let service = self.server.session_service();
        let since = service.lease_moment();
        let mut result = self.ask(guest, Request::GetAttr { node }).map_err(Into::into);
        let answer = LeasedAnswer {
            node: Some(node.ino),
            names: None,
            mutation: 0,
            origin: None,
            opens_for_writing: false,
            result: &mut result,
            changed: None,
        };
        assert!(service.lease(guest.session, since, answer).node, "{result:?}");
    }
}

#[test]
fn a_move_of_a_directory_sends_nothing_to_unconcerned_guests() {
    let world = World::new();
    let recalls = world.connections();
    let [from, to, apart] = ["from", "to", "apart"].map(|name| world.make_dir(Handle::ROOT, name));
    let moved = world.make_dir(from, "moved");
    let concerned = world.guest(2, from.ino);
    world.lease(&concerned, moved);
    let others: Vec<Guest> = (0..UNCONCERNED)
        .map(|number| {
            let dir = world.make_dir(apart, &number.to_string());
            let guest = world.guest(number + 3, dir.ino);
            world.lease(&guest, dir);
            guest
        })
        .collect();
    recalls.sent.lock().clear();

    world.rename(from, to, "moved");
    let sent = std::mem::take(&mut *recalls.sent.lock());
    assert_eq!(sent, [(concerned.session, Recalled::Everything)]);
    // A move between other directories concerns no guest.
    world.rename(to, apart, "moved");
    assert_eq!(*recalls.sent.lock(), []);
    // Their leases are as before: a change of what is leased is told to its holder alone.
    for (number, guest) in others.iter().enumerate().take(2) {
        world.rename(apart, to, &number.to_string());
        let sent = std::mem::take(&mut *recalls.sent.lock());
        assert!(sent.iter().any(|(session, _)| *session == guest.session), "{sent:?}");
        assert!(sent.iter().all(|(session, _)| *session == guest.session), "{sent:?}");
    }
}

/// Each directory above one end of a move counts, however far above, and none below what moves.
#[test]
fn a_move_concerns_all_guests_from_whose_directories_something_goes() {
    let world = World::new();
    let recalls = world.connections();
    let [top, outside] = ["top", "outside"].map(|name| world.make_dir(Handle::ROOT, name));
    let middle = world.make_dir(top, "middle");
    let from = world.make_dir(middle, "from");
    let moved = world.make_dir(from, "moved");
    let below = world.make_dir(moved, "below");
    let of_all = [Handle::ROOT, moved, below].map(|dir| world.guest(2, dir.ino));
    let of_one_end = [top, middle, from].map(|dir| world.guest(3, dir.ino));
    // Each has cached something that moves.
    for guest in of_all.iter().chain(&of_one_end) {
        world.lease(guest, below);
    }
    recalls.sent.lock().clear();
    world.rename(from, outside, "moved");
    let sent = std::mem::take(&mut *recalls.sent.lock());
    assert_eq!(sent, of_one_end.map(|guest| (guest.session, Recalled::Everything)));
    // What is below is now in another directory, and its own guests see it as before.
    assert!(of_all.iter().all(|guest| world.attr(guest, below).is_ok()));
    assert!(of_one_end.iter().all(|guest| world.attr(guest, below).is_err()));
}

/// A rename that exchanges two names moves both nodes.
#[test]
fn an_exchange_moves_the_directory_that_comes_back() {
    let world = World::new();
    let recalls = world.connections();
    let [inside, outside] = ["inside", "outside"].map(|name| world.make_dir(Handle::ROOT, name));
    world.put(outside, "file", b"bytes");
    let moved = world.make_dir(inside, "dir");
    let guest = world.guest(2, inside.ino);
    world.lease(&guest, moved);
    recalls.sent.lock().clear();
    let exchange = Request::Rename {
        from_dir: outside,
        from: name("file"),
        to_dir: inside,
        to: name("dir"),
        flags: RenameFlags::Exchange,
    };
    world.call(exchange).unwrap();
    let sent = recalls.sent.lock();
    assert!(sent.contains(&(guest.session, Recalled::Everything)), "{sent:?}");
}
