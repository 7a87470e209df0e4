//! Lists that documents state, against the code: workers, verbs and their options, fields of JSON,
//! suites of tests, and the verbs of `cargo xtask` that they name.

use std::collections::BTreeSet;

use super::derived::Derived;
use super::sizes::production;
use super::tree::{Source, Tree};
use super::{Findings, table};
use crate::test;

/// The table of the suites that `xtask test` treats differently.
pub(super) const SUITES: Derived = Derived {
    source: "xtask/src/test/suite.rs",
    document: TESTING,
    name: "suites",
    table: |_| Ok(test::table_of_suites()),
};

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const CLI: &str = "docs/cli.md";
const TESTING: &str = "docs/testing.md";

/// The file that names the workers.
const WORKERS: &str = "crates/server/src/server/core.rs";
/// Begins the code that makes the workers' handles, with their names as its only strings.
const NAMES: &str = "impl WorkerNotifies {";

/// An enum of verbs, and the verb before them.
struct Verbs {
    path: &'static str,
    head: &'static str,
    before: &'static str,
}

const VERBS: &[Verbs] = &[
    Verbs { path: "crates/cli/src/verbs.rs", head: "enum Verb {", before: "" },
    Verbs { path: "crates/cli/src/verbs/bench.rs", head: "enum Benchmark {", before: "bench " },
    Verbs { path: "crates/cli/src/verbs/key.rs", head: "enum KeyVerb {", before: "key " },
    Verbs { path: "crates/cli/src/verbs/site.rs", head: "enum SiteVerb {", before: "site " },
];
/// An option that has a letter, by which docs/cli.md names it.
const BY_LETTER: &str = "--volume";
/// The verb that clap adds.
const HELP: &str = "help";

/// The file with the verbs of `cargo xtask`.
const TASKS: &str = "xtask/src/main.rs";

/// Files and folders below `tests` that are no suites.
const NO_SUITES: &[&str] = &["harness", "common", "golden"];

/// Reports lists that differ.
pub(super) fn check(tree: &Tree, found: &mut Findings) {
    check_workers(tree, found);
    check_verbs(tree, found);
    check_options(tree, found);
    check_json(tree, found);
    check_suites(tree, found);
    check_tasks(tree, found);
}

/// The names that a document or a source states.
struct List {
    place: &'static str,
    names: BTreeSet<String>,
}

impl List {
    /// Reports names of this list that the code has not, and the other way round.
    fn compare(&self, code: &Self, found: &mut Findings) {
        if code.names.is_empty() {
            found.of(code.place, "has no such list; mend xtask/src/tidy/lists.rs");
        }
        for name in code.names.difference(&self.names) {
            found.of(self.place, format_args!("has no row of `{name}`, which {} has", code.place));
        }
        for name in self.names.difference(&code.names) {
            let what = format!("has a row of `{name}`, which {} has not", code.place);
            found.of(self.place, what);
        }
    }
}

/// Returns the words in backticks in the column of this name.
fn column(document: &Source, name: &str) -> BTreeSet<String> {
    let rows = table::rows(&document.text);
    let cells = rows.iter().filter_map(|row| row.get(name));
    let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    words.map(str::to_owned).collect()
}

fn check_workers(tree: &Tree, found: &mut Findings) {
    let (Some(document), Some(source)) = (tree.file(ARCHITECTURE), tree.file(WORKERS)) else {
        return;
    };
    let names = source.text.split(NAMES).nth(1).unwrap_or_default();
    let names = names.split("\n}").next().unwrap_or_default();
    let names = names.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    let stated = List { place: ARCHITECTURE, names: column(document, "worker") };
    stated.compare(&List { place: WORKERS, names }, found);
}

fn check_verbs(tree: &Tree, found: &mut Findings) {
    let Some(document) = tree.file(CLI) else { return };
    let mut actual = BTreeSet::from([HELP.to_owned()]);
    for Verbs { path, head, before } in VERBS {
        let Some(source) = tree.file(path) else { continue };
        let variants = source.text.split(head).nth(1).unwrap_or_default();
        let variants = variants.lines().take_while(|line| *line != "}").filter_map(variant);
        actual.extend(variants.map(|variant| format!("{before}{variant}")));
    }
    // A verb of two words stands for the first one too.
    let first = |verb: &String| verb.split_once(' ').map(|(first, _)| first.to_owned());
    let firsts: BTreeSet<String> = actual.iter().filter_map(first).collect();
    actual.retain(|verb| !firsts.contains(verb));
    let stated = List { place: CLI, names: column_of_verbs(document, &firsts) };
    stated.compare(&List { place: "crates/cli/src/verbs", names: actual }, found);
}

/// Returns the verbs of the table's first column: `key new` of "key new --path FILE".
fn column_of_verbs(document: &Source, firsts: &BTreeSet<String>) -> BTreeSet<String> {
    // A bar in a cell is written `\|`.
    let text = document.text.replace("\\|", "/");
    let document = Source { path: document.path.clone(), text };
    let verbs = column(&document, "verb").into_iter().flat_map(|span| {
        let mut words = span.split(' ');
        let first = words.next().unwrap_or_default().to_owned();
        match words.next().filter(|_| firsts.contains(&first)) {
            Some(second) => second.split('/').map(|second| format!("{first} {second}")).collect(),
            None => vec![first],
        }
    });
    verbs.collect()
}

