//! ARCHITECTURE.md's table of the files with unsafe code.

use std::collections::BTreeSet;

use super::derived::Derived;
use super::sizes::production;
use super::tree::Tree;

/// The files, each with the reasons that it gives.
pub(super) const TABLE: Derived = Derived {
    source: "`expect(unsafe_code)` in the code",
    document: "ARCHITECTURE.md",
    name: "unsafe",
    table: |tree| Ok(table(tree)),
};
/// How a file allows unsafe code: the workspace denies it.
const ALLOWS: &str = "(unsafe_code, reason = \"";

fn table(tree: &Tree) -> String {
    let mut table = "| unsafe code in | because |\n|---|---|\n".to_owned();
    let is_ours = |path: &str| ["crates/", "lab/"].iter().any(|folder| path.starts_with(folder));
    for file in tree.rust().filter(|file| is_ours(&file.path)) {
        let reasons = production(file).split(ALLOWS).skip(1);
        let reasons: BTreeSet<&str> = reasons.filter_map(|rest| rest.split('"').next()).collect();
        if !reasons.is_empty() {
            let reasons: Vec<&str> = reasons.into_iter().collect();
            table.push_str(&format!("| `{}` | {} |\n", file.path, reasons.join("; ")));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::tree::Source;
    use super::*;

    #[test]
    fn a_file_is_listed_once_with_its_reasons() {
        let allow =
            |reason: &str| format!("#[expect(unsafe_code, reason = \"{reason}\")]\nfn f() {{}}\n");
        let text = [allow("b"), allow("a"), allow("b")].concat();
        let file = |path: &str, text: String| Source { path: path.to_owned(), text };
        let tree = Tree::of(vec![
            file("crates/x/src/os.rs", text.clone()),
            file("crates/x/src/safe.rs", "#![forbid(unsafe_code)]\n".to_owned()),
            file("crates/x/tests/own.rs", text),
        ]);
        let expected = "| unsafe code in | because |\n|---|---|\n| `crates/x/src/os.rs` | a; b |\n";
        assert_eq!(table(&tree), expected);
    }
}
