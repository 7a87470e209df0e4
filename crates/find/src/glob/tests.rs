//! Tests of patterns, some against a naive matcher.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

fn matches(pattern: &str, name: &str) -> bool {
    Glob::new(pattern.as_bytes()).unwrap().matches(name.as_bytes())
}

/// Returns the characters of a name, and its bytes that are not part of a character.
fn units(name: &[u8]) -> Vec<Result<char, u8>> {
    let chunks = name.utf8_chunks();
    let units = chunks.flat_map(|chunk| {
        let letters = chunk.valid().chars().map(Ok);
        letters.chain(chunk.invalid().iter().copied().map(Err)).collect::<Vec<_>>()
    });
    units.collect()
}

/// Matches by brute force: a run takes nothing, or one character and goes on.
fn naive(pattern: &[Piece], name: &[Result<char, u8>]) -> bool {
    let Some((piece, rest)) = pattern.split_first() else { return name.is_empty() };
    if let Piece::Run = piece {
        return naive(rest, name) || !name.is_empty() && naive(pattern, &name[1..]);
    }
    let Some((first, behind)) = name.split_first() else { return false };
    let is_one = match piece {
        Piece::One(letter) => *first == Ok(*letter),
        Piece::Class(is_negated, letters) => {
            first.is_ok_and(|first| letters.contains(&first)) != *is_negated
        }
        Piece::Any | Piece::Run => true,
    };
    is_one && naive(rest, behind)
}

/// A part of a pattern before it is written.
#[derive(Debug, Clone)]
enum Piece {
    One(char),
    Any,
    Run,
    Class(bool, Vec<char>),
}

impl Piece {
    fn write(&self) -> String {
        match self {
            Self::One(letter) if "*?[\\".contains(*letter) => format!("\\{letter}"),
            Self::One(letter) => letter.to_string(),
            Self::Any => "?".to_owned(),
            Self::Run => "*".to_owned(),
            Self::Class(is_negated, letters) => {
                let sign = if *is_negated { "!" } else { "" };
                let letters = letters.iter().map(|letter| format!("\\{letter}"));
                format!("[{sign}{}]", letters.collect::<String>())
            }
        }
    }
}

/// Returns a name that most patterns of these pieces match.
fn name_of(pieces: &[Piece]) -> Vec<u8> {
    let bytes = pieces.iter().flat_map(|piece| match piece {
        Piece::One(letter) => letter.to_string().into_bytes(),
        Piece::Class(false, letters) => letters[0].to_string().into_bytes(),
        Piece::Class(true, _) | Piece::Any => b"x".to_vec(),
        Piece::Run => b"\xffrun".to_vec(),
    });
    bytes.collect()
}

fn letter() -> impl Strategy<Value = char> {
    prop::sample::select(vec!['a', 'b', 'é', '*', ']', '\\'])
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        3 => letter().prop_map(Piece::One),
        1 => Just(Piece::Any),
        2 => Just(Piece::Run),
        1 => (any::<bool>(), vec(letter(), 1..3)).prop_map(|(not, of)| Piece::Class(not, of)),
    ]
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let letter = letter().prop_map(|letter| letter.to_string().into_bytes());
    vec(prop_oneof![8 => letter, 1 => Just(vec![0xff]), 1 => Just(vec![0xc3])], 0..9)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_pattern_matches_what_the_naive_matcher_matches(
        pieces in vec(piece(), 0..8),
        name in name(),
    ) {
        let pattern: String = pieces.iter().map(Piece::write).collect();
        let glob = Glob::new(pattern.as_bytes()).unwrap();
        prop_assert_eq!(glob.matches(&name), naive(&pieces, &units(&name)), "{}", pattern);
    }

    /// The names come from the patterns too, so that many match.
    #[test]
    fn a_name_that_matches_has_the_literals_in_their_order(
        pieces in vec(piece(), 0..8),
        name in prop_oneof![name(), vec(piece(), 0..8).prop_map(|of| name_of(&of))],
    ) {
        let pattern: String = pieces.iter().map(Piece::write).collect();
        let glob = Glob::new(pattern.as_bytes()).unwrap();
        for name in [name, name_of(&pieces)] {
            if !glob.matches(&name) {
                continue;
            }
            let mut at = 0;
            for Literal { bytes, is_begin, is_end } in glob.literals() {
                let rest = &name[at..];
                let place = (0..=rest.len()).find(|place| rest[*place..].starts_with(&bytes));
                prop_assert!(place.is_some(), "{} {:?}", pattern, name);
                prop_assert!(!is_begin || at == 0 && name.starts_with(&bytes));
                prop_assert!(!is_end || name.ends_with(&bytes));
                at += place.unwrap_or_default() + bytes.len();
            }
        }
    }

    #[test]
    fn no_pattern_and_no_name_end_the_process(
        pattern in vec(any::<u8>(), 0..40),
        name in vec(any::<u8>(), 0..40),
    ) {
        match Glob::new(&pattern) {
            Ok(glob) => drop((glob.matches(&name), glob.literals())),
            Err(error) => prop_assert!(error.offset() < pattern.len()),
        }
    }
}

