//! Guests with the right to audit (a): they are told of others and take credentials back, where
//! they have it and nowhere else.

use std::thread;

use pelago_keynote::{
    Assertion, CredentialId, Grant, Revocation, SharedName, SharedObject, policy,
};
use pelago_wire::{AccessPage, Code, DenialCause, GuestAccess, Handle, Reply, Request, SessionId};

use super::world::{Guest, POLICY_DELAY, World, key, principal};
use crate::harness::requests::lookup;

/// The number of the auditor's key.
pub(super) const AUDITOR: u8 = 8;

fn id(text: &str) -> CredentialId {
    Assertion::parse(text.as_bytes()).unwrap().id()
}

/// A shared directory with one below, and one beside.
pub(super) struct Place {
    pub(super) world: World,
    pub(super) shared: Handle,
    pub(super) below: Handle,
    pub(super) beside: Handle,
}

impl Place {
    pub(super) fn new() -> Self {
        let world = World::new();
        let shared = world.make_dir(Handle::ROOT, "shared");
        let below = world.make_dir(shared, "below");
        let beside = world.make_dir(Handle::ROOT, "beside");
        world.put(below, "f", b"bytes");
        world.put(beside, "f", b"bytes");
        Self { world, shared, below, beside }
    }

    fn grant(&self, letters: &str, dir: Handle) -> Grant {
        Grant { rights: letters.parse().unwrap(), ..self.world.to_read(dir.ino) }
    }

    pub(super) fn link(&self, by: u8, to: u8, letters: &str, dir: Handle) -> String {
        self.world.signed(by, to, &self.grant(letters, dir))
    }

    pub(super) fn begin(&self, number: u8, chain: &[&str]) -> Guest {
        self.world.begin(self.world.admit(number, chain).unwrap()).unwrap()
    }

    pub(super) fn auditor(&self, letters: &str, dir: Handle) -> Guest {
        self.begin(AUDITOR, &[&self.link(1, AUDITOR, letters, dir)])
    }

    fn page(
        &self,
        guest: &Guest,
        node: Handle,
        chain: &[&str],
        after: SessionId,
    ) -> Result<AccessPage, Code> {
        let chain = chain.iter().map(|text| text.as_bytes().to_vec()).collect();
        match self.world.ask(guest, Request::Access { node, chain, after })? {
            Reply::Access(page) => Ok(page),
            other => panic!("{other:?}"),
        }
    }

    fn told(&self, guest: &Guest, node: Handle) -> Vec<GuestAccess> {
        let page = self.page(guest, node, &[], SessionId(0)).unwrap();
        assert!(!page.more);
        page.guests
    }

    /// Takes a credential back in the session of a guest, by the key of a number.
    fn revoke(&self, guest: &Guest, by: u8, texts: &[&str], of: &str) -> Result<(), Code> {
        let signer = key(by).signing_key();
        let sentence = Revocation::sign(self.world.volume, id(of), 7, &signer).into_bytes();
        let chain = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
        self.world.ask(guest, Request::Revoke { sentence, chain }).map(drop)
    }
}

fn keys(guests: &[GuestAccess]) -> Vec<u8> {
    let number = |guest: &GuestAccess| (1..9).find(|number| principal(*number).0 == guest.key);
    guests.iter().map(|guest| number(guest).unwrap()).collect()
}

#[test]
fn an_auditor_is_told_of_the_others_who_have_a_right_there() {
    let place = Place::new();
    let Place { world, shared, below, beside } = &place;
    let auditor = place.auditor("a", *shared);
    let bob = world.guest(2, shared.ino);
    place.begin(3, &[&place.link(1, 3, "rw", *below)]);
    world.guest(4, beside.ino);
    assert_eq!(keys(&place.told(&auditor, *shared)), [AUDITOR, 2]);
    let guests = place.told(&auditor, *below);
    assert_eq!(keys(&guests), [AUDITOR, 2, 3]);
    assert_eq!(guests[0].rights, b"a");
    assert_eq!((&guests[1].rights[..], &guests[2].rights[..]), (&b"rx"[..], &b"rw"[..]));
    assert_eq!(guests[1].credential, id(&world.credential(2, shared.ino)).0);
    // In pages as the owner: those after a session.
    let after = place.page(&auditor, *below, &[], bob.session).unwrap().guests;
    assert_eq!(keys(&after), [3]);
    // Others have no such right, and it holds nowhere else.
    assert_eq!(keys(&place.told(&bob, *below)), [2]);
    let outside = place.page(&auditor, *beside, &[], SessionId(0));
    assert_eq!(outside.map(drop), Err(Code::Stale), "as what does not exist");
    world.rename(*shared, *beside, "below");
    let moved = place.page(&auditor, *below, &[], SessionId(0));
    assert_eq!(moved.map(drop), Err(Code::Stale), "moved out");
}

