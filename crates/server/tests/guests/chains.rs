//! Chains of credentials: rights that are handed on, their ends, and what a link cannot give.

use pelago_keynote::{Conditions, Grant, Relation, Right, Rights, Test, policy};
use pelago_wire::{Code, GuestRefusal, Handle, InodeId, Request};

use super::world::{Guest, World, conditioned, principal};
use crate::harness::rig::name;

/// The rights to read and to hand on.
fn to_grant() -> Rights {
    Rights::READ.with(Right::Grant)
}

impl World {
    /// Returns a credential by one key for another: these rights to a directory.
    fn hands_on(&self, by: u8, to: u8, directory: InodeId, rights: Rights) -> String {
        self.signed(by, to, &Grant { rights, ..self.to_read(directory) })
    }

    /// Begins the session of the guest with this key.
    pub(super) fn guest_of(&self, number: u8, chain: &[&str]) -> Guest {
        self.begin(self.admit(number, chain).unwrap()).unwrap()
    }
}

#[test]
fn a_delegate_hands_on_a_part_of_what_he_has() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let part = world.make_dir(shared, "part");
    let file = world.put(part, "f", b"bytes");
    let beside = world.put(shared, "beside", b"secret");
    let to_bob = world.hands_on(1, 2, shared.ino, to_grant());
    let to_carol = world.hands_on(2, 3, part.ino, Rights::READ);
    let carol = world.guest_of(3, &[&to_bob, &to_carol]);
    let open = world.open(&carol, file).unwrap();
    assert_eq!(world.read(&carol, open).unwrap(), b"bytes");
    assert_eq!(world.attr(&carol, beside), Err(Code::Stale));
    assert_eq!(world.attr(&carol, shared), Err(Code::Stale));
    // Bob's own right is wider, and stays.
    assert!(world.attr(&world.guest_of(2, &[&to_bob]), beside).is_ok());
}

#[test]
fn the_links_after_one_without_the_right_to_grant_give_nothing() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let to_bob = world.hands_on(1, 2, shared.ino, Rights::READ);
    let to_carol = world.hands_on(2, 3, shared.ino, to_grant());
    let to_dave = world.hands_on(3, 4, shared.ino, Rights::READ);
    let carol = world.guest_of(3, &[&to_bob, &to_carol]);
    assert_eq!(world.attr(&carol, shared), Err(Code::Stale));
    let dave = world.guest_of(4, &[&to_bob, &to_carol, &to_dave]);
    assert_eq!(world.attr(&dave, shared), Err(Code::Stale));
}

#[test]
fn the_right_to_grant_counts_where_it_was_given() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let part = world.make_dir(shared, "part");
    let grants_here = world.hands_on(1, 2, part.ino, to_grant());
    let reads_there = world.hands_on(1, 2, shared.ino, Rights::READ);
    let to_carol = world.hands_on(2, 3, shared.ino, Rights::READ);
    let carol = world.guest_of(3, &[&grants_here, &reads_there, &to_carol]);
    assert!(world.attr(&carol, part).is_ok());
    assert_eq!(world.attr(&carol, shared), Err(Code::Stale), "Bob reads it, and may not grant it");
}

#[test]
fn no_link_widens_what_its_authorizer_has() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let other = world.make_dir(Handle::ROOT, "other");
    let to_bob = world.hands_on(1, 2, shared.ino, to_grant());
    let wider = world.hands_on(2, 3, InodeId::ROOT, to_grant());
    let carol = world.guest_of(3, &[&to_bob, &wider]);
    assert!(world.attr(&carol, shared).is_ok());
    assert_eq!(world.attr(&carol, other), Err(Code::Stale));
    assert_eq!(world.attr(&carol, Handle::ROOT), Err(Code::Stale));
    // A right that Bob has not: he sees the directory, and cannot list it.
    let to_see = "xg".parse().unwrap();
    let to_bob = world.hands_on(1, 2, shared.ino, to_see);
    let to_carol = world.hands_on(2, 3, shared.ino, Rights::READ);
    let carol = world.guest_of(3, &[&to_bob, &to_carol]);
    assert!(world.attr(&carol, shared).is_ok());
    assert_eq!(world.listed(&carol, shared), Err(Code::AccessDenied));
    let file = world.put(shared, "f", b"bytes");
    assert_eq!(world.open(&carol, file).map(drop), Err(Code::AccessDenied));
    assert!(world.lookup(&carol, shared, "f").is_ok());
}

