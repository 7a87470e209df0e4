//! Completions of a query that is being typed.

use crate::canonical::write_value;
use crate::expr::TagKey;
use crate::syntax::{KINDS, RESERVED, is_boundary, word_of};

/// The beginnings of the terms that are not about tags.
const TERMS: [&str; 10] =
    ["kind=", "mtime<", "mtime>", "name=", "name~", "owner=", "size<", "size>", "tag:", "text:"];

/// A query whose last term may be continued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// The text before the part that may be continued.
    before: Vec<u8>,
    wanted: Wanted,
    /// The value has begun with a quote.
    is_quoted: bool,
}

/// The list that the caller must provide for completions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing: completions are not known.
    Nothing,
    /// The keys of tags with a prefix, for [`Unfinished::with_keys`].
    Keys {
        /// The prefix.
        prefix: String,
        /// `tag:` precedes the key.
        is_named: bool,
    },
    /// The values of a key with a prefix, for [`Unfinished::with_values`].
    Values {
        /// The key.
        key: String,
        /// The prefix.
        prefix: Vec<u8>,
    },
    /// The kinds of files with a prefix, for [`Unfinished::with_kinds`].
    Kinds(Vec<u8>),
}

impl Unfinished {
    /// Parses a query up to the point at which it is being typed.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let (start, quote) = last_term(text);
        let term = &text[start..];
        let key_bytes = term.iter().take_while(|byte| is_of_key(**byte)).count();
        let (mut key, mut rest) = term.split_at(key_bytes);
        let mut is_named = false;
        if let (b"tag", Some(behind)) = (key, rest.strip_prefix(b":")) {
            is_named = true;
            (key, rest) =
                behind.split_at(behind.iter().take_while(|byte| is_of_key(**byte)).count());
        }
        let key = String::from_utf8_lossy(key).into_owned();
        let nothing = || Self { before: text.to_vec(), wanted: Wanted::Nothing, is_quoted: false };
        let Some(value) = rest.strip_prefix(b"=") else {
            let before = text[..start].to_vec();
            let wanted = Wanted::Keys { prefix: key, is_named };
            return if rest.is_empty() {
                Self { before, wanted, is_quoted: false }
            } else {
                nothing()
            };
        };
        let before = text[..text.len() - value.len()].to_vec();
        let (prefix, is_quoted) = match (value.strip_prefix(b"\""), quote) {
            (Some(inside), Some(_)) => (unescaped(inside), true),
            (None, None) => (value.to_vec(), false),
            // The quotes are closed, or are not at the begin of the value.
            _ => return nothing(),
        };
        let is_tag = is_named || !RESERVED.contains(&key.as_str());
        let wanted = match key.as_str() {
            "kind" if !is_tag => Wanted::Kinds(prefix),
            key if is_tag && TagKey::new(key).is_some() => {
                Wanted::Values { key: key.to_owned(), prefix }
            }
            _ => Wanted::Nothing,
        };
        Self { before, wanted, is_quoted }
    }

    /// Returns the list that is needed for completions.
    #[must_use]
    pub const fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Returns the query continued with each of these keys, and with each other term that has the
    /// prefix.
    #[must_use]
    pub fn with_keys<'a>(&self, keys: impl IntoIterator<Item = &'a str>) -> Vec<Vec<u8>> {
        let Wanted::Keys { prefix, is_named } = &self.wanted else { return Vec::new() };
        let whole = |term: &str| [&self.before, term.as_bytes()].concat();
        let of_key = |key: &str| match *is_named || RESERVED.contains(&key) {
            true => whole(&format!("tag:{key}=")),
            false => whole(&format!("{key}=")),
        };
        let others = TERMS.iter().filter(|term| !is_named && term.starts_with(prefix.as_str()));
        let keys = keys.into_iter().filter(|key| key.starts_with(prefix.as_str()));
        keys.map(of_key).chain(others.map(|term| whole(term))).collect()
    }

    /// Returns the query continued with each of these values, in quotes if they need them.
    #[must_use]
    pub fn with_values<'a>(&self, values: impl IntoIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
        let whole = |value: &[u8]| {
            let mut text = self.before.clone();
            write_value(&mut text, value, self.is_quoted);
            text
        };
        values.into_iter().map(whole).collect()
    }

    /// Returns the query continued with each kind that has the prefix.
    #[must_use]
    pub fn with_kinds(&self) -> Vec<Vec<u8>> {
        let Wanted::Kinds(prefix) = &self.wanted else { return Vec::new() };
        let kinds = KINDS.map(|kind| word_of(kind).as_bytes());
        self.with_values(kinds.into_iter().filter(|kind| kind.starts_with(prefix)))
    }
}

