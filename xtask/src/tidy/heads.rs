//! Heads of modules: a noun phrase that names the thing.
//!
//! A head that begins with a question is a riddle: the reader learns what is asked about the thing,
//! and not what it is.

use super::Findings;
use super::tree::Tree;

/// Words with which no head begins.
const QUESTIONS: &[&str] =
    &["What", "Which", "How", "Whether", "Whose", "Who", "Whom", "Where", "When", "Why", "Of"];

/// Reports heads that begin with a question.
pub(super) fn check(tree: &Tree, found: &mut Findings) {
    for file in tree.rust() {
        let Some(head) = file.text.lines().next().and_then(|line| line.strip_prefix("//!")) else {
            continue;
        };
        let first = head.split_whitespace().next().unwrap_or_default();
        let word = first.trim_end_matches(|letter: char| !letter.is_alphanumeric());
        if QUESTIONS.contains(&word) {
            let what = format!("the head begins with `{word}`: a noun phrase that names the thing");
            found.at(&file.path, 1, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Source;
    use super::*;

    #[test]
    fn a_head_is_no_question() {
        let source = |text: &str| Source { path: "a.rs".to_owned(), text: text.to_owned() };
        let heads = ["//! Which is it.\n", "//! Versions of pages.\n", "//! Whatever.\n", "x\n"];
        let tree = Tree::of(heads.map(source).into());
        let mut found = Findings::default();
        check(&tree, &mut found);
        assert_eq!(found.0.len(), 1, "{:?}", found.0);
    }
}
