//! Tests of the language of conditions: accepted texts, the error of each refused text, and the
//! conditions of a share.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use pelago_keynote::{Assertion, CREDENTIAL_BYTES, Compared, Conditions, SharedFolder, Test};

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
    Assertion::parse(with(value).as_bytes()).expect(value).conditions().unwrap().clone()
}

/// Returns the error of conditions that are refused.
fn refused(value: &str) -> String {
    let says = Assertion::parse(with(value).as_bytes()).map(drop).expect_err(value).to_string();
    let why = says.strip_prefix("the field `Conditions` of the credential: ").expect(&says);
    why.to_owned()
}

/// Returns the error of a test with this text before its value.
fn test(text: &str) -> String {
    refused(&format!("{text} -> \"true\";"))
}

fn not_evaluated(what: &str) -> String {
    format!("this version of pelago does not evaluate `{what}`")
}

fn expected(what: &str) -> String {
    format!("{what} is expected in its place, or this version of pelago does not evaluate it")
}

#[test]
fn conditions_that_are_taken_have_one_print() {
    let cases = [
        ("a==\"b\"->\"true\";", "a == \"b\" -> \"true\";"),
        ("\n\ta\n == \"b\"\t->\n\t\"true\" ; ", "a == \"b\" -> \"true\";"),
        ("a == \"\" -> \"true\";", "a == \"\" -> \"true\";"),
        ("a_1Z == \"b\" -> \"true\";", "a_1Z == \"b\" -> \"true\";"),
        ("a ~= \"^b.*[c]$\" -> \"true\";", "a ~= \"^b.*[c]$\" -> \"true\";"),
        ("a == \"b\"&&c ~= \"d\" -> \"true\";", "a == \"b\" &&\n\tc ~= \"d\" -> \"true\";"),
        ("( a==\"b\"||c==\"d\" ) -> \"true\";", "(a == \"b\" || c == \"d\") -> \"true\";"),
        ("a == \"\\\"\\\\\" -> \"true\";", "a == \"\\\"\\\\\" -> \"true\";"),
        ("a == \"->; && # || (\" -> \"true\";", "a == \"->; && # || (\" -> \"true\";"),
        ("a == \"\t \" -> \"true\";", "a == \"\t \" -> \"true\";"),
    ];
    for (value, prints) in cases {
        let conditions = read(value);
        assert_eq!(conditions.to_string(), prints);
        assert_eq!(read(prints), conditions);
    }
}

#[test]
fn a_string_is_without_its_escapes() {
    let cases = [("b", "b"), ("", ""), ("\\\"", "\""), ("\\\\", "\\"), ("\\\\\\\"x", "\\\"x")];
    for (text, means) in cases {
        let conditions = read(&format!("a == \"{text}\" -> \"true\";"));
        assert_eq!(conditions.tests(), [Test::Equals(Compared::new("a", means))]);
    }
    for escaped in ["x", "n", "0", "101", "$", "'", " "] {
        let what = format!("\\{}", &escaped[..1]);
        assert_eq!(test(&format!("a == \"\\{escaped}\"")), not_evaluated(&what));
    }
}

#[test]
fn a_string_without_an_end_is_an_error() {
    for value in ["a == \"b", "a == \"b -> 1;", "a == \"b\n\t\" -> \"true\";", "a == \"b\\\""] {
        assert_eq!(refused(value), "a string has no end", "{value}");
    }
    assert_eq!(refused("a == \"b\\\n\t\" -> \"true\";"), not_evaluated("\\\n"));
}

#[test]
fn each_operator_that_is_not_taken_is_named() {
    let cases = [
        ("a != \"b\"", "!="),
        ("!(a == \"b\")", "!"),
        ("a == \"b\" && !c == \"d\"", "!"),
        ("a < \"b\"", "<"),
        ("a > \"b\"", ">"),
        ("a <= \"b\"", "<="),
        ("a >= \"b\"", ">="),
        ("@a == \"1\"", "@"),
        ("@\"1\" == \"1\"", "@"),
        ("&a == \"1\"", "&"),
        ("&\"1\" == \"1\"", "&"),
        ("a == \"b\" & c == \"d\"", "&"),
        ("$x == \"b\"", "$"),
        ("a == $x", "$"),
        ("a . b == \"c\"", "."),
        ("a == \"b\".\"c\"", "."),
        ("a + b == \"c\"", "+"),
        ("a - b == \"c\"", "-"),
        ("-a == \"c\"", "-"),
        ("a * b == \"c\"", "*"),
        ("a / b == \"c\"", "/"),
        ("a % b == \"c\"", "%"),
        ("a ^ b == \"c\"", "^"),
        ("a == \"b\" # a comment", "#"),
        ("a == \"b\", c == \"d\"", ","),
        ("{ a == \"b\"", "{"),
        ("a == \"b\" }", "}"),
        ("a = \"b\"", "="),
        ("a ~ \"b\"", "~"),
        ("a == \"b\" | c == \"d\"", "|"),
        ("a == 'b'", "'"),
        ("a == [b]", "["),
        ("a : \"b\"", ":"),
        ("a ? \"b\"", "?"),
        ("`a` == \"b\"", "`"),
        ("\\a == \"b\"", "\\"),
    ];
    for (value, what) in cases {
        assert_eq!(test(value), not_evaluated(what), "{value}");
    }
    let nested = refused("a == \"b\" -> { c == \"d\" -> \"true\"; };");
    assert_eq!(nested, not_evaluated("{"));
}

