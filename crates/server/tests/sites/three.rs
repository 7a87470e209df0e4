//! Three sites: each reaches both others, and knows them by the list of the first one.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pelago_keynote::{Credential, Grant, ListedSite, Principal, Revocation, SiteList, policy};
use pelago_server::{InviteError, Joining, LeaveError, Neighbour, Options, Server};
use pelago_store::volume::VolumeId;
use pelago_wire::{
    Code, Handle, LeasedService, NewMode, OpenFlags, OpenId, Reply, Request, SessionId, SitePeer,
    WriteFlags,
};

use super::guests::admit;
use super::line::{Ends, Line, Recalls};
use super::stays::{content, read, write_new};
use super::world::{
    FAR, ask, ask_with, begin, client, founded_with, invited, key, lookup, options, public,
    refusal, sentence, wait_for,
};
use crate::harness::rig::{entry, name};

/// The number of the key of a site's server.
const fn key_of(site: u16) -> u8 {
    20 + site as u8
}

/// The number of the key of a site's invitation.
const fn ticket_of(site: u16) -> u8 {
    40 + site as u8
}

/// Three servers of one volume: the first one, and two that have joined.
struct Three {
    servers: [Arc<Server>; 3],
    routes: [Arc<Recalls>; 3],
    /// Cuts the lines to a site.
    cuts: [Arc<AtomicBool>; 3],
    folder: tempfile::TempDir,
}

const NAMES: [&str; 3] = ["first", "berlin", "rome"];

impl Three {
    fn new() -> Self {
        Self::with(&options)
    }

    /// All servers have these options.
    fn with(options: &dyn Fn() -> Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let first = founded_with(&folder, options());
        let volume = first.session_service().served().volume;
        for site in [1, 2] {
            let invited = first.invite_site(NAMES[usize::from(site)], public(ticket_of(site)), FAR);
            assert_eq!(invited, Ok(site));
        }
        let first = Arc::new(first);
        let joined = [1, 2].map(|site| Arc::new(joined(&folder, volume, site, options()).unwrap()));
        let [berlin, rome] = joined;
        let servers = [first, berlin, rome];
        let routes = servers.each_ref().map(|server| Recalls::of(server));
        let three = Self { servers, routes, cuts: Default::default(), folder };
        (0..3).for_each(|site| three.connect(site));
        // The others join: each tells the first one where it is.
        for site in [1, 2] {
            three.servers[site].tell_address(0, &format!("host-{site}:7440")).unwrap();
        }
        three.servers[0].begin_site_list(key(key_of(0))).unwrap();
        three.wait_for_list();
        three
    }

    /// Tells a server how to reach the others. A line is made if the other one admits it.
    fn connect(&self, from: u16) {
        let volume = self.servers[0].session_service().served().volume;
        let there = self.servers.each_ref().map(Arc::downgrade);
        let routes = self.routes.each_ref().map(Arc::downgrade);
        let cuts = self.cuts.clone();
        let connect = move |neighbour: &Neighbour| -> Option<Arc<dyn LeasedService>> {
            let to = usize::from(neighbour.site);
            let service = there[to].upgrade()?.session_service();
            let ticket = sentence(ticket_of(from), volume, from, key_of(from));
            let invitation = (to == 0).then_some(&ticket[..]);
            let presented = invitation.map(invited);
            let peer = service.admit_site(&public(key_of(from)), presented.as_ref()).ok()?;
            let ends = Ends {
                there: there[to].clone(),
                session: begin(&*service, peer),
                is_cut: Arc::clone(&cuts[to]),
                is_silent: Arc::default(),
                sent: Arc::default(),
                losing: Arc::default(),
                holder: Arc::default(),
                moved: Arc::default(),
                received: Arc::default(),
                hashing: Arc::default(),
                loses_locks: Arc::default(),
            };
            let holder = Arc::clone(&ends.holder);
            routes[to].upgrade()?.holders.lock().insert(ends.session, holder);
            Some(Arc::new(Line(ends)))
        };
        self.servers[usize::from(from)].set_connect(Box::new(connect));
    }

