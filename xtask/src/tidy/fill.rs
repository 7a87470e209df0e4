//! Fills paragraphs of documents: a line breaks only if the next word does not fit.
//!
//! The check compares a document with its filled form, and `tidy --write` writes that form.
//! Headings, tables, code and comments stay as they are.

use std::fs;
use std::path::Path;

use super::Findings;
use super::sizes::LINE_LETTERS;
use super::tree::Tree;

/// Reports the first line of each paragraph that is not filled.
pub(super) fn check(tree: &Tree, found: &mut Findings) {
    for file in tree.markdown() {
        for (line, paragraph) in paragraphs(&file.text) {
            if filled(&paragraph) != paragraph {
                found.at(&file.path, line, "the paragraph is not filled; `tidy --write`");
            }
        }
    }
}

/// Fills each paragraph of each document.
pub(super) fn write(root: &Path) -> Result<(), String> {
    for file in Tree::read(root)?.markdown() {
        let text = filled_document(&file.text);
        if text != file.text {
            fs::write(root.join(&file.path), text)
                .map_err(|why| format!("cannot write {}: {why}", file.path))?;
        }
    }
    Ok(())
}

fn filled_document(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let filled: Vec<(usize, usize, Vec<String>)> = paragraphs(text)
        .into_iter()
        .map(|(line, paragraph)| (line - 1, paragraph.len(), filled(&paragraph)))
        .collect();
    // The last paragraph first, so that the line numbers of the others stay valid.
    for (at, length, paragraph) in filled.iter().rev() {
        lines.splice(*at..at + length, paragraph.iter().map(String::as_str));
    }
    lines.join("\n") + "\n"
}

/// Returns the paragraphs of a document, each with the number (from 1) of its first line.
fn paragraphs(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut found: Vec<(usize, Vec<String>)> = Vec::new();
    let mut is_code = false;
    let mut is_open = false;
    let mut next = 1;
    for (index, line) in text.lines().enumerate() {
        let words = line.trim_start();
        let is_fence = words.starts_with("```") || words.starts_with("~~~");
        is_code ^= is_fence;
        if is_code || is_fence || is_kept(words) || is_indented_code(line, is_open) {
            is_open = false;
            continue;
        }
        // As in CommonMark, a number inside a paragraph begins an item only if it is the first or
        // the next one: "files have mode\n0600. Folders" is no list.
        let number = number(line);
        let is_item = marker(line) > 0
            && (!is_open || number.is_none_or(|number| number == 1 || number == next));
        match found.last_mut() {
            Some((_, paragraph)) if is_open && !is_item => paragraph.push(line.to_owned()),
            _ => found.push((index + 1, vec![line.to_owned()])),
        }
        if let (true, Some(number)) = (is_item, number) {
            next = number.saturating_add(1);
        }
        is_open = true;
    }
    // A backslash at the end of a line is a line break that the author wants.
    found.retain(|(_, paragraph)| !paragraph.iter().any(|line| line.ends_with('\\')));
    found
}

/// Returns whether a line is outside any paragraph: it is empty, a heading, a table, a quotation,
/// HTML, a rule, or the target of a link.
fn is_kept(words: &str) -> bool {
    let is_rule = words.len() > 2 && words.chars().all(|letter| "-=*_ ".contains(letter));
    let is_target = words.starts_with('[') && words.contains("]: ");
    words.is_empty() || words.starts_with(['#', '|', '>', '<']) || is_rule || is_target
}

/// Four blanks begin code, unless they continue a paragraph or a list.
fn is_indented_code(line: &str, is_open: bool) -> bool {
    !is_open && line.starts_with("    ") && marker(line) == 0
}

/// Returns the length of the marker that begins an item of a list, its blank included; else 0.
fn marker(line: &str) -> usize {
    let word = line.split_whitespace().next().unwrap_or_default();
    let has_text = line.trim_start()[word.len()..].starts_with(' ');
    let is_marker = has_text && (number(line).is_some() || ["-", "+", "*"].contains(&word));
    if is_marker { word.len() + 1 } else { 0 }
}

/// Returns the number of an item of an ordered list.
fn number(line: &str) -> Option<u32> {
    let word = line.split_whitespace().next()?.strip_suffix(['.', ')'])?;
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok())?
}

/// Returns a paragraph with as many words on each line as fit.
fn filled(paragraph: &[String]) -> Vec<String> {
    let first = paragraph.first().map_or("", String::as_str);
    let margin = first.len() - first.trim_start().len();
    let hanging = margin + marker(first);
    let (head, rest) = first.split_at(hanging);
    let mut text = rest.trim_start().to_owned();
    for line in &paragraph[1..] {
        text = format!("{text} {}", line.trim());
    }
    let mut lines = Vec::new();
    let mut line = head.to_owned();
    let mut is_empty = true;
    for unit in units(&text) {
        let fits = letters(&line) + 1 + letters(&unit) <= LINE_LETTERS;
        if !is_empty && !fits {
            lines.push(std::mem::replace(&mut line, " ".repeat(hanging)));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(&unit);
        is_empty = false;
    }
    lines.push(line);
    lines
}

fn letters(text: &str) -> usize {
    text.chars().count()
}

/// Returns what a line break may not divide: words, code between backticks, a number and its
/// percent sign, and a word with a next one that would begin a list or a heading.
fn units(text: &str) -> Vec<String> {
    let has_whole_code = text.matches('`').count().is_multiple_of(2);
    let mut units: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match units.last_mut() {
            Some(unit)
                if has_whole_code && is_inside_code(unit)
                    || word.starts_with('%')
                    || begins_block(word) =>
            {
                unit.push(' ');
                unit.push_str(word);
            }
            _ => units.push(word.to_owned()),
        }
    }
    units
}

