//! The field `Conditions`: the tests that an action must pass (RFC 2704, 5).
//!
//! This version accepts a conjunction of comparisons of strings, with the value `"true"`:
//!
//! ```text
//! test "&&" test ... "->" "\"true\"" ";"
//! test = name "==" string | name "~=" string | "(" name "==" string "||" ... ")"
//! ```

use std::fmt;

use crate::error::{ALTERNATIVES, ConditionsError, TESTS};
use crate::token::{self, Token};

/// The compliance value of an action that passes all tests.
const TRUE: &str = "true";

/// The tests of an assertion, all of which an action must pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conditions {
    tests: Vec<Test>,
}

/// A test of an action's attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// An attribute has this value.
    Equals(Compared),
    /// A part of the value of an attribute matches this regular expression.
    Matches(Compared),
    /// At least one of these attributes has its value: two comparisons or more.
    OneOf(Vec<Compared>),
}

/// An attribute, and the string that it is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    /// The name of the attribute: letters, digits and `_`, the first one a letter.
    pub attribute: String,
    /// The string.
    pub text: String,
}

impl Compared {
    /// Returns a comparison.
    #[must_use]
    pub fn new(attribute: &str, text: &str) -> Self {
        Self { attribute: attribute.to_owned(), text: text.to_owned() }
    }
}

impl Conditions {
    /// Returns the conditions of these tests.
    #[must_use]
    pub const fn new(tests: Vec<Test>) -> Self {
        Self { tests }
    }

    /// Returns the tests in their order.
    #[must_use]
    pub fn tests(&self) -> &[Test] {
        &self.tests
    }

    /// Parses the value of the field.
    ///
    /// # Errors
    /// [`ConditionsError`].
    pub(crate) fn parse(value: &str) -> Result<Self, ConditionsError> {
        let tokens = token::divide(value)?;
        let mut from = Tokens { rest: tokens.as_slice() };
        let mut tests = vec![from.test()?];
        while from.takes(&Token::And) {
            if tests.len() == TESTS {
                return Err(ConditionsError::TooMany);
            }
            tests.push(from.test()?);
        }
        from.expect(&Token::Arrow, "`-> \"true\"`")?;
        if from.text("`\"true\"`")? != TRUE {
            return Err(ConditionsError::Expected("`\"true\"`"));
        }
        from.expect(&Token::End, "`;`")?;
        match from.rest {
            [] => Ok(Self { tests }),
            _ => Err(ConditionsError::not_taken("a second clause")),
        }
    }
}

/// The tokens that are not parsed yet.
struct Tokens<'a> {
    rest: &'a [Token<'a>],
}

impl Tokens<'_> {
    fn takes(&mut self, token: &Token<'_>) -> bool {
        match self.rest {
            [first, rest @ ..] if first == token => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn expect(&mut self, token: &Token<'_>, says: &'static str) -> Result<(), ConditionsError> {
        if self.takes(token) { Ok(()) } else { Err(ConditionsError::Expected(says)) }
    }

    fn text(&mut self, says: &'static str) -> Result<String, ConditionsError> {
        match self.rest {
            [Token::Text(text), rest @ ..] => {
                self.rest = rest;
                Ok(text.clone())
            }
            _ => Err(ConditionsError::Expected(says)),
        }
    }

    fn attribute(&mut self) -> Result<String, ConditionsError> {
        match self.rest {
            // Constants of the language (RFC 2704, 5).
            [Token::Name(name), ..]
                if ["true", "false"].iter().any(|word| word.eq_ignore_ascii_case(name)) =>
            {
                Err(ConditionsError::not_taken(name))
            }
            [Token::Name(name), rest @ ..] => {
                self.rest = rest;
                Ok((*name).to_owned())
            }
            _ => Err(ConditionsError::Expected("the name of an attribute")),
        }
    }

    fn test(&mut self) -> Result<Test, ConditionsError> {
        if self.takes(&Token::Open) {
            return self.one_of();
        }
        let attribute = self.attribute()?;
        if self.takes(&Token::Matches) {
            let text = self.text("a string")?;
            return Ok(Test::Matches(Compared { attribute, text }));
        }
        self.expect(&Token::Equals, "`==` or `~=`")?;
        let text = self.text("a string")?;
        Ok(Test::Equals(Compared { attribute, text }))
    }

    fn one_of(&mut self) -> Result<Test, ConditionsError> {
        let mut comparisons = Vec::new();
        loop {
            if comparisons.len() == ALTERNATIVES {
                return Err(ConditionsError::TooMany);
            }
            let attribute = self.attribute()?;
            self.expect(&Token::Equals, "`==`")?;
            let text = self.text("a string")?;
            comparisons.push(Compared { attribute, text });
            if !self.takes(&Token::Or) {
                break;
            }
        }
        self.expect(&Token::Close, "`||` or `)`")?;
        if comparisons.len() < 2 {
            return Err(ConditionsError::Expected("`||`"));
        }
        Ok(Test::OneOf(comparisons))
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, test) in self.tests.iter().enumerate() {
            if at > 0 {
                f.write_str(" &&\n\t")?;
            }
            test.fmt(f)?;
        }
        write!(f, " -> \"{TRUE}\";")
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equals(Compared { attribute, text }) => {
                write!(f, "{attribute} == {}", quoted(text))
            }
            Self::Matches(Compared { attribute, text }) => {
                write!(f, "{attribute} ~= {}", quoted(text))
            }
            Self::OneOf(comparisons) => {
                f.write_str("(")?;
                for (at, Compared { attribute, text }) in comparisons.iter().enumerate() {
                    let or = if at > 0 { " || " } else { "" };
                    write!(f, "{or}{attribute} == {}", quoted(text))?;
                }
                f.write_str(")")
            }
        }
    }
}

/// Returns a string with its quotes and escapes.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
