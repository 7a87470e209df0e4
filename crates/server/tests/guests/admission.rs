//! The admission of guests: chains of credentials that begin a session, and the end of sessions.

use std::fs;
use std::thread;

use pelago_keynote::{Assertion, Conditions, Grant, Relation, Test, policy};
use pelago_wire::{Code, GuestRefusal, Handle};

use super::world::{POLICY_DELAY, World, conditioned, principal};
use crate::harness::until;

fn nothing() -> GuestRefusal {
    GuestRefusal(String::new())
}

/// Returns a text with one byte of it changed.
fn with_byte(text: &str, at: usize, byte: u8) -> String {
    let mut bytes = text.as_bytes().to_vec();
    bytes[at] = byte;
    String::from_utf8(bytes).unwrap()
}

/// Returns a text before its signature, and the signature.
fn divided(text: &str) -> (&str, &str) {
    text.split_at(text.find("Signature:").unwrap())
}

#[test]
fn a_credential_of_a_root_is_admitted_for_its_licensee_alone() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let text = world.credential(2, shared.ino);
    let grant = world.admit(2, &[&text]).unwrap();
    assert_eq!(grant.principal, principal(2).0);
    assert_eq!(grant.address, None);
    assert_eq!(grant.first, Assertion::parse(text.as_bytes()).unwrap().id().0);
    assert!(world.server.session_service().has_access(&grant));
    assert_eq!(world.admit(3, &[&text]), Err(nothing()), "for another key");
    assert_eq!(world.admit(1, &[&text]), Err(nothing()), "for the root itself");
    assert!(world.admit(2, &[]).is_err(), "no link");
    assert!(world.admit(2, &[""]).is_err(), "an empty one");
    let mut volume = world.volume;
    volume[15] ^= 1;
    let elsewhere = world.signed(1, 2, &Grant::to_read(volume, shared.ino.raw()));
    assert!(world.admit(2, &[&elsewhere]).is_err(), "for another volume");
}

#[test]
fn a_text_that_no_root_has_signed_is_refused_without_a_reason() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let share = world.to_read(shared.ino);
    let good = world.credential(2, shared.ino);
    let other = world.signed(3, 2, &share);
    let (good_text, good_signature) = divided(&good);
    let (other_text, other_signature) = divided(&other);
    assert_eq!(world.admit(2, &[&other]), Err(nothing()), "signed by no root");
    let resigned = format!("{good_text}{other_signature}");
    assert_eq!(world.admit(2, &[&resigned]), Err(nothing()), "signed anew by another");
    let stolen = format!("{other_text}{good_signature}");
    assert_eq!(world.admit(2, &[&stolen]), Err(nothing()), "with a signature of another text");
    let own = world.signed(2, 2, &share);
    assert_eq!(world.admit(2, &[&own]), Err(nothing()), "signed by the guest itself");
    assert!(world.admit(2, &[good_text]).is_err(), "unsigned");
    let believed = policy(&[principal(2)], &[]).unwrap();
    assert!(world.admit(2, &[&believed]).is_err(), "a policy");
    let by_policy = good.replacen(&format!("\"{}\"", principal(1)), "\"POLICY\"", 1);
    assert_ne!(by_policy, good);
    assert!(world.admit(2, &[&by_policy]).is_err(), "by POLICY");
    let wider = good.replace(&format!("/{:x}/", shared.ino.raw()), "/1/");
    assert_ne!(wider, good);
    assert_eq!(world.admit(2, &[&wider]), Err(nothing()), "for another directory");
}

#[test]
fn a_credential_with_any_other_byte_is_refused() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let good = world.credential(2, shared.ino);
    for at in 0..good.len() {
        let present = good.as_bytes()[at];
        for byte in [b' ', b'\n', b'0', b'1', present ^ 0x20] {
            if byte != present {
                let forged = with_byte(&good, at, byte);
                assert!(world.admit(2, &[&forged]).is_err(), "byte {at} is {byte}");
            }
        }
        assert!(world.admit(2, &[&good[..at]]).is_err(), "cut after {at}");
    }
    for tail in ["\n", " ", "Comment: x\n", "\0"] {
        assert!(world.admit(2, &[&format!("{good}{tail}")]).is_err(), "{tail:?} behind it");
    }
    assert!(world.admit(2, &[&good]).is_ok());
}