/// The reason why others have no more may be a test of another place, or of their machine.
#[test]
fn an_auditor_is_not_told_the_tests_of_others() {
    let place = Place::new();
    let Place { world, shared, beside, .. } = &place;
    let auditor = place.auditor("ra", *shared);
    let conditions = format!(
        "app_domain == \"pelago\" && (right == \"r\" || ancestors ~= \"/{:x}/\");",
        beside.ino.raw()
    );
    let odd = world.written(1, 3, &conditions);
    place.begin(3, &[&odd]);
    let guests = place.told(&auditor, *shared);
    assert_eq!(keys(&guests), [AUDITOR, 3]);
    assert_eq!((&guests[1].rights[..], &guests[1].denied[..]), (&b"r"[..], &[][..]));
    assert!(!guests[0].denied.is_empty(), "it is told of itself");
    // The owner is told.
    let request = Request::Access { node: *shared, chain: vec![], after: auditor.session };
    let Ok(Reply::Access(page)) = world.call(request) else { panic!("a page") };
    assert!(page.guests[0].denied.iter().any(|denied| denied.cause == DenialCause::Conditions));
    assert!(page.guests[0].denied.iter().any(|denied| !denied.detail.is_empty()));
}

/// A guest may build chains that take long, and cannot hide others by them. It is not told of those
/// without a right, so the first page ends with itself.
#[test]
fn guests_whose_chains_take_long_do_not_keep_an_auditor_from_the_others() {
    const SLOW: usize = 80;
    let place = Place::new();
    let Place { world, shared, .. } = &place;
    let auditor = place.auditor("a", *shared);
    let long = "right != \"z\" && ".repeat(450);
    let slow =
        [1, 2, 3, 4].map(|variant| world.written(1, 3, &format!("{long}right == \"y{variant}\";")));
    for _ in 0..SLOW {
        let guest = place.begin(3, &[&slow[0]]);
        for text in &slow[1..] {
            let chain = vec![text.as_bytes().to_vec()];
            let told = world.ask(&guest, Request::Attach { chain });
            assert!(matches!(told, Ok(Reply::Bytes(why)) if why.is_empty()));
        }
    }
    let bob = world.guest(2, shared.ino);
    let first = place.page(&auditor, *shared, &[], SessionId(0)).unwrap();
    assert_eq!((keys(&first.guests), first.more), (vec![AUDITOR], true));
    let second = place.page(&auditor, *shared, &[], auditor.session).unwrap();
    assert_eq!((keys(&second.guests), second.more), (vec![2], false));
    assert_eq!(second.guests[0].session, bob.session);
}

#[test]
fn an_auditor_asks_about_a_chain_and_no_other_guest_does() {
    let place = Place::new();
    let Place { world, shared, below, beside } = &place;
    let auditor = place.auditor("a", *shared);
    let bob = world.guest(2, shared.ino);
    let text = place.link(1, 3, "rw", *below);
    let page = place.page(&auditor, *below, &[&text], SessionId(0)).unwrap();
    assert_eq!((keys(&page.guests), &page.guests[0].rights[..]), (vec![3], &b"rw"[..]));
    let denied = |guest, node| place.page(guest, node, &[&text], SessionId(0)).map(drop);
    assert_eq!(denied(&bob, *below), Err(Code::AccessDenied));
    assert_eq!(denied(&auditor, *beside), Err(Code::Stale));
}

