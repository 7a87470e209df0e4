//! Files of a crate import in one direction: a circle of files is one file in pieces.
//!
//! A module and the modules inside it count as one thing, because Rust lets each use the other's
//! private items. An import of a reexported name counts as an import from its own file.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Findings;
use super::sizes::production;
use super::tree::Tree;

/// Segments of a path below the root of a crate, without `crate`.
type Path = Vec<String>;
type Graph = BTreeMap<Path, BTreeSet<Path>>;

/// Crates that are being divided: a circle in them is printed as a note and fails nothing. Without
/// crates in this list every circle counts.
const DIVIDING: &[&str] = &[];

/// Reports one shortest circle for each group of files that import each other; `notes` receives
/// those of crates in [`DIVIDING`].
pub(super) fn check(tree: &Tree, found: &mut Findings, notes: &mut Findings) {
    let mut packages: BTreeMap<&str, BTreeMap<Path, &str>> = BTreeMap::new();
    for file in tree.rust() {
        let Some((package, inner)) = file.path.split_once("/src/") else { continue };
        let code = production(file);
        if !code.is_empty() && !inner.starts_with("bin/") {
            packages.entry(package).or_default().insert(module(inner), code);
        }
    }
    for (package, modules) in packages {
        let graph = imports(&modules);
        let mut reported = BTreeSet::new();
        for module in graph.keys().filter(|module| !module.is_empty()) {
            let Some(circle) = circle(&graph, module) else { continue };
            if circle.iter().all(|module| !reported.contains(module)) {
                let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
                let into = if DIVIDING.contains(&package) { &mut *notes } else { &mut *found };
                into.of(package, format_args!("imports in a circle: {}", names.join(" → ")));
            }
            reported.extend(circle);
        }
    }
}

/// Returns the module of a file below `src`: none of `lib.rs`, `a` and `b` of `a/b.rs`.
fn module(inner: &str) -> Path {
    let stem = inner.strip_suffix(".rs").unwrap_or(inner);
    let parts = stem.split('/').filter(|part| !["lib", "main"].contains(part));
    parts.map(str::to_owned).collect()
}

fn imports(modules: &BTreeMap<Path, &str>) -> Graph {
    let mut exports = BTreeMap::new();
    for (module, code) in modules {
        for (at, word) in code.match_indices("use ").filter(|(at, _)| is_public(&code[..*at])) {
            for path in expanded(&code[at + word.len()..]) {
                let name = path.last().cloned().unwrap_or_default();
                exports.insert([module.as_slice(), &[name]].concat(), absolute(module, path));
            }
        }
    }
    let resolve = |mut path: Path| {
        for _ in 0..path.len() {
            let Some(whole) = exports.get(&path) else { break };
            path.clone_from(whole);
        }
        while !path.is_empty() && !modules.contains_key(&path) {
            path.pop();
        }
        path
    };
    let mut graph = Graph::new();
    for (module, code) in modules {
        let paths = paths_in(code).into_iter().map(|path| resolve(absolute(module, path)));
        let others = paths.filter(|other| !other.starts_with(module) && !module.starts_with(other));
        graph.insert(module.clone(), others.collect());
    }
    graph
}

/// Whether `pub` or `pub(…)` stands before.
fn is_public(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or_default().trim();
    line.starts_with("pub") && (line == "pub" || line.ends_with(')'))
}

/// Returns the paths that begin with `crate`, `self` or `super`, outside of comments.
fn paths_in(code: &str) -> Vec<Path> {
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: String = lines.flat_map(|line| [line, "\n"]).collect();
    let mut found = Vec::new();
    for start in ["crate::", "self::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back().unwrap_or(' ');
            if !before.is_alphanumeric() && before != '_' && before != ':' {
                found.extend(expanded(&code[at..]));
            }
        }
    }
    found
}

/// Returns the paths of a use tree: `a::b` and `a::c::d` for `a::{b, c::d}`.
fn expanded(tree: &str) -> Vec<Path> {
    let mut paths = Vec::new();
    expand(tree, &[], &mut paths);
    paths
}

