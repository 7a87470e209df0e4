//! Tests of regular expressions: what POSIX 1003.2 defines, what it does not, and a comparison with
//! `grep -E`.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pelago_keynote::{
    Assertion, Conditions, Pattern, Principal, Query, StringExpr, SyntaxError, Test, Values,
};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, prop_oneof};
use proptest::test_runner::{Config, RngSeed, TestRunner};

fn test(pattern: &StringExpr, text: &[u8]) -> Test {
    Test::Matches(StringExpr::Literal(text.to_vec()), Pattern::new(pattern.clone()))
}

fn passes(test: Test) -> bool {
    let licensee = Principal([7; 32]);
    let conditions = Conditions::new(vec![test]);
    let text =
        format!("Authorizer: \"POLICY\"\nLicensees: \"{licensee}\"\nConditions: {conditions}\n");
    let policy = Assertion::parse(text.as_bytes()).expect(&text);
    let action: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let values = Values::boolean();
    let query = Query { action: &action, requesters: &[licensee], values: &values };
    query.ask([&policy]).value == values.max()
}

/// Returns whether a part of the text matches; `None` if the pattern is not defined. A pattern that
/// is computed has the same meaning as a literal.
fn matches(pattern: &[u8], text: &[u8]) -> Option<bool> {
    let literal = StringExpr::Literal(pattern.to_vec());
    let (head, tail) = pattern.split_at(pattern.len() / 2);
    let computed = StringExpr::Joined(vec![
        StringExpr::Literal(head.to_vec()),
        StringExpr::Literal(tail.to_vec()),
    ]);
    let [literal, computed] = [literal, computed].map(|pattern| {
        let is_match = passes(test(&pattern, text));
        let is_none = passes(Test::Not(Box::new(test(&pattern, text))));
        assert!(!(is_match && is_none));
        (is_match || is_none).then_some(is_match)
    });
    assert_eq!(literal, computed);
    literal
}

fn check(pattern: &str, yes: &[&str], no: &[&str]) {
    for text in yes {
        assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), Some(true), "{pattern} {text:?}");
    }
    for text in no {
        assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), Some(false), "{pattern} {text:?}");
    }
}

fn undefined(pattern: &str) {
    for text in ["", "a", "ab", pattern] {
        assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), None, "{pattern} {text:?}");
    }
}

#[test]
fn characters_stand_for_themselves() {
    check("b", &["b", "abc"], &["", "a", "B"]);
    check("a b", &["a b"], &["ab", "a  b"]);
    check("-#/&~,:;<>=!@%_'`\"]}", &["-#/&~,:;<>=!@%_'`\"]}"], &["-#/&~"]);
    check("\t\n", &["\t\n"], &["\t", "tn"]);
    assert_eq!(matches(b"\xff\xc3", b"a\xff\xc3b"), Some(true));
    assert_eq!(matches(b"\xff", b"\xfe"), Some(false));
    assert_eq!(matches("\u{f6}".as_bytes(), "sch\u{f6}n".as_bytes()), Some(true));
    // Bytes, not characters.
    assert_eq!(matches(b"^..$", "\u{f6}".as_bytes()), Some(true));
    assert_eq!(matches(b"^.$", "\u{f6}".as_bytes()), Some(false));
    assert_eq!(matches("^\u{f6}+$".as_bytes(), "\u{f6}\u{f6}".as_bytes()), Some(false));
}

#[test]
fn a_point_is_any_byte() {
    check("a.c", &["abc", "a.c", "a\nc", "a\tc"], &["ac", "abbc"]);
    assert_eq!(matches(b"^.$", b"\xff"), Some(true));
    check(".", &["x"], &[""]);
}

#[test]
fn anchors_are_the_ends_of_the_text() {
    check("^a", &["a", "ab"], &["ba", "", "b\na"]);
    check("a$", &["a", "ba"], &["ab", "", "a\nb", "a\n"]);
    check("^a$", &["a"], &["aa", "a\n"]);
    check("^$", &[""], &["a", "\n"]);
    check("^", &["", "a"], &[]);
    check("$", &["", "a"], &[]);
    check("a^b", &[], &["a^b", "ab"]);
    check("a$b", &[], &["a$b", "ab"]);
    check("(^a|b$)", &["ax", "xb"], &["xa", "bx"]);
    check("^^a$$", &["a"], &["aa"]);
    check("(^)a", &["a"], &["ba"]);
    check("x(a|^b)", &["xa"], &["b", "xb"]);
}

