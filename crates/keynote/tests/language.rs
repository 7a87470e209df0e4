//! Tests of the language, rule by rule (RFC 2704, 3 to 5): for each rule conditions with the value
//! that they have, and the RFC's own examples.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::collections::BTreeMap;

use pelago_keynote::{Assertion, Authorizer, BadSignature, Principal, Query, Values};

use signed::{credential, key};

#[path = "common/signed.rs"]
mod signed;

type Attributes = BTreeMap<String, Vec<u8>>;

fn attributes(pairs: &[(&str, &str)]) -> Attributes {
    pairs.iter().map(|pair| (pair.0.to_owned(), pair.1.as_bytes().to_vec())).collect()
}

/// Returns the action of most cases.
fn action() -> Attributes {
    attributes(&[
        ("a", "abc"),
        ("b", "bcd"),
        ("empty", ""),
        ("name", "a"),
        ("next", "name"),
        ("n", "7"),
        ("negative", "-7"),
        ("f", "1.5"),
        ("large", "99999999999"),
        ("word", "7 apples"),
        ("address", "alice@keynote.research.att.com"),
        ("true", "yes"),
        ("falsehood", "no"),
    ])
}

fn values(names: &[&str]) -> Values {
    Values::new(names.iter().map(|name| (*name).to_owned()).collect()).unwrap()
}

/// Returns the policy for key 1 with these fields at its end.
fn policy(fields: &str) -> Assertion {
    let licensee = Principal::of(&key(1));
    let text = format!("Authorizer: \"POLICY\"\nLicensees: \"{licensee}\"\n{fields}\n");
    Assertion::parse(text.as_bytes()).expect(&text)
}

/// Returns the value of an action by a policy with these fields.
fn value_of(fields: &str, action: &Attributes, values: &Values) -> String {
    let requesters = [Principal::of(&key(1))];
    let query = Query { action, requesters: &requesters, values };
    values.name(query.ask([&policy(fields)]).value).to_owned()
}

/// Returns whether the action passes a test.
fn passes(test: &str) -> bool {
    value_of(&format!("Conditions: {test};"), &action(), &Values::boolean()) == "true"
}

fn check(cases: &[(&str, bool)]) {
    for (test, expected) in cases {
        assert_eq!(passes(test), *expected, "{test}");
    }
}

