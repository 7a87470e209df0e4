//! The field `Licensees`: the keys that an assertion licenses, alone or together (RFC 2704, 4.6.4).

use std::fmt::{self, Display, Formatter};

use crate::conditions::{Constants, string};
use crate::error::{AssertionError, SyntaxError};
use crate::principal::{Identifier, Principal, PrincipalError};
use crate::token::{Token, Tokens};
use crate::values::Values;

/// The limit for the identifiers in one field.
const IDENTIFIERS: usize = 64;

/// The principals that an assertion licenses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Licensees {
    /// None: the assertion grants nothing.
    Nobody,
    /// This principal.
    One(Identifier),
    /// `&&`: all of these together, at least two.
    All(Vec<Self>),
    /// `||`: each of these alone, at least two.
    Any(Vec<Self>),
    /// `K-of`: this number of these principals together.
    Threshold(usize, Vec<Identifier>),
}

impl Licensees {
    /// Parses the value of the field.
    ///
    /// # Errors
    /// [`AssertionError`].
    pub(crate) fn parse(value: &str, constants: &Constants) -> Result<Self, AssertionError> {
        let syntax = |why| AssertionError::Syntax { field: FIELD, why };
        let mut from = Parser { tokens: Tokens::of(value).map_err(syntax)?, constants, count: 0 };
        if from.tokens.peek().is_none() {
            return Ok(Self::Nobody);
        }
        let licensees = from.any()?;
        from.tokens.end().map_err(syntax)?;
        Ok(licensees)
    }

    /// Returns the value of these licensees, by the values of the principals: the lowest of those
    /// that are needed together, the highest of those that are licensed alone.
    pub(crate) fn value(&self, of: &impl Fn(&Identifier) -> usize) -> usize {
        let values = |licensees: &[Self]| -> Vec<usize> {
            licensees.iter().map(|licensees| licensees.value(of)).collect()
        };
        match self {
            Self::Nobody => Values::MIN,
            Self::One(identifier) => of(identifier),
            Self::All(licensees) => values(licensees).into_iter().min().unwrap_or(Values::MIN),
            Self::Any(licensees) => values(licensees).into_iter().max().unwrap_or(Values::MIN),
            Self::Threshold(count, identifiers) => {
                let mut values: Vec<usize> = identifiers.iter().map(of).collect();
                values.sort_unstable_by(|one, other| other.cmp(one));
                count.checked_sub(1).and_then(|at| values.get(at)).copied().unwrap_or(Values::MIN)
            }
        }
    }

    /// Returns each identifier in its place.
    pub fn identifiers(&self) -> Box<dyn Iterator<Item = &Identifier> + '_> {
        match self {
            Self::Nobody => Box::new(std::iter::empty()),
            Self::One(identifier) => Box::new(std::iter::once(identifier)),
            Self::All(licensees) | Self::Any(licensees) => {
                Box::new(licensees.iter().flat_map(Self::identifiers))
            }
            Self::Threshold(_, identifiers) => Box::new(identifiers.iter()),
        }
    }

    /// Returns each key in its place.
    pub fn keys(&self) -> impl Iterator<Item = Principal> + '_ {
        self.identifiers().filter_map(Identifier::key)
    }

    /// Returns the key if the field has this one alone.
    #[must_use]
    pub fn only_key(&self) -> Option<Principal> {
        match self {
            Self::One(identifier) => identifier.key(),
            Self::Nobody | Self::All(_) | Self::Any(_) | Self::Threshold(..) => None,
        }
    }
}

const FIELD: &str = "Licensees";

struct Parser<'a, 'c> {
    tokens: Tokens<'a>,
    constants: &'c Constants,
    count: usize,
}

impl Parser<'_, '_> {
    fn syntax<T>(result: Result<T, SyntaxError>) -> Result<T, AssertionError> {
        result.map_err(|why| AssertionError::Syntax { field: FIELD, why })
    }

    fn any(&mut self) -> Result<Licensees, AssertionError> {
        let first = self.all()?;
        let mut licensees = vec![first];
        while self.tokens.takes("||") {
            licensees.push(self.all()?);
        }
        Ok(joined(licensees, Licensees::Any))
    }

