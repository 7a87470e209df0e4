//! Tests of queries: which assertions support an action together, what an answer depends on, and
//! the bounds of an evaluation.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pelago_keynote::{Action, Assertion, Compliance, Principal, Query, Values};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::test_runner::{Config, RngSeed};

type Attributes = BTreeMap<String, Vec<u8>>;

/// Returns a principal. No signature is verified here, so that it needs no key pair.
fn principal(name: u8) -> Principal {
    Principal([name; 32])
}

fn quoted(name: u8) -> String {
    format!("\"{}\"", principal(name))
}

fn attributes(pairs: &[(&str, &str)]) -> Attributes {
    pairs.iter().map(|pair| (pair.0.to_owned(), pair.1.as_bytes().to_vec())).collect()
}

fn values(names: &[&str]) -> Values {
    Values::new(names.iter().map(|name| (*name).to_owned()).collect()).unwrap()
}

/// Returns an assertion: the authorizer 0 is the policy, the letters of the licensees are replaced
/// by keys.
fn assertion(authorizer: u8, licensees: &str, conditions: &str) -> Assertion {
    let licensees: String = licensees
        .chars()
        .map(|letter| match letter {
            'A'..='Z' => quoted(u8::try_from(letter).unwrap() - b'A' + 1),
            other => other.to_string(),
        })
        .collect();
    let authorizer = if authorizer == 0 { "\"POLICY\"".to_owned() } else { quoted(authorizer) };
    let text =
        format!("Authorizer: {authorizer}\nLicensees: {licensees}\nConditions: {conditions}\n");
    Assertion::parse(text.as_bytes()).expect(&text)
}

fn ask(
    assertions: &[Assertion],
    action: &dyn Action,
    requesters: &[u8],
    names: &Values,
) -> Compliance {
    let requesters: Vec<Principal> = requesters.iter().map(|name| principal(*name)).collect();
    Query { action, requesters: &requesters, values: names }.ask(assertions)
}

fn is_granted(assertions: &[Assertion], requesters: &[u8]) -> bool {
    ask(assertions, &attributes(&[("a", "x")]), requesters, &Values::boolean()).value == 1
}

#[test]
fn a_chain_from_the_policy_to_the_requester_grants() {
    let chain = [
        assertion(0, "A", "true;"),
        assertion(1, "B", "true;"),
        assertion(2, "C", "true;"),
        assertion(3, "D", "true;"),
    ];
    for length in 1..=4_u8 {
        for requester in 1..=5 {
            let granted = is_granted(&chain[..usize::from(length)], &[requester]);
            assert_eq!(granted, requester <= length, "{length} {requester}");
        }
    }
    for missing in 0..4 {
        let mut chain = chain.to_vec();
        chain.remove(missing);
        assert!(!is_granted(&chain, &[4]), "without assertion {missing}");
    }
    assert!(!is_granted(&chain, &[]));
    assert!(!is_granted(&[], &[1]));
    // A condition that fails anywhere ends the chain.
    for failing in 0..4_u8 {
        let mut chain = chain.to_vec();
        let licensee = char::from(b'A' + failing).to_string();
        chain[usize::from(failing)] = assertion(failing, &licensee, "a == \"y\";");
        assert!(!is_granted(&chain, &[4]), "{failing}");
    }
}

#[test]
fn licensees_are_needed_as_they_are_joined() {
    let cases: [(&str, &[u8], bool); 20] = [
        ("A", &[1], true),
        ("A", &[2], false),
        ("A || B", &[2], true),
        ("A && B", &[2], false),
        ("A && B", &[2, 1], true),
        ("A && B", &[1, 2, 3], true),
        ("A || B && C", &[1], true),
        ("A || B && C", &[2], false),
        ("(A || B) && C", &[1], false),
        ("(A || B) && C", &[2, 3], true),
        ("2-of(A, B, C)", &[1], false),
        ("2-of(A, B, C)", &[1, 3], true),
        ("3-of(A, B, C)", &[1, 3], false),
        ("3-of(A, B, C)", &[1, 2, 3], true),
        ("1-of(A, B, C)", &[3], true),
        ("1-of(A)", &[2], false),
        // A key in two places counts twice, as in the RFC's list.
        ("2-of(A, A, B)", &[1], true),
        ("A && A", &[1], true),
        ("2-of(A, B, C) && D", &[1, 2], false),
        ("2-of(A, B, C) && D", &[1, 2, 4], true),
    ];
    for (licensees, requesters, expected) in cases {
        let policy = [assertion(0, licensees, "true;")];
        assert_eq!(is_granted(&policy, requesters), expected, "{licensees} {requesters:?}");
    }
    let nobody = Assertion::parse(b"Authorizer: \"POLICY\"\nConditions: true;\n").unwrap();
    assert!(!is_granted(&[nobody], &[1]));
    let name = Assertion::parse(b"Authorizer: \"POLICY\"\nLicensees: \"x\"\n").unwrap();
    assert!(!is_granted(&[name], &[1]));
}

