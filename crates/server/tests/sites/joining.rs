//! Joining: the servers that become a site of a volume, and those that are refused.

use std::sync::Barrier;
use std::thread;

use pelago_server::InviteError;
use pelago_wire::{Code, Handle, InodeId, Name, Request, SessionId, SitePeer};

use super::world::{
    BERLIN, FAR, Offices, TICKET, ask, begin, client, founded, invited, public, refusal, sentence,
};

#[test]
fn only_the_bearer_of_an_invitation_joins() {
    let folder = tempfile::tempdir().unwrap();
    let first = founded(&folder);
    let service = first.session_service();
    let volume = service.served().volume;
    assert_eq!(first.invite_site("berlin", public(TICKET), FAR), Ok(1));
    let admit =
        |key: u8, text: Option<&[u8]>| service.admit_site(&public(key), text.map(invited).as_ref());
    // A stranger learns nothing.
    let other_ticket = sentence(9, volume, 1, BERLIN);
    let other_number = sentence(TICKET, volume, 7, BERLIN);
    let mut changed = sentence(TICKET, volume, 1, BERLIN);
    let at = changed.len() - 20;
    changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
    for text in [None, Some(&b"garbage"[..]), Some(&other_ticket), Some(&changed)] {
        assert_eq!(refusal(admit(BERLIN, text)), "");
    }
    assert_eq!(refusal(admit(BERLIN, Some(&other_number))), "");
    // The sentence names a key: it is of no use to another one.
    let good = sentence(TICKET, volume, 1, BERLIN);
    assert_eq!(refusal(admit(9, Some(&good))), "");
    let other_volume = sentence(TICKET, [9; 16], 1, BERLIN);
    let says = refusal(admit(BERLIN, Some(&other_volume)));
    assert_eq!(says, "the invitation is for another volume");
    // It is repeated by the same one, also without the sentence, and used by no other one.
    let peer = SitePeer { key: public(BERLIN), site: 1 };
    for text in [Some(&good[..]), Some(&good), None] {
        assert_eq!(admit(BERLIN, text), Ok(peer));
    }
    let second = sentence(TICKET, volume, 1, 9);
    assert_eq!(refusal(admit(9, Some(&second))), "the invitation was used already");
    assert_eq!(refusal(admit(TICKET, None)), "");
}

#[test]
fn an_invitation_expires() {
    let folder = tempfile::tempdir().unwrap();
    let first = founded(&folder);
    let service = first.session_service();
    first.invite_site("berlin", public(TICKET), 1_700_000_000).unwrap();
    let late = sentence(TICKET, service.served().volume, 1, BERLIN);
    let admitted = service.admit_site(&public(BERLIN), Some(&invited(&late)));
    assert_eq!(refusal(admitted), "the invitation has expired");
    // Its number is not given again.
    assert_eq!(first.invite_site("berlin", public(8), FAR), Ok(2));
}

#[test]
fn of_two_with_one_ticket_one_joins() {
    let folder = tempfile::tempdir().unwrap();
    let first = founded(&folder);
    let service = first.session_service();
    let volume = service.served().volume;
    first.invite_site("berlin", public(TICKET), FAR).unwrap();
    first.invite_site("rome", public(8), FAR).unwrap();
    // The same ticket twice, and a second ticket.
    let comers = [(BERLIN, TICKET, 1), (9, TICKET, 1), (10, 8, 2)];
    let barrier = Barrier::new(comers.len());
    let joined = thread::scope(|scope| {
        let threads = comers.map(|(server, ticket, site)| {
            let barrier = &barrier;
            let service = &service;
            scope.spawn(move || {
                let text = sentence(ticket, volume, site, server);
                barrier.wait();
                service.admit_site(&public(server), Some(&invited(&text))).is_ok()
            })
        });
        threads.map(|thread| thread.join().unwrap()).into_iter().filter(|joined| *joined).count()
    });
    // One by each ticket.
    assert_eq!(joined, 2);
}

