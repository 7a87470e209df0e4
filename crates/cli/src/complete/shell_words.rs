//! Division of a line of bash into words, and the text that completes the last word.
//!
//! bash passes a completer words that end at `=` and contain their quotes. So the line is parsed
//! again here, as far as a completer needs it: quotes and backslashes, but no variables.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// The characters, besides white space, after which readline begins the text that a completion
/// replaces.
const BREAKS: &[u8] = b"\"'><=;|&(:";

/// The words before a cursor, without quotes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The words; the cursor is in the last one, which may be empty.
    pub(super) words: Vec<OsString>,
    /// The part of the last word that readline keeps, without quotes.
    kept: Vec<u8>,
    /// The quote that is open at the cursor.
    quote: Option<u8>,
}

/// A word that is being read.
#[derive(Default)]
struct Word {
    bytes: Vec<u8>,
    /// The number of bytes before the text that a completion replaces.
    kept: usize,
    has_begun: bool,
}

impl Line {
    /// Parses a line up to the cursor. `home` replaces a `~`.
    pub(super) fn parse(before: &[u8], home: Option<&[u8]>) -> Self {
        let mut words = Vec::new();
        let mut word = Word::default();
        let mut quote = None;
        let mut rest = before.iter().copied().peekable();
        while let Some(byte) = rest.next() {
            match (quote, byte) {
                (Some(open), _) if open == byte => quote = None,
                (Some(b'"'), b'\\') => match rest.next_if(|next| b"\"\\$`".contains(next)) {
                    Some(escaped) => word.bytes.push(escaped),
                    None => word.bytes.push(byte),
                },
                (Some(_), _) => word.bytes.push(byte),
                (None, b'"' | b'\'') => {
                    quote = Some(byte);
                    word.kept = word.bytes.len();
                }
                (None, b'\\') => word.bytes.extend(rest.next()),
                (None, b' ' | b'\t' | b'\n') if !word.has_begun => continue,
                (None, b' ' | b'\t' | b'\n') => {
                    words.push(OsString::from_vec(std::mem::take(&mut word).bytes));
                    continue;
                }
                (None, b'~')
                    if !word.has_begun && matches!(rest.peek(), None | Some(b'/' | b' ')) =>
                {
                    word.bytes.extend(home.unwrap_or(b"~"));
                }
                (None, _) => {
                    word.bytes.push(byte);
                    if BREAKS.contains(&byte) {
                        word.kept = word.bytes.len();
                    }
                }
            }
            word.has_begun = true;
        }
        let kept = word.bytes[..word.kept].to_vec();
        words.push(OsString::from_vec(word.bytes));
        Self { words, kept, quote }
    }

    /// Returns the text that readline is to insert for a completion of the last word; `None` if the
    /// completion differs in the part that readline keeps.
    pub(super) fn replacement(&self, completion: &[u8]) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        for byte in completion.strip_prefix(self.kept.as_slice())? {
            match (self.quote, *byte) {
                (Some(b'\''), b'\'') => text.extend(b"'\\''"),
                (Some(b'"'), b'"' | b'\\' | b'$' | b'`') => text.extend([b'\\', *byte]),
                (None, byte) if needs_backslash(byte) => text.extend([b'\\', byte]),
                (_, byte) => text.push(byte),
            }
        }
        Some(text)
    }

    /// Returns whether the cursor is in a quote, which readline closes itself.
    pub(super) const fn is_in_quote(&self) -> bool {
        self.quote.is_some()
    }
}

const fn needs_backslash(byte: u8) -> bool {
    !(byte.is_ascii_alphanumeric()
        || byte >= 0x80
        || matches!(byte, b'/' | b'_' | b'-' | b'.' | b',' | b'+' | b'=' | b':' | b'@' | b'%'))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        let line = Line::parse(text.as_bytes(), Some(b"/ann"));
        line.words.into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn words_are_what_the_program_will_get() {
        assert_eq!(words("pelago "), ["pelago", ""]);
        assert_eq!(words("pelago  find pro"), ["pelago", "find", "pro"]);
        assert_eq!(words("pelago find 'a=b c"), ["pelago", "find", "a=b c"]);
        assert_eq!(words(r#"p "a \"b\n" c\ d "#), ["p", r#"a "b\n"#, "c d", ""]);
        assert_eq!(words("p '' x"), ["p", "", "x"]);
        assert_eq!(words("p ~/x ~ a~ '~'"), ["p", "/ann/x", "/ann", "a~", "~"]);
    }

    #[test]
    fn a_completion_replaces_what_readline_takes_for_the_word() {
        let cases = [
            ("p project=re", "project=reef", Some("reef")),
            ("p project=", "project=a b", Some(r"a\ b")),
            ("p pro", "project=", Some("project=")),
            ("p project=", r#"project="a b""#, Some(r#"\"a\ b\""#)),
            ("p 'project=", r#"project="a b""#, Some(r#"project="a b""#)),
            ("p 'x=y project=it", "x=y project=it's", Some(r"x=y project=it'\''s")),
            ("p \"a=b", "a=b$c", Some(r"a=b\$c")),
            ("p k='a ", "k=a b", Some("a b")),
            ("p a=b=", "a=b=c", Some("c")),
            ("p a=b", "b=b", None),
            ("p a\\=b", "a=bc", Some("a=bc")),
        ];
        for (text, completion, expected) in cases {
            let line = Line::parse(text.as_bytes(), None);
            let found = line.replacement(completion.as_bytes());
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{text}");
        }
    }

    /// A word after the insertion parses as the completion.
    #[test]
    fn a_replacement_is_read_as_the_completion() {
        let completion = b"k=a b'c\"d$e\\f(g)*~!\xc3\xa9;";
        for front in ["p k=", "p k='a", "p k=\"", "p 'k=", "p \"k="] {
            let line = Line::parse(front.as_bytes(), None);
            let replacement = line.replacement(completion).unwrap();
            // The text after the last break is replaced.
            let keeps = front.rfind(['=', '\'', '"']).unwrap();
            let keeps = if line.is_in_quote() { front.rfind(['\'', '"']).unwrap() } else { keeps };
            let whole = [&front.as_bytes()[..=keeps], &replacement].concat();
            let read = Line::parse(&whole, None);
            assert_eq!(read.words.last().unwrap().as_bytes(), completion, "{front}");
        }
    }
}
