//! Damaged rows: each is left out of an answer, and ends no search.

use pelago_wire::{Code, Error};

/// Returns the result of a read, with `None` for a damaged row, which the log has named. One
/// damaged row must not end every search.
///
/// # Errors
/// Every other error of the read.
pub(crate) fn undamaged<T>(found: Result<Option<T>, Error>) -> Result<Option<T>, Error> {
    match found {
        Err(error) if error.code == Code::Corrupt => Ok(None),
        found => found,
    }
}
