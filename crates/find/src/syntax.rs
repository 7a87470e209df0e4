//! The lexical elements of a query: classes of characters, reserved keys, units, and words for
//! kinds.

use pelago_wire::FileKind;

/// Keys that name a tag only after `tag:`.
pub(crate) const RESERVED: [&str; 7] = ["name", "size", "mtime", "kind", "owner", "text", "tag"];

/// The letters after a size and their bytes, the largest first.
pub(crate) const SIZE_UNITS: [(u8, u64); 4] =
    [(b'T', 1 << 40), (b'G', 1 << 30), (b'M', 1 << 20), (b'K', 1 << 10)];

/// The letters after an age and their seconds, the largest first. A year has 365 days.
pub(crate) const AGE_UNITS: [(u8, u64); 6] =
    [(b'y', 365 * 86_400), (b'w', 7 * 86_400), (b'd', 86_400), (b'h', 3600), (b'm', 60), (b's', 1)];

/// All kinds.
pub(crate) const KINDS: [FileKind; 7] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::Symlink,
    FileKind::Fifo,
    FileKind::Socket,
    FileKind::CharDevice,
    FileKind::BlockDevice,
];

/// Returns the kind that a word names.
pub(crate) fn kind_of(word: &[u8]) -> Option<FileKind> {
    KINDS.into_iter().find(|kind| word_of(*kind).as_bytes() == word)
}

/// Returns the word for a kind.
#[must_use]
pub const fn word_of(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "dir",
        FileKind::Symlink => "link",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "char",
        FileKind::BlockDevice => "block",
    }
}

/// Returns whether a byte is white space.
pub(crate) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Returns whether a byte ends a value without quotes.
pub(crate) const fn is_boundary(byte: u8) -> bool {
    is_space(byte) || matches!(byte, b'(' | b')')
}

/// Returns whether a byte is a control character, which is allowed in quotes only.
pub(crate) const fn is_control(byte: u8) -> bool {
    byte.is_ascii_control()
}
