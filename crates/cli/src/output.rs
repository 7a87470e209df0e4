//! Text for people, objects for machines.

use std::io::{self, Write};

use serde_json::Value;

use crate::failure::{Exit, Failure, Outcome};

/// The version of every object that `--json` prints. It grows when a field changes its meaning or
/// goes; new fields may come without.
pub(crate) const JSON_VERSION: u32 = 1;

/// Prints `text`, whose lines end themselves. A reader that went away is no failure.
pub(crate) fn print(text: &str) -> Outcome<()> {
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
    print(&format!("{object}\n"))
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
