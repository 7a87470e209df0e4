//! Bindings: a `let` binds one thing, and a parameter is one thing.
//!
//! A tuple of names that is bound to a tuple of values packs two statements into one line; a tuple
//! pattern as a parameter packs two parameters. Both hide how much a function does. A tuple that a
//! call returns may be taken apart, and parameters of closures may be patterns: an iterator's items
//! are tuples.

use super::Findings;
use super::tree::Tree;

/// Reports such bindings.
pub(super) fn check(tree: &Tree, found: &mut Findings) {
    for file in tree.rust() {
        let code = without_text(&file.text);
        for at in packed_bindings(&code) {
            let what = "binds a tuple of names to a tuple of values: one statement for each";
            found.at(&file.path, line_of(&code, at), what);
        }
        for at in packed_parameters(&code) {
            found.at(&file.path, line_of(&code, at), "a parameter that is a tuple pattern");
        }
    }
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

/// Returns the places of statements such as `let (a, b) = (x, y);` and `(a, b) = (x, y);`.
fn packed_bindings(code: &str) -> Vec<usize> {
    let places = code.match_indices('(').map(|(at, _)| at);
    places.filter(|&at| begins_statement(&code[..at]) && is_packed(&code[at..])).collect()
}

/// Returns whether what follows is the beginning of a statement, or the pattern of a `let`.
fn begins_statement(before: &str) -> bool {
    let before = before.trim_end();
    // The condition of an `if let` binds what may not be there.
    let is_let = before.strip_suffix("let").is_some_and(|before| {
        let before = before.trim_end();
        !["if", "while", "&&"].iter().any(|word| before.ends_with(word))
    });
    is_let || before.ends_with([';', '{', '}'])
}

/// Returns whether this is a tuple of names, `=`, a tuple of values and `;`.
fn is_packed(code: &str) -> bool {
    let Some(names) = group(code) else { return false };
    let is_name = |letter: char| letter.is_alphanumeric() || "_., &*\n".contains(letter);
    if !has_comma(names) || !names[1..names.len() - 1].chars().all(is_name) {
        return false;
    }
    let mut rest = code[names.len()..].trim_start();
    if let Some(typed) = rest.strip_prefix(':') {
        let Some(types) = group(typed.trim_start()) else { return false };
        rest = typed.trim_start()[types.len()..].trim_start();
    }
    let Some(value) = rest.strip_prefix("= ").or_else(|| rest.strip_prefix("=\n")) else {
        return false;
    };
    let value = value.trim_start();
    let Some(values) = group(value) else { return false };
    has_comma(values) && value[values.len()..].trim_start().starts_with(';')
}

/// Returns the places of parameters of functions that are tuple patterns.
fn packed_parameters(code: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for (at, word) in code.match_indices("fn ") {
        let is_word = code[..at].ends_with(|before: char| before.is_whitespace()) || at == 0;
        let after = at + word.len();
        let Some(open) = code[after..].find('(').filter(|_| is_word) else { continue };
        let Some(parameters) = group(&code[after + open..]) else { continue };
        let mut depth = 0;
        let mut begins = false;
        for (offset, letter) in parameters.char_indices() {
            let is_typed = || {
                let pattern = group(&parameters[offset..]).unwrap_or_default();
                parameters[offset + pattern.len()..].trim_start().starts_with(':')
            };
            if letter == '(' && begins && is_typed() {
                found.push(after + open + offset);
            }
            match letter {
                '(' | '[' | '{' | '<' => depth += 1,
                '>' if parameters[..offset].ends_with('-') => {}
                ')' | ']' | '}' | '>' => depth -= 1,
                _ => {}
            }
            let is_first = offset == 0 || letter == ',' && depth == 1;
            begins = is_first || begins && letter.is_whitespace();
        }
    }
    found
}

/// Returns the group in round brackets with which the code begins.
fn group(code: &str) -> Option<&str> {
    if !code.starts_with('(') {
        return None;
    }
    let mut depth = 0;
    for (at, letter) in code.char_indices() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&code[..=at]);
        }
    }
    None
}

