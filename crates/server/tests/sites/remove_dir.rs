//! Directories that are made and removed although their names are at the other site, and what is
//! left when a step is lost.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use pelago_server::{Options, Server};
use pelago_wire::{
    Bulk, Code, Context, Done, Handle, InodeId, NewMode, Reply, Request, RequestId, SessionId,
    SitePeer,
};

use super::line::{Ends, Losing};
use super::world::{
    BERLIN, Offices, ask, ask_as, begin, berlin_dir, client, lookup, next_number, options, public,
    rename, wait_for,
};
use crate::harness::rig::{DEADLINE, entry, name};

const ROOT: Handle = Handle::ROOT;
const DIRECT: SessionId = SessionId::DIRECT;

fn mkdir(server: &Server, dir: Handle, text: &str) -> Result<Handle, Code> {
    let mode = NewMode::exactly(0o755);
    let made = ask(server, DIRECT, Request::MakeDir { dir, name: name(text), mode })?;
    Ok(entry(made)?.handle)
}

fn rmdir(server: &Server, dir: Handle, text: &str) -> Result<(), Code> {
    match ask(server, DIRECT, Request::RemoveDir { dir, name: name(text) })? {
        Reply::Removed(attr) => {
            assert_eq!(attr.links, 0);
            Ok(())
        }
        other => panic!("{other:?}"),
    }
}

fn exists(server: &Server, node: Handle) -> bool {
    ask(server, DIRECT, Request::GetAttr { node }).is_ok()
}

/// Returns the number of `..` that count as names of a directory, and 2.
fn links(server: &Server, node: Handle) -> u32 {
    match ask(server, DIRECT, Request::GetAttr { node }).unwrap() {
        Reply::Attr(attr) => attr.links,
        other => panic!("{other:?}"),
    }
}

/// Berlin after another start, with no line to the first site yet.
struct Restarted {
    first: Arc<Server>,
    again: Server,
    line: Ends,
    _folder: tempfile::TempDir,
}

impl Restarted {
    fn of(offices: Offices) -> Self {
        let line = offices.line_to_first();
        let Offices { first, berlin, folder, .. } = offices;
        berlin.stop().unwrap();
        drop(berlin);
        let service = first.session_service();
        // As the first frame of the new run does.
        service.end_session(line.session);
        let session = begin(&*service, SitePeer { key: public(BERLIN), site: 1 });
        let again = Server::start(&berlin_dir(&folder), options()).unwrap();
        Self { first, again, line: Ends { session, ..line }, _folder: folder }
    }
}

#[test]
fn either_office_removes_a_directory_of_the_other() {
    let offices = Offices::new();
    let Offices { first, berlin, .. } = &offices;
    let clients = [(first, client(first)), (berlin, client(berlin))];
    let direct = [(first, DIRECT), (berlin, DIRECT)];
    for (server, session) in direct.into_iter().chain(clients) {
        // In the root, which is the first office's; and in a folder of berlin.
        let of_berlin = offices.dir("berlin");
        let in_berlin = mkdir(first, of_berlin, "first").unwrap();
        assert_eq!((of_berlin.ino.site(), in_berlin.ino.site()), (1, 0));
        assert_eq!((links(first, ROOT), links(berlin, of_berlin)), (3, 3));
        let remove = |dir, text: &str| {
            let removed = ask(server, session, Request::RemoveDir { dir, name: name(text) });
            removed.map(|reply| assert!(matches!(reply, Reply::Removed(attr) if attr.links == 0)))
        };
        assert_eq!(remove(ROOT, "berlin"), Err(Code::NotEmpty));
        assert_eq!(remove(of_berlin, "first"), Ok(()));
        assert_eq!(remove(of_berlin, "first"), Err(Code::NotFound));
        assert_eq!(remove(ROOT, "berlin"), Ok(()));
        for server in [first, berlin] {
            assert_eq!(lookup(server, ROOT, "berlin"), Err(Code::NotFound));
            assert!(!exists(server, of_berlin) && !exists(server, in_berlin));
            assert_eq!(links(server, ROOT), 2);
        }
    }
    // A file is no directory, and an absent name is not found, in each office.
    let dir = offices.dir("berlin");
    for server in [first, berlin] {
        assert_eq!(rmdir(server, ROOT, "nothing"), Err(Code::NotFound));
        assert_eq!(rmdir(server, dir, "nothing"), Err(Code::NotFound));
    }
}

