//! Properties of random queries: the canonical text has the same meaning, a query matches the same
//! files as a naive evaluator, and no bytes crash the process.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::borrow::Cow;

use pelago_find::{Candidate, Query};
use pelago_wire::limits::QUERY_BYTES;
use pelago_wire::{FileKind, Time};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const NOW: Time = Time { seconds: 1_800_000_000, nanos: 0 };
/// The tags that the test files may have, each with the value `1`.
const TAGS: [&str; 4] = ["a", "b", "or", "size"];

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    }
}

/// A file that has the tags whose bits are set.
struct Tagged(usize);

impl Candidate for Tagged {
    fn name(&self) -> &[u8] {
        b"name"
    }

    fn kind(&self) -> FileKind {
        FileKind::Regular
    }

    fn size(&self) -> u64 {
        self.0 as u64
    }

    fn mtime(&self) -> Time {
        NOW
    }

    fn uid(&self) -> u32 {
        0
    }

    fn tag(&self, key: &str) -> Option<Cow<'_, [u8]>> {
        let number = TAGS.iter().position(|tag| *tag == key)?;
        (self.0 >> number & 1 == 1).then_some(Cow::Borrowed(b"1"))
    }

    fn has_text(&self, _: &[String]) -> bool {
        false
    }

    fn uid_of(&self, _: &str) -> Option<u32> {
        None
    }
}

/// The meaning of a query, before it is written.
#[derive(Debug, Clone)]
enum Meant {
    /// The number of a tag, and whether its value is written.
    Tag(usize, bool),
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
}

impl Meant {
    fn matches(&self, file: usize) -> bool {
        match self {
            Self::Tag(number, _) => file >> number & 1 == 1,
            Self::Not(part) => !part.matches(file),
            Self::And(left, right) => left.matches(file) && right.matches(file),
            Self::Or(left, right) => left.matches(file) || right.matches(file),
        }
    }

    /// Writes a query with a bracket around each part.
    fn bracketed(&self) -> String {
        match self {
            Self::Tag(number, true) => format!("tag:{}=1", TAGS[*number]),
            Self::Tag(number, false) => format!("tag:{}", TAGS[*number]),
            Self::Not(part) => format!("not({})", part.bracketed()),
            Self::And(left, right) => format!("({})({})", left.bracketed(), right.bracketed()),
            Self::Or(left, right) => format!("({}) or ({})", left.bracketed(), right.bracketed()),
        }
    }

    /// Writes a query with the brackets that it needs; `binds` is the precedence of the outer
    /// expression: 0 for `or`, 1 for `and`, 2 for `not`.
    fn bare(&self, binds: u8) -> String {
        let (own, text) = match self {
            Self::Tag(..) => (3, self.bracketed()),
            Self::Not(part) => (2, format!("not {}", part.bare(2))),
            Self::And(left, right) => (1, format!("{} and {}", left.bare(1), right.bare(1))),
            Self::Or(left, right) => (0, format!("{} or {}", left.bare(0), right.bare(0))),
        };
        if own < binds { format!("({text})") } else { text }
    }
}

fn meant() -> impl Strategy<Value = Meant> {
    let tag = (0..TAGS.len(), any::<bool>()).prop_map(|(tag, value)| Meant::Tag(tag, value));
    tag.prop_recursive(4, 16, 2, |part| {
        let pair = (part.clone(), part.clone()).prop_map(|(one, two)| (one.into(), two.into()));
        prop_oneof![
            part.prop_map(|part| Meant::Not(part.into())),
            pair.clone().prop_map(|(one, two)| Meant::And(one, two)),
            pair.prop_map(|(one, two)| Meant::Or(one, two)),
        ]
    })
}