#[test]
fn a_circle_of_links_supports_nothing() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let useless = world.hands_on(1, 5, shared.ino, to_grant());
    let a_to_b = world.hands_on(2, 3, shared.ino, to_grant());
    let b_to_a = world.hands_on(3, 2, shared.ino, to_grant());
    let nothing = Err(GuestRefusal(String::new()));
    assert_eq!(world.admit(2, &[&useless, &a_to_b, &b_to_a]), nothing, "it leads nowhere");
    // With a way in, the circle adds nothing to what the way gives.
    let to_read = world.hands_on(1, 2, shared.ino, Rights::READ);
    let guest = world.guest_of(2, &[&to_read, &a_to_b, &b_to_a]);
    assert!(world.attr(&guest, shared).is_ok());
    let dave = world.hands_on(2, 4, shared.ino, Rights::READ);
    let dave = world.guest_of(4, &[&to_read, &a_to_b, &b_to_a, &dave]);
    assert_eq!(world.attr(&dave, shared), Err(Code::Stale));
}

#[test]
fn a_chain_must_begin_with_a_root_and_end_with_the_guest() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let to_bob = world.hands_on(1, 2, shared.ino, to_grant());
    let to_carol = world.hands_on(2, 3, shared.ino, Rights::READ);
    let nothing = Err(GuestRefusal(String::new()));
    assert_eq!(world.admit(3, &[&to_carol, &to_bob]), nothing, "in another order");
    assert_eq!(world.admit(3, &[&to_carol]), nothing, "without its begin");
    assert_eq!(world.admit(3, &[&to_bob]), nothing, "without its end");
    assert_eq!(world.admit(2, &[&to_bob, &to_carol]), nothing, "another one's");
    let forged = to_carol.replace(&format!("/{:x}/", shared.ino.raw()), "/1/");
    assert_eq!(world.admit(3, &[&to_bob, &forged]), nothing, "a changed link");
    let many = vec![to_bob.as_str(); 17];
    assert!(world.admit(2, &many).is_err(), "too many");
}

#[test]
fn a_link_that_has_ended_is_named_to_its_guest() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let until = Some("20200101120000".to_owned());
    let ended = Grant { until, rights: to_grant(), ..world.to_read(shared.ino) };
    let to_bob = world.signed(1, 2, &ended);
    let to_carol = world.hands_on(2, 3, shared.ino, Rights::READ);
    let says = "the credential has expired: it ended on 2020-01-01 at 12:00 UTC";
    assert_eq!(world.admit(2, &[&to_bob]), Err(GuestRefusal(says.to_owned())));
    assert_eq!(world.admit(3, &[&to_bob, &to_carol]), Err(GuestRefusal(says.to_owned())));
    assert_eq!(world.admit(4, &[&to_bob]), Err(GuestRefusal(String::new())), "a stranger");
}

/// The time is asked for at each request, also of an open file, and also if the answer is cached.
#[test]
fn a_right_ends_at_its_time() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let file = world.put(shared, "f", b"bytes");
    let text = world.until(shared.ino, 2);
    let guest = world.guest_of(2, &[&text]);
    let open = world.open(&guest, file).unwrap();
    assert!(world.read(&guest, open).is_ok());
    // Only the clock ends the share.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(world.read(&guest, open), Err(Code::Stale));
    assert_eq!(world.attr(&guest, shared), Err(Code::Stale));
    assert!(!world.server.session_service().has_access(&guest.grant));
}

