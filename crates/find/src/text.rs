//! Words of a text: what `text:` of a query asks for, and what an index of texts has.

/// Splits a text into its words: runs of Unicode letters and digits, in lower case. A word of the
/// result is split into itself. Texts are not normalized: an accent that is a character of its own
/// divides words.
pub fn words(text: &str) -> impl Iterator<Item = String> {
    let runs = text.split(|letter: char| !letter.is_alphanumeric());
    // The lower case of a letter may have an accent of its own, as that of `İ`.
    let lower = |run: &str| -> String {
        run.chars().flat_map(char::to_lowercase).filter(|letter| letter.is_alphanumeric()).collect()
    };
    runs.filter(|run| !run.is_empty()).map(lower)
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
    fn a_word_of_any_letter_is_split_into_itself() {
        for letter in (char::MIN..=char::MAX).filter(|letter| letter.is_alphanumeric()) {
            let word = split(&format!("a{letter}b"));
            assert_eq!(word.len(), 1, "{letter}");
            assert_eq!(split(&word[0]), word, "{letter}");
        }
    }
}