#[test]
fn numbers_constants_and_special_attributes_are_named() {
    let cases = [
        ("a == 7", "7"),
        ("a == 007", "007"),
        ("a == 1.5", "1"),
        ("7 == a", "7"),
        ("a == 0x2a", "0x2a"),
        ("_now == \"b\"", "_now"),
        ("_MIN_TRUST == \"b\"", "_MIN_TRUST"),
        ("_ACTION_AUTHORIZERS ~= \"b\"", "_ACTION_AUTHORIZERS"),
        ("_ == \"b\"", "_"),
        ("(a == \"b\" || _c == \"d\")", "_c"),
        ("true", "true"),
        ("true == \"b\"", "true"),
        ("a == \"b\" && False ~= \"b\"", "False"),
        ("(a == \"b\" || TRUE == \"d\")", "TRUE"),
    ];
    for (value, what) in cases {
        assert_eq!(test(value), not_evaluated(what), "{value}");
    }
}

#[test]
fn what_is_out_of_its_place_is_told() {
    let attribute = expected("the name of an attribute");
    let string = expected("a string");
    let arrow = expected("`-> \"true\"`");
    let is_true = expected("`\"true\"`");
    let cases = [
        ("", &attribute),
        ("-> \"true\";", &attribute),
        ("\"true\";", &attribute),
        (";", &attribute),
        ("\"a\" == \"b\" -> \"true\";", &attribute),
        ("a == \"b\" && -> \"true\";", &attribute),
        ("() -> \"true\";", &attribute),
        ("((a == \"b\" || c == \"d\")) -> \"true\";", &attribute),
        ("(a == \"b\" ||) -> \"true\";", &attribute),
        ("a -> \"true\";", &expected("`==` or `~=`")),
        ("a b == \"c\" -> \"true\";", &expected("`==` or `~=`")),
        ("a == b -> \"true\";", &string),
        ("a == -> \"true\";", &string),
        ("a ~= b -> \"true\";", &string),
        ("a ~= (\"b\") -> \"true\";", &string),
        ("(a == b || c == \"d\") -> \"true\";", &string),
        ("a == \"b\"", &arrow),
        ("a == \"b\";", &arrow),
        ("a == \"b\" \"true\";", &arrow),
        ("a == \"b\" || c == \"d\" -> \"true\";", &arrow),
        ("a == \"b\" == \"c\" -> \"true\";", &arrow),
        ("a == \"b\") -> \"true\";", &arrow),
        ("a == \"b\" -> ;", &is_true),
        ("a == \"b\" -> true;", &is_true),
        ("a == \"b\" -> \"True\";", &is_true),
        ("a == \"b\" -> \"false\";", &is_true),
        ("a == \"b\" -> \"_MAX_TRUST\";", &is_true),
        ("a == \"b\" -> \"\";", &is_true),
        ("a == \"b\" -> (a == \"b\");", &is_true),
        ("a == \"b\" -> \"true\"", &expected("`;`")),
        ("a == \"b\" -> \"true\" -> \"true\";", &expected("`;`")),
        ("(a == \"b\") -> \"true\";", &expected("`||`")),
        ("(a == \"b\" && c == \"d\") -> \"true\";", &expected("`||` or `)`")),
        ("(a == \"b\" || c == \"d\" -> \"true\";", &expected("`||` or `)`")),
        ("(a ~= \"b\" || c == \"d\") -> \"true\";", &expected("`==`")),
        ("a == \"b\" -> \"true\";;", &not_evaluated("a second clause")),
        ("a == \"b\" -> \"true\"; a == \"b\" -> \"true\";", &not_evaluated("a second clause")),
    ];
    for (value, says) in cases {
        assert_eq!(refused(value), *says, "{value}");
    }
}

#[test]
fn there_are_at_most_32_tests_of_16_alternatives() {
    let too_many = "there are more than 32 tests, or more than 16 comparisons in one";
    let tests = |count| vec!["a == \"b\""; count].join(" && ");
    let one_of = |count| format!("({})", vec!["a == \"b\""; count].join(" || "));
    assert_eq!(read(&format!("{} -> \"true\";", tests(32))).tests().len(), 32);
    assert_eq!(test(&tests(33)), too_many);
    let widest = format!("{} -> \"true\";", one_of(16));
    assert_eq!(read(&widest).tests(), [Test::OneOf(vec![Compared::new("a", "b"); 16])]);
    assert_eq!(test(&one_of(17)), too_many);
    assert_eq!(test(&vec![one_of(2); 33].join("&&")), too_many);
}

