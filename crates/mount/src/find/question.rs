//! Parser for the text that a program writes to the control file: a query, or `?` and a question
//! about tags. No query begins with `?`.

use pelago_find::Query;
use pelago_fuse::Errno;
use pelago_wire::limits;
use pelago_wire::xattr::is_tag_key;

/// A question to the control file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Question {
    /// The files that a query in its canonical form means.
    Files(Vec<u8>),
    /// The keys of tags, or the values of one key, that begin with a prefix.
    Tags { key: Option<Vec<u8>>, prefix: Vec<u8> },
}

/// The error of a write, and the text that the next read returns about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) errno: Errno,
    pub(super) says: String,
}

impl Question {
    /// Parses what was written.
    ///
    /// # Errors
    /// [`Wrong`], with `E2BIG` if the text is too long, and else `EINVAL`.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Wrong> {
        if let Some(line) = text.strip_prefix(b"?") {
            return parse_tags(line.strip_suffix(b"\n").unwrap_or(line));
        }
        let query = Query::parse(text).map_err(|error| {
            let is_long = text.len() > limits::QUERY_BYTES;
            let errno = if is_long { Errno::TOOBIG } else { Errno::INVAL };
            Wrong { errno, says: error.to_string() }
        })?;
        Ok(Self::Files(query.to_bytes()))
    }
}

fn parse_tags(line: &[u8]) -> Result<Question, Wrong> {
    let wrong = |says: &str| Err(Wrong { errno: Errno::INVAL, says: says.to_owned() });
    let (word, rest) = split(line);
    let (key, prefix) = match word {
        b"tags" => (None, rest),
        b"values" => {
            let (key, prefix) = split(rest);
            if !str::from_utf8(key).is_ok_and(is_tag_key) {
                return wrong("this is no key of a tag");
            }
            (Some(key.to_vec()), prefix)
        }
        _ => return wrong("behind `?` comes `tags` or `values`"),
    };
    if prefix.len() > limits::TAG_PART_BYTES {
        return Err(Wrong { errno: Errno::TOOBIG, says: "the prefix is too long".to_owned() });
    }
    Ok(Question::Tags { key, prefix: prefix.to_vec() })
}

/// Returns the text before the first blank and the text after it.
fn split(text: &[u8]) -> (&[u8], &[u8]) {
    let at = text.iter().position(|byte| *byte == b' ');
    at.map_or((text, b""), |at| (&text[..at], &text[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(key: Option<&[u8]>, prefix: &[u8]) -> Result<Question, Wrong> {
        Ok(Question::Tags { key: key.map(<[u8]>::to_vec), prefix: prefix.to_vec() })
    }

    #[test]
    fn a_question_about_tags_begins_as_no_query_does() {
        assert_eq!(Question::parse(b"a=b and c=d"), Ok(Question::Files(b"a=b c=d".to_vec())));
        assert!(Query::parse(b"?tags").is_err() && Query::parse(b"?").is_err());
        for text in [&b"?tags"[..], b"?tags ", b"?tags\n", b"?tags \n"] {
            assert_eq!(Question::parse(text), tags(None, b""));
        }
        assert_eq!(Question::parse(b"?tags pro"), tags(None, b"pro"));
        assert_eq!(Question::parse(b"?values k"), tags(Some(b"k"), b""));
        assert_eq!(Question::parse(b"?values k  a b\n\n"), tags(Some(b"k"), b" a b\n"));
    }

    #[test]
    fn what_is_no_question_is_said() {
        for text in [&b"?"[..], b"?tag", b"? tags", b"?values", b"?values  x", b"?values \xff"] {
            assert_eq!(Question::parse(text).unwrap_err().errno, Errno::INVAL);
        }
        let long = [&b"?tags "[..], &[b'x'; limits::TAG_PART_BYTES + 1]].concat();
        assert_eq!(Question::parse(&long).unwrap_err().errno, Errno::TOOBIG);
        assert!(Question::parse(&long[..long.len() - 1]).is_ok());
    }
}
