//! Revoked credentials.

use std::fs;
use std::thread;

use pelago_keynote::{Assertion, CredentialId, Grant, Revocation, Right, Rights, policy};
use pelago_store::volume::Format;
use pelago_wire::{Code, GuestRefusal, Handle, Reply, Request};

use super::world::{Guest, POLICY_DELAY, World, key, principal};

/// The bit of a volume that may have revocations.
const REVOCATIONS: u64 = 4;

fn id(text: &str) -> CredentialId {
    Assertion::parse(text.as_bytes()).unwrap().id()
}

/// Returns the sentence by which one key takes back another one.
fn of_key(world: &World, by: u8, taken: u8) -> Vec<u8> {
    let signer = key(by).signing_key();
    Revocation::sign(world.volume, principal(taken), 1_900_000_000, &signer).into_bytes()
}

fn sentence(world: &World, by: u8, credential: CredentialId) -> String {
    Revocation::sign(world.volume, credential, 1_900_000_000, &key(by).signing_key())
}

fn revoke(world: &World, sentence: &[u8]) -> Result<(), Code> {
    match world.call(Request::Revoke { sentence: sentence.to_vec(), chain: vec![] })? {
        Reply::Unreached { away, refused } if away.is_empty() && refused.is_empty() => Ok(()),
        other => panic!("{other:?}"),
    }
}

fn may_have_revocations(world: &World) -> bool {
    let format = fs::read(world.file("format")).unwrap();
    Format::decode(&format).unwrap().needed_features & REVOCATIONS != 0
}

#[test]
fn a_guest_has_nothing_once_its_credential_was_taken_back_and_never_again() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let file = world.put(shared, "f", b"bytes");
    let guest = world.guest(2, shared.ino);
    let second = world.guest(2, shared.ino);
    let other = world.guest(3, shared.ino);
    let open = world.open(&guest, file).unwrap();
    let text = world.credential(2, shared.ino);
    assert!(!may_have_revocations(&world));
    let sentence = sentence(&world, 1, id(&text));
    assert_eq!(revoke(&world, sentence.as_bytes()), Ok(()));
    assert!(may_have_revocations(&world));
    let service = world.server.session_service();
    for guest in [&guest, &second] {
        assert!(!service.has_access(&guest.grant));
        assert_eq!(world.attr(guest, shared), Err(Code::Stale));
        assert_eq!(world.open(guest, file).map(drop), Err(Code::Stale));
        assert_eq!(world.lookup(guest, shared, "f").map(drop), Err(Code::Stale));
        assert_eq!(world.ask(guest, Request::StatFs).map(drop), Err(Code::Stale));
        assert_eq!(world.ask(guest, Request::Parent { dir: shared }).map(drop), Err(Code::Stale));
    }
    assert_eq!(world.read(&guest, open), Err(Code::Stale));
    assert!(world.begin(guest.grant).is_err(), "a session that begins late");
    let taken_back = Err(GuestRefusal("the credential was taken back".to_owned()));
    assert_eq!(world.admit(2, &[&text]), taken_back);
    assert!(world.attr(&other, shared).is_ok(), "another credential");
    assert_eq!(revoke(&world, sentence.as_bytes()), Ok(()), "once more");
    let world = world.restarted();
    assert_eq!(world.admit(2, &[&text]), taken_back, "after a restart");
    assert!(may_have_revocations(&world));
    assert!(world.admit(3, &[&world.credential(3, shared.ino)]).is_ok());
    assert_eq!(revoke(&world, sentence.as_bytes()), Ok(()), "once more after a restart");
}

