//! `docs/limits.md` says what `wire::limits` says.

use std::fs;
use std::path::Path;

use super::tree::Tree;
use super::{Findings, marked};

const SOURCE: &str = "crates/wire/src/limits.rs";
const DOCUMENT: &str = "docs/limits.md";
/// The marks between which the document has the table.
const NAME: &str = "limits";

/// One `pub const`.
#[derive(Debug, PartialEq, Eq)]
struct Limit {
    name: String,
    value: String,
    meaning: String,
}

/// Limits that the document does not list, or lists with another value.
pub(super) fn check(tree: &Tree, found: &mut Findings) {
    let Some(source) = tree.file(SOURCE) else {
        found.of(SOURCE, "is missing");
        return;
    };
    // That the document is missing is said among the documents.
    let Some(document) = tree.file(DOCUMENT) else { return };
    let (limits, rows) = (limits_of(&source.text), rows_of(&document.text));
    for limit in &limits {
        match rows.iter().find(|(name, _)| *name == limit.name) {
            Some((_, value)) if normal(value) == normal(&limit.value) => {}
            Some((name, value)) => {
                let what = format!("{name} is {}, not {value}; `tidy --write`", limit.value);
                found.of(DOCUMENT, what);
            }
            None => found.of(DOCUMENT, format_args!("{} is missing; `tidy --write`", limit.name)),
        }
    }
    for (name, _) in rows_of(marked::between(&document.text, NAME).unwrap_or_default()) {
        if !limits.iter().any(|limit| limit.name == name) {
            found.of(DOCUMENT, format_args!("{name} is not in {SOURCE}; `tidy --write`"));
        }
    }
}

/// Writes the table into the document.
pub(super) fn write(root: &Path) -> Result<(), String> {
    let read = |path: &str| {
        fs::read_to_string(root.join(path)).map_err(|why| format!("cannot read {path}: {why}"))
    };
    let table = table_of(&limits_of(&read(SOURCE)?));
    let document = marked::replaced(&read(DOCUMENT)?, NAME, &table)
        .ok_or_else(|| format!("{DOCUMENT}: {}", marked::missing(NAME)))?;
    fs::write(root.join(DOCUMENT), document)
        .map_err(|why| format!("cannot write {DOCUMENT}: {why}"))
}

fn table_of(limits: &[Limit]) -> String {
    let mut table = "| limit | value | meaning |\n|---|---|---|\n".to_owned();
    for Limit { name, value, meaning } in limits {
        let meaning = meaning.replace("[`", "`").replace("`]", "`").replace('|', "\\|");
        let value = value.replace('|', "\\|");
        table.push_str(&format!("| `{name}` | `{value}` | {meaning} |\n"));
    }
    table
}

/// The constants of the source, with what stands above each.
fn limits_of(source: &str) -> Vec<Limit> {
    let mut limits = Vec::new();
    let mut meaning: Vec<&str> = Vec::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if let Some(doc) = line.strip_prefix("///") {
            meaning.push(doc.trim());
            continue;
        }
        if let Some(rest) = line.strip_prefix("pub const ")
            && !rest.starts_with("fn ")
        {
            let mut whole = rest.to_owned();
            while !whole.ends_with(';') {
                let Some(next) = lines.next() else { break };
                whole = format!("{whole} {}", next.trim());
            }
            limits.extend(limit_of(&whole, &meaning.join(" ")));
        }
        if !line.starts_with("#[") {
            meaning.clear();
        }
    }
    limits
}

/// `NAME: TYPE = VALUE;`
fn limit_of(declaration: &str, meaning: &str) -> Option<Limit> {
    let (name, rest) = declaration.split_once(':')?;
    let (_, value) = rest.split_once(" = ")?;
    let value = value.trim_end_matches(';').trim().to_owned();
    Some(Limit { name: name.to_owned(), value, meaning: meaning.to_owned() })
}

/// First and second cell of each row whose first is the name of a constant.
fn rows_of(document: &str) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for line in document.lines() {
        let Some(row) = line.trim().strip_prefix('|') else { continue };
        let row = row.replace("\\|", "\u{0}");
        let mut cells =
            row.split('|').map(|cell| cell.trim().trim_matches('`').replace('\u{0}', "|"));
        if let (Some(name), Some(value)) = (cells.next(), cells.next())
            && is_constant(&name)
        {
            rows.push((name, value));
        }
    }
    rows
}

fn is_constant(name: &str) -> bool {
    let letters = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit();
    name.starts_with(letters) && name.chars().all(|letter| letters(letter) || letter == '_')
}

/// A value without what only helps the eye.
fn normal(value: &str) -> String {
    value.chars().filter(|letter| !letter.is_whitespace() && !"_`".contains(*letter)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::Source;
    use super::*;

    const LIMITS: &str = "
/// Bytes of [`X`],
/// at most.
#[expect(dead)]
pub const A_1: u64 =
    64 << 20;
pub const MASK: u32 = 1 | 2;
pub const fn not() {}
";

    fn found_with(document: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let tree = Tree::of(vec![source(SOURCE, LIMITS), source(DOCUMENT, document)]);
        let mut found = Findings::default();
        check(&tree, &mut found);
        found.0
    }

    fn in_marks(table: &str) -> String {
        let empty = "<!-- limits:begin -->\n<!-- limits:end -->";
        marked::replaced(empty, NAME, table).unwrap()
    }

    #[test]
    fn what_is_written_is_found_right() {
        let table = table_of(&limits_of(LIMITS));
        assert!(table.contains("| `A_1` | `64 << 20` | Bytes of `X`, at most. |"), "{table}");
        assert!(table.contains("| `MASK` | `1 \\| 2` |"), "{table}");
        assert!(found_with(&in_marks(&table)).is_empty());
        assert!(found_with("| A_1 | 64<<20 | x |\n| `MASK` | 1 \\| 2 |\n").is_empty());
    }

    #[test]
    fn wrong_missing_and_foreign_rows_are_found() {
        assert_eq!(found_with("| A_1 | 65 << 20 | x |\n").len(), 2);
        let table = table_of(&limits_of(LIMITS));
        let foreign = in_marks(&format!("{table}| `GONE` | 1 | |\n")) + "\n| `OTHER` | 1 | |\n";
        assert_eq!(found_with(&foreign).len(), 1);
    }
}
