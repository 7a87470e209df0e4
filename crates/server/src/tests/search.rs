//! Searches, through the router.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pelago_search::{Again, BuildIndex, Built};
use pelago_store::key;
use pelago_store::table::{Batch, Table as _};
use pelago_wire::{
    Asker, Code, Context, Error, Handle, NewMode, Reply, Request, Search, SearchAt, SearchPage,
    SearchPlace, SetAttr, SetTime, Time, XattrFlags, limits,
};

use crate::testing::{BOTH, ROOT, Rig, at, name};

pub(super) const ANN: u32 = 1000;

/// A user who searches.
#[derive(Debug, Clone, Copy)]
pub(super) struct User<'a> {
    pub(super) uid: u32,
    pub(super) groups: &'a [u32],
}

pub(super) const SUPERUSER: User<'_> = User { uid: 0, groups: &[] };
pub(super) const ANN_ALONE: User<'_> = User { uid: ANN, groups: &[] };

/// Asks for a page as a user.
pub(super) fn page(
    rig: &Rig,
    user: User<'_>,
    dir: Handle,
    query: impl AsRef<[u8]>,
    hits: u32,
    after: Option<SearchPlace>,
) -> Result<SearchPage, Code> {
    let User { uid, groups } = user;
    let asker = Asker { groups: groups.to_vec(), reads_all: uid == 0 };
    let search = Search { query: query.as_ref().to_vec(), hits, after, asker };
    let context = Context::direct(uid, uid);
    match rig.call_as(&context, Request::Search { dir, search })? {
        Reply::Found(page) => Ok(page),
        other => panic!("{other:?}"),
    }
}

/// Returns all paths that a query finds, page by page, in the order of the answer.
fn paths_in(rig: &Rig, user: User<'_>, dir: Handle, query: &str, hits: u32) -> Vec<String> {
    let mut paths = Vec::new();
    let mut after = None;
    loop {
        let found = page(rig, user, dir, query, hits, after).unwrap();
        assert!(found.hits.len() <= hits as usize);
        paths.extend(found.hits.into_iter().map(|hit| String::from_utf8(hit.path).unwrap()));
        after = match found.after {
            Some(place) => Some(place),
            None => return paths,
        };
    }
}

/// Returns the paths that a query finds in the whole tree for root, sorted.
pub(super) fn found(rig: &Rig, query: &str) -> Vec<String> {
    let mut paths = paths_in(rig, SUPERUSER, ROOT, query, 100);
    paths.sort();
    paths
}

pub(super) fn make_dir(rig: &Rig, dir: Handle, text: &str, mode: u16) -> Handle {
    let request = Request::MakeDir { dir, name: name(text), mode: NewMode::exactly(mode) };
    match rig.call(request).unwrap() {
        Reply::Entry(entry) => entry.handle,
        other => panic!("{other:?}"),
    }
}

pub(super) fn move_to(rig: &Rig, text: &str, dir: Handle, to: &str) {
    rig.call(Request::Rename {
        from_dir: ROOT,
        from: name(text),
        to_dir: dir,
        to: name(to),
        flags: pelago_wire::RenameFlags::NoReplace,
    })
    .unwrap();
}

pub(super) fn set_mode(rig: &Rig, node: Handle, mode: u16) {
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    rig.call(Request::SetAttr { node, open: None, set }).unwrap();
}

pub(super) fn tag(rig: &Rig, node: Handle, key: &str, value: &[u8]) {
    rig.call(Request::SetXattr {
        node,
        name: format!("user.tag.{key}").into_bytes(),
        value: value.to_vec(),
        flags: XattrFlags::Any,
        kill_setgid: false,
    })
    .unwrap();
}

/// A tree with a few files in three folders.
fn tree(rig: &Rig) -> (Handle, Handle) {
    let a = make_dir(rig, ROOT, "a", 0o755);
    let b = make_dir(rig, ROOT, "b", 0o700);
    let inner = make_dir(rig, a, "inner", 0o755);
    for (text, bytes) in [("one.txt", "coral reef"), ("two.md", "Coral and REEF"), ("three", "")] {
        let file = rig.file(text, bytes.as_bytes());
        set_mode(rig, file.handle, 0o644);
    }
    move_to(rig, "one.txt", a, "one.txt");
    move_to(rig, "two.md", inner, "two.md");
    move_to(rig, "three", b, "three");
    (a, b)
}

