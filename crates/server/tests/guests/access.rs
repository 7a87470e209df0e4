//! The question which guests have which rights to a node, and why not more.

use std::thread;
use std::time::{Duration, Instant};

use pelago_keynote::{
    AddressRange, Assertion, Grant, Revocation, Right, SharedName, SharedObject, policy,
};
use pelago_wire::{
    AccessPage, Code, DenialCause, DeniedRight, GuestAccess, Handle, InodeId, Reply, Request,
    SessionId, SetAttr, limits,
};

use super::keys;
use super::world::{Guest, POLICY_DELAY, World, key, principal};

fn page(answer: Result<Reply, Code>) -> Result<AccessPage, Code> {
    match answer? {
        Reply::Access(page) => Ok(page),
        other => panic!("{other:?}"),
    }
}

/// Asks as the server's own mount about all guests.
fn all(world: &World, node: Handle) -> Vec<GuestAccess> {
    let request = Request::Access { node, chain: vec![], after: SessionId(0) };
    let page = page(world.call(request)).unwrap();
    assert!(!page.more);
    page.guests
}

/// Asks as the server's own mount about the holder of a chain.
fn of_chain(world: &World, node: Handle, texts: &[&str]) -> Result<GuestAccess, Code> {
    let chain = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    let mut page = page(world.call(Request::Access { node, chain, after: SessionId(7) }))?;
    assert_eq!(page.guests.len(), 1);
    Ok(page.guests.remove(0))
}

/// Asks as a guest about itself.
fn own(world: &World, guest: &Guest, node: Handle) -> Result<GuestAccess, Code> {
    let request = Request::Access { node, chain: vec![], after: SessionId(0) };
    let mut page = page(world.ask(guest, request))?;
    assert_eq!(page.guests.len(), 1, "no other guest");
    Ok(page.guests.remove(0))
}

fn rights(access: &GuestAccess) -> &str {
    str::from_utf8(&access.rights).unwrap()
}

/// Returns the denial of a right.
fn denial(access: &GuestAccess, right: Right) -> (u8, u8, DenialCause, &str) {
    let letter = right.letter().as_bytes()[0];
    let found = access.denied.iter().find(|denied| denied.right == letter);
    let DeniedRight { link, signer, cause, detail, .. } = found.unwrap();
    let number = (1..9).find(|number| principal(*number).0 == *signer).unwrap_or(0);
    (*link, number, *cause, detail)
}

/// A directory that the root (1) has shared with 2, who may share it on; one in it, and one beside.
struct Place {
    world: World,
    shared: Handle,
    below: Handle,
    file: Handle,
    secret: Handle,
}

impl Place {
    fn new() -> Self {
        let world = World::new();
        let shared = world.make_dir(Handle::ROOT, "shared");
        let below = world.make_dir(shared, "below");
        let file = world.put(below, "f", b"bytes");
        let secret = world.make_dir(Handle::ROOT, "secret");
        Self { world, shared, below, file, secret }
    }

    fn grant(&self, letters: &str) -> Grant {
        Grant { rights: letters.parse().unwrap(), ..self.world.to_read(self.shared.ino) }
    }

    fn link(&self, by: u8, to: u8, letters: &str) -> String {
        self.world.signed(by, to, &self.grant(letters))
    }
}

#[test]
fn the_owner_is_told_which_guests_have_which_rights_and_which_link_denies_the_others() {
    let place = Place::new();
    let Place { world, below, file, secret, .. } = &place;
    assert!(all(world, *below).is_empty());
    let first = place.link(1, 2, "rxwg");
    let second = place.link(2, 3, "rxd");
    let bob = world.begin(world.admit(2, &[&first]).unwrap()).unwrap();
    let carol = world.begin(world.admit(3, &[&first, &second]).unwrap()).unwrap();
    for node in [*below, *file] {
        let guests = all(world, node);
        let [of_bob, of_carol] = guests.as_slice() else { panic!("{guests:?}") };
        assert_eq!((of_bob.session, of_carol.session), (bob.session, carol.session));
        assert_eq!((of_bob.key, of_bob.links, rights(of_bob)), (principal(2).0, 1, "rwxg"));
        assert_eq!((of_carol.key, of_carol.links, rights(of_carol)), (principal(3).0, 2, "rx"));
        let id = Assertion::parse(second.as_bytes()).unwrap().id().0;
        assert_eq!(of_carol.credential, id);
        assert_eq!(denial(of_bob, Right::Create), (1, 1, DenialCause::Right, ""));
        // The first link that denies it, of those that do.
        assert_eq!(denial(of_carol, Right::Create), (1, 1, DenialCause::Right, ""));
        assert_eq!(denial(of_carol, Right::Delete), (1, 1, DenialCause::Right, ""));
        assert_eq!(denial(of_carol, Right::Write), (2, 2, DenialCause::Right, ""));
        assert_eq!(of_carol.rights.len() + of_carol.denied.len(), Right::ALL.len());
    }
    let guests = all(world, *secret);
    for guest in &guests {
        assert_eq!(rights(guest), "");
        let inode = place.shared.ino.raw().to_string();
        assert_eq!(denial(guest, Right::Read), (1, 1, DenialCause::Place, inode.as_str()));
    }
    // The question gives no right and takes none.
    assert_eq!(world.attr(&carol, *secret), Err(Code::Stale));
    assert!(world.attr(&carol, *below).is_ok());
}

