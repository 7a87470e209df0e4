//! Tables in documents that are derived from other files.
//!
//! Such a table is between the lines `<!-- NAME:begin -->` and `<!-- NAME:end -->`. The check
//! derives it again and compares; `tidy --write` writes it.

use std::fs;
use std::path::Path;

use super::Findings;
use super::tree::Tree;

/// A table in `document` that is derived from `source`.
pub(super) struct Derived {
    /// The file, or what the files are together.
    pub(super) source: &'static str,
    pub(super) document: &'static str,
    /// The NAME of its begin and end lines.
    pub(super) name: &'static str,
    /// Derives the table; an error says what the source lacks.
    pub(super) table: fn(&Tree) -> Result<String, String>,
}

impl Derived {
    /// Reports a table that differs from the derived one.
    pub(super) fn check(&self, tree: &Tree, found: &mut Findings) {
        // `documents` reports a missing document.
        let Some(document) = tree.file(self.document) else { return };
        match (self.table)(tree) {
            Err(why) => found.of(self.source, why),
            Ok(table) => match between(&document.text, self.name) {
                Some(shown) if shown == table => {}
                Some(shown) => {
                    let other = |line: &&str| !shown.lines().any(|shown| shown == *line);
                    let row = table.lines().find(other).unwrap_or("fewer rows");
                    let source = self.source;
                    let what = format!("its table is not that of {source}: {row}; `tidy --write`");
                    found.of(self.document, what);
                }
                None => found.of(self.document, missing(self.name)),
            },
        }
    }

    /// Writes the table into the document.
    pub(super) fn write(&self, root: &Path) -> Result<(), String> {
        let Self { source, document, name, .. } = *self;
        let tree = Tree::read(root)?;
        let table = (self.table)(&tree).map_err(|why| format!("{source}: {why}"))?;
        let text = replaced(tree.text(document)?, name, &table)
            .ok_or_else(|| format!("{document}: {}", missing(name)))?;
        fs::write(root.join(document), text)
            .map_err(|why| format!("cannot write {document}: {why}"))
    }
}

/// Returns the text between the begin and end lines.
fn between<'a>(document: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = document.split_once(&begin(name))?;
    rest.split_once(&end(name)).map(|(inner, _)| inner)
}

/// Returns the document with `inner` between the begin and end lines.
fn replaced(document: &str, name: &str, inner: &str) -> Option<String> {
    let (before, rest) = document.split_once(&begin(name))?;
    let (_, after) = rest.split_once(&end(name))?;
    Some(format!("{before}{}{inner}{}{after}", begin(name), end(name)))
}

fn missing(name: &str) -> String {
    format!("has no lines `{}` and `{}`", begin(name).trim_end(), end(name))
}

fn begin(name: &str) -> String {
    format!("<!-- {name}:begin -->\n")
}

fn end(name: &str) -> String {
    format!("<!-- {name}:end -->")
}

#[cfg(test)]
mod tests {
    use super::super::tree::Source;
    use super::*;

    const DERIVED: Derived = Derived {
        source: "a.rs",
        document: "b.md",
        name: "x",
        table: |tree| match tree.text("a.rs")? {
            "bad" => Err("no".to_owned()),
            source => Ok(source.to_owned()),
        },
    };

    fn found_with(source: &str, document: &str) -> Vec<String> {
        let file = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        let mut found = Findings::default();
        DERIVED.check(&Tree::of(vec![file("a.rs", source), file("b.md", document)]), &mut found);
        found.0
    }

    #[test]
    fn a_table_that_differs_from_the_derived_one_is_found() {
        let document = "<!-- x:begin -->\nnew\n<!-- x:end -->\n";
        assert!(found_with("new\n", document).is_empty());
        let other = "b.md: its table is not that of a.rs: other; `tidy --write`";
        assert_eq!(found_with("other\n", document), [other]);
        assert_eq!(found_with("bad", document), ["a.rs: no"]);
        let no_marks = "b.md: has no lines `<!-- x:begin -->` and `<!-- x:end -->`";
        assert_eq!(found_with("new\n", "new\n"), [no_marks]);
    }

    #[test]
    fn only_the_text_between_begin_and_end_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let document = folder.path().join("b.md");
        fs::write(folder.path().join("a.rs"), "new\n").unwrap();
        fs::write(&document, "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n").unwrap();
        DERIVED.write(folder.path()).unwrap();
        let new = "a\n<!-- x:begin -->\nnew\n<!-- x:end -->\nb\n";
        assert_eq!(fs::read_to_string(&document).unwrap(), new);
        fs::write(&document, "<!-- x:begin -->\n").unwrap();
        assert!(DERIVED.write(folder.path()).is_err());
    }
}
