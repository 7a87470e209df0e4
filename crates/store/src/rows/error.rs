//! The reasons for which a value cannot be decoded.

use crate::key::RowKind;

/// A value that cannot be decoded: it is damaged, or a newer program wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a row of kind {kind:?} cannot be read: {reason}")]
pub struct RowError {
    /// The kind of the row.
    pub kind: RowKind,
    /// The damage.
    pub reason: DecodeError,
}

/// The damage of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The checksum does not match the bytes.
    #[error("its checksum does not match")]
    Checksum,
    /// This program does not know this version of the body.
    #[error("this pelago does not know its version {0}")]
    Version(u8),
    /// The value ends too early, or has bytes after its end.
    #[error("its length is wrong")]
    Length,
    /// Only later versions know the value of this field.
    #[error("its {field} is a {name}, which needs a newer pelago")]
    Newer {
        /// The field.
        field: &'static str,
        /// The name of the value.
        name: &'static str,
    },
    /// The field with this name has a value that the format forbids.
    #[error("its {0} is out of range")]
    Field(&'static str),
}