#[test]
fn strings_are_compared_byte_by_byte() {
    check(&[
        (r#"a == "abc""#, true),
        (r#"a == "abcd""#, false),
        (r#"a == "ABC""#, false),
        (r#"a != "abc""#, false),
        (r#"a != "abd""#, true),
        (r#"a < "abd""#, true),
        (r#"a < "abc""#, false),
        (r#"a <= "abc""#, true),
        (r#"a <= "abb""#, false),
        (r#"a > "ab""#, true),
        (r#"a > "abc""#, false),
        (r#"a >= "abc""#, true),
        (r#"a >= "b""#, false),
        (r#""abc" == a"#, true),
        (r#""10" < "9""#, true),
        (r#""\377" > "z""#, true),
        (r#""" == """#, true),
        ("a == b", false),
        ("a < b", true),
    ]);
}

#[test]
fn an_attribute_that_is_not_there_is_empty() {
    check(&[
        (r#"nothing == """#, true),
        ("nothing == empty", true),
        (r#"nothing == "x""#, false),
        (r#"_nothing == """#, true),
        (r#"_1 == """#, true),
        (r#"A == """#, true),
        ("@nothing == 0", true),
        (r#"nothing < "a""#, true),
        (r#"$nothing == """#, true),
    ]);
    // Names that begin with `_` are no attributes of the action.
    let action = attributes(&[("_x", "y"), ("_MAX_TRUST", "y"), ("_0", "y")]);
    for name in ["_x", "_MAX_TRUST", "_0"] {
        let fields = format!("Conditions: {name} == \"y\";");
        assert_eq!(value_of(&fields, &action, &Values::boolean()), "false", "{name}");
    }
}

#[test]
fn a_dereference_reads_the_attribute_that_a_string_names() {
    check(&[
        (r#"$name == "abc""#, true),
        (r#"$"a" == "abc""#, true),
        (r#"$("na" . "me") == "a""#, true),
        (r#"$next == "a""#, true),
        (r#"$$next == "abc""#, true),
        (r#"$$$a == """#, true),
        (r#"$a == """#, true),
        (r#"$"no name" == """#, true),
        (r#"$"_MAX_TRUST" == "true""#, true),
        (r#"$"\377" == """#, true),
        // It binds tighter than `.`.
        (r#"$name . "x" == "abcx""#, true),
        (r#"$(name . "x") == """#, true),
        (r#""x" . $name == "xabc""#, true),
        ("@$\"n\" == 7", true),
    ]);
}

#[test]
fn strings_are_joined_by_a_point() {
    check(&[
        (r#""fa" . "lse" == "false""#, true),
        (r#"a . b == "abcbcd""#, true),
        (r#"a . ("-" . b) == "abc-bcd""#, true),
        (r#"(a . "-") . b == "abc-bcd""#, true),
        (r#"a.b!="abcbcd""#, false),
        (r#"a ~= "a" . "b""#, true),
        (r#"a . "x" ~= "cx$""#, true),
    ]);
    // A joined word is no constant of the language.
    let fields = r#"Conditions: true -> "fa" . "lse";"#;
    assert_eq!(value_of(fields, &action(), &Values::boolean()), "false");
    let fields = r#"Conditions: true -> "tr" . "ue";"#;
    assert_eq!(value_of(fields, &action(), &Values::boolean()), "true");
}

#[test]
fn true_and_false_are_tests_and_names() {
    check(&[
        ("true", true),
        ("TRUE", true),
        ("tRuE", true),
        ("false", false),
        ("False", false),
        ("(true)", true),
        ("!false", true),
        ("!true", false),
        ("false || true", true),
        ("true && false", false),
        // As strings they are attributes.
        (r#"true == "yes""#, true),
        (r#"(true) == "yes""#, true),
        (r#"TRUE == """#, true),
        (r#"true . "x" == "yesx""#, true),
        (r#"falsehood == "no""#, true),
    ]);
    assert_eq!(value_of("Conditions: true -> true;", &action(), &values(&["no", "yes"])), "yes");
}

#[test]
fn tests_are_joined_and_denied() {
    check(&[
        ("true && true && true", true),
        ("true && true && false", false),
        ("false || false || true", true),
        ("false || false || false", false),
        // `&&` binds tighter than `||`, `!` tighter than both, a comparison tighter than `!`.
        ("true || true && false", true),
        ("(true || true) && false", false),
        ("false && true || true", true),
        ("false && (true || true)", false),
        ("!false && false", false),
        ("!(false && false)", true),
        ("!true || true", true),
        ("!(true || true)", false),
        (r#"!a == "x""#, true),
        (r#"!a == "abc""#, false),
        ("!!true", true),
        ("!!!true", false),
        ("!1 == 2 && 1 == 1", true),
    ]);
}

#[test]
fn integers_have_32_bits() {
    check(&[
        ("1 + 2 == 3", true),
        ("1 - 2 == -1", true),
        ("7 / 2 == 3", true),
        ("-7 / 2 == -3", true),
        ("7 % 3 == 1", true),
        ("-7 % 3 == -1", true),
        ("2 ^ 10 == 1024", true),
        ("2 ^ 0 == 1", true),
        ("0 ^ 0 == 1", true),
        ("2 ^ -1 == 0", true),
        ("1 ^ -1 == 1", true),
        ("-1 ^ -1 == -1", true),
        ("-1 ^ -2 == 1", true),
        ("--1 == 1", true),
        ("-(1 + 1) == -2", true),
        ("010 == 10", true),
        ("1 < 2 && 2 > 1 && 1 <= 1 && 1 >= 1 && 1 != 2", true),
        ("2 < 1 || 1 > 2 || 2 <= 1 || 1 >= 2 || 1 != 1", false),
        ("2147483647 + 0 == 2147483647", true),
        ("-2147483647 - 1 < -2147483647", true),
        ("-2 ^ 31 < 0", true),
    ]);
}

#[test]
fn arithmetic_has_the_precedence_of_the_rfc_and_goes_from_the_left() {
    check(&[
        ("1 + 2 * 3 == 7", true),
        ("(1 + 2) * 3 == 9", true),
        ("2 * 3 ^ 2 == 18", true),
        ("10 - 3 - 2 == 5", true),
        ("10 - (3 - 2) == 9", true),
        ("24 / 4 / 2 == 3", true),
        ("24 / 4 * 2 == 12", true),
        ("2 * 7 % 4 == 2", true),
        ("2 ^ 3 ^ 2 == 64", true),
        ("2 ^ (3 ^ 2) == 512", true),
        ("-2 ^ 2 == 4", true),
        ("-(2 ^ 2) == -4", true),
        ("2 - -2 == 4", true),
        ("@n + 1 == 8", true),
        ("-@n == -7", true),
    ]);
}

#[test]
fn a_string_is_a_number_after_its_operator() {
    check(&[
        ("@n == 7", true),
        ("@negative == -7", true),
        (r#"@"+7" == 7"#, true),
        (r#"@" 7 " == 7"#, true),
        (r#"@"007" == 7"#, true),
        // A float is rounded down.
        (r#"@"1.2" == 1"#, true),
        (r#"@"1.99" == 1"#, true),
        (r#"@"-1.2" == -2"#, true),
        (r#"@"-1.0" == -1"#, true),
        (r#"@"-0.5" == -1"#, true),
        (r#"@".5" == 0"#, true),
        (r#"@"5." == 5"#, true),
        (r#"@"0.99999999999999999999999" == 0"#, true),
        (r#"@"-0.00000000000000000000001" == -1"#, true),
        (r#"@"2147483647" == 2147483647"#, true),
        (r#"@"2147483647.9999999999" == 2147483647"#, true),
        (r#"@"-2147483648" == -2147483647 - 1"#, true),
        ("&f > 1.4 && &f < 1.6", true),
        ("&n >= 7.0 && &n <= 7.0", true),
        (r#"&"-1.5" < -1.4"#, true),
        (r#"&".5" > 0.4"#, true),
        (r#"&"3e1" <= 0.0"#, true),
        // What is no number is zero.
        ("@a == 0", true),
        ("@word == 0", true),
        ("@empty == 0", true),
        (r#"@"-" == 0 && @"." == 0 && @"--1" == 0 && @"- 1" == 0 && @"1.2.3" == 0"#, true),
        (r#"@"0x10" == 0 && @"1e3" == 0 && @"inf" == 0 && @"NaN" == 0 && @"1_0" == 0"#, true),
        (r#"&"inf" <= 0.0 && &"nan" <= 0.0 && &"infinity" <= 0.0 && &"1e39" <= 0.0"#, true),
        (r#"@"\377" == 0"#, true),
    ]);
}

#[test]
fn floats_have_32_bits() {
    check(&[
        ("1.5 + 1.5 > 2.9 && 1.5 + 1.5 < 3.1", true),
        ("1.0 - 2.0 < -0.9", true),
        ("1.5 * 2.0 >= 3.0", true),
        ("1.0 / 4.0 <= 0.25", true),
        ("2.0 ^ 0.5 > 1.41 && 2.0 ^ 0.5 < 1.42", true),
        ("2.0 ^ -1.0 <= 0.5", true),
        ("-1.5 < 0.0", true),
        ("--1.5 > 0.0", true),
        ("2.0 ^ 3.0 ^ 2.0 < 65.0", true),
        ("1.0 + 2.0 * 3.0 > 6.5", true),
        // With 64 bits this would pass.
        ("0.1 + 0.2 > 0.3", false),
        // The numbers next to 2^24 have a distance of 2.
        ("16777216.0 + 1.0 > 16777216.0", false),
        ("16777217.0 > 16777216.0", false),
    ]);
}

/// An error is no value that could be denied: the test fails as a whole.
#[test]
fn a_test_with_an_error_fails_as_a_whole() {
    let errors = [
        "1/0 == 1",
        "1/0 != 1",
        "1 % 0 == 1",
        "0 ^ -1 == 0",
        "2147483647 + 1 > 0",
        "-2147483647 - 2 < 0",
        "65536 * 65536 == 0",
        "2^31 > 0",
        "2^2^31 == 0",
        "-(-2147483647 - 1) > 0",
        "(-2147483647 - 1) / -1 > 0",
        r#"@"99999999999" > 0"#,
        "@large < 1",
        r#"@"2147483648" > 0"#,
        r#"@"-2147483649" < 0"#,
        r#"@"-2147483648.5" < 0"#,
        "1.0 / 0.0 > 0.0",
        "0.0 / 0.0 < 1.0",
        "10.0 ^ 39.0 > 0.0",
        "-1.0 ^ 0.5 < 1.0",
        r#"&"1000000000000000000000000000000000000000" > 0.0"#,
        r#""x" ~= "(""#,
        r#""x" ~= "x**""#,
        r#""x" ~= """#,
        r#""x" ~= "(" . "x""#,
        "a ~= empty",
        "a ~= nothing",
    ];
    for error in errors {
        check(&[
            (error, false),
            (&format!("!({error})"), false),
            (&format!("!!({error})"), false),
            (&format!("{error} || true"), false),
            (&format!("!(true && {error})"), false),
            (&format!("false || !({error})"), false),
            // A test that is not needed is not evaluated.
            (&format!("true || {error}"), true),
            (&format!("!(false && {error})"), true),
        ]);
        // Other clauses are not concerned.
        let fields = format!("Conditions: {error};\n\ttrue -> \"low\";");
        let three = values(&["none", "low", "high"]);
        assert_eq!(value_of(&fields, &action(), &three), "low", "{error}");
        let fields = format!("Conditions: true -> {{ {error}; true -> \"low\"; }};");
        assert_eq!(value_of(&fields, &action(), &three), "low", "{error}");
    }
}

#[test]
fn a_clause_without_a_value_has_the_highest() {
    let three = values(&["none", "low", "high"]);
    let cases = [
        ("true;", "high"),
        ("false;", "none"),
        ("true -> \"low\";", "low"),
        ("false -> \"low\";", "none"),
        ("true -> _MAX_TRUST;", "high"),
        ("true -> _MIN_TRUST;", "none"),
        // The name of no value is the lowest, and an error too.
        ("true -> \"unknown\";", "none"),
        ("true -> \"Low\";", "none"),
        ("true -> \"\";", "none"),
        ("true -> \"_MAX_TRUST\";", "none"),
        ("true -> $\"_MAX_TRUST\";", "high"),
        ("true -> \"lo\" . \"w\";", "low"),
        ("a ~= \"(.)\" -> _0;", "none"),
        // The highest clause counts, in any order.
        ("true -> \"low\"; true -> \"high\";", "high"),
        ("true -> \"high\"; true -> \"low\";", "high"),
        ("true -> \"low\"; false -> \"high\";", "low"),
        ("true -> \"unknown\"; true -> \"low\";", "low"),
        ("false; false; false;", "none"),
        // A program in a program.
        ("true -> { true -> \"low\"; };", "low"),
        ("true -> { true; };", "high"),
        ("true -> { false; };", "none"),
        ("true -> {};", "none"),
        ("false -> { true; };", "none"),
        ("true -> { true -> { true -> { true -> \"low\"; }; }; };", "low"),
        ("true -> { false; true -> \"low\"; }; false -> \"high\";", "low"),
        ("true -> { true -> \"low\"; }; true -> { true -> \"high\"; };", "high"),
        ("", "none"),
        ("# nothing", "none"),
    ];
    for (conditions, expected) in cases {
        let fields = format!("Conditions: {conditions}");
        assert_eq!(value_of(&fields, &action(), &three), expected, "{conditions}");
    }
    // Without the field everything is granted.
    assert_eq!(value_of("Comment: x", &action(), &three), "high");
}

#[test]
fn the_attributes_of_the_language_are_there() {
    let three = values(&["none", "low", "high"]);
    let one = Principal::of(&key(1));
    let cases = [
        ("_MIN_TRUST == \"none\"", true),
        ("_MAX_TRUST == \"high\"", true),
        ("_VALUES == \"none,low,high\"", true),
        (&format!("_ACTION_AUTHORIZERS == \"{one}\""), true),
        ("_0 == \"\" && _1 == \"\" && _x == \"\"", true),
        ("_min_trust == \"\"", true),
    ];
    for (test, expected) in cases {
        let value = value_of(&format!("Conditions: {test};"), &action(), &three);
        assert_eq!(value == "high", expected, "{test}");
    }
    let two = [Principal::of(&key(2)), one];
    let policy = policy(&format!("Conditions: _ACTION_AUTHORIZERS == \"{},{one}\";", two[0]));
    let query = Query { action: &action(), requesters: &two, values: &Values::boolean() };
    assert_eq!(query.ask([&policy]).value, 1);
}

#[test]
fn the_groups_of_a_match_can_be_read_until_the_clause_ends() {
    check(&[
        (r#"a ~= "b""#, true),
        (r#"a ~= "^b""#, false),
        (r#"a ~= "b" && _0 == "0" && _1 == """#, true),
        (r#"a ~= "(.)(.)(.)" && _0 == "3" && _1 == "a" && _2 == "b" && _3 == "c""#, true),
        (r#"a ~= "(.)(.)(.)" && _4 == """#, true),
        (r#"a ~= "((a)(b))c" && _1 == "ab" && _2 == "a" && _3 == "b""#, true),
        (r#"a ~= "(x)?a(b)" && _0 == "2" && _1 == "" && _2 == "b""#, true),
        (r#"a ~= "(.)" && _01 == "" && _00 == """#, true),
        (r#"a ~= "(.)" && $("_" . "1") == "a""#, true),
        (r#"a ~= "(.)" && b ~= "(.)(.)" && _0 == "2" && _1 == "b""#, true),
        (r#"a ~= "(.)" && !(b ~= "(x)") && _0 == "" && _1 == """#, true),
        // A group can be part of the next expression.
        (r#"a ~= "(b)" && b ~= "^" . _1"#, true),
        (r#"a ~= "(a)" && b ~= "^" . _1"#, false),
        (r#"a ~= "a(.)" && _1 ~= "b""#, true),
        ("n ~= \"([0-9])\" && @_1 + 1 == 8", true),
    ]);
    let three = values(&["none", "low", "high"]);
    let cases = [
        (r#"true -> "low"; a ~= "(.)" -> "none"; _1 == "a";"#, "low"),
        (r#"a ~= "(.)" -> { _1 == "a"; };"#, "high"),
        (r#"a ~= "(.)" -> { b ~= "(x)"; _1 == "a"; };"#, "high"),
        (r#"a ~= "(.)" -> { b ~= "(.)" -> { _1 == "b"; }; };"#, "high"),
        (r#"a ~= "(.)" -> { b ~= "(.)" -> "low"; _1 == "a"; };"#, "high"),
        (r#"true -> { a ~= "(.)" -> "low"; }; _1 == "a";"#, "low"),
        (r#""low" ~= "(.*)" -> _1;"#, "low"),
    ];
    for (conditions, expected) in cases {
        let value = value_of(&format!("Conditions: {conditions}"), &action(), &three);
        assert_eq!(value, expected, "{conditions}");
    }
    // All groups count, and the texts of 31 can be read.
    let groups = "(.?)".repeat(40);
    check(&[
        (&format!("\"{}\" ~= \"{groups}\" && _0 == \"40\"", "x".repeat(40)), true),
        (&format!("\"{}\" ~= \"{groups}\" && _31 == \"x\"", "x".repeat(40)), true),
        (&format!("\"{}\" ~= \"{groups}\" && _32 == \"\"", "x".repeat(40)), true),
    ]);
}

#[test]
fn a_constant_hides_the_attribute_of_its_name() {
    let cases = [
        ("Local-Constants: a = \"x\"\nConditions: a == \"x\";", "true"),
        ("Local-Constants: a = \"x\"\nConditions: a == \"abc\";", "false"),
        ("Local-Constants: a = \"x\" c=\"y\"\n\tD = \"z\"\nConditions: a.c.D == \"xyz\";", "true"),
        ("Local-Constants: c = \"a\"\nConditions: $c == \"abc\";", "true"),
        ("Local-Constants: a = \"c\" c = \"y\"\nConditions: $a == \"y\";", "true"),
        ("Local-Constants: a = \"\"\nConditions: a == \"\";", "true"),
        ("Local-Constants: # a = \"x\"\nConditions: a == \"abc\";", "true"),
        ("Local-Constants:\nConditions: a == \"abc\";", "true"),
        ("Local-Constants: A = \"x\"\nConditions: a == \"abc\";", "true"),
        ("Conditions: c == \"y\";\nLocal-Constants: c = \"y\"", "true"),
        ("Local-Constants: n = \"8\"\nConditions: @n == 8;", "true"),
        ("Local-Constants: v = \"true\"\nConditions: true -> v;", "true"),
        ("Local-Constants: v = \"^a.c$\"\nConditions: a ~= v;", "true"),
    ];
    for (fields, expected) in cases {
        assert_eq!(value_of(fields, &action(), &Values::boolean()), expected, "{fields}");
    }
    // They are those of one assertion only.
    let one = policy("Local-Constants: c = \"y\"\nConditions: false;");
    let other = policy("Conditions: c == \"y\";");
    let requesters = [Principal::of(&key(1))];
    let values = Values::boolean();
    let query = Query { action: &action(), requesters: &requesters, values: &values };
    assert_eq!(query.ask([&one, &other]).value, 0);
}

fn refused(text: &str) -> String {
    Assertion::parse(text.as_bytes()).map(drop).expect_err(text).to_string()
}

#[test]
fn a_constant_is_defined_once_by_a_string() {
    let of = |value: &str| refused(&format!("Local-Constants: {value}\nAuthorizer: \"POLICY\"\n"));
    for (value, name) in [("a=\"x\" a=\"x\"", "a"), ("_a=\"x\"", "_a"), ("_0=\"x\"", "_0")] {
        assert_eq!(of(value), format!("the credential cannot define the constant `{name}`"));
    }
    let cases = [
        ("a", "= is expected in the place of the end of the field"),
        ("a=", "a string is expected in the place of the end of the field"),
        ("a=b", "a string is expected in the place of b"),
        ("a=\"x\".\"y\"", "the name of a constant is expected in the place of ."),
        ("a=\"x\", b=\"y\"", "the name of a constant is expected in the place of ,"),
        ("a==\"x\"", "= is expected in the place of =="),
        ("a=7", "a string is expected in the place of 7"),
        ("\"a\"=\"x\"", "the name of a constant is expected in the place of \"a\""),
        ("7=\"x\"", "the name of a constant is expected in the place of 7"),
        ("a=\"x", "a string has no end"),
    ];
    for (value, why) in cases {
        let says = format!("the field `Local-Constants` of the credential: {why}");
        assert_eq!(of(value), says, "{value}");
    }
}

#[test]
fn principals_are_strings_of_constants() {
    let one = Principal::of(&key(1)).to_string();
    let (head, tail) = one.split_at(20);
    let constants =
        format!("Local-Constants: ALICE = \"{one}\" name = \"ALICE\" head = \"{head}\"");
    let forms = [
        "ALICE".to_owned(),
        "(ALICE)".to_owned(),
        "$name".to_owned(),
        "$\"ALICE\"".to_owned(),
        "$(\"AL\" . \"ICE\")".to_owned(),
        format!("head . \"{tail}\""),
        format!("(head) . \"{tail}\""),
        format!("(head . \"{}\") . \"{}\"", &tail[..9], &tail[9..]),
        format!("((head . \"{}\") . (\"{}\"))", &tail[..9], &tail[9..]),
    ];
    for form in forms {
        let text = format!("{constants}\nAuthorizer: {form}\nLicensees: {form} || \"x\"\n");
        let read = Assertion::parse(text.as_bytes()).expect(&text);
        assert_eq!(read.authorizer(), &Authorizer::Key(Principal::of(&key(1))));
        assert!(read.licensees().keys().eq([Principal::of(&key(1))]), "{form}");
        let text = format!("{constants}\nAuthorizer: {form}\nLicensees: 1-of({form}, \"x\")\n");
        let read = Assertion::parse(text.as_bytes()).expect(&text);
        assert!(read.licensees().keys().eq([Principal::of(&key(1))]), "{form}");
    }
    let text = "Local-Constants: P = \"POLICY\"\nAuthorizer: P\n";
    let read = Assertion::parse(text.as_bytes()).unwrap();
    assert_eq!(read.authorizer(), &Authorizer::Policy);
    // Names that are no text are none: two of them would be one.
    for name in ["\\377", "\\303", "x\\200"] {
        let says = refused(&format!("Authorizer: \"POLICY\"\nLicensees: \"{name}\"\n"));
        assert!(
            says.starts_with("the field `Licensees` of the credential: a principal is"),
            "{says}"
        );
    }
}

#[test]
fn a_name_is_of_letters_digits_and_underscores() {
    let action = attributes(&[("a_1Z", "x"), ("Z", "x")]);
    for (test, expected) in [("a_1Z == \"x\"", "true"), ("Z == \"x\"", "true")] {
        let fields = format!("Conditions: {test};");
        assert_eq!(value_of(&fields, &action, &Values::boolean()), expected);
    }
    for test in ["1a == \"x\"", "a-1 == \"x\"", "a' == \"x\"", "a[0] == \"x\""] {
        let text = format!("Authorizer: \"POLICY\"\nConditions: {test};\n");
        assert!(Assertion::parse(text.as_bytes()).is_err(), "{test}");
    }
}

/// Texts that other programs take for another assertion, or for two.
#[test]
fn a_text_has_one_reading() {
    let good = credential(&["one"]);
    let changed = |from: &str, to: &str| good.replacen(from, to, 1);
    let crlf = good.replace('\n', "\r\n");
    assert!(refused(&crlf).starts_with("the credential has the character '\\r'"));
    let twice = changed("Authorizer:", "Authorizer: \"POLICY\"\nAuthorizer:");
    assert_eq!(refused(&twice), "the credential has the field `Authorizer` twice");
    let twice = changed("Authorizer:", "Authorizer: \"POLICY\"\nauthorizer:");
    assert_eq!(refused(&twice), "the credential has the field `Authorizer` twice");
    let bad_signature = "the field `Signature` of the credential is not as it must be";
    for after in ["\t", " ", "\tx\n", "# comment\n", "Comment: x\n"] {
        let after = format!("{good}{after}").replacen("Comment: one\n", "", 1);
        assert_eq!(refused(&after), bad_signature, "{after}");
    }
    for after in ["\n", "x", "\nKeyNote-Version: 2\n"] {
        let says = refused(&format!("{good}{after}"));
        assert_eq!(says, "a line of the credential begins no field", "{after}");
    }
    let second = refused(&format!("{good}{good}"));
    assert_eq!(second, "the credential has the field `KeyNote-Version` twice");
    // A blank at the end of a line is read, and is in the signed text.
    let blank = changed("Comment: one", "Comment: one ");
    assert_eq!(Assertion::credential(blank.as_bytes()).unwrap().verify(), Err(BadSignature));
    // A comment in a string is none, and a string in a comment too.
    check(&[
        ("a == \"abc\" # || true\n\t", true),
        ("\"#\" == \"#\" # \"\n\t", true),
        ("false # || true\n# || true\n\t|| a == \"abc\"", true),
        ("a == #\n\t\"abc\"", true),
    ]);
}

/// Returns the examples of the RFC with keys that can sign in the place of its keys.
fn example(text: &str, names: &[(&str, u8)]) -> Assertion {
    let mut text = text.to_owned();
    for (name, seed) in names {
        text = text.replace(name, &Principal::of(&key(*seed)).to_string());
    }
    Assertion::parse(text.as_bytes()).expect(&text)
}

#[test]
fn the_examples_of_the_rfc_are_read() {
    let policy = "Authorizer: \"POLICY\"\nLicensees: \"RSA:abc123\"\n";
    let opaque = Assertion::parse(policy.as_bytes()).unwrap();
    assert_eq!(opaque.licensees().keys().count(), 0, "such a key cannot sign here");
    assert_eq!(opaque.licensees().to_string(), "\"RSA:abc123\"");
    let policy = example(policy, &[("RSA:abc123", 1)]);

    let delegation = "KeyNote-Version: 2\n\
        Local-Constants: Alice=\"DSA:4401ff92\"  # Alice's key\n\
        \x20                Bob=\"RSA:d1234f\"     # Bob's key\n\
        Authorizer: \"RSA:abc123\"\n\
        Licensees: Alice || Bob\n\
        Conditions: (app_domain == \"RFC822-EMAIL\") &&\n\
        \x20           (address ~=   # only applies to one domain\n\
        \x20             \"^.*@keynote\\\\.research\\\\.att\\\\.com$\") -> \"true\";\n";
    let delegation =
        example(delegation, &[("RSA:abc123", 1), ("DSA:4401ff92", 2), ("RSA:d1234f", 3)]);
    let mail = |address: &str| attributes(&[("app_domain", "RFC822-EMAIL"), ("address", address)]);
    let ask = |assertions: &[&Assertion], action: &Attributes, seeds: &[u8], values: &Values| {
        let requesters: Vec<Principal> =
            seeds.iter().map(|seed| Principal::of(&key(*seed))).collect();
        let query = Query { action, requesters: &requesters, values };
        values.name(query.ask(assertions.iter().copied()).value).to_owned()
    };
    let values2 = Values::boolean();
    let both = [&policy, &delegation];
    let address = "mab@keynote.research.att.com";
    assert_eq!(ask(&both, &mail(address), &[1], &values2), "true");
    assert_eq!(ask(&both, &mail(address), &[2], &values2), "true");
    assert_eq!(ask(&both, &mail(address), &[3], &values2), "true");
    assert_eq!(ask(&both, &mail(address), &[4], &values2), "false");
    assert_eq!(ask(&both[1..], &mail(address), &[2], &values2), "false");
    assert_eq!(ask(&both, &mail("mab@keynoteXresearch.att.com"), &[2], &values2), "false");
    assert_eq!(ask(&both, &mail(address), &[], &values2), "false");
    let other = attributes(&[("app_domain", "X"), ("address", address)]);
    assert_eq!(ask(&both, &other, &[2], &values2), "false");

    let nested = "Authorizer: \"POLICY\"\n\
        Licensees: \"DSA:4401ff92\"\n\
        Conditions: (app_domain == \"SPEND\") && (dollars ~= \"^[0-9]+$\") -> {\n\
        \x20   @(dollars) < 2500 -> \"approve\";\n\
        \x20   @(dollars) < 7500 -> \"logandaccept\";\n\
        \x20   true -> \"ask\"; };\n";
    let nested = example(nested, &[("DSA:4401ff92", 1)]);
    let spend = values(&["reject", "ask", "logandaccept", "approve"]);
    let dollars = |amount: &str| attributes(&[("app_domain", "SPEND"), ("dollars", amount)]);
    let cases = [
        ("0", "approve"),
        ("2499", "approve"),
        ("2500", "logandaccept"),
        ("7499", "logandaccept"),
        ("7500", "ask"),
        // An overflow is an error of two clauses, not of the third.
        ("99999999999", "ask"),
        ("-1", "reject"),
        ("1.5", "reject"),
        ("", "reject"),
    ];
    for (amount, expected) in cases {
        assert_eq!(ask(&[&nested], &dollars(amount), &[1], &spend), expected, "{amount}");
    }

    let three = "Authorizer: \"POLICY\"\n\
        Licensees: \"dsa:abc123\" || \"dsa:ab4312\" || \"rsa:d1234f\"\n\
        Conditions: app_domain == \"SPEND\" -> \"approve\";\n";
    let three = example(three, &[("dsa:abc123", 1), ("dsa:ab4312", 2), ("rsa:d1234f", 3)]);
    for seed in 1..=4 {
        let expected = if seed == 4 { "reject" } else { "approve" };
        assert_eq!(ask(&[&three], &dollars("1"), &[seed], &spend), expected);
    }
}
