//! Assertions: policies and signed credentials.

use std::fmt;
use std::str::FromStr;

use crate::conditions::{Conditions, Constants};
use crate::error::{AssertionError, SyntaxError};
use crate::fields::{self, Field};
use crate::hex;
use crate::licensees::{self, Licensees};
use crate::principal::{Identifier, Principal, PrincipalError};
use crate::signature::{BadSignature, Signature};
use crate::token::{Token, Tokens};

/// The authorizer of a policy.
const POLICY: &str = "POLICY";

/// An assertion: a policy or a credential.
#[derive(Debug, Clone, PartialEq)]
pub struct Assertion {
    text: String,
    constants: Constants,
    authorizer: Authorizer,
    licensees: Licensees,
    conditions: Option<Conditions>,
    comment: Vec<String>,
    /// The signature, and the offset of its field.
    signature: Option<(Signature, usize)>,
}

/// The party that grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorizer {
    /// The reader of the policy, who trusts it without a signature.
    Policy,
    /// The holder of a key.
    Key(Principal),
    /// A name that cannot sign.
    Opaque(String),
}

/// The identity of a credential: the hash of its text without the signature, because one text may
/// have more than one valid signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CredentialId(pub [u8; 32]);

impl Assertion {
    /// Parses an assertion of any form of RFC 2704. Its signature is not verified yet.
    ///
    /// Without the field `Licensees` it grants nothing; without `Conditions` everything. A program
    /// that takes assertions from strangers uses [`Assertion::credential`].
    ///
    /// # Errors
    /// [`AssertionError`].
    pub fn parse(text: &[u8]) -> Result<Self, AssertionError> {
        let text = str::from_utf8(text).map_err(|_| AssertionError::Letter('\u{fffd}'))?;
        let fields = fields::divide(text)?;
        let value =
            |name: &str| fields.iter().find(|field| field.name == name).map(|field| field.value);
        check_order(&fields)?;
        let constants = constants(value("Local-Constants").unwrap_or_default())?;
        let authorizer = value("Authorizer").ok_or(AssertionError::Missing("Authorizer"))?;
        let authorizer = authorizer_in(authorizer, &constants)?;
        let licensees = Licensees::parse(value("Licensees").unwrap_or_default(), &constants)?;
        let conditions = value("Conditions")
            .map(Conditions::parse)
            .transpose()
            .map_err(|why| AssertionError::Syntax { field: "Conditions", why })?;
        let signature = signature(text, &fields)?;
        let comment = value("Comment").unwrap_or_default();
        let comment = comment.lines().map(|line| line.trim().to_owned()).collect();
        let text = text.to_owned();
        Ok(Self { text, constants, authorizer, licensees, conditions, comment, signature })
    }

    /// Parses a credential. Its signature is not verified yet.
    ///
    /// It must have all of `KeyNote-Version`, `Authorizer`, `Licensees`, `Conditions` and
    /// `Signature`, and all its principals must be keys that can sign: what is missing by mistake
    /// could grant more than was meant, and a licensee that cannot sign is a mistake.
    ///
    /// # Errors
    /// [`AssertionError`].
    pub fn credential(text: &[u8]) -> Result<Self, AssertionError> {
        let assertion = Self::parse(text)?;
        assertion.check_form()?;
        if assertion.signature.is_none() {
            return Err(AssertionError::Missing("Signature"));
        }
        match (&assertion.authorizer, &assertion.conditions) {
            (Authorizer::Policy, _) => Err(AssertionError::Field("Authorizer")),
            (Authorizer::Opaque(name), _) => Err(no_key("Authorizer", name)),
            (Authorizer::Key(_), Some(conditions)) if !conditions.program.clauses.is_empty() => {
                Ok(assertion)
            }
            (Authorizer::Key(_), _) => Err(AssertionError::Missing("Conditions")),
        }
    }

    /// Parses a policy: an assertion by `"POLICY"`, which has no signature.
    ///
    /// # Errors
    /// [`AssertionError`].
    pub fn policy(text: &[u8]) -> Result<Self, AssertionError> {
        let assertion = Self::parse(text)?;
        assertion.check_form()?;
        match (&assertion.authorizer, &assertion.signature) {
            (Authorizer::Policy, None) => Ok(assertion),
            (Authorizer::Policy, Some(_)) => Err(AssertionError::Field("Signature")),
            (Authorizer::Key(_) | Authorizer::Opaque(_), _) => {
                Err(AssertionError::Field("Authorizer"))
            }
        }
    }

    /// Checks that the version is there, and that there are licensees, which are all keys.
    fn check_form(&self) -> Result<(), AssertionError> {
        let begins = self.text.get(..VERSION.len()).unwrap_or_default();
        if !begins.eq_ignore_ascii_case(VERSION) {
            return Err(AssertionError::Missing(VERSION));
        }
        if self.licensees == Licensees::Nobody {
            return Err(AssertionError::Missing("Licensees"));
        }
        for identifier in self.licensees.identifiers() {
            if let Identifier::Opaque(name) = identifier {
                return Err(no_key("Licensees", name));
            }
        }
        Ok(())
    }

    /// Returns the party that grants.
    #[must_use]
    pub const fn authorizer(&self) -> &Authorizer {
        &self.authorizer
    }