#[test]
fn a_right_that_the_mode_denies_to_the_acting_user_is_denied_with_the_mode() {
    let place = Place::new();
    let Place { world, below, file, .. } = &place;
    keys::put(world, &keys::line(2, "5002"));
    let first = place.link(1, 2, "rwxcdg");
    let second = place.link(2, 3, "rwxcd");
    let mut carol = None;
    crate::harness::until("the list is read", || {
        let grant = world.admit(3, &[&first, &second]).ok();
        carol = grant.and_then(|grant| world.begin(grant).ok());
        carol.is_some()
    });
    let carol = carol.unwrap();
    let set = SetAttr { mode: Some(0o704), ..SetAttr::default() };
    world.call(Request::SetAttr { node: *file, open: None, set }).unwrap();
    let own_word = "user 5002: mode 0704, owner 10, group 20";
    for (node, granted, missing, mode) in [
        (*file, "rcd", &[Right::Write, Right::Execute][..], own_word),
        (
            *below,
            "rwx",
            &[Right::Create, Right::Delete][..],
            "user 5002: mode 0755, owner 10, group 20",
        ),
    ] {
        let guests = all(world, node);
        let of_chain = of_chain(world, node, &[&first, &second]).unwrap();
        let of_itself = own(world, &carol, node).unwrap();
        for (access, detail) in [(&guests[0], mode), (&of_chain, mode), (&of_itself, "")] {
            assert_eq!(rights(access), granted);
            for right in missing {
                assert_eq!(denial(access, *right), (0, 0, DenialCause::Modes, detail));
            }
            assert_eq!(access.rights.len() + access.denied.len(), Right::ALL.len());
        }
    }
}

/// Such a chain would open no session, and gives nothing in one.
#[test]
fn a_chain_that_leads_to_no_user_or_to_another_gives_no_right() {
    let place = Place::new();
    let Place { world, below, .. } = &place;
    let links = [(1, 2), (1, 3), (2, 4), (3, 4)].map(|(by, to)| place.link(by, to, "rwxg"));
    let both: Vec<&str> = links.iter().map(String::as_str).collect();
    let by_root = place.link(1, 4, "rwx");
    world.begin(world.admit(4, &both).unwrap()).unwrap();
    let other = world.begin(world.admit(4, &[&by_root]).unwrap()).unwrap();
    let chain = [both[0], both[2]].map(|text| text.as_bytes().to_vec()).to_vec();
    let told = world.ask(&other, Request::Attach { chain });
    assert!(matches!(told, Ok(Reply::Bytes(why)) if why.is_empty()));
    let before: Vec<String> = all(world, *below).iter().map(|one| rights(one).into()).collect();
    assert_eq!(before, ["rwxg", "rwx", "rwxg"]);
    keys::put(world, &[keys::line(2, "5002"), keys::line(3, "5003")].concat());
    crate::harness::until("the list is read", || world.admit(4, &both).is_err());
    let [of_both, of_root, of_other] = all(world, *below).try_into().unwrap();
    assert_eq!(rights(&of_root), "rwx");
    for access in [of_both, of_other, of_chain(world, *below, &both).unwrap()] {
        assert_eq!((rights(&access), access.denied.len()), ("", Right::ALL.len()));
        assert_eq!(denial(&access, Right::Read), (0, 0, DenialCause::User, ""));
    }
}