/// A refusal leaves it as it was.
#[test]
fn a_directory_that_keeps_its_name_can_be_used() {
    let offices = Offices::new();
    let Offices { first, berlin, .. } = &offices;
    let dir = offices.dir("berlin");
    offices.cut(true);
    assert_eq!(rmdir(berlin, ROOT, "berlin"), Err(Code::HostDown));
    assert_eq!(rmdir(first, ROOT, "berlin"), Err(Code::HostDown));
    mkdir(berlin, dir, "sub").unwrap();
    rmdir(berlin, dir, "sub").unwrap();
    offices.cut(false);
    // The name has moved since the home was asked to remove what it leads to.
    rename(first, "berlin", "bonn").unwrap();
    let stale = Request::RemoveNamedDir { dir, parent: InodeId::ROOT, name: name("berlin") };
    let removed = ask(berlin, offices.first_at_berlin(), stale.clone());
    assert_eq!(removed.err(), Some(Code::NotFound));
    mkdir(berlin, dir, "sub").unwrap();
    rmdir(berlin, dir, "sub").unwrap();
    // Only the site that has the name may ask.
    let foreign = Request::RemoveNamedDir { dir, parent: dir.ino, name: name("berlin") };
    let asked = ask(berlin, offices.first_at_berlin(), foreign);
    assert_eq!(asked.err(), Some(Code::Invalid));
    rmdir(first, ROOT, "bonn").unwrap();
}

#[test]
fn a_removal_whose_steps_are_lost_is_finished() {
    for losing in [Losing::Requests, Losing::Answers] {
        let offices = Offices::new();
        let Offices { first, berlin, .. } = &offices;
        let dir = offices.dir("berlin");
        *offices.losing.lock() = losing;
        assert_eq!(rmdir(berlin, ROOT, "berlin"), Err(Code::Interrupted));
        // Nothing is made in it: its name may be gone.
        assert_eq!(mkdir(berlin, dir, "late").err(), Some(Code::NotFound));
        *offices.losing.lock() = Losing::Nothing;
        wait_for("it is removed", || !exists(berlin, dir));
        assert_eq!(lookup(first, ROOT, "berlin"), Err(Code::NotFound));
        assert_eq!(links(first, ROOT), 2);
        offices.dir("berlin");
    }
}

#[test]
fn a_removal_is_finished_after_a_start_or_given_up_if_the_name_has_moved() {
    for (losing, moves) in
        [(Losing::Requests, false), (Losing::Answers, false), (Losing::Requests, true)]
    {
        let offices = Offices::new();
        let dir = offices.dir("berlin");
        *offices.losing.lock() = losing;
        assert_eq!(rmdir(&offices.berlin, ROOT, "berlin"), Err(Code::Interrupted));
        let Restarted { first, again, line, _folder } = Restarted::of(offices);
        if moves {
            rename(&first, "berlin", "bonn").unwrap();
        }
        // No line yet.
        assert_eq!(mkdir(&again, dir, "late").err(), Some(Code::NotFound));
        *line.losing.lock() = Losing::Nothing;
        line.connect(&again);
        if moves {
            wait_for("it can be used", || mkdir(&again, dir, "sub").is_ok());
            // The name is still there.
            rename(&first, "bonn", "berlin").unwrap();
        } else {
            wait_for("it is removed", || !exists(&again, dir));
            assert_eq!(lookup(&first, ROOT, "berlin"), Err(Code::NotFound));
        }
    }
}