#[test]
fn an_authorizer_that_is_a_name_is_one_principal() {
    let policy = Assertion::parse(b"Authorizer: \"POLICY\"\nLicensees: \"x\"\n").unwrap();
    let of = |name: &str| {
        let text = format!("Authorizer: \"{name}\"\nLicensees: {}\n", quoted(1));
        Assertion::parse(text.as_bytes()).unwrap()
    };
    assert!(is_granted(&[policy.clone(), of("x")], &[1]));
    assert!(!is_granted(&[policy, of("X")], &[1]));
}

#[test]
fn two_policies_grant_what_one_of_them_grants() {
    let names = values(&["none", "low", "high"]);
    let low = assertion(0, "A", "true -> \"low\";");
    let high = assertion(0, "B", "true -> \"high\";");
    let value = |requesters: &[u8]| {
        let action = Attributes::new();
        let answer = ask(&[low.clone(), high.clone()], &action, requesters, &names);
        names.name(answer.value).to_owned()
    };
    assert_eq!(value(&[1]), "low");
    assert_eq!(value(&[2]), "high");
    assert_eq!(value(&[1, 2]), "high");
    assert_eq!(value(&[3]), "none");
}

#[test]
fn a_value_is_the_lower_one_of_conditions_and_licensees() {
    let names = values(&["0", "1", "2", "3"]);
    let value = |policy: &str, chain: &[(u8, &str, &str)], requesters: &[u8]| {
        let mut all = vec![assertion(0, policy, "true;")];
        for (authorizer, licensees, value) in chain {
            all.push(assertion(*authorizer, licensees, &format!("true -> \"{value}\";")));
        }
        ask(&all, &Attributes::new(), requesters, &names).value
    };
    assert_eq!(value("A", &[(1, "B", "2")], &[2]), 2);
    assert_eq!(value("A", &[(1, "B", "2"), (2, "C", "1")], &[3]), 1);
    assert_eq!(value("A", &[(1, "B", "1"), (2, "C", "2")], &[3]), 1);
    assert_eq!(value("A", &[(1, "B", "1"), (1, "B", "2")], &[2]), 2);
    assert_eq!(value("A && B", &[(1, "C", "1"), (2, "C", "2")], &[3]), 1);
    assert_eq!(value("A || B", &[(1, "C", "1"), (2, "C", "2")], &[3]), 2);
    let three = [(1, "D", "1"), (2, "D", "3"), (3, "D", "2")];
    assert_eq!(value("1-of(A, B, C)", &three, &[4]), 3);
    assert_eq!(value("2-of(A, B, C)", &three, &[4]), 2);
    assert_eq!(value("3-of(A, B, C)", &three, &[4]), 1);
}

/// A circle supports nothing by itself, and harms nothing.
#[test]
fn a_circle_of_assertions_grants_nothing() {
    let circle = [assertion(1, "B", "true;"), assertion(2, "A", "true;")];
    let policy = assertion(0, "A", "true;");
    let all = [vec![policy.clone()], circle.to_vec()].concat();
    assert!(!is_granted(&all, &[3]));
    assert!(!is_granted(&circle, &[1]));
    assert!(is_granted(&all, &[1]));
    assert!(is_granted(&all, &[2]));
    let beside = [all.clone(), vec![assertion(2, "C", "true;")]].concat();
    assert!(is_granted(&beside, &[3]));
    let itself = [policy, assertion(1, "A", "true;")];
    assert!(!is_granted(&itself, &[2]));
    // Each needs the other and one more: no order of evaluation would begin.
    let both = [
        assertion(0, "A", "true;"),
        assertion(1, "B && C", "true;"),
        assertion(2, "A && C", "true;"),
    ];
    assert!(!is_granted(&both, &[3]));
    // A long circle rises value by value and ends.
    let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let names = Values::new(names).unwrap();
    let mut long = vec![assertion(0, "A", "true;")];
    for at in 1..=10_u8 {
        let next = char::from(b'A' + at % 10).to_string();
        long.push(assertion(at, &next, "true;"));
    }
    for number in 0..19 {
        long.push(assertion(5, "Z", &format!("true -> \"{number}\";")));
    }
    assert_eq!(ask(&long, &Attributes::new(), &[26], &names).value, 18);
}

