//! The lexer of queries: it divides a text into brackets, keywords and terms.

use std::borrow::Cow;

use pelago_wire::limits::TAG_KEY_BYTES;
use pelago_wire::xattr::is_tag_key_byte;

use crate::comparison::Comparison;
use crate::error::{Found, Position, QueryError};
use crate::syntax::{is_boundary, is_control, is_space};

/// A token of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Open,
    Close,
    And,
    Or,
    Not,
    Term(RawTerm<'a>),
    End,
}

/// A term whose value is not parsed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawTerm<'a> {
    pub(super) key: &'a str,
    /// The term is written `tag:KEY`.
    pub(super) is_tag: bool,
    /// The offset of the end of the key.
    pub(super) behind_key: usize,
    pub(super) question: Option<(Sign, Value<'a>)>,
}

/// The sign between a key and a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    Comparison(Comparison),
    /// `~`
    Like,
    /// `:`
    Colon,
}

/// A value, without its quotes and escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Value<'a> {
    /// The offset of the value in the text; if it is quoted, of its opening quote.
    pub(super) at: usize,
    pub(super) is_quoted: bool,
    pub(super) bytes: Cow<'a, [u8]>,
}

/// A text and the offset up to which it was read.
pub(super) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Reads the next token. Returns its offset and the token.
    pub(super) fn next(&mut self) -> Result<(usize, Token<'a>), QueryError> {
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
        let at = self.at;
        let token = match self.peek() {
            None => Token::End,
            Some(b'(') => self.one(Token::Open),
            Some(b')') => self.one(Token::Close),
            Some(_) => self.word()?,
        };
        Ok((at, token))
    }

    /// Returns the position of an offset.
    pub(super) fn position(&self, offset: usize) -> Position {
        Position::of(self.text, offset)
    }

    fn one(&mut self, token: Token<'a>) -> Token<'a> {
        self.at += 1;
        token
    }

    /// Reads a keyword or a term.
    fn word(&mut self) -> Result<Token<'a>, QueryError> {
        let start = self.at;
        let key = self.key();
        if key.is_empty() {
            let at = self.position(start);
            let byte = self.peek().unwrap_or_default();
            return Err(if is_control(byte) {
                QueryError::Control { at, byte }
            } else {
                QueryError::NoTerm { at, found: Found::Byte(byte) }
            });
        }
        if self.peek().is_none_or(is_boundary) {
            match key {
                "and" => return Ok(Token::And),
                "or" => return Ok(Token::Or),
                "not" => return Ok(Token::Not),
                _ => {}
            }
        }
        self.check_length(key, start)?;
        if key == "tag" && self.take(b':') { self.tag() } else { self.question(key) }
    }

    /// Reads a term after its `tag:`.
    fn tag(&mut self) -> Result<Token<'a>, QueryError> {
        let start = self.at;
        let key = self.key();
        if key.is_empty() {
            return Err(QueryError::NoKey { at: self.position(start) });
        }
        self.check_length(key, start)?;
        let behind_key = self.at;
        let question = if self.peek().is_none_or(is_boundary) {
            None
        } else if self.take(b'=') {
            Some((Sign::Comparison(Comparison::Equal), self.value(key)?))
        } else {
            let key = key.to_owned();
            let at = self.position(behind_key);
            return Err(QueryError::Sign { at, key, usage: "tag:KEY or tag:KEY=VALUE" });
        };
        Ok(Token::Term(RawTerm { key, is_tag: true, behind_key, question }))
    }

    /// Reads the sign and the value after a key. A term without them is refused later.
    fn question(&mut self, key: &'a str) -> Result<Token<'a>, QueryError> {
        let behind_key = self.at;
        let question = match self.sign() {
            Some(sign) => Some((sign, self.value(key)?)),
            None => None,
        };
        Ok(Token::Term(RawTerm { key, is_tag: false, behind_key, question }))
    }

    fn sign(&mut self) -> Option<Sign> {
        use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
        let (sign, length) = match self.text.get(self.at..)? {
            [b'<', b'=', ..] => (Sign::Comparison(LessOrEqual), 2),
            [b'>', b'=', ..] => (Sign::Comparison(GreaterOrEqual), 2),
            [b'<', ..] => (Sign::Comparison(Less), 1),
            [b'>', ..] => (Sign::Comparison(Greater), 1),
            [b'=', ..] => (Sign::Comparison(Equal), 1),
            [b'~', ..] => (Sign::Like, 1),
            [b':', ..] => (Sign::Colon, 1),
            _ => return None,
        };
        self.at += length;
        Some(sign)
    }

    fn value(&mut self, key: &str) -> Result<Value<'a>, QueryError> {
        let at = self.at;
        if self.take(b'"') {
            let bytes = Cow::Owned(self.quoted(at)?);
            return Ok(Value { at, is_quoted: true, bytes });
        }
        while let Some(byte) = self.peek().filter(|byte| !is_boundary(*byte)) {
            let here = || self.position(self.at);
            if byte == b'"' {
                return Err(QueryError::QuoteInside { at: here() });
            }
            if is_control(byte) {
                return Err(QueryError::Control { at: here(), byte });
            }
            self.at += 1;
        }
        let bytes = self.text.get(at..self.at).unwrap_or_default();
        if bytes.is_empty() {
            return Err(QueryError::NoValue { at: self.position(at), key: key.to_owned() });
        }
        Ok(Value { at, is_quoted: false, bytes: Cow::Borrowed(bytes) })
    }

    /// Reads a quoted value after its opening quote, which is at `start`.
    fn quoted(&mut self, start: usize) -> Result<Vec<u8>, QueryError> {
        let mut value = Vec::new();
        loop {
            let at = self.at;
            let byte = self.peek();
            let byte =
                byte.ok_or_else(|| QueryError::UnclosedQuote { at: self.position(start) })?;
            self.at += 1;
            match byte {
                b'"' => break,
                b'\\' => {
                    let escaped = self.peek().filter(|byte| matches!(byte, b'"' | b'\\'));
                    let error = || QueryError::QuoteEscape { at: self.position(at) };
                    value.push(escaped.ok_or_else(error)?);
                    self.at += 1;
                }
                byte => value.push(byte),
            }
        }
        if self.peek().is_none_or(is_boundary) {
            Ok(value)
        } else {
            Err(QueryError::BehindQuote { at: self.position(self.at) })
        }
    }

    /// Reads the longest key at the current offset; it may be empty.
    fn key(&mut self) -> &'a str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length = rest.iter().take_while(|byte| is_tag_key_byte(**byte)).count();
        self.at += length;
        // The characters of a key are ASCII.
        rest.get(..length).and_then(|key| str::from_utf8(key).ok()).unwrap_or_default()
    }

    fn check_length(&self, key: &str, start: usize) -> Result<(), QueryError> {
        if key.len() <= TAG_KEY_BYTES {
            return Ok(());
        }
        Err(QueryError::LongKey { at: self.position(start), bytes: key.len() })
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
}

impl Value<'_> {
    /// Returns the offset in the text of a byte of the value.
    pub(super) fn offset_of(&self, byte: usize) -> usize {
        if !self.is_quoted {
            return self.at + byte;
        }
        let before = self.bytes.get(..byte).unwrap_or(&self.bytes);
        let escapes = before.iter().filter(|byte| matches!(byte, b'"' | b'\\')).count();
        self.at + 1 + byte + escapes
    }
}