/// Expressions at which other evaluators crash or grant.
#[test]
fn an_expression_of_an_adversary_is_refused_before_it_is_evaluated() {
    let cases = [
        ("!(1/0 == 1)", not_evaluated("!")),
        ("1/0 == 1", not_evaluated("1")),
        ("\"x\" ~= \"(\"", expected("the name of an attribute")),
        ("@\"99999999999\" == 1", not_evaluated("@")),
        ("&\"1e39\" == 1", not_evaluated("&")),
        ("2^2^31 == 1", not_evaluated("2")),
        ("$$$a == \"b\"", not_evaluated("$")),
        ("a == \"b\" || \"x\" == \"x\"", expected("`-> \"true\"`")),
    ];
    for (value, says) in cases {
        assert_eq!(test(value), says, "{value}");
    }
}

#[test]
fn parentheses_as_deep_as_a_credential_end_no_stack() {
    let around = with("").len();
    for unit in ["(", ")", "(a==\"b\"||", "!", "{", "a==\"b\"->"] {
        let deep = unit.repeat((CREDENTIAL_BYTES - around) / unit.len());
        let text = with(&deep);
        assert!(text.len() > CREDENTIAL_BYTES - unit.len());
        let says = Assertion::parse(text.as_bytes()).map(drop).unwrap_err().to_string();
        assert!(says.starts_with("the field `Conditions` of the credential: "), "{unit}: {says}");
    }
    let says = Assertion::parse(with(&"(".repeat(CREDENTIAL_BYTES)).as_bytes()).unwrap_err();
    assert_eq!(says.to_string(), "the credential is longer than 8192 bytes");
}

/// Returns the error of a share's conditions in which a text is replaced.
fn no_share(from: &str, to: &str) -> String {
    let good = share().conditions().to_string();
    let value = good.replacen(from, to, 1);
    assert_ne!(value, good, "`{from}` is not in it");
    let read = Assertion::parse(with(&value).as_bytes()).unwrap();
    SharedFolder::of(&read).expect_err(&value).to_string()
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
        "/2a/$",
        "(",
        "/2a/\t",
    ];
    for pattern in patterns {
        let says = no_share("\"/2a/\"", &format!("\"{pattern}\""));
        assert_eq!(says, not_taken(&format!("ancestors ~= \"{pattern}\"")));
    }
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
        (rights, "right == \"r\"".to_owned()),
        (rights, "right ~= \"r\"".to_owned()),
        (rights, "(right == \"x\" || right == \"r\")".to_owned()),
        (rights, "(right == \"r\" || right == \"w\")".to_owned()),
        (rights, "(right == \"r\" || left == \"x\")".to_owned()),
        (rights, "(right == \"r\" || right == \"x\" || right == \"w\")".to_owned()),
        ("ancestors ~=", "ancestors ==".to_owned()),
        ("ancestors ~=", "descendants ~=".to_owned()),
    ];
    for (from, to) in cases {
        let says = no_share(from, &to);
        let changed = share().conditions().to_string().replacen(from, &to, 1);
        let tests = changed.trim_end_matches(" -> \"true\";").split(" &&\n\t");
        let good = share().conditions().to_string();
        let named = tests.into_iter().find(|test| !good.contains(test)).unwrap_or(&to);
        assert_eq!(says, not_taken(named), "{to}");
    }
    let more = "app_domain == \"pelago\" && x == \"y\"";
    assert_eq!(no_share("app_domain == \"pelago\"", more), not_taken("x == \"y\""));
    let more = "\"/2a/\" && x == \"y\\\"\"";
    assert_eq!(no_share("\"/2a/\"", more), not_taken("x == \"y\\\"\""));
}

#[test]
fn a_test_that_a_share_lacks_is_named() {
    let tests = share().conditions().tests().to_vec();
    for (count, name) in [(1, "volume"), (2, "right"), (3, "ancestors")] {
        let value = Conditions::new(tests[..count].to_vec()).to_string();
        let assertion = Assertion::parse(with(&value).as_bytes()).unwrap();
        let says = SharedFolder::of(&assertion).unwrap_err().to_string();
        let missing =
            format!("the credential has no test of `{name}`, and this version of pelago wants one");
        assert_eq!(says, missing);
    }
    let policy = pelago_keynote::policy(&[pelago_keynote::Principal::of(&key(1))], &[]).unwrap();
    let says = SharedFolder::of(&Assertion::parse(policy.as_bytes()).unwrap()).unwrap_err();
    assert!(says.to_string().contains("no test of `app_domain`"), "{says}");
}