#[test]
fn an_auditor_takes_back_what_is_shared_below_and_nothing_else() {
    let place = Place::new();
    let Place { world, shared, below, beside } = &place;
    let auditor = place.auditor("a", *shared);
    let own = place.link(1, AUDITOR, "a", *shared);
    let [to_all, to_shared, to_below, to_beside] =
        [Handle::ROOT, *shared, *below, *beside].map(|dir| place.link(1, 2, "rxg", dir));
    let handed_on = place.link(2, 3, "rx", *below);
    let bobs = [&to_all, &to_shared, &to_below, &to_beside].map(|text| place.begin(2, &[text]));
    let carol = place.begin(3, &[&to_all, &handed_on]);
    let denied = Err(Code::AccessDenied);
    for other in [&to_all, &to_beside] {
        assert_eq!(place.revoke(&auditor, AUDITOR, &[other], other), denied, "more than it audits");
        assert_eq!(place.revoke(&auditor, AUDITOR, &[], other), denied, "by its id");
    }
    assert_eq!(place.revoke(&auditor, AUDITOR, &[&own], &own), denied, "its own");
    assert_eq!(place.revoke(&auditor, AUDITOR, &[&to_below], &to_all), denied, "another's text");
    assert_eq!(place.revoke(&auditor, 7, &[&to_below], &to_below), denied, "another's signature");
    let forged = to_below.replace("\"g\"", "\"d\"");
    assert_ne!(forged, to_below);
    assert_eq!(place.revoke(&auditor, AUDITOR, &[&forged], &forged), denied, "not signed");
    let unused = place.link(1, 5, "rx", *below);
    assert_eq!(place.revoke(&auditor, AUDITOR, &[], &unused), denied, "an id that is not in use");
    assert_eq!(place.revoke(&bobs[0], 2, &[&unused], &unused), denied, "without the right");
    for guest in &bobs {
        let dir = if guest.session == bobs[3].session { *beside } else { *below };
        assert!(world.attr(guest, dir).is_ok());
    }
    // What it may: by the text, of a credential that is in use by the id, of several links one.
    assert_eq!(place.revoke(&auditor, AUDITOR, &[&unused], &unused), Ok(()));
    assert!(world.admit(5, &[&unused]).is_err());
    assert_eq!(place.revoke(&auditor, AUDITOR, &[], &to_below), Ok(()));
    assert_eq!(world.attr(&bobs[2], *below), Err(Code::Stale));
    assert_eq!(place.revoke(&auditor, AUDITOR, &[], &handed_on), Ok(()));
    assert_eq!(world.attr(&carol, *below), Err(Code::Stale));
    assert_eq!(place.revoke(&auditor, AUDITOR, &[&to_shared], &to_shared), Ok(()), "all of it");
    assert_eq!(world.attr(&bobs[1], *below), Err(Code::Stale));
    assert!(world.attr(&bobs[0], *below).is_ok(), "by a share of more");
    let world = place.world.restarted();
    assert!(world.admit(2, &[&to_below]).is_err(), "after a restart");
    assert!(world.admit(2, &[&to_all]).is_ok());
}

/// Files are sought by their numbers, and names by their directories.
#[test]
fn an_auditor_takes_back_shares_of_files_and_names() {
    let place = Place::new();
    let Place { world, shared, below, beside } = &place;
    let auditor = place.auditor("a", *shared);
    let file = |dir: Handle| lookup(&world.server, dir, "f").unwrap().handle;
    let share = |object| world.signed(1, 3, &Grant { object, ..world.to_read(below.ino) });
    let named = |dir: Handle| {
        let name = SharedName::new(b"f").unwrap();
        share(SharedObject::Name { directory: dir.ino.raw(), name })
    };
    let of_file = |dir: Handle| share(SharedObject::File(file(dir).ino.raw()));
    for (dir, expected) in [(*beside, Err(Code::AccessDenied)), (*below, Ok(()))] {
        for text in [named(dir), of_file(dir)] {
            assert_eq!(place.revoke(&auditor, AUDITOR, &[&text], &text), expected);
        }
    }
}

