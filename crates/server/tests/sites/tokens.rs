//! A folder of a site that is a copy, or older than what another site has seen of it, is noticed.

use std::path::Path;
use std::sync::Arc;

use pelago_server::Server;
use pelago_wire::{
    Code, NewMode, OlderFolder, Reply, Request, SessionId, SiteHello, SitePeer, SiteRefusal,
    SiteToken,
};

use super::line::Ends;
use super::world::{
    BERLIN, FIRST, Offices, Servers, ask, begin, berlin_dir, client, copy_folder, lookup, options,
    public,
};
use crate::harness::rig::name;

/// Has both sites give each other new tokens.
fn renew(offices: &Offices) {
    offices.berlin.renew_token(0).unwrap();
    offices.first.renew_token(1).unwrap();
}

/// Has a server say hello to another one, as a connection does.
fn hello(from: &Server, to: &Server) -> Result<SitePeer, SiteRefusal> {
    let key = if from.site() == 0 { FIRST } else { BERLIN };
    let pass = from.site_pass(to.site());
    let shown = pass.shown().unwrap();
    let presented = SiteHello { shown, invitation: None };
    let admitted = to.session_service().admit_site(&public(key), Some(&presented));
    if let Err(SiteRefusal::Older { folder, .. }) = &admitted {
        pass.refused(&shown, *folder);
    }
    admitted
}

/// Has a server ask another one from now on.
fn connect(from: &Server, to: &Arc<Server>) {
    let key = if from.site() == 0 { FIRST } else { BERLIN };
    let service = to.session_service();
    let session = begin(&*service, service.admit_site(&public(key), None).unwrap());
    let ends = Ends {
        there: Arc::downgrade(to),
        session,
        is_cut: Arc::default(),
        is_silent: Arc::default(),
        sent: Arc::default(),
        received: Arc::default(),
        hashing: Arc::default(),
        loses_locks: Arc::default(),
        losing: Arc::default(),
        holder: Arc::default(),
        moved: Arc::default(),
    };
    ends.connect(from);
}

fn start(dir: &Path) -> Arc<Server> {
    Arc::new(Server::start(dir, options()).unwrap())
}

fn folder_of(admitted: Result<SitePeer, SiteRefusal>) -> OlderFolder {
    match admitted {
        Err(SiteRefusal::Older { folder, .. }) => folder,
        other => panic!("{other:?}"),
    }
}

fn assert_honest(offices: &Offices) {
    let Offices { first, berlin, .. } = offices;
    assert_eq!(hello(berlin, first).unwrap().site, 1);
    assert_eq!(hello(first, berlin).unwrap().site, 0);
    assert_eq!((first.outdated(), berlin.outdated()), (None, None));
}

#[test]
fn no_start_of_either_site_is_refused() {
    let offices = Offices::new();
    assert_honest(&offices);
    renew(&offices);
    assert_honest(&offices);
    let offices = offices.start_first_with(options(), |_| {});
    offices.cut(false);
    assert_honest(&offices);
    renew(&offices);
    let offices = offices.start_berlin_after_crash(options());
    assert_honest(&offices);
    renew(&offices);
    renew(&offices);
    assert_honest(&offices);
    let offices = offices.start_berlin_again(options());
    assert_honest(&offices);
    // In this world the first site does not reach this run.
    offices.berlin.renew_token(0).unwrap();
    assert_honest(&offices);
}

/// The answer with a token is lost, or what is said after it: the same one is given again.
#[test]
fn no_lost_answer_is_refused() {
    let offices = Offices::new();
    renew(&offices);
    let ask_for = |token| {
        let session = offices.line_to_first().session;
        match ask(&offices.first, session, Request::RenewToken { token }).unwrap() {
            Reply::Token(token) => token,
            other => panic!("{other:?}"),
        }
    };
    let shown = offices.berlin.site_pass(0).shown().unwrap();
    let given = ask_for(shown.held);
    assert_eq!(ask_for(shown.held), given, "the same one again");
    assert_honest(&offices);
    let offices = offices.start_berlin_after_crash(options());
    assert_eq!(offices.berlin.site_pass(0).shown().unwrap().held, shown.held);
    assert_honest(&offices);
    renew(&offices);
    assert_honest(&offices);
    let old = Request::RenewToken { token: shown.held };
    let session = offices.line_to_first().session;
    assert_eq!(ask(&offices.first, session, old).unwrap_err(), Code::Stale);
}

/// Only sites have tokens.
#[test]
fn no_client_asks_for_a_token() {
    let offices = Offices::new();
    let token = SiteToken::NONE;
    for session in [client(&offices.first), SessionId::DIRECT] {
        for request in [Request::RenewToken { token }, Request::KeepToken { token }] {
            let asked = ask(&offices.first, session, request);
            assert_eq!(asked.unwrap_err(), Code::AccessDenied);
        }
    }
}

