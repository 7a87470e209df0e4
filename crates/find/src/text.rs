//! The words of a text, for the term `text:` and for an index of texts.

use std::collections::BTreeSet;

/// Splits a text into its words: runs of Unicode letters and digits, in lower case. If a word of
/// the result is split again, the result is that word. Texts are not normalized: an accent that is
/// a character of its own divides words.
pub fn words(text: &str) -> impl Iterator<Item = String> {
    let runs = text.split(|letter: char| !letter.is_alphanumeric());
    // The lower case of a letter may contain a combining accent, for example the one of `İ`.
    let lower = |run: &str| -> String {
        if run.is_ascii() {
            return run.to_ascii_lowercase();
        }
        run.chars().flat_map(char::to_lowercase).filter(|letter| letter.is_alphanumeric()).collect()
    };
    runs.filter(|run| !run.is_empty()).map(lower)
}

/// Returns the text at the begin of a file, or `None` if it is not UTF-8. `bytes` are the first
/// bytes of the file, so the last letter may be cut.
#[must_use]
pub fn text(bytes: &[u8]) -> Option<&str> {
    match str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => {
            bytes.get(..error.valid_up_to()).and_then(|whole| str::from_utf8(whole).ok())
        }
        Err(_) => None,
    }
}

/// Returns whether a text has all these words. They are in the form that [`words`] returns; without
/// a word the result is `false`.
#[must_use]
pub fn has_words(text: &str, wanted: &[String]) -> bool {
    let mut missing: BTreeSet<&str> = wanted.iter().map(String::as_str).collect();
    let has_all = words(text).any(|word| missing.remove(word.as_str()) && missing.is_empty());
    has_all && !wanted.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<String> {
        words(text).collect()
    }

    #[test]
    fn words_are_runs_of_letters_and_digits_in_lower_case() {
        assert_eq!(split("Hello, World-2 x_y"), ["hello", "world", "2", "x", "y"]);
        assert_eq!(split("ÄRGER  Straße\n日本"), ["ärger", "straße", "日本"]);
        assert_eq!(split("İstanbul ΣΑΣ"), ["istanbul", "σασ"]);
        assert!(split(" -- \n").is_empty());
    }

    #[test]
    fn a_text_may_end_within_a_letter() {
        assert_eq!(text("aß".as_bytes()), Some("aß"));
        assert_eq!(text(&"aß".as_bytes()[..2]), Some("a"));
        assert_eq!(text(b"a\xffb"), None);
        assert_eq!(text(b""), Some(""));
    }

    #[test]
    fn all_words_must_be_there() {
        let has = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|word| (*word).to_owned()).collect();
            has_words("One two; TWO three", &wanted)
        };
        assert!(has(&["two"]) && has(&["three", "one", "one"]));
        assert!(!has(&["two", "four"]) && !has(&["thre"]) && !has(&[]));
    }

    #[test]
    fn a_word_of_any_letter_is_split_into_itself() {
        for letter in (char::MIN..=char::MAX).filter(|letter| letter.is_alphanumeric()) {
            let word = split(&format!("a{letter}b"));
            assert_eq!(word.len(), 1, "{letter}");
            assert_eq!(split(&word[0]), word, "{letter}");
        }
    }
}