#[test]
fn a_guest_is_told_of_itself_where_it_has_a_right() {
    let place = Place::new();
    let Place { world, below, secret, .. } = &place;
    let bob = world.guest(2, place.shared.ino);
    world.guest(3, secret.ino);
    let access = own(world, &bob, *below).unwrap();
    assert_eq!((access.key, rights(&access)), (principal(2).0, "rx"));
    assert_eq!(denial(&access, Right::Write), (1, 1, DenialCause::Right, ""));
    assert_eq!(own(world, &bob, *secret), Err(Code::Stale), "as what does not exist");
    let missing = Handle::own(InodeId::new(0, 0, 77_777).unwrap());
    assert_eq!(own(world, &bob, missing), Err(Code::Stale));
    // It asks about no one else, by a chain or by the session of another.
    let text = world.credential(3, place.shared.ino).into_bytes();
    let request = Request::Access { node: *below, chain: vec![text], after: SessionId(0) };
    assert_eq!(page(world.ask(&bob, request)), Err(Code::AccessDenied));
    let request = Request::Access { node: *below, chain: vec![], after: SessionId(1) };
    assert_eq!(page(world.ask(&bob, request)).unwrap().guests, vec![access]);
}

#[test]
fn a_chain_is_explained_without_a_session() {
    let place = Place::new();
    let Place { world, shared, below, file, .. } = &place;
    let of = |texts: &[&str]| of_chain(world, *below, texts).unwrap();
    let first = place.link(1, 2, "rxg");
    let ok = of(&[&first]);
    assert_eq!((ok.session, rights(&ok), ok.key), (SessionId(0), "rxg", principal(2).0));
    // Ended, at the second link.
    let until = Some("20200102030405".to_owned());
    let ended = world.signed(2, 3, &Grant { until, ..place.grant("rx") });
    let found = of(&[&first, &ended]);
    assert_eq!(rights(&found), "");
    for right in [Right::Read, Right::Write] {
        let link = if right == Right::Read { 2 } else { 1 };
        assert_eq!(denial(&found, right).0, link);
    }
    assert_eq!(denial(&found, Right::Read), (2, 2, DenialCause::Ended, "20200102030405"));
    // Shared on without the right to.
    let no_grant = place.link(1, 2, "rx");
    let on = place.link(2, 3, "rx");
    let found = of(&[&no_grant, &on]);
    assert_eq!(denial(&found, Right::Read), (1, 1, DenialCause::Grant, ""));
    // From some addresses, and this one is unknown.
    let from: AddressRange = "192.0.2.0/24".parse().unwrap();
    let far = world.signed(1, 2, &Grant { from: Some(from), ..place.grant("rx") });
    assert_eq!(denial(&of(&[&far]), Right::Read), (1, 1, DenialCause::Address, "192.0.2.0/24"));
    // Another volume.
    let elsewhere = world.signed(1, 2, &Grant { volume: [7; 16], ..place.grant("rx") });
    let id = "07".repeat(16);
    assert_eq!(denial(&of(&[&elsewhere]), Right::Read), (1, 1, DenialCause::Volume, id.as_str()));
    // Conditions in another form.
    let odd = world.written(1, 2, "app_domain == \"pelago\" && right == \"w\";");
    let found = of(&[&odd]);
    assert_eq!(rights(&found), "w");
    let (1, 1, DenialCause::Conditions, says) = denial(&found, Right::Read) else { panic!() };
    assert!(says.contains("right == \"w\""), "{says}");
    // A signer that is no root.
    let stranger = place.link(4, 2, "rx");
    assert_eq!(denial(&of(&[&stranger]), Right::Read), (1, 4, DenialCause::NoRoot, ""));
    // One file, and the file of a name.
    let object = SharedObject::File(file.ino.raw());
    let of_file = world.signed(1, 2, &Grant { object, ..place.grant("rx") });
    assert_eq!(rights(&of_chain(world, *file, &[&of_file]).unwrap()), "rx");
    let inode = file.ino.raw().to_string();
    assert_eq!(denial(&of(&[&of_file]), Right::Read), (1, 1, DenialCause::Place, inode.as_str()));
    let named = |text: &str| {
        let name = SharedName::new(text.as_bytes()).unwrap();
        let object = SharedObject::Name { directory: below.ino.raw(), name };
        world.signed(1, 2, &Grant { object, ..place.grant("rx") })
    };
    assert_eq!(rights(&of_chain(world, *file, &[&named("f")]).unwrap()), "rx");
    let found = of_chain(world, *file, &[&named("g")]).unwrap();
    let there = format!("{}/g", below.ino.raw());
    assert_eq!(denial(&found, Right::Read), (1, 1, DenialCause::Place, there.as_str()));
    // Taken back: a credential, and a key.
    let revoke = |subject: &str| {
        let id = Assertion::parse(subject.as_bytes()).unwrap().id();
        let sentence = Revocation::sign(world.volume, id, 7, &key(1).signing_key());
        let request = Request::Revoke { sentence: sentence.into_bytes(), chain: vec![] };
        world.call(request).unwrap();
    };
    let next = place.link(2, 3, "rx");
    revoke(&first);
    assert_eq!(denial(&of(&[&first, &next]), Right::Read), (1, 1, DenialCause::Revoked, ""));
    let sentence = Revocation::sign(world.volume, principal(5), 7, &key(1).signing_key());
    world.call(Request::Revoke { sentence: sentence.into_bytes(), chain: vec![] }).unwrap();
    let of_five = world.credential(5, shared.ino);
    assert_eq!(denial(&of(&[&of_five]), Right::Read), (1, 1, DenialCause::Revoked, ""));
    // What is no chain.
    for texts in [&["garbage"][..], &[&no_grant, &no_grant], &[&no_grant[..40]]] {
        assert_eq!(of_chain(world, *below, texts), Err(Code::Invalid), "{texts:?}");
    }
}

