//! Files that fit in the head, functions that fit on a screen.

use std::collections::BTreeMap;

use super::tree::{Source, Tree};
use super::{Findings, lexer};

/// Lines of a Rust file, tests included.
const FILE_LINES: usize = 800;
/// Production lines of a file above which `--report` asks why.
const ASK_FILE_LINES: usize = 500;
/// Lines of a function, from `fn` to its closing brace.
const FUNCTION_LINES: usize = 70;
/// Lines of a function above which `--report` asks why.
const ASK_FUNCTION_LINES: usize = 60;
/// Characters of a line.
pub(super) const LINE_LETTERS: usize = 100;

/// The hard limits.
pub(super) fn check(tree: &Tree, found: &mut Findings) {
    for file in tree.rust() {
        check_rust(file, found);
    }
    for file in tree.markdown() {
        let is_exempt = |line: &str| {
            line.trim_start().starts_with('|')
                || line.contains("http://")
                || line.contains("https://")
        };
        check_line_lengths(file, is_exempt, found);
    }
}

/// What is large without being too large, and how large each crate is.
pub(super) fn report(tree: &Tree) {
    let mut crates: BTreeMap<String, usize> = BTreeMap::new();
    for file in tree.rust() {
        let code = lexer::blank(&file.text);
        for function in lexer::functions(&code) {
            if function.lines > ASK_FUNCTION_LINES {
                let (name, lines) = (function.name, function.lines);
                println!("report: {}:{}: {name} has {lines} lines", file.path, function.line);
            }
        }
        let Some((package, _)) = file.path.split_once("/src/") else { continue };
        if file.path.ends_with("/tests.rs") || file.path.contains("/tests/") {
            continue;
        }
        let lines = lexer::production_lines(&code);
        *crates.entry(package.to_owned()).or_default() += lines;
        if lines > ASK_FILE_LINES {
            println!("report: {}: {lines} production lines", file.path);
        }
    }
    for (package, lines) in crates {
        println!("report: {package}: {lines} production lines");
    }
}

fn check_rust(file: &Source, found: &mut Findings) {
    let lines = file.text.lines().count();
    if lines > FILE_LINES {
        found.of(&file.path, format_args!("{lines} lines, the limit is {FILE_LINES}"));
    }
    for function in lexer::functions(&lexer::blank(&file.text)) {
        if function.lines > FUNCTION_LINES {
            let (name, lines) = (&function.name, function.lines);
            let what = format!("`{name}` has {lines} lines, the limit is {FUNCTION_LINES}");
            found.at(&file.path, function.line, what);
        }
    }
    check_line_lengths(file, |_| false, found);
}

fn check_line_lengths(file: &Source, is_exempt: impl Fn(&str) -> bool, found: &mut Findings) {
    for (index, line) in file.text.lines().enumerate() {
        let letters = line.chars().count();
        if letters > LINE_LETTERS && !is_exempt(line) {
            let what = format!("{letters} characters, the limit is {LINE_LETTERS}");
            found.at(&file.path, index + 1, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(path: &str, text: String) -> Vec<String> {
        let mut found = Findings::default();
        check(&Tree::of(vec![Source { path: path.to_owned(), text }]), &mut found);
        found.0
    }

    #[test]
    fn long_functions_files_and_lines_are_found() {
        let function = |inner: usize| format!("fn f() {{\n{}}}\n", "    x();\n".repeat(inner));
        assert!(found_in("a.rs", function(68)).is_empty());
        assert_eq!(found_in("a.rs", function(69)).len(), 1);
        assert!(found_in("a.rs", "//\n".repeat(800)).is_empty());
        assert_eq!(found_in("a.rs", "//\n".repeat(801)).len(), 1);
        assert!(found_in("a.rs", "ä".repeat(100)).is_empty());
        assert_eq!(found_in("a.rs", "ä".repeat(101)).len(), 1);
    }

    #[test]
    fn tables_and_addresses_may_be_long() {
        let long = "x".repeat(101);
        assert_eq!(found_in("a.md", long.clone()).len(), 1);
        assert!(found_in("a.md", format!("| {long} |\nhttps://{long}\n")).is_empty());
    }
}