/// What takes nothing back changes nothing.
#[test]
fn a_sentence_that_is_none_or_is_no_roots_takes_nothing_back() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let guest = world.guest(2, shared.ino);
    let text = world.credential(2, shared.ino);
    let good = sentence(&world, 1, id(&text));
    let mut volume = world.volume;
    volume[0] ^= 1;
    let elsewhere = Revocation::sign(volume, id(&text), 1, &key(1).signing_key());
    let stranger = sentence(&world, 3, id(&text));
    let own = sentence(&world, 2, id(&text));
    let signature = stranger.find("Signature:").unwrap();
    let swapped =
        format!("{}{}", &good[..good.find("Signature:").unwrap()], &stranger[signature..]);
    let later = good.replace("At: 1900000000", "At: 1900000001");
    let long = format!("{good}{}", "x".repeat(1025 - good.len()));
    assert_eq!(long.len(), 1025);
    let share = world.to_read(pelago_wire::InodeId::ROOT);
    let credential = world.signed(1, 2, &share);
    let refused: [(&str, &[u8], Code); 12] = [
        ("another volume", elsewhere.as_bytes(), Code::Invalid),
        ("no root", stranger.as_bytes(), Code::AccessDenied),
        ("the guest", own.as_bytes(), Code::AccessDenied),
        ("another's signature", swapped.as_bytes(), Code::AccessDenied),
        ("another time", later.as_bytes(), Code::AccessDenied),
        ("1025 bytes", long.as_bytes(), Code::Invalid),
        ("garbage", b"garbage", Code::Invalid),
        ("nothing", b"", Code::Invalid),
        ("no text", &[0xff; 100], Code::Invalid),
        ("a credential", credential.as_bytes(), Code::Invalid),
        ("half of it", &good.as_bytes()[..good.len() - 9], Code::Invalid),
        ("a line more", &[good.as_bytes(), b"\n"].concat(), Code::Invalid),
    ];
    for (what, sentence, code) in refused {
        assert_eq!(revoke(&world, sentence), Err(code), "{what}");
        assert!(world.attr(&guest, shared).is_ok(), "{what}");
    }
    assert!(!may_have_revocations(&world), "nothing was written");
    let world = world.restarted();
    assert!(world.admit(2, &[&text]).is_ok());
    assert_eq!(revoke(&world, good.as_bytes()), Ok(()));
    assert!(world.admit(2, &[&text]).is_err());
}

/// The sentence of a root is valid from every session, also from that of the guest that it ends.
#[test]
fn the_sentence_of_a_root_holds_whoever_brings_it() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let text = world.credential(2, shared.ino);
    let guest = world.guest(2, shared.ino);
    let sentence = Revocation::sign(world.volume, id(&text), 7, &key(1).signing_key());
    let request = Request::Revoke { sentence: sentence.into_bytes(), chain: vec![] };
    assert_eq!(world.ask(&guest, request).map(drop), Ok(()));
    assert_eq!(world.attr(&guest, shared), Err(Code::Stale));
}

/// A credential may be signed more than once, and its text has one id.
#[test]
fn a_credential_that_nobody_has_used_can_be_taken_back() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let text = world.credential(2, shared.ino);
    revoke(&world, sentence(&world, 1, id(&text)).as_bytes()).unwrap();
    assert!(world.admit(2, &[&text]).is_err());
    // The same directory, shared with the same key by another text.
    let commented = pelago_keynote::Credential {
        comment: &["once more".to_owned()],
        licensee: principal(2),
        conditions: &world.to_read(shared.ino).conditions(),
    };
    let again = commented.sign(&key(1).signing_key()).unwrap();
    assert!(world.admit(2, &[&again]).is_ok(), "it is another credential");
}