#[test]
fn a_new_directory_gets_its_name_later_or_is_removed() {
    for (losing, is_taken) in
        [(Losing::Requests, false), (Losing::Answers, false), (Losing::Requests, true)]
    {
        let offices = Offices::new();
        let Offices { first, berlin, .. } = &offices;
        *offices.losing.lock() = losing;
        assert_eq!(mkdir(berlin, ROOT, "berlin").err(), Some(Code::Interrupted));
        if losing == Losing::Answers {
            // It has its name. While that is not known here, it cannot be removed.
            assert_eq!(rmdir(berlin, ROOT, "berlin"), Err(Code::Busy));
            lookup(first, ROOT, "berlin").unwrap();
        }
        let taken = is_taken.then(|| mkdir(first, ROOT, "berlin").unwrap());
        *offices.losing.lock() = Losing::Nothing;
        match taken {
            None => {
                wait_for("it has its name", || lookup(first, ROOT, "berlin").is_ok());
                let dir = lookup(first, ROOT, "berlin").unwrap();
                assert_eq!(dir.ino.site(), 1);
                mkdir(berlin, dir, "sub").unwrap();
                rmdir(first, dir, "sub").unwrap();
                wait_for("it can be removed", || rmdir(berlin, ROOT, "berlin").is_ok());
            }
            Some(taken) => {
                assert_eq!(lookup(berlin, ROOT, "berlin"), Ok(taken));
                wait_for("the rows are gone", || berlin.sites()[0].unfinished == 0);
            }
        }
    }
}

/// The request may be on its way twice: what the later one hears must last.
#[test]
fn nothing_is_refused_for_good_while_an_earlier_session_still_runs() {
    let offices = Offices::new();
    let service = offices.first.session_service();
    let peer = SitePeer { key: public(BERLIN), site: 1 };
    let older = begin(&*service, peer);
    let newer = begin(&*service, peer);
    let made = InodeId::new(1, 0, 99).unwrap();
    mkdir(&offices.first, ROOT, "taken").unwrap();
    let add = Request::AddDir { dir: ROOT, name: name("taken"), made };
    let drop = Request::DropDir { dir: ROOT, name: name("taken"), removed: made };
    for request in [&add, &drop] {
        assert_eq!(ask(&offices.first, newer, request.clone()).err(), Some(Code::Busy));
    }
    offices.end_session_of_berlin();
    service.end_session(older);
    wait_for("the older sessions have ended", || {
        ask(&offices.first, newer, add.clone()).err() == Some(Code::Exists)
    });
    assert_eq!(ask(&offices.first, newer, drop).err(), Some(Code::NotFound));
}

/// As a connection fails what it has sent, if its server does not admit it any more.
#[test]
fn an_error_that_proves_nothing_is_no_refusal() {
    for code in [Code::AccessDenied, Code::Io, Code::TimedOut, Code::Unavailable] {
        let offices = Offices::new();
        let Offices { first, berlin, .. } = &offices;
        *offices.losing.lock() = Losing::AnswersBy(code);
        assert_eq!(mkdir(berlin, ROOT, "berlin").err(), Some(code));
        let dir = lookup(first, ROOT, "berlin").unwrap();
        *offices.losing.lock() = Losing::Nothing;
        wait_for("it has its name", || berlin.sites()[0].unfinished == 0);
        mkdir(berlin, dir, "sub").unwrap();
        rmdir(berlin, dir, "sub").unwrap();
        *offices.losing.lock() = Losing::AnswersBy(code);
        assert_eq!(rmdir(berlin, ROOT, "berlin"), Err(code));
        *offices.losing.lock() = Losing::Nothing;
        wait_for("it is removed", || !exists(berlin, dir));
        assert_eq!(lookup(first, ROOT, "berlin"), Err(Code::NotFound));
    }
}

#[test]
fn a_directory_that_was_opened_again_is_used_after_a_start() {
    let offices = Offices::new();
    let dir = offices.dir("berlin");
    offices.cut(true);
    assert_eq!(rmdir(&offices.berlin, ROOT, "berlin"), Err(Code::HostDown));
    mkdir(&offices.berlin, dir, "kept").unwrap();
    let Restarted { again, .. } = Restarted::of(offices);
    assert!(lookup(&again, dir, "kept").is_ok());
    assert_eq!(again.sites()[0].unfinished, 0);
}

