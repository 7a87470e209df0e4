//! The list of named keys, which binds the guests that come by a key to a user.

use std::fs;
use std::thread;

use pelago_keynote::Rights;
use pelago_wire::{Code, GuestRefusal, Handle, InodeId};

use super::world::{Guest, POLICY_DELAY, World, key};
use crate::harness::until;

/// Returns the reason for which a guest is not admitted.
fn refused() -> Result<(), GuestRefusal> {
    Err(GuestRefusal("the server does not know as whom you would act".to_owned()))
}

/// Returns the line of the list for the key of this number.
pub(super) fn line(number: u8, user: &str) -> String {
    format!("{} key{number} user={user}\n", key(number).public())
}

/// Puts this text in the place of the list.
pub(super) fn put(world: &World, text: &str) {
    fs::write(world.file("keys.new"), text).unwrap();
    fs::rename(world.file("keys.new"), world.file("keys")).unwrap();
}

/// Begins the session of guest 4, to whom the guests 2 and 3 have shared a directory on.
fn guest(world: &World, directory: InodeId) -> Result<Guest, GuestRefusal> {
    let mut share = world.to_read(directory);
    share.rights = "rxg".parse::<Rights>().unwrap();
    let chain = [(1, 2), (1, 3), (2, 4), (3, 4)].map(|(by, to)| world.signed(by, to, &share));
    let chain: Vec<&str> = chain.iter().map(String::as_str).collect();
    world.begin(world.admit(4, &chain)?)
}

#[test]
fn a_list_that_lets_a_guest_act_as_two_users_ends_its_session() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let guest_of_two = guest(&world, shared.ino).unwrap();
    assert!(world.attr(&guest_of_two, shared).is_ok());
    put(&world, &[line(2, "5002"), line(3, "5003")].concat());
    until("it acts as two", || world.attr(&guest_of_two, shared) == Err(Code::Stale));
    assert!(!world.server.session_service().has_access(&guest_of_two.grant));
    assert!(world.begin(guest_of_two.grant).is_err());
    assert_eq!(guest(&world, shared.ino).map(drop), refused());
    assert!(world.attr(&world.guest(2, shared.ino), shared).is_ok(), "one of them alone");
    put(&world, &[line(2, "5002"), line(3, "5002")].concat());
    until("it acts as one", || guest(&world, shared.ino).is_ok());
}

/// The volume's user may do more than the user to whom a list that is wrong now bound a key.
#[test]
fn a_wrong_list_ends_no_session_and_admits_no_guest_after_a_start() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    put(&world, &line(2, "5002"));
    let present = guest(&world, shared.ino).map(drop);
    assert_eq!(present, refused(), "two users: that of key 2 and the volume's");
    let present = world.guest(2, shared.ino);
    put(&world, &line(2, "an-account-that-is-gone"));
    // The file is looked at twice a second.
    thread::sleep(POLICY_DELAY);
    assert!(world.attr(&present, shared).is_ok(), "the last good list");
    let text = world.credential(2, shared.ino);
    let world = world.restarted();
    assert_eq!(world.admit(2, &[&text]).map(drop), refused());
    put(&world, &line(2, "5002"));
    until("it is read", || world.admit(2, &[&text]).is_ok());
    fs::remove_file(world.file("keys")).unwrap();
    assert!(world.admit(2, &[&text]).is_ok(), "no list binds nobody");
}
