//! Just enough of Rust's lexical rules to count braces: code with its comments, strings and
//! character literals blanked out, line for line and column for column.

use std::iter;

/// A function and its length.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// Line of its `fn`, from 1.
    pub(super) line: usize,
    /// From `fn` to its closing brace.
    pub(super) lines: usize,
}

/// The text with blanks for all that is not code. Characters and lines stay where they are.
pub(super) fn blank(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < letters.len() {
        let end = literal_end(&letters, at);
        if end == at {
            code.push(letters[at]);
            at += 1;
        } else {
            let hidden = &letters[at..end];
            code.extend(hidden.iter().map(|&letter| if letter == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    code
}

/// Every function with a body in blanked code.
pub(super) fn functions(code: &str) -> Vec<Function> {
    let letters: Vec<char> = code.chars().collect();
    let mut found = Vec::new();
    let mut line = 1;
    for at in 0..letters.len() {
        if letters[at] == '\n' {
            line += 1;
        }
        let Some(name) = function_name(&letters, at) else { continue };
        let Some(body) = body_start(&letters, at) else { continue };
        let end = closing_brace(&letters, body);
        let breaks = letters[at..end].iter().filter(|&&letter| letter == '\n').count();
        found.push(Function { name, line, lines: breaks + 1 });
    }
    found
}

/// Lines of blanked code outside of `#[cfg(test)] mod … { … }`.
pub(super) fn production_lines(code: &str) -> usize {
    let letters: Vec<char> = code.chars().collect();
    let mut tests = 0;
    for (start, marker) in code.match_indices("#[cfg(test)]") {
        let from = code[..start].chars().count();
        let after = code[start + marker.len()..].trim_start();
        if after.starts_with("mod ")
            && let Some(body) = body_start(&letters, from + marker.len())
        {
            let end = closing_brace(&letters, body);
            tests += letters[from..end].iter().filter(|&&letter| letter == '\n').count() + 1;
        }
    }
    code.lines().count().saturating_sub(tests)
}

/// The end of the comment, string or character literal that begins at `at`, or `at`.
fn literal_end(letters: &[char], at: usize) -> usize {
    let next = letters.get(at + 1).copied();
    match letters[at] {
        '/' if next == Some('/') => line_end(letters, at),
        '/' if next == Some('*') => block_comment_end(letters, at),
        '"' => quoted_end(letters, at, '"'),
        '\'' => character_end(letters, at),
        'r' | 'b' | 'c' if !continues_word(letters, at) => prefixed_end(letters, at),
        _ => at,
    }
}

fn line_end(letters: &[char], at: usize) -> usize {
    let length = letters[at..].iter().take_while(|&&letter| letter != '\n').count();
    at + length
}

/// Block comments nest.
fn block_comment_end(letters: &[char], start: usize) -> usize {
    let (mut depth, mut at) = (0, start);
    while at < letters.len() {
        match (letters[at], letters.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    letters.len()
}

fn quoted_end(letters: &[char], start: usize, quote: char) -> usize {
    let mut at = start + 1;
    while at < letters.len() {
        match letters[at] {
            '\\' => at += 2,
            letter if letter == quote => return at + 1,
            _ => at += 1,
        }
    }
    letters.len()
}

/// A lifetime is not a character literal.
fn character_end(letters: &[char], at: usize) -> usize {
    let is_literal = letters.get(at + 1) == Some(&'\\') || letters.get(at + 2) == Some(&'\'');
    if is_literal { quoted_end(letters, at, '\'') } else { at }
}

/// `r"…"`, `r#"…"#`, `b"…"`, `b'…'`, `br#"…"#`, `c"…"`, `cr"…"`.
fn prefixed_end(letters: &[char], start: usize) -> usize {
    let mut at = start;
    if matches!(letters[at], 'b' | 'c') {
        at += 1;
    }
    match letters.get(at) {
        Some('"') => return quoted_end(letters, at, '"'),
        Some('\'') if letters[start] == 'b' => return quoted_end(letters, at, '\''),
        Some('r') => at += 1,
        _ => return start,
    }
    let hashes = letters[at..].iter().take_while(|&&letter| letter == '#').count();
    if letters.get(at + hashes) != Some(&'"') {
        return start;
    }
    let closing: Vec<char> = iter::once('"').chain(iter::repeat_n('#', hashes)).collect();
    let body = at + hashes + 1;
    let ends = letters[body..].windows(closing.len()).position(|window| window == closing);
    ends.map_or(letters.len(), |length| body + length + closing.len())
}

fn continues_word(letters: &[char], at: usize) -> bool {
    at > 0 && is_word(letters[at - 1])
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The name behind a `fn` at `at`; none for the type `fn(…)`.
fn function_name(letters: &[char], at: usize) -> Option<String> {
    let is_keyword = letters[at..].starts_with(&['f', 'n', ' ']) && !continues_word(letters, at);
    let name = letters.get(at + 3..)?.iter().take_while(|&&letter| is_word(letter));
    let name: String = name.collect();
    (is_keyword && !name.is_empty()).then_some(name)
}

/// The brace that opens a body; none if `;` comes first, as in a trait.
fn body_start(letters: &[char], from: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (offset, letter) in letters[from..].iter().enumerate() {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' if depth == 0 => return Some(from + offset),
            ';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Behind the brace that closes the one at `open`.
fn closing_brace(letters: &[char], open: usize) -> usize {
    let mut depth = 0_i32;
    for (offset, letter) in letters[open..].iter().enumerate() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return open + offset + 1;
        }
    }
    letters.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_blank() {
        for hidden in [
            "// { comment",
            "/* { /* nested { */ { */",
            r#""{ \" {""#,
            r##"r"{ \""##,
            r###"r#"{ " {"#"###,
            r##"br#"{"#"##,
            r#"b"{""#,
            r#"c"{""#,
            "'{'",
            r"'\''",
            r"b'\\'",
            r"b'{'",
            r"'\u{7b}'",
        ] {
            let code = blank(&format!("a {hidden}\nb"));
            let blanks = " ".repeat(hidden.chars().count());
            assert_eq!(code, format!("a {blanks}\nb"), "{hidden}");
        }
    }

    #[test]
    fn code_stays() {
        for code in
            ["fn f<'a>(x: &'a str) -> &'static str {}", "r#type + bar + c", "for br in b {}"]
        {
            assert_eq!(blank(code), code);
        }
    }

    #[test]
    fn columns_survive_wide_letters() {
        assert_eq!(blank("\"ä…\" {"), "     {");
    }

    #[test]
    fn functions_are_measured() {
        let code = "trait T { fn declared(&self); }\n\
                    type F = fn(u8);\n\
                    fn one() {}\n\
                    pub(crate) fn three(\n    list: [u8; 3],\n) {}\n\
                    impl T for X {\n    fn nested() {\n        fn inner() {}\n    }\n}\n";
        let found = functions(&blank(code));
        let found: Vec<_> = found.iter().map(|it| (it.name.as_str(), it.line, it.lines)).collect();
        assert_eq!(found, [("one", 3, 1), ("three", 4, 3), ("nested", 8, 3), ("inner", 9, 1)]);
    }

    #[test]
    fn tests_are_not_production() {
        let code = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        assert_eq!(production_lines(&blank(code)), 2);
        assert_eq!(production_lines("#[cfg(test)]\nmod tests;\nfn a() {}\n"), 3);
    }

    /// Whatever comes, the lexer ends and keeps the number of characters.
    #[test]
    fn broken_code_ends() {
        for broken in ["\"", "'\\", "r#\"", "/*", "fn x(", "fn x() {", "b'", "br##", "//"] {
            let code = blank(broken);
            assert_eq!(code.chars().count(), broken.chars().count(), "{broken}");
            functions(&code);
        }
    }
}
