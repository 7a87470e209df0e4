//! Searches of guests: each finds what its guest could find in its own mount, and nothing tells
//! what is outside.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pelago_keynote::{Grant, SharedName, SharedObject};
use pelago_wire::{
    Asker, Code, Context, Handle, InodeId, NewMode, OpenFlags, Reply, Request, Search, SearchAt,
    SearchPage, SearchPlace, SetAttr, TagPage, Tags, Time, XattrFlags, limits,
};

use super::world::{Guest, World, key};
use crate::harness::requests::{self, next_open};
use crate::harness::rig::name;
use crate::harness::until;

/// The process that a hostile client claims.
fn root() -> Asker {
    Asker { groups: vec![0], reads_all: true }
}

fn page(
    world: &World,
    guest: &Guest,
    dir: Handle,
    query: &str,
    hits: u32,
    after: Option<SearchPlace>,
) -> Result<SearchPage, Code> {
    let search = Search { query: query.as_bytes().to_vec(), hits, after, asker: root() };
    match world.ask(guest, Request::Search { dir, search })? {
        Reply::Found(page) => Ok(page),
        other => panic!("{other:?}"),
    }
}

/// An answer, but for its times: the paths of each page, and the files that were examined for it.
type Pages = Vec<(Vec<String>, u64)>;

fn pages(world: &World, guest: &Guest, dir: Handle, query: &str, hits: u32) -> Pages {
    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let found = page(world, guest, dir, query, hits, after).unwrap();
        let paths = found.hits.into_iter().map(|hit| String::from_utf8(hit.path).unwrap());
        pages.push((paths.collect(), found.examined));
        after = found.after;
        if after.is_none() {
            return pages;
        }
    }
}

/// Returns the paths that a query finds.
fn paths(world: &World, guest: &Guest, dir: Handle, query: &str) -> BTreeSet<String> {
    pages(world, guest, dir, query, 100).into_iter().flat_map(|page| page.0).collect()
}

fn of(paths: &[&str]) -> BTreeSet<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

fn tags(
    world: &World,
    guest: &Guest,
    dir: Handle,
    key: Option<&str>,
    prefix: &str,
) -> Result<TagPage, Code> {
    let key = key.map(|key| key.as_bytes().to_vec());
    let tags = Tags { key, prefix: prefix.as_bytes().to_vec(), asker: root() };
    match world.ask(guest, Request::Tags { dir, tags })? {
        Reply::Tagged(page) => Ok(page),
        other => panic!("{other:?}"),
    }
}

fn parts(page: TagPage) -> Vec<String> {
    page.parts.into_iter().map(|part| String::from_utf8(part).unwrap()).collect()
}

/// A shared directory and a secret one, with the same files and tags.
struct Place {
    world: World,
    shared: Handle,
    sub: Handle,
    secret: Handle,
}

impl Place {
    fn new() -> Self {
        let world = World::new();
        let shared = world.make_dir(Handle::ROOT, "shared");
        let sub = world.make_dir(shared, "sub");
        let secret = world.make_dir(Handle::ROOT, "secret");
        let place = Self { world, shared, sub, secret };
        place.put(shared, "plan", b"to the moon", &[("project", "apollo")]);
        place.put(sub, "note", b"and back", &[("project", "apollo"), ("state", "done")]);
        place.put(secret, "plan", b"the moon is ours", &[("project", "zeus"), ("hidden", "x")]);
        place
    }

    fn put(&self, dir: Handle, text: &str, bytes: &[u8], tags: &[(&str, &str)]) -> Handle {
        let node = self.world.put(dir, text, bytes);
        for (key, value) in tags {
            let name = format!("user.tag.{key}").into_bytes();
            let value = value.as_bytes().to_vec();
            let flags = XattrFlags::Any;
            let set = Request::SetXattr { node, name, value, flags, kill_setgid: false };
            self.world.call(set).unwrap();
        }
        node
    }

    fn guest(&self) -> Guest {
        self.world.guest(2, self.shared.ino)
    }

