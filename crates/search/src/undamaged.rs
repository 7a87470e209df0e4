//! Rows that are damaged: each is left out, and ends no search.

use pelago_wire::{Code, Error};

/// Returns what was found; nothing if its row is damaged, which the log says. One such row is not
/// to end every search.
///
/// # Errors
/// Any other.
pub(crate) fn undamaged<T>(found: Result<Option<T>, Error>) -> Result<Option<T>, Error> {
    match found {
        Err(error) if error.code == Code::Corrupt => Ok(None),
        found => found,
    }
}