fn parse(text: &str) -> Query {
    Query::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Checks that two queries match the same files.
fn assert_same(one: &str, two: &str) -> Result<(), TestCaseError> {
    let queries = [parse(one), parse(two)];
    for file in 0..1 << TAGS.len() {
        let [one, two] = [&queries[0], &queries[1]].map(|query| query.matches(&Tagged(file), NOW));
        prop_assert_eq!(one, two);
    }
    Ok(())
}

/// Returns a value in quotes.
fn quoted(value: &[u8]) -> Vec<u8> {
    let escaped = value.iter().flat_map(|byte| match byte {
        b'"' | b'\\' => vec![b'\\', *byte],
        _ => vec![*byte],
    });
    [b"\"".to_vec(), escaped.collect(), b"\"".to_vec()].concat()
}

/// Generates texts of terms, most of them valid.
fn term() -> impl Strategy<Value = Vec<u8>> {
    let value =
        vec(prop_oneof![3 => any::<u8>(), 1 => prop::sample::select(b"\"\\ ()[]*".to_vec())], 1..9);
    let with =
        |head: &'static str| move |value: Vec<u8>| [head.as_bytes(), &quoted(&value)].concat();
    let sign = prop::sample::select(vec!["<", "<=", ">=", ">"]);
    let plain = prop::sample::select(vec![
        "a=1",
        "tag:a",
        "tag:name=x",
        "or=2",
        "k=\"\"",
        "kind=dir",
        "kind=\"socket\"",
        "owner=007",
        "owner=ann",
        "text:\"Two Words\"",
        "name~*.[ch]",
        "name=x",
        "not=not",
    ]);
    prop_oneof![
        value.clone().prop_map(with("key=")),
        value.clone().prop_map(with("tag:mtime=")),
        value.clone().prop_map(with("name=")),
        value.clone().prop_map(with("name~")),
        "[\\PC]{1,8}".prop_map(|text| [b"text:".as_slice(), &quoted(text.as_bytes())].concat()),
        "[\\PC]{1,8}".prop_map(|text| [b"owner=".as_slice(), &quoted(text.as_bytes())].concat()),
        (sign.clone(), any::<u64>(), 0..64_u32, "[KMGT]?")
            .prop_map(|(sign, size, low, unit)| format!("size{sign}{}{unit}", size >> low).into()),
        (sign.clone(), any::<u64>(), 0..64_u32, "[smhdwy]")
            .prop_map(|(sign, age, low, unit)| format!("mtime{sign}{}{unit}", age >> low).into()),
        (sign, 0..=9999_u16, 1..=12_u8, 1..=31_u8)
            .prop_map(|(sign, y, m, d)| format!("mtime{sign}{y:04}-{m:02}-{d:02}").into()),
        plain.prop_map(|text| text.as_bytes().to_vec()),
    ]
}

/// Generates texts of pieces of the language, most of them invalid as a whole.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let pieces =
        vec!["and", "or", "not", "(", ")", " ", "a=", "tag:", "name~", "\"", "\\", "1", "x"];
    let piece = prop::sample::select(pieces).prop_map(|piece| piece.as_bytes().to_vec());
    let piece = prop_oneof![4 => piece, 2 => term(), 1 => vec(any::<u8>(), 0..3)];
    vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

/// Generates the text between two terms, valid or not.
fn joint() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![" ", " and ", " or ", " not ", " (", ") "])
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_query_matches_what_the_naive_evaluator_says(meant in meant()) {
        for text in [meant.bracketed(), meant.bare(0)] {
            let query = parse(&text);
            for file in 0..1 << TAGS.len() {
                prop_assert_eq!(query.matches(&Tagged(file), NOW), meant.matches(file), "{}", text);
            }
        }
        prop_assert_eq!(parse(&meant.bracketed()), parse(&meant.bare(0)));
    }

    #[test]
    fn not_and_and_or_keep_the_laws_of_logic(a in meant(), b in meant(), c in meant()) {
        // A bracket around each, so that only the law decides what belongs together.
        let [a, b, c] = [a, b, c].map(|meant| format!("({})", meant.bare(0)));
        assert_same(&format!("not({a} {b})"), &format!("not{a} or not{b}"))?;
        assert_same(&format!("not({a} or {b})"), &format!("not{a} not{b}"))?;
        assert_same(&format!("not not{a}"), &a)?;
        assert_same(&format!("{a}{b}"), &format!("{b} and {a}"))?;
        // The law of distribution with one tag twice, because terms have a limit.
        assert_same(&format!("tag:a ({b} or {c})"), &format!("tag:a {b} or tag:a {c}"))?;
    }

    #[test]
    fn the_canonical_text_is_parsed_as_an_equal_query(
        terms in vec((term(), joint()), 1..9),
    ) {
        let text: Vec<u8> = terms.into_iter().flat_map(|(term, then)| {
            [term, then.as_bytes().to_vec()].concat()
        }).collect();
        check(&text)?;
        check(&[&text, b"a=1".as_slice()].concat())?;
    }

    #[test]
    fn the_canonical_text_of_one_term_is_parsed_as_an_equal_query(term in term()) {
        check(&term)?;
    }

    #[test]
    fn no_bytes_end_the_process(bytes in prop_oneof![vec(any::<u8>(), 0..200), soup()]) {
        check(&bytes)?;
    }
}

/// Parses any bytes. An error names a position in them; a query has a text that means the same.
fn check(text: &[u8]) -> Result<(), TestCaseError> {
    match Query::parse(text) {
        Ok(query) => {
            let canonical = query.to_bytes();
            prop_assert!(canonical.len() <= QUERY_BYTES);
            let again = Query::parse(&canonical);
            prop_assert_eq!(again.as_ref(), Ok(&query));
            prop_assert_eq!(again.unwrap().to_bytes(), canonical);
            for file in 0..1 << TAGS.len() {
                let _: bool = query.matches(&Tagged(file), NOW);
            }
        }
        Err(error) => {
            let at = error.position();
            prop_assert!(at.offset <= text.len() && at.column <= at.offset + 1, "{}", error);
            let message = error.to_string();
            prop_assert!(message.contains(&at.to_string()) && !message.contains('\n'));
        }
    }
    Ok(())
}