    fn guest_for(&self, rights: &str) -> Guest {
        let rights = rights.parse().unwrap();
        let share = Grant { rights, ..self.world.to_read(self.shared.ino) };
        let text = self.world.signed(1, 4, &share);
        self.world.begin(self.world.admit(4, &[&text]).unwrap()).unwrap()
    }
}

#[test]
fn a_guest_finds_what_is_below_its_directory_by_paths_from_there() {
    let place = Place::new();
    let Place { world, shared, sub, .. } = &place;
    let guest = place.guest();
    let found = |query| paths(world, &guest, *shared, query);
    assert_eq!(found("name~*"), of(&["plan", "sub", "sub/note"]));
    assert_eq!(found("name=plan"), of(&["plan"]));
    assert_eq!(found("project=apollo"), of(&["plan", "sub/note"]));
    assert_eq!(found("project=zeus"), of(&[]));
    assert_eq!(found("text:moon"), of(&["plan"]));
    assert_eq!(found("kind=dir or state=done"), of(&["sub", "sub/note"]));
    assert_eq!(found("kind=dir mtime<7d"), of(&["sub"]));
    assert_eq!(found("kind=dir mtime>7d"), of(&[]));
    assert_eq!(paths(world, &guest, *sub, "size<1M"), of(&["note"]));
    let whole = pages(world, &guest, *shared, "name~*", 100);
    assert_eq!(whole.iter().map(|page| page.1).sum::<u64>(), 3, "names of its directory");
    let single = pages(world, &guest, *shared, "name~*", 1);
    let in_pages: Vec<&String> = single.iter().flat_map(|page| &page.0).collect();
    assert_eq!(in_pages, whole.iter().flat_map(|page| &page.0).collect::<Vec<_>>());
}

/// Neither the files nor their order, their pages, counts or places depend on what is outside, or
/// on an index of the whole volume.
#[test]
fn no_part_of_an_answer_depends_on_what_is_outside() {
    let place = Place::new();
    let Place { world, shared, secret, .. } = &place;
    let guest = place.guest();
    for number in 0..20 {
        let name = format!("more{number}");
        place.put(*shared, &name, b"moon", &[("project", "apollo")]);
    }
    let queries = ["name~*", "project=apollo", "text:moon", "hidden=x", "project=apollo size>1M"];
    let all = || -> Vec<(Pages, Vec<SearchPlace>)> {
        let answer = |query: &&str| {
            let mut places = Vec::new();
            while let Some(next) = {
                let after = places.last().cloned();
                page(world, &guest, *shared, query, 7, after).unwrap().after
            } {
                places.push(next);
            }
            // The time of the first page differs.
            let now = Time { seconds: 0, nanos: 0 };
            let places = places.into_iter().map(|place| SearchPlace { now, ..place }).collect();
            (pages(world, &guest, *shared, query, 7), places)
        };
        queries.iter().map(answer).collect()
    };
    let of_tags = || {
        [None, Some("project"), Some("hidden")].map(|key| {
            let page = tags(world, &guest, *shared, key, "").unwrap();
            (page.more, parts(page))
        })
    };
    let before = (all(), of_tags());
    assert_eq!(before.1[0].1, ["project", "state"]);
    assert_eq!((&before.1[1].1[..], &before.1[2].1[..]), (&["apollo".to_owned()][..], &[][..]));
    for number in 0..300 {
        let name = format!("file{number}");
        let own = format!("own{number}");
        place.put(*secret, &name, b"moon", &[("project", "apollo"), (&own, "x")]);
    }
    assert_eq!((all(), of_tags()), before, "files outside");
    let of_owner = || {
        let search = Search { query: b"text:moon".to_vec(), hits: 2, after: None, asker: root() };
        match world.call(Request::Search { dir: Handle::ROOT, search }).unwrap() {
            Reply::Found(page) => page.after.unwrap().at,
            other => panic!("{other:?}"),
        }
    };
    until("the index has all", || matches!(of_owner(), SearchAt::Rank(_)));
    assert_eq!((all(), of_tags()), before, "an index");
    // A guest that has the place of another order learns nothing by it.
    let now = Time { seconds: 0, nanos: 0 };
    let others = [SearchAt::Rank(1), SearchAt::Node { ino: InodeId::from_raw(1), names: 0 }];
    for at in others {
        let after = Some(SearchPlace { now, at });
        let told = page(world, &guest, *shared, "text:moon", 7, after);
        assert_eq!(told, Err(Code::Invalid));
    }
}