#[test]
fn stars_stand_for_any_characters_also_for_none() {
    assert!(matches("*", "") && matches("*", ".x") && matches("**", "ab"));
    assert!(matches("a*", "a") && matches("*.rs", "lib.rs") && matches("a*b*c", "axbxbc"));
    assert!(!matches("*.rs", "lib.rs2") && !matches("a*b", "a") && !matches("a*a", "a"));
}

#[test]
fn a_question_mark_stands_for_one_character_or_for_one_byte_of_none() {
    assert!(matches("caf?", "café") && !matches("caf?", "caf") && !matches("??", "é"));
    let glob = Glob::new(b"a?").unwrap();
    assert!(glob.matches(b"a\xff") && !glob.matches(b"a\xff\xff"));
}

#[test]
fn brackets_stand_for_one_of_their_characters() {
    assert!(matches("[abc]", "b") && !matches("[abc]", "d") && !matches("[abc]", ""));
    assert!(matches("[a-z0-9]x", "7x") && !matches("[a-z]", "A") && matches("[à-ü]", "é"));
    assert!(matches("[!a]", "b") && !matches("[!a]", "a") && !matches("[!a]", ""));
    assert!(matches("[a-]", "-") && matches("[-a]", "-") && !matches("[a-]", "b"));
    assert!(matches("[a!]", "!") && matches("[^a]", "^"));
    assert!(matches("[\\]]", "]") && matches("[\\a-\\c]", "b") && matches("[[]", "["));
}

#[test]
fn a_backslash_takes_the_meaning_of_the_next_character() {
    assert!(matches("\\*", "*") && !matches("\\*", "a") && matches("\\\\", "\\"));
    assert!(matches("\\a", "a") && matches("]", "]"));
}

#[test]
fn literals_are_the_longest_runs_of_characters_that_stand_for_themselves() {
    let literals = |pattern: &[u8]| {
        let literals = Glob::new(pattern).unwrap().literals();
        let parts = literals.into_iter().map(|run| (run.bytes, run.is_begin, run.is_end));
        parts.collect::<Vec<_>>()
    };
    let run = |bytes: &[u8], is_begin, is_end| (bytes.to_vec(), is_begin, is_end);
    assert_eq!(literals(b"*.rs"), [run(b".rs", false, true)]);
    assert_eq!(literals(b"lib*"), [run(b"lib", true, false)]);
    assert_eq!(literals(b"lib.rs"), [run(b"lib.rs", true, true)]);
    assert_eq!(literals(b""), [run(b"", true, true)]);
    assert_eq!(
        literals(b"\\*a\\\\[b]?c[!d]e"),
        [run(b"*a\\b", true, false), run(b"c", false, false), run(b"e", false, true),]
    );
    assert_eq!(
        literals("[a-b]\u{e9}\u{20ac}*".as_bytes()),
        [run("\u{e9}\u{20ac}".as_bytes(), false, false),]
    );
    assert_eq!(
        literals(b"\xff\xc3*\x80"),
        [run(b"\xff\xc3", true, false), run(b"\x80", false, true),]
    );
    assert!(literals(b"*").is_empty() && literals(b"?[ab]*").is_empty());
}

#[test]
fn each_wrong_pattern_is_refused_where_it_is_wrong() {
    let error = |pattern: &str| Glob::new(pattern.as_bytes()).unwrap_err();
    assert_eq!(error("a[bc"), GlobError::Unclosed { offset: 1 });
    assert_eq!(error("["), GlobError::Unclosed { offset: 0 });
    assert_eq!(error("[a-"), GlobError::Unclosed { offset: 0 });
    assert_eq!(error("x[]"), GlobError::EmptyClass { offset: 1 });
    assert_eq!(error("[!]"), GlobError::EmptyClass { offset: 0 });
    assert_eq!(error("[az-a]"), GlobError::Range { offset: 2 });
    assert_eq!(error("ab\\"), GlobError::Escape { offset: 2 });
    assert_eq!(error("[a\\"), GlobError::Escape { offset: 2 });
}

/// A matcher that backtracks to every star would not end.
#[test]
fn a_pattern_of_many_stars_takes_no_exponential_time() {
    let pattern = "a*".repeat(2000) + "b";
    let glob = Glob::new(pattern.as_bytes()).unwrap();
    assert!(!glob.matches(&[b'a'; 10_000]));
    assert!(glob.matches(&[[b'a'; 10_000].as_slice(), b"b"].concat()));
}
