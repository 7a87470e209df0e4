//! Words of texts as terms of the index.

use std::borrow::Cow;

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};
use xxhash_rust::xxh3::xxh3_128;

/// Bytes of the longest word that is a term itself. The engine has a limit too (65,530), and drops
/// what is beyond it.
const TERM_BYTES: usize = 256;

/// Returns the term of a word, in the index and in a query: the word itself, or its hash behind a
/// NUL, which no word has, if it is long.
pub(super) fn term_of(word: &str) -> Cow<'_, str> {
    if word.len() <= TERM_BYTES {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("\0{:032x}", xxh3_128(word.as_bytes())))
}

/// Splits texts exactly as [`pelago_find::words`] does, with which they are evaluated.
#[derive(Debug, Clone, Default)]
pub(super) struct Words;

impl Tokenizer for Words {
    type TokenStream<'a> = Terms<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> Terms<'a> {
        Terms { words: Box::new(pelago_find::words(text)), token: Token::default() }
    }
}

/// The terms of one text. They have no positions, because the index has none.
pub(super) struct Terms<'a> {
    words: Box<dyn Iterator<Item = String> + 'a>,
    token: Token,
}

impl TokenStream for Terms<'_> {
    fn advance(&mut self) -> bool {
        let Some(word) = self.words.next() else { return false };
        self.token.position = 0;
        self.token.text = match term_of(&word) {
            Cow::Borrowed(_) => word,
            Cow::Owned(term) => term,
        };
        true
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_word_is_a_short_term_that_is_no_word() {
        let long = "ä".repeat(TERM_BYTES / 2);
        assert_eq!(term_of(&long), long);
        let longer = long.clone() + "b";
        assert_eq!(term_of(&longer).len(), 33);
        assert_ne!(term_of(&longer), term_of(&(long + "c")));
        assert_eq!(pelago_find::words(&term_of(&longer)).count(), 1);
        assert_ne!(pelago_find::words(&term_of(&longer)).next().unwrap(), term_of(&longer));
    }

    #[test]
    fn terms_are_the_words_that_a_query_has() {
        let mut words = Words;
        let mut terms = words.token_stream("Zwei Wörter\u{1}\0zwei");
        let mut found = Vec::new();
        while let Some(token) = terms.next() {
            found.push(token.text.clone());
        }
        assert_eq!(found, ["zwei", "wörter", "zwei"]);
    }
}