    /// Returns the licensees.
    #[must_use]
    pub const fn licensees(&self) -> &Licensees {
        &self.licensees
    }

    /// Returns the conditions; `None` without the field.
    #[must_use]
    pub const fn conditions(&self) -> Option<&Conditions> {
        self.conditions.as_ref()
    }

    /// Returns whether the assertion has constants of its own, which hide attributes.
    #[must_use]
    pub fn has_constants(&self) -> bool {
        !self.constants.0.is_empty()
    }

    pub(crate) const fn constants(&self) -> &Constants {
        &self.constants
    }

    /// Returns the lines of the comment, without blanks around them.
    #[must_use]
    pub fn comment(&self) -> &[String] {
        &self.comment
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Verifies the signature of a credential. For a policy, which has none, this is an error.
    ///
    /// # Errors
    /// [`BadSignature`].
    pub fn verify(&self) -> Result<(), BadSignature> {
        match (&self.authorizer, &self.signature) {
            (Authorizer::Key(key), Some((signature, _))) => signature.verify(self.unsigned(), key),
            (Authorizer::Key(_) | Authorizer::Policy | Authorizer::Opaque(_), _) => {
                Err(BadSignature)
            }
        }
    }

    /// Returns the identity: the BLAKE3 hash of the text before the signature.
    #[must_use]
    pub fn id(&self) -> CredentialId {
        CredentialId(*blake3::hash(self.unsigned().as_bytes()).as_bytes())
    }

    fn unsigned(&self) -> &str {
        let end = self.signature.as_ref().map_or(self.text.len(), |(_, at)| *at);
        self.text.get(..end).unwrap_or_default()
    }
}

const VERSION: &str = "KeyNote-Version";

fn no_key(field: &'static str, name: &str) -> AssertionError {
    let why = match name.parse::<Principal>() {
        Err(why) => why,
        Ok(_) => PrincipalError::NoKey,
    };
    AssertionError::Principal { field, why }
}

/// Checks that a version comes first and is 2, and that a signature comes last.
fn check_order(fields: &[Field<'_>]) -> Result<(), AssertionError> {
    for (at, field) in fields.iter().enumerate() {
        let is_2 = || {
            let tokens = Tokens::of(field.value).ok();
            let only = tokens.and_then(|mut tokens| {
                let first = tokens.next();
                tokens.end().ok().and(first)
            });
            only == Some(Token::Integer("2")) || only == Some(Token::Text(b"2".to_vec()))
        };
        if field.name == VERSION && !(at == 0 && is_2()) {
            return Err(AssertionError::Field(VERSION));
        }
        if field.name == "Signature" && at + 1 < fields.len() {
            return Err(AssertionError::Field(field.name));
        }
    }
    Ok(())
}

/// Parses the field `Local-Constants`: names with their strings.
fn constants(value: &str) -> Result<Constants, AssertionError> {
    let syntax = |why| AssertionError::Syntax { field: "Local-Constants", why };
    let mut from = Tokens::of(value).map_err(syntax)?;
    let mut constants = Constants::default();
    while from.peek().is_some() {
        let unexpected = from.unexpected("the name of a constant");
        let Some(Token::Name(name)) = from.next() else { return Err(syntax(unexpected)) };
        from.expect("=").map_err(syntax)?;
        let unexpected = from.unexpected("a string");
        let Some(Token::Text(text)) = from.next() else { return Err(syntax(unexpected)) };
        if name.starts_with('_') || constants.get(name).is_some() {
            return Err(AssertionError::Constant(name.to_owned()));
        }
        let _new = constants.0.insert(name.to_owned(), text);
    }
    Ok(constants)
}

/// Parses the field `Authorizer`: one principal.
fn authorizer_in(value: &str, constants: &Constants) -> Result<Authorizer, AssertionError> {
    let field = "Authorizer";
    let syntax = |why: SyntaxError| AssertionError::Syntax { field, why };
    let mut from = Tokens::of(value).map_err(syntax)?;
    let identifier = licensees::identifier(field, &mut from, constants)?;
    from.end().map_err(syntax)?;
    Ok(match identifier {
        Identifier::Key(key) => Authorizer::Key(key),
        Identifier::Opaque(name) if name == POLICY => Authorizer::Policy,
        Identifier::Opaque(name) => Authorizer::Opaque(name),
    })
}

/// Parses the signature, the last line. It has one form only, so that a credential has one text.
fn signature(
    text: &str,
    fields: &[Field<'_>],
) -> Result<Option<(Signature, usize)>, AssertionError> {
    let Some(field) = fields.last().filter(|field| field.name == "Signature") else {
        return Ok(None);
    };
    let has_form = text.ends_with('\n')
        && text.get(field.at..).is_some_and(|text| text.starts_with(crate::signature::FIELD));
    let read = Signature::read(field.value).filter(|_| has_form);
    let signature = read.ok_or(AssertionError::Field("Signature"))?;
    Ok(Some((signature, field.at)))
}

impl fmt::Display for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(&self.0, f)
    }
}

impl FromStr for CredentialId {
    type Err = AssertionError;

    fn from_str(text: &str) -> Result<Self, AssertionError> {
        hex::read(text).map(Self).ok_or(AssertionError::Field("id"))
    }
}
