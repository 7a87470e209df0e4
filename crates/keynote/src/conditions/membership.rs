//! The question whether conditions can be decided from a part of the directories above an object.

use super::{Conditions, Consequence, Program, StringExpr, Test, may_read};

impl Conditions {
    /// Returns whether this list of numbers between slashes is only searched for members, as by
    /// `ancestors ~= "/2a/"`, so that more members grant more and never less. Tests that can fail
    /// with an error are excluded, because an error makes all tests of a clause false.
    #[must_use]
    pub fn only_seeks_members_of(&self, attribute: &str) -> bool {
        Sought { attribute, or_last: false }.all_of(&self.program)
    }

    /// Returns whether this list of numbers between slashes is only searched for members, or asked
    /// for its last one, as by `ancestors ~= "/2a/$"`, so that more members before those that are
    /// known grant more and never less.
    #[must_use]
    pub fn only_seeks_members_or_last_of(&self, attribute: &str) -> bool {
        Sought { attribute, or_last: true }.all_of(&self.program)
    }

    /// Returns whether an attribute may decide: it is in a test, or a name in one is computed.
    #[must_use]
    pub fn may_read(&self, attribute: &str) -> bool {
        may_read::program(&self.program, attribute)
    }
}

/// The tests of a list of numbers that are allowed.
#[derive(Clone, Copy)]
struct Sought<'a> {
    /// The attribute with the list.
    attribute: &'a str,
    /// True if its last member may be asked for.
    or_last: bool,
}

impl Sought<'_> {
    fn all_of(self, program: &Program) -> bool {
        program.clauses.iter().all(|clause| {
            self.is_allowed(&clause.test)
                && match &clause.then {
                    Consequence::MaxTrust => true,
                    Consequence::Value(value) => is_without(value, self.attribute),
                    Consequence::Program(nested) => self.all_of(nested),
                }
        })
    }

    fn is_allowed(self, tested: &Test) -> bool {
        let Self { attribute, or_last } = self;
        match tested {
            Test::Constant(_) => true,
            Test::All(tests) | Test::Any(tests) => tests.iter().all(|one| self.is_allowed(one)),
            Test::Not(negated) => reads_not(negated, attribute),
            Test::Matches(StringExpr::Attribute(name), pattern) if name == attribute => {
                let StringExpr::Literal(pattern) = pattern.text() else { return false };
                let before = pattern.strip_suffix(b"$").filter(|_| or_last);
                is_member(before.unwrap_or(pattern))
            }
            other => reads_not(other, attribute),
        }
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