#[test]
fn each_kind_of_term_is_compared_with_rows_and_bytes() {
    let rig = Rig::new();
    let (a, _) = tree(&rig);
    let one = rig.file("tagged", &[b'x'; 10_000]);
    tag(&rig, one.handle, "project", b"reef");
    tag(&rig, a, "project", b"reef\0");
    assert_eq!(found(&rig, "name~*.txt"), ["a/one.txt"]);
    assert_eq!(found(&rig, "name=two.md"), ["a/inner/two.md"]);
    assert_eq!(found(&rig, "kind=dir"), ["a", "a/inner", "b"]);
    assert_eq!(found(&rig, "text:coral text:reef"), ["a/inner/two.md", "a/one.txt"]);
    assert_eq!(found(&rig, "text:\"reef and\" not name~*.txt"), ["a/inner/two.md"]);
    assert_eq!(found(&rig, "project=reef"), ["tagged"]);
    assert_eq!(found(&rig, "tag:project"), ["a", "tagged"]);
    assert_eq!(found(&rig, "size>9K or size=0 kind=file"), ["b/three", "tagged"]);
    assert_eq!(found(&rig, "mtime>1h"), Vec::<String>::new());
    assert_eq!(found(&rig, "owner=10 name=b"), ["b"]);
    let mut below = paths_in(&rig, SUPERUSER, a, "kind=file", 9);
    below.sort();
    assert_eq!(below, ["inner/two.md", "one.txt"]);
}

#[test]
fn size_and_times_of_open_files_are_those_of_now() {
    let rig = Rig::new();
    let (_, open) = rig.create("growing", BOTH);
    rig.write(open, 0, &[1; 3000]).unwrap();
    assert_eq!(found(&rig, "size=3000"), ["growing"]);
    rig.write(open, 3000, &[1; 30_000]).unwrap();
    assert_eq!(found(&rig, "size=33000"), ["growing"]);
    assert!(found(&rig, "size=3000").is_empty());
}

#[test]
fn pages_go_on_where_the_last_one_ended() {
    let rig = Rig::new();
    let dirs: Vec<_> = (0..4).map(|at| make_dir(&rig, ROOT, &format!("d{at}"), 0o755)).collect();
    for number in 0..40 {
        let text = format!("f{number}");
        rig.file(&text, b"");
        move_to(&rig, &text, dirs[number % 4], &text);
    }
    let whole = paths_in(&rig, SUPERUSER, ROOT, "not name=x", 4096);
    assert_eq!(whole.len(), 44);
    assert_eq!(whole.iter().collect::<BTreeSet<_>>().len(), 44, "each once");
    for hits in [1, 3, 7] {
        assert_eq!(paths_in(&rig, SUPERUSER, ROOT, "not name=x", hits), whole);
    }
    // A directory comes before what is in it.
    for (at, path) in whole.iter().enumerate() {
        let Some((dir, _)) = path.split_once('/') else { continue };
        assert!(whole[..at].iter().any(|above| above == dir), "{path}");
    }
}

#[test]
fn a_page_goes_on_although_its_place_is_gone() {
    let rig = Rig::new();
    let dir = make_dir(&rig, ROOT, "d", 0o755);
    for number in 0..20 {
        rig.file(&format!("f{number}"), b"");
    }
    rig.file("inside", b"");
    move_to(&rig, "inside", dir, "inside");
    let whole = paths_in(&rig, SUPERUSER, ROOT, "not name=x", 100);
    for cut in 1..whole.len() {
        let first = page(&rig, SUPERUSER, ROOT, "not name=x", cut as u32, None).unwrap();
        let place =
            SearchPlace { at: SearchAt::Path(b"d/gone/x".to_vec()), ..first.after.unwrap() };
        let rest = page(&rig, SUPERUSER, ROOT, "not name=x", 100, Some(place)).unwrap();
        assert!(rest.after.is_none());
    }
    // The whole directory is gone: all behind it is found.
    let at = whole.iter().position(|path| path == "d/inside").unwrap();
    let first = page(&rig, SUPERUSER, ROOT, "not name=x", at as u32 + 1, None).unwrap();
    rig.call(Request::Unlink { dir, name: name("inside") }).unwrap();
    rig.call(Request::RemoveDir { dir: ROOT, name: name("d") }).unwrap();
    let rest = page(&rig, SUPERUSER, ROOT, "not name=x", 100, first.after).unwrap();
    let rest: Vec<_> =
        rest.hits.iter().map(|hit| String::from_utf8(hit.path.clone()).unwrap()).collect();
    assert_eq!(rest, whole[at + 1..]);
}