/// Conditions that Pelago does not write are evaluated all the same.
#[test]
fn any_conditions_of_the_language_decide() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let private = world.make_dir(shared, "private");
    let open_one = world.make_dir(shared, "open");
    let within = Test::matches("ancestors", &format!("/{:x}/", shared.ino.raw()));
    let secret = Test::matches("ancestors", &format!("/{:x}/", private.ino.raw()));
    let tests = vec![within, Test::Not(Box::new(secret)), Test::equals("right", "r")];
    let guest = world.guest_of(2, &[&conditioned(1, 2, &Conditions::new(tests))]);
    assert!(world.attr(&guest, open_one).is_ok());
    assert_eq!(world.attr(&guest, private), Err(Code::Stale));
    assert_eq!(world.lookup(&guest, shared, "private").map(drop), Err(Code::NotFound));
    // As in any directory that may be listed, the name is there; its attributes are not.
    let listed = world.listed(&guest, shared).unwrap();
    assert_eq!(listed, [("open".to_owned(), false), ("private".to_owned(), false)]);
    let guest = world.guest(2, shared.ino);
    let listed = world.listed(&guest, shared).unwrap();
    assert_eq!(listed, [("open".to_owned(), true), ("private".to_owned(), true)]);
    // By the day and the time, which are asked for each time.
    let at_any_time = Test::compares("time", Relation::AtMost, "2359");
    let on_any_day = Test::matches("weekday", "^[0-6]$");
    let tests = vec![at_any_time, on_any_day, Test::equals("right", "r")];
    let guest = world.guest_of(2, &[&conditioned(1, 2, &Conditions::new(tests))]);
    assert!(world.attr(&guest, private).is_ok());
    // By the operation: attributes are shown, and nothing is opened.
    let file = world.put(shared, "f", b"bytes");
    let looks = vec![Test::matches("op", "^(getattr|lookup)$"), Test::equals("right", "r")];
    let guest = world.guest_of(2, &[&conditioned(1, 2, &Conditions::new(looks))]);
    for _ in 0..2 {
        assert!(world.attr(&guest, file).is_ok());
        assert_eq!(world.open(&guest, file).map(drop), Err(Code::Stale));
        assert_eq!(world.listed(&guest, shared).map(drop), Err(Code::Stale));
    }
    // A listing shows no attributes that the operation denies.
    let lists = vec![Test::equals("op", "readdir"), Test::equals("right", "r")];
    let guest = world.guest_of(2, &[&conditioned(1, 2, &Conditions::new(lists))]);
    let listed = world.listed(&guest, shared).unwrap();
    assert!(listed.len() == 3 && listed.iter().all(|(_, has_attributes)| !has_attributes));
    // Nothing gets a new place by an operation for which it has fewer rights there.
    let moves = vec![Test::Not(Box::new(Test::equals("op", "setattr")))];
    let guest = world.guest_of(2, &[&conditioned(1, 2, &Conditions::new(moves))]);
    let link = Request::Link { node: file, dir: open_one, name: name("g") };
    assert_eq!(world.ask(&guest, link).map(drop), Err(Code::CrossHome));
    let never = vec![Test::compares("time", Relation::Greater, "2359")];
    let guest = world.guest_of(2, &[&conditioned(1, 2, &Conditions::new(never))]);
    assert_eq!(world.attr(&guest, private), Err(Code::Stale));
}

/// A policy with conditions bounds what its roots can grant.
#[test]
fn the_policy_of_the_volume_has_conditions_too() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let other = world.make_dir(Handle::ROOT, "other");
    let text = world.hands_on(1, 2, InodeId::ROOT, Rights::READ);
    let guest = world.guest_of(2, &[&text]);
    assert!(world.attr(&guest, other).is_ok());
    let bounded = policy(&[principal(1)], &[]).unwrap();
    let within = format!("Conditions: ancestors ~= \"/{:x}/\";\n", shared.ino.raw());
    world.set_policy(&format!("{bounded}{within}"));
    crate::harness::until("the policy is in force", || world.attr(&guest, other).is_err());
    assert!(world.attr(&guest, shared).is_ok());
}

/// The decision about a directory is not used after it has moved.
#[test]
fn a_directory_that_moves_is_decided_anew() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let part = world.make_dir(shared, "part");
    let file = world.put(part, "f", b"bytes");
    let to_bob = world.hands_on(1, 2, shared.ino, to_grant());
    let to_carol = world.hands_on(2, 3, shared.ino, Rights::READ);
    let carol = world.guest_of(3, &[&to_bob, &to_carol]);
    let open = world.open(&carol, file).unwrap();
    for _ in 0..3 {
        assert!(world.read(&carol, open).is_ok());
        world.rename(shared, Handle::ROOT, "part");
        assert_eq!(world.read(&carol, open), Err(Code::Stale));
        assert_eq!(world.attr(&carol, part), Err(Code::Stale));
        world.rename(Handle::ROOT, shared, "part");
    }
}