    fn all(&mut self) -> Result<Licensees, AssertionError> {
        let first = self.operand()?;
        let mut licensees = vec![first];
        while self.tokens.takes("&&") {
            licensees.push(self.operand()?);
        }
        Ok(joined(licensees, Licensees::All))
    }

    fn operand(&mut self) -> Result<Licensees, AssertionError> {
        // Parentheses may be those of a string too.
        let is_string = || string(&mut self.tokens.clone()).is_ok();
        if self.tokens.peek() == Some(&Token::Operator("(")) && !is_string() {
            let _parenthesis = self.tokens.next();
            Self::syntax(self.tokens.enter())?;
            let inner = self.any()?;
            self.tokens.leave();
            Self::syntax(self.tokens.expect(")"))?;
            return Ok(inner);
        }
        if let Some(Token::Threshold(digits)) = self.tokens.peek() {
            let count = digits.parse().ok().filter(|_| !digits.starts_with('0'));
            return self.threshold(count);
        }
        self.identifier().map(Licensees::One)
    }

    /// Parses the rest of a threshold, whose number comes next.
    fn threshold(&mut self, count: Option<usize>) -> Result<Licensees, AssertionError> {
        let _threshold = self.tokens.next();
        Self::syntax(self.tokens.expect("("))?;
        let mut identifiers = vec![self.identifier()?];
        while self.tokens.takes(",") {
            identifiers.push(self.identifier()?);
        }
        Self::syntax(self.tokens.expect(")"))?;
        match count.filter(|count| (1..=identifiers.len()).contains(count)) {
            Some(count) => Ok(Licensees::Threshold(count, identifiers)),
            None => Err(AssertionError::Threshold),
        }
    }

    fn identifier(&mut self) -> Result<Identifier, AssertionError> {
        self.count += 1;
        if self.count > IDENTIFIERS {
            return Err(AssertionError::TooManyLicensees(IDENTIFIERS));
        }
        identifier(FIELD, &mut self.tokens, self.constants)
    }
}

/// Parses the identifier of a principal in this field: a string, or a constant of the assertion.
///
/// # Errors
/// [`AssertionError`].
pub(crate) fn identifier(
    field: &'static str,
    from: &mut Tokens<'_>,
    constants: &Constants,
) -> Result<Identifier, AssertionError> {
    let text = string(from).map_err(|why| AssertionError::Syntax { field, why })?;
    let value = text.constant(constants);
    let value =
        value.ok_or_else(|| AssertionError::NoConstant { field, text: text.to_string() })?;
    // Names that are no text would be one name if what is wrong in them were replaced.
    let value = str::from_utf8(&value).map_err(|_| PrincipalError::NoKey);
    value.and_then(str::parse).map_err(|why| AssertionError::Principal { field, why })
}

/// Returns the licensees in a list, which is not empty.
fn joined(mut licensees: Vec<Licensees>, join: fn(Vec<Licensees>) -> Licensees) -> Licensees {
    match licensees.len() {
        1 => licensees.swap_remove(0),
        _ => join(licensees),
    }
}

impl Display for Licensees {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let list = |f: &mut Formatter<'_>, licensees: &[Self], by: &str| {
            for (at, one) in licensees.iter().enumerate() {
                let by = if at > 0 { by } else { "" };
                match one {
                    // `&&` binds tighter. With parentheses that decide nothing the text would be
                    // nested deeper than the one that was parsed.
                    Self::All(_) if matches!(self, Self::Any(_)) => write!(f, "{by}{one}")?,
                    Self::All(_) | Self::Any(_) => write!(f, "{by}({one})")?,
                    _ => write!(f, "{by}{one}")?,
                }
            }
            Ok(())
        };
        match self {
            Self::Nobody => Ok(()),
            Self::One(identifier) => identifier.fmt(f),
            Self::All(licensees) => list(f, licensees, " && "),
            Self::Any(licensees) => list(f, licensees, " ||\n\t"),
            Self::Threshold(count, identifiers) => {
                write!(f, "{count}-of(")?;
                for (at, identifier) in identifiers.iter().enumerate() {
                    let by = if at > 0 { ", " } else { "" };
                    write!(f, "{by}{identifier}")?;
                }
                f.write_str(")")
            }
        }
    }
}