#[test]
fn a_user_finds_only_what_that_user_may_read() {
    let rig = Rig::new();
    let (a, b) = tree(&rig);
    let all = |uid, groups| {
        let mut paths = paths_in(&rig, User { uid, groups }, ROOT, "not name=x", 100);
        paths.sort();
        paths
    };
    assert_eq!(all(ANN, &[]), ["a", "a/inner", "a/inner/two.md", "a/one.txt"]);
    assert_eq!(page(&rig, ANN_ALONE, b, "kind=file", 9, None).unwrap_err(), Code::AccessDenied);
    let one = rig.call(Request::Lookup { dir: a, name: name("one.txt") }).unwrap();
    let Reply::Entry(one) = one else { panic!("{one:?}") };
    set_mode(&rig, one.handle, 0o040);
    assert_eq!(all(ANN, &[]), ["a", "a/inner", "a/inner/two.md"]);
    let set = SetAttr { gid: Some(77), ..SetAttr::default() };
    rig.call(Request::SetAttr { node: one.handle, open: None, set }).unwrap();
    set_mode(&rig, one.handle, 0o040);
    assert!(all(ANN, &[5, 77]).contains(&"a/one.txt".to_owned()));
    // A directory that can be searched and not listed shows nothing.
    set_mode(&rig, a, 0o711);
    assert!(all(ANN, &[77]).is_empty());
    assert_eq!(all(0, &[]).len(), 6);
}

#[test]
fn what_an_asker_may_not_see_is_neither_counted_nor_cut() {
    let rig = Rig::new();
    let hidden = make_dir(&rig, ROOT, "hidden", 0o700);
    for number in 0..50 {
        let text = format!("h{number}");
        rig.file(&text, b"secret");
        move_to(&rig, &text, hidden, &text);
    }
    let open = rig.file("open", b"secret");
    set_mode(&rig, open.handle, 0o644);
    let found = page(&rig, ANN_ALONE, ROOT, "text:secret", 1, None).unwrap();
    assert_eq!(found.hits.len(), 1);
    assert!(found.examined <= 2, "only the two names of the root: {}", found.examined);
    let none = page(&rig, ANN_ALONE, ROOT, "name=h7", 1, None).unwrap();
    let nothing = page(&rig, ANN_ALONE, ROOT, "name=nothing", 1, None).unwrap();
    assert_eq!((none.hits, none.examined), (nothing.hits, nothing.examined));
}

#[test]
fn ages_count_from_the_first_page() {
    let rig = Rig::new();
    rig.file("f", b"");
    let later = Time { seconds: i64::MAX / 4, nanos: 0 };
    let place = SearchPlace { now: later, at: SearchAt::Path(b"!".to_vec()) };
    let behind = page(&rig, SUPERUSER, ROOT, "mtime>1000y", 9, Some(place.clone())).unwrap();
    let before = page(&rig, SUPERUSER, ROOT, "mtime>1000y", 9, None).unwrap();
    // The name of the place may have a hash before or behind that of the file.
    let looked = behind.examined as usize;
    assert_eq!((behind.hits.len(), before.hits.len()), (looked, 0));
}

#[test]
fn bad_requests_have_errors() {
    let rig = Rig::new();
    let file = rig.file("f", b"").handle;
    let ask = |dir, query: &str, at: Option<SearchAt>| {
        let after = at.map(|at| SearchPlace { now: Time::default(), at });
        page(&rig, SUPERUSER, dir, query, 9, after).map(|_| ())
    };
    assert_eq!(ask(ROOT, "size>", None), Err(Code::Invalid));
    assert_eq!(ask(ROOT, &"x".repeat(limits::QUERY_BYTES + 1), None), Err(Code::Invalid));
    assert_eq!(ask(file, "kind=file", None), Err(Code::NotDirectory));
    assert_eq!(ask(ROOT, "kind=file", Some(SearchAt::Rank(7))), Err(Code::Invalid));
    for place in [&b""[..], b"/", b"//", b"f/x", b"\xff\0"] {
        assert_eq!(ask(ROOT, "kind=file", Some(SearchAt::Path(place.to_vec()))), Ok(()));
    }
    rig.call(Request::MakeDir { dir: ROOT, name: name("d"), mode: NewMode::exactly(0o755) })
        .unwrap();
    let dir = rig.lookup("d").unwrap().handle;
    rig.call(Request::RemoveDir { dir: ROOT, name: name("d") }).unwrap();
    assert_eq!(ask(dir, "kind=file", None), Err(Code::Stale));
}

