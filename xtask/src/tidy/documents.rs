//! Documents: which must exist, how long they may be, and where their links lead.

use super::Findings;
use super::tree::{Source, Tree};

const TESTING: &str = "docs/testing.md";
/// The page that has a line of each page of its folder.
const INDEX: &str = "docs/README.md";
/// The most lines of README.md.
const README_LINES: usize = 220;
/// Documents that must exist, and the most lines of each.
const REQUIRED: &[(&str, usize)] = &[
    ("README.md", README_LINES),
    ("ARCHITECTURE.md", 500),
    ("CHANGELOG.md", usize::MAX),
    ("CONTRIBUTING.md", usize::MAX),
    ("LICENSE", usize::MAX),
    (INDEX, usize::MAX),
    ("docs/benchmarks.md", usize::MAX),
    ("docs/cli.md", usize::MAX),
    ("docs/format.md", usize::MAX),
    ("docs/fuse.md", usize::MAX),
    ("docs/glossary.md", usize::MAX),
    ("docs/limits.md", usize::MAX),
    ("docs/modules.md", usize::MAX),
    ("docs/protocol.md", usize::MAX),
    ("docs/query.md", usize::MAX),
    ("docs/semantics.md", usize::MAX),
    (TESTING, usize::MAX),
];

/// Reports missing and long documents, dead links, pages and decisions without a link, and tests
/// that are gone.
pub(super) fn check(tree: &Tree, found: &mut Findings) {
    for &(path, limit) in REQUIRED {
        match tree.file(path).map(|file| file.text.lines().count()) {
            Some(lines) if lines > limit => {
                found.of(path, format_args!("{lines} lines, the limit is {limit}"));
            }
            Some(_) => {}
            None => found.of(path, "is missing"),
        }
    }
    check_decisions(tree, found);
    check_index(tree, found);
    check_tests(tree, found);
    for file in tree.markdown() {
        check_links(file, tree, found);
    }
}

/// Reports decisions that ARCHITECTURE.md does not link, because readers start there.
fn check_decisions(tree: &Tree, found: &mut Findings) {
    let Some(architecture) = tree.file("ARCHITECTURE.md") else { return };
    for file in tree.markdown().filter(|file| file.path.starts_with("docs/decisions/")) {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        let is_numbered = name.starts_with(|letter: char| letter.is_ascii_digit());
        if is_numbered && !architecture.text.contains(&file.path) {
            found.of(&file.path, "is not linked from ARCHITECTURE.md");
        }
    }
}

/// Reports pages of the folder that its index does not link.
fn check_index(tree: &Tree, found: &mut Findings) {
    let Some(index) = tree.file(INDEX) else { return };
    for file in tree.markdown() {
        let Some(name) = file.path.strip_prefix("docs/").filter(|name| !name.contains('/')) else {
            continue;
        };
        if file.path != INDEX && !index.text.contains(&format!("({name})")) {
            found.of(&file.path, format_args!("is not linked from {INDEX}"));
        }
    }
}

/// Reports tests that a cell of a table in `docs/testing.md` names alone, and that are gone.
fn check_tests(tree: &Tree, found: &mut Findings) {
    let Some(document) = tree.file(TESTING) else { return };
    for (index, line) in document.text.lines().enumerate() {
        let cells = line.rsplit('|').nth(1).filter(|_| line.starts_with('|'));
        for name in cells.into_iter().flat_map(|cell| cell.split(", ")).map(str::trim) {
            let name = name.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
            let is_letter = |it: char| it.is_ascii_lowercase() || it == '_';
            let is_test = |name: &&str| name.chars().all(is_letter);
            let Some(name) = name.filter(is_test).filter(|name| name.contains('_')) else {
                continue;
            };
            let declared = format!("fn {name}(");
            if !tree.rust().any(|file| file.text.contains(&declared)) {
                found.at(TESTING, index + 1, format_args!("there is no test `{name}`"));
            }
        }
    }
}

fn check_links(file: &Source, tree: &Tree, found: &mut Findings) {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    for (line, target) in links(&file.text) {
        let path = target.split('#').next().unwrap_or_default();
        if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
            continue;
        }
        match joined(folder, path) {
            Some(path) if path.is_empty() || tree.has(&path) => {}
            _ => found.at(&file.path, line, format_args!("the link `{target}` leads nowhere")),
        }
    }
}

/// Returns line (from 1) and target of each inline link outside code.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for (at, opening) in line.match_indices("](") {
            let is_code = line[..at].matches('`').count() % 2 == 1;
            let rest = &line[at + opening.len()..];
            if let (false, Some(end)) = (is_code, rest.find(')')) {
                let target = rest[..end].split_whitespace().next().unwrap_or_default();
                found.push((index + 1, target.trim_matches(['<', '>'])));
            }
        }
    }
    found
}

/// Returns the path below the root, or `None` if it leaves the root.
fn joined(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn links_lead_somewhere() {
        let text = "[a](b.md) [c](../README.md#top) [d](https://x.y/z) [e](#here)\n\
                    ```\n[code](nowhere.md)\n```\n`[code](nowhere.md)` [lost](lost.md)\n\
                    [out](../../x.md) [folder](decisions/)\n";
        let files = ["docs/b.md", "README.md", "docs/decisions/0001-a.md"];
        let mut files: Vec<Source> = files.map(|path| source(path, "")).into();
        files.push(source("docs/a.md", text));
        let tree = Tree::of(files);
        let mut found = Findings::default();
        check_links(tree.file("docs/a.md").unwrap(), &tree, &mut found);
        let lost = "docs/a.md:5: the link `lost.md` leads nowhere";
        assert_eq!(found.0, [lost, "docs/a.md:6: the link `../../x.md` leads nowhere"]);
    }

    #[test]
    fn tests_that_are_named_exist() {
        let table = "| what | tests |\n|---|---|\n| a | `it_is_so`, `it_is_not` |\n\
                     | b | `path::of_one`, some `it_is_text` words |\n`it_is_text`, `no_test`\n";
        let code = source("crates/a/src/lib.rs", "fn it_is_so() {}");
        let tree = Tree::of(vec![source(TESTING, table), code]);
        let mut found = Findings::default();
        check_tests(&tree, &mut found);
        assert_eq!(found.0, ["docs/testing.md:3: there is no test `it_is_not`"]);
    }

    #[test]
    fn every_decision_is_linked() {
        let tree = Tree::of(vec![
            source("ARCHITECTURE.md", "[one](docs/decisions/0001-one.md)"),
            source("docs/decisions/0001-one.md", ""),
            source("docs/decisions/0002-two.md", ""),
        ]);
        let mut found = Findings::default();
        check_decisions(&tree, &mut found);
        assert_eq!(found.0.len(), 1);
        assert!(found.0[0].contains("0002-two"));
    }

    #[test]
    fn every_page_is_in_the_index() {
        let tree = Tree::of(vec![
            source(INDEX, "[a](a.md), b.md"),
            source("docs/a.md", ""),
            source("docs/b.md", ""),
            source("docs/decisions/0001-one.md", ""),
        ]);
        let mut found = Findings::default();
        check_index(&tree, &mut found);
        assert_eq!(found.0, ["docs/b.md: is not linked from docs/README.md"]);
    }

    #[test]
    fn missing_and_long_documents_are_found() {
        let tree = Tree::of(vec![source("README.md", &"x\n".repeat(README_LINES + 1))]);
        let mut found = Findings::default();
        check(&tree, &mut found);
        assert_eq!(found.0.len(), REQUIRED.len());
    }
}