/// Adds the paths of a use tree, and returns the text after it.
fn expand<'a>(mut text: &'a str, prefix: &[String], paths: &mut Vec<Path>) -> &'a str {
    let mut path = prefix.to_vec();
    loop {
        if let Some(group) = text.strip_prefix('{') {
            text = group.trim_start();
            while !text.is_empty() && !text.starts_with('}') {
                text = expand(text, &path, paths);
                let end = text.find([',', '}']).unwrap_or(text.len());
                text = text[end..].trim_start_matches(',').trim_start();
            }
            return text.strip_prefix('}').unwrap_or(text);
        }
        let is_end = |letter: char| !letter.is_alphanumeric() && letter != '_';
        let (name, rest) = text.split_at(text.find(is_end).unwrap_or(text.len()));
        path.push(name.to_owned());
        match rest.strip_prefix("::") {
            Some(inner) => text = inner,
            None => {
                paths.push(path);
                return rest;
            }
        }
    }
}

/// Returns the path from the root of the crate; `path` is written in `module`.
fn absolute(module: &[String], path: Path) -> Path {
    let mut base = module.to_vec();
    let mut rest = path.as_slice();
    while let [first, inner @ ..] = rest {
        match first.as_str() {
            "crate" => base.clear(),
            "super" => drop(base.pop()),
            "self" => {}
            _ => break,
        }
        rest = inner;
    }
    base.extend_from_slice(rest);
    base
}

/// Returns a shortest circle through a module, which is its first and its last element.
fn circle(graph: &Graph, start: &Path) -> Option<Vec<Path>> {
    let mut queue = VecDeque::from([vec![start.clone()]]);
    let mut seen = BTreeSet::new();
    while let Some(path) = queue.pop_front() {
        for next in graph.get(path.last()?).into_iter().flatten() {
            let longer = [path.as_slice(), std::slice::from_ref(next)].concat();
            if next == start {
                return Some(longer);
            }
            if seen.insert(next.clone()) {
                queue.push_back(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::tree::Source;
    use super::*;

    fn found_in(files: &[(&str, &str)]) -> Vec<String> {
        let source = |&(inner, text): &(&str, &str)| Source {
            path: format!("crates/x/src/{inner}"),
            text: text.to_owned(),
        };
        let mut found = Findings::default();
        let tree = Tree::of(files.iter().map(source).collect());
        check(&tree, &mut found, &mut Findings::default());
        found.0
    }

    #[test]
    fn two_files_that_import_each_other_are_found_once() {
        let found = found_in(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::{B, C as D};\n"),
            ("b.rs", "fn f() { super::a::g() }\n"),
        ]);
        assert_eq!(found, ["crates/x: imports in a circle: a → b → a"]);
    }

    #[test]
    fn an_export_counts_as_its_declaration() {
        let found = found_in(&[
            ("lib.rs", "pub use a::inner::{A, N};\nmod a;\nmod b;\n"),
            ("a.rs", "mod inner;"),
            ("a/inner.rs", "use crate::b::B;\n"),
            ("b.rs", "use crate::{\n    A,\n    c,\n};\n"),
            ("c.rs", ""),
        ]);
        assert_eq!(found, ["crates/x: imports in a circle: a::inner → b → a::inner"]);
    }

    #[test]
    fn a_module_and_its_parts_may_use_each_other() {
        let found = found_in(&[
            ("main.rs", "mod a;\npub(crate) struct R;\n"),
            ("a.rs", "use self::part::P;\nuse crate::R;\n"),
            ("a/part.rs", "use super::{A, other::O};\n"),
            ("a/other.rs", "use super::super::R;\n"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn comments_and_tests_import_nothing() {
        let found = found_in(&[
            ("a.rs", "use crate::b::B;\n"),
            ("b.rs", "/// See [`crate::a`].\n#[cfg(test)]\nmod tests {\nuse crate::a::A;\n}\n"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}