#[test]
fn a_guest_whose_share_has_ended_and_the_policy_are_named() {
    let place = Place::new();
    let Place { world, below, .. } = &place;
    let text = world.until(place.shared.ino, 1);
    world.begin(world.admit(2, &[&text]).unwrap()).unwrap();
    // Only the clock ends the share.
    thread::sleep(Duration::from_millis(2100));
    let guests = all(world, *below);
    let (1, 1, DenialCause::Ended, end) = denial(&guests[0], Right::Read) else { panic!() };
    assert_eq!(end.len(), 14, "{end}");
    // A policy with conditions bounds what its roots can grant.
    let to_read = policy(&[principal(1)], &[]).unwrap();
    world.set_policy(&format!("{to_read}Conditions: right == \"r\";\n"));
    // The file is looked at twice a second.
    thread::sleep(POLICY_DELAY);
    let found = of_chain(world, *below, &[&place.link(1, 3, "rx")]).unwrap();
    assert_eq!(rights(&found), "r");
    assert_eq!(denial(&found, Right::Execute), (0, 0, DenialCause::Policy, ""));
}

#[test]
fn many_guests_come_page_by_page() {
    let place = Place::new();
    let Place { world, below, .. } = &place;
    let count = limits::ACCESS_GUESTS + 3;
    let sessions: Vec<SessionId> =
        (0..count).map(|_| world.guest(2, place.shared.ino).session).collect();
    let ask =
        |after| page(world.call(Request::Access { node: *below, chain: vec![], after })).unwrap();
    let first = ask(SessionId(0));
    assert_eq!((first.guests.len(), first.more), (limits::ACCESS_GUESTS, true));
    let last = first.guests.last().unwrap().session;
    let second = ask(last);
    assert_eq!((second.guests.len(), second.more), (3, false));
    let found: Vec<SessionId> =
        first.guests.iter().chain(&second.guests).map(|guest| guest.session).collect();
    assert_eq!(found, sessions);
    assert!(ask(*sessions.last().unwrap()).guests.is_empty());
}

/// Each of the chains of a guest has an entry.
#[test]
fn a_guest_of_several_chains_has_the_rights_of_each() {
    let place = Place::new();
    let Place { world, below, secret, .. } = &place;
    let bob = world.guest(2, place.shared.ino);
    let chain = vec![world.credential(2, secret.ino).into_bytes()];
    world.ask(&bob, Request::Attach { chain }).unwrap();
    for (node, expected) in [(*below, ["rx", ""]), (*secret, ["", "rx"])] {
        let found = all(world, node);
        let found: Vec<&str> = found.iter().map(rights).collect();
        assert_eq!(found, expected);
    }
}

/// A strange chain may cost much to explain: the answer has a bound in time and in bytes.
#[test]
fn a_chain_that_takes_too_long_is_explained_within_bounds() {
    let place = Place::new();
    let Place { world, below, .. } = &place;
    let long = "right != \"z\" && ".repeat(300);
    let first = world.written(1, 2, &format!("{long}right != \"w\";"));
    let second = world.written(2, 3, &format!("{long}right == \"r\";"));
    let begun = Instant::now();
    let found = of_chain(world, *below, &[&first, &second]).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(found.rights.len() + found.denied.len(), Right::ALL.len());
    let is_bounded = |denied: &DeniedRight| denied.detail.len() <= limits::TEXT_BYTES;
    assert!(found.denied.iter().all(is_bounded), "{found:?}");
    assert!(found.denied.iter().any(|denied| !denied.detail.is_empty()), "{found:?}");
}
