//! `docs/modules.md`: the modules of our crates, each with the first sentence of its head.

use super::derived::Derived;
use super::sizes::production;
use super::tree::{Source, Tree};

/// The list of modules, two levels deep.
pub(super) const TABLE: Derived = Derived {
    source: "the heads of the modules",
    document: "docs/modules.md",
    name: "modules",
    table: |tree| Ok(table(tree)),
};
/// Most parts of a module's name that are listed.
const LEVELS: usize = 2;

fn table(tree: &Tree) -> String {
    let mut text = String::new();
    let mut last = "";
    let mut files: Vec<(&str, Vec<&str>, &Source)> = tree.rust().filter_map(listed).collect();
    files.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    for (package, module, file) in files {
        if package != last {
            text.push_str(&format!("\n### {package}\n\n| module | is |\n|---|---|\n"));
            last = package;
        }
        let name = [&[package], module.as_slice()].concat().join("::");
        let sentence = first_sentence(&file.text).replace('|', "\\|");
        text.push_str(&format!("| [`{name}`](../{}) | {sentence} |\n", file.path));
    }
    text.push('\n');
    text
}

/// Returns the crate and the module of a file that the list has.
fn listed(file: &Source) -> Option<(&str, Vec<&str>, &Source)> {
    let (package, inner) = file.path.strip_prefix("crates/")?.split_once("/src/")?;
    let stem = inner.strip_suffix(".rs")?;
    let parts = stem.split('/').filter(|part| !["lib", "main"].contains(part));
    let module: Vec<&str> = parts.collect();
    let is_listed = module.len() <= LEVELS && !production(file).is_empty();
    is_listed.then_some((package, module, file))
}

/// Returns the first sentence of a module's head, as Markdown for another place.
pub(super) fn first_sentence(text: &str) -> String {
    let head = text.lines().map_while(|line| line.strip_prefix("//!"));
    let paragraph: Vec<&str> = head.map(str::trim).take_while(|line| !line.is_empty()).collect();
    let paragraph = paragraph.join(" ");
    let end = paragraph.match_indices(". ").map(|(at, _)| at);
    // The next sentence begins with a capital letter; "e. g. a" goes on.
    let is_end = |at: &usize| paragraph[at + 2..].starts_with(|next: char| !next.is_lowercase());
    let end = end.filter(|at| is_end(at)).min().map_or(paragraph.len(), |at| at + 1);
    let sentence = paragraph[..end].trim_end_matches('.');
    sentence.replace("[`", "`").replace("`]", "`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_listed_two_levels_deep() {
        let source =
            |(path, text): (&str, &str)| Source { path: path.to_owned(), text: text.to_owned() };
        let files = [
            ("crates/b/src/main.rs", "//! The binary."),
            ("crates/a/src/x/y.rs", "//! A part\n//! of [`X`] | it. It is small.\n"),
            ("crates/a/src/x/y/z.rs", "//! Too deep."),
            ("crates/a/src/x/tests.rs", "//! Tests."),
            ("crates/a/src/x.rs", "//! The thing.\n//!\n//! More."),
            ("crates/a/src/lib.rs", "//! All."),
        ];
        let table = table(&Tree::of(files.map(source).into()));
        let expected = "\n### a\n\n| module | is |\n|---|---|\n\
                        | [`a`](../crates/a/src/lib.rs) | All |\n\
                        | [`a::x`](../crates/a/src/x.rs) | The thing |\n\
                        | [`a::x::y`](../crates/a/src/x/y.rs) | A part of `X` \\| it |\n\
                        \n### b\n\n| module | is |\n|---|---|\n\
                        | [`b`](../crates/b/src/main.rs) | The binary |\n\n";
        assert_eq!(table, expected);
    }

    #[test]
    fn a_sentence_ends_before_a_capital_letter() {
        assert_eq!(first_sentence("//! A, e. g. b. C.\n"), "A, e. g. b");
        assert_eq!(first_sentence("use a;\n"), "");
    }
}