/// A delegate takes back what he has handed on, and with it all that was handed on after that.
#[test]
fn a_guest_takes_back_what_it_has_signed_and_nothing_else() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let rights = Rights::READ.with(Right::Grant);
    let link =
        |by: u8, to: u8| world.signed(by, to, &Grant { rights, ..world.to_read(shared.ino) });
    let to_bob = link(1, 2);
    let to_carol = link(2, 3);
    let to_dave = link(3, 4);
    let begin = |number: u8, chain: &[&str]| world.begin(world.admit(number, chain).unwrap());
    let bob = begin(2, &[&to_bob]).unwrap();
    let carol = begin(3, &[&to_bob, &to_carol]).unwrap();
    let dave = begin(4, &[&to_bob, &to_carol, &to_dave]).unwrap();
    let revoke = |guest: &Guest, by: u8, texts: &[&str], of: &str| {
        let sentence = Revocation::sign(world.volume, id(of), 7, &key(by).signing_key());
        let chain = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
        world.ask(guest, Request::Revoke { sentence: sentence.into_bytes(), chain }).map(drop)
    };
    let denied = Err(Code::AccessDenied);
    assert_eq!(revoke(&carol, 3, &[&to_carol], &to_carol), denied, "of one above");
    assert_eq!(revoke(&carol, 3, &[], &to_bob), denied, "of the root");
    assert_eq!(revoke(&bob, 2, &[], &to_carol), denied, "without a proof");
    assert_eq!(revoke(&bob, 2, &[&to_dave], &to_dave), denied, "a proof that begins too late");
    assert_eq!(revoke(&bob, 2, &[&to_carol], &to_dave), denied, "of another one");
    assert_eq!(revoke(&bob, 3, &[&to_dave], &to_dave), denied, "by another key");
    let forged = to_carol.replace("\"r\"", "\"a\"");
    assert_eq!(revoke(&bob, 2, &[&forged], &forged), denied, "of what it has not signed");
    assert!(world.attr(&dave, shared).is_ok());
    // Each key may license any other one, so licences prove no place above.
    let to_above = link(3, 1);
    assert_eq!(revoke(&carol, 3, &[&to_above, &to_bob], &to_bob), denied, "of the root");
    let to_beside = link(3, 2);
    assert_eq!(revoke(&carol, 3, &[&to_beside, &to_carol], &to_carol), denied, "of one above");
    assert!(world.attr(&bob, shared).is_ok() && world.attr(&carol, shared).is_ok());
    assert_eq!(revoke(&bob, 2, &[&to_carol, &to_dave], &to_dave), denied, "of another's");
    assert_eq!(revoke(&carol, 3, &[&to_dave], &to_dave), Ok(()));
    assert_eq!(world.attr(&dave, shared), Err(Code::Stale));
    assert!(world.attr(&carol, shared).is_ok());
    assert_eq!(revoke(&bob, 2, &[&to_carol], &to_carol), Ok(()));
    assert_eq!(world.attr(&carol, shared), Err(Code::Stale));
    assert!(world.attr(&bob, shared).is_ok());
    let world = world.restarted();
    let says = GuestRefusal("the credential was taken back".to_owned());
    assert_eq!(world.admit(3, &[&to_bob, &to_carol]), Err(says));
    assert!(world.admit(2, &[&to_bob]).is_ok());
}

/// One guest cannot fill the room of all.
#[test]
fn a_guest_takes_back_a_number_of_credentials_only() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let guest = world.guest(2, shared.ino);
    let revoke = |number: u8, wide: u64| {
        let share = Grant::to_read(world.volume, wide);
        let text = world.signed(2, number, &share);
        let sentence = Revocation::sign(world.volume, id(&text), 7, &key(2).signing_key());
        let chain = vec![text.into_bytes()];
        world.ask(&guest, Request::Revoke { sentence: sentence.into_bytes(), chain }).map(drop)
    };
    for wide in 0..256 {
        assert_eq!(revoke(3, wide), Ok(()), "{wide}");
    }
    assert_eq!(revoke(3, 256), Err(Code::NoSpace));
    assert_eq!(revoke(3, 7), Ok(()), "once more");
    let world = world.restarted();
    let guest = world.guest(2, shared.ino);
    let text = world.signed(2, 3, &Grant::to_read(world.volume, 257));
    let sentence = Revocation::sign(world.volume, id(&text), 7, &key(2).signing_key());
    let request =
        Request::Revoke { sentence: sentence.into_bytes(), chain: vec![text.into_bytes()] };
    assert_eq!(world.ask(&guest, request).map(drop), Err(Code::NoSpace), "after a restart");
}

