//! Tests of the language of conditions: accepted texts, the error of each refused text, and the
//! conditions of a share.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pelago_keynote::{
    Assertion, CREDENTIAL_BYTES, ComplianceQuery, Conditions, Grant, Principal, Relation,
    ShareFormError, StringExpr, Test, Values,
};

use signed::{credential, key, share};

#[path = "common/signed.rs"]
mod signed;

/// Returns the credential with other conditions.
fn with(value: &str) -> String {
    let good = credential(&[]);
    let begin = good.find("Conditions:").unwrap();
    let end = good.find("Signature:").unwrap();
    format!("{}Conditions: {value}\n{}", &good[..begin], &good[end..])
}

fn read(value: &str) -> Conditions {
    Assertion::credential(with(value).as_bytes()).expect(value).conditions().unwrap().clone()
}

/// Returns the error of conditions that are refused.
fn refused(value: &str) -> String {
    let says = Assertion::parse(with(value).as_bytes()).map(drop).expect_err(value).to_string();
    let why = says.strip_prefix("the field `Conditions` of the credential: ").expect(&says);
    why.to_owned()
}

fn expected(what: &str, found: &str) -> String {
    format!("{what} is expected in the place of {found}")
}

fn types(operator: &str) -> String {
    format!(
        "`{operator}` cannot be applied to these types: `@` makes an integer of a string, `&` a \
         float"
    )
}

#[test]
fn conditions_that_are_taken_have_one_print() {
    let cases = [
        ("a==\"b\"->\"true\";", "a == \"b\" -> \"true\";"),
        ("\n\ta\n == \"b\"\t->\n\t\"true\" ; ", "a == \"b\" -> \"true\";"),
        ("a == \"b\" # why\n# and\n\t;", "a == \"b\";"),
        ("a == \"\" -> \"true\";", "a == \"\" -> \"true\";"),
        ("a_1Z == _b -> c;", "a_1Z == _b -> c;"),
        ("a ~= \"^b.*[c]$\" -> \"true\";", "a ~= \"^b.*[c]$\" -> \"true\";"),
        ("a == \"b\"&&c ~= \"d\" -> \"true\";", "a == \"b\" &&\n\tc ~= \"d\" -> \"true\";"),
        ("( a==\"b\"||c==\"d\" ) -> \"true\";", "a == \"b\" || c == \"d\" -> \"true\";"),
        ("a == \"\\\"\\\\\" -> \"true\";", "a == \"\\\"\\\\\" -> \"true\";"),
        ("a == \"->; && # || (\" -> \"true\";", "a == \"->; && # || (\" -> \"true\";"),
        ("a == \"\t \" -> \"true\";", "a == \"\t \" -> \"true\";"),
        ("a == \"\\n\\f\\303\\7\";", "a == \"\\012\\014\\303\\007\";"),
        ("TRUE;False ;", "true;\n\tfalse;"),
        ("!a==b;", "!(a == b);"),
        ("!!(true);", "!!true;"),
        ("a==b -> {c==d->{};};", "a == b -> {c == d -> {};};"),
        ("@a+1<-2*3;", "@a + 1 < -2 * 3;"),
        ("&a/2.50>=0.1^2.0;", "&a / 2.5 >= 0.1 ^ 2.0;"),
        ("$a.$$b ~= \"x\".(c . d);", "$a . $$b ~= \"x\" . (c . d);"),
    ];
    for (value, prints) in cases {
        let conditions = read(value);
        assert_eq!(conditions.to_string(), prints);
        assert_eq!(read(prints), conditions);
    }
}

