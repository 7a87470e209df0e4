//! Laws of an index, with random documents and queries: what matches by evaluation is a candidate,
//! and nothing else is where the index is exact.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use pelago_find::{Candidate, Query, TextCounts, score_alone, words};
use pelago_folder::Folder;
use pelago_index::{Candidates, Covered, Document, Names, Origin, TextHit, Texts};
use pelago_wire::{FileKind, Handle, InodeId, NameHash, Time};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;

use every_name::every_name;

#[path = "common/every_name.rs"]
mod every_name;

const NOW: Time = Time { seconds: 1_769_900_000, nanos: 500 };
const COVERED: Covered = Covered {
    origin: Origin { volume: [7; 16], commit: 1 },
    epoch: 1,
    sequence: 1,
    as_of: NOW,
    is_complete: true,
};

/// Returns an open folder.
fn at(folder: &Path) -> Folder {
    Folder::open(folder).unwrap()
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 40,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    }
}

/// A document as the file that it describes; the index knows neither its tag nor its text.
struct Described<'a>(&'a Document);

impl Candidate for Described<'_> {
    fn name(&self) -> &[u8] {
        &self.0.name
    }

    fn kind(&self) -> FileKind {
        self.0.kind
    }

    fn size(&self) -> u64 {
        self.0.size
    }

    fn mtime(&self) -> Time {
        self.0.mtime
    }

    fn uid(&self) -> u32 {
        self.0.uid
    }

    fn tag(&self, key: &str) -> Option<Cow<'_, [u8]>> {
        (key == "odd" && self.0.size % 2 == 1).then_some(Cow::Borrowed(b"1"))
    }

    fn has_text(&self, words: &[String]) -> bool {
        words.iter().all(|word| word == "long") && self.0.size > 5
    }

    fn uid_of(&self, name: &str) -> Option<u32> {
        uid_of(name)
    }
}

fn uid_of(name: &str) -> Option<u32> {
    [("ann", 0), ("bob", 1)].iter().find(|(has, _)| *has == name).map(|(_, uid)| *uid)
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let pieces: Vec<&[u8]> = vec![b"a", b"b", b"ab", b".rs", "é".as_bytes(), b"\xff", b"\xc3"];
    vec(select(pieces), 1..6).prop_map(|pieces| pieces.concat())
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![0..10_u64, any::<u64>(), Just(u64::MAX)]
}

fn mtime() -> impl Strategy<Value = Time> {
    let near = (NOW.seconds - 3 * 86_400)..(NOW.seconds + 86_400);
    let seconds = prop_oneof![
        8 => near,
        4 => NOW.seconds - 3..NOW.seconds + 3,
        1 => any::<i64>(),
        1 => select(vec![i64::MIN, i64::MAX, -1]),
    ];
    let nanos = select(vec![0, 499, 500, 501, 999_999_999]);
    (seconds, nanos).prop_map(|(seconds, nanos)| Time { seconds, nanos })
}

prop_compose! {
    fn document()(
        place in 0..3_u64,
        name in name(),
        kind in 1..=7_u8,
        size in size(),
        mtime in mtime(),
        uid in 0..3_u32,
    ) -> Document {
        let handle = Handle::at(InodeId::from_raw(0), InodeId::from_raw(place), NameHash(place));
        let kind = FileKind::from_number(kind).unwrap();
        Document { handle, name, kind, size, mtime, uid }
    }
}

/// Makes what an index is told: inodes and their documents, with commits in between.
fn changes() -> impl Strategy<Value = Vec<(u64, Vec<Document>, bool)>> {
    let documents = vec(document(), 0..3);
    vec((0..30_u64, documents, prop::bool::weighted(0.1)), 1..60)
}

/// A query, and whether the index answers it exactly if it narrows it.
#[derive(Debug, Clone)]
struct Asked(Vec<u8>, bool);

fn quoted(head: &str, value: &[u8]) -> Vec<u8> {
    let escaped = value.iter().flat_map(|byte| match byte {
        b'"' | b'\\' => vec![b'\\', *byte],
        _ => vec![*byte],
    });
    [head.as_bytes(), b"\"", &escaped.collect::<Vec<_>>(), b"\""].concat()
}

fn term() -> impl Strategy<Value = Asked> {
    let sign = || select(vec!["<", "<=", ">=", ">"]);
    let size_sign = select(vec!["<", "<=", "=", ">=", ">"]);
    let exact = |text: String| Asked(text.into_bytes(), true);
    let rounded = |text: &str| Asked(text.as_bytes().to_vec(), false);
    let piece: Vec<&[u8]> =
        vec![b"a", b"b", b"ab", b".rs", "é".as_bytes(), b"\xff", b"*", b"*", b"?", b"[ab]", b"\\a"];
    let glob = vec(select(piece), 1..6).prop_map(|pieces| pieces.concat());
    prop_oneof![
        name().prop_map(|name| Asked(quoted("name=", &name), true)),
        glob.prop_map(|glob| Asked(quoted("name~", &glob), false)),
        (size_sign, size()).prop_map(move |(sign, size)| exact(format!("size{sign}{size}"))),
        (sign(), -1..3_i64)
            .prop_map(move |(sign, day)| exact(format!("mtime{sign}2026-01-{:02}", 29 + day))),
        (sign(), prop_oneof![0..4_u64, 0..200_000_u64, any::<u64>()])
            .prop_map(move |(sign, age)| rounded(&format!("mtime{sign}{age}s"))),
        select(vec!["file", "dir", "link", "fifo", "socket", "char", "block"])
            .prop_map(move |kind| exact(format!("kind={kind}"))),
        select(vec!["0", "2", "9", "ann", "nobody"])
            .prop_map(move |owner| exact(format!("owner={owner}"))),
        select(vec!["tag:odd", "odd=1", "text:long", "text:other"]).prop_map(rounded),
    ]
}

