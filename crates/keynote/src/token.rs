//! The tokens of the fields `Authorizer`, `Licensees` and `Conditions`.

use crate::error::ConditionsError;

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A string, without its quotes and escapes.
    Text(String),
    /// The name of an attribute.
    Name(&'a str),
    /// `==`
    Equals,
    /// `~=`
    Matches,
    /// `&&`
    And,
    /// `||`
    Or,
    /// `(`
    Open,
    /// `)`
    Close,
    /// `->`
    Arrow,
    /// `;`
    End,
}

/// The operators that this version accepts.
const OPERATORS: [(&str, Token<'static>); 8] = [
    ("==", Token::Equals),
    ("~=", Token::Matches),
    ("&&", Token::And),
    ("||", Token::Or),
    ("->", Token::Arrow),
    ("(", Token::Open),
    (")", Token::Close),
    (";", Token::End),
];

/// The operators of the RFC that this version does not accept, the longest first.
const OTHERS: [&str; 20] = [
    "!=", "<=", ">=", "<", ">", "!", "@", "&", "$", "{", "}", ".", "+", "-", "*", "/", "%", "^",
    "#", ",",
];

/// Divides a value into its tokens.
///
/// # Errors
/// [`ConditionsError`] that names the text which this version does not accept.
pub(crate) fn divide(value: &str) -> Result<Vec<Token<'_>>, ConditionsError> {
    let mut tokens = Vec::new();
    let mut rest = value.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, after) = match first {
            '"' => text(rest)?,
            'a'..='z' | 'A'..='Z' => name(rest),
            _ => operator(rest)?,
        };
        tokens.push(token);
        rest = after.trim_start();
    }
    Ok(tokens)
}

/// A token, and the text after it.
type Found<'a> = (Token<'a>, &'a str);

fn text(rest: &str) -> Result<Found<'_>, ConditionsError> {
    let mut text = String::new();
    let mut letters = rest.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Ok((Token::Text(text), rest.get(at + 1..).unwrap_or_default())),
            '\n' => return Err(ConditionsError::OpenString),
            '\\' => match letters.next() {
                Some((_, escaped @ ('"' | '\\'))) => text.push(escaped),
                Some((_, other)) => return Err(ConditionsError::not_taken(&format!("\\{other}"))),
                None => return Err(ConditionsError::OpenString),
            },
            letter => text.push(letter),
        }
    }
    Err(ConditionsError::OpenString)
}

fn name(rest: &str) -> Found<'_> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    (Token::Name(name), after)
}

fn operator(rest: &str) -> Result<Found<'_>, ConditionsError> {
    for (text, token) in OPERATORS {
        if let Some(after) = rest.strip_prefix(text) {
            return Ok((token, after));
        }
    }
    if let Some(other) = OTHERS.into_iter().find(|other| rest.starts_with(other)) {
        return Err(ConditionsError::not_taken(other));
    }
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len()).max(1);
    Err(ConditionsError::not_taken(rest.get(..end).unwrap_or_default()))
}
