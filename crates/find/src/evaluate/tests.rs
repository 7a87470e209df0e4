//! Tests of each term, evaluated for one file.

use super::*;
use crate::query::Query;

const NOW: Time = Time { seconds: 1_800_000_000, nanos: 500 };

#[derive(Clone)]
struct File {
    kind: FileKind,
    size: u64,
    mtime: Time,
}

impl Candidate for File {
    fn name(&self) -> &[u8] {
        b"lib.rs"
    }

    fn kind(&self) -> FileKind {
        self.kind
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn mtime(&self) -> Time {
        self.mtime
    }

    fn uid(&self) -> u32 {
        1000
    }

    fn tag(&self, key: &str) -> Option<Cow<'_, [u8]>> {
        [("color", "red"), ("size", "large"), ("empty", "")]
            .into_iter()
            .find_map(|(has, value)| (has == key).then_some(Cow::Borrowed(value.as_bytes())))
    }

    fn has_text(&self, words: &[String]) -> bool {
        assert!(!words.is_empty());
        words.iter().all(|word| ["some", "words"].contains(&word.as_str()))
    }

    fn uid_of(&self, name: &str) -> Option<u32> {
        [("ann", 1000), ("root", 0)].iter().find(|(has, _)| *has == name).map(|(_, uid)| *uid)
    }
}

fn file() -> File {
    File { kind: FileKind::Regular, size: 2048, mtime: NOW }
}

fn matches(text: &str, file: &File) -> bool {
    Query::parse(text.as_bytes()).unwrap().matches(file, NOW)
}

fn all(texts: &[&str], expected: bool) {
    for text in texts {
        assert_eq!(matches(text, &file()), expected, "{text}");
    }
}

#[test]
fn tags_are_compared_byte_by_byte() {
    all(&["color=red", "tag:color", "tag:size=large", "empty=\"\"", "tag:empty"], true);
    all(&["color=Red", "color=re", "tag:other", "other=\"\"", "empty=x"], false);
}

#[test]
fn names_are_compared_whole() {
    all(&["name=lib.rs", "name~*.rs", "name~lib*", "name~???.[r]s"], true);
    all(&["name=lib", "name~lib", "name~*.r", "name=LIB.RS"], false);
}

#[test]
fn sizes_are_compared_with_bytes() {
    all(&["size=2K", "size>=2K", "size<=2K", "size>2047", "size<2049"], true);
    all(&["size>2K", "size<2K", "size=2049"], false);
}

#[test]
fn kinds_and_owners_are_compared() {
    all(&["kind=file", "owner=1000", "owner=ann"], true);
    all(&["kind=dir", "owner=0", "owner=root", "owner=nobody"], false);
}

#[test]
fn the_file_is_asked_for_all_words_of_a_text() {
    all(&["text:Some", "text:\"words some\""], true);
    all(&["text:other", "text:\"some other\""], false);
}

#[test]
fn an_age_is_compared_to_the_nanosecond() {
    let at = |seconds, nanos| File { mtime: Time { seconds, nanos }, ..file() };
    let week_ago = NOW.seconds - 7 * 86_400;
    assert!(matches("mtime<7d", &at(week_ago, 501)) && !matches("mtime<7d", &at(week_ago, 500)));
    assert!(matches("mtime<=1w", &at(week_ago, 500)) && !matches("mtime<=1w", &at(week_ago, 499)));
    assert!(matches("mtime>7d", &at(week_ago, 499)) && !matches("mtime>7d", &at(week_ago, 500)));
    assert!(matches("mtime>=7d", &at(week_ago, 500)) && !matches("mtime>=7d", &at(week_ago, 501)));
}

#[test]
fn a_change_in_the_future_is_younger_than_every_age() {
    let file = File { mtime: NOW.next(), ..file() };
    assert!(matches("mtime<0s", &file) && !matches("mtime>=0s", &file));
}

#[test]
fn a_day_is_compared_as_a_whole() {
    let at = |seconds| File { mtime: Time { seconds, nanos: 0 }, ..file() };
    let before = 1_769_817_599;
    let first = 1_769_817_600;
    let last = 1_769_903_999;
    let after = 1_769_904_000;
    for (sign, expected) in [
        (">=", [false, true, true, true]),
        (">", [false, false, false, true]),
        ("<", [true, false, false, false]),
        ("<=", [true, true, true, false]),
    ] {
        let text = format!("mtime{sign}2026-01-31");
        let found = [before, first, last, after].map(|seconds| matches(&text, &at(seconds)));
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn times_at_their_limits_are_compared() {
    let query = |text: &str| Query::parse(text.as_bytes()).unwrap();
    let time = |seconds| Time { seconds, nanos: u32::MAX };
    for (mtime, now) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN)] {
        let file = File { mtime: time(mtime), ..file() };
        let is_old = query("mtime>18446744073709551614s").matches(&file, time(now));
        assert_eq!(is_old, mtime < now);
        assert_eq!(query("mtime<2026-01-31").matches(&file, time(now)), mtime < now);
    }
}

#[test]
fn parts_are_asked_only_as_far_as_needed() {
    struct Mute;
    impl Candidate for Mute {
        fn name(&self) -> &[u8] {
            b"x"
        }
        fn kind(&self) -> FileKind {
            FileKind::Regular
        }
        fn size(&self) -> u64 {
            0
        }
        fn mtime(&self) -> Time {
            Time::default()
        }
        fn uid(&self) -> u32 {
            0
        }
        fn tag(&self, _: &str) -> Option<Cow<'_, [u8]>> {
            None
        }
        fn has_text(&self, _: &[String]) -> bool {
            panic!("the text is not needed")
        }
        fn uid_of(&self, _: &str) -> Option<u32> {
            None
        }
    }
    let query = |text: &str| Query::parse(text.as_bytes()).unwrap();
    assert!(!query("name=y text:word").matches(&Mute, NOW));
    assert!(query("name=x or text:word").matches(&Mute, NOW));
}
