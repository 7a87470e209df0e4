//! More files than one page, or than the feed of the index, can have.

use std::collections::HashSet;

use pelago_store::clock;
use pelago_wire::{FileKind, Handle, NewMode, RenameFlags, Reply, Request, SetAttr, Time, limits};

use super::search::{Indexer, SUPERUSER, make_dir, move_to, page, set_mode, tag, work};
use crate::testing::{BOTH, ROOT, Rig, name};

/// How many files are found, from `PELAGO_SEARCH_HITS`.
fn hits() -> usize {
    let number = std::env::var("PELAGO_SEARCH_HITS").ok().and_then(|text| text.parse().ok());
    number.unwrap_or(100_001)
}

/// Makes an empty file.
fn make(rig: &Rig, dir: Handle, text: &str) -> Handle {
    let kind = FileKind::Regular;
    let mode = NewMode::exactly(0o644);
    let request = Request::MakeNode { dir, name: name(text), kind, mode, rdev: 0 };
    match rig.call(request).unwrap() {
        Reply::Entry(entry) => entry.handle,
        other => panic!("{other:?}"),
    }
}

fn link(rig: &Rig, text: &str) {
    let target = b"nowhere".to_vec();
    rig.call(Request::Symlink { dir: ROOT, name: name(text), target }).unwrap();
}

/// Asks for pages as large as they may be. Returns how many there were, and what they had.
fn all_pages(rig: &Rig, query: &str) -> (usize, Vec<Vec<u8>>) {
    let mut pages = 0;
    let mut paths = Vec::new();
    let mut after = None;
    loop {
        let found = page(rig, SUPERUSER, ROOT, query, u32::MAX, after).unwrap();
        let bytes: usize = found.hits.iter().map(|hit| hit.path.len()).sum();
        assert!(found.hits.len() <= limits::PAGE_HITS as usize, "{query}");
        assert!(bytes <= limits::HITS_BYTES && found.examined <= limits::PAGE_NAMES.into());
        pages += 1;
        paths.extend(found.hits.into_iter().map(|hit| hit.path));
        after = match found.after {
            Some(place) => Some(place),
            None => return (pages, paths),
        };
    }
}

#[test]
fn each_of_many_hits_comes_once() {
    let rig = Rig::new();
    rig.shard.set_tags_complete();
    let dirs: Vec<_> =
        (0..16).map(|number| make_dir(&rig, ROOT, &format!("d{number}"), 0o755)).collect();
    let count = hits();
    let path = |number: usize| format!("d{}/file-{number}", number % 16);
    for number in 0..count {
        let file = make(&rig, dirs[number % 16], &format!("file-{number}"));
        tag(&rig, file, "project", if number % 3 == 0 { b"reef" } else { b"wreck" });
    }
    let all: HashSet<_> = (0..count).map(|number| path(number).into_bytes()).collect();
    let queries = ["kind=file", "tag:project", "project=reef or project=wreck"];
    for query in queries {
        let (pages, found) = all_pages(&rig, query);
        assert_eq!(found.len(), count, "{query}");
        assert!(found.into_iter().collect::<HashSet<_>>() == all, "{query}");
        assert!(pages >= count.div_ceil(limits::PAGE_HITS as usize), "{query}");
    }
    let (_, found) = all_pages(&rig, "project=wreck");
    let wanted: HashSet<_> =
        (0..count).filter(|at| at % 3 > 0).map(|at| path(at).into_bytes()).collect();
    assert_eq!(found.len(), wanted.len());
    assert!(found.into_iter().collect::<HashSet<_>>() == wanted);
}

/// Queries that the index of names or that of texts answers.
const QUERIES: [&str; 9] = [
    "name=l70000",
    "name~*6553?",
    "name~late*",
    "name~early*",
    "kind=file",
    "size=12345",
    "text:coral",
    "text:wreck",
    "kind=dir name~*e*",
];

/// Returns what each query finds, sorted.
fn answers(rig: &Rig) -> Vec<Vec<Vec<u8>>> {
    let sorted = |query: &&str| {
        let (_, mut paths) = all_pages(rig, query);
        paths.sort();
        paths
    };
    QUERIES.iter().map(sorted).collect()
}

/// Returns the time of an answer of the index.
fn as_of(rig: &Rig) -> Time {
    page(rig, SUPERUSER, ROOT, "name=early2", 9, None).unwrap().as_of
}

#[test]
fn an_index_reads_again_what_the_feed_could_not_hold() {
    let rig = Rig::new();
    let early: Vec<_> = (0..8).map(|at| rig.file(&format!("early{at}"), b"coral").handle).collect();
    let mut indexer = Indexer::new(&rig);
    let begun = clock::now();
    (0..=limits::FED_FILES).for_each(|number| link(&rig, &format!("l{number}")));
    // None of these is in the feed.
    make_dir(&rig, ROOT, "late-dir", 0o755);
    rig.file("late", b"coral wreck");
    rig.unlink("early0");
    let dir = make_dir(&rig, ROOT, "dir", 0o755);
    move_to(&rig, "early1", dir, "early-moved");
    set_mode(&rig, early[2], 0o600);
    rig.set(early[3], None, SetAttr { size: Some(12_345), ..SetAttr::default() }).unwrap();
    let open = rig.open(early[4], BOTH).unwrap();
    rig.write(open, 0, b"wreck").unwrap();
    rig.close(open);
    rig.call(Request::Rename {
        from_dir: ROOT,
        from: name("early5"),
        to_dir: ROOT,
        to: name("early6"),
        flags: RenameFlags::Replace,
    })
    .unwrap();
    (limits::FED_FILES + 1..70_001).for_each(|number| link(&rig, &format!("l{number}")));
    assert!(as_of(&rig) < begun, "an answer says that the index is too far behind");
    indexer.catch_up();
    let asked = clock::now();
    assert!(as_of(&rig) >= asked);
    let found = answers(&rig);
    assert_eq!(found[0], [b"l70000"]);
    assert_eq!(found[2], [&b"late"[..], b"late-dir"]);
    rig.router.index().set_open(None, false, false);
    for ((query, found), walked) in QUERIES.iter().zip(found).zip(answers(&rig)) {
        assert_eq!(found, walked, "{query}");
    }
}

#[test]
fn an_index_reads_texts_again_if_too_many_waited() {
    let rig = Rig::new();
    let files: Vec<_> = (0..9).map(|at| rig.file(&format!("f{at}"), b"reef").handle).collect();
    let mut indexer = Indexer::new(&rig);
    for file in &files[1..] {
        let open = rig.open(*file, BOTH).unwrap();
        rig.write(open, 0, b"tide").unwrap();
        rig.close(open);
    }
    rig.commit.run().unwrap();
    rig.router.index().waiting_texts().has_more = true;
    work(&rig, &mut indexer.worker).unwrap();
    assert!(rig.router.index().texts().is_none(), "nothing is known of some");
    for _ in 0..2 {
        assert_eq!(all_pages(&rig, "text:tide").1.len(), 8);
        assert_eq!(all_pages(&rig, "text:reef").1, [b"f0"]);
        indexer.catch_up();
    }
}