/// A place is a path, which a hostile client may invent.
#[test]
fn an_invented_place_leads_nowhere_outside() {
    let place = Place::new();
    let Place { world, shared, secret, .. } = &place;
    world.make_dir(*secret, "deep");
    let guest = place.guest();
    let now = Time { seconds: 0, nanos: 0 };
    for path in ["../secret/plan", "..", "/", "", "sub/../../secret", "secret/plan", "plan/x"] {
        let at = SearchAt::Path(path.as_bytes().to_vec());
        let after = Some(SearchPlace { now, at });
        let found = page(world, &guest, *shared, "name~*", 100, after).unwrap();
        let inside = of(&["plan", "sub", "sub/note"]);
        for hit in found.hits {
            assert!(inside.contains(str::from_utf8(&hit.path).unwrap()), "{path}: {hit:?}");
        }
        assert!(found.examined <= 3 && found.after.is_none(), "{path}");
    }
}

#[test]
fn a_directory_that_moves_out_between_two_pages_is_not_on_the_next_one() {
    let place = Place::new();
    let Place { world, shared, sub, secret } = &place;
    let guest = place.guest();
    for number in 0..20 {
        place.put(*sub, &format!("f{number}"), b"x", &[]);
    }
    let first = page(world, &guest, *shared, "name~f*", 3, None).unwrap();
    assert_eq!(first.hits.len(), 3);
    world.rename(*shared, *secret, "sub");
    let next = page(world, &guest, *shared, "name~f*", 100, first.after).unwrap();
    assert!(next.hits.is_empty() && next.after.is_none(), "{next:?}");
    assert_eq!(page(world, &guest, *sub, "name~*", 100, None), Err(Code::Stale));
    assert_eq!(tags(world, &guest, *sub, None, ""), Err(Code::Stale));
    world.rename(*secret, *shared, "sub");
    assert_eq!(paths(world, &guest, *sub, "name~f*").len(), 20);
}

/// A search finds no file that the guest may not read, nor by its rights to another directory.
#[test]
fn a_search_needs_the_right_to_read() {
    let place = Place::new();
    let Place { world, shared, secret, .. } = &place;
    let other = world.guest(3, secret.ino);
    assert_eq!(paths(world, &other, *secret, "name~*"), of(&["plan"]));
    assert_eq!(page(world, &other, *shared, "name~*", 9, None), Err(Code::Stale));
    let writer = place.guest_for("wcd");
    assert_eq!(page(world, &writer, *shared, "name~*", 9, None), Err(Code::AccessDenied));
    assert_eq!(tags(world, &writer, *shared, None, ""), Err(Code::AccessDenied));
    // Two shares: each by itself.
    let chain = [world.credential(5, shared.ino), world.credential(5, secret.ino)];
    let both = world.begin(world.admit(5, &[&chain[0]]).unwrap()).unwrap();
    let attach = Request::Attach { chain: vec![chain[1].clone().into_bytes()] };
    world.ask(&both, attach).unwrap();
    assert_eq!(paths(world, &both, *shared, "name=plan"), of(&["plan"]));
    assert_eq!(paths(world, &both, *secret, "name=plan"), of(&["plan"]));
    assert_eq!(page(world, &both, Handle::ROOT, "name=plan", 9, None), Err(Code::Stale));
}