/// Returns the offset of the last term, and that of its quote if the quote is open.
fn last_term(text: &[u8]) -> (usize, Option<usize>) {
    let mut start = 0;
    let mut quote = None;
    let mut is_escaped = false;
    for (at, byte) in text.iter().enumerate() {
        match (quote, byte) {
            (Some(_), _) if is_escaped => is_escaped = false,
            (Some(_), b'\\') => is_escaped = true,
            (Some(_), b'"') => quote = None,
            (None, b'"') => quote = Some(at),
            (None, byte) if is_boundary(*byte) => start = at + 1,
            _ => {}
        }
    }
    (start, quote)
}

const fn is_of_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

fn unescaped(inside: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(inside.len());
    let mut rest = inside.iter();
    while let Some(byte) = rest.next() {
        bytes.extend(if *byte == b'\\' { rest.next() } else { Some(byte) });
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Query;

    fn keys(prefix: &str, is_named: bool) -> Wanted {
        Wanted::Keys { prefix: prefix.to_owned(), is_named }
    }

    fn values(key: &str, prefix: &[u8]) -> Wanted {
        Wanted::Values { key: key.to_owned(), prefix: prefix.to_vec() }
    }

    #[test]
    fn the_last_term_says_what_is_wanted() {
        let cases: &[(&str, Wanted)] = &[
            ("", keys("", false)),
            ("pro", keys("pro", false)),
            ("a=b (c=d or pro", keys("pro", false)),
            ("a=\"x y\" not pro", keys("pro", false)),
            ("tag:", keys("", true)),
            ("a=b tag:si", keys("si", true)),
            ("project=", values("project", b"")),
            ("project=re", values("project", b"re")),
            ("a=\"x\" project=\"a \\\"b", values("project", b"a \"b")),
            ("tag:size=l", values("size", b"l")),
            ("kind=", Wanted::Kinds(Vec::new())),
            ("(kind=f", Wanted::Kinds(b"f".to_vec())),
            ("name=x", Wanted::Nothing),
            ("size>1", Wanted::Nothing),
            ("text:a", Wanted::Nothing),
            ("a=\"b\"", Wanted::Nothing),
            ("a=b\"c", Wanted::Nothing),
            ("=x", Wanted::Nothing),
            ("caf\u{e9}", Wanted::Nothing),
        ];
        for (text, expected) in cases {
            assert_eq!(Unfinished::parse(text.as_bytes()).wanted(), expected, "{text}");
        }
    }

    #[test]
    fn keys_come_before_other_terms() {
        let all = |text: &str, keys: &[&str]| -> Vec<String> {
            let found = Unfinished::parse(text.as_bytes()).with_keys(keys.iter().copied());
            found.into_iter().map(|text| String::from_utf8(text).unwrap()).collect()
        };
        assert_eq!(
            all("a=b n", &["number", "name"]),
            ["a=b number=", "a=b tag:name=", "a=b name=", "a=b name~"]
        );
        assert_eq!(all("(tag:n", &["number", "name"]), ["(tag:number=", "(tag:name="]);
        assert_eq!(all("", &[]).len(), TERMS.len());
    }

    #[test]
    fn values_are_in_quotes_where_they_must_be() {
        let all = |text: &str, values: &[&[u8]]| -> Vec<String> {
            let found = Unfinished::parse(text.as_bytes()).with_values(values.iter().copied());
            found.into_iter().map(|text| String::from_utf8(text).unwrap()).collect()
        };
        let found = all("k=", &[b"ab", b"a b", b"", b"(\"\\"]);
        assert_eq!(found, ["k=ab", "k=\"a b\"", "k=\"\"", "k=\"(\\\"\\\\\""]);
        assert_eq!(all("x=y k=\"a", &[b"ab"]), ["x=y k=\"ab\""], "as it was begun");
        assert!(found.iter().all(|query| Query::parse(query.as_bytes()).is_ok()));
        let kinds = Unfinished::parse(b"kind=f").with_kinds();
        assert_eq!(kinds, [&b"kind=file"[..], b"kind=fifo"]);
    }
}