/// Without the parentheses the text would be another expression; with more of them it could be
/// nested deeper than the text that it was.
#[test]
fn parentheses_are_printed_where_they_decide() {
    let same = [
        "(a == b || c == d) &&\n\te == f;",
        "a == b || c == d && e == f;",
        "(a == b || c == d) && e == f || g == h;",
        "(a == b || c == d) || e == f;",
        "a == b || (c == d || e == f);",
        "a == b &&\n\t(c == d && e == f);",
        "!(a == b && c == d);",
        "!(a == b) || c == d;",
        "1 + 2 * 3 ^ 4 < 5;",
        "((1 + 2) * 3) ^ 4 < 5;",
        "1 - 2 - 3 < 4;",
        "1 - (2 - 3) < 4;",
        "(1 - 2) - 3 < 4;",
        "1 * (2 / 3) % 4 < 4;",
        "2 ^ (3 ^ 4) < 5;",
        "-(1 + 2) < -1 + 2;",
        "-2 ^ 2 < -(2 ^ 2);",
        "--1 < 2;",
        "@(a . b) < @a;",
        "$(a . b) == $a . b;",
        "(a . b) . c == a . (b . c);",
    ];
    for value in same {
        assert_eq!(read(value).to_string(), value);
    }
    let cases = [
        ("((a == b)) || (c == d);", "a == b || c == d;"),
        ("a == b || (c == d && e == f);", "a == b || c == d && e == f;"),
        ("(((1))) + (2 * (3)) < ((4));", "1 + 2 * 3 < 4;"),
        ("1 + ((2) * (3 ^ 4)) < 5;", "1 + 2 * 3 ^ 4 < 5;"),
        ("((a . b)) == (c);", "a . b == c;"),
        ("$($(a)) == $(\"x\");", "$$a == $\"x\";"),
        ("!(true);", "!true;"),
        ("true -> ((a));", "true -> a;"),
    ];
    for (value, prints) in cases {
        assert_eq!(read(value).to_string(), prints, "{value}");
        assert_eq!(read(prints), read(value));
    }
}