    /// Waits until each of the two others knows the other one.
    fn wait_for_list(&self) {
        for (here, other) in [(1, 2), (2, 1)] {
            wait_for("the list has come", || {
                let sites = self.servers[here].sites();
                let found = sites.iter().find(|site| usize::from(site.site) == other);
                found.is_some_and(|site| site.address == format!("host-{other}:7440"))
            });
        }
    }

    fn make_dir(&self, site: usize, dir: Handle, text: &str) -> Result<Handle, Code> {
        let request = Request::MakeDir { dir, name: name(text), mode: NewMode::exactly(0o755) };
        Ok(entry(ask(&self.servers[site], SessionId::DIRECT, request)?).unwrap().handle)
    }

    fn remove_dir(&self, site: usize, dir: Handle, text: &str) -> Result<Reply, Code> {
        let request = Request::RemoveDir { dir, name: name(text) };
        ask(&self.servers[site], SessionId::DIRECT, request)
    }
}

fn joined(
    folder: &tempfile::TempDir,
    volume: [u8; 16],
    site: u16,
    options: Options,
) -> Result<Server, pelago_server::StartError> {
    let founder = Neighbour { site: 0, key: public(key_of(0)), address: "first:1".to_owned() };
    let joining =
        Joining { volume: VolumeId(volume), site, founder, founder_name: "first".to_owned() };
    let options = Options { joining: Some(joining), ..options };
    Server::start(&folder.path().join(NAMES[usize::from(site)]), options)
}

fn parent(server: &Server, dir: Handle) -> Result<Handle, Code> {
    let found = ask(server, SessionId::DIRECT, Request::Parent { dir })?;
    Ok(entry(found)?.handle)
}

#[test]
fn directories_of_three_sites_are_one_tree() {
    let three = Three::new();
    // Each site makes one in that of another.
    let berlin = three.make_dir(1, Handle::ROOT, "berlin").unwrap();
    let rome = three.make_dir(2, berlin, "rome").unwrap();
    let first = three.make_dir(0, rome, "first").unwrap();
    assert_eq!([berlin, rome, first].map(|dir| dir.ino.site()), [1, 2, 0]);
    for server in &three.servers {
        assert_eq!(lookup(server, Handle::ROOT, "berlin"), Ok(berlin));
        assert_eq!(lookup(server, berlin, "rome"), Ok(rome));
        assert_eq!(lookup(server, rome, "first"), Ok(first));
        // And back, whichever site has the names.
        assert_eq!(parent(server, first), Ok(rome));
        assert_eq!(parent(server, rome), Ok(berlin));
        assert_eq!(parent(server, berlin), Ok(Handle::ROOT));
    }
    // Also for a client that has never walked down.
    let session = client(&three.servers[2]);
    let up = ask(&three.servers[2], session, Request::Parent { dir: rome }).unwrap();
    assert_eq!(entry(up).unwrap().handle, berlin);
}

/// The name is at one site, the directory at another, and a client of the third one removes it.
#[test]
fn a_third_site_removes_a_directory_of_two_others() {
    let three = Three::new();
    for remover in 0..3 {
        let berlin = three.make_dir(1, Handle::ROOT, "berlin").unwrap();
        let rome = three.make_dir(2, berlin, "rome").unwrap();
        for server in &three.servers {
            assert_eq!(lookup(server, berlin, "rome"), Ok(rome));
        }
        assert_eq!(three.remove_dir(remover, Handle::ROOT, "berlin").err(), Some(Code::NotEmpty));
        three.remove_dir(remover, berlin, "rome").unwrap();
        three.remove_dir(remover, Handle::ROOT, "berlin").unwrap();
        for server in &three.servers {
            assert_eq!(lookup(server, Handle::ROOT, "berlin").err(), Some(Code::NotFound));
        }
        assert_eq!(three.remove_dir(remover, Handle::ROOT, "berlin").err(), Some(Code::NotFound));
    }
}