fn is_inside_code(unit: &str) -> bool {
    !unit.matches('`').count().is_multiple_of(2)
}

/// Returns whether a line that begins with this word would begin another block.
fn begins_block(word: &str) -> bool {
    is_kept(word) || marker(&format!("{word} x")) > 0 || word.starts_with("```")
}

#[cfg(test)]
mod tests {
    use super::super::tree::Source;
    use super::*;

    fn found_in(text: &str) -> Vec<String> {
        let file = Source { path: "a.md".to_owned(), text: text.to_owned() };
        let mut found = Findings::default();
        check(&Tree::of(vec![file]), &mut found);
        found.0
    }

    /// Words of ten letters; nine fit on a line.
    fn words(count: usize) -> String {
        vec!["abcdefghij"; count].join(" ")
    }

    #[test]
    fn a_break_before_a_word_that_fits_is_found() {
        let filled = format!("{}\n{}\n", words(9), words(3));
        assert!(found_in(&filled).is_empty());
        let ragged = format!("# Head\n\n{}\norphan\n{}\n", words(9), words(8));
        assert_eq!(found_in(&ragged), ["a.md:3: the paragraph is not filled; `tidy --write`"]);
        let fixed = format!("# Head\n\n{}\norphan {}\n", words(9), words(8));
        assert_eq!(filled_document(&ragged), fixed);
    }

    #[test]
    fn a_line_that_is_too_long_is_broken() {
        let text = format!("{}\n", words(12));
        assert_eq!(filled_document(&text), format!("{}\n{}\n", words(9), words(3)));
    }

    #[test]
    fn items_of_a_list_are_filled_by_themselves() {
        let short = "- one\n- two\n  1. three\n  2. four\n\nfive\n\n    code\n    code\n";
        assert!(found_in(short).is_empty(), "{:?}", found_in(short));
        let ragged = format!("1. {}\nfour fives\n   - six\n     seven\n", words(8));
        let fixed = format!("1. {} four\n   fives\n   - six seven\n", words(8));
        assert_eq!(filled_document(&ragged), fixed);
    }

    #[test]
    fn a_number_at_the_start_of_a_line_is_not_an_item() {
        let text = format!("{} mode\n0600. Folders\n", words(9));
        assert_eq!(filled_document(&text), format!("{}\nmode 0600. Folders\n", words(9)));
        let items = "one:\n1. two\n2. three\n   - four\n3. five\n";
        assert!(found_in(items).is_empty(), "{:?}", found_in(items));
    }

    #[test]
    fn tables_code_headings_and_comments_stay() {
        let text = "# a\n## b\n| a |\n|---|\n| b |\n```text\na\nb\n```\n<!-- a -->\n<!-- b -->\n\
                    ---\n> a\n> b\n[a]: b\n[c]: d\n";
        assert!(found_in(text).is_empty(), "{:?}", found_in(text));
        assert_eq!(filled_document(text), text);
    }

    #[test]
    fn a_long_link_may_leave_a_short_line_before_it() {
        let link = format!("[a](https://{})", "x".repeat(90));
        assert!(found_in(&format!("see\n{link}\nfor more\n")).is_empty());
        let code = format!("`{}`", words(4));
        assert!(found_in(&format!("{}\n{code} and so on\n", words(7))).is_empty());
    }

    /// A plus sign at the start of a line would begin a list, a hash a heading.
    #[test]
    fn a_break_never_makes_another_block() {
        let text = format!("{} abcdefgh + 1 and 2 # 3\n", words(8));
        let lines = filled(&[text.trim_end().to_owned()]);
        assert_eq!(lines, [format!("{} abcdefgh + 1", words(8)), "and 2 # 3".to_owned()]);
        let text = format!("{} abcdefghijk + 1\n", words(8));
        let lines = filled(&[text.trim_end().to_owned()]);
        assert_eq!(lines, [words(8), "abcdefghijk + 1".to_owned()]);
    }

    #[test]
    fn a_line_break_by_backslash_stays() {
        assert!(found_in("one\\\ntwo\n").is_empty());
    }

    #[test]
    fn filling_twice_changes_nothing() {
        let root = crate::workspace::root();
        for file in Tree::read(&root).unwrap().markdown() {
            let once = filled_document(&file.text);
            assert_eq!(filled_document(&once), once, "{}", file.path);
        }
    }
}
