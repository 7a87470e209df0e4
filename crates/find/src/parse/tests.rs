//! Tests of each feature of the grammar, and of each error.

use pelago_wire::FileKind;
use pelago_wire::limits::{QUERY_BYTES, QUERY_NESTING, QUERY_TERMS};

use super::parse;
use crate::comparison::Comparison;
use crate::error::QueryError;
use crate::expr::{Expr, FileOwner, Term, When};
use crate::query::Query;

fn canonical(text: &str) -> String {
    let query = Query::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(Query::parse(&query.to_bytes()).as_ref(), Ok(&query), "{text}");
    query.to_string()
}

fn term(text: &str) -> Term {
    match parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}")) {
        Expr::Term(term) => term,
        other => panic!("{text}: {other:?}"),
    }
}

/// Returns the error of a text, with the offset and the column that it names.
fn error(text: &[u8]) -> (QueryError, usize, usize) {
    let error = Query::parse(text).unwrap_err();
    let at = error.position();
    assert!(at.offset <= text.len(), "{error}");
    assert!(error.to_string().contains(&at.to_string()), "{error}");
    (error, at.offset, at.column)
}

/// Checks the kind of an error and the offset that it names.
macro_rules! assert_error {
    ($text:expr, $pattern:pat, $offset:expr) => {
        let (error, offset, _) = error($text.as_ref());
        assert!(matches!(error, $pattern), "{error:?}");
        assert_eq!(offset, $offset, "{error}");
    };
}

#[test]
fn not_binds_tightest_then_and_then_or() {
    assert_eq!(canonical("a=1 b=2 or not c=3 d=4"), "a=1 b=2 or not c=3 d=4");
    assert_eq!(canonical("a=1 or b=2 and c=3"), "a=1 or b=2 c=3");
    assert_eq!(canonical("(a=1 or b=2) c=3"), "(a=1 or b=2) c=3");
    assert_eq!(canonical("not(a=1 b=2)or c=3"), "not (a=1 b=2) or c=3");
    assert_eq!(canonical("not not a=1"), "not not a=1");
}

#[test]
fn and_may_be_left_out_and_brackets_that_change_nothing_are() {
    let same = ["a=1 b=2 c=3", "a=1 and b=2 and c=3", "(a=1 b=2)c=3", "((a=1)(b=2 (c=3)))"];
    for text in same {
        assert_eq!(canonical(text), "a=1 b=2 c=3");
    }
    assert_eq!(canonical("(a=1 or b=2) or ((c=3))"), "a=1 or b=2 or c=3");
    assert_eq!(canonical(" \ta=1\r\n b=2\n"), "a=1 b=2");
}

#[test]
fn keywords_are_lower_case_words_without_sign_and_quotes() {
    assert_eq!(canonical("or=1 and and=not or not=\"or\""), "or=1 and=not or not=or");
    assert_eq!(canonical("tag:or or tag:not"), "tag:or or tag:not");
    assert_eq!(canonical("text:and"), "text:and");
    assert_error!("a=1 AND b=2", QueryError::Sign { .. }, 7);
    assert_error!("a=1 \"or\" b=2", QueryError::NoTerm { .. }, 4);
}

#[test]
fn tags_have_a_value_or_any() {
    let Term::Tag { key, value } = term("color=\"dark \\\"red\\\" \\\\\"") else { panic!() };
    assert_eq!((key.as_str(), &*value), ("color", &b"dark \"red\" \\"[..]));
    assert_eq!(canonical("tag:color=red tag:size=1 tag:x"), "color=red tag:size=1 tag:x");
    assert_eq!(canonical("color=\"\" a.b_c-9=x=y~z"), "color=\"\" a.b_c-9=x=y~z");
    assert_eq!(canonical("a=\"b\""), "a=b");
    assert_eq!(canonical("a=\"b\nc\" d=\\"), "a=\"b\nc\" d=\\");
    let Term::Tag { value, .. } = (match parse(b"k=\xff\xfe").unwrap() {
        Expr::Term(term) => term,
        _ => panic!(),
    }) else {
        panic!()
    };
    assert_eq!(&*value, b"\xff\xfe");
}