/// Chains that have nothing to do with what an auditor takes back neither give nor take the right.
#[test]
fn only_the_chains_that_give_the_right_to_audit_decide_what_an_auditor_takes_back() {
    let place = Place::new();
    let Place { world, shared, below, beside } = &place;
    let denied = Err(Code::AccessDenied);
    let file = lookup(&world.server, *beside, "f").unwrap().handle;
    let object = SharedObject::File(file.ino.raw());
    let of_file = world.signed(1, AUDITOR, &Grant { object, ..place.grant("r", *beside) });
    let auditor = place.auditor("ra", *shared);
    let attach = |guest: &Guest, text: &str| {
        let chain = vec![text.as_bytes().to_vec()];
        let told = world.ask(guest, Request::Attach { chain });
        assert!(matches!(told, Ok(Reply::Bytes(why)) if why.is_empty()));
    };
    attach(&auditor, &of_file);
    let to_below = place.link(1, 2, "rx", *below);
    assert_eq!(place.revoke(&auditor, AUDITOR, &[&to_below], &to_below), Ok(()));
    // By conditions that hold for a directory and not for all below it.
    let test = format!("object == \"{:x}\"", shared.ino.raw());
    let conditions = format!("app_domain == \"pelago\" && right == \"a\" && {test};");
    let of_one = world.written(1, AUDITOR, &conditions);
    let narrow = place.begin(AUDITOR, &[&of_one]);
    attach(&narrow, &place.link(1, AUDITOR, "ra", *beside));
    let [to_shared, to_beside] = [*shared, *beside].map(|dir| place.link(1, 3, "rx", dir));
    assert_eq!(place.revoke(&narrow, AUDITOR, &[&to_shared], &to_shared), denied);
    assert_eq!(place.revoke(&narrow, AUDITOR, &[&to_beside], &to_beside), Ok(()));
}

/// A policy may hold for a directory and not for all below it, whatever the chains say.
#[test]
fn an_auditor_takes_nothing_back_below_what_the_policy_bounds() {
    let place = Place::new();
    let Place { world, shared, .. } = &place;
    let auditor = place.auditor("ra", *shared);
    let text = place.link(1, 2, "rx", *shared);
    let roots = policy(&[principal(1)], &[]).unwrap();
    let conditions = format!("Conditions: object == \"{:x}\";\n", shared.ino.raw());
    world.set_policy(&format!("{roots}{conditions}"));
    // The file is looked at twice a second, by the clock alone.
    thread::sleep(POLICY_DELAY);
    assert!(place.page(&auditor, *shared, &[], SessionId(0)).is_ok(), "it may audit that one");
    let denied = Err(Code::AccessDenied);
    assert_eq!(place.revoke(&auditor, AUDITOR, &[&text], &text), denied);
    world.set_policy(&roots);
    // As above.
    thread::sleep(POLICY_DELAY);
    assert_eq!(place.revoke(&auditor, AUDITOR, &[&text], &text), Ok(()));
}

/// Who has shared something with an auditor is above it.
#[test]
fn an_auditor_does_not_take_back_its_own_authorizers_share() {
    let place = Place::new();
    let Place { world, shared, .. } = &place;
    let to_bob = place.link(1, 2, "rxga", *shared);
    let to_auditor = place.link(2, AUDITOR, "a", *shared);
    let bob = place.begin(2, &[&to_bob]);
    let auditor = place.begin(AUDITOR, &[&to_bob, &to_auditor]);
    let denied = Err(Code::AccessDenied);
    assert_eq!(place.revoke(&auditor, AUDITOR, &[&to_bob], &to_bob), denied);
    assert_eq!(place.revoke(&auditor, AUDITOR, &[], &to_bob), denied);
    assert!(world.attr(&bob, *shared).is_ok());
    // It ends with what it came by.
    assert_eq!(place.revoke(&bob, 2, &[&to_auditor], &to_auditor), Ok(()));
    let other = place.link(1, 4, "rx", *shared);
    assert_eq!(place.revoke(&auditor, AUDITOR, &[&other], &other), Err(Code::Stale));
}