/// By a share of the whole volume, but for one file and one directory.
#[test]
fn what_a_condition_leaves_out_is_neither_found_nor_examined() {
    let place = Place::new();
    let Place { world, shared, sub, .. } = &place;
    let hidden = place.put(*shared, "hidden", b"moon", &[("code", "a")]);
    let below = world.make_dir(*shared, "below");
    place.put(below, "deep", b"moon", &[("code", "b")]);
    let guest_of = |test: &str| {
        let conditions = format!("app_domain == \"pelago\" && right == \"r\" && {test};");
        let text = world.written(1, 6, &conditions);
        world.begin(world.admit(6, &[&text]).unwrap()).unwrap()
    };
    let test =
        format!("object != \"{:x}\" && object != \"{:x}\"", hidden.ino.raw(), below.ino.raw());
    let guest = guest_of(&test);
    let all = pages(world, &guest, *shared, "name~*", 100);
    let found: BTreeSet<String> = all.iter().flat_map(|page| page.0.clone()).collect();
    assert_eq!(found, of(&["plan", "sub", "sub/note"]));
    assert_eq!(all.iter().map(|page| page.1).sum::<u64>(), 3);
    assert_eq!(parts(tags(world, &guest, *shared, None, "").unwrap()), ["project", "state"]);
    assert_eq!(page(world, &guest, below, "name~*", 9, None), Err(Code::Stale));
    let by_name = guest_of("name != \"note\" && name != \"deep\"");
    let found = paths(world, &by_name, *shared, "name~*");
    assert_eq!(found, of(&["plan", "hidden", "sub", "below"]));
    assert!(paths(world, &by_name, *sub, "name~*").is_empty());
}

/// A guest may build long chains of its own, each decision by which takes long.
#[test]
fn the_work_of_a_page_has_that_of_decisions_by_long_chains() {
    const FILES: usize = 700;
    let place = Place::new();
    let Place { world, shared, .. } = &place;
    for number in 0..FILES {
        world.put(*shared, &format!("f{number}"), b"");
    }
    let file = world.put(*shared, "file", b"");
    let grant = Grant { rights: "rxg".parse().unwrap(), ..world.to_read(shared.ino) };
    let of_file = Grant { object: SharedObject::File(file.ino.raw()), ..grant };
    let chain = |links: u8| -> Vec<Vec<u8>> {
        let first = 20 - links;
        let by = |at| if at == first { 1 } else { at };
        (first..20).map(|at| world.signed(by(at), at + 1, &of_file).into_bytes()).collect()
    };
    let count = |links: u8| {
        let folder = world.credential(20, shared.ino);
        let guest = world.begin(world.admit(20, &[&folder]).unwrap()).unwrap();
        world.ask(&guest, Request::Attach { chain: chain(links) }).unwrap();
        let pages = pages(world, &guest, *shared, "name=none", 100);
        assert_eq!(pages.iter().map(|page| page.1).sum::<u64>(), FILES as u64 + 4);
        pages.len()
    };
    assert_eq!((count(1), count(4)), (1, 1));
    assert!(count(15) > 1, "a decision is worth some thirty names");
}

/// A share of a name grants no directory to search in, and does not widen another share.
#[test]
fn a_share_of_a_file_is_searched_nowhere() {
    let place = Place::new();
    let Place { world, shared, secret, .. } = &place;
    let plan = SharedName::new(b"plan").unwrap();
    let object = SharedObject::Name { directory: secret.ino.raw(), name: plan };
    let named = world.signed(1, 7, &Grant { object, ..world.to_read(secret.ino) });
    let guest = world.begin(world.admit(7, &[&named]).unwrap()).unwrap();
    let file = world.lookup(&guest, *secret, "plan").unwrap().handle;
    assert_eq!(page(world, &guest, *secret, "name~*", 9, None), Err(Code::Stale));
    assert_eq!(page(world, &guest, file, "name~*", 9, None), Err(Code::NotDirectory));
    let folder = world.credential(7, shared.ino).into_bytes();
    world.ask(&guest, Request::Attach { chain: vec![folder] }).unwrap();
    assert_eq!(paths(world, &guest, *shared, "name~*"), of(&["plan", "sub", "sub/note"]));
    assert_eq!(page(world, &guest, *secret, "name~*", 9, None), Err(Code::Stale));
}