#[test]
fn the_assertions_that_support_an_answer_are_named() {
    let all = [
        assertion(0, "A || B", "true;"),
        assertion(1, "C", "a == \"x\";"),
        assertion(2, "C", "a == \"y\";"),
        assertion(4, "C", "true;"),
        assertion(5, "F", "true;"),
    ];
    let answer = ask(&all, &attributes(&[("a", "x")]), &[3], &Values::boolean());
    assert_eq!(answer.value, 1);
    // The fourth is evaluated, because its licensee requests; the fifth is not.
    assert_eq!(answer.supported_by, [0, 1, 3]);
}

/// A mini representation of assertions: the value of the condition is a number.
#[derive(Debug, Clone)]
struct Mini {
    /// 0 is the policy.
    authorizer: u8,
    licensees: MiniLicensees,
    value: usize,
}

#[derive(Debug, Clone)]
enum MiniLicensees {
    Key(u8),
    All(Vec<Self>),
    Any(Vec<Self>),
    Threshold(usize, Vec<u8>),
}

const KEYS: u8 = 6;
const VALUES: [&str; 4] = ["0", "1", "2", "3"];

impl MiniLicensees {
    fn text(&self) -> String {
        let join = |all: &[Self], by: &str| {
            let texts: Vec<String> = all.iter().map(|one| format!("({})", one.text())).collect();
            texts.join(by)
        };
        match self {
            Self::Key(key) => char::from(b'A' + key - 1).to_string(),
            Self::All(all) => join(all, " && "),
            Self::Any(any) => join(any, " || "),
            Self::Threshold(count, keys) => {
                let keys: Vec<String> = keys.iter().map(|key| Self::Key(*key).text()).collect();
                format!("{count}-of({})", keys.join(", "))
            }
        }
    }

    /// Returns whether the licensees have at least a value, if the principals that have it are
    /// these: in two values, `min` is `and` and `max` is `or`.
    fn have(&self, principals: &[bool]) -> bool {
        match self {
            Self::Key(key) => principals[usize::from(*key)],
            Self::All(all) => all.iter().all(|one| one.have(principals)),
            Self::Any(any) => any.iter().any(|one| one.have(principals)),
            Self::Threshold(count, keys) => {
                keys.iter().filter(|key| principals[usize::from(**key)]).count() >= *count
            }
        }
    }
}

/// Returns the value of the policy, directly from the definition: it is the highest of the values
/// that can be proved, and a proof of a value is a tree without a circle.
fn naive(assertions: &[Mini], requesters: &[u8]) -> usize {
    let has = |value: usize| {
        let mut principals = [false; KEYS as usize + 1];
        for requester in requesters {
            principals[usize::from(*requester)] = true;
        }
        // What is proved by trees of at most this depth.
        for _depth in 0..=assertions.len() {
            let known = principals;
            for assertion in assertions {
                if assertion.value >= value && assertion.licensees.have(&known) {
                    principals[usize::from(assertion.authorizer)] = true;
                }
            }
        }
        principals[0]
    };
    (1..VALUES.len()).rev().find(|value| has(*value)).unwrap_or(0)
}

fn mini() -> impl Strategy<Value = Mini> {
    let key = || 1..=KEYS;
    let threshold = vec(key(), 1..4).prop_flat_map(|keys| {
        (1..=keys.len(), Just(keys)).prop_map(|pair| MiniLicensees::Threshold(pair.0, pair.1))
    });
    let leaf = prop_oneof![3 => key().prop_map(MiniLicensees::Key), 1 => threshold];
    let licensees = leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 2..4).prop_map(MiniLicensees::All),
            vec(inner, 2..4).prop_map(MiniLicensees::Any),
        ]
    });
    let authorizer = prop_oneof![1 => Just(0_u8), 4 => key()];
    (authorizer, licensees, 0..VALUES.len()).prop_map(|all| Mini {
        authorizer: all.0,
        licensees: all.1,
        value: all.2,
    })
}

