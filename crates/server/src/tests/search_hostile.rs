//! Queries, names, tags and texts that were chosen to do harm.
//!
//! Each is asked by the walk and by the index, which must say the same.

use pelago_wire::{Code, Handle, Name, NewMode, Reply, Request, SetAttr, XattrFlags, limits};

use super::search::{Indexer, SUPERUSER, page, tag};
use crate::testing::{BOTH, ROOT, Rig, next_open};

/// Makes a file in the root with any name.
fn make(rig: &Rig, name: &[u8], bytes: &[u8]) -> Handle {
    let open = next_open();
    let name = Name::new(name).unwrap();
    let mode = NewMode::exactly(0o644);
    let made = rig.call(Request::Create { dir: ROOT, name, mode, flags: BOTH, open }).unwrap();
    let Reply::Created { entry, .. } = made else { panic!("{made:?}") };
    for (at, piece) in bytes.chunks(64 << 10).enumerate() {
        rig.write(open, (at as u64) * (64 << 10), piece).unwrap();
    }
    rig.close(open);
    entry.handle
}

/// Returns what a query finds for root, sorted.
fn found(rig: &Rig, query: impl AsRef<[u8]>) -> Vec<Vec<u8>> {
    let found = page(rig, SUPERUSER, ROOT, query, 100, None).unwrap();
    assert!(found.after.is_none());
    let mut paths: Vec<_> = found.hits.into_iter().map(|hit| hit.path).collect();
    paths.sort();
    paths
}

/// Calls `check` without an index, and with one.
fn by_walk_and_by_index(rig: &Rig, check: impl Fn(&str)) {
    check("walk");
    let _indexer = Indexer::new(rig);
    check("index");
}

/// Returns a value in quotes.
fn quoted(value: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for byte in value {
        if matches!(byte, b'"' | b'\\') {
            quoted.push(b'\\');
        }
        quoted.push(*byte);
    }
    quoted.push(b'"');
    quoted
}

/// Returns a pattern for one name, with a `\` in front of each character that means something.
fn escaped(name: &[u8]) -> Vec<u8> {
    let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\');
    name.iter()
        .flat_map(|byte| [b'\\', *byte].into_iter().skip(!is_special(byte) as usize))
        .collect()
}

#[test]
fn a_query_at_its_limits_is_answered_and_one_beyond_is_none() {
    let rig = Rig::new();
    let file = make(&rig, b"f", b"coral");
    let value = vec![b'v'; limits::QUERY_BYTES - 2];
    tag(&rig, file, "k", &value);
    let longest = [b"k=", &value[..]].concat();
    let padded = format!("{:>1$}", "name=f", limits::QUERY_BYTES);
    let terms = |count| ["name=f"].repeat(count).join(" or ");
    let words = |count| ["text:coral"].repeat(count).join(" ");
    let brackets = |depth| format!("{}name=f{}", "(".repeat(depth), ")".repeat(depth));
    let nots = |depth| format!("{}name=f", "not ".repeat(depth));
    let most = limits::QUERY_TERMS;
    let deepest = limits::QUERY_NESTING;
    by_walk_and_by_index(&rig, |by| {
        let good = [terms(most), words(most), brackets(deepest), nots(deepest), padded.clone()];
        for query in good.iter().map(String::as_bytes).chain([&longest[..]]) {
            assert_eq!(found(&rig, query), [b"f"], "{by}: {}", query.escape_ascii());
        }
        let bad = [
            [&longest[..], b"v"].concat(),
            format!("{padded} ").into(),
            terms(most + 1).into(),
            words(most + 1).into(),
            brackets(deepest + 1).into(),
            nots(deepest + 1).into(),
            "(".repeat(limits::QUERY_BYTES).into(),
            "not ".repeat(limits::QUERY_BYTES / 4).into(),
            vec![0; limits::QUERY_BYTES],
            vec![0xff; limits::QUERY_BYTES],
            vec![b'x'; 1 << 20],
        ];
        for query in bad {
            let asked = page(&rig, SUPERUSER, ROOT, &query, 9, None);
            assert_eq!(asked.err(), Some(Code::Invalid), "{by}: {} bytes", query.len());
        }
    });
}