/// The modes decide for the user to whom the key above it is bound, whatever its client claims.
#[test]
fn a_guest_searches_as_the_user_of_the_key_above_it() {
    let place = Place::new();
    let Place { world, shared, sub, .. } = &place;
    fs::write(world.file("keys"), format!("{} alice user=5002\n", key(1).public())).unwrap();
    let guest = place.guest();
    let file = world.lookup(&guest, *shared, "plan").unwrap().handle;
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    world.call(Request::SetAttr { node: file, open: None, set }).unwrap();
    until("the list is read", || world.open(&guest, file) == Err(Code::AccessDenied));
    assert_eq!(paths(world, &guest, *shared, "name~*"), of(&["sub", "sub/note"]));
    let closed = SetAttr { mode: Some(0o711), ..SetAttr::default() };
    world.call(Request::SetAttr { node: *sub, open: None, set: closed }).unwrap();
    assert!(paths(world, &guest, *shared, "name~*").is_empty());
    assert!(parts(tags(world, &guest, *shared, None, "").unwrap()).is_empty());
    assert_eq!(page(world, &guest, *sub, "name~*", 9, None), Err(Code::AccessDenied));
    // Its client may claim any user, in the request and beside it.
    let search = Search { query: b"name~*".to_vec(), hits: 9, after: None, asker: root() };
    let request = Request::Search { dir: *shared, search };
    let claims = Context { uid: 0, gid: 0, ..guest.context(&request) };
    match world.ask_as(&claims, request).unwrap() {
        Reply::Found(page) => assert_eq!((page.hits.len(), page.examined), (0, 0)),
        other => panic!("{other:?}"),
    }
}

/// Owners are users of the server, and are not shown to guests.
#[test]
fn a_query_for_owners_is_not_supported() {
    let place = Place::new();
    let Place { world, shared, .. } = &place;
    let guest = place.guest();
    for query in ["owner=0", "owner=root", "not owner=nobody-of-this-name", "name=a or owner=0"] {
        let told = page(world, &guest, *shared, query, 9, None);
        assert_eq!(told, Err(Code::NotSupported), "{query}");
    }
    assert_eq!(page(world, &guest, *shared, "size>many", 9, None), Err(Code::Invalid));
}

#[test]
fn tags_are_those_below_the_directory() {
    let place = Place::new();
    let Place { world, shared, sub, .. } = &place;
    let guest = place.guest();
    let told = |dir, key, prefix| parts(tags(world, &guest, dir, key, prefix).unwrap());
    assert_eq!(told(*shared, None, ""), ["project", "state"]);
    assert_eq!(told(*shared, None, "pro"), ["project"]);
    assert_eq!(told(*shared, Some("project"), ""), ["apollo"]);
    assert_eq!(told(*shared, Some("project"), "z"), [""; 0]);
    assert_eq!(told(*shared, Some("hidden"), ""), [""; 0]);
    assert_eq!(told(*sub, Some("state"), "d"), ["done"]);
    assert_eq!(tags(world, &guest, *shared, Some("a b"), ""), Err(Code::Invalid));
    for number in 0..=limits::TAG_PARTS {
        place.put(*sub, &format!("f{number}"), b"", &[("number", &format!("{number:04}"))]);
    }
    let page = tags(world, &guest, *shared, Some("number"), "").unwrap();
    assert!(page.more && page.parts.len() == limits::TAG_PARTS);
    assert_eq!((&page.parts[0][..], &page.parts[255][..]), (&b"0000"[..], &b"0255"[..]));
}

#[test]
fn a_guest_whose_share_was_taken_back_finds_nothing() {
    let place = Place::new();
    let Place { world, shared, .. } = &place;
    let text = world.until(shared.ino, 2);
    let guest = world.begin(world.admit(2, &[&text]).unwrap()).unwrap();
    let first = page(world, &guest, *shared, "name~*", 1, None).unwrap();
    until("it has ended", || {
        page(world, &guest, *shared, "name~*", 1, first.after.clone()) == Err(Code::Stale)
    });
    assert_eq!(tags(world, &guest, *shared, None, ""), Err(Code::Stale));
}