/// Returns what queries about tags find by the walk and, once tags are complete, by their rows.
fn by_walk_and_by_rows(rig: &Rig, queries: &[&str]) -> [Vec<Vec<String>>; 2] {
    let all = |hits| -> Vec<Vec<String>> {
        let paths = |query: &&str| {
            let mut paths = paths_in(rig, SUPERUSER, ROOT, query, hits);
            paths.sort();
            paths
        };
        queries.iter().map(paths).collect()
    };
    assert!(!rig.shard.tags_are_complete());
    let walked = all(100);
    rig.shard.set_tags_complete();
    let found = all(100);
    assert_eq!(all(1), found, "page by page");
    assert_eq!(all(3), found, "page by page");
    [walked, found]
}

#[test]
fn rows_of_tags_lead_to_the_same_files_as_the_walk() {
    let rig = Rig::new();
    let (a, b) = tree(&rig);
    for (number, text) in ["x", "y", "z", "linked", "moved"].iter().enumerate() {
        let file = rig.file(text, b"coral");
        tag(&rig, file.handle, "project", if number % 2 == 0 { b"reef" } else { b"wreck" });
        tag(&rig, file.handle, "number", &[number as u8, 0, 255]);
        tag(&rig, file.handle, "long", &[b'v'; 300]);
    }
    tag(&rig, a, "project", b"reef");
    move_to(&rig, "moved", b, "elsewhere");
    let linked = rig.lookup("linked").unwrap().handle;
    for (dir, text) in [(a, "l1"), (b, "l2"), (ROOT, "l3")] {
        rig.call(Request::Link { node: linked, dir, name: name(text) }).unwrap();
    }
    rig.unlink("z");
    let long = format!("long={}", "v".repeat(300));
    let queries = [
        "project=reef",
        "project=wreck",
        "tag:project",
        "tag:number not name=x",
        "project=reef or tag:number",
        "project=reef (name=x or name~*) kind=file",
        "tag:project text:coral",
        &long,
        "project=none",
        "not tag:project",
    ];
    let [walked, found] = by_walk_and_by_rows(&rig, &queries);
    for ((query, walked), found) in queries.iter().zip(walked).zip(found) {
        assert_eq!(found, walked, "{query}");
    }
    let paths = paths_in(&rig, SUPERUSER, ROOT, "project=wreck", 100);
    assert_eq!(paths.len(), 5, "each name of a file: {paths:?}");
    // What is looked at besides is not told.
    let page = page(&rig, SUPERUSER, ROOT, "project=reef name=x", 100, None).unwrap();
    assert_eq!((page.hits.len(), page.examined), (1, 1));
}

#[test]
fn a_user_finds_by_tags_only_what_that_user_may_read() {
    let rig = Rig::new();
    rig.shard.set_tags_complete();
    let (_, b) = tree(&rig);
    for (text, mode) in [("mine", 0o644), ("theirs", 0o600), ("hidden", 0o644)] {
        let file = rig.file(text, b"");
        tag(&rig, file.handle, "project", b"reef");
        set_mode(&rig, file.handle, mode);
    }
    move_to(&rig, "hidden", b, "hidden");
    assert_eq!(paths_in(&rig, ANN_ALONE, ROOT, "project=reef", 9), ["mine"]);
    assert_eq!(paths_in(&rig, SUPERUSER, ROOT, "project=reef", 9).len(), 3);
    assert_eq!(paths_in(&rig, SUPERUSER, b, "project=reef", 9), ["hidden"]);
}

