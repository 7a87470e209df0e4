//! The tokens of the fields of an assertion (RFC 2704, 4.2 to 4.6).

use std::rc::Rc;

use crate::CREDENTIAL_BYTES;
use crate::error::{NESTING, SyntaxError};

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A string, without its quotes and escapes. It has no NUL byte.
    Text(Vec<u8>),
    /// The name of an attribute.
    Name(&'a str),
    /// The digits of an integer.
    Integer(&'a str),
    /// Two runs of digits with a point between them.
    Float(&'a str),
    /// The digits before `-of`.
    Threshold(&'a str),
    /// One of [`OPERATORS`].
    Operator(&'static str),
}

/// The operators, each before its own beginning.
const OPERATORS: [&str; 28] = [
    "->", "==", "!=", "<=", ">=", "~=", "&&", "||", "<", ">", "!", "@", "&", "$", "{", "}", "(",
    ")", ".", "+", "-", "*", "/", "%", "^", ";", ",", "=",
];

/// Divides the value of a field into its tokens. Blanks and comments (`#` to the end of the line)
/// separate tokens.
///
/// # Errors
/// [`SyntaxError`] for a character that begins no token, and for a string without an end.
pub(crate) fn divide(value: &str) -> Result<Vec<Token<'_>>, SyntaxError> {
    let mut tokens = Vec::new();
    let mut rest = skip(value);
    while let Some(first) = rest.chars().next() {
        let (token, after) = match first {
            '"' => string(rest)?,
            'a'..='z' | 'A'..='Z' | '_' => name(rest),
            '0'..='9' => number(rest),
            _ => operator(rest)?,
        };
        tokens.push(token);
        rest = skip(after);
    }
    Ok(tokens)
}

/// Returns the text after blanks and comments.
fn skip(text: &str) -> &str {
    let mut rest = text.trim_start();
    while let Some(comment) = rest.strip_prefix('#') {
        let end = comment.find('\n').unwrap_or(comment.len());
        rest = comment.get(end..).unwrap_or_default().trim_start();
    }
    rest
}

/// A token, and the text after it.
type Found<'a> = (Token<'a>, &'a str);

/// Reads a string literal (RFC 2704, 4.3.1).
fn string(rest: &str) -> Result<Found<'_>, SyntaxError> {
    let mut text = Vec::new();
    let mut after = rest.get(1..).unwrap_or_default();
    loop {
        let letter = after.chars().next().ok_or(SyntaxError::OpenString)?;
        after = after.get(letter.len_utf8()..).unwrap_or_default();
        match letter {
            '"' => return Ok((Token::Text(text), after)),
            '\n' => return Err(SyntaxError::OpenString),
            '\\' => after = escape(after, &mut text)?,
            letter => text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Reads an escape, whose backslash is read already, and appends its meaning. Returns the text
/// after it.
fn escape<'a>(rest: &'a str, text: &mut Vec<u8>) -> Result<&'a str, SyntaxError> {
    let first = rest.chars().next().ok_or(SyntaxError::OpenString)?;
    let after = rest.get(first.len_utf8()..).unwrap_or_default();
    match first {
        'n' => text.push(b'\n'),
        'r' => text.push(b'\r'),
        't' => text.push(b'\t'),
        'f' => text.push(0x0c),
        // A line that is continued: all blanks are left out.
        '\n' => return Ok(after.trim_start()),
        '0'..='7' => return Ok(octal(rest, text)),
        other => text.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
    }
    Ok(after)
}

/// Reads up to three octal digits. Zero stands for its digits, because no string has a NUL byte.
/// More than 255 is read as two digits and a letter.
fn octal<'a>(rest: &'a str, text: &mut Vec<u8>) -> &'a str {
    let count = rest.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
    let read = |count: usize| {
        let digits = rest.get(..count).unwrap_or_default();
        u8::from_str_radix(digits, 8).ok().map(|byte| (byte, digits))
    };
    match read(count).or_else(|| read(count.saturating_sub(1))) {
        Some((0, digits)) => {
            text.extend_from_slice(digits.as_bytes());
            rest.get(digits.len()..).unwrap_or_default()
        }
        Some((byte, digits)) => {
            text.push(byte);
            rest.get(digits.len()..).unwrap_or_default()
        }
        None => rest,
    }
}

const fn is_name_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

fn name(rest: &str) -> Found<'_> {
    let end = rest.find(|letter| !is_name_letter(letter)).unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    (Token::Name(name), after)
}