#[test]
fn a_value_without_quotes_ends_at_white_space_or_a_bracket() {
    assert_eq!(canonical("(a=b)"), "a=b");
    assert_eq!(canonical("a=b(c=d or e=f)"), "a=b (c=d or e=f)");
    assert_eq!(canonical("a=\"(b)\"(c=d)"), "a=\"(b)\" c=d");
}

#[test]
fn names_are_whole_or_patterns() {
    assert_eq!(
        canonical("name=\"a b\" name~*.rs name~\"[a b]*\""),
        "name=\"a b\" name~*.rs name~\"[a b]*\""
    );
    assert_error!("name=a/b", QueryError::Name { .. }, 5);
    assert_error!("name=..", QueryError::Name { .. }, 5);
    assert_error!("name~a[b", QueryError::Glob { .. }, 6);
    // In quotes the backslash of the pattern takes two characters.
    assert_error!("name~\"\\\\*a[b\"", QueryError::Glob { .. }, 10);
    assert!(matches!(parse(b"name=\xff"), Ok(Expr::Term(Term::Name(_)))));
    assert!(matches!(parse(b"name~\xff*"), Ok(Expr::Term(Term::NameLike(_)))));
}

#[test]
fn sizes_have_powers_of_1024() {
    let size = |text: &str| match term(text) {
        Term::Size { comparison, bytes } => (comparison, bytes),
        other => panic!("{other:?}"),
    };
    assert_eq!(size("size>1G"), (Comparison::Greater, 1 << 30));
    assert_eq!(size("size<2K"), (Comparison::Less, 2048));
    assert_eq!(size("size>=3M"), (Comparison::GreaterOrEqual, 3 << 20));
    assert_eq!(size("size<=4T"), (Comparison::LessOrEqual, 4 << 40));
    assert_eq!(size("size=\"007\""), (Comparison::Equal, 7));
    assert_eq!(size("size=18446744073709551615"), (Comparison::Equal, u64::MAX));
    assert_eq!(
        canonical("size=0 size>1024 size<1025K size<1024G"),
        "size=0 size>1K size<1025K size<1T"
    );
    for none in ["size>x", "size>1k", "size>1KB", "size>-1", "size>K", "size>1.5G", "size>1\u{e9}"]
    {
        assert_error!(none, QueryError::Size { .. }, 5);
    }
    for large in ["size>16777216T", "size>18446744073709551616", "size>99999999999999999999K"] {
        assert_error!(large, QueryError::LargeSize { .. }, 5);
    }
}

#[test]
fn times_are_ages_or_days() {
    let mtime = |text: &str| match term(text) {
        Term::Mtime { comparison, when } => (comparison, when),
        other => panic!("{other:?}"),
    };
    assert_eq!(mtime("mtime<7d"), (Comparison::Less, When::Ago(7 * 86_400)));
    assert_eq!(mtime("mtime>1y"), (Comparison::Greater, When::Ago(365 * 86_400)));
    assert_eq!(mtime("mtime<=90m"), (Comparison::LessOrEqual, When::Ago(5400)));
    assert!(matches!(mtime("mtime>=2026-01-31"), (Comparison::GreaterOrEqual, When::Day(_))));
    assert_eq!(
        canonical("mtime<14d mtime<60s mtime<25h mtime<0d mtime<365d mtime<2026-01-31"),
        "mtime<2w mtime<1m mtime<25h mtime<0s mtime<1y mtime<2026-01-31"
    );
    for none in ["mtime<7", "mtime<d", "mtime<7days", "mtime<2026-02-30", "mtime<2026-1-1"] {
        assert_error!(none, QueryError::When { .. }, 6);
    }
    assert_error!("mtime>18446744073709551615m", QueryError::LargeAge { .. }, 6);
    assert_error!("mtime=7d", QueryError::Sign { .. }, 5);
}

