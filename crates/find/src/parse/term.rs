//! Parsing of one term: its key, sign and value.

use pelago_wire::Name;

use super::lexer::{Lexer, RawTerm, Sign, Value};
use super::measure;
use crate::comparison::Comparison;
use crate::error::QueryError;
use crate::expr::{FileOwner, TagKey, Term};
use crate::glob::Glob;
use crate::syntax::kind_of;
use crate::text::words;

/// Parses a term of the lexer.
pub(super) fn term(lexer: &Lexer<'_>, raw: &RawTerm<'_>) -> Result<Term, QueryError> {
    let reader = Reader { lexer, raw };
    if raw.is_tag {
        return reader.tag();
    }
    match raw.key {
        "name" => reader.name(),
        "size" => reader.size(),
        "mtime" => reader.mtime(),
        "kind" => reader.kind(),
        "owner" => reader.owner(),
        "text" => reader.text(),
        "tag" => Err(reader.sign_error("tag:KEY or tag:KEY=VALUE")),
        _ => reader.tag(),
    }
}

struct Reader<'a> {
    lexer: &'a Lexer<'a>,
    raw: &'a RawTerm<'a>,
}

impl<'a> Reader<'a> {
    fn tag(&self) -> Result<Term, QueryError> {
        // The lexer has checked the key.
        let usage = "KEY=VALUE, or tag:KEY for any value";
        let key = TagKey::new(self.raw.key).ok_or_else(|| self.sign_error(usage))?;
        match &self.raw.question {
            Some((Sign::Comparison(Comparison::Equal), value)) => {
                Ok(Term::Tag { key, value: value.bytes.as_ref().into() })
            }
            None if self.raw.is_tag => Ok(Term::HasTag(key)),
            _ => Err(self.sign_error(usage)),
        }
    }

    fn name(&self) -> Result<Term, QueryError> {
        let usage = "name=NAME or name~PATTERN";
        let (sign, value) = self.question(usage)?;
        match sign {
            Sign::Comparison(Comparison::Equal) => {
                let error = |_| QueryError::Name { at: self.lexer.position(value.at) };
                Name::new(&value.bytes).map(Term::Name).map_err(error)
            }
            Sign::Like => Glob::new(&value.bytes).map(Term::NameLike).map_err(|problem| {
                let offset = value.offset_of(problem.offset());
                QueryError::Glob { at: self.lexer.position(offset), problem }
            }),
            _ => Err(self.sign_error(usage)),
        }
    }

    fn size(&self) -> Result<Term, QueryError> {
        let usage = "size and one of <, <=, =, >= and >, as size>1G";
        let (Sign::Comparison(comparison), value) = self.question(usage)? else {
            return Err(self.sign_error(usage));
        };
        let at = self.lexer.position(value.at);
        let bytes = measure::size(self.utf8(value)?, at)?;
        Ok(Term::Size { comparison, bytes })
    }

    fn mtime(&self) -> Result<Term, QueryError> {
        let usage = "mtime and one of <, <=, >= and >, as mtime<7d or mtime>=2026-01-31";
        let comparison = match self.question(usage)? {
            (Sign::Comparison(comparison), _) if comparison != Comparison::Equal => comparison,
            _ => return Err(self.sign_error(usage)),
        };
        let (_, value) = self.question(usage)?;
        let at = self.lexer.position(value.at);
        let when = measure::when(self.utf8(value)?, at)?;
        Ok(Term::Mtime { comparison, when })
    }

    fn kind(&self) -> Result<Term, QueryError> {
        let value = self.equal("kind=file, or another kind")?;
        let kind = kind_of(&value.bytes);
        kind.map(Term::Kind).ok_or_else(|| QueryError::Kind { at: self.lexer.position(value.at) })
    }

    fn owner(&self) -> Result<Term, QueryError> {
        let value = self.equal("owner=NAME or owner=UID")?;
        let name = self.utf8(value)?;
        let owner = if name.bytes().all(|byte| byte.is_ascii_digit()) {
            let error = |_| QueryError::Uid { at: self.lexer.position(value.at) };
            FileOwner::Uid(name.parse().map_err(error)?)
        } else {
            FileOwner::Name(name.to_owned())
        };
        Ok(Term::Owner(owner))
    }

    fn text(&self) -> Result<Term, QueryError> {
        let usage = "text:WORD or text:\"SEVERAL WORDS\"";
        let (Sign::Colon, value) = self.question(usage)? else {
            return Err(self.sign_error(usage));
        };
        let words: Vec<String> = words(self.utf8(value)?).collect();
        if words.is_empty() {
            return Err(QueryError::NoWord { at: self.lexer.position(value.at) });
        }
        Ok(Term::Text(words))
    }

    /// Returns the value after `=`.
    fn equal(&self, usage: &'static str) -> Result<&'a Value<'a>, QueryError> {
        match self.question(usage)? {
            (Sign::Comparison(Comparison::Equal), value) => Ok(value),
            _ => Err(self.sign_error(usage)),
        }
    }

    /// Returns the sign and the value, which is not empty.
    fn question(&self, usage: &'static str) -> Result<(Sign, &'a Value<'a>), QueryError> {
        let (sign, value) = self.raw.question.as_ref().ok_or_else(|| self.sign_error(usage))?;
        if value.bytes.is_empty() {
            let at = self.lexer.position(value.at);
            return Err(QueryError::NoValue { at, key: self.raw.key.to_owned() });
        }
        Ok((*sign, value))
    }

    fn utf8(&self, value: &'a Value<'a>) -> Result<&'a str, QueryError> {
        str::from_utf8(&value.bytes).map_err(|error| {
            let at = self.lexer.position(value.offset_of(error.valid_up_to()));
            QueryError::NotUtf8 { at, key: self.raw.key.to_owned() }
        })
    }

    fn sign_error(&self, usage: &'static str) -> QueryError {
        let at = self.lexer.position(self.raw.behind_key);
        QueryError::Sign { at, key: self.raw.key.to_owned(), usage }
    }
}
