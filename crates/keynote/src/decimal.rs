//! Decimal numbers in sentences of Pelago's own.

use std::str::FromStr;

/// Parses a number in its canonical form, without a sign or leading zeros: a signed text has no
/// second form.
pub(crate) fn number<T: FromStr + ToString>(text: &str) -> Option<T> {
    text.parse().ok().filter(|number: &T| number.to_string() == text)
}