#[test]
fn repetitions_repeat_the_element_before() {
    check("^ab*$", &["a", "ab", "abbb"], &["", "abab"]);
    check("^ab+$", &["ab", "abbb"], &["a", "abab"]);
    check("^ab?$", &["a", "ab"], &["abb"]);
    check("^(ab)*$", &["", "ab", "abab"], &["a", "aba"]);
    check("^(ab)+$", &["ab", "abab"], &["", "aba"]);
    check("^[ab]*$", &["", "abba"], &["abc"]);
    check("^.?$", &["", "x"], &["xx"]);
    check("^((a*)+)?$", &["", "aaa"], &["ab"]);
    check("(a*)*", &["", "b", "aa"], &[]);
    check("^a\\**$", &["a", "a***"], &["aa"]);
}

#[test]
fn an_interval_has_its_bounds() {
    check("^a{2}$", &["aa"], &["a", "aaa", "a{2}"]);
    check("^a{2,}$", &["aa", "aaaaa"], &["a", ""]);
    check("^a{1,3}$", &["a", "aaa"], &["", "aaaa"]);
    check("^a{0}$", &[""], &["a"]);
    check("^a{0,1}$", &["", "a"], &["aa"]);
    check("^a{0,}$", &["", "aaa"], &["b"]);
    check("^(ab){2}c{02}$", &["ababcc"], &["abcc", "ababc"]);
    check("^[ab]{3}$", &["aba"], &["ab", "abc"]);
    check("^a{255}$", &[&"a".repeat(255)], &[&"a".repeat(254), &"a".repeat(256)]);
    for bad in ["a{256}", "a{1,256}", "a{999999999999}", "a{,3}", "a{}", "a{,}", "a{3,1}"] {
        undefined(bad);
    }
    for bad in
        ["a{", "a{1", "a{1,", "a{1,2", "a{b}", "a{1b}", "a{1,b}", "a{-1}", "a{ 1}", "a{1,2,3}"]
    {
        undefined(bad);
    }
}

#[test]
fn alternatives_and_groups_have_their_precedence() {
    check("^(a|b)$", &["a", "b"], &["c", "ab"]);
    check("^a|b$", &["ax", "xb"], &["xax"]);
    check("^(ab|cd)(e|f)$", &["abe", "cdf"], &["abcde"]);
    check("^(a|ab)(c|bcd)$", &["abcd", "ac", "abc"], &["ab"]);
    check("^ab|c*$", &["ab", "c", ""], &[]);
    check("^(a(b(c)))$", &["abc"], &["ab"]);
    check("^a(b|c)d$", &["abd", "acd"], &["ad"]);
}

#[test]
fn special_characters_are_escaped_by_a_backslash() {
    for special in ["^", ".", "[", "$", "(", ")", "|", "*", "+", "?", "{", "\\", "}", "]", "/"] {
        check(&format!("^\\{special}$"), &[special], &["", "x", "\\\\"]);
        check(&format!("^\\{special}{{2}}$"), &[&special.repeat(2)], &[special]);
    }
    check(
        "^.*@keynote\\.research\\.att\\.com$",
        &["x@keynote.research.att.com"],
        &["x@keynoteXresearch.att.com"],
    );
}