fn config(cases: u32) -> Config {
    Config { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Config::default() }
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn a_query_has_the_value_of_the_definition_in_any_order(
        minis in vec(mini(), 1..12),
        requesters in vec(1..=KEYS, 0..3),
        rotation in 0_usize..12,
    ) {
        let names = values(&VALUES);
        let write = |mini: &Mini| {
            let conditions = format!("true -> \"{}\";", mini.value);
            assertion(mini.authorizer, &mini.licensees.text(), &conditions)
        };
        let mut assertions: Vec<Assertion> = minis.iter().map(write).collect();
        let action = Attributes::new();
        let expected = naive(&minis, &requesters);
        prop_assert_eq!(ask(&assertions, &action, &requesters, &names).value, expected);
        let length = assertions.len();
        assertions.rotate_left(rotation % length);
        prop_assert_eq!(ask(&assertions, &action, &requesters, &names).value, expected);
        assertions.reverse();
        prop_assert_eq!(ask(&assertions, &action, &requesters, &names).value, expected);
        // What does not support the answer alone is not needed.
        let answer = ask(&assertions, &action, &requesters, &names);
        let support = answer.supported_by.iter().map(|at| assertions[*at].clone());
        let support: Vec<Assertion> = support.collect();
        prop_assert_eq!(ask(&support, &action, &requesters, &names).value, expected);
    }
}

/// An action that counts what is looked up. `now` and `time` are clocks.
struct Counted {
    attributes: Attributes,
    lookups: RefCell<Vec<String>>,
}

impl Action for Counted {
    fn attribute(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.lookups.borrow_mut().push(name.to_owned());
        self.attributes.get(name).map(|value| Cow::Borrowed(value.as_slice()))
    }

    fn is_clock(&self, name: &str) -> bool {
        ["now", "time"].contains(&name)
    }
}

fn at(now: &str) -> Counted {
    let attributes =
        attributes(&[("now", now), ("a", "x"), ("b", "y"), ("name", "a"), ("c", "now")]);
    Counted { attributes, lookups: RefCell::default() }
}

fn evaluate(conditions: &str, action: &Counted) -> Compliance {
    ask(&[assertion(0, "A", conditions)], action, &[1], &Values::boolean())
}

/// Returns the attributes that an answer depends on, and the clocks with their ends.
fn reads(conditions: &str, now: &str) -> (Vec<String>, Vec<(String, Option<String>)>) {
    let answer = evaluate(conditions, &at(now));
    let attributes = answer.reads.attributes().map(str::to_owned).collect();
    let text = |end: &[u8]| String::from_utf8(end.to_vec()).unwrap();
    let clocks = answer.reads.clocks().map(|clock| (clock.0.to_owned(), clock.1.map(text)));
    (attributes, clocks.collect())
}

#[test]
fn an_answer_names_the_attributes_that_were_read() {
    let cases: [(&str, &[&str]); 16] = [
        ("true;", &[]),
        ("a == \"x\";", &["a"]),
        ("a == b;", &["a", "b"]),
        ("nothing == \"\";", &["nothing"]),
        ("a ~= b;", &["a", "b"]),
        ("$name == \"x\";", &["a", "name"]),
        ("@a == 0;", &["a"]),
        ("a . b == \"xy\";", &["a", "b"]),
        ("true -> a;", &["a"]),
        ("_MAX_TRUST == \"true\" && _VALUES != \"\" && _0 == \"\" && _x == \"\";", &[]),
        // What is not evaluated is not read.
        ("a == \"y\" && b == \"y\";", &["a"]),
        ("a == \"x\" || b == \"y\";", &["a"]),
        ("false -> b;", &[]),
        ("true; a == \"x\";", &[]),
        ("1/0 == 1 || a == \"x\";", &[]),
        ("false; a == \"x\";", &["a"]),
    ];
    for (conditions, expected) in cases {
        let (attributes, clocks) = reads(conditions, "5");
        assert_eq!(attributes, expected, "{conditions}");
        assert_eq!(clocks, [], "{conditions}");
        // Nothing else was looked up.
        let action = at("5");
        let answer = evaluate(conditions, &action);
        for name in action.lookups.borrow().iter() {
            assert!(answer.reads.has(name), "{conditions}: {name}");
        }
    }
    assert!(!evaluate("a == \"x\";", &at("5")).reads.has("b"));
}