#[test]
fn addresses_decide_if_a_link_names_them() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let from = Some("192.0.2.0/24".parse().unwrap());
    let text = world.signed(1, 2, &Grant { from, ..world.to_read(shared.ino) });
    let sees = |address: &str| {
        let grant = world.admit_at(2, &[&text], Some(address.parse().unwrap())).unwrap();
        assert!(grant.address.is_some());
        world.attr(&world.begin(grant).unwrap(), shared).is_ok()
    };
    assert!(sees("192.0.2.0"));
    assert!(sees("192.0.2.255"));
    assert!(!sees("192.0.3.0"));
    assert!(!sees("192.0.1.255"));
    assert!(!sees("::c000:201"));
    let grant = world.admit(2, &[&text]).unwrap();
    assert_eq!(world.attr(&world.begin(grant).unwrap(), shared), Err(Code::Stale), "unknown");
    let everywhere = world.credential(2, shared.ino);
    let grant = world.admit_at(2, &[&everywhere], Some("192.0.2.1".parse().unwrap())).unwrap();
    assert_eq!(grant.address, None, "one who travels stays the same guest");
}

/// Sixteen links of shares are a chain; many large regular expressions are none.
#[test]
fn regular_expressions_of_a_chain_have_a_limit() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let links: Vec<String> =
        (1..=16).map(|by| world.hands_on(by, by + 1, shared.ino, to_grant())).collect();
    let chain: Vec<&str> = links.iter().map(String::as_str).collect();
    assert!(world.attr(&world.guest_of(17, &chain), shared).is_ok());
    let chain = |count: u8| {
        let large = Conditions::new(vec![Test::matches("ancestors", "(a{200}){10}")]);
        let links = (1..=count).map(|by| conditioned(by, by + 1, &large));
        links.collect::<Vec<String>>()
    };
    let admit = |count: u8| {
        let links = chain(count);
        let links: Vec<&str> = links.iter().map(String::as_str).collect();
        world.admit(count + 1, &links).map(drop)
    };
    assert_eq!(admit(3), Ok(()));
    assert_eq!(admit(5), Err(GuestRefusal(String::new())));
}

/// The credential of another guest opens no session, and takes no place of its licensee.
#[test]
fn links_that_do_not_lead_to_the_guest_are_refused() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let to_dave = world.hands_on(1, 4, shared.ino, to_grant());
    let to_erna = world.hands_on(1, 5, shared.ino, to_grant());
    let to_oneself = world.hands_on(6, 6, shared.ino, to_grant());
    let nothing = Err(GuestRefusal(String::new()));
    assert_eq!(world.admit(6, &[&to_dave, &to_oneself]), nothing, "a text that was seen");
    assert_eq!(world.admit(4, &[&to_erna, &to_dave]), nothing, "counted for another one");
    assert_eq!(world.admit(4, &[&to_dave, &to_dave]), nothing, "twice");
    assert!(world.admit(4, &[&to_dave]).is_ok());
}

/// A listing of a directory alone shows nothing of what is below it.
#[test]
fn a_directory_alone_is_granted_without_what_is_below() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let below = world.make_dir(shared, "below");
    let alone = Test::matches("ancestors", &format!("/{:x}/$", shared.ino.raw()));
    let guest = world.guest_of(2, &[&conditioned(1, 2, &Conditions::new(vec![alone]))]);
    assert_eq!(world.listed(&guest, shared).unwrap(), [("below".to_owned(), false)]);
    assert_eq!(world.attr(&guest, below), Err(Code::Stale));
}

/// An end in a form that Pelago does not write is kept too, also beside other comparisons of time.
#[test]
fn the_end_of_a_cached_decision_is_the_first_of_all() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let end = world.digits_in(3);
    let later = format!("{}+9000000", &end[..6]);
    let text = format!(
        "(now < \"{later}\" || true) && now < \"{end}\" && ancestors ~= \"/{:x}/\" -> \"true\";",
        shared.ino.raw()
    );
    let guest = world.guest_of(2, &[&world.written(1, 2, &text)]);
    assert!(world.attr(&guest, shared).is_ok());
    assert!(world.attr(&guest, shared).is_ok());
    // Only the clock ends the share.
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert_eq!(world.attr(&guest, shared), Err(Code::Stale));
}