/// Returns whether a group has a comma of its own.
fn has_comma(group: &str) -> bool {
    let mut depth = 0;
    group.chars().any(|letter| {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        letter == ',' && depth == 1
    })
}

/// Returns the code with blanks in the place of comments and of the text of strings, so that
/// brackets in them do not count. Lines stay lines.
fn without_text(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(letter) = rest.chars().next() {
        let length = text_length(rest).unwrap_or(0);
        if length == 0 {
            code.push(letter);
            rest = &rest[letter.len_utf8()..];
            continue;
        }
        let blank = |letter| if letter == '\n' { '\n' } else { ' ' };
        code.extend(rest[..length].chars().map(blank));
        rest = &rest[length..];
    }
    code
}

/// Returns the bytes of the comment, string or character with which the source begins.
fn text_length(source: &str) -> Option<usize> {
    if source.starts_with("//") {
        return Some(source.find('\n').unwrap_or(source.len()));
    }
    if let Some(raw) = source.strip_prefix('r').filter(|raw| raw.starts_with(['#', '"'])) {
        let marks = raw.len() - raw.trim_start_matches('#').len();
        let text = raw[marks..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(marks));
        let length = text.find(&end).map_or(text.len(), |at| at + end.len());
        return Some(1 + marks + 1 + length);
    }
    if source.starts_with('"') {
        let mut escaped = false;
        let end = source.char_indices().skip(1).find(|&(_, letter)| {
            let is_end = letter == '"' && !escaped;
            escaped = letter == '\\' && !escaped;
            is_end
        });
        return Some(end.map_or(source.len(), |(at, _)| at + 1));
    }
    let character = source.strip_prefix('\'')?;
    // A lifetime has no second quote behind one letter.
    let length = match character.strip_prefix('\\') {
        Some(escape) => escape.char_indices().skip(1).find(|&(_, it)| it == '\'')?.0 + 1,
        None => character.chars().next()?.len_utf8(),
    };
    character[length..].starts_with('\'').then_some(length + 2)
}

#[cfg(test)]
mod tests {
    use super::super::tree::Source;
    use super::*;

    fn found_in(code: &str) -> Vec<String> {
        let mut found = Findings::default();
        let source = Source { path: "a.rs".to_owned(), text: code.to_owned() };
        check(&Tree::of(vec![source]), &mut found);
        found.0
    }

    #[test]
    fn a_tuple_of_names_is_not_bound_to_a_tuple_of_values() {
        for code in [
            "{ let (a, b) = (1, f(2)); }",
            "{ let (mut a, b): (u8, u8) =\n (1, 2); }",
            "{ x(); (self.a, b) = (1, \"(\"); }",
        ] {
            assert_eq!(found_in(code).len(), 1, "{code}");
        }
    }

    #[test]
    fn a_tuple_that_a_call_returns_is_taken_apart() {
        for code in [
            "{ let (a, b) = f(1, 2); }",
            "{ let (a, b) = (1, 2).into(); }",
            "{ let (Some(a), Some(b)) = (x, y) else { return }; }",
            "if let (a, Some(b)) = (x, y) {}",
            "// let (a, b) = (1, 2);",
            "{ x = (1, 2); f(a, b); }",
        ] {
            assert!(found_in(code).is_empty(), "{code}");
        }
    }

    #[test]
    fn a_parameter_is_not_a_tuple_pattern() {
        assert_eq!(found_in("fn f(&self, (a, b): (u8, u8)) {}").len(), 1);
        assert_eq!(found_in("fn f<T>(\n    a: Vec<u8>,\n    (b, c): T,\n) {}").len(), 1);
        for code in [
            "fn f(a: (u8, u8), b: fn(u8) -> u8, c: [(u8, u8); 2]) {}",
            "fn f(a: impl Fn(u8, (u8, u8))) { a.map(|(b, c)| b) }",
            "fn f((a, b) in (any::<u8>(), any::<u8>())) {}",
        ] {
            assert!(found_in(code).is_empty(), "{code}");
        }
    }
}