#[test]
fn conditions_that_decide_nothing_are_not_evaluated() {
    let action = at("5");
    let all = [
        assertion(0, "A", "a == \"x\";"),
        // Its licensees have the lowest value.
        assertion(1, "C", "b == \"y\";"),
        // Its authorizer requests the action.
        assertion(2, "B", "b == \"y\";"),
    ];
    let answer = ask(&all, &action, &[1, 2], &Values::boolean());
    assert_eq!(answer.reads.attributes().collect::<Vec<_>>(), ["a"]);
    assert_eq!(action.lookups.borrow().as_slice(), ["a"]);
}

/// The first value that is higher than a string is the string with a zero byte at its end.
#[test]
fn a_clock_has_the_end_at_which_a_comparison_changes() {
    let above = Some("5\0".to_owned());
    let limit = Some("5".to_owned());
    let cases = [
        // relation, at 4, at 5, at 6
        ("<", &limit, &None, &None),
        ("<=", &above, &above, &None),
        (">", &above, &above, &None),
        (">=", &limit, &None, &None),
        ("==", &limit, &above, &None),
        ("!=", &limit, &above, &None),
    ];
    let reversed = |relation: &str| match relation {
        "<" => ">",
        ">" => "<",
        "<=" => ">=",
        ">=" => "<=",
        _ => "==",
    };
    for (relation, at_4, at_5, at_6) in cases {
        for (now, end) in [("4", at_4), ("5", at_5), ("6", at_6)] {
            let expected = (Vec::new(), vec![("now".to_owned(), end.clone())]);
            let one = format!("now {relation} \"5\";");
            assert_eq!(reads(&one, now), expected, "{one} {now}");
            let other = format!("\"5\" {} now;", reversed(relation));
            if relation != "!=" {
                assert_eq!(reads(&other, now), expected, "{other} {now}");
            }
            let other = format!("!(\"5\" != now) || now {relation} \"5\";");
            let (attributes, clocks) = reads(&other, now);
            assert!(attributes.is_empty() && clocks.len() == 1, "{other}");
            // The answer is the same until the end, and another one at it, if there is one.
            let value = |now: &str| evaluate(&one, &at(now)).value;
            let later = ["4", "4~", "5", "5\0", "50", "6", "7"];
            for later in later.into_iter().filter(|later| *later >= now) {
                let is_before = end.as_ref().is_none_or(|end| later < end.as_str());
                if is_before {
                    assert_eq!(value(later), value(now), "{one} {now} {later}");
                }
            }
            if let Some(end) = end {
                assert_ne!(value(end), value(now), "{one} {now}");
            }
        }
    }
}

#[test]
fn a_clock_ends_at_the_first_of_its_comparisons() {
    let one = |end: Option<&str>| vec![("now".to_owned(), end.map(str::to_owned))];
    let cases = [
        ("now < \"7\" && now < \"6\";", one(Some("6"))),
        ("now < \"6\" && now < \"7\";", one(Some("6"))),
        ("now >= \"3\" && now < \"6\";", one(Some("6"))),
        ("now >= \"3\";", one(None)),
        ("now < \"6\" || now < \"4\";", one(Some("6"))),
        ("now < \"a\" . \"b\";", one(Some("ab"))),
        (
            "now < \"6\" && time < \"9\";",
            [one(Some("6")), vec![("time".to_owned(), Some("9".to_owned()))]].concat(),
        ),
    ];
    for (conditions, expected) in cases {
        assert_eq!(reads(conditions, "5"), (Vec::new(), expected), "{conditions}");
    }
    // Of two assertions the first end counts too.
    let all = [assertion(0, "A", "now < \"8\";"), assertion(1, "B", "now < \"7\";")];
    let answer = ask(&all, &at("5"), &[2], &Values::boolean());
    assert_eq!(answer.reads.clocks().collect::<Vec<_>>(), [("now", Some(b"7".as_slice()))]);
    let mut merged = evaluate("now < \"9\" && a == \"x\";", &at("5")).reads;
    merged.merge(answer.reads);
    assert_eq!(merged.clocks().collect::<Vec<_>>(), [("now", Some(b"7".as_slice()))]);
    assert_eq!(merged.attributes().collect::<Vec<_>>(), ["a"]);
}