/// A directory that moves anywhere in the volume ends a page and no search.
#[test]
fn moves_of_other_directories_do_not_keep_a_guest_from_searching() {
    const FILES: usize = 400;
    let place = Place::new();
    let Place { world, shared, sub, secret } = &place;
    for number in 0..FILES {
        place.put(*sub, &format!("f{number}"), b"moon", &[("number", "one")]);
    }
    let there = world.make_dir(*secret, "there");
    world.make_dir(*secret, "goes");
    let guest = place.guest();
    let is_over = AtomicBool::new(false);
    let moves = AtomicUsize::new(0);
    let search = || -> Result<usize, Code> {
        let mut found = 0;
        let mut after = None;
        loop {
            let page = page(world, &guest, *shared, "name~f* text:moon", 100, after)?;
            found += page.hits.len();
            after = page.after;
            if after.is_none() {
                return Ok(found);
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                world.rename(*secret, there, "goes");
                world.rename(there, *secret, "goes");
                moves.fetch_add(2, Ordering::Relaxed);
            }
        });
        // A panic here would leave the other thread running.
        let mut told = Vec::new();
        while told.len() < 5 || moves.load(Ordering::Relaxed) < 100 {
            told.push(search());
        }
        let of_tags = tags(world, &guest, *shared, Some("number"), "").map(parts);
        is_over.store(true, Ordering::Relaxed);
        assert!(told.iter().all(|found| *found == Ok(FILES)), "{told:?}");
        assert_eq!(of_tags, Ok(vec!["one".to_owned()]));
    });
}

#[test]
fn a_text_that_was_outside_is_not_found() {
    let place = Place::new();
    check_secrets(&place, place.shared, "moving");
}

#[test]
fn a_text_that_was_outside_with_its_directory_is_not_found() {
    let place = Place::new();
    let moving = place.world.make_dir(place.shared, "moving");
    check_secrets(&place, moving, "file");
}

/// A text that is written while the file is outside, by itself or with its directory, and removed
/// before it is back, is never found.
fn check_secrets(place: &Place, dir: Handle, text: &str) {
    const TIME: Duration = Duration::from_secs(3);
    // More than the inline limit: such bytes are read from a file that changes.
    const BYTES: usize = 300_000;
    let Place { world, shared, secret, .. } = place;
    let file = world.put(dir, text, &vec![b'p'; BYTES]);
    let open = next_open();
    let flags = OpenFlags::READ_WRITE;
    world.call(Request::Open { node: file, flags, open }).unwrap();
    let guest = place.guest();
    let is_over = AtomicBool::new(false);
    let mut errors = Vec::new();
    let [mut seen, mut hidden, mut secrets] = [0, 0, 0];
    thread::scope(|scope| {
        let mover = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                world.rename(*shared, *secret, "moving");
                requests::write(&world.server, open, 0, b"treasure ").unwrap();
                requests::write(&world.server, open, 0, b"pppppppp ").unwrap();
                world.rename(*secret, *shared, "moving");
            }
        });
        let began = Instant::now();
        // A panic here would leave the other thread running.
        while began.elapsed() < TIME && !mover.is_finished() && secrets == 0 {
            // It reads the text, and then finds the name.
            let query = "text:treasure or name=moving";
            match page(world, &guest, *shared, query, 100, None) {
                Ok(page) if page.hits.is_empty() => hidden += 1,
                Ok(_) => seen += 1,
                Err(code) => errors.push(code),
            }
            match page(world, &guest, *shared, "text:treasure", 100, None) {
                Ok(page) => secrets += page.hits.len(),
                Err(code) => errors.push(code),
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("{seen} times there, {hidden} times not, {} errors", errors.len());
    assert_eq!(secrets, 0, "a guest has found a secret");
    assert!(errors.iter().all(|code| *code == Code::Busy), "{errors:?}");
    assert!(seen > 0 && hidden > 0, "both places were seen");
}

/// A new file of a guest is found by it too: a search has every change up to its begin.
#[test]
fn what_a_guest_has_made_is_found() {
    let place = Place::new();
    let Place { world, shared, .. } = &place;
    let guest = place.guest_for("rwc");
    let mode = NewMode::exactly(0o755);
    world.ask(&guest, Request::MakeDir { dir: *shared, name: name("made"), mode }).unwrap();
    assert_eq!(paths(world, &guest, *shared, "name=made"), of(&["made"]));
}