#[test]
fn a_new_address_reaches_all_sites() {
    let three = Three::new();
    three.servers[1].tell_address(0, "[fe80::1]:9").unwrap();
    wait_for("the third site knows it", || {
        three.servers[2].sites().iter().any(|site| site.address == "[fe80::1]:9")
    });
    let told = three.servers[1].tell_address(0, "x:1\nSite: 5 key evil x:1");
    assert_eq!(told.map_err(|error| error.code), Err(Code::Invalid));
}

/// A list that is not what the first site has signed last changes nothing.
#[test]
fn a_list_that_is_not_the_next_one_is_refused() {
    let three = Three::new();
    let rome = &three.servers[2];
    let volume = rome.session_service().served().volume;
    let peer = rome.session_service().admit_site(&public(key_of(0)), None).unwrap();
    let session = begin(&*rome.session_service(), peer);
    let sites = |key_of_berlin: u8| {
        let site = |site: u16, key: u8| ListedSite {
            site,
            key: public(key),
            name: NAMES[usize::from(site)].to_owned(),
            address: format!("host-{site}:7440"),
        };
        vec![site(1, key_of_berlin), site(2, key_of(2))]
    };
    let send =
        |text: String| ask(rome, session, Request::SiteList { text: text.into_bytes() }).map(drop);
    let signed = |volume, version, key_of_berlin, by: u8| {
        let list = SiteList { volume, version, sites: sites(key_of_berlin) };
        list.sign(&key(by).signing_key())
    };
    let before = rome.sites();
    let good = signed(volume, 100, key_of(1), key_of(0));
    for (wrong, code) in [
        (signed(volume, 100, key_of(1), key_of(1)), Code::Invalid),
        (signed([9; 16], 100, key_of(1), key_of(0)), Code::Invalid),
        (signed(volume, 100, 99, key_of(0)), Code::Invalid),
        (good[..good.len() - 1].to_owned(), Code::Invalid),
        (String::new(), Code::Invalid),
    ] {
        assert_eq!(send(wrong.clone()), Err(code), "{wrong}");
        assert_eq!(rome.sites(), before);
    }
    assert_eq!(send(good.clone()), Ok(()));
    assert_eq!(send(good), Ok(()), "it is repeated");
    assert_eq!(send(signed(volume, 99, key_of(1), key_of(0))), Err(Code::Stale));
    // Only sites have lists, and the first one takes none.
    let text = signed(volume, 101, key_of(1), key_of(0)).into_bytes();
    let request = Request::SiteList { text };
    let by_client = ask(rome, client(rome), request.clone());
    assert_eq!(by_client.err(), Some(Code::AccessDenied));
    let first = &three.servers[0];
    let peer = first.session_service().admit_site(&public(key_of(1)), None).unwrap();
    let session = begin(&*first.session_service(), peer);
    assert_eq!(ask(first, session, request).err(), Some(Code::Invalid));
}

#[test]
fn a_site_that_has_nothing_leaves() {
    let three = Three::new();
    let [first, berlin, rome] = &three.servers;
    assert_eq!(first.leave_volume(), Err(LeaveError::Founder));
    let dir = three.make_dir(1, Handle::ROOT, "berlin").unwrap();
    three.make_dir(2, dir, "of rome").unwrap();
    lookup(rome, Handle::ROOT, "berlin").unwrap();
    lookup(rome, dir, "of rome").unwrap();
    let refused = rome.leave_volume().unwrap_err();
    assert_eq!(refused.to_string(), "this site has folders: /berlin/of rome");
    // It goes on.
    three.make_dir(2, Handle::ROOT, "second").unwrap();
    three.remove_dir(2, Handle::ROOT, "second").unwrap();
    three.remove_dir(2, dir, "of rome").unwrap();
    rome.leave_volume().unwrap();
    assert_eq!(three.make_dir(2, Handle::ROOT, "late").err(), Some(Code::ReadOnly));
    wait_for("all have heard it", || {
        [first, berlin].iter().all(|server| server.sites().iter().all(|site| site.site != 2))
    });
    let peer = SitePeer { key: public(key_of(2)), site: 2 };
    for server in [first, berlin] {
        assert!(!server.session_service().is_site(&peer), "its sessions end");
        let other = SitePeer { key: public(key_of(1)), site: 1 };
        assert!(server.session_service().is_site(&other));
    }
    let says = refusal(first.session_service().admit_site(&public(key_of(2)), None));
    assert_eq!(says, "the site has left the volume");
    assert!(berlin.session_service().admit_site(&public(key_of(2)), None).is_err());
    // Its number is not given again, and its ticket is void.
    assert_eq!(first.invite_site("rome", public(9), FAR), Ok(3));
    let volume = first.session_service().served().volume;
    let again = sentence(ticket_of(2), volume, 2, 9);
    assert!(first.session_service().admit_site(&public(9), Some(&invited(&again))).is_err());
    let twin = first.invite_site("berlin", public(9), FAR);
    assert_eq!(twin, Err(InviteError::NameTaken(1)));
    drop(three.routes);
    let [_first, _berlin, rome] = three.servers;
    drop(Arc::into_inner(rome).expect("the only reference"));
    let again = Server::start(&three.folder.path().join("rome"), options());
    let refused = again.err().expect("a folder of no volume");
    assert!(refused.to_string().contains("has left its volume: remove it"));
}