/// Elsewhere than at one side of a comparison, the value itself decides.
#[test]
fn a_clock_that_is_not_only_compared_is_read() {
    let cases: [(&str, &[&str]); 7] = [
        ("now . \"\" < \"6\";", &["now"]),
        ("now ~= \"^5\";", &["now"]),
        ("@now < 6;", &["now"]),
        ("&now < 6.0;", &["now"]),
        ("$\"now\" < \"6\";", &["now"]),
        ("$c < \"6\";", &["c", "now"]),
        ("true -> now;", &["now"]),
    ];
    for (conditions, expected) in cases {
        let (attributes, clocks) = reads(conditions, "5");
        assert_eq!(attributes, expected, "{conditions}");
        assert_eq!(clocks, [], "{conditions}");
    }
    // The limit is read, a clock on both sides too.
    assert_eq!(reads("now < a;", "5").0, ["a"]);
    assert_eq!(reads("now <= now;", "5").0, ["now"]);
    assert!(evaluate("now <= now;", &at("5")).reads.has("now"));
    // A constant hides a clock.
    let text = format!(
        "Local-Constants: now = \"4\" a = \"4\"\nAuthorizer: \"POLICY\"\nLicensees: {}\n\
         Conditions: now < \"6\" && a < \"6\" && \"6\" > now;\n",
        quoted(1)
    );
    let policy = Assertion::parse(text.as_bytes()).unwrap();
    let answer = ask(&[policy], &at("7"), &[1], &Values::boolean());
    assert_eq!(answer.value, 1);
    assert_eq!(answer.reads.attributes().count() + answer.reads.clocks().count(), 0);
}

proptest! {
    #![proptest_config(config(2000))]

    /// The answer is the same as long as what was read is the same.
    #[test]
    fn an_answer_holds_while_what_was_read_holds(
        tests in vec((0_usize..10, 0_usize..6, 0_u8..10, 0_usize..3), 1..6),
        now in 0_u8..10,
        values in vec(0_u8..3, 3),
        later in 0_u8..10,
        others in vec(0_u8..3, 3),
    ) {
        let relations = ["<", "<=", ">", ">=", "==", "!="];
        let tests: Vec<String> = tests
            .iter()
            .map(|test| {
                let relation = relations[test.1];
                let name = ["a", "b", "d"][test.3];
                match test.0 {
                    0..=2 => format!("now {relation} \"{}\"", test.2),
                    3..=4 => format!("\"{}\" {relation} now", test.2),
                    5 => format!("!(now {relation} {name})"),
                    6 => format!("$({name} . \"\") {relation} \"{}\"", test.2 % 3),
                    7 => format!("@{name} / @b {relation} {}", test.2 % 3),
                    _ => format!("{name} {relation} \"{}\"", test.2 % 3),
                }
            })
            .collect();
        let conditions = tests.chunks(2).map(|all| all.join(" && ")).collect::<Vec<_>>();
        let conditions = format!("{};", conditions.join(" || "));
        let action = |now: u8, values: &[u8]| {
            let mut action = at(&now.to_string());
            for (name, value) in ["a", "b", "d"].iter().zip(values) {
                action.attributes.insert((*name).to_owned(), value.to_string().into_bytes());
            }
            action
        };
        let first = evaluate(&conditions, &action(now, &values));
        let second = action(later.max(now), &others);
        let is_same = first.reads.attributes().all(|name| {
            let before = action(now, &values);
            second.attributes.get(name) == before.attributes.get(name)
        });
        let is_early = first.reads.clocks().all(|clock| {
            let now = second.attributes.get(clock.0).map_or(&[] as &[u8], Vec::as_slice);
            clock.1.is_none_or(|end| now < end)
        });
        if is_same && is_early {
            let again = evaluate(&conditions, &second);
            prop_assert_eq!(again.value, first.value, "{}", conditions);
        }
        prop_assert!(first.value <= 1);
    }
}

