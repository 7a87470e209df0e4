//! The messages of a move of a directory: to the guests whose rights it may change, and to no
//! other.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pelago_wire::{
    Connections, Handle, LeasedAnswer, Recalled, Request, SessionId, SessionService,
};

use super::world::{Guest, World};

/// Guests whose rights no move here changes.
const UNCONCERNED: u8 = 128;

/// Connections that answer each recall at once.
struct Recalls {
    service: Arc<dyn SessionService>,
    sent: Mutex<Vec<(SessionId, Recalled)>>,
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
    fn connections(&self) -> Arc<Recalls> {
        let service = self.server.session_service();
        let recalls = Arc::new(Recalls { service: Arc::clone(&service), sent: Mutex::default() });
        let connections: Weak<dyn Connections> = Arc::<Recalls>::downgrade(&recalls);
        service.set_connections(connections);
        recalls
    }

    /// Asks for the attributes of a node, and has them leased.
    fn lease(&self, guest: &Guest, node: Handle) {
        let service = self.server.session_service();
        let since = service.lease_moment();
        let mut result = self.ask(guest, Request::GetAttr { node }).map_err(Into::into);
        let answer = LeasedAnswer {
            node: Some(node.ino),
            names: None,
            mutation: 0,
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