#[test]
fn a_list_has_its_members() {
    check("^[abc]$", &["a", "b", "c"], &["d", "", "ab"]);
    check("^[^abc]$", &["d", "\n", "^"], &["a", ""]);
    check("^[a-c]$", &["a", "b", "c"], &["d", "-"]);
    check("^[^a-c]$", &["d", "-"], &["a", "b", "c"]);
    check("^[a-cx-z0]$", &["b", "y", "0"], &["d", "1", "-"]);
    check("^[a-a]$", &["a"], &["b"]);
    // `]` first, `-` first or last, `^` not first.
    check("^[]a]$", &["]", "a"], &["b"]);
    check("^[^]a]$", &["b"], &["]", "a"]);
    check("^[]]$", &["]"], &["a"]);
    check("^[^]]$", &["a"], &["]"]);
    check("^[]-a]$", &["]", "^", "_", "`", "a"], &["b", "\\", "-"]);
    check("^[-a]$", &["-", "a"], &["b"]);
    check("^[a-]$", &["-", "a"], &["b"]);
    check("^[^-a]$", &["b"], &["-", "a"]);
    check("^[--/]$", &["-", ".", "/"], &["0", ","]);
    check("^[%--]$", &["%", "&", "-"], &["$", "."]);
    check("^[a^]$", &["a", "^"], &["b"]);
    check("^[-]$", &["-"], &["a"]);
    // Nothing is special but these.
    check("^[.*+?(){}|$\\]$", &[".", "*", "(", "}", "|", "$", "\\"], &["x"]);
    check("^[\\d]$", &["\\", "d"], &["1"]);
    check("^[a\\]b]$", &["ab]", "\\b]"], &["]"]);
    check("^[&&a]$", &["&", "a"], &["b"]);
    check("^[a--b]$".replace("--", "~~").as_str(), &["~", "a", "b"], &["c"]);
    check("^[\\]$", &["\\"], &["]"]);
    check("^[[]$", &["["], &["]"]);
    check("^[a[]$", &["a", "["], &["]"]);
    assert_eq!(matches(b"^[\x80-\xff]$", b"\xc3"), Some(true));
    assert_eq!(matches(b"^[^a]$", b"\xc3"), Some(true));
    assert_eq!(matches(b"^[\x80-\xff]$", b"a"), Some(false));
}

#[test]
fn a_list_can_have_classes_and_named_characters() {
    let graph: String = ('!'..='~').collect();
    let classes = [
        ("alpha", "azAZ", "09_ "),
        ("digit", "0189", "aA "),
        ("alnum", "azAZ09", "_ -"),
        ("upper", "AMZ", "am1"),
        ("lower", "amz", "AM1"),
        ("space", " \t\n\r\u{b}\u{c}", "a_"),
        ("blank", " \t", "\n\ra"),
        ("punct", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "a1 "),
        ("print", graph.as_str(), "\t\n\u{7f}"),
        ("graph", graph.as_str(), " \t\u{7f}"),
        ("cntrl", "\t\n\u{1}\u{7f}", "a "),
        ("xdigit", "09afAF", "gG"),
    ];
    for (name, yes, no) in classes {
        let [yes, no] = [yes, no].map(|text| text.chars().map(String::from).collect::<Vec<_>>());
        let [yes, no] = [&yes, &no].map(|list| list.iter().map(String::as_str).collect::<Vec<_>>());
        check(&format!("^[[:{name}:]]$"), &yes, &no);
        check(&format!("^[^[:{name}:]]$"), &no, &yes);
        assert_eq!(matches(format!("^[[:{name}:]]$").as_bytes(), b"\xe4"), Some(false));
    }
    check("^[[:digit:]a-f]$", &["7", "c"], &["g"]);
    check("^[a-f[:digit:]-]$", &["7", "c", "-"], &["g"]);
    check("^[[:digit:][:upper:]]+$", &["A7"], &["a"]);
    check("^[[.a.]]$", &["a"], &["."]);
    check("^[[.-.]-/]$", &["-", ".", "/"], &["0"]);
    check("^[[.].]]$", &["]"], &["."]);
    check("^[a-[.c.]]$", &["b"], &["d"]);
    check("^[[=a=]b]$", &["a", "b"], &["="]);
    // A negated list of everything has no member.
    assert_eq!(matches(b"[^[:cntrl:][:print:]\x80-\xff]", b"a"), Some(false));
    for bad in ["[[:word:]]", "[[:ALPHA:]]", "[[::]]", "[[:alpha]]", "[[:alpha:]", "[[:"] {
        undefined(bad);
    }
    for bad in ["[[.space.]]", "[[..]]", "[[.a]]", "[[.", "[[=ab=]]", "[[=a.]]", "[[=a]]", "[[="] {
        undefined(bad);
    }
    for bad in ["[[:digit:]-z]", "[a-[:digit:]]", "[[=a=]-z]", "[a-[=b=]]"] {
        undefined(bad);
    }
}

#[test]
fn a_list_that_is_not_defined_is_none() {
    for bad in ["[", "[]", "[^]", "[^", "[a", "[a-", "[]a"] {
        undefined(bad);
    }
    for bad in ["[z-a]", "[b-a]", "[a-c-e]", "[ab-d-f]", "[a-cx-z-]b]-y"] {
        let is_defined = matches(bad.as_bytes(), b"b").is_some();
        assert_eq!(is_defined, bad == "[a-cx-z-]b]-y", "{bad}");
    }
    undefined("[a--]");
}