/// Conditions that this place does not meet grant nothing in it.
#[test]
fn conditions_that_are_not_met_grant_nothing() {
    let world = World::new();
    let volume: String = world.volume.iter().map(|byte| format!("{byte:02x}")).collect();
    let is = Test::equals;
    let below = |text: &str| Test::matches("ancestors", text);
    let rights = Test::Any(vec![is("right", "r"), is("right", "x")]);
    let good = [is("app_domain", "pelago"), is("volume", &volume), rights, below("/1/")];
    let sees = |tests: &[Test]| {
        let text = conditioned(1, 2, &Conditions::new(tests.to_vec()));
        let guest = world.admit(2, &[&text]).map(|grant| world.begin(grant).unwrap());
        guest.is_ok_and(|guest| world.attr(&guest, Handle::ROOT).is_ok())
    };
    assert!(sees(&good));
    let wrong = [
        (0, is("app_domain", "other")),
        (0, is("app", "pelago")),
        (1, is("volume", &"0".repeat(32))),
        (1, is("volume", &format!("{volume}0"))),
        (2, is("right", "q")),
        (2, Test::Not(Box::new(Test::Constant(true)))),
        (3, below("/01/")),
        (3, below("/2/")),
        (3, below("/\\+1/")),
        (3, below("//")),
        (3, below("/11111111111111111/")),
        (3, below("(")),
        (3, is("ancestors", "1")),
        (3, is("time", "2030")),
        (3, Test::compares("now", Relation::Less, "20200101000000")),
    ];
    for (at, test) in wrong {
        let mut tests = good.to_vec();
        let says = test.to_string();
        tests[at] = test;
        assert!(!sees(&tests), "{says}");
    }
}

/// A guest whose root leaves the policy has nothing, and has it again once the root is back.
#[test]
fn a_root_that_leaves_the_policy_takes_its_guests_with_it() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let file = world.put(shared, "f", b"bytes");
    let guest = world.guest(2, shared.ino);
    let open = world.open(&guest, file).unwrap();
    let text = world.credential(2, shared.ino);
    let expect = |is_root: bool, why: &str| {
        until(why, || world.attr(&guest, shared).is_ok() == is_root);
        let wanted = if is_root { Ok(b"bytes".to_vec()) } else { Err(Code::Stale) };
        assert_eq!(world.read(&guest, open), wanted, "{why}");
        assert_eq!(world.admit(2, &[&text]).is_ok(), is_root, "{why}");
        assert_eq!(world.begin(guest.grant).is_ok(), is_root, "{why}");
        let service = world.server.session_service();
        assert_eq!(service.has_access(&guest.grant), is_root, "{why}");
    };
    expect(true, "at first");
    world.set_policy(&policy(&[principal(3)], &[]).unwrap());
    expect(false, "another root");
    world.set_policy(&policy(&[principal(3), principal(1)], &[]).unwrap());
    expect(true, "two roots");
    fs::remove_file(world.file("policy")).unwrap();
    expect(false, "no policy");
    world.set_policy(&policy(&[principal(1)], &[]).unwrap());
    expect(true, "the first policy again");
}

/// A file that is no policy changes nothing while the server runs, and is none at a start.
#[test]
fn a_damaged_policy_leaves_the_last_good_one_in_force() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let guest = world.guest(2, shared.ino);
    let text = world.credential(2, shared.ino);
    let by_other = world.signed(3, 2, &world.to_read(shared.ino));
    let long = format!("{}{}", policy(&[principal(3)], &[]).unwrap(), " ".repeat(9000));
    let damaged = ["", "garbage", "Authorizer: \"POLICY\"\n", &by_other, &long];
    for damaged in damaged {
        world.set_policy(damaged);
        // The file is looked at by the clock: the damaged one must have been.
        thread::sleep(POLICY_DELAY);
        assert!(world.attr(&guest, shared).is_ok(), "{damaged}");
        assert!(world.admit(2, &[&text]).is_ok(), "{damaged}");
        assert_eq!(world.admit(2, &[&by_other]), Err(nothing()), "{damaged}");
    }
    let world = world.restarted();
    assert_eq!(world.admit(2, &[&text]), Err(nothing()), "nobody is a root after a start");
    world.set_policy(&policy(&[principal(1)], &[]).unwrap());
    assert!(world.admit(2, &[&text]).is_ok(), "at once, for one who was none");
}

/// A session of a guest is not known to the next run of the server.
#[test]
fn a_guest_is_not_known_to_the_next_run() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let old = world.guest(2, shared.ino);
    assert!(world.attr(&old, shared).is_ok());
    let world = world.restarted();
    assert_eq!(world.server.session_service().earlier_sessions(), []);
    assert_eq!(world.attr(&old, shared), Err(Code::Unavailable));
    assert!(world.attr(&world.guest(2, shared.ino), shared).is_ok());
}

/// A request under the number of a session that has ended is no guest's any more, and must not be
/// more than one.
#[test]
fn a_session_that_has_ended_may_do_nothing() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let secret = world.make_dir(Handle::ROOT, "secret");
    for _ in 0..300 {
        let guest = world.guest(2, shared.ino);
        assert!(world.attr(&guest, shared).is_ok());
        world.server.session_service().end_session(guest.session);
        let told = world.attr(&guest, secret);
        assert!(matches!(told, Err(Code::Stale | Code::Unavailable)), "{told:?}");
    }
}
