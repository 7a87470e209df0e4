//! Paths to own directories while the other site is away.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pelago_server::Server;
use pelago_wire::{Attr, Code, Cookie, Handle, NewMode, Reply, Request, SessionId, SetAttr};

use super::world::{Offices, ask, berlin_dir, lookup, options, rename};
use crate::harness::rig::{entry, name};

const ROOT: Handle = Handle::ROOT;
const DIRECT: SessionId = SessionId::DIRECT;

/// Looks the names of a path up, from the root.
fn walk(server: &Server, path: &str) -> Result<Handle, Code> {
    attr(server, ROOT)?;
    path.split('/').try_fold(ROOT, |dir, text| lookup(server, dir, text))
}

fn attr(server: &Server, node: Handle) -> Result<Attr, Code> {
    match ask(server, DIRECT, Request::GetAttr { node })? {
        Reply::Attr(attr) => Ok(attr),
        other => panic!("{other:?}"),
    }
}

fn mkdir(server: &Server, dir: Handle, text: &str) -> Handle {
    let mode = NewMode::exactly(0o750);
    let made = Request::MakeDir { dir, name: name(text), mode };
    entry(ask(server, DIRECT, made).unwrap()).unwrap().handle
}

/// The path `projects/berlin/own`: the first name is of the first site, the others are berlin's.
fn projects(offices: &Offices) -> Handle {
    let projects = mkdir(&offices.first, ROOT, "projects");
    attr(&offices.berlin, ROOT).unwrap();
    lookup(&offices.berlin, ROOT, "projects").unwrap();
    let berlin = mkdir(&offices.berlin, projects, "berlin");
    mkdir(&offices.berlin, berlin, "own")
}

/// Starts berlin again, with no line to the first site.
fn restart(offices: Offices) -> (Arc<Server>, tempfile::TempDir, Server) {
    let Offices { first, berlin, folder, .. } = offices;
    berlin.stop().unwrap();
    drop(berlin);
    let again = Server::start(&berlin_dir(&folder), options()).unwrap();
    (first, folder, again)
}

/// A record is of the last reply that was about the directory alone; a listing is newer.
#[test]
fn what_is_cached_is_newer_than_the_record() {
    let offices = Offices::new();
    projects(&offices);
    let Offices { first, berlin, .. } = &offices;
    let dir = walk(berlin, "projects").unwrap();
    assert_eq!(attr(berlin, dir).unwrap().mode, 0o750);
    let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    ask(first, DIRECT, Request::SetAttr { node: dir, open: None, set }).unwrap();
    attr(berlin, ROOT).unwrap();
    let after = Cookie::AFTER_DOT_DOT;
    let list = Request::List { dir: ROOT, after, behind: None, entries: 9, attributes: true };
    ask(berlin, DIRECT, list).unwrap();
    offices.is_silent.store(true, Ordering::Release);
    assert_eq!(attr(berlin, dir).unwrap().mode, 0o700);
}

#[test]
fn own_paths_work_while_the_other_site_is_away() {
    let offices = Offices::new();
    let own = projects(&offices);
    let berlin = &offices.berlin;
    offices.cut(true);
    let sent = offices.sent.load(Ordering::Acquire);
    for _ in 0..100 {
        assert_eq!(walk(berlin, "projects/berlin/own"), Ok(own));
    }
    let projects = walk(berlin, "projects").unwrap();
    let seen = attr(berlin, projects).unwrap();
    assert_eq!((seen.mode, seen.volatile), (0o750, true));
    // The way up.
    let up = |dir| entry(ask(berlin, DIRECT, Request::Parent { dir }).unwrap()).unwrap().handle;
    let above = up(own);
    assert_eq!((up(above).ino, up(up(above))), (projects.ino, ROOT));
    let access = b"system.posix_acl_access".to_vec();
    let list = Request::GetXattr { node: ROOT, name: access };
    assert_eq!(ask(berlin, DIRECT, list).err(), Some(Code::NoXattr));
    // What is not known may exist.
    assert_eq!(lookup(berlin, ROOT, "other"), Err(Code::HostDown));
    let list = Request::List {
        dir: projects,
        after: Cookie::AFTER_DOT_DOT,
        behind: None,
        entries: 10,
        attributes: true,
    };
    assert_eq!(ask(berlin, DIRECT, list).err(), Some(Code::HostDown));
    let made =
        Request::MakeDir { dir: ROOT, name: name("projects"), mode: NewMode::exactly(0o755) };
    assert_eq!(ask(berlin, DIRECT, made).err(), Some(Code::HostDown));
    assert_eq!(offices.sent.load(Ordering::Acquire), sent);
}

#[test]
fn own_paths_work_after_a_start_without_the_other_site() {
    let offices = Offices::new();
    let own = projects(&offices);
    let (first, folder, berlin) = restart(offices);
    assert_eq!(walk(&berlin, "projects/berlin/own"), Ok(own));
    assert_eq!(attr(&berlin, ROOT).unwrap().mode, attr(&first, ROOT).unwrap().mode);
    assert_eq!(lookup(&berlin, ROOT, "other"), Err(Code::HostDown));
    berlin.stop().unwrap();
    drop(berlin);
    let plan = pelago_check::plan(&berlin_dir(&folder)).unwrap();
    assert!(plan.findings.is_empty(), "{:?}", plan.findings);
}

/// The first site sees its own folders in those of the other one, too.
#[test]
fn both_sites_keep_their_paths() {
    let offices = Offices::new();
    let dir = offices.dir("berlin");
    let rome = mkdir(&offices.first, dir, "rome");
    assert_eq!(walk(&offices.first, "berlin/rome"), Ok(rome));
    offices.cut(true);
    assert_eq!(walk(&offices.first, "berlin/rome"), Ok(rome));
    assert_eq!(lookup(&offices.first, dir, "other"), Err(Code::HostDown));
}

/// A rename at the other site while the line is cut: the old path works until then.
#[test]
fn a_walk_after_the_cut_finds_what_has_changed() {
    let offices = Offices::new();
    let own = projects(&offices);
    let Offices { first, berlin, .. } = &offices;
    offices.cut(true);
    rename(first, "projects", "renamed").unwrap();
    assert_eq!(walk(berlin, "projects/berlin/own"), Ok(own));
    assert_eq!(walk(berlin, "renamed"), Err(Code::HostDown));
    offices.cut(false);
    assert_eq!(walk(berlin, "projects"), Err(Code::NotFound));
    assert_eq!(walk(berlin, "renamed/berlin/own"), Ok(own));
    offices.cut(true);
    assert_eq!(walk(berlin, "projects"), Err(Code::NotFound), "it was under a lease");
    assert_eq!(walk(berlin, "renamed/berlin/own"), Ok(own));
    // A rename by this site is known at once.
    offices.cut(false);
    rename(berlin, "renamed", "again").unwrap();
    offices.cut(true);
    assert_eq!(walk(berlin, "again/berlin/own"), Ok(own));
    assert_eq!(walk(berlin, "renamed"), Err(Code::HostDown));
}