/// The founder is away: the two others have each other.
#[test]
fn two_sites_work_on_without_the_first_one() {
    let three = Three::new();
    let berlin = three.make_dir(1, Handle::ROOT, "berlin").unwrap();
    let rome = three.make_dir(2, berlin, "rome").unwrap();
    for server in &three.servers {
        lookup(server, Handle::ROOT, "berlin").unwrap();
        lookup(server, berlin, "rome").unwrap();
    }
    three.cuts[0].store(true, Ordering::Release);
    for server in &three.servers[1..] {
        assert_eq!(lookup(server, Handle::ROOT, "berlin"), Ok(berlin));
        assert_eq!(lookup(server, berlin, "rome"), Ok(rome));
        assert_eq!(parent(server, rome), Ok(berlin));
    }
    let deep = three.make_dir(1, rome, "deep").unwrap();
    assert_eq!(lookup(&three.servers[2], rome, "deep"), Ok(deep));
    three.remove_dir(2, rome, "deep").unwrap();
}

/// The root of a volume that is shared.
const ROOT: u8 = 61;

/// Three sites that have heard of a root, each with a directory.
struct Shared {
    three: Three,
    volume: [u8; 16],
    dirs: [Handle; 3],
}

impl Shared {
    fn new() -> Self {
        let three = Three::new();
        let volume = three.servers[0].session_service().served().volume;
        let roots = policy(&[Principal(public(ROOT))], &[]).unwrap();
        fs::write(three.folder.path().join("first/policy"), roots).unwrap();
        let dirs = [0, 1, 2].map(|site| {
            three.make_dir(site, Handle::ROOT, &format!("of {}", NAMES[site])).unwrap()
        });
        let shared = Self { three, volume, dirs };
        for site in 0..3 {
            wait_for("the roots have come", || shared.admits(site, 70));
        }
        shared
    }

    /// Returns whether a site admits the guest with this key.
    fn admits(&self, site: usize, to: u8) -> bool {
        let grant = Grant::to_read(self.volume, self.dirs[site].ino.raw());
        let credential = Credential {
            comment: &[],
            licensee: Principal(public(to)),
            conditions: &grant.conditions(),
        };
        let text = credential.sign(&key(ROOT).signing_key()).unwrap();
        admit(&self.three.servers[site], to, &text).is_ok()
    }

    /// Takes a key back at a site. Returns the names of the sites that were not reached.
    fn revoke(&self, at: usize, who: u8) -> Vec<String> {
        let signer = key(ROOT).signing_key();
        let subject = Principal(public(who));
        let sentence = Revocation::sign(self.volume, subject, 7, &signer).into_bytes();
        let request = Request::Revoke { sentence, chain: Vec::new() };
        match ask(&self.three.servers[at], SessionId::DIRECT, request) {
            Ok(Reply::Unreached { away, refused }) if refused.is_empty() => away,
            other => panic!("{other:?}"),
        }
    }