/// Returns the verb of a line `    Name(…),` or `    Name,`.
fn variant(line: &str) -> Option<String> {
    let name = line.strip_prefix("    ")?;
    let end = name.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(name.len());
    let name = &name[..end];
    name.starts_with(|letter: char| letter.is_ascii_uppercase()).then(|| name.to_lowercase())
}

/// Reports options that docs/cli.md does not name. Those of benchmarks are in their help alone.
fn check_options(tree: &Tree, found: &mut Findings) {
    let Some(document) = tree.file(CLI) else { return };
    let is_of_verbs = |file: &&Source| {
        let inner = file.path.strip_prefix("crates/cli/src/");
        inner.is_some_and(|inner| !inner.starts_with("verbs/bench"))
    };
    for file in tree.rust().filter(is_of_verbs) {
        let mut is_long = false;
        let mut is_hidden = false;
        for (index, line) in production(file).lines().enumerate() {
            let line = line.trim_start();
            let is_attribute = line.starts_with("#[arg(");
            is_long |= is_attribute && line.contains("long");
            is_hidden |= is_attribute && line.contains("hide = true");
            let name = line.split(": ").next().and_then(|name| name.split(' ').next_back());
            let Some(name) = name.filter(|_| is_long && !line.starts_with(['#', '/'])) else {
                continue;
            };
            // A keyword of Rust is written with `r#`.
            let name = name.trim_start_matches("r#");
            let option = format!("--{}", name.replace('_', "-"));
            if !is_hidden && option != BY_LETTER && !document.text.contains(&option) {
                found.at(&file.path, index + 1, format_args!("{CLI} does not name `{option}`"));
            }
            is_long = false;
            is_hidden = false;
        }
    }
}

/// Reports fields that verbs print as JSON and that docs/cli.md does not name. Benchmarks print
/// what they measure, and the status has a test of its own.
fn check_json(tree: &Tree, found: &mut Findings) {
    let Some(document) = tree.file(CLI) else { return };
    let json = document.text.split("\n## JSON").nth(1).unwrap_or_default();
    let json = json.split("\n## ").next().unwrap_or_default();
    let verbs = |file: &&Source| {
        let inner = file.path.strip_prefix("crates/cli/src/verbs/");
        inner.is_some_and(|inner| !inner.starts_with("bench"))
    };
    for file in tree.rust().filter(verbs) {
        for (line, key) in keys(production(file)) {
            let is_named = [format!("`{key}`"), format!(".{key}`"), format!("`{key}.")];
            if !is_named.iter().any(|name| json.contains(name)) {
                found.at(&file.path, line, format_args!("{CLI} does not name the field `{key}`"));
            }
        }
    }
}

/// Returns the keys of objects, `"key":`, each with its line (from 1).
fn keys(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.lines().enumerate().flat_map(|(index, line)| {
        let is_key = |key: &&str| key.chars().all(|it| it.is_ascii_lowercase() || it == '_');
        let keys = line.match_indices("\": ").filter_map(|(at, _)| line[..at].rsplit('"').next());
        keys.filter(|key| !key.is_empty()).filter(is_key).map(move |key| (index + 1, key))
    })
}

/// Reports tests of crates that docs/testing.md does not name, by file or by folder.
fn check_suites(tree: &Tree, found: &mut Findings) {
    let Some(document) = tree.file(TESTING) else { return };
    let spans: BTreeSet<&str> = document.text.split('`').collect();
    let mut suites = BTreeSet::new();
    for file in tree.rust() {
        let Some((package, inner)) = file.path.split_once("/tests/") else { continue };
        let name = inner.split('/').next().unwrap_or_default();
        // A file beside others that has only their `mod` lines links them, and tests nothing.
        let links = !inner.contains('/') && !file.text.contains("#[test]");
        if !package.contains("/src") && !links && !NO_SUITES.contains(&name) {
            suites.insert(format!("{package}/tests/{name}"));
        }
    }
    for suite in suites {
        let folder = suite.rsplit_once('/').map_or("", |(folder, _)| folder);
        let stem = suite.strip_suffix(".rs").unwrap_or(&suite);
        if ![folder, stem, &suite].iter().any(|path| spans.contains(*path)) {
            found.of(TESTING, format_args!("does not name `{suite}`"));
        }
    }
}

