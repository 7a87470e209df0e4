//! `docs/glossary.md` against the names of types and modules: a retired word names nothing, and a
//! public name stands in one crate, unless the glossary says why it stands in two.

use std::collections::{BTreeMap, BTreeSet};

use super::sizes::production;
use super::tree::{Source, Tree};
use super::{Findings, modules, table};

const DOCUMENT: &str = "docs/glossary.md";
/// Crates that are being renamed: what is found in them is printed as a note and fails nothing.
/// Without crates in this list every finding counts.
const RENAMING: &[&str] = &[];

/// Reports names that the glossary rules out; `notes` receives those of crates in [`RENAMING`].
pub(super) fn check(tree: &Tree, found: &mut Findings, notes: &mut Findings) {
    let Some(document) = tree.file(DOCUMENT) else { return };
    let rows = table::rows(&document.text);
    let column = |name| rows.iter().filter_map(move |row| Some((row.get(name)?, row)));
    let retired: BTreeMap<&str, &str> =
        column("retired").filter_map(|(word, row)| Some((word, row.get("use instead")?))).collect();
    let shared: BTreeSet<&str> = column("shared name").map(|(name, _)| name).collect();
    for (heading, is_empty) in
        [("retired | use instead", retired.is_empty()), ("shared name | why", shared.is_empty())]
    {
        if is_empty {
            found.of(DOCUMENT, format_args!("has no table with the columns {heading}"));
        }
    }
    check_in(tree, &retired, &shared, RENAMING, found, notes);
}

fn check_in(
    tree: &Tree,
    retired: &BTreeMap<&str, &str>,
    shared: &BTreeSet<&str>,
    renaming: &[&str],
    found: &mut Findings,
    notes: &mut Findings,
) {
    let mut homes: BTreeMap<&str, BTreeMap<&str, String>> = BTreeMap::new();
    for file in tree.rust() {
        let Some(home) = home(file) else { continue };
        for Declared { line, name, word, is_public_type } in declared(file) {
            if let Some(instead) = retired.get(word.as_str()) {
                let into = if renaming.contains(&home) { &mut *notes } else { &mut *found };
                let what = format!("`{name}` is a retired word, use {instead} ({DOCUMENT})");
                into.at(&file.path, line, what);
            }
            if is_public_type {
                let place = format!("{}:{line}", file.path);
                homes.entry(name).or_default().entry(home).or_insert(place);
            }
        }
    }
    for (name, homes) in homes {
        if homes.len() > 1 && !shared.contains(name) {
            let is_note = homes.keys().any(|home| renaming.contains(home));
            let into = if is_note { &mut *notes } else { &mut *found };
            let places: Vec<String> = homes.into_values().collect();
            let what = format!("two public types, not listed in {DOCUMENT}: {}", places.join(", "));
            into.of(&format!("`{name}`"), what);
        }
    }
}

/// Returns the crate of a file below `crates/*/src`.
fn home(file: &Source) -> Option<&str> {
    file.path.strip_prefix("crates/")?.split_once("/src/").map(|(name, _)| name)
}

/// A type or a module.
struct Declared<'a> {
    /// From 1.
    line: usize,
    name: &'a str,
    /// The name as the glossary spells it: `Known` for the module `known`.
    word: String,
    /// It is a type, and its own line is `pub`.
    is_public_type: bool,
}

fn declared(file: &Source) -> Vec<Declared<'_>> {
    let code = production(file);
    let types = code.lines().enumerate().filter_map(|(index, line)| {
        let words: Vec<&str> = line.split_whitespace().take(3).collect();
        let (is_public_type, kind, rest) = match words[..] {
            ["pub", kind, rest] => (true, kind, rest),
            [visible, kind, rest] if visible.starts_with("pub(") => (false, kind, rest),
            [kind, rest, ..] => (false, kind, rest),
            _ => return None,
        };
        let is_type = ["struct", "enum", "trait", "type", "union"].contains(&kind);
        let end = rest.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(rest.len());
        let name = &rest[..end];
        let line = index + 1;
        is_type.then(|| Declared { line, name, word: name.to_owned(), is_public_type })
    });
    let modules = modules::declared(code).map(|(line, name)| {
        let word = name.split('_').map(|part| part[..1].to_uppercase() + &part[1..]).collect();
        Declared { line, name, word, is_public_type: false }
    });
    types.chain(modules).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Findings and notes; `Known` is retired, `Attr` is shared, crate `b` is being renamed.
    fn found_in(files: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let source =
            |&(path, text): &(&str, &str)| Source { path: path.to_owned(), text: text.to_owned() };
        let tree = Tree::of(files.iter().map(source).collect());
        let mut found = Findings::default();
        let mut notes = Findings::default();
        let retired = BTreeMap::from([("Known", "`OpenTable`")]);
        let shared = BTreeSet::from(["Attr"]);
        check_in(&tree, &retired, &shared, &["b"], &mut found, &mut notes);
        (found.0, notes.0)
    }

    #[test]
    fn a_retired_word_is_found_as_type_and_as_module() {
        let code =
            "mod known;\npub(crate) struct Known<'a>(&'a u8);\n// struct Known\nenum Unknown {}\n";
        let (found, notes) = found_in(&[("crates/a/src/lib.rs", code)]);
        let instead = "is a retired word, use `OpenTable` (docs/glossary.md)";
        assert_eq!(
            found,
            [
                format!("crates/a/src/lib.rs:2: `Known` {instead}"),
                format!("crates/a/src/lib.rs:1: `known` {instead}"),
            ]
        );
        assert!(notes.is_empty());
    }

    #[test]
    fn a_public_name_stands_in_one_crate() {
        let code = "pub struct Attr;\npub enum Row {}\npub(crate) struct Own;\n";
        let files = [("crates/a/src/lib.rs", code), ("crates/c/src/x.rs", code)];
        let (found, _) = found_in(&files);
        let places = "crates/a/src/lib.rs:2, crates/c/src/x.rs:2";
        let what = format!("`Row`: two public types, not listed in docs/glossary.md: {places}");
        assert_eq!(found, [what]);
    }

    #[test]
    fn a_crate_that_is_being_renamed_gets_notes() {
        let code = "pub type Known = u8;\npub trait Row {}\n";
        let (found, notes) = found_in(&[
            ("crates/a/src/lib.rs", "pub struct Row;\n"),
            ("crates/b/src/lib.rs", code),
        ]);
        assert!(found.is_empty(), "{found:?}");
        assert_eq!(notes.len(), 2, "{notes:?}");
    }

    #[test]
    fn names_of_tests_are_free() {
        let inner = "#[cfg(test)]\nmod tests {\n    struct Known;\n}\n";
        let files = [("crates/a/src/lib.rs", inner), ("crates/a/src/tests.rs", "struct Known;\n")];
        assert!(found_in(&files).0.is_empty());
    }
}