#[test]
fn a_restart_forgets_no_site() {
    let folder = tempfile::tempdir().unwrap();
    let first = founded(&folder);
    let volume = first.session_service().served().volume;
    first.invite_site("berlin", public(TICKET), FAR).unwrap();
    let text = sentence(TICKET, volume, 1, BERLIN);
    let service = first.session_service();
    service.admit_site(&public(BERLIN), Some(&invited(&text))).unwrap();
    drop(service);
    // As a crash: not stopped.
    drop(first);
    let again = founded(&folder);
    let peer = SitePeer { key: public(BERLIN), site: 1 };
    assert_eq!(again.session_service().admit_site(&public(BERLIN), None), Ok(peer));
    let twin = again.invite_site("berlin", public(8), FAR);
    assert_eq!(twin, Err(InviteError::NameTaken(1)));
    assert_eq!(again.invite_site("rome", public(8), FAR), Ok(2));
    assert_eq!(again.sites().len(), 2);
}

#[test]
fn who_invites_and_how_a_site_is_named() {
    let offices = Offices::new();
    assert_eq!(offices.berlin.site(), 1);
    let by_berlin = offices.berlin.invite_site("rome", public(8), FAR);
    assert_eq!(by_berlin, Err(InviteError::NotFounder(1)));
    let folder = tempfile::tempdir().unwrap();
    let first = founded(&folder);
    for wrong in ["", "a b", "a/b", "ü", &"x".repeat(64)] {
        assert_eq!(first.invite_site(wrong, public(8), FAR), Err(InviteError::Name), "{wrong}");
    }
}

#[test]
fn what_only_a_site_may_ask_is_refused_to_others() {
    let offices = Offices::new();
    let name = Name::new(b"x").unwrap();
    let made = InodeId::new(1, 0, 99).unwrap();
    let dir = Handle::ROOT;
    let session = client(&offices.first);
    for session in [session, SessionId::DIRECT] {
        for request in [
            Request::Step { dir, to: None },
            Request::AddDir { dir, name: name.clone(), made },
            Request::DropDir { dir, name: name.clone(), removed: made },
            Request::RemoveNamedDir { dir, parent: made, name: name.clone() },
            Request::SiteAddress { address: b"h:1".to_vec() },
            Request::SiteList { text: Vec::new() },
            Request::LeaveSite,
        ] {
            let asked = ask(&offices.first, session, request.clone());
            assert_eq!(asked.err(), Some(Code::AccessDenied), "{request:?}");
        }
    }
    // In a volume of one site too.
    let folder = tempfile::tempdir().unwrap();
    let alone = founded(&folder);
    for request in [
        Request::AddDir { dir, name: name.clone(), made },
        Request::DropDir { dir, name: name.clone(), removed: made },
        Request::RemoveNamedDir { dir, parent: made, name },
    ] {
        assert_eq!(ask(&alone, SessionId::DIRECT, request).err(), Some(Code::AccessDenied));
    }
    let step = Request::Step { dir, to: None };
    assert_eq!(ask(&alone, SessionId::DIRECT, step).err(), Some(Code::AccessDenied));
}

#[test]
fn a_site_names_its_own_directories_only() {
    let offices = Offices::new();
    let peer = SitePeer { key: public(BERLIN), site: 1 };
    let session = begin(&*offices.first.session_service(), peer);
    let add = |made| Request::AddDir { dir: Handle::ROOT, name: Name::new(b"x").unwrap(), made };
    for site in [0, 2, InodeId::MOUNT_SITE] {
        let made = InodeId::new(site, 0, 99).unwrap();
        let added = ask(&offices.first, session, add(made));
        assert_eq!(added.err(), Some(Code::Invalid), "{site}");
    }
    // What is not this site's is not sent on for it.
    let there = Request::GetAttr { node: Handle::own(InodeId::new(1, 0, 2).unwrap()) };
    assert_eq!(ask(&offices.first, session, there).err(), Some(Code::Elsewhere));
    for wrong in [&b"no port"[..], b"\xff:1"] {
        let told = Request::SiteAddress { address: wrong.to_vec() };
        assert_eq!(ask(&offices.first, session, told).err(), Some(Code::Invalid));
    }
    let told = Request::SiteAddress { address: b"10.0.0.2:7440".to_vec() };
    ask(&offices.first, session, told).unwrap();
    assert_eq!(offices.first.sites()[0].address, "10.0.0.2:7440");
}
