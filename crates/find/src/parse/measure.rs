//! Parsing of sizes, ages and days.

use crate::day::Day;
use crate::error::{Position, QueryError};
use crate::expr::When;
use crate::syntax::{AGE_UNITS, SIZE_UNITS};

/// Parses a size at a position. Returns it in bytes.
pub(super) fn size(text: &str, at: Position) -> Result<u64, QueryError> {
    let (digits, unit) = split(text);
    let factor = if unit.is_empty() { Some(1) } else { factor_of(unit, &SIZE_UNITS) };
    let factor = factor.filter(|_| !digits.is_empty()).ok_or(QueryError::Size { at })?;
    product(digits, factor).ok_or(QueryError::LargeSize { at })
}

/// Parses an age or a day at a position.
pub(super) fn when(text: &str, at: Position) -> Result<When, QueryError> {
    let (digits, unit) = split(text);
    if let Some(seconds) = factor_of(unit, &AGE_UNITS).filter(|_| !digits.is_empty()) {
        let seconds = product(digits, seconds).ok_or(QueryError::LargeAge { at })?;
        return Ok(When::Ago(seconds));
    }
    Day::parse(text).map(When::Day).ok_or(QueryError::When { at })
}

/// Divides a text into its leading digits and the rest.
fn split(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(digits)
}

fn factor_of(unit: &str, units: &[(u8, u64)]) -> Option<u64> {
    units.iter().find(|(letter, _)| unit.as_bytes() == [*letter]).map(|(_, factor)| *factor)
}

fn product(digits: &str, factor: u64) -> Option<u64> {
    digits.parse::<u64>().ok()?.checked_mul(factor)
}
