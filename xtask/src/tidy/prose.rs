//! Names in the prose of documents: what stands in backticks and claims to be ours exists.
//!
//! Two kinds of claims are checked, outside code blocks, in all documents but the changelog:
//!
//! - a path: it ends in an extension of [`EXTENSIONS`], or begins with a folder of [`FOLDERS`]. It
//!   is that of one file or folder, from the root or by its last parts: `shard/tests/tags.rs`. A
//!   `*` stands for any letters.
//! - a name with `::` whose first part is one of our crates, or a type that one of them declares:
//!   `meta::shard::txn`, `Dispatcher::run`. Its parts are modules (test targets count as modules),
//!   then items that the last module declares.
//!
//! `{a, b}` stands for both. After the word "was" a name may be one of the past, as in records of
//! decisions.

use std::collections::{BTreeMap, BTreeSet};

use super::Findings;
use super::tree::{Source, Tree};

/// Documents about the past.
const EXEMPT: &[&str] = &["CHANGELOG.md"];
/// Extensions of files.
const EXTENSIONS: &[&str] = &[".rs", ".md", ".toml", ".sh"];
/// Folders at the root of the repository.
const FOLDERS: &[&str] =
    &["crates/", "lab/", "docs/", "xtask/", "conformance/", "fuzz/", "schedules/"];
/// The word before a name of the past.
const PAST: &str = "was";
/// Examples of the style guide, and files of other projects.
const FOREIGN: &[&str] = &["foo.rs", "mod.rs"];
/// The words that declare an item.
const KINDS: &[&str] =
    &["fn", "struct", "enum", "trait", "type", "const", "static", "macro_rules!"];

/// Reports names of nothing.
pub(super) fn check(tree: &Tree, found: &mut Findings) {
    let code = Code::of(tree);
    for file in tree.markdown().filter(|file| !EXEMPT.contains(&file.path.as_str())) {
        for (line, name) in names(&file.text) {
            for name in expanded(name) {
                if let Some(what) = code.fault(&name) {
                    found.at(&file.path, line, what);
                }
            }
        }
    }
}

/// Returns line (from 1) and text of what stands in backticks, outside code blocks.
fn names(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_code = false;
    let mut last = "";
    for (index, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        let mut parts = line.split('`');
        while let (false, Some(before), Some(name)) =
            (is_code || is_fence, parts.next(), parts.next())
        {
            let before = if before.trim().is_empty() { last } else { before };
            if before.trim_end().rsplit(' ').next() != Some(PAST) {
                found.push((index + 1, name));
            }
        }
        last = line;
    }
    found
}

/// Returns `a/b.rs` and `a/c.rs` for `a/{b,c}.rs`.
fn expanded(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else { return vec![name.to_owned()] };
    let Some((inner, after)) = rest.split_once('}') else { return vec![name.to_owned()] };
    inner.split(',').map(|part| format!("{before}{}{after}", part.trim())).collect()
}

/// What the repository has.
struct Code<'a> {
    tree: &'a Tree,
    /// The names that each Rust file declares.
    declared: BTreeMap<&'a str, BTreeSet<&'a str>>,
    crates: BTreeSet<&'a str>,
}

impl<'a> Code<'a> {
    fn of(tree: &'a Tree) -> Self {
        let declared = tree.rust().map(|file| (file.path.as_str(), declared(file))).collect();
        let crates = tree.rust().filter_map(|file| package(&file.path)).collect();
        Self { tree, declared, crates }
    }

    /// Returns what is wrong with a name; `None` if it is right or does not claim to be ours.
    fn fault(&self, name: &str) -> Option<String> {
        let is_path = |letter: char| letter.is_ascii_alphanumeric() || "_-./*".contains(letter);
        let is_ours = FOLDERS.iter().any(|folder| name.starts_with(folder))
            || EXTENSIONS.iter().any(|extension| name.ends_with(extension));
        if is_ours && name.chars().all(is_path) && !name.starts_with(['/', '.', '*']) {
            return self.path_fault(name);
        }
        let name = name.strip_suffix("()").unwrap_or(name);
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
        let parts: Vec<&str> = name.split("::").collect();
        if parts.len() < 2 || !name.chars().all(is_name) || parts.contains(&"") {
            return None;
        }
        self.name_fault(name, &parts)
    }