#[test]
fn a_string_is_without_its_escapes() {
    let cases: [(&str, &[u8]); 20] = [
        ("b", b"b"),
        ("", b""),
        (r#"\""#, b"\""),
        (r"\\", b"\\"),
        (r#"\\\"x"#, b"\\\"x"),
        (r"\n\r\t\f", b"\n\r\t\x0c"),
        (r"\N\a\b\x\v\$\'\ ", b"Nabxv$' "),
        (r"\1\12\123\1234", b"\x01\x0a\x53\x534"),
        (r"\8\9\19", b"89\x019"),
        (r"\377\303\266", b"\xff\xc3\xb6"),
        (r"\400\777", b"\x200\x3f7"),
        (r"\0", b"0"),
        (r"\00", b"00"),
        (r"\000", b"000"),
        (r"\0000", b"0000"),
        (r"\08\007", b"08\x07"),
        ("a\\\n\t b", b"ab"),
        ("a\\\n   \n\t\n b\\\n\t", b"ab"),
        ("#", b"#"),
        ("\\#", b"#"),
    ];
    for (text, means) in cases {
        let conditions = read(&format!("a == \"{text}\" -> \"true\";"));
        let text = StringExpr::Literal(means.to_vec());
        let test = Test::Strings(StringExpr::attribute("a"), Relation::Equal, text);
        assert_eq!(conditions.tests(), Some([test].as_slice()));
        assert_eq!(read(&conditions.to_string()), conditions);
    }
}

#[test]
fn a_string_without_an_end_is_an_error() {
    let cases = [
        "a == \"b",
        "a == \"b -> 1;",
        "a == \"b\n\t\" -> \"true\";",
        "a == \"b\\\"",
        "a == \"b\\",
        "a == \"b\\\n\t",
        "a == \"b\\ \n\t\";",
    ];
    for value in cases {
        assert_eq!(refused(value), "a string has no end", "{value}");
    }
}

#[test]
fn a_letter_that_begins_nothing_is_named() {
    let letters = ["~", "|", "'", "[", "]", ":", "?", "`", "\\"];
    for letter in letters {
        let value = format!("a == \"b\" {letter} \"c\";");
        let letter = letter.chars().next().unwrap();
        assert_eq!(refused(&value), format!("{letter:?} has no meaning here"));
    }
}

#[test]
fn an_operator_of_other_types_is_named() {
    let cases = [
        ("a == 7;", "=="),
        ("7 == a;", "=="),
        ("\"7\" < 7;", "<"),
        ("7 < 7.0;", "<"),
        ("&a >= @a;", ">="),
        ("a != (a == a);", "!="),
        ("true == 7;", "=="),
        ("a + b == c;", "+"),
        ("a - b == c;", "-"),
        ("a * b == c;", "*"),
        ("a / b == c;", "/"),
        ("a % b == c;", "%"),
        ("a ^ b == c;", "^"),
        ("1 + a == 2;", "+"),
        ("1 + 1.0 == 2;", "+"),
        ("1.0 * @a < 2.0;", "*"),
        ("1.0 % 2.0 < 2.0;", "%"),
        ("-a == 1;", "-"),
        ("-(a == b);", "-"),
        ("(a == b) + 1 == 2;", "+"),
    ];
    for (value, operator) in cases {
        assert_eq!(refused(value), types(operator), "{value}");
    }
    for value in ["1.0 == 1.0;", "&a != 1.0;", "&a == &a;", "-1.0 == &a;"] {
        assert_eq!(refused(value), "floats cannot be compared by `==` or `!=`", "{value}");
    }
}

#[test]
fn a_number_has_its_size() {
    for value in ["2147483647 < 1;", "0 < 1;", "007 < 1;", "0.0 < 1.0;", "00.10 < 1.0;"] {
        let _read = read(value);
    }
    let large = format!("1{}.0", "0".repeat(40));
    for digits in ["2147483648", "4294967296", "99999999999999999999", &large] {
        let value = format!("{digits} < {digits};");
        assert_eq!(refused(&value), format!("the number {digits} is too large"));
    }
}

#[test]
fn what_is_out_of_its_place_is_told() {
    let value = "a test or a value";
    let end = "the end of the field";
    let comparison = "a comparison";
    let string = "a string before this";
    let cases = [
        ("-> \"true\";", value, "->"),
        (";", value, ";"),
        ("a == \"b\" && -> \"true\";", value, "->"),
        ("() -> \"true\";", value, ")"),
        ("(a == \"b\" ||) -> \"true\";", value, ")"),
        ("a == -> \"true\";", value, "->"),
        ("a == \"b\" -> ;", value, ";"),
        ("a == !b;", value, "!"),
        ("a == b & c == d;", ";", "&"),
        ("a = b;", comparison, "="),
        ("a == b == c;", ";", "=="),
        ("a < b < c;", ";", "<"),
        ("\"true\";", comparison, ";"),
        ("a;", comparison, ";"),
        ("a . b;", comparison, ";"),
        ("1.a == b;", comparison, "."),
        ("1;", comparison, ";"),
        ("$true;", comparison, ";"),
        ("!a;", comparison, ";"),
        ("a && b == c;", comparison, "&&"),
        ("a || b == c;", comparison, "||"),
        ("a b == \"c\";", comparison, "b"),
        ("a -> \"true\";", comparison, "->"),
        ("7 ~= \"c\";", string, "\"c\""),
        ("a ~= 7;", string, ";"),
        ("a . 7 == b;", string, "=="),
        ("@7 == 7;", string, "=="),
        ("@-a == 7;", "", ""),
        ("$7 == a;", string, "=="),
        ("&(a == b) < 1.0;", string, "<"),
        ("a == \"b\"", ";", end),
        ("a == \"b\" -> c", ";", end),
        ("a == \"b\" \"true\";", ";", "\"true\""),
        ("a == \"b\") -> \"true\";", ";", ")"),
        ("a == \"b\" -> (a == \"b\");", string, ";"),
        ("a == \"b\" -> 7;", string, ";"),
        ("a == \"b\" -> true || true;", ";", "||"),
        ("a == \"b\" -> \"true\" -> \"true\";", ";", "->"),
        ("(a == \"b\" || c == \"d\" -> \"true\";", ")", "->"),
        ("a == \"b\" -> \"true\";;", value, ";"),
        ("a == b -> { c == d; ;", value, ";"),
        ("a == b -> { c == d };", ";", "}"),
        ("a == b -> { c == d; }", ";", end),
        ("a == b -> { c == d;", "}", end),
        ("a == b; }", end, "}"),
        ("{ a == b; };", value, "{"),
        ("2-of(a, b) == c;", value, "2-of"),
        ("a, b;", comparison, ","),
    ];
    for (value, what, found) in cases {
        let says = if what.is_empty() { types("-") } else { expected(what, found) };
        assert_eq!(refused(value), says, "{value}");
    }
    for empty in ["", " ", "# nothing"] {
        let text = with(empty);
        assert!(Assertion::parse(text.as_bytes()).is_ok());
        let says = Assertion::credential(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(says, "the credential has no field `Conditions`");
    }
}

/// Texts of 8 KiB that nest as deep, or go on as long, as they can.
#[test]
fn a_text_of_one_operator_ends_no_stack_and_is_read_soon() {
    let room = CREDENTIAL_BYTES - with("").len();
    let deep = "it is nested deeper than 32 levels";
    let begin = Instant::now();
    let nested = [
        "(", "!", "-", "@", "&", "$", "!(", "!!", "--", "$(", "@$", "(-", "(a==b||", "(a==b&&!",
        "true->{", "1+(", "a.$(", "true&&!(", "a==(",
    ];
    for unit in nested {
        let text = unit.repeat(room / unit.len());
        let says = refused(&text);
        let is_expected = match unit {
            // `&&` begins no value.
            "&" => says == expected("a test or a value", "&&"),
            _ => says == deep,
        };
        assert!(is_expected, "{unit}: {says}");
    }
    for unit in [")", "}", "]", "\"", "->", "a==", "a", "1", "1.", "&&", "\\", "1-of", "=", "#"] {
        let text = unit.repeat(room / unit.len());
        assert!(Assertion::credential(with(&text).as_bytes()).is_err(), "{unit}");
    }
    let long = [
        ("a==b", "&&"),
        ("a==b", "||"),
        ("true", "||"),
        ("1", "+"),
        ("1", "*"),
        ("2", "^"),
        ("-1", "^"),
        ("0.1", "-"),
        ("a", "."),
        ("\"a\"", "."),
        ("!!!!!a==b", "&&"),
        ("a==b&&c==d", "||"),
        ("a==b", ";"),
        ("true->{true;}", ";"),
    ];
    for (unit, by) in long {
        let count = (room - 10) / (unit.len() + by.len());
        let mut text = vec![unit; count].join(by);
        text.push_str(match unit {
            "1" | "-1" | "2" => "<1;",
            "0.1" => "<1.0;",
            "a" | "\"a\"" => "==a;",
            _ => ";",
        });
        let conditions = read(&text);
        assert!(conditions.to_string().len() >= text.len());
        assert_eq!(conditions.clone(), conditions);
    }
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    let says = Assertion::parse(with(&"(".repeat(CREDENTIAL_BYTES)).as_bytes()).unwrap_err();
    assert_eq!(says.to_string(), "the credential is longer than 8192 bytes");
}

#[test]
fn operators_and_parentheses_are_nested_32_levels() {
    let deepest: [(&str, &str, &str); 8] = [
        ("(", "a == b", ")"),
        ("!", "a == b", ""),
        ("!(", "a == b", ")"),
        ("-", "1", ""),
        ("$", "a", ""),
        ("(a == b || c == d && !", "e == f", ")"),
        ("(1 + 2 * 3 ^ ", "4", ")"),
        ("true -> {", "a == b;", "};"),
    ];
    for (open, inner, close) in deepest {
        let at = |depth: usize| {
            let text = format!("{}{inner}{}", open.repeat(depth), close.repeat(depth));
            match inner {
                "1" | "4" => format!("{text} < 1;"),
                "a" => format!("{text} == a;"),
                "a == b;" => text,
                _ => format!("{text};"),
            }
        };
        let depth = (1..=33).find(|depth| {
            let text = with(&at(*depth));
            Assertion::parse(text.as_bytes()).is_err()
        });
        let depth = depth.expect("a limit") - 1;
        assert!(depth >= 16, "{open}: {depth}");
        assert_eq!(refused(&at(depth + 1)), "it is nested deeper than 32 levels");
        // Its print is read again.
        let conditions = read(&at(depth));
        assert_eq!(read(&conditions.to_string()), conditions, "{open}");
    }
}

/// The deepest texts are parsed, printed, evaluated and dropped on a small stack.
#[test]
fn the_deepest_conditions_need_a_small_stack() {
    const STACK_BYTES: usize = 512 << 10;
    let wrapped = |open: &str, inner: &str, close: &str| {
        format!("{}{inner}{}", open.repeat(32), close.repeat(32))
    };
    let texts = [
        format!("{};", wrapped("(", "a == b", ")")),
        format!("{};", wrapped("!(a == c || c == d && ", "a == b", ")")),
        format!("{} < 1;", wrapped("(1 + 2 * 3 ^ ", "4", ")")),
        format!("{} < 1;", wrapped("-", "4", "")),
        format!("{} == a;", wrapped("$", "a", "")),
        format!("{} == a;", wrapped("(a . ", "a", ")")),
        wrapped("true -> {", "a == b;", "};"),
    ];
    let evaluate = move || {
        for text in texts {
            let conditions = read(&text);
            assert_eq!(read(&conditions.to_string()), conditions);
            let policy = Assertion::parse(with(&text).as_bytes()).unwrap();
            let requesters = [Principal::of(&key(2))];
            let action: BTreeMap<String, Vec<u8>> = BTreeMap::new();
            let values = Values::boolean();
            let query =
                ComplianceQuery { action: &action, requesters: &requesters, values: &values };
            let _answer = query.ask([&policy]);
        }
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(evaluate).unwrap();
    thread.join().unwrap();
}

/// Returns the error of a share's conditions in which a text is replaced.
fn no_share(from: &str, to: &str) -> String {
    let good = share().conditions().to_string();
    let value = good.replacen(from, to, 1);
    assert_ne!(value, good, "`{from}` is not in it");
    let read = Assertion::parse(with(&value).as_bytes()).unwrap();
    Grant::of(&read).expect_err(&value).to_string()
}

fn not_taken(test: &str) -> String {
    format!("the credential has the test `{test}`, which this version of pelago does not take")
}

/// Without its slashes a pattern would match other directories too; with another text of the same
/// number there would be two credentials for one grant.
#[test]
fn a_pattern_of_a_directory_has_one_text() {
    let patterns = [
        "/2a",
        "2a/",
        "2a",
        "/02a/",
        "/2A/",
        "//",
        "/",
        "",
        "/10000000000000000/",
        "/+2a/",
        "/-1/",
        "/ 2a/",
        "/2a /",
        "/0x2a/",
        "/2a/2b/",
        "//2a/",
        "/2a//",
        "/.*/",
        "/2a/|/2b/",
        "^/2a/",
        "/2a/$$",
        "/02a/$",
        "/2a$",
        "/(2a)/",
        "(",
        "/2a/\t",
    ];
    for pattern in patterns {
        let says = no_share("\"/2a/\"", &format!("\"{pattern}\""));
        assert_eq!(says, not_taken(&format!("ancestors ~= \"{pattern}\"")));
    }
}

#[test]
fn the_number_of_a_file_has_one_text() {
    for number in ["02a", "2A", "", "+2a", "-1", " 2a", "2a ", "0x2a", "/2a/", "10000000000000000"]
    {
        let says = no_share("ancestors ~= \"/2a/\"", &format!("object == \"{number}\""));
        assert_eq!(says, not_taken(&format!("object == \"{number}\"")));
    }
    for test in ["object ~= \"2a\"", "object != \"2a\"", "name == \"a\"", "object < \"2a\""] {
        assert_eq!(no_share("ancestors ~= \"/2a/\"", test), not_taken(test));
    }
}

#[test]
fn a_shared_name_is_one_name_in_one_directory() {
    let cases = ["a/b", "..", ".", "", "a\\nb", "a\\033[2J", "a\\177", "a\\t"];
    let long = "x".repeat(256);
    for name in cases.into_iter().chain([long.as_str()]) {
        let test = format!("ancestors ~= \"/2a/$\" && name == \"{name}\"");
        let says = no_share("ancestors ~= \"/2a/\"", &test);
        assert!(says.starts_with("the credential has the test `name == "), "{says}");
    }
    for test in ["name ~= \"a\"", "name != \"a\"", "object == \"2a\"", "\"a\" == name"] {
        let says = no_share("/2a/\"", &format!("/2a/$\" && {test}"));
        assert_eq!(says, not_taken(test));
    }
    let says = no_share("/2a/\"", "/2a/$\"");
    assert_eq!(says, "the credential has no test of `name`, and this version of pelago wants one");
    let says = no_share("/2a/\"", "/2a/\" && name == \"a\"");
    assert_eq!(says, not_taken("name == \"a\""), "a folder and a name are two shares");
}

#[test]
fn a_share_has_its_tests_in_their_order_and_no_other() {
    let volume = "ab".repeat(16);
    let rights = "(right == \"r\" || right == \"x\")";
    let cases = [
        ("app_domain == \"pelago\"", "app_domain == \"other\"".to_owned()),
        ("app_domain == \"pelago\"", "app_domain ~= \"pelago\"".to_owned()),
        ("app_domain == \"pelago\"", "App_domain == \"pelago\"".to_owned()),
        ("app_domain == \"pelago\"", format!("volume == \"{volume}\"")),
        ("volume == \"abab", "volume == \"ABab".to_owned()),
        ("volume == \"abab", "volume == \"ab".to_owned()),
        ("volume == \"abab", "volume == \"0abab".to_owned()),
        ("volume ==", "volume ~=".to_owned()),
        (rights, "right ~= \"r\"".to_owned()),
        (rights, "right != \"r\"".to_owned()),
        (rights, "right == \"rx\"".to_owned()),
        (rights, "right == \"y\"".to_owned()),
        (rights, "right == \"\"".to_owned()),
        (rights, "(right == \"x\" || right == \"r\")".to_owned()),
        (rights, "(right == \"r\" || right == \"r\")".to_owned()),
        (rights, "(right == \"r\" || left == \"x\")".to_owned()),
        (rights, "(right == \"r\" || right != \"x\")".to_owned()),
        (rights, "(right == \"r\" || right == \"x\" || true)".to_owned()),
        ("ancestors ~=", "ancestors ==".to_owned()),
        ("ancestors ~=", "descendants ~=".to_owned()),
    ];
    for (from, to) in cases {
        let says = no_share(from, &to);
        let changed = share().conditions().to_string().replacen(from, &to, 1);
        let tests = changed.trim_end_matches(" -> \"true\";").split(" &&\n\t");
        let good = share().conditions().to_string();
        let named = tests.into_iter().find(|test| !good.contains(test)).unwrap_or(&to);
        let named =
            named.strip_prefix('(').and_then(|test| test.strip_suffix(')')).unwrap_or(named);
        assert_eq!(says, not_taken(named), "{to}");
    }
    let more = "app_domain == \"pelago\" && x == \"y\"";
    assert_eq!(no_share("app_domain == \"pelago\"", more), not_taken("x == \"y\""));
    let more = "\"/2a/\" && x == \"y\\\"\"";
    assert_eq!(no_share("\"/2a/\"", more), not_taken("x == \"y\\\"\""));
}

#[test]
fn a_test_that_a_share_lacks_is_named() {
    let conditions = share().conditions();
    let tests = conditions.tests().unwrap();
    for (count, name) in [(1, "volume"), (2, "right"), (3, "ancestors")] {
        let value = Conditions::new(tests[..count].to_vec()).to_string();
        let assertion = Assertion::parse(with(&value).as_bytes()).unwrap();
        let says = Grant::of(&assertion).unwrap_err().to_string();
        let missing =
            format!("the credential has no test of `{name}`, and this version of pelago wants one");
        assert_eq!(says, missing);
    }
    let policy = pelago_keynote::policy(&[Principal::of(&key(1))], &[]).unwrap();
    let says = Grant::of(&Assertion::policy(policy.as_bytes()).unwrap()).unwrap_err();
    assert_eq!(says, ShareFormError::Program);
}
