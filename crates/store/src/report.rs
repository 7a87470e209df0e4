//! Failures of the storage: the line in the log, and the code that the caller gets.
//!
//! Every failure of the storage passes here once, on the way from its cause to a [`Code`], so that
//! each cause is logged in one form: what failed, which row or file, and the system's error.

use pelago_wire::{Code, Error};

use crate::rows::RowError;
use crate::volume::VolumeError;
use crate::{content, reserve, table};

/// Logs that the table failed while `doing`, and returns the code for the caller.
#[must_use]
pub fn table_failed(doing: &'static str, error: &table::Error) -> Error {
    match error {
        table::Error::NoSpace => return Code::NoSpace.into(),
        // The table logged the cause when it stopped.
        table::Error::Stopped => return Code::Io.into(),
        _ => tracing::error!(%error, source = source(error), "the table failed while {doing}"),
    }
    match error {
        table::Error::Corrupt { .. } => Code::Corrupt.into(),
        _ => Code::Io.into(),
    }
}

/// Logs that the row with this key is damaged, and returns the code for the caller.
#[must_use]
pub fn row_damaged(key: &[u8], error: RowError) -> Error {
    tracing::error!(key = %key.escape_ascii(), %error, "a row is damaged; run `pelago check`");
    Code::Corrupt.into()
}

/// Logs that a content file failed, and returns the code for the caller.
#[must_use]
pub fn content_failed(error: &content::Error) -> Error {
    let source = &error.source;
    tracing::error!(%error, %source, "a content file failed");
    if error.is_no_space() { Code::NoSpace.into() } else { Code::Io.into() }
}

/// Logs that the reserve failed, and returns the code for the caller.
#[must_use]
pub fn reserve_failed(error: &reserve::Error) -> Error {
    let source = &error.source;
    tracing::error!(%error, %source, "the reserve failed");
    Code::Io.into()
}

/// Logs that a file of the volume could not be written, and returns the code for the caller.
#[must_use]
pub fn volume_failed(error: &VolumeError) -> Error {
    let source = std::error::Error::source(error).map(ToString::to_string);
    tracing::error!(%error, source, "a file of the volume could not be written");
    match error {
        VolumeError::NoSpace { .. } => Code::NoSpace.into(),
        _ => Code::Io.into(),
    }
}

fn source(error: &table::Error) -> Option<String> {
    std::error::Error::source(error).map(ToString::to_string)
}
