//! `docs/glossary.md` itself: no word twice, words in order, no retired word in a definition, and
//! what is used instead of one exists.

use super::tree::Tree;
use super::{Findings, table};

const DOCUMENT: &str = "docs/glossary.md";
/// The first column of each table.
const COLUMNS: [&str; 3] = ["word", "retired", "shared name"];

/// Reports words that are there twice or out of order, and retired words that are in use.
///
/// Many retired words are plain English too. In a definition one counts only where it is a name: in
/// backticks, or emphasised.
pub(super) fn check(tree: &Tree, found: &mut Findings) {
    // `documents` reports a missing document.
    let Some(document) = tree.file(DOCUMENT) else { return };
    let rows = table::rows(&document.text);
    for column in COLUMNS {
        let words: Vec<&str> = rows.iter().filter_map(|row| row.get(column)).collect();
        for pair in words.windows(2) {
            let [one, other] = [pair[0], pair[1]].map(key);
            if one == other {
                found.of(DOCUMENT, format_args!("`{}` is there twice", pair[0]));
            } else if one > other {
                found.of(DOCUMENT, format_args!("`{}` comes before `{}`", pair[1], pair[0]));
            }
        }
    }
    for retired in rows.iter().filter_map(|row| row.get("retired")) {
        let names = [retired.to_owned(), retired.to_lowercase()];
        let names = names.iter().flat_map(|name| [format!("*{name}*"), format!("`{name}`")]);
        for name in names {
            for row in rows.iter().filter(|row| row.get("word").is_some()) {
                let [word, meaning] = ["word", "meaning"].map(|it| row.get(it).unwrap_or_default());
                if meaning.contains(&name) {
                    let what = format!("the definition of `{word}` has the retired word {name}");
                    found.of(DOCUMENT, what);
                }
            }
        }
    }
    for instead in rows.iter().filter_map(|row| row.get("use instead")) {
        for name in instead.split('`').skip(1).step_by(2) {
            if !tree.rust().any(|file| file.text.contains(name)) {
                found.of(DOCUMENT, format_args!("nothing is called `{name}`"));
            }
        }
    }
}

/// Returns what words are ordered by: case and signs do not count, as in a dictionary.
fn key(word: &str) -> String {
    word.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::Source;
    use super::*;

    fn found_in(rows: &str) -> Vec<String> {
        let retired = "| retired | use instead |\n|---|---|\n| Medium | `Disk` |\n| Way | path |\n";
        let text = format!("| word | meaning |\n|---|---|\n{rows}\n{retired}");
        let mut found = Findings::default();
        let document = Source { path: DOCUMENT.to_owned(), text };
        let code = Source { path: "a.rs".to_owned(), text: "struct Disk;".to_owned() };
        check(&Tree::of(vec![document, code]), &mut found);
        found.0
    }

    #[test]
    fn each_word_is_there_once_and_in_order() {
        assert!(found_in("| a b | in a way |\n| ac | y |\n| a-d | z |\n").is_empty());
        assert_eq!(found_in("| a | x |\n| A | y |\n"), ["docs/glossary.md: `a` is there twice"]);
        let order = found_in("| b | x |\n| a | y |\n");
        assert_eq!(order, ["docs/glossary.md: `a` comes before `b`"]);
    }

    #[test]
    fn a_definition_has_no_retired_word() {
        let found = found_in("| disk | in code also *medium* |\n");
        let what = "docs/glossary.md: the definition of `disk` has the retired word *medium*";
        assert_eq!(found, [what]);
    }

    #[test]
    fn a_word_to_use_instead_is_in_the_code() {
        let text = "| retired | use instead |\n|---|---|\n| Medium | `Disk` |\n".to_owned();
        let mut found = Findings::default();
        check(&Tree::of(vec![Source { path: DOCUMENT.to_owned(), text }]), &mut found);
        assert_eq!(found.0, ["docs/glossary.md: nothing is called `Disk`"]);
    }
}