/// In the syntax of other programs these are something.
#[test]
fn what_posix_does_not_define_is_no_match() {
    let bad = [
        "", "a**", "a*+", "a+*", "a*?", "a+?", "a??", "a{1}{2}", "a{1}*", "a*{2}", "a?+", "a++",
        "*", "+", "?", "{", "{1}", "*a", "+a", "?a", "{a", "a|*b", "(*a)", "(+a)", "(?a)", "^*",
        "^*a", "a$*", "^+", "$?", "^{2}", "(^*)", "a|?", "a|{1}", "()", "(|a)", "(a|)", "a()",
        "()*", "(())", "a||b", "|a", "a|", "|", "(a||b)", "((a)|)", "(", ")", "(a", "a)", "(a))",
        "((a)", ")(", "a|(", "(?i)a", "(?:a)", "(?=a)", "(?!a)", "(?P<x>a)", "(?#a)", "(?<=a)b",
        "(?-u)a", "\\", "a\\", "\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\b", "\\B", "\\A",
        "\\z", "\\Z", "\\a", "\\n", "\\t", "\\x41", "\\u0041", "\\p{L}", "\\pL", "\\Q", "\\E",
        "\\0", "(a)\\1", "\\1", "\\9", "\\<a", "a\\>", "\\`a", "a\\'", "\\ ", "\\\u{7f}", "\\\n",
    ];
    for pattern in bad {
        undefined(pattern);
    }
    for pattern in [&b"\\\xff"[..], b"[\xff-\xfe]"] {
        assert_eq!(matches(pattern, b"\xff"), None);
    }
}