#[test]
fn random_changes_leave_tags_that_lead_to_the_same_files_as_the_walk() {
    for seed in 0..24 {
        let rig = Rig::new();
        let (a, b) = tree(&rig);
        let mut numbers = pelago_random::Random::new(seed);
        let mut below = |limit: u64| numbers.below(limit);
        for _ in 0..120 {
            let dirs = [ROOT, a, b];
            let file = format!("r{}", below(6));
            let dir = dirs[below(3) as usize];
            let to = Request::Rename {
                from_dir: dir,
                from: name(&file),
                to_dir: dirs[below(3) as usize],
                to: name(&format!("r{}", below(6))),
                flags: pelago_wire::RenameFlags::Replace,
            };
            let node = match rig.call(Request::Lookup { dir, name: name(&file) }) {
                Ok(Reply::Entry(entry)) => entry.handle,
                _ => {
                    if rig.lookup(&file).is_err() {
                        rig.file(&file, b"");
                    }
                    continue;
                }
            };
            let dir_of_link = dirs[below(3) as usize];
            // Some of these fail, as they would for a program.
            match below(8) {
                0 => drop(rig.call(Request::Unlink { dir, name: name(&file) })),
                1 | 2 => drop(rig.call(to)),
                3 => {
                    let link = name(&format!("r{}", below(6)));
                    drop(rig.call(Request::Link { node, dir: dir_of_link, name: link }));
                }
                4 => {
                    let key = format!("user.tag.k{}", below(2)).into_bytes();
                    drop(rig.call(Request::RemoveXattr { node, name: key }));
                }
                _ => {
                    let value = [b'0' + below(2) as u8];
                    tag(&rig, node, &format!("k{}", below(2)), &value);
                }
            }
        }
        let queries = ["k0=0", "k0=1", "k1=0 k0=1", "tag:k1", "k0=0 or k1=1", "tag:k0 not k1=0"];
        let [walked, found] = by_walk_and_by_rows(&rig, &queries);
        assert_eq!(found, walked, "seed {seed}");
    }
}

/// Works once, beside group commits: an index is committed once the number of its commit is safe.
pub(super) fn work(rig: &Rig, worker: &mut BuildIndex) -> Result<Built, Error> {
    rig.commit.run().unwrap();
    let has_ended = AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| {
            while !has_ended.load(Ordering::Acquire) {
                rig.commit.run().unwrap();
            }
        });
        let done = worker.work();
        has_ended.store(true, Ordering::Release);
        done
    })
}

/// The worker of the search index, without its thread.
pub(super) struct Indexer<'a> {
    pub(super) rig: &'a Rig,
    pub(super) worker: BuildIndex,
}

impl<'a> Indexer<'a> {
    /// Asks for an index, and builds it.
    pub(super) fn new(rig: &'a Rig) -> Self {
        let mut indexer = Self::not_built(rig);
        indexer.catch_up();
        indexer
    }

    /// Asks for an index.
    pub(super) fn not_built(rig: &'a Rig) -> Self {
        rig.shard.set_tags_complete();
        assert!(rig.router.index().names().is_none(), "the first search asks for it");
        let index = Arc::clone(rig.router.index());
        let shard = Arc::clone(&rig.shard);
        let content = Arc::clone(&rig.content);
        let durability = Arc::clone(&rig.durability);
        Self { rig, worker: BuildIndex::new(index, shard, content, durability) }
    }

    /// Works until there is nothing more to do.
    pub(super) fn catch_up(&mut self) {
        loop {
            if work(self.rig, &mut self.worker).unwrap().again != Again::Soon {
                break;
            }
        }
        assert!(self.rig.router.index().texts().is_some(), "the index is complete");
    }
}

/// Returns the queries of which some are answered by the index of names.
const QUERIES: [&str; 12] = [
    "name=one.txt",
    "name~*.txt",
    "name~*re*",
    "kind=dir",
    "size>9K",
    "size=10 name~?w*",
    "mtime<1h kind=dir",
    "owner=10 name~*e",
    "text:coral",
    "text:reef not name~*.txt",
    "name~*.md or project=reef",
    "name~*.md project=reef",
];