/// Reads an integer, a float, or the threshold of `K-of(...)`.
fn number(rest: &str) -> Found<'_> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(rest);
    let (integer, after) = rest.split_at(whole);
    if let Some(fraction) = after.strip_prefix('.').map(digits).filter(|count| *count > 0) {
        let (float, after) = rest.split_at(whole + 1 + fraction);
        return (Token::Float(float), after);
    }
    match after.strip_prefix("-of") {
        Some(after) if !after.starts_with(is_name_letter) => (Token::Threshold(integer), after),
        _ => (Token::Integer(integer), after),
    }
}

fn operator(rest: &str) -> Result<Found<'_>, SyntaxError> {
    let found = OPERATORS.into_iter().find_map(|operator| {
        rest.strip_prefix(operator).map(|after| (Token::Operator(operator), after))
    });
    let letter = rest.chars().next().unwrap_or_default();
    found.ok_or(SyntaxError::NoToken(letter))
}

/// The limit for the positions of all regular expressions of a field: as many as a text without
/// repetitions can have.
const POSITIONS: usize = CREDENTIAL_BYTES;

/// The tokens of a field that are not parsed yet. A clone costs nothing, so that a parser may look
/// ahead.
#[derive(Debug, Clone)]
pub(crate) struct Tokens<'a> {
    all: Rc<[Token<'a>]>,
    /// The number of tokens that are parsed.
    at: usize,
    depth: usize,
    is_after_not: bool,
    positions: usize,
}

impl<'a> Tokens<'a> {
    /// Returns the tokens of a value.
    pub(crate) fn of(value: &'a str) -> Result<Self, SyntaxError> {
        let all = divide(value)?.into();
        Ok(Self { all, at: 0, depth: 0, is_after_not: false, positions: 0 })
    }

    /// Returns the next token without taking it.
    pub(crate) fn peek(&self) -> Option<&Token<'a>> {
        self.all.get(self.at)
    }

    /// Takes the next token.
    pub(crate) fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek().cloned();
        self.at += usize::from(token.is_some());
        self.is_after_not = token == Some(Token::Operator("!"));
        token
    }

    /// Returns whether the token that was taken last is `!`.
    pub(crate) const fn is_after_not(&self) -> bool {
        self.is_after_not
    }

    /// Takes the next token if it is this operator.
    pub(crate) fn takes(&mut self, operator: &str) -> bool {
        let is_next = self.peek() == Some(&Token::Operator(operator_of(operator)));
        if is_next {
            let _taken = self.next();
        }
        is_next
    }

    /// Takes the next token, which must be this operator.
    pub(crate) fn expect(&mut self, operator: &'static str) -> Result<(), SyntaxError> {
        match self.takes(operator) {
            true => Ok(()),
            false => Err(self.unexpected(operator)),
        }
    }

    /// Checks that no token is left.
    pub(crate) fn end(&self) -> Result<(), SyntaxError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("the end of the field")),
        }
    }

    /// Returns the error of the next token, in whose place something else is expected.
    pub(crate) fn unexpected(&self, expected: &'static str) -> SyntaxError {
        let found = self.peek().map_or_else(|| "the end of the field".to_owned(), print);
        SyntaxError::Unexpected { expected, found }
    }

    /// Counts the positions of a regular expression, which was compiled.
    pub(crate) fn add_positions(&mut self, count: usize) -> Result<(), SyntaxError> {
        self.positions = self.positions.saturating_add(count);
        if self.positions > POSITIONS { Err(SyntaxError::Patterns) } else { Ok(()) }
    }

    /// Parses something that is nested one level deeper.
    pub(crate) fn nested<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<T, SyntaxError> {
        self.enter()?;
        let parsed = parse(self);
        self.leave();
        parsed
    }

    /// Begins something that is nested one level deeper.
    pub(crate) fn enter(&mut self) -> Result<(), SyntaxError> {
        if self.depth == NESTING {
            return Err(SyntaxError::TooDeep);
        }
        self.depth += 1;
        Ok(())
    }

    /// Ends what [`Tokens::enter`] has begun.
    pub(crate) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }
}

/// Returns the operator of the table that is equal to a text; an empty one if there is none.
fn operator_of(text: &str) -> &'static str {
    OPERATORS.into_iter().find(|operator| *operator == text).unwrap_or_default()
}

/// Returns a token as it is named in errors.
fn print(token: &Token<'_>) -> String {
    match token {
        Token::Text(text) => crate::conditions::quoted(text),
        Token::Name(name) => (*name).to_owned(),
        Token::Integer(digits) | Token::Float(digits) => (*digits).to_owned(),
        Token::Threshold(digits) => format!("{digits}-of"),
        Token::Operator(operator) => (*operator).to_owned(),
    }
}