    fn path_fault(&self, path: &str) -> Option<String> {
        let path = path.trim_end_matches('/');
        if self.tree.has(path) || FOREIGN.contains(&path) {
            return None;
        }
        let (start, end) = path.split_once('*').unwrap_or((path, ""));
        let is_glob = path.contains('*');
        let matches = |file: &&Source| match is_glob {
            true => file.path.starts_with(start) && file.path.ends_with(end),
            false => file.path.strip_suffix(path).is_some_and(|before| before.ends_with('/')),
        };
        let mut files = self.tree.files.iter().filter(matches);
        match (files.next(), files.next()) {
            (Some(_), None) => None,
            (Some(_), Some(_)) if is_glob => None,
            (Some(one), Some(other)) => {
                Some(format!("`{path}` may be {} or {}", one.path, other.path))
            }
            (None, _) if self.has_folder(path) => None,
            (None, _) => Some(format!("there is no file `{path}`")),
        }
    }

    /// Returns whether the last parts of a folder's path are these.
    fn has_folder(&self, path: &str) -> bool {
        let inner = format!("/{path}/");
        self.tree.files.iter().any(|file| file.path.contains(&inner))
    }

    fn name_fault(&self, name: &str, parts: &[&str]) -> Option<String> {
        let first = parts[0].strip_prefix("pelago_").unwrap_or(parts[0]);
        let exists = if self.crates.contains(first) {
            self.has_module_or_item(first, &parts[1..])
        } else {
            let homes: BTreeSet<&str> = self.homes_of_type(first).collect();
            let has_rest = |home: &str| self.declares_all(&format!("{home}/"), &parts[1..]);
            homes.is_empty() || homes.into_iter().any(has_rest)
        };
        (!exists).then(|| format!("nothing is called `{name}`"))
    }

    /// Returns the folders of the crates that declare a type of this name.
    fn homes_of_type(&self, name: &str) -> impl Iterator<Item = &'a str> {
        let is_type = name.starts_with(|letter: char| letter.is_ascii_uppercase());
        let files = self.declared.iter().filter(move |(_, names)| is_type && names.contains(name));
        files.filter_map(|(path, _)| path.split_once("/src/")).map(|(home, _)| home)
    }

    fn has_module_or_item(&self, package: &str, parts: &[&str]) -> bool {
        let homes = ["crates/", "lab/", ""].map(|parent| format!("{parent}{package}"));
        let has_sources = |home: &String| self.tree.has(&format!("{home}/src"));
        let Some(home) = homes.into_iter().find(has_sources) else { return false };
        ["src", "tests"].iter().any(|folder| {
            let mut scope = format!("{home}/{folder}");
            let mut rest = parts;
            while let [first, inner @ ..] = rest
                && self.is_module(&format!("{scope}/{first}"))
            {
                scope = format!("{scope}/{first}");
                rest = inner;
            }
            (*folder == "src" || rest.len() < parts.len()) && self.declares_all(&scope, rest)
        })
    }

    fn is_module(&self, path: &str) -> bool {
        let inner = format!("{path}/");
        self.declared.contains_key(format!("{path}.rs").as_str())
            || self
                .declared
                .range(inner.as_str()..)
                .next()
                .is_some_and(|(file, _)| file.starts_with(&inner))
    }

    /// Returns whether the files of a module declare all these names.
    fn declares_all(&self, scope: &str, names: &[&str]) -> bool {
        let files = || self.declared.range(scope..).take_while(|(path, _)| path.starts_with(scope));
        let is_inside =
            |path: &str| path[scope.len()..].starts_with(['/', '.']) || scope.ends_with('/');
        names
            .iter()
            .all(|name| files().any(|(path, declared)| is_inside(path) && declared.contains(name)))
    }
}