/// Berlin's folder is put back from a copy, after the original has gone on.
#[test]
fn a_folder_that_is_put_back_is_refused_and_cut_off() {
    let offices = Offices::new();
    let own = offices.dir("of-berlin");
    renew(&offices);
    let Servers { first, berlin, folder } = offices.into_servers();
    berlin.stop().unwrap();
    drop(berlin);
    let dir = berlin_dir(&folder);
    let old = folder.path().join("copy");
    copy_folder(&dir, &old);
    let berlin = start(&dir);
    connect(&berlin, &first);
    hello(&berlin, &first).unwrap();
    berlin.renew_token(0).unwrap();
    berlin.stop().unwrap();
    drop(berlin);
    let berlin = start(&old);
    connect(&berlin, &first);
    assert_eq!(folder_of(hello(&berlin, &first)), OlderFolder::OfAsker);
    let says = berlin.outdated().unwrap();
    assert!(says.contains("older than what office `first` has seen of it"), "{says}");
    assert!(says.contains("`pelago join`"), "{says}");
    // The first one says so, too, and is none the worse. One hello may have come late.
    assert_eq!(first.sites()[0].older_seen, None);
    assert_eq!(folder_of(hello(&berlin, &first)), OlderFolder::OfAsker);
    assert!(first.sites()[0].older_seen.is_some());
    assert_eq!(first.outdated(), None);
    // It is cut off: it serves no site, and asks none. What is its own goes on.
    assert_eq!(folder_of(hello(&first, &berlin)), OlderFolder::OfAnswerer);
    assert_eq!(first.outdated(), None, "it is not the older one");
    assert!(!berlin.session_service().is_site(&SitePeer { key: public(FIRST), site: 0 }));
    assert_eq!(berlin.renew_token(0).unwrap_err().code, Code::HostDown);
    let asked = ask(&berlin, SessionId::DIRECT, Request::GetAttr { node: own });
    assert!(asked.is_ok(), "{asked:?}");
    let made = Request::MakeDir { dir: own, name: name("new"), mode: NewMode::exactly(0o755) };
    assert!(ask(&berlin, SessionId::DIRECT, made).is_ok());
    // The newer folder is served again.
    berlin.stop().unwrap();
    drop(berlin);
    let berlin = start(&dir);
    connect(&berlin, &first);
    hello(&berlin, &first).unwrap();
    hello(&first, &berlin).unwrap();
    berlin.renew_token(0).unwrap();
    assert_eq!(lookup(&berlin, own, "new"), Err(Code::NotFound));
}

/// The same of the first site's folder, which hears of it by the hello of the other one.
#[test]
fn an_older_folder_of_the_first_site_is_refused_by_both() {
    let offices = Offices::new();
    renew(&offices);
    let Servers { first, berlin, folder } = offices.into_servers();
    first.stop().unwrap();
    drop(first);
    let dir = folder.path().join("first");
    let old = folder.path().join("copy");
    copy_folder(&dir, &old);
    let first = start(&dir);
    connect(&first, &berlin);
    connect(&berlin, &first);
    first.renew_token(1).unwrap();
    drop(first);
    for first_asks in [true, false] {
        let first = start(&old);
        for _ in 0..2 {
            match first_asks {
                true => assert_eq!(folder_of(hello(&first, &berlin)), OlderFolder::OfAsker),
                false => assert_eq!(folder_of(hello(&berlin, &first)), OlderFolder::OfAnswerer),
            }
        }
        let says = first.outdated().unwrap();
        assert!(says.contains("the other offices keep what is theirs"), "{says}");
        assert_eq!(berlin.outdated(), None);
        assert!(berlin.sites()[0].older_seen.is_some());
        drop(first);
    }
    let first = start(&dir);
    hello(&first, &berlin).unwrap();
    hello(&berlin, &first).unwrap();
}

/// A copy is served beside its original.
#[test]
fn of_a_copy_beside_its_original_one_is_refused() {
    let offices = Offices::new();
    renew(&offices);
    let Servers { first, berlin, folder } = offices.into_servers();
    berlin.stop().unwrap();
    drop(berlin);
    let dir = berlin_dir(&folder);
    let beside = folder.path().join("copy");
    copy_folder(&dir, &beside);
    let original = start(&dir);
    connect(&original, &first);
    hello(&original, &first).unwrap();
    let second = start(&beside);
    connect(&second, &first);
    // Nothing has happened since: it is as good as the original.
    hello(&second, &first).unwrap();
    second.renew_token(0).unwrap();
    assert_eq!(folder_of(hello(&original, &first)), OlderFolder::OfAsker);
    assert!(original.outdated().is_some());
    assert_eq!(second.outdated(), None);
    // The session that the original has had is of no use to it.
    assert_eq!(original.renew_token(0).unwrap_err().code, Code::HostDown);
}

/// A copy has asked for a token, and its original asks in the session that it has.
#[test]
fn an_original_whose_copy_goes_on_hears_of_it_in_its_session() {
    let offices = Offices::new();
    renew(&offices);
    let Servers { first, berlin, folder } = offices.into_servers();
    berlin.stop().unwrap();
    drop(berlin);
    let dir = berlin_dir(&folder);
    let beside = folder.path().join("copy");
    copy_folder(&dir, &beside);
    let [original, second] = [start(&dir), start(&beside)];
    connect(&original, &first);
    connect(&second, &first);
    second.renew_token(0).unwrap();
    assert_eq!(original.renew_token(0).unwrap_err().code, Code::Stale);
    assert!(original.outdated().is_some());
    second.renew_token(0).unwrap();
}

/// A token that was replaced over another connection while a hello was on its way: the server is
/// not old.
#[test]
fn a_hello_that_comes_late_makes_no_folder_old() {
    let offices = Offices::new();
    renew(&offices);
    let Offices { first, berlin, .. } = &offices;
    let pass = berlin.site_pass(0);
    let shown = pass.shown().unwrap();
    renew(&offices);
    let presented = SiteHello { shown, invitation: None };
    let late = first.session_service().admit_site(&public(BERLIN), Some(&presented));
    assert_eq!(folder_of(late), OlderFolder::OfAsker);
    pass.refused(&shown, OlderFolder::OfAsker);
    assert_eq!(berlin.outdated(), None);
    assert_honest(&offices);
}

/// A number that no site has, or that of one that has left, says nothing about this folder.
#[test]
fn a_site_that_is_none_renews_no_token() {
    let offices = Offices::new();
    let Offices { first, .. } = &offices;
    for site in [7, 60_000] {
        assert!(first.renew_token(site).is_err(), "{site}");
        assert_eq!(first.outdated(), None);
    }
    assert_honest(&offices);
}