/// After a repair, or the loss of a disk.
/// Asks a server for the first time what the last run was asked. If the request waits for the other
/// sessions of the last run, these come back, and its own one with them.
fn repeated(again: &Server, context: &Context, request: Request) -> Result<(), Code> {
    let service = again.session_service();
    let (sender, answer) = mpsc::channel();
    let mut sender = Some(sender);
    let mut later = || -> Done {
        let sender = sender.take().unwrap();
        Box::new(move |result| sender.send(result).unwrap())
    };
    if let Some(now) = service.ask(context, request, Bulk::None, &mut later) {
        return now.map(drop).map_err(|error| error.code);
    }
    assert!(answer.try_recv().is_err(), "it waits");
    for (session, _) in service.earlier_sessions() {
        service.reclaimed(session);
        service.flushed(session);
    }
    let answered = answer.recv_timeout(DEADLINE).unwrap();
    answered.map(drop).map_err(|error| error.code)
}

/// The program must not hear that there was no such directory, or that another one is gone.
#[test]
fn a_removal_that_was_repeated_may_be_done() {
    let waiting = || Options { grace: Duration::from_secs(20), ..options() };
    let of = |session| {
        let number = next_number();
        Context { session, request: RequestId(number), mutation: number, ..Context::direct(0, 0) }
    };
    // By a client of the office that has the name.
    let offices = Offices::new();
    offices.dir("berlin");
    let context = of(client(&offices.first));
    let remove = Request::RemoveDir { dir: ROOT, name: name("berlin") };
    ask_as(&offices.first, &context, remove.clone(), &[]).unwrap();
    let Offices { first, berlin: _berlin, folder, .. } = offices;
    drop(first);
    let again = Server::start(&folder.path().join("first"), waiting()).unwrap();
    assert_eq!(repeated(&again, &context, remove), Err(Code::Io));

    // By the server of that office.
    let offices = Offices::new();
    let dir = offices.dir("berlin");
    let context = of(offices.first_at_berlin());
    let remove = Request::RemoveNamedDir { dir, parent: ROOT.ino, name: name("berlin") };
    ask_as(&offices.berlin, &context, remove.clone(), &[]).unwrap();
    let Offices { first: _first, berlin, folder, .. } = offices;
    drop(berlin);
    let again = Server::start(&berlin_dir(&folder), waiting()).unwrap();
    assert_eq!(repeated(&again, &context, remove), Err(Code::Io));
}

#[test]
fn a_name_that_leads_nowhere_can_be_removed() {
    let offices = Offices::new();
    let Offices { first, berlin, .. } = &offices;
    for server in [first, berlin] {
        let made = InodeId::new(1, 0, 99).unwrap();
        let add = Request::AddDir { dir: ROOT, name: name("nowhere"), made };
        ask(first, offices.line_to_first().session, add).unwrap();
        assert_eq!(links(first, ROOT), 3);
        rmdir(server, ROOT, "nowhere").unwrap();
        assert_eq!(links(first, ROOT), 2);
        assert_eq!(rmdir(server, ROOT, "nowhere"), Err(Code::NotFound));
    }
}

#[test]
fn one_of_two_removals_at_once_removes_it() {
    let offices = Offices::new();
    let Offices { first, berlin, .. } = &offices;
    for _ in 0..50 {
        let dir = offices.dir("berlin");
        let removed: Vec<_> = std::thread::scope(|scope| {
            let threads =
                [first, berlin].map(|server| scope.spawn(|| rmdir(server, ROOT, "berlin")));
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let done = removed.iter().filter(|result| result.is_ok()).count();
        assert_eq!(done, 1, "{removed:?}");
        for result in removed {
            assert!(
                matches!(result, Ok(()) | Err(Code::Busy | Code::NotFound | Code::Stale)),
                "{result:?}"
            );
        }
        assert!(!exists(berlin, dir) && lookup(first, ROOT, "berlin").is_err());
    }
}
