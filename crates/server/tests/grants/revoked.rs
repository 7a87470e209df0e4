//! What is taken back.

use pelago_keynote::Revocation;
use pelago_wire::{Code, GuestRefusal, OpenId, Reply, Request, limits};

use super::world::{GUEST, GUEST_KEY, ROOT_KEY, World, done, key};

const OPEN: OpenId = OpenId(5);

#[test]
fn a_revoked_guest_reads_nothing_by_name_or_by_open_file() {
    let mut world = World::with_guest();
    let credential = world.credential();
    let grant = world.admit(&credential).unwrap();
    let file = world.entry(world.docs, "file").handle;
    world.open(file, OPEN).unwrap();
    let sentence = world.revocation(&credential, ROOT_KEY);
    let revoke = || Request::Revoke { sentence: sentence.clone() };
    assert_eq!(done(world.own(revoke())), Ok(()));
    assert_eq!(world.read(OPEN), Err(Code::Stale));
    assert_eq!(done(world.guest(Request::GetAttr { node: world.docs })), Err(Code::Stale));
    assert_eq!(done(world.guest(Request::StatFs)), Err(Code::Stale));
    assert_eq!(done(world.own(revoke())), Ok(()), "once more");
    let refused: Result<(), _> = Err(GuestRefusal("the credential was taken back".to_owned()));
    assert_eq!(world.admit(&credential).map(drop), refused);
    let begun = world.server.session_service().begin_guest(GUEST, &grant);
    assert_eq!(begun, refused, "one that was admitted before");
    world.restart();
    assert_eq!(world.admit(&credential).map(drop), refused, "after a restart");
    world.server.stop().unwrap();
    let format = std::fs::read(world.dir().join("format")).unwrap();
    assert_eq!(format[16] & 4, 4, "an older program does not open it");
}

#[test]
fn only_a_root_takes_back() {
    let world = World::with_guest();
    let credential = world.credential();
    let ask = |sentence: Vec<u8>| done(world.own(Request::Revoke { sentence }));
    assert_eq!(ask(world.revocation(&credential, GUEST_KEY)), Err(Code::AccessDenied));
    let good = world.revocation(&credential, ROOT_KEY);
    let mut forged = good.clone();
    let at = String::from_utf8_lossy(&good).find("At: 7").unwrap() + 4;
    forged[at] = b'8';
    assert_eq!(ask(forged), Err(Code::AccessDenied));
    assert_eq!(ask(b"nonsense".to_vec()), Err(Code::Invalid));
    assert_eq!(ask(vec![b'x'; limits::REVOCATION_BYTES + 1]), Err(Code::Invalid));
    let id = pelago_keynote::Assertion::parse(credential.as_bytes()).unwrap().id();
    let elsewhere = Revocation::sign([9; 16], id, 7, &key(ROOT_KEY).signing_key());
    assert_eq!(ask(elsewhere.into_bytes()), Err(Code::Invalid));
    // A guest has no business with it, whoever has signed the sentence.
    assert_eq!(done(world.guest(Request::Revoke { sentence: good })), Err(Code::AccessDenied));
    assert!(world.admit(&credential).is_ok(), "nothing has changed");
    let format = std::fs::read(world.dir().join("format")).unwrap();
    assert_eq!(format[16] & 4, 0, "no feature for nothing");
}

#[test]
fn one_credential_is_taken_back_and_another_one_stays() {
    let world = World::with_guest();
    let other = world.credential_of(world.secret.ino);
    let sentence = world.revocation(&other, ROOT_KEY);
    assert_eq!(done(world.own(Request::Revoke { sentence })), Ok(()));
    assert!(world.admit(&other).is_err());
    let attr = world.guest(Request::GetAttr { node: world.docs });
    assert!(matches!(attr, Ok(Reply::Attr(_))), "{attr:?}");
}
