//! Which chains are admitted.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use pelago_keynote::{SharedFolder, policy};
use pelago_wire::GuestRefusal;

use super::world::{GUEST_KEY, ROOT_KEY, World, key, principal, sign};

/// A root who is none.
const OTHER_KEY: u8 = 3;

fn refused(text: &str) -> Result<(), GuestRefusal> {
    Err(GuestRefusal(text.to_owned()))
}

#[test]
fn a_credential_by_a_root_is_a_grant_of_its_directory() {
    let world = World::new();
    let grant = world.admit(&world.credential()).unwrap();
    assert_eq!(grant.directory, world.docs.ino);
    assert_eq!(grant.principal, *key(GUEST_KEY).public().as_bytes());
    assert!(world.server.session_service().has_access(&grant));
}

#[test]
fn a_stranger_learns_nothing() {
    let world = World::new();
    let share = SharedFolder { volume: world.volume, directory: world.docs.ino.raw() };
    let others = [
        ("by no root", sign(OTHER_KEY, GUEST_KEY, share)),
        ("for another key", sign(ROOT_KEY, OTHER_KEY, share)),
        ("a policy", policy(&[principal(GUEST_KEY)], &[]).unwrap()),
    ];
    for (what, text) in others {
        assert_eq!(world.admit(&text).map(drop), refused(""), "{what}");
    }
    let good = world.credential();
    let forged = good.replace(&format!("/{:x}/", world.docs.ino.raw()), "/1/");
    assert_ne!(forged, good);
    assert_eq!(world.admit(&forged).map(drop), refused(""), "widened");
}

#[test]
fn the_one_for_whom_it_is_hears_why_it_grants_nothing() {
    let world = World::new();
    let elsewhere = SharedFolder { volume: [9; 16], directory: world.docs.ino.raw() };
    let says = world.admit(&sign(ROOT_KEY, GUEST_KEY, elsewhere)).map(drop);
    assert_eq!(says, refused("the credential is for another volume"));
    let good = world.credential();
    let cut = &good[..good.len() / 2];
    assert!(world.admit(cut).is_err_and(|refusal| !refusal.0.is_empty()));
    let service = world.server.session_service();
    let chain = [good.clone().into_bytes(), good.into_bytes()];
    let says = service.admit_guest(key(GUEST_KEY).public().as_bytes(), &chain).unwrap_err();
    assert!(says.0.contains("delegation is not built yet"), "{says:?}");
    assert!(service.admit_guest(&[7; 32], &[]).is_err());
}

/// Waits until a condition holds.
fn soon(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(5), "not {what} in time");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_roots_are_those_of_the_file() {
    let world = World::new();
    let grant = world.admit(&world.credential()).unwrap();
    let service = world.server.session_service();
    world.write_policy("nonsense");
    thread::sleep(Duration::from_millis(700));
    assert!(service.has_access(&grant), "the last good one stays");
    world.write_policy(&policy(&[principal(OTHER_KEY)], &[]).unwrap());
    soon("without the root", || !service.has_access(&grant));
    assert_eq!(world.admit(&world.credential()).map(drop), refused(""));
    world.write_policy(&policy(&[principal(OTHER_KEY), principal(ROOT_KEY)], &[]).unwrap());
    soon("with the root", || service.has_access(&grant));
    fs::remove_file(world.dir().join("policy")).unwrap();
    soon("without a file", || !service.has_access(&grant));
}

#[test]
fn a_policy_with_conditions_is_none() {
    let world = World::new();
    let text = policy(&[principal(ROOT_KEY)], &[]).unwrap();
    world.write_policy(&format!("{text}Conditions: app_domain == \"pelago\" -> \"true\";\n"));
    assert_eq!(world.admit(&world.credential()).map(drop), refused(""));
}
