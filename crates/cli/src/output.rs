//! Text for people, objects for machines.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use serde_json::Value;

use crate::failure::{Exit, Failure, Outcome};

/// Prints `text`, whose lines end themselves. A reader that went away is no failure. Of what steers
/// a terminal, only ends of lines go through: paths and names are chosen by others.
pub(crate) fn print(text: &str) -> Outcome<()> {
    write_out(&escape(text, |sign| steers(sign) && sign != '\n', escape_rust))
}

/// Prints lines to the standard error output, as [`print()`] does. That nobody reads there is no
/// failure.
pub(crate) fn tell(text: &str) {
    let text = escape(text, |sign| steers(sign) && sign != '\n', escape_rust);
    let _told = writeln!(io::stderr(), "{text}");
}

/// A name that others chose, as a part of one line.
pub(crate) fn name(name: &str) -> Cow<'_, str> {
    escape(name, steers, escape_rust)
}

/// Whether a terminal takes a character for a command, or shows what follows in another order.
fn steers(sign: char) -> bool {
    let turns = matches!(sign, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(sign, '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}');
    sign.is_control() || turns
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

/// As in a Rust string.
fn escape_rust(to: &mut String, sign: char) {
    to.extend(sign.escape_unicode());
}

/// As in a string of JSON: all that [`steers`] takes has four digits at the most.
fn escape_json(to: &mut String, sign: char) {
    let _to_memory = write!(to, "\\u{:04x}", u32::from(sign));
}

fn write_out(text: &str) -> Outcome<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Failed, error))
        }
        _ => Ok(()),
    }
}

/// Prints one object, on a line of its own.
pub(crate) fn print_json(object: &Value) -> Outcome<()> {
    let object = object.to_string();
    write_out(&format!("{}\n", escape(&object, steers, escape_json)))
}

/// Bytes for a person: three digits and a binary unit.
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

    #[test]
    fn what_steers_a_terminal_is_shown() {
        let evil = "a\u{1b}]0;x\u{7}\u{9b}\u{7f}\u{202e}é\r\nb\t";
        let shown = name(evil);
        assert_eq!(shown, r"a\u{1b}]0;x\u{7}\u{9b}\u{7f}\u{202e}é\u{d}\u{a}b\u{9}");
        assert!(matches!(name("/plain/é ü\\"), Cow::Borrowed("/plain/é ü\\")));
        let object = Value::String(evil.to_owned()).to_string();
        let object = escape(&object, steers, escape_json);
        assert!(!object.chars().any(steers), "{object:?}");
        assert_eq!(serde_json::from_str::<Value>(&object).unwrap(), evil);
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
