//! The question whether conditions can be decided from a part of the directories above an object.

use super::{Conditions, Consequence, Program, StringExpr, Test};

impl Conditions {
    /// Returns whether this list of numbers between slashes is only searched for members, as by
    /// `ancestors ~= "/2a/"`, so that more members grant more and never less. Tests that can fail
    /// with an error are excluded, because an error makes all tests of a clause false.
    #[must_use]
    pub fn only_seeks_members_of(&self, attribute: &str) -> bool {
        program(&self.program, attribute)
    }
}

fn program(program: &Program, attribute: &str) -> bool {
    program.clauses.iter().all(|clause| {
        test(&clause.test, attribute)
            && match &clause.then {
                Consequence::MaxTrust => true,
                Consequence::Value(value) => is_without(value, attribute),
                Consequence::Program(nested) => self::program(nested, attribute),
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

/// Returns whether a pattern is `/HEX/`.
fn is_member(pattern: &[u8]) -> bool {
    let digits = pattern.strip_prefix(b"/").and_then(|rest| rest.strip_suffix(b"/"));
    digits.is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Returns whether a test does not read an attribute, and has always a value.
fn reads_not(tested: &Test, attribute: &str) -> bool {
    match tested {
        Test::Constant(_) => true,
        Test::All(tests) | Test::Any(tests) => tests.iter().all(|one| reads_not(one, attribute)),
        Test::Not(negated) => reads_not(negated, attribute),
        Test::Strings(left, _, right) => {
            is_without(left, attribute) && is_without(right, attribute)
        }
        // A number may be out of range.
        Test::Integers(..) | Test::Floats(..) => false,
        Test::Matches(text, pattern) => pattern.is_valid_literal() && is_without(text, attribute),
    }
}

/// Returns whether a string does not read an attribute. A computed name may be any; `_0` and the
/// like depend on earlier matches; a joined string may be too long.
fn is_without(text: &StringExpr, attribute: &str) -> bool {
    match text {
        StringExpr::Literal(_) => true,
        StringExpr::Attribute(name) => name != attribute && !name.starts_with('_'),
        StringExpr::Dereferenced(_) | StringExpr::Joined(_) => false,
    }
}