fn asked() -> impl Strategy<Value = Asked> {
    term().prop_recursive(3, 10, 3, |part| {
        let join = |between: &'static [u8]| {
            move |parts: Vec<Asked>| {
                let bracketed = |part: &Asked| [b"(", &part.0[..], b")"].concat();
                let texts: Vec<Vec<u8>> = parts.iter().map(bracketed).collect();
                Asked(texts.join(between), parts.iter().all(|part| part.1))
            }
        };
        prop_oneof![
            vec(part.clone(), 2..4).prop_map(join(b" ")),
            vec(part.clone(), 2..4).prop_map(join(b" or ")),
            part.prop_map(|part| Asked([b"not (", &part.0[..], b")"].concat(), false)),
        ]
    })
}

/// Checks a query at an index against all of its documents.
fn check(names: &Names, documents: &[&Document], asked: &Asked) -> Result<(), TestCaseError> {
    let text = asked.0.escape_ascii();
    let query = Query::parse(&asked.0).unwrap();
    let matching = documents.iter().filter(|document| query.matches(&Described(document), NOW));
    let mut matching: Vec<Handle> = matching.map(|document| document.handle).collect();
    matching.dedup();
    let count = names.count(query.expr(), NOW, &uid_of).unwrap();
    match names.candidates(query.expr(), NOW, &uid_of).unwrap() {
        Candidates::Any => prop_assert_eq!(count, names.total().unwrap()),
        Candidates::These(found) => {
            prop_assert!(count >= found.len() as u64, "{}", text);
            prop_assert!(found.is_sorted_by_key(|at| (at.ino, at.dir, at.hash)), "{}", text);
            let has = |handle: &Handle| found.contains(handle);
            prop_assert!(matching.iter().all(has), "{} {:?} {:?}", text, found, matching);
            if asked.1 {
                prop_assert_eq!(found, matching, "{}", text);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_matches_is_a_candidate(changes in changes(), asked in vec(asked(), 60)) {
        let folder = tempfile::tempdir().unwrap();
        let names = Names::open(&at(folder.path())).unwrap();
        let mut told: BTreeMap<u64, Vec<Document>> = BTreeMap::new();
        for (ino, mut documents, is_commit) in changes {
            for document in &mut documents {
                document.handle.ino = InodeId::from_raw(ino);
            }
            names.replace(InodeId::from_raw(ino), &documents).unwrap();
            told.insert(ino, documents);
            if is_commit {
                names.commit(&COVERED).unwrap();
            }
        }
        names.commit(&COVERED).unwrap();
        let mut all: Vec<&Document> = told.values().flatten().collect();
        all.sort_by_key(|document| (document.handle.ino, document.handle.dir));
        prop_assert_eq!(names.total().unwrap(), all.len() as u64);
        let mut handles: Vec<_> = all.iter().map(|document| document.handle).collect();
        handles.dedup();
        prop_assert_eq!(every_name(&names).unwrap(), handles);
        for asked in &asked {
            check(&names, &all, asked)?;
        }
    }

    #[test]
    fn texts_that_have_all_words_are_found(
        texts in vec(("([abß] ?|\\PC| ){0,40}", 0..15_u64, prop::bool::weighted(0.2)), 1..40),
        asked in vec("[abß]{1,2}( [abß]{1,2})?|\\PC", 30),
        at_most in 1..10_usize,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let index = Texts::open(&at(folder.path())).unwrap();
        let mut told: BTreeMap<u64, (u64, &str)> = BTreeMap::new();
        for (version, (text, ino, is_commit)) in (0..).zip(&texts) {
            index.replace(Handle::own(InodeId::from_raw(*ino)), version, text).unwrap();
            told.insert(*ino, (version, text));
            if *is_commit {
                index.commit(&COVERED).unwrap();
            }
        }
        index.commit(&COVERED).unwrap();
        for (ino, (version, _)) in &told {
            prop_assert_eq!(index.version(InodeId::from_raw(*ino)).unwrap(), Some(*version));
        }
        for text in &asked {
            let asked: Vec<String> = words(text).collect();
            let hit = |(ino, (_, text)): (&u64, &(u64, &str))| {
                let all: Vec<String> = words(text).collect();
                let count = |word: &String| all.iter().filter(|has| *has == word).count() as u32;
                let frequencies: Vec<u32> = asked.iter().map(count).collect();
                let has_all = !asked.is_empty() && frequencies.iter().all(|count| *count > 0);
                let handle = Handle::own(InodeId::from_raw(*ino));
                has_all.then_some(TextHit { handle, frequencies, length: all.len() as u32 })
            };
            let mut best: Vec<TextHit> = told.iter().filter_map(hit).collect();
            let score = |hit: &TextHit| {
                score_alone(TextCounts { frequencies: &hit.frequencies, length: hit.length })
            };
            best.sort_by(|one, two| score(two).total_cmp(&score(one)));
            prop_assert_eq!(&index.search(&asked, usize::MAX).unwrap(), &best);
            best.truncate(at_most);
            prop_assert_eq!(index.search(&asked, at_most).unwrap(), best);
        }
    }
}