/// Returns the crate of a file of ours.
fn package(path: &str) -> Option<&str> {
    let (folder, _) = path.split_once("/src/")?;
    match folder {
        "lab" | "xtask" => Some(folder),
        _ => ["crates/", "lab/"].iter().find_map(|parent| folder.strip_prefix(parent)),
    }
}

/// Returns the names that a file declares: items, and what may be variants of an enum.
fn declared(file: &Source) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for line in file.text.lines().map(str::trim_start).filter(|line| !line.starts_with("//")) {
        let words = line.split_whitespace();
        let pairs = words.clone().zip(words.skip(1));
        names.extend(
            pairs.filter(|(kind, _)| KINDS.contains(kind)).map(|(_, name)| identifier(name)),
        );
        let first = identifier(line);
        if first.starts_with(|letter: char| letter.is_ascii_uppercase()) {
            names.insert(first);
        }
    }
    names
}

/// Returns the identifier at the begin of a text.
fn identifier(text: &str) -> &str {
    let is_end = |letter: char| !letter.is_alphanumeric() && letter != '_';
    &text[..text.find(is_end).unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(document: &str) -> Vec<String> {
        let files = [
            ("crates/meta/src/lib.rs", "mod shard;\npub use shard::Shard;\n"),
            ("crates/meta/src/shard.rs", "mod txn;\npub struct Shard;\n"),
            (
                "crates/meta/src/shard/txn.rs",
                "pub(crate) fn commit() {}\nenum Way {\n    Fast,\n}\n",
            ),
            ("crates/meta/src/shard/tests/tags.rs", "fn a_tag_stays() {}\n"),
            ("crates/meta/src/table/tests/tags.rs", ""),
            ("crates/cli/src/main.rs", ""),
            ("crates/cli/tests/crash.rs", "fn it_survives() {}\n"),
            ("docs/a.md", ""),
        ];
        let source =
            |(path, text): (&str, &str)| Source { path: path.to_owned(), text: text.to_owned() };
        let mut files: Vec<Source> = files.map(source).into();
        files.push(source(("docs/b.md", document)));
        let mut found = Findings::default();
        check(&Tree::of(files), &mut found);
        found.0
    }

    #[test]
    fn a_path_leads_to_one_file() {
        let right = "`shard/txn.rs`, `docs/a.md`, `a.md`, `crates/meta/src/shard/`, `shard/tests`\n\
                     `crates/meta/src/{shard,lib}.rs`, `crates/meta/src/*/tests/tags.rs`\n\
                     `/etc/x.toml`, `alive/`, `cp a.rs b.rs`, `*.md`\n```\n`no.rs`\n```\n";
        assert!(found_in(right).is_empty(), "{:?}", found_in(right));
        let gone = found_in("`shard/lost.rs` and\n`crates/lost`, it was `old.rs`");
        assert_eq!(
            gone,
            [
                "docs/b.md:1: there is no file `shard/lost.rs`",
                "docs/b.md:2: there is no file `crates/lost`",
            ]
        );
        assert_eq!(found_in("`tests/tags.rs`").len(), 1);
    }

    #[test]
    fn a_name_of_ours_is_declared() {
        let right = "`meta::shard`, `meta::Shard`, `meta::shard::txn::commit()`\n\
                     `meta::shard::{txn, Shard}`, `Way::Fast`, `std::lost`, `cli::crash`, `a::b`\n\
                     `cli::crash::it_survives`, `pelago_meta::Shard`, `meta::shard::Way::Fast`";
        assert!(found_in(right).is_empty(), "{:?}", found_in(right));
        for wrong in
            ["meta::lost", "meta::shard::lost", "Way::Slow", "cli::lost", "meta::txn::commit"]
        {
            let expected = format!("docs/b.md:1: nothing is called `{wrong}`");
            assert_eq!(found_in(&format!("`{wrong}`")), [expected]);
        }
    }
}
