//! Sizes of files and lines. Clippy holds those of functions (`clippy.toml`).

use std::collections::BTreeMap;

use super::Findings;
use super::tree::{Source, Tree};

/// Most production lines of a Rust file: those above its tests.
const PRODUCTION_LINES: usize = 500;
/// Most lines of a Rust file, tests included.
const FILE_LINES: usize = 800;
/// Most characters of a line.
pub(super) const LINE_LETTERS: usize = 100;

/// Reports files and lines above their limits. In Markdown tables and addresses may be long.
pub(super) fn check(tree: &Tree, found: &mut Findings) {
    for file in tree.rust() {
        for (lines, what, limit) in [
            (production_lines(file), "production lines", PRODUCTION_LINES),
            (file.text.lines().count(), "lines", FILE_LINES),
        ] {
            if lines > limit {
                found.of(&file.path, format_args!("{lines} {what}, the limit is {limit}"));
            }
        }
        check_line_lengths(file, |_| false, found);
    }
    let is_exempt = |line: &str| {
        let has_address = line.contains("http://") || line.contains("https://");
        has_address || line.trim_start().starts_with('|')
    };
    for file in tree.markdown() {
        check_line_lengths(file, is_exempt, found);
    }
}

/// Prints the sizes of each package: production lines, files, and the largest file.
pub(super) fn report(tree: &Tree) {
    let mut packages: BTreeMap<&str, Vec<(usize, &str)>> = BTreeMap::new();
    for file in tree.rust() {
        if let (Some((package, _)), lines @ 1..) =
            (file.path.split_once("/src/"), production_lines(file))
        {
            packages.entry(package).or_default().push((lines, &file.path));
        }
    }
    for (package, mut files) in packages {
        files.sort_unstable();
        let total: usize = files.iter().map(|(lines, _)| lines).sum();
        let median = files[files.len() / 2].0;
        let (largest, path) = files[files.len() - 1];
        let count = files.len();
        println!("report: {package}: {total} production lines in {count} files, median {median}");
        println!("report:     {largest} in {path}");
    }
}

/// Returns the code above `#[cfg(test)] mod tests { … }`, which stands last; nothing of a file of
/// tests.
pub(super) fn production(file: &Source) -> &str {
    if file.path.ends_with("/tests.rs") || file.path.contains("/tests/") {
        return "";
    }
    file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}

fn production_lines(file: &Source) -> usize {
    production(file).lines().count()
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
    fn tests_at_the_foot_of_a_file_are_not_production() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "//\n".repeat(250));
        assert!(found_in("a.rs", "//\n".repeat(500) + &tests).is_empty());
        assert_eq!(found_in("a.rs", "//\n".repeat(501) + &tests).len(), 1);
    }

    #[test]
    fn a_file_of_tests_may_be_longer() {
        assert!(found_in("a/tests.rs", "//\n".repeat(800)).is_empty());
        assert_eq!(found_in("a/tests.rs", "//\n".repeat(801)).len(), 1);
    }

    #[test]
    fn lines_are_measured_in_characters() {
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
