//! The field `Conditions`: the program that decides under which circumstances an assertion grants
//! (RFC 2704, 4.6.5).

use crate::error::SyntaxError;
use crate::token::Tokens;

pub(crate) use evaluate::{Constants, Evaluation, State};
pub use pattern::Pattern;
pub(crate) use print::quoted;
pub(crate) use syntax::string;

mod evaluate;
mod matched;
mod may_read;
mod membership;
mod number;
mod pattern;
mod print;
mod size;
mod syntax;

/// The conditions of an assertion.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    /// The program.
    pub program: Program,
}

/// Clauses, of whose values the highest counts. Without a clause that passes it is the lowest.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    /// The clauses in their order.
    pub clauses: Vec<Clause>,
}

/// A test, and the value of an action that passes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Clause {
    /// The test.
    pub test: Test,
    /// The value.
    pub then: Consequence,
}

/// The compliance value of a clause whose test is passed.
#[derive(Debug, Clone, PartialEq)]
pub enum Consequence {
    /// The highest value.
    MaxTrust,
    /// The value of this name; the lowest if there is none.
    Value(StringExpr),
    /// The value of this program.
    Program(Program),
}

/// A test of an action. An error, such as a division by zero, makes the whole test of a clause
/// false.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// `true` or `false`.
    Constant(bool),
    /// All of these tests pass: at least two.
    All(Vec<Self>),
    /// At least one of these tests passes: at least two.
    Any(Vec<Self>),
    /// This test fails.
    Not(Box<Self>),
    /// A comparison of strings, byte by byte.
    Strings(StringExpr, Relation, StringExpr),
    /// A comparison of integers.
    Integers(Arithmetic<i32>, Relation, Arithmetic<i32>),
    /// A comparison of floats, not for equality.
    Floats(Arithmetic<f32>, Relation, Arithmetic<f32>),
    /// A part of the string matches a regular expression.
    Matches(StringExpr, Pattern),
}

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// `==`
    Equal,
    /// `!=`
    Unequal,
    /// `<=`
    AtMost,
    /// `>=`
    AtLeast,
    /// `<`
    Less,
    /// `>`
    Greater,
}

/// An expression of a string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StringExpr {
    /// A string without a NUL byte.
    Literal(Vec<u8>),
    /// The value of an attribute: letters, digits and `_`, the first one no digit. It is empty if
    /// there is no such attribute.
    Attribute(String),
    /// `$`: the value of the attribute that has this name.
    Dereferenced(Box<Self>),
    /// `.`: these strings one after the other, at least two.
    Joined(Vec<Self>),
}

/// An expression of an integer of 32 bits, or of a float of 32 bits.
#[derive(Debug, Clone, PartialEq)]
pub enum Arithmetic<Number> {
    /// A number, which is not negative.
    Literal(Number),
    /// `@` or `&`: the number in this string; zero if it is no number.
    Of(StringExpr),
    /// The number below zero.
    Negated(Box<Self>),
    /// Operators of one precedence class, which are carried out from the left: at least one.
    Chain(Box<Self>, Vec<(Operator, Self)>),
}

/// An operator of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`, of integers only.
    Remainder,
    /// `^`
    Power,
}

impl Conditions {
    /// The value of the conditions that [`Conditions::new`] returns, for an action that meets them.
    pub const TRUE: &'static str = "true";

    /// Returns the conditions that all of these tests pass, with the value [`Conditions::TRUE`].
    #[must_use]
    pub fn new(tests: Vec<Test>) -> Self {
        let test = match <[Test; 1]>::try_from(tests) {
            Ok([test]) => test,
            Err(tests) if tests.is_empty() => Test::Constant(true),
            Err(tests) => Test::All(tests),
        };
        let then = Consequence::Value(StringExpr::literal(Self::TRUE));
        Self { program: Program { clauses: vec![Clause { test, then }] } }
    }