/// Reports verbs of `cargo xtask` in documents that it has not.
fn check_tasks(tree: &Tree, found: &mut Findings) {
    let Some(source) = tree.file(TASKS) else { return };
    let names = source.text.split("name: \"").skip(1);
    let names: BTreeSet<&str> = names.filter_map(|rest| rest.split('"').next()).collect();
    let is_end = |letter: char| !letter.is_ascii_lowercase() && letter != '-';
    for file in tree.markdown() {
        for (index, line) in file.text.lines().enumerate() {
            for rest in line.split("cargo xtask ").skip(1) {
                let verb = &rest[..rest.find(is_end).unwrap_or(rest.len())];
                if !verb.is_empty() && !names.contains(verb) {
                    let what = format!("there is no `cargo xtask {verb}`");
                    found.at(&file.path, index + 1, what);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    fn found_in(check: fn(&Tree, &mut Findings), files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| source(path, text));
        let mut found = Findings::default();
        check(&Tree::of(files.collect()), &mut found);
        found.0
    }

    #[test]
    fn workers_are_those_of_the_server() {
        let code = "impl WorkerNotifies {\n    f(\"a\", \"b\")\n}\nfn g() { \"c\" }\n";
        let table = "| worker | does |\n|---|---|\n| `a` | x |\n| `c` | y |\n";
        let found = found_in(check_workers, &[(WORKERS, code), (ARCHITECTURE, table)]);
        let [one, other] = ["no row of `b`, which", "a row of `c`, which"];
        assert_eq!(
            found,
            [
                format!("ARCHITECTURE.md: has {one} {WORKERS} has"),
                format!("ARCHITECTURE.md: has {other} {WORKERS} has not"),
            ]
        );
        assert_eq!(found_in(check_workers, &[(WORKERS, ""), (ARCHITECTURE, "")]).len(), 1);
    }

    #[test]
    fn verbs_are_those_of_the_binary() {
        let verbs = "pub enum Verb {\n    /// Text.\n    Up(up::Args),\n    Key(key::Args),\n}\n";
        let keys = "enum KeyVerb {\n    New(Args),\n    List,\n}\nenum Other {\n    X,\n}\n";
        let found = |rows: &str| {
            let table = format!("| verb | does |\n|---|---|\n{rows}| `help [VERB]` | helps |\n");
            let files = [("verbs.rs", verbs), ("verbs/key.rs", keys)]
                .map(|(path, text)| (format!("crates/cli/src/{path}"), text));
            let mut files: Vec<(&str, &str)> =
                files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
            files.push((CLI, &table));
            found_in(check_verbs, &files)
        };
        let rows = "| `up [DIR]` | x |\n| `key new\\|list` | y |\n";
        assert!(found(rows).is_empty(), "{:?}", found(rows));
        assert_eq!(found("| `up` | x |\n| `key new`, `down` | y |\n").len(), 2);
    }

    #[test]
    fn options_of_verbs_are_documented() {
        let code = "struct Args {\n    #[arg(long)]\n    /// It.\n    no_find: bool,\n\
                    #[arg(short = 'V', long)]\n    volume: P,\n    #[arg(long, hide = true)]\n\
                    in_background: bool,\n    dir: P,\n    #[arg(long, value_name = \"N\")]\n\
                    pub(crate) lost_one: u64,\n}\n";
        let files = [("crates/cli/src/verbs/up.rs", code), (CLI, "`--find`, `--no-find`")];
        let lost = "crates/cli/src/verbs/up.rs:11: docs/cli.md does not name `--lost-one`";
        assert_eq!(found_in(check_options, &files), [lost]);
    }

    #[test]
    fn fields_of_verbs_are_documented() {
        let code = "json!({ \"paths\": a, \"as_of\": b, \"lost\": c })\n";
        let document = "\n## JSON\n\n`paths`, `x.as_of`\n\n## More\n\n`lost`\n";
        let files = [("crates/cli/src/verbs/find.rs", code), (CLI, document)];
        let lost = "crates/cli/src/verbs/find.rs:1: docs/cli.md does not name the field `lost`";
        assert_eq!(found_in(check_json, &files), [lost]);
        let files = [("crates/cli/src/verbs/bench/find.rs", code), (CLI, document)];
        assert!(found_in(check_json, &files).is_empty());
    }

    #[test]
    fn suites_are_named_by_file_or_folder() {
        let test = "#[test]\nfn f() {}\n";
        let files = [
            (TESTING, "`crates/a/tests`, `crates/b/tests/one.rs`, `crates/b/tests/two`"),
            ("crates/a/tests/any.rs", test),
            ("crates/b/tests/one.rs", test),
            ("crates/b/tests/two/main.rs", test),
            ("crates/b/tests/three.rs", test),
            ("crates/b/tests/all.rs", "mod one;\n"),
            ("crates/b/tests/harness/all.rs", test),
            ("crates/b/src/x/tests/four.rs", test),
        ];
        let lost = "docs/testing.md: does not name `crates/b/tests/three.rs`";
        assert_eq!(found_in(check_suites, &files), [lost]);
    }

    #[test]
    fn verbs_of_xtask_exist() {
        let code = "Verb { name: \"sim\", x }, Verb { name: \"sim-mutants\" }";
        let text = "`cargo xtask sim-mutants [WORD]`, `cargo xtask`, cargo xtask VERB\n\
                    cargo xtask lost 1\n";
        let found = found_in(check_tasks, &[(TASKS, code), ("docs/a.md", text)]);
        assert_eq!(found, ["docs/a.md:2: there is no `cargo xtask lost`"]);
    }
}