#[test]
fn an_index_finds_what_the_walk_finds() {
    let rig = Rig::new();
    let (a, b) = tree(&rig);
    for number in 0..30 {
        rig.file(&format!("filler{number}"), b"nothing");
    }
    let tagged = rig.file("threefold.md", &[b'x'; 10_000]);
    tag(&rig, tagged.handle, "project", b"reef");
    move_to(&rig, "threefold.md", b, "threefold.md");
    let linked = rig.file("linked.txt", b"reef reef");
    rig.call(Request::Link { node: linked.handle, dir: a, name: name("again.txt") }).unwrap();
    let walked: Vec<_> = QUERIES.iter().map(|query| found(&rig, query)).collect();
    let mut indexer = Indexer::new(&rig);
    for (query, walked) in QUERIES.iter().zip(&walked) {
        assert_eq!(&found(&rig, query), walked, "{query}");
    }
    // What has changed since the last commit of the index is found all the same.
    rig.unlink("linked.txt");
    let fresh = rig.file("fresh.txt", b"a reef of coral");
    move_to(&rig, "fresh.txt", b, "moved.txt");
    set_mode(&rig, fresh.handle, 0o600);
    assert_eq!(found(&rig, "name=moved.txt"), ["b/moved.txt"]);
    assert_eq!(found(&rig, "name=fresh.txt"), Vec::<String>::new());
    assert_eq!(found(&rig, "name=again.txt"), ["a/again.txt"]);
    assert_eq!(found(&rig, "name=linked.txt"), Vec::<String>::new());
    assert!(found(&rig, "text:coral").contains(&"b/moved.txt".to_owned()));
    let before: Vec<_> = QUERIES.iter().map(|query| found(&rig, query)).collect();
    indexer.catch_up();
    for (query, before) in QUERIES.iter().zip(&before) {
        assert_eq!(&found(&rig, query), before, "{query}");
    }
    assert_eq!(found(&rig, "name=moved.txt"), ["b/moved.txt"]);
}

#[test]
fn an_index_knows_of_open_files_what_memory_knows() {
    let rig = Rig::new();
    for number in 0..20 {
        rig.file(&format!("filler{number}"), b"nothing");
    }
    let (_, open) = rig.create("growing", BOTH);
    let _indexer = Indexer::new(&rig);
    for size in [3000_u64, 30_000] {
        rig.write(open, size - 1, b"x").unwrap();
        assert_eq!(found(&rig, &format!("size={size}")), ["growing"]);
    }
    rig.close(open);
    assert_eq!(found(&rig, "size=30000"), ["growing"]);
}

#[test]
fn an_index_is_told_of_bytes_that_are_committed() {
    let rig = Rig::new();
    for number in 0..20 {
        rig.file(&format!("filler{number}"), b"nothing");
    }
    let file = rig.file("f", b"coral").handle;
    let mut indexer = Indexer::new(&rig);
    let open = rig.open(file, BOTH).unwrap();
    rig.write(open, 0, &b"wreck ".repeat(3000)).unwrap();
    rig.close(open);
    for _ in 0..2 {
        assert_eq!(found(&rig, "text:wreck"), ["f"]);
        assert_eq!(found(&rig, "size=18000"), ["f"]);
        assert!(found(&rig, "text:coral").is_empty());
        indexer.catch_up();
    }
}

/// A small file costs no more to read than its version to look up; a large one does.
#[test]
fn of_files_without_a_text_an_index_knows_the_large_ones() {
    let rig = Rig::new();
    let [none, bytes, text] = [&b""[..], b"\xff\xfe", b"coral"].map(|bytes| {
        let file = rig.file(&format!("small{}", bytes.len()), bytes);
        file.handle
    });
    let large = rig.file("large", &b"\xff".repeat(20_000)).handle;
    let mut indexer = Indexer::new(&rig);
    let known = || {
        let halves = rig.router.index().texts().unwrap();
        [none, bytes, text, large].map(|file| halves.texts.version(file.ino).unwrap().is_some())
    };
    assert_eq!(known(), [false, false, true, true]);
    let open = rig.open(text, BOTH).unwrap();
    rig.write(open, 0, b"\xff").unwrap();
    rig.close(open);
    indexer.catch_up();
    assert_eq!(known(), [false, false, false, true]);
    assert!(found(&rig, "text:coral").is_empty());
}

#[test]
fn an_index_of_no_files_answers() {
    let rig = Rig::new();
    let mut indexer = Indexer::new(&rig);
    for query in ["not name=x", "size=1 or tag:k", "text:reef not name=x"] {
        assert!(found(&rig, query).is_empty(), "{query}");
    }
    rig.file("f", b"reef");
    for _ in 0..2 {
        assert_eq!(found(&rig, "not name=x"), ["f"]);
        indexer.catch_up();
    }
}

