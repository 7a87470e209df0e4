//! Parsing of sizes on the command line, such as `4096`, `4KiB` and `1MiB`.

/// The reason why a text is not a size.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SizeError {
    /// It is not a number and a known unit.
    #[error("a size is a number and B, KiB, MiB or GiB")]
    Form,
    /// It exceeds 64 bits.
    #[error("the size is too large")]
    TooLarge,
}

/// Parses a size into bytes. Units are binary; without a unit the number is bytes.
pub(crate) fn parse(text: &str) -> Result<u64, SizeError> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(SizeError::Form);
    }
    let number: u64 = number.parse().map_err(|_| SizeError::TooLarge)?;
    let factor = match unit.trim_start() {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        _ => return Err(SizeError::Form),
    };
    number.checked_mul(factor).ok_or(SizeError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_binary() {
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("4KiB"), Ok(4096));
        assert_eq!(parse("1 MiB"), Ok(1 << 20));
        assert_eq!(parse("64K"), Ok(65_536));
        for wrong in ["", "KiB", "-1", "1.5MiB", "4kb", "1 2"] {
            assert_eq!(parse(wrong), Err(SizeError::Form), "{wrong}");
        }
        assert_eq!(parse("99999999999999999999"), Err(SizeError::TooLarge));
        assert_eq!(parse("99999999999GiB"), Err(SizeError::TooLarge));
    }
}