#[test]
fn patterns_of_many_stars_are_compared_with_the_longest_names() {
    let rig = Rig::new();
    let all = [b'a'; limits::NAME_BYTES];
    let last = limits::NAME_BYTES - 1;
    make(&rig, &all, b"");
    make(&rig, &[&all[..last], b"b"].concat(), b"");
    for number in 0..40_u8 {
        make(&rig, &[&all[..last - 1], &[b'c' + number / 10, b'0' + number % 10]].concat(), b"");
    }
    let stars = "*a".repeat((limits::QUERY_BYTES - 10) / 2);
    let short = "*a".repeat(last);
    let sets = "*[!b]".repeat(last);
    by_walk_and_by_index(&rig, |by| {
        assert!(found(&rig, format!("name~{stars}")).is_empty(), "{by}: more than a name has");
        assert_eq!(found(&rig, format!("name~{short}*b")).len(), 1, "{by}");
        assert_eq!(found(&rig, format!("name~{short}*a")), [all], "{by}");
        assert_eq!(found(&rig, format!("name~{sets}*b")).len(), 1, "{by}");
        assert_eq!(found(&rig, format!("name~{}", "?".repeat(last + 1))).len(), 42, "{by}");
        assert_eq!(found(&rig, format!("name~{}", "*".repeat(4000))).len(), 42, "{by}");
    });
}

#[test]
fn names_of_any_bytes_are_found_by_themselves() {
    let rig = Rig::new();
    let long = [b'\xfe'; limits::NAME_BYTES];
    let names: [&[u8]; 16] = [
        b"line\nbreak",
        b"tab\there\r",
        b"\x1b[31mred\x7f",
        b"\xff\xfe",
        b"caf\xc3",
        b"\xc3\xa9",
        &long,
        b"*",
        b"[x]",
        b"a\\b",
        b"quo\"te",
        b" ",
        b"...",
        b"\x01\x02\x03\x04",
        "\u{202e}txt.exe".as_bytes(),
        b"name=x or size>0",
    ];
    for name in names {
        make(&rig, name, b"");
    }
    by_walk_and_by_index(&rig, |by| {
        for name in names {
            let about = name.escape_ascii();
            assert_eq!(
                found(&rig, [b"name=", &quoted(name)[..]].concat()),
                [name],
                "{by}: {about}"
            );
            let pattern = quoted(&escaped(name));
            assert_eq!(found(&rig, [b"name~", &pattern[..]].concat()), [name], "{by}: {about}");
        }
        assert_eq!(found(&rig, "name~*").len(), names.len(), "{by}");
    });
}

#[test]
fn tags_of_any_bytes_are_found_by_themselves() {
    let rig = Rig::new();
    let largest = [&[b'v'; limits::XATTR_VALUE_BYTES - 1][..], b"w"].concat();
    let other = [&largest[..limits::XATTR_VALUE_BYTES - 1], b"x"].concat();
    let values: [&[u8]; 8] =
        [b"a\nb", b"\0", b"\0\xff\0", b"\xff\xfe", b"", b"\" or tag:k", &largest, &other];
    for (number, value) in values.iter().enumerate() {
        tag(&rig, make(&rig, format!("f{number}").as_bytes(), b""), "k", value);
    }
    let odd = make(&rig, b"odd", b"");
    for key in [&b"a b"[..], b"\n", b"\xff", &[b'k'; limits::TAG_KEY_BYTES + 1], b"", b"k\0"] {
        let name = [b"user.tag.", key].concat();
        let value = b"v".to_vec();
        let flags = XattrFlags::Any;
        // Some are no name of an attribute.
        drop(rig.call(Request::SetXattr { node: odd, name, value, flags, kill_setgid: false }));
    }
    by_walk_and_by_index(&rig, |by| {
        for (number, value) in values.iter().enumerate().take(6) {
            let query = [b"k=", &quoted(value)[..]].concat();
            let file = format!("f{number}").into_bytes();
            assert_eq!(found(&rig, &query), [file], "{by}: {}", value.escape_ascii());
        }
        assert_eq!(found(&rig, "tag:k").len(), values.len(), "{by}");
        let begin = [b"k=", &largest[..4000]].concat();
        assert!(found(&rig, begin).is_empty(), "{by}: a value that only begins so");
        let longest = format!("tag:{}", "k".repeat(limits::TAG_KEY_BYTES));
        assert!(found(&rig, longest).is_empty(), "{by}");
    });
}

