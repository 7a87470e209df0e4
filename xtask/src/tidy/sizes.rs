//! Sizes: a limit for the letters of a line, and a report of what is largest.
//!
//! A long file, a long function or many parameters are a question to the reader, not an error: a
//! number that fails is met by packing (decision 42).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Findings;
use super::tree::{Source, Tree};

/// Entries of each list of the report.
const LARGEST: usize = 10;
/// Most characters of a line.
pub(super) const LINE_LETTERS: usize = 100;

/// Reports lines above the limit. In Markdown tables and addresses may be long.
pub(super) fn check(tree: &Tree, found: &mut Findings) {
    for file in tree.rust() {
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

/// Prints the production lines of each package, and the largest files, functions and lists of
/// parameters.
pub(super) fn report(tree: &Tree) {
    let mut packages: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut files = Vec::new();
    let mut functions = Vec::new();
    for file in tree.rust() {
        let Some((package, _)) = file.path.split_once("/src/") else { continue };
        let lines = production_lines(file);
        if lines == 0 {
            continue;
        }
        packages.entry(package).or_default().push(lines);
        files.push((lines, file.path.clone()));
        functions.extend(functions_of(file));
    }
    for (package, mut lines) in packages {
        lines.sort_unstable();
        let total: usize = lines.iter().sum();
        let count = lines.len();
        let median = lines[count / 2];
        println!("report: {package}: {total} production lines in {count} files, median {median}");
    }
    let lines = |function: &Function| (function.lines, function.place.clone());
    let parameters = |function: &Function| (function.parameters, function.place.clone());
    print_largest("production lines of a file", files);
    print_largest("lines of a function", functions.iter().map(lines).collect());
    print_largest("parameters of a function", functions.iter().map(parameters).collect());
}

fn print_largest(what: &str, mut sizes: Vec<(usize, String)>) {
    sizes.sort_unstable_by_key(|(size, _)| Reverse(*size));
    println!("report: most {what}:");
    for (size, place) in sizes.iter().take(LARGEST) {
        println!("report:     {size} {place}");
    }
}

/// The sizes of a function.
struct Function {
    /// Path, line and name.
    place: String,
    /// From its `fn` to its last bracket.
    lines: usize,
    /// Without `self`.
    parameters: usize,
}

/// Returns the functions above the tests of a file, as rustfmt leaves them: one ends with the first
/// closing bracket that is as far to the right as its `fn`, and its parameters are on the line of
/// the `fn`, or each on a line of its own.
fn functions_of(file: &Source) -> Vec<Function> {
    let lines: Vec<&str> = production(file).lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let code = code.strip_prefix("pub").map_or(code, |code| {
            code.strip_prefix('(').map_or(code, |code| code.split_once(')').map_or(code, |it| it.1))
        });
        let before = code.split("fn ").next().unwrap_or_default();
        let mut words = before.split_whitespace();
        let is_function = code.contains("fn ")
            && words.all(|word| ["const", "async", "unsafe", "extern", "\"C\""].contains(&word));
        // Without a body it is the declaration of a trait.
        let has_body = lines[index..]
            .iter()
            .find(|line| line.ends_with(['{', ';', '}']))
            .is_some_and(|line| line.ends_with('{'));
        if !is_function || !has_body {
            continue;
        }
        let rest = &lines[index..];
        let is_end = |it: &&str| indent(it) == indent(line) && it.trim_start().starts_with('}');
        let Some(end) = rest.iter().position(is_end) else { continue };
        let name = line.split("fn ").nth(1).and_then(|rest| rest.split(['(', '<']).next());
        let place = format!("{}:{}: {}", file.path, index + 1, name.unwrap_or_default());
        found.push(Function { place, lines: end + 1, parameters: parameters_of(rest) });
    }
    found
}

/// Counts the parameters of the function that begins here.
fn parameters_of(lines: &[&str]) -> usize {
    let is_self = |text: &str| {
        let text = text.trim().trim_start_matches('&').trim_start_matches("mut ");
        text.split([',', ':', ')']).next().is_some_and(|name| name.ends_with("self"))
    };
    if !lines[0].ends_with('(') {
        let colons = lines[0].split(" -> ").next().unwrap_or_default();
        return colons.matches(": ").count();
    }
    let parameters = lines[1..].iter().take_while(|line| !line.trim_start().starts_with(')'));
    parameters.filter(|line| line.ends_with(',') && !is_self(line)).count()
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
        let source = |path: &str, text: String| Source { path: path.to_owned(), text };
        assert_eq!(production_lines(&source("a.rs", "//\n".repeat(500) + &tests)), 500);
        assert_eq!(production_lines(&source("a/tests.rs", "//\n".repeat(500))), 0);
    }

    #[test]
    fn functions_are_measured() {
        let text = [
            "impl A {",
            "    pub(crate) fn one(&self, a: u8) -> (u8, u8) {",
            "        (a, a)",
            "    }",
            "    fn two(",
            "        &mut self,",
            "        a: u8,",
            "        b: u8,",
            "    ) {",
            "    }",
            "}",
        ]
        .join("\n");
        let source = Source { path: "a.rs".to_owned(), text };
        let sizes: Vec<_> = functions_of(&source)
            .into_iter()
            .map(|function| (function.place, function.lines, function.parameters))
            .collect();
        let expected = [("a.rs:2: one".to_owned(), 3, 1), ("a.rs:5: two".to_owned(), 6, 2)];
        assert_eq!(sizes, expected);
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
