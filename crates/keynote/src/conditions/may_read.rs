//! The attributes that conditions can ask for, by their text.

use super::{Arithmetic, Consequence, Program, StringExpr, Test};

/// Returns whether a program may read an attribute.
pub(super) fn program(program: &Program, attribute: &str) -> bool {
    program.clauses.iter().any(|clause| {
        test(&clause.test, attribute)
            || match &clause.then {
                Consequence::MaxTrust => false,
                Consequence::Value(value) => string(value, attribute),
                Consequence::Program(nested) => self::program(nested, attribute),
            }
    })
}

fn test(tested: &Test, attribute: &str) -> bool {
    match tested {
        Test::Constant(_) => false,
        Test::All(tests) | Test::Any(tests) => tests.iter().any(|one| test(one, attribute)),
        Test::Not(negated) => test(negated, attribute),
        Test::Strings(left, _, right) => string(left, attribute) || string(right, attribute),
        Test::Integers(left, _, right) => number(left, attribute) || number(right, attribute),
        Test::Floats(left, _, right) => number(left, attribute) || number(right, attribute),
        Test::Matches(text, pattern) => {
            string(text, attribute) || string(pattern.text(), attribute)
        }
    }
}

fn number<Number>(of: &Arithmetic<Number>, attribute: &str) -> bool {
    match of {
        Arithmetic::Literal(_) => false,
        Arithmetic::Of(text) => string(text, attribute),
        Arithmetic::Negated(negated) => number(negated, attribute),
        Arithmetic::Chain(first, rest) => {
            number(first, attribute) || rest.iter().any(|(_, next)| number(next, attribute))
        }
    }
}

/// Returns whether a string may read an attribute; a computed name may be any.
fn string(text: &StringExpr, attribute: &str) -> bool {
    match text {
        StringExpr::Literal(_) => false,
        StringExpr::Attribute(name) => name == attribute,
        StringExpr::Dereferenced(_) => true,
        StringExpr::Joined(parts) => parts.iter().any(|part| string(part, attribute)),
    }
}