/// A key is taken back with all that it has, and all that it has shared on.
#[test]
fn a_key_that_a_root_takes_back_is_no_guest_and_signs_nothing() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let other = world.make_dir(Handle::ROOT, "other");
    let rights = Rights::READ.with(Right::Grant);
    let link =
        |by: u8, to: u8| world.signed(by, to, &Grant { rights, ..world.to_read(shared.ino) });
    let to_bob = link(1, 2);
    let to_carol = link(2, 3);
    let begin = |number: u8, chain: &[&str]| world.begin(world.admit(number, chain).unwrap());
    let bob = begin(2, &[&to_bob]).unwrap();
    let bob_there = world.guest(2, other.ino);
    let carol = begin(3, &[&to_bob, &to_carol]).unwrap();
    let carol_by_root = world.guest(3, shared.ino);
    assert_eq!(revoke(&world, &of_key(&world, 1, 2)), Ok(()));
    assert!(may_have_revocations(&world));
    for guest in [&bob, &bob_there, &carol] {
        assert_eq!(world.attr(guest, shared), Err(Code::Stale));
        assert_eq!(world.attr(guest, other), Err(Code::Stale));
        assert!(!world.server.session_service().has_access(&guest.grant));
        assert!(world.begin(guest.grant).is_err());
    }
    assert!(world.attr(&carol_by_root, shared).is_ok(), "what she has without him");
    let says = GuestRefusal("the credential was taken back".to_owned());
    let world = world.restarted();
    assert_eq!(world.admit(2, &[&world.credential(2, other.ino)]), Err(says.clone()), "a new one");
    assert_eq!(world.admit(3, &[&to_bob, &to_carol]), Err(says));
    assert!(world.admit(3, &[&world.credential(3, shared.ino)]).is_ok());
    assert_eq!(revoke(&world, &of_key(&world, 1, 2)), Ok(()), "once more");
}

#[test]
fn a_guest_takes_no_key_back_and_a_root_is_none_that_can_be_taken_back() {
    let world = World::new();
    world.set_policy(&policy(&[principal(1), principal(5)], &[]).unwrap());
    thread::sleep(POLICY_DELAY);
    let shared = world.make_dir(Handle::ROOT, "shared");
    let guest = world.guest(2, shared.ino);
    let by_guest = |sentence: Vec<u8>, texts: &[&str]| {
        let chain = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
        world.ask(&guest, Request::Revoke { sentence, chain }).map(drop)
    };
    let to_carol = world.signed(2, 3, &world.to_read(shared.ino));
    assert_eq!(by_guest(of_key(&world, 2, 3), &[]), Err(Code::AccessDenied));
    assert_eq!(by_guest(of_key(&world, 2, 3), &[&to_carol]), Err(Code::AccessDenied));
    assert_eq!(by_guest(of_key(&world, 2, 2), &[&to_carol]), Err(Code::AccessDenied));
    assert_eq!(revoke(&world, &of_key(&world, 1, 5)), Err(Code::Invalid), "a root");
    assert_eq!(revoke(&world, &of_key(&world, 5, 5)), Err(Code::Invalid), "itself");
    assert!(!may_have_revocations(&world), "nothing was written");
    // One that is a root no more, and then one again.
    world.set_policy(&policy(&[principal(1)], &[]).unwrap());
    thread::sleep(POLICY_DELAY);
    assert_eq!(revoke(&world, &of_key(&world, 1, 5)), Ok(()));
    world.set_policy(&policy(&[principal(1), principal(5)], &[]).unwrap());
    thread::sleep(POLICY_DELAY);
    let by_five = world.signed(5, 4, &world.to_read(shared.ino));
    assert!(world.admit(4, &[&by_five]).is_err());
    assert_eq!(revoke(&world, &of_key(&world, 5, 2)), Err(Code::AccessDenied));
    assert!(world.attr(&guest, shared).is_ok());
}