#[test]
fn a_regular_expression_has_its_size() {
    let is_defined = |pattern: &str| {
        let test = test(&StringExpr::literal(pattern), b"a");
        passes(test.clone()) || passes(Test::Not(Box::new(test)))
    };
    assert!(is_defined(&"a".repeat(1024)));
    assert!(!is_defined(&"a".repeat(1025)));
    for depth in [1, 8, 14] {
        let pattern = format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
        assert!(is_defined(&pattern), "{depth}");
    }
    let pattern = format!("{}a{}", "(".repeat(500), ")".repeat(500));
    assert!(!is_defined(&pattern));
    // A position is repeated as often as its repetitions allow.
    let cases = [
        ("a{255}", true),
        ("(a{255}){8}", true),
        ("(a{255}){9}", false),
        ("(a{99}){99}", false),
        ("((a{9}){9}){9}", true),
        ("(((a{9}){9}){9}){9}", false),
        ("((((((((a{255}){255}){255}){255}){255}){255}){255}){255})", false),
        ("((((a*)*)*)*)*", true),
        ("(.{255}){255}", false),
        ("a{255}b{255}c{255}d{255}e{255}f{255}g{255}h{255}", true),
        ("a{255}b{255}c{255}d{255}e{255}f{255}g{255}h{255}i{255}", false),
        ("([a-z]{1,20}\\.){1,64}", true),
    ];
    let begin = Instant::now();
    for (pattern, expected) in cases {
        assert_eq!(is_defined(pattern), expected, "{pattern}");
    }
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn the_regular_expressions_of_a_field_have_a_size_together() {
    let parse = |patterns: &[&str]| {
        let mut conditions = String::new();
        for pattern in patterns {
            write!(conditions, "a ~= \"{pattern}\";").unwrap();
        }
        let text = format!("Authorizer: \"POLICY\"\nConditions: {conditions}\n");
        Assertion::parse(text.as_bytes())
    };
    let begin = Instant::now();
    assert!(parse(&["(a{255}){8}"; 3]).is_ok());
    let says = parse(&["(a{255}){8}"; 5]).unwrap_err().to_string();
    let field = "the field `Conditions` of the credential";
    assert_eq!(says, format!("{field}: {}", SyntaxError::Patterns));
    assert!(parse(&["(a{99}){20}"; 300]).is_err());
    assert!(parse(&["a"; 700]).is_ok());
    assert!(parse(&["(a{255}){255}"; 300]).is_ok(), "what is not compiled is not counted");
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

/// Returns patterns that POSIX defines.
fn pattern() -> impl Strategy<Value = String> {
    let member = prop_oneof![
        "[ab01]",
        Just("a-b".to_owned()),
        Just("0-9".to_owned()),
        Just("[:alpha:]".to_owned()),
        Just("[:digit:]".to_owned()),
        Just("[:punct:]".to_owned()),
        Just("[.-.]".to_owned()),
        Just("[=b=]".to_owned()),
        Just("\\".to_owned()),
        Just("*".to_owned()),
    ];
    let list = (proptest::bool::ANY, proptest::bool::ANY, vec(member, 1..4), proptest::bool::ANY);
    let list = list.prop_map(|list| {
        let negation = if list.0 { "^" } else { "" };
        let first = if list.1 { "]" } else { "" };
        let last = if list.3 { "-" } else { "" };
        format!("[{negation}{first}{}{last}]", list.2.concat())
    });
    let leaf = prop_oneof![
        4 => "[ab01 -]",
        1 => Just(".".to_owned()),
        1 => Just("\\.".to_owned()),
        1 => Just("\\*".to_owned()),
        1 => Just("\\\\".to_owned()),
        1 => Just("]".to_owned()),
        2 => list,
    ];
    let repetition = proptest::sample::select(vec![
        "", "", "", "*", "+", "?", "{2}", "{0,1}", "{1,}", "{1,2}", "{0}",
    ]);
    let element = leaf.prop_recursive(3, 12, 4, {
        let repetition = repetition.clone();
        // `grep` does not find `-` by `(^-?)+`: no anchor is in a group.
        move |element| {
            let alternatives = alternatives(element, repetition.clone(), &[""]);
            alternatives.prop_map(|of| format!("({of})"))
        }
    });
    alternatives(element, repetition, &["", "", "", "^", "$"])
}

/// Returns alternatives of repeated elements, each between two anchors of a list.
fn alternatives(
    element: impl Strategy<Value = String>,
    repetition: impl Strategy<Value = &'static str>,
    anchors: &[&'static str],
) -> impl Strategy<Value = String> {
    let anchor = || proptest::sample::select(anchors.to_vec());
    let piece = (element, repetition).prop_map(|piece| format!("{}{}", piece.0, piece.1));
    let branch = (anchor(), vec(piece, 1..4), anchor());
    let branch = branch.prop_map(|all| format!("{}{}{}", all.0, all.1.concat(), all.2));
    vec(branch, 1..3).prop_map(|branches| branches.join("|"))
}

/// Returns for each line whether `grep -E` finds the pattern in it; `None` if it takes it for none.
fn grep(pattern: &str, lines: &[Vec<u8>]) -> Option<Vec<bool>> {
    let mut child = Command::new("grep")
        .args(["-a", "-n", "-E", "-e", pattern])
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut text = lines.join(&b'\n');
    text.push(b'\n');
    // It may end before it has read all.
    let _written = child.stdin.take().unwrap().write_all(&text);
    let output = child.wait_with_output().unwrap();
    if output.status.code()? > 1 {
        return None;
    }
    let mut found = vec![false; lines.len()];
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let number = line.split(|byte| *byte == b':').next().unwrap();
        let number: usize = str::from_utf8(number).unwrap().parse().unwrap();
        found[number - 1] = true;
    }
    Some(found)
}

#[test]
fn grep_finds_the_same() {
    if !Command::new("grep").arg("--version").output().is_ok_and(|run| run.status.success()) {
        eprintln!("skipped: grep is not installed");
        return;
    }
    let byte = prop_oneof![
        8 => proptest::sample::select(b"ab01".to_vec()),
        2 => proptest::sample::select(b" -].*\\^\xff\xc3".to_vec()),
    ];
    let texts = vec(vec(byte, 0..6), 8);
    let config = Config {
        cases: 200,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let compare = |case: (String, Vec<Vec<u8>>)| {
        let (pattern, mut texts) = case;
        texts.push(pattern.clone().into_bytes());
        texts.push(Vec::new());
        let expected = grep(&pattern, &texts).map(|all| all.into_iter().map(Some).collect());
        let expected = expected.unwrap_or_else(|| vec![None; texts.len()]);
        let found: Vec<_> = texts.iter().map(|text| matches(pattern.as_bytes(), text)).collect();
        proptest::prop_assert_eq!(found, expected, "{}: {:?}", pattern, texts);
        Ok(())
    };
    runner.run(&(pattern(), texts), compare).unwrap();
}