/// Texts that would take minutes if each step were carried out.
#[test]
fn an_evaluation_ends_soon_with_the_lowest_value() {
    let begin = Instant::now();
    let long = "x".repeat(60_000);
    let action = attributes(&[("long", &long), ("p", "(x?){200}y"), ("e", "")]);
    let repeated = |unit: &str, by: &str| vec![unit; 7000 / (unit.len() + by.len())].join(by);
    let endless = [
        // Expressions that are computed: each is compiled.
        format!("{} || true;", repeated("e ~= p.e", "||")),
        format!("{} || true;", repeated("e ~= \"x\".p", "||")),
        // Searches in long texts, and their groups.
        format!("{} || true;", repeated("long ~= \"y\"", "||")),
        format!("{} || true;", repeated("long~=\"(x?){9}$\"&&_1==\"z\"", "||")),
        // Long strings.
        format!("{} || true;", repeated("long==e", "||")),
        format!("{} || true;", repeated("$(\"lo\".\"ng\")==e", "||")),
        format!("{};true;", repeated("long ~= \"(.*)\" -> { _1 == \"y\"; }", ";")),
    ];
    for conditions in endless {
        let policy = [assertion(0, "A", &conditions)];
        let answer = ask(&policy, &action, &[1], &Values::boolean());
        assert_eq!(answer.value, Values::MIN, "{}", &conditions[..60]);
        assert!(answer.supported_by.is_empty());
    }
    // What is repeated as often with short strings is evaluated to its end.
    let short = attributes(&[("e", "")]);
    for unit in ["e==\"x\"", "1+2==4", "e~=\"x\"", "e ~= \"(x)\" && _1 == \"x\"", "$e==\"x\""] {
        let policy = [assertion(0, "A", &format!("{} || true;", repeated(unit, "||")))];
        assert_eq!(ask(&policy, &short, &[1], &Values::boolean()).value, 1, "{unit}");
    }
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

/// The steps of a program end it as a whole, also the clauses that passed.
#[test]
fn a_program_that_takes_too_many_steps_has_the_lowest_value() {
    let names = values(&["none", "low", "high"]);
    let long = attributes(&[("long", &"x".repeat(60_000))]);
    let endless = vec!["long == \"y\""; 30].join("||");
    let program = format!("true -> \"low\"; {endless};");
    assert_eq!(ask(&[assertion(0, "A", &program)], &long, &[1], &names).value, 0);
    let nested = format!("true -> \"low\"; true -> {{ {endless}; }};");
    assert_eq!(ask(&[assertion(0, "A", &nested)], &long, &[1], &names).value, 0);
    // Another assertion has its own steps.
    let both = [assertion(0, "A", &program), assertion(0, "A", "true -> \"low\";")];
    assert_eq!(ask(&both, &long, &[1], &names).value, 1);
}

#[test]
fn a_string_has_at_most_64_kib() {
    let action = attributes(&[("k", &"x".repeat(1 << 10)), ("one", "x")]);
    let joined = |count: usize, more: &str| {
        let text = vec!["k"; count].join(".");
        let test = format!("({text}{more}) != \"\"");
        let policy = [assertion(0, "A", &format!("{test};"))];
        let passes = ask(&policy, &action, &[1], &Values::boolean()).value == 1;
        let policy = [assertion(0, "A", &format!("!({test});"))];
        let fails = ask(&policy, &action, &[1], &Values::boolean()).value == 1;
        (passes, fails)
    };
    assert_eq!(joined(64, ""), (true, false));
    assert_eq!(joined(64, ".one"), (false, false), "an error, not an empty string");
    assert_eq!(joined(65, ""), (false, false));
    assert_eq!(joined(63, ".(k)"), (true, false));
    assert_eq!(joined(63, ".(k.one)"), (false, false));
}

#[test]
fn values_are_at_least_two_and_different() {
    let new = |names: &[&str]| Values::new(names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(new(&[]), None);
    assert_eq!(new(&["a"]), None);
    assert_eq!(new(&["a", "b", "a"]), None);
    let two = new(&["a", "b"]).unwrap();
    assert_eq!([two.name(0), two.name(1), two.name(2)], ["a", "b", ""]);
    assert_eq!(two.max(), 1);
    assert_eq!(Values::boolean().name(1), "true");
    // A name with a comma is two in `_VALUES`, and is one value.
    let comma = new(&["a,b", "c"]).unwrap();
    let policy = [assertion(0, "A", "true -> \"b\";")];
    assert_eq!(ask(&policy, &Attributes::new(), &[1], &comma).value, 0);
}