    fn cut(&self, site: usize, is_cut: bool) {
        self.three.cuts[site].store(is_cut, Ordering::Release);
    }
}

/// What one of three takes back is in force at all, and who cannot be reached is named.
#[test]
fn what_one_of_three_takes_back_is_in_force_at_all() {
    let shared = Shared::new();
    for at in 0..3 {
        let who = 80 + at as u8;
        assert_eq!(shared.revoke(at, who), Vec::<String>::new());
        for site in 0..3 {
            assert!(!shared.admits(site, who), "{at} {site}");
        }
    }
    // The third one cannot be reached, from the second one.
    shared.cut(2, true);
    assert_eq!(shared.revoke(1, 90), ["rome"]);
    assert!(!shared.admits(0, 90) && !shared.admits(1, 90));
    // It asks by itself.
    wait_for("the third one has it", || !shared.admits(2, 90));
    // The first one is away, for the second one: it holds there alone, today.
    shared.cut(2, false);
    shared.cut(0, true);
    let mut names = shared.revoke(1, 91);
    names.sort();
    assert_eq!(names, ["first", "rome"]);
    assert!(!shared.admits(1, 91));
    shared.cut(0, false);
    for site in [0, 2] {
        wait_for("all have it", || !shared.admits(site, 91));
    }
}

/// Each waits for the other one, and is asked by it meanwhile.
#[test]
fn two_offices_pass_on_at_once_what_they_take_back() {
    let shared = Shared::new();
    for round in 0..10_u8 {
        let keys = [100 + round, 120 + round, 140 + round];
        thread::scope(|scope| {
            for (at, own) in [(1, keys[0]), (2, keys[1])] {
                let shared = &shared;
                scope.spawn(move || {
                    for who in [own, keys[2]] {
                        assert_eq!(shared.revoke(at, who), Vec::<String>::new());
                    }
                });
            }
        });
        for (site, who) in (0..3).flat_map(|site| keys.map(|who| (site, who))) {
            assert!(!shared.admits(site, who), "{site} {who}");
        }
    }
    // The first one is away, and gets what both have taken back meanwhile.
    shared.cut(0, true);
    for who in 0..20 {
        for (at, who) in [(1, 160 + who), (2, 180 + who)] {
            assert_eq!(shared.revoke(at, who).len(), 2);
        }
    }
    shared.cut(0, false);
    for (site, who) in (0..3).flat_map(|site| (160..200).map(move |who| (site, who))) {
        wait_for("all have all", || !shared.admits(site, who));
    }
}

/// Bytes of a file of the first site that are at berlin: rome asks the first site.
#[test]
fn a_third_site_reads_and_writes_what_stays_at_the_second() {
    let three = Three::with(&options);
    let [first, berlin, rome] = &three.servers;
    let bytes = content(1, 300_000);
    write_new(berlin, "file", &bytes);
    assert_eq!(berlin.stays().files, 1);
    for server in [rome, first, berlin] {
        assert!(read(server, "file").unwrap() == bytes);
    }
    let node = lookup(rome, Handle::ROOT, "file").unwrap();
    assert_eq!(first.bytes_at(node).map(|at| at.site()), Some(1));
    let request = Request::Open { node, flags: OpenFlags::WRITE, open: OpenId(3) };
    ask(rome, SessionId::DIRECT, request).unwrap();
    let write = Request::Write { open: OpenId(3), offset: 1, flags: WriteFlags::NONE };
    ask_with(rome, SessionId::DIRECT, write, b"of rome").unwrap();
    ask(rome, SessionId::DIRECT, Request::Flush { open: OpenId(3), owner: None }).unwrap();
    ask(rome, SessionId::DIRECT, Request::Release { open: OpenId(3) }).unwrap();
    assert_eq!(first.bytes_at(node), None);
    let changed = [&bytes[..1], b"of rome", &bytes[8..]].concat();
    for server in [rome, first, berlin] {
        assert!(read(server, "file").unwrap() == changed);
    }
}
