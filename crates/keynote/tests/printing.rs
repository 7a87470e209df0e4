//! Tests that the print of conditions is read as the same conditions, for random expressions.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use pelago_keynote::{
    Arithmetic, Assertion, Clause, Conditions, Consequence, Operator, Pattern, Program, Relation,
    StringExpr, Test,
};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};
use proptest::test_runner::{Config, RngSeed};

fn relation() -> impl Strategy<Value = Relation> {
    proptest::sample::select(Relation::ALL.to_vec())
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[A-Za-z_][A-Za-z0-9_]{0,5}", Just("true".to_owned()), Just("False".to_owned())]
}

fn string() -> impl Strategy<Value = StringExpr> {
    let byte = prop_oneof![
        1_u8..=255,
        Just(b'"'),
        Just(b'\\'),
        Just(b'#'),
        Just(b'\n'),
        Just(b'0'),
        Just(b'7'),
    ];
    let leaf = prop_oneof![
        vec(byte, 0..8).prop_map(StringExpr::Literal),
        name().prop_map(StringExpr::Attribute),
    ];
    leaf.prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|name| StringExpr::Dereferenced(Box::new(name))),
            vec(inner, 2..4).prop_map(StringExpr::Joined),
        ]
    })
}

/// Returns expressions of numbers: a chain has operators of one class.
fn number<N: Clone + std::fmt::Debug + 'static>(
    literal: impl Strategy<Value = N> + 'static,
    has_remainder: bool,
) -> impl Strategy<Value = Arithmetic<N>> {
    let mut classes = vec![
        vec![Operator::Add, Operator::Subtract],
        vec![Operator::Multiply, Operator::Divide],
        vec![Operator::Power],
    ];
    if has_remainder {
        classes[1].push(Operator::Remainder);
    }
    let leaf =
        prop_oneof![literal.prop_map(Arithmetic::Literal), string().prop_map(Arithmetic::Of),];
    leaf.prop_recursive(5, 16, 4, move |inner| {
        let class = proptest::sample::select(classes.clone());
        let operand = (0_usize..3, inner.clone());
        let chain = (class, inner.clone(), vec(operand, 1..4)).prop_map(|chain| {
            let (class, first, rest) = chain;
            let operator = |at: usize| class[at % class.len()];
            let rest = rest.into_iter().map(|pair| (operator(pair.0), pair.1)).collect();
            Arithmetic::Chain(Box::new(first), rest)
        });
        prop_oneof![inner.prop_map(|of| Arithmetic::Negated(Box::new(of))), chain]
    })
}

fn integer() -> impl Strategy<Value = Arithmetic<i32>> {
    number(prop_oneof![0..10, 0..=i32::MAX], true)
}

/// Returns each finite float that is not negative with the same chance.
fn bits() -> impl Strategy<Value = f32> {
    (0..f32::INFINITY.to_bits()).prop_map(f32::from_bits)
}

fn float() -> impl Strategy<Value = Arithmetic<f32>> {
    number(prop_oneof![0.0_f32..10.0, bits()], false)
}

fn test() -> impl Strategy<Value = Test> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Test::Constant),
        (string(), relation(), string()).prop_map(|test| Test::Strings(test.0, test.1, test.2)),
        (integer(), relation(), integer()).prop_map(|test| Test::Integers(test.0, test.1, test.2)),
        (float(), relation(), float()).prop_map(|test| {
            let relation = match test.1 {
                Relation::Equal => Relation::Less,
                Relation::Unequal => Relation::AtMost,
                relation => relation,
            };
            Test::Floats(test.0, relation, test.2)
        }),
        (string(), string()).prop_map(|test| Test::Matches(test.0, Pattern::new(test.1))),
    ];
    leaf.prop_recursive(5, 16, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|test| Test::Not(Box::new(test))),
            vec(inner.clone(), 2..4).prop_map(Test::All),
            vec(inner, 2..4).prop_map(Test::Any),
        ]
    })
}

fn program() -> impl Strategy<Value = Program> {
    let clause =
        (test(), prop_oneof![Just(Consequence::MaxTrust), string().prop_map(Consequence::Value)]);
    let clause = clause.prop_map(|clause| Clause { test: clause.0, then: clause.1 });
    let leaf = vec(clause, 0..3).prop_map(|clauses| Program { clauses });
    leaf.prop_recursive(3, 6, 2, |inner| {
        let clause = (test(), inner.prop_map(Consequence::Program));
        let clause = clause.prop_map(|clause| Clause { test: clause.0, then: clause.1 });
        vec(clause, 1..3).prop_map(|clauses| Program { clauses })
    })
}

/// Returns the conditions that a reader gets from a text; `None` if it is longer than a credential.
fn read(conditions: &Conditions) -> Option<Conditions> {
    let text = format!("Authorizer: \"POLICY\"\nConditions: {conditions}\n");
    if text.len() > pelago_keynote::CREDENTIAL_BYTES {
        return None;
    }
    Some(Assertion::parse(text.as_bytes()).expect(&text).conditions().unwrap().clone())
}

fn config() -> Config {
    Config {
        cases: 2000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_print_of_conditions_is_read_as_the_same(program in program()) {
        let conditions = Conditions { program };
        if let Some(read) = read(&conditions) {
            prop_assert_eq!(read.to_string(), conditions.to_string());
            prop_assert_eq!(read, conditions);
        }
    }

    #[test]
    fn the_print_of_a_float_is_read_as_the_same_float(number in bits()) {
        let number = Arithmetic::Literal(number);
        let test = Test::Floats(number.clone(), Relation::Less, number);
        let conditions = Conditions::new(vec![test]);
        prop_assert_eq!(read(&conditions), Some(conditions));
    }
}