#[test]
fn kinds_are_seven_words() {
    for (word, kind) in [
        ("file", FileKind::Regular),
        ("dir", FileKind::Directory),
        ("link", FileKind::Symlink),
        ("fifo", FileKind::Fifo),
        ("socket", FileKind::Socket),
        ("char", FileKind::CharDevice),
        ("block", FileKind::BlockDevice),
    ] {
        let text = format!("kind={word}");
        assert_eq!(term(&text), Term::Kind(kind));
        assert_eq!(canonical(&text), text);
        let (error, ..) = error(b"kind=folder");
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_error!("kind=folder", QueryError::Kind { .. }, 5);
}

#[test]
fn owners_are_numbers_or_names() {
    assert_eq!(term("owner=0042"), Term::Owner(FileOwner::Uid(42)));
    assert_eq!(term("owner=ann"), Term::Owner(FileOwner::Name("ann".to_owned())));
    assert_eq!(canonical("owner=\"7\" owner=7a"), "owner=7 owner=7a");
    assert_error!("owner=4294967296", QueryError::Uid { .. }, 6);
    assert_error!(b"owner=a\xff", QueryError::NotUtf8 { .. }, 7);
}

#[test]
fn texts_are_words_in_lower_case() {
    let words = vec!["some".to_owned(), "wörds".to_owned()];
    assert_eq!(term("text:\"Some, WÖRDS!\""), Term::Text(words));
    assert_eq!(canonical("text:Some-Words text:\"x\""), "text:\"some words\" text:x");
    assert_error!("text:\"--\"", QueryError::NoWord { .. }, 5);
    assert_error!(b"text:\"a\\\"\xff\"", QueryError::NotUtf8 { .. }, 9);
}

#[test]
fn what_is_no_term_is_refused_where_it_stands() {
    assert_error!("", QueryError::NoTerm { .. }, 0);
    assert_error!("  ", QueryError::NoTerm { .. }, 2);
    assert_error!("a=1 or", QueryError::NoTerm { .. }, 6);
    assert_error!("a=1 and or b=2", QueryError::NoTerm { .. }, 8);
    assert_error!("()", QueryError::NoTerm { .. }, 1);
    assert_error!("not", QueryError::NoTerm { .. }, 3);
    assert_error!("a=1 | b=2", QueryError::NoTerm { .. }, 4);
    assert_error!(b"a=1 \xff=2", QueryError::NoTerm { .. }, 4);
    assert_error!("a=1 (b=2", QueryError::Unclosed { .. }, 4);
    assert_error!("a=1) b=2", QueryError::Unopened { .. }, 3);
}

#[test]
fn a_key_is_followed_by_one_of_its_signs() {
    for (text, offset) in [
        ("foo", 3),
        ("foo bar=1", 3),
        ("size > 1G", 4),
        ("name>x", 4),
        ("name:x", 4),
        ("a~b", 1),
        ("a<b", 1),
        ("a!=b", 1),
        ("tag", 3),
        ("tag=x", 3),
        ("text=x", 4),
        ("kind~x", 4),
        ("owner>1", 5),
        ("size~1", 4),
        ("tag:a~b", 5),
        ("tag:a\u{1}", 5),
    ] {
        assert_error!(text, QueryError::Sign { .. }, offset);
    }
    assert_error!("tag:", QueryError::NoKey { .. }, 4);
    assert_error!("tag:=x", QueryError::NoKey { .. }, 4);
    assert_error!("k".repeat(65) + "=1", QueryError::LongKey { bytes: 65, .. }, 0);
    assert_error!("tag:".to_owned() + &"k".repeat(65), QueryError::LongKey { .. }, 4);
    assert!(parse(("k".repeat(64) + "=1").as_bytes()).is_ok());
}

#[test]
fn a_value_stands_directly_behind_the_sign() {
    assert_error!("a= b", QueryError::NoValue { .. }, 2);
    assert_error!("a=", QueryError::NoValue { .. }, 2);
    for text in ["name=\"\"", "name~\"\"", "size>\"\"", "kind=\"\"", "text:\"\"", "owner=\"\""] {
        assert_error!(text, QueryError::NoValue { .. }, 5 + usize::from(text.starts_with('o')));
    }
    assert_error!("a=\"b", QueryError::UnclosedQuote { .. }, 2);
    assert_error!("a=\"b\\", QueryError::QuoteEscape { .. }, 4);
    assert_error!("a=\"b\\n\"", QueryError::QuoteEscape { .. }, 4);
    assert_error!("a=\"b\"c", QueryError::BehindQuote { .. }, 5);
    assert_error!("a=b\"c\"", QueryError::QuoteInside { .. }, 3);
}

#[test]
fn control_characters_stand_in_quotes_only() {
    for byte in (0..32).chain([127]).filter(|byte| !b" \t\r\n".contains(byte)) {
        let text = [b"a=b".as_slice(), &[byte]].concat();
        assert_error!(text, QueryError::Control { .. }, 3);
        assert_error!([byte], QueryError::Control { .. }, 0);
        let text = [b"a=\"".as_slice(), &[byte, b'"']].concat();
        assert!(parse(&text).is_ok());
    }
}

#[test]
fn the_first_error_is_the_one_that_is_told() {
    assert_error!("kind=x size>y", QueryError::Kind { .. }, 5);
    assert_error!("kind=x %", QueryError::Kind { .. }, 5);
}

#[test]
fn a_column_counts_characters() {
    let (_, offset, column) = error("k=é x".as_bytes());
    assert_eq!((offset, column), (6, 6));
}

#[test]
fn a_query_has_at_most_so_many_bytes() {
    let text = |bytes: usize| "k=".to_owned() + &"v".repeat(bytes - 2);
    assert!(parse(text(QUERY_BYTES).as_bytes()).is_ok());
    assert_error!(text(QUERY_BYTES + 1), QueryError::TooLong { .. }, QUERY_BYTES);
    // Its lower case has three bytes instead of two.
    let grown = "text:".to_owned() + &"Ⱥ".repeat(2000);
    assert_error!(grown, QueryError::LongCanonical { .. }, grown.len());
}

#[test]
fn a_query_has_at_most_so_many_terms() {
    assert!(parse("a=1 ".repeat(QUERY_TERMS).as_bytes()).is_ok());
    assert_error!("a=1 ".repeat(QUERY_TERMS + 1), QueryError::TooManyTerms { .. }, 4 * QUERY_TERMS);
}

#[test]
fn brackets_and_not_are_at_most_so_deep() {
    let brackets = |depth: usize| "(".repeat(depth) + "a=1" + &")".repeat(depth);
    assert!(parse(brackets(QUERY_NESTING).as_bytes()).is_ok());
    assert_error!(brackets(QUERY_NESTING + 1), QueryError::TooDeep { .. }, QUERY_NESTING);
    assert!(parse(("not ".repeat(QUERY_NESTING) + "a=1").as_bytes()).is_ok());
    assert_error!("not ".repeat(1000), QueryError::TooDeep { .. }, 4 * QUERY_NESTING);
    assert_error!("(".repeat(QUERY_BYTES), QueryError::TooDeep { .. }, QUERY_NESTING);
    // Beside each other they are not deep.
    assert!(parse("(not a=1)".repeat(QUERY_TERMS).as_bytes()).is_ok());
}

#[test]
fn an_error_is_one_sentence_with_its_position_and_what_to_write() {
    let text = |query: &str| Query::parse(query.as_bytes()).unwrap_err().to_string();
    assert_eq!(
        text("size>big"),
        "expected a size at byte 5 (column 6): write a number of bytes, or one with K, M, G or T \
         behind it for powers of 1024"
    );
    assert_eq!(
        text("a=1 or"),
        "expected a term at byte 6 (column 7), found the end: write one such as name=NAME or \
         KEY=VALUE there"
    );
    assert_eq!(
        text("name~[z-a]"),
        "expected a pattern, which is wrong at byte 6 (column 7): the range ends before it begins: \
         exchange its two ends"
    );
}