/// The bytes in which words are sought, and their end.
const SEARCHED: usize = limits::TEXT_SEARCHED_BYTES;

#[test]
fn texts_of_any_bytes_are_searched_as_far_as_they_are_text() {
    let rig = Rig::new();
    let filler = |bytes: usize| b"sand ".iter().copied().cycle().take(bytes).collect::<Vec<_>>();
    let text =
        |begin: &[u8], at: usize, end: &[u8]| [begin, &filler(at - begin.len()), end].concat();
    let numbers: String = (0..30_000).map(|number| format!("w{number} ")).collect();
    let texts: [(&str, Vec<u8>); 9] = [
        ("control", b"coral\0reef\x07\x1b[0m tide\n".to_vec()),
        ("invalid", b"coral \xff reef".to_vec()),
        ("invalid-late", text(b"coral ", SEARCHED - 1, b"\xff")),
        ("invalid-beyond", text(b"coral ", SEARCHED, b"\xff")),
        ("letter-cut", text(b"coral ", SEARCHED - 1, "é".as_bytes())),
        ("word-cut", text(b"", SEARCHED - 3, b" atoll")),
        ("word-beyond", text(b"", SEARCHED, b" atoll reef")),
        ("one-word", [&b"coral "[..], &[b'x'; SEARCHED]].concat()),
        ("many-words", [b"coral ", numbers.as_bytes()].concat()),
    ];
    for (name, bytes) in &texts {
        make(&rig, name.as_bytes(), bytes);
    }
    let expected: [(&str, &[&str]); 7] = [
        ("text:coral", &["control", "invalid-beyond", "letter-cut", "many-words", "one-word"]),
        ("text:reef", &["control"]),
        ("text:tide", &["control"]),
        ("text:atoll", &[]),
        ("text:at", &["word-cut"]),
        ("text:w29999", &["many-words"]),
        ("text:sand text:coral", &["invalid-beyond", "letter-cut"]),
    ];
    by_walk_and_by_index(&rig, |by| {
        for (query, names) in expected {
            let names: Vec<_> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
            assert_eq!(found(&rig, query), names, "{by}: {query}");
        }
    });
}

#[test]
fn of_the_largest_line_only_the_first_bytes_are_read() {
    let rig = Rig::new();
    let line = make(&rig, b"line", b"coral");
    rig.set(line, None, SetAttr { size: Some(1 << 30), ..SetAttr::default() }).unwrap();
    let open = rig.open(line, BOTH).unwrap();
    rig.write(open, SEARCHED as u64, b" reef").unwrap();
    rig.write(open, (1 << 30) - 5, b" tide").unwrap();
    rig.close(open);
    let tree = rig.shard.tree().unwrap();
    let rnode = tree.node(line).unwrap().unwrap().rnode;
    let bytes = pelago_search::first_bytes(&tree, &rig.content, &rnode).unwrap().unwrap();
    assert_eq!((bytes.len(), bytes.capacity(), &bytes[..5]), (SEARCHED, SEARCHED, &b"coral"[..]));
    by_walk_and_by_index(&rig, |by| {
        assert_eq!(found(&rig, "text:coral"), [b"line"], "{by}");
        assert!(found(&rig, "text:reef or text:tide").is_empty(), "{by}");
        assert_eq!(found(&rig, "size=1G"), [b"line"], "{by}");
    });
}