    /// Returns the tests if the conditions have the form of [`Conditions::new`].
    #[must_use]
    pub fn tests(&self) -> Option<&[Test]> {
        let [Clause { test, then }] = self.program.clauses.as_slice() else { return None };
        match then {
            Consequence::Value(StringExpr::Literal(value)) if value == Self::TRUE.as_bytes() => {}
            Consequence::MaxTrust | Consequence::Value(_) | Consequence::Program(_) => return None,
        }
        match test {
            Test::All(tests) => Some(tests),
            one => Some(std::slice::from_ref(one)),
        }
    }

    /// Parses the value of the field.
    ///
    /// # Errors
    /// [`SyntaxError`].
    pub(crate) fn parse(value: &str) -> Result<Self, SyntaxError> {
        let mut from = Tokens::of(value)?;
        let program = syntax::program(&mut from)?;
        from.end()?;
        Ok(Self { program })
    }
}

impl Test {
    /// Returns the test that an attribute has this value.
    #[must_use]
    pub fn equals(attribute: &str, text: &str) -> Self {
        Self::compares(attribute, Relation::Equal, text)
    }

    /// Returns the comparison of an attribute with a string.
    #[must_use]
    pub fn compares(attribute: &str, relation: Relation, text: &str) -> Self {
        Self::Strings(StringExpr::attribute(attribute), relation, StringExpr::literal(text))
    }

    /// Returns the test that a part of the value of an attribute matches a regular expression.
    #[must_use]
    pub fn matches(attribute: &str, pattern: &str) -> Self {
        Self::Matches(StringExpr::attribute(attribute), Pattern::new(StringExpr::literal(pattern)))
    }

    /// Returns attribute, relation and string if the test compares an attribute with a string.
    #[must_use]
    pub fn as_comparison(&self) -> Option<(&str, Relation, &str)> {
        match self {
            Self::Strings(StringExpr::Attribute(name), relation, StringExpr::Literal(text)) => {
                Some((name, *relation, str::from_utf8(text).ok()?))
            }
            _ => None,
        }
    }

    /// Returns attribute and regular expression if the test matches an attribute with a literal.
    #[must_use]
    pub fn as_match(&self) -> Option<(&str, &str)> {
        match self {
            Self::Matches(StringExpr::Attribute(name), pattern) => match pattern.text() {
                StringExpr::Literal(text) => Some((name, str::from_utf8(text).ok()?)),
                _ => None,
            },
            _ => None,
        }
    }
}

impl StringExpr {
    /// Returns the expression of a string.
    #[must_use]
    pub fn literal(text: &str) -> Self {
        Self::Literal(text.as_bytes().to_vec())
    }

    /// Returns the expression of an attribute's value.
    #[must_use]
    pub fn attribute(name: &str) -> Self {
        Self::Attribute(name.to_owned())
    }

    /// Returns the expression of the strings in a list, which is not empty.
    fn joined(mut parts: Vec<Self>) -> Self {
        match parts.len() {
            1 => parts.swap_remove(0),
            _ => Self::Joined(parts),
        }
    }
}

impl<Number> Arithmetic<Number> {
    fn chain(first: Self, rest: Vec<(Operator, Self)>) -> Self {
        match rest.is_empty() {
            true => first,
            false => Self::Chain(Box::new(first), rest),
        }
    }
}

impl Relation {
    /// Every relation; each before its own beginning.
    pub const ALL: [Self; 6] =
        [Self::Equal, Self::Unequal, Self::AtMost, Self::AtLeast, Self::Less, Self::Greater];

    /// Returns the text of the relation.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::Unequal => "!=",
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
            Self::Less => "<",
            Self::Greater => ">",
        }
    }

    /// Returns whether two values that compare like this have the relation.
    pub(crate) const fn holds(self, ordering: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::Unequal => ordering.is_ne(),
            Self::AtMost => ordering.is_le(),
            Self::AtLeast => ordering.is_ge(),
            Self::Less => ordering.is_lt(),
            Self::Greater => ordering.is_gt(),
        }
    }
}

impl Operator {
    /// Returns the text of the operator.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
            Self::Power => "^",
        }
    }

    /// Returns how tight the operator binds, from 0 on.
    const fn precedence(self) -> u8 {
        match self {
            Self::Add | Self::Subtract => 0,
            Self::Multiply | Self::Divide | Self::Remainder => 1,
            Self::Power => 2,
        }
    }
}