#[test]
fn an_index_keeps_a_file_that_a_search_has_not_found_in_time() {
    let rig = Rig::new();
    let mut indexer = Indexer::new(&rig);
    let file = rig.file("f", b"").handle;
    // As a search does whose rows are older than the file.
    rig.shard.feed(Handle::own(file.ino));
    indexer.catch_up();
    assert_eq!(found(&rig, "name=f"), ["f"]);
}

#[test]
fn an_index_has_the_times_of_directories_after_a_crash() {
    let rig = Rig::new();
    for number in 0..20 {
        rig.file(&format!("filler{number}"), b"nothing");
    }
    let dir = make_dir(&rig, ROOT, "d", 0o755);
    rig.set(dir, None, SetAttr { mtime: Some(SetTime::To(at(7))), ..SetAttr::default() }).unwrap();
    let indexer = Indexer::new(&rig);
    assert_eq!(found(&rig, "kind=dir mtime<1h"), Vec::<String>::new());
    drop(indexer);
    rig.router.index().set_open(None, false, false);
    move_to(&rig, "filler1", dir, "inside");
    let next = rig.after_kill();
    let _indexer = Indexer::new(&next);
    assert_eq!(found(&next, "kind=dir mtime<1h"), ["d"]);
}

/// Returns all but the time of a page, and of its place.
fn without_times(page: SearchPage) -> (usize, Option<SearchAt>, u64) {
    (page.hits.len(), page.after.map(|place| place.at), page.examined)
}

#[test]
fn pages_do_not_tell_of_files_that_an_asker_may_not_read() {
    let rig = Rig::new();
    rig.shard.set_tags_complete();
    let shown: Vec<_> = (0..3).map(|at| rig.file(&format!("shown{at}"), b"reef")).collect();
    let hidden: Vec<_> = (0..5).map(|at| rig.file(&format!("hidden{at}"), b"reef")).collect();
    for file in &hidden {
        set_mode(&rig, file.handle, 0o600);
        tag(&rig, file.handle, "secret", b"");
        tag(&rig, file.handle, "more", b"");
    }
    for file in &shown {
        tag(&rig, file.handle, "open", b"");
        tag(&rig, file.handle, "more", b"");
    }
    let asked =
        |query: &str, hits| without_times(page(&rig, ANN_ALONE, ROOT, query, hits, None).unwrap());
    for hits in 1..5 {
        // More files have the one tag than the other, and what is shown is the same.
        assert_eq!(asked("tag:more", hits), asked("tag:open", hits), "{hits}");
        // The tag of which there are fewer is looked up: so there is one, or none.
        assert_eq!(asked("tag:open tag:secret", hits), asked("tag:open tag:none", hits));
        assert_eq!(asked("tag:secret", hits), asked("tag:none", hits));
    }
    let _indexer = Indexer::new(&rig);
    for hits in 1..5 {
        let names = [asked("name~hidden*", hits), asked("name~nowhere*", hits)];
        assert_eq!(names[0], names[1]);
        let texts = asked("text:reef", hits);
        assert_eq!(texts, asked("text:reef not name~hidden*", hits));
    }
}

#[test]
fn a_damaged_row_ends_neither_searches_nor_the_index() {
    let rig = Rig::new();
    let files: Vec<_> = (0..20).map(|at| rig.file(&format!("f{at}"), b"coral reef")).collect();
    for file in &files {
        tag(&rig, file.handle, "project", b"reef");
    }
    let linked = &files[2];
    rig.call(Request::Link { node: linked.handle, dir: ROOT, name: name("link") }).unwrap();
    let placed = files[3].handle;
    let mut batch = Batch::new();
    for key in [
        key::inline(files[0].handle.ino),
        key::xattr(files[1].handle.ino, b"user.tag.project"),
        key::inode(linked.handle.ino),
        key::name(placed.dir, placed.hash, b"f3"),
    ] {
        batch.put(key, b"damaged".to_vec());
    }
    rig.table.write(&batch).unwrap();
    // Memory knows these rows still.
    let rig = rig.after_kill();
    let all = |rig: &Rig| {
        let count = |query| found(rig, query).len();
        [count("text:coral"), count("project=reef"), count("kind=file"), count("name~f*")]
    };
    // One has no text; two are not found at all, and the name of one of these neither.
    let walked = all(&rig);
    assert_eq!(walked, [17, 17, 18, 18]);
    let _indexer = Indexer::new(&rig);
    assert_eq!(all(&rig), walked);
}

