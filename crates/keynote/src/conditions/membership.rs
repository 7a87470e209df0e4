//! The question whether conditions can be decided from a part of the directories above an object.

use super::{Arithmetic, Conditions, Program, StringExpr, Test, Then};

impl Conditions {
    /// Returns whether this list of numbers between slashes is only searched for members, as by
    /// `ancestors ~= "/2a/"`, so that more members before the known ones would grant more and never
    /// less.
    #[must_use]
    pub fn only_seeks_members_of(&self, attribute: &str) -> bool {
        program(&self.program, attribute)
    }
}

fn program(program: &Program, attribute: &str) -> bool {
    program.clauses.iter().all(|clause| {
        test(&clause.test, attribute)
            && match &clause.then {
                Then::MaxTrust => true,
                Then::Value(value) => is_without(value, attribute),
                Then::Program(nested) => self::program(nested, attribute),
            }
    })
}

fn test(tested: &Test, attribute: &str) -> bool {
    match tested {
        Test::Constant(_) => true,
        Test::All(tests) | Test::Any(tests) => tests.iter().all(|one| test(one, attribute)),
        Test::Not(negated) => reads_not(negated, attribute),
        Test::Matches(StringExpr::Attribute(name), pattern) if name == attribute => {
            matches!(pattern.text(), StringExpr::Literal(pattern) if is_member(pattern))
        }
        other => reads_not(other, attribute),
    }
}

/// Returns whether a pattern is `/HEX/`, or `/HEX/$` for the last member.
fn is_member(pattern: &[u8]) -> bool {
    let pattern = pattern.strip_suffix(b"$").unwrap_or(pattern);
    let digits = pattern.strip_prefix(b"/").and_then(|rest| rest.strip_suffix(b"/"));
    digits.is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Returns whether a test does not read an attribute.
fn reads_not(tested: &Test, attribute: &str) -> bool {
    match tested {
        Test::Constant(_) => true,
        Test::All(tests) | Test::Any(tests) => tests.iter().all(|one| reads_not(one, attribute)),
        Test::Not(negated) => reads_not(negated, attribute),
        Test::Strings(left, _, right) => {
            is_without(left, attribute) && is_without(right, attribute)
        }
        Test::Integers(left, _, right) => number(left, attribute) && number(right, attribute),
        Test::Floats(left, _, right) => number(left, attribute) && number(right, attribute),
        Test::Matches(text, pattern) => {
            is_without(text, attribute) && is_without(pattern.text(), attribute)
        }
    }
}

fn number<N>(of: &Arithmetic<N>, attribute: &str) -> bool {
    match of {
        Arithmetic::Literal(_) => true,
        Arithmetic::Of(text) => is_without(text, attribute),
        Arithmetic::Negated(of) => number(of, attribute),
        Arithmetic::Chain(first, rest) => {
            number(first, attribute) && rest.iter().all(|(_, one)| number(one, attribute))
        }
    }
}

/// Returns whether a string does not read an attribute. A computed name may be any.
fn is_without(text: &StringExpr, attribute: &str) -> bool {
    match text {
        StringExpr::Literal(_) => true,
        StringExpr::Attribute(name) => name != attribute,
        StringExpr::Dereferenced(_) => false,
        StringExpr::Joined(parts) => parts.iter().all(|part| is_without(part, attribute)),
    }
}
