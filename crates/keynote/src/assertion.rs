//! Assertions: policies and signed credentials.

use std::fmt;
use std::str::FromStr;

use crate::conditions::Conditions;
use crate::error::{AssertionError, ConditionsError};
use crate::fields::{self, Field};
use crate::hex;
use crate::principal::Principal;
use crate::signature::{BadSignature, Signature};
use crate::token::{self, Token};

/// The limit for the licensees of one assertion.
const LICENSEES: usize = 16;
/// The authorizer of a policy.
const POLICY: &str = "POLICY";

/// An assertion: a policy or a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assertion {
    text: String,
    authorizer: Authorizer,
    licensees: Vec<Principal>,
    conditions: Option<Conditions>,
    comment: Vec<String>,
    /// The signature, and the offset of its field; `None` for a policy.
    signature: Option<(Signature, usize)>,
}

/// The party that grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authorizer {
    /// The reader of the policy, who trusts it without a signature.
    Policy,
    /// The holder of a key.
    Key(Principal),
}

/// The identity of a credential: the hash of its text without the signature, because one text may
/// have more than one valid signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CredentialId(pub [u8; 32]);

impl Assertion {
    /// Parses an assertion. Its signature is not verified yet.
    ///
    /// A credential must have all of `Licensees`, `Conditions` and `Signature`: by the RFC, without
    /// licensees it would license every key, and without conditions grant everything. A policy has
    /// no signature.
    ///
    /// # Errors
    /// [`AssertionError`].
    pub fn parse(text: &[u8]) -> Result<Self, AssertionError> {
        let text = str::from_utf8(text).map_err(|_| AssertionError::Letter('\u{fffd}'))?;
        let fields = fields::divide(text)?;
        let value = |name: &'static str| {
            let field = fields.iter().find(|field| field.name == name);
            field.map(|field| field.value).ok_or(AssertionError::Missing(name))
        };
        check_order(&fields)?;
        let authorizer = authorizer(value("Authorizer")?)?;
        let licensees = licensees(value("Licensees")?)?;
        let conditions = match value("Conditions") {
            Ok(value) => Some(
                Conditions::parse(value)
                    .map_err(|why| AssertionError::Conditions { field: "Conditions", why })?,
            ),
            Err(_) => None,
        };
        let signature = signature(text, &fields)?;
        match authorizer {
            Authorizer::Policy if signature.is_some() => {
                return Err(AssertionError::Field("Signature"));
            }
            Authorizer::Key(_) if signature.is_none() => {
                return Err(AssertionError::Missing("Signature"));
            }
            Authorizer::Key(_) if conditions.is_none() => {
                return Err(AssertionError::Missing("Conditions"));
            }
            Authorizer::Policy | Authorizer::Key(_) => {}
        }
        let comment = value("Comment").unwrap_or_default();
        let comment = comment.lines().map(|line| line.trim().to_owned()).collect();
        let text = text.to_owned();
        Ok(Self { text, authorizer, licensees, conditions, comment, signature })
    }

    /// Returns the party that grants.
    #[must_use]
    pub const fn authorizer(&self) -> &Authorizer {
        &self.authorizer
    }

    /// Returns the licensees, at least one. Each of them alone is licensed.
    #[must_use]
    pub fn licensees(&self) -> &[Principal] {
        &self.licensees
    }

    /// Returns the conditions; a policy may have none.
    #[must_use]
    pub const fn conditions(&self) -> Option<&Conditions> {
        self.conditions.as_ref()
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
            (Authorizer::Key(_) | Authorizer::Policy, _) => Err(BadSignature),
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

/// Checks that the version comes first, that a signature comes last, and that no field needs a
/// later version.
fn check_order(fields: &[Field<'_>]) -> Result<(), AssertionError> {
    match fields.first() {
        Some(first) if first.name == "KeyNote-Version" => {
            if !matches!(first.value.trim(), "2" | "\"2\"") {
                return Err(AssertionError::Field("KeyNote-Version"));
            }
        }
        _ => return Err(AssertionError::Missing("KeyNote-Version")),
    }
    for (at, field) in fields.iter().enumerate() {
        if field.name == "Local-Constants" {
            return Err(AssertionError::NotTaken(field.name));
        }
        if field.name == "Signature" && at + 1 < fields.len() {
            return Err(AssertionError::Field(field.name));
        }
    }
    Ok(())
}

/// Parses the field `Authorizer`: one string.
fn authorizer(value: &str) -> Result<Authorizer, AssertionError> {
    let field = "Authorizer";
    match tokens(field, value)?.as_slice() {
        [Token::Text(text)] if text == POLICY => Ok(Authorizer::Policy),
        [Token::Text(text)] => principal(field, text).map(Authorizer::Key),
        _ => Err(AssertionError::Field(field)),
    }
}

/// Parses the field `Licensees`: strings that are joined by `||`.
fn licensees(value: &str) -> Result<Vec<Principal>, AssertionError> {
    let field = "Licensees";
    let tokens = tokens(field, value)?;
    let mut licensees = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Text(text) if at % 2 == 0 => licensees.push(principal(field, text)?),
            Token::Or if at % 2 == 1 => {}
            Token::And => {
                let why = ConditionsError::not_taken("&&");
                return Err(AssertionError::Conditions { field, why });
            }
            _ => return Err(AssertionError::Field(field)),
        }
    }
    match tokens.len() % 2 == 1 && licensees.len() <= LICENSEES {
        true => Ok(licensees),
        false => Err(AssertionError::Field(field)),
    }
}

fn tokens<'a>(field: &'static str, value: &'a str) -> Result<Vec<Token<'a>>, AssertionError> {
    token::divide(value).map_err(|why| AssertionError::Conditions { field, why })
}

fn principal(field: &'static str, text: &str) -> Result<Principal, AssertionError> {
    text.parse().map_err(|why| AssertionError::Principal { field, why })
}

/// Parses the signature, the last line. It has one form only, so that a credential has one text.
fn signature(
    text: &str,
    fields: &[Field<'_>],
) -> Result<Option<(Signature, usize)>, AssertionError> {
    let Some(field) = fields.last().filter(|field| field.name == "Signature") else {
        return Ok(None);
    };
    let has_form = text.ends_with('\n') && text[field.at..].starts_with(crate::signature::FIELD);
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
