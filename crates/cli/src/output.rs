//! Output of text for people and of JSON for programs, with control characters escaped.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use serde_json::Value;

use crate::failure::{Exit, Failure, Outcome};

/// Prints `text`, which contains its line ends. A closed pipe is not a failure. Except line ends,
/// characters that control a terminal are escaped, because other users choose paths and names.
pub(crate) fn print(text: &str) -> Outcome<()> {
    write_out(&escape(text, is_control_except_newline, escape_rust))
}

/// Prints lines to standard error, escaped as by [`print()`]. A failure to write is ignored.
pub(crate) fn print_error(text: &str) {
    let text = escape(text, is_control_except_newline, escape_rust);
    let _printed = writeln!(io::stderr(), "{text}");
}

/// Escapes a name that other users may have chosen, so that it is a part of one line.
pub(crate) fn name(name: &str) -> Cow<'_, str> {
    escape(name, is_control, escape_rust)
}

/// Returns whether a character can control a terminal, or change the direction of the text after
/// it.
fn is_control(sign: char) -> bool {
    let is_directional = matches!(sign, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(sign, '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}');
    sign.is_control() || is_directional
}

fn is_control_except_newline(sign: char) -> bool {
    is_control(sign) && sign != '\n'
}

fn escape(text: &str, which: impl Fn(char) -> bool, how: fn(&mut String, char)) -> Cow<'_, str> {
    if !text.contains(&which) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for sign in text.chars() {
        if which(sign) { how(&mut escaped, sign) } else { escaped.push(sign) }
    }
    Cow::Owned(escaped)
}

/// Escapes a character as in a Rust string.
fn escape_rust(to: &mut String, sign: char) {
    to.extend(sign.escape_unicode());
}

/// Escapes a character as in a JSON string. Each character for which [`is_control`] is true fits
/// into four digits.
fn escape_json(to: &mut String, sign: char) {
    let _infallible = write!(to, "\\u{:04x}", u32::from(sign));
}

fn write_out(text: &str) -> Outcome<()> {
    write_bytes(text.as_bytes()).map(drop)
}

fn write_bytes(bytes: &[u8]) -> Outcome<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Failed, error))
        }
        written => Ok(written.is_ok()),
    }
}

/// Prints bytes unchanged. Returns whether there is still a reader: `head` ends before a long
/// output ends.
pub(crate) fn print_bytes(bytes: &[u8]) -> Outcome<bool> {
    write_bytes(bytes)
}

/// Prints one object, on a line of its own.
pub(crate) fn print_json(object: &Value) -> Outcome<()> {
    write_out(&json_line(object))
}

/// Returns one object on a line of its own, without characters that control a terminal.
pub(crate) fn json_line(object: &Value) -> String {
    format!("{}\n", escape(&object.to_string(), is_control, escape_json))
}

/// Returns a count of bytes for people: two or three digits and a binary unit.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut scaled = bytes as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    if scaled < 9.95 { format!("{scaled:.1} {name}") } else { format!("{scaled:.0} {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVIL: &str = "a\u{1b}]0;x\u{7}\u{9b}\u{7f}\u{202e}é\r\nb\t";

    #[test]
    fn control_characters_of_a_name_are_escaped() {
        assert_eq!(name(EVIL), r"a\u{1b}]0;x\u{7}\u{9b}\u{7f}\u{202e}é\u{d}\u{a}b\u{9}");
    }

    #[test]
    fn a_harmless_name_is_unchanged() {
        assert!(matches!(name("/plain/é ü\\"), Cow::Borrowed("/plain/é ü\\")));
    }

    #[test]
    fn control_characters_in_json_are_escaped_and_survive() {
        let object = Value::String(EVIL.to_owned()).to_string();
        let object = escape(&object, is_control, escape_json);
        assert!(!object.chars().any(is_control), "{object:?}");
        assert_eq!(serde_json::from_str::<Value>(&object).unwrap(), EVIL);
    }

    #[test]
    fn bytes_are_short() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (10 << 10, "10 KiB"),
            (1023 << 10, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (count, said) in cases {
            assert_eq!(bytes(count), said);
        }
    }
}
