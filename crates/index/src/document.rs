//! A name with the attributes of its file, as the index of names has it.

use pelago_wire::{FileKind, Handle, Time};

/// A name with the attributes of its file. A file with several names has a document for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The file, and where the name is.
    pub handle: Handle,
    /// The bytes of the name, which need not be UTF-8; none for the root of a volume.
    pub name: Vec<u8>,
    /// The kind of the file.
    pub kind: FileKind,
    /// Its bytes.
    pub size: u64,
    /// The time of the last change of its bytes, with less than a second of nanoseconds.
    pub mtime: Time,
    /// The number of its owner.
    pub uid: u32,
}
