//! The fields of an assertion (RFC 2704, 4.1).

use crate::CREDENTIAL_BYTES;
use crate::error::AssertionError;

/// The names of the fields, as the RFC writes them.
const NAMES: [&str; 7] = [
    "KeyNote-Version",
    "Local-Constants",
    "Authorizer",
    "Licensees",
    "Conditions",
    "Comment",
    "Signature",
];

/// The characters of an unknown name that an error shows: a text may be one long line.
const SHOWN: usize = 64;

/// A field of an assertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    /// The name, as the RFC writes it.
    pub(crate) name: &'static str,
    /// The text after the colon, without the last line break. In the text a blank, a tab or a
    /// comment follows each line break.
    pub(crate) value: &'a str,
    /// The offset of the field in the text.
    pub(crate) at: usize,
}

/// Divides a text into its fields.
///
/// A field begins at the first column; a line that begins with a blank, a tab or a comment
/// continues it. Only printable ASCII, tabs and line feeds are accepted, so that every program sees
/// the same text.
///
/// # Errors
/// [`AssertionError`] that names the line or the field.
pub(crate) fn divide(text: &str) -> Result<Vec<Field<'_>>, AssertionError> {
    if text.len() > CREDENTIAL_BYTES {
        return Err(AssertionError::TooLong);
    }
    if let Some(letter) = text.chars().find(|letter| !is_letter(*letter)) {
        return Err(AssertionError::Letter(letter));
    }
    let mut fields: Vec<Field<'_>> = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let begin = at;
        at += line.len();
        if line.starts_with([' ', '\t', '#']) {
            let Some(last) = fields.last_mut() else { return Err(AssertionError::NoField) };
            last.value = value_of(text, last, at);
            continue;
        }
        let Some((given, _)) = line.split_once(':') else { return Err(AssertionError::NoField) };
        let name = NAMES.into_iter().find(|name| name.eq_ignore_ascii_case(given));
        let name =
            name.ok_or_else(|| AssertionError::UnknownField(given.chars().take(SHOWN).collect()))?;
        if fields.iter().any(|field| field.name == name) {
            return Err(AssertionError::Twice(name));
        }
        let mut field = Field { name, value: "", at: begin };
        field.value = value_of(text, &field, at);
        fields.push(field);
    }
    Ok(fields)
}

/// Returns the value of a field that ends before `end`.
fn value_of<'a>(text: &'a str, field: &Field<'_>, end: usize) -> &'a str {
    let begin = field.at + field.name.len() + 1;
    let value = text.get(begin..end).unwrap_or_default();
    value.strip_suffix('\n').unwrap_or(value)
}

const fn is_letter(letter: char) -> bool {
    matches!(letter, '\t' | '\n' | ' '..='~')
}
