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

/// A field: its name, as the RFC writes it, and its value with its lines joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    pub(crate) name: &'static str,
    /// All after the colon, without the line's end. Line breaks in it are followed by a blank.
    pub(crate) value: &'a str,
    /// Where the field begins in the text.
    pub(crate) at: usize,
}

/// Divides a text into its fields.
///
/// A field begins at the first column; a line that begins with a blank or a tab continues it. Only
/// printable ASCII, tabs and line feeds are taken: another program must not see another text.
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
        if line.starts_with([' ', '\t']) {
            let Some(last) = fields.last_mut() else { return Err(AssertionError::NoField) };
            last.value = value_of(text, last, at);
            continue;
        }
        let Some((given, _)) = line.split_once(':') else { return Err(AssertionError::NoField) };
        let name = NAMES.into_iter().find(|name| name.eq_ignore_ascii_case(given));
        let name = name.ok_or_else(|| AssertionError::UnknownField(given.to_owned()))?;
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
