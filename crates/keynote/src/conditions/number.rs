//! The arithmetic of conditions: integers and floats of 32 bits, in which each overflow is an error
//! (RFC 2704, 4.6.5).

use super::Operator;

/// A number of conditions.
pub(super) trait Number: Copy + PartialOrd {
    /// Returns the number in a string: zero if the string is no decimal number, `None` if it is out
    /// of range. Zero instead would make a large number pass the test that it is small.
    fn read(text: &[u8]) -> Option<Self>;

    /// Returns the number below zero; `None` if it is out of range.
    fn negated(self) -> Option<Self>;

    /// Returns the result of an operator; `None` if it is out of range, or not defined.
    fn combined(self, operator: Operator, other: Self) -> Option<Self>;
}

/// A decimal number in a string: its digits before and after the point.
struct Decimal<'a> {
    is_negative: bool,
    whole: &'a str,
    fraction: &'a str,
}

/// Returns the decimal number in a string, with an optional sign and an optional fraction.
fn decimal(text: &str) -> Option<Decimal<'_>> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = !(whole.is_empty() && fraction.is_empty());
    let is_negative = text.starts_with('-');
    let decimal = Decimal { is_negative, whole, fraction };
    (is_number && is_digits(whole) && is_digits(fraction)).then_some(decimal)
}

/// Returns a string without the blanks around it; an empty one if it is no text.
fn trimmed(text: &[u8]) -> &str {
    str::from_utf8(text).unwrap_or_default().trim()
}

impl Number for i32 {
    /// A fraction is rounded down.
    fn read(text: &[u8]) -> Option<Self> {
        let Some(decimal) = decimal(trimmed(text)) else { return Some(0) };
        let whole = if decimal.whole.is_empty() { "0" } else { decimal.whole };
        let whole: i64 = whole.parse().ok()?;
        let is_rounded = decimal.is_negative && decimal.fraction.bytes().any(|digit| digit != b'0');
        let number = if decimal.is_negative { -whole } else { whole };
        Self::try_from(number.checked_sub(i64::from(is_rounded))?).ok()
    }

    fn negated(self) -> Option<Self> {
        self.checked_neg()
    }

    fn combined(self, operator: Operator, other: Self) -> Option<Self> {
        match operator {
            Operator::Add => self.checked_add(other),
            Operator::Subtract => self.checked_sub(other),
            Operator::Multiply => self.checked_mul(other),
            Operator::Divide => self.checked_div(other),
            Operator::Remainder => self.checked_rem(other),
            Operator::Power => power(self, other),
        }
    }
}

/// Returns the power of an integer, rounded towards zero.
fn power(base: i32, exponent: i32) -> Option<i32> {
    match u32::try_from(exponent) {
        Ok(exponent) => base.checked_pow(exponent),
        Err(_) => match base {
            0 => None,
            1 => Some(1),
            -1 => Some(if exponent % 2 == 0 { 1 } else { -1 }),
            _ => Some(0),
        },
    }
}

impl Number for f32 {
    fn read(text: &[u8]) -> Option<Self> {
        let text = trimmed(text);
        match decimal(text) {
            Some(_) => text.parse().ok().and_then(finite),
            None => Some(0.0),
        }
    }

    fn negated(self) -> Option<Self> {
        Some(-self)
    }

    fn combined(self, operator: Operator, other: Self) -> Option<Self> {
        finite(match operator {
            Operator::Add => self + other,
            Operator::Subtract => self - other,
            Operator::Multiply => self * other,
            Operator::Divide => self / other,
            Operator::Remainder => return None,
            Operator::Power => self.powf(other),
        })
    }
}

fn finite(number: f32) -> Option<f32> {
    number.is_finite().then_some(number)
}