#[test]
fn an_index_has_nothing_that_is_not_safe() {
    let rig = Rig::new();
    let (dir, _) = tree(&rig);
    for number in 0..20 {
        rig.file(&format!("filler{number}"), b"nothing");
    }
    let mut indexer = Indexer::new(&rig);
    move_to(&rig, "filler7", dir, "moved");
    assert_eq!(indexer.worker.work().unwrap_err().code, Code::Busy);
    drop(indexer);
    rig.router.index().set_open(None, false, false);
    let next = rig.after_crash(0);
    let _indexer = Indexer::new(&next);
    assert_eq!(found(&next, "name=filler7"), ["filler7"]);
}

#[test]
fn texts_that_wait_for_the_index_are_found() {
    let rig = Rig::new();
    let files: Vec<_> = (0..9).map(|at| rig.file(&format!("f{at}"), b"reef").handle).collect();
    let mut indexer = Indexer::new(&rig);
    for file in &files {
        let open = rig.open(*file, BOTH).unwrap();
        rig.write(open, 0, b"tide").unwrap();
        rig.close(open);
    }
    rig.commit.run().unwrap();
    // The names are committed, and not all texts.
    work(&rig, &mut indexer.worker).unwrap();
    assert!(!rig.router.index().waiting_texts().is_empty());
    assert_eq!(found(&rig, "text:tide").len(), files.len());
    assert!(found(&rig, "text:reef").is_empty());
}

#[test]
fn what_is_not_ranked_follows_what_is() {
    let rig = Rig::new();
    for number in 0..30 {
        // The word is a smaller and smaller part of these.
        rig.file(&format!("f{number:02}"), format!("reef{}", " sand".repeat(number)).as_bytes());
    }
    let _indexer = Indexer::new(&rig);
    let whole = paths_in(&rig, SUPERUSER, ROOT, "text:reef", 100);
    let expected: Vec<String> = (0..30).map(|number| format!("f{number:02}")).collect();
    assert_eq!(whole, expected);
    for hits in [1, 7] {
        assert_eq!(paths_in(&rig, SUPERUSER, ROOT, "text:reef", hits), whole);
    }
}

/// Writes files again, so that the index does not know them until it is told.
pub(super) fn write_again<'a>(rig: &Rig, files: impl IntoIterator<Item = (Handle, &'a str)>) {
    for (file, text) in files {
        let open = rig.open(file, BOTH).unwrap();
        rig.write(open, 0, text.as_bytes()).unwrap();
        rig.close(open);
    }
}

/// More files have the words than are ranked, and several are equally about them.
#[test]
fn pages_by_rank_leave_out_no_file_while_the_index_follows() {
    let rig = Rig::new();
    let text = |at: usize| format!("{}{}", "reef ".repeat(1 + at % 3), "sand ".repeat(at * 7 % 5));
    let texts: Vec<String> = (0..14).map(text).collect();
    let made = texts.iter().enumerate();
    let made = made.map(|(at, text)| rig.file(&format!("f{at:02}"), text.as_bytes()).handle);
    let files: Vec<_> = made.collect();
    let mut indexer = Indexer::new(&rig);
    let indexed = paths_in(&rig, SUPERUSER, ROOT, "text:reef", 100);
    for hits in [3, 9] {
        write_again(&rig, files.iter().copied().zip(texts.iter().map(String::as_str)));
        assert_eq!(paths_in(&rig, SUPERUSER, ROOT, "text:reef", 100), indexed, "beside the index");
        let first = page(&rig, SUPERUSER, ROOT, "text:reef", hits, None).unwrap();
        indexer.catch_up();
        let rest = page(&rig, SUPERUSER, ROOT, "text:reef", 100, first.after).unwrap();
        let all = first.hits.into_iter().chain(rest.hits);
        let all: Vec<_> = all.map(|hit| String::from_utf8(hit.path).unwrap()).collect();
        assert_eq!(all, indexed, "{hits} files on the first page");
    }
}
