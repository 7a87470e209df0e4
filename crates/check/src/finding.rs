//! The kinds of damage of a volume, and the repair of each.

use std::fmt;

use pelago_store::key::{self, Key, RowKind};
use pelago_store::table::Change;
use pelago_wire::{Generation, InodeId};

/// A kind of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Damage {
    /// A row cannot be read.
    Row,
    /// A key is malformed.
    Key,
    /// A name is stored under the wrong hash.
    NameHash,
    /// A name is in a directory that does not exist.
    NameNowhere,
    /// A name refers to an inode that does not exist.
    NameOfNothing,
    /// A name has the wrong file type.
    NameKind,
    /// A name has no parent pointer.
    NameUnlisted,
    /// A parent pointer refers to a name that does not exist.
    NameMissing,
    /// An inode has two rows.
    Twice,
    /// The link count of a file is wrong.
    Links,
    /// A file has no name, but a link count.
    Lost,
    /// A removed file has no orphan row, so it would never go.
    Unburied,
    /// A directory is below itself.
    Loop,
    /// The counts of a directory are wrong.
    Counts,
    /// There is no root directory.
    Root,
    /// The id of an existing inode could be allocated again.
    Number,
    /// An inline file has no bytes, or bytes that its row does not know.
    InlineMissing,
    /// Inline bytes belong to no file.
    InlineStray,
    /// An inline file has another size than its row says.
    InlineSize,
    /// An extended attribute belongs to no file.
    XattrStray,
    /// The row of a file is wrong about which extended attributes exist.
    XattrFlag,
    /// The list of a file's extended attributes is wrong.
    XattrNames,
    /// A row of a tag belongs to no tag.
    TagStray,
    /// A tag has no row.
    TagMissing,
    /// The row of a tag does not lead to the file.
    TagHint,
    /// The row that leads to a moved file is missing or wrong.
    Moved,
    /// A file with a name has an orphan row.
    OrphanStray,
    /// A file without a content file has a `writing` row.
    MarkStray,
    /// A content file is missing.
    ContentMissing,
    /// A content file is shorter than its row says.
    ContentShort,
    /// A content file belongs to no file.
    ContentStray,
    /// Among the content files is one that Pelago did not create.
    ContentForeign,
    /// The search index is damaged, or lacks a name.
    Index,
    /// A small file of the volume, as `format`, is damaged; its second one is whole.
    SecondFile,
    /// The next start makes a file empty.
    NextEmpty,
    /// The next start makes a file as short as its content file is.
    NextShorter,
}

impl Damage {
    /// Returns the name of the damage in `--json`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Row => "row",
            Self::Key => "key",
            Self::NameHash => "name-hash",
            Self::NameNowhere => "name-nowhere",
            Self::NameOfNothing => "name-of-nothing",
            Self::NameKind => "name-kind",
            Self::NameUnlisted => "name-unlisted",
            Self::NameMissing => "name-missing",
            Self::Twice => "twice",
            Self::Links => "links",
            Self::Lost => "lost",
            Self::Unburied => "unburied",
            Self::Loop => "loop",
            Self::Counts => "counts",
            Self::Root => "root",
            Self::Number => "number",
            Self::InlineMissing => "inline-missing",
            Self::InlineStray => "inline-stray",
            Self::InlineSize => "inline-size",
            Self::XattrStray => "xattr-stray",
            Self::XattrFlag => "xattr-flag",
            Self::XattrNames => "xattr-names",
            Self::TagStray => "tag-stray",
            Self::TagMissing => "tag-missing",
            Self::TagHint => "tag-hint",
            Self::Moved => "moved",
            Self::OrphanStray => "orphan-stray",
            Self::MarkStray => "mark-stray",
            Self::ContentMissing => "content-missing",
            Self::ContentShort => "content-short",
            Self::ContentStray => "content-stray",
            Self::ContentForeign => "content-foreign",
            Self::Index => "index",
            Self::SecondFile => "second-file",
            Self::NextEmpty => "next-empty",
            Self::NextShorter => "next-shorter",
        }
    }

    /// Returns a description of the damage, for a person.
    #[must_use]
    pub const fn says(self) -> &'static str {
        match self {
            Self::Row => "a row cannot be read",
            Self::Key => "the key of a row is malformed",
            Self::NameHash => "a name is stored under the wrong hash",
            Self::NameNowhere => "a name is in a directory that does not exist",
            Self::NameOfNothing => "a name refers to an inode that does not exist",
            Self::NameKind => "a name has the wrong file type",
            Self::NameUnlisted => "a name has no parent pointer",
            Self::NameMissing => "a parent pointer refers to a name that does not exist",
            Self::Twice => "an inode has two rows",
            Self::Links => "its link count is wrong",
            Self::Lost => "it has no name, and was not removed",
            Self::Unburied => "it was removed, takes space, and has no orphan row",
            Self::Loop => "a directory is below itself",
            Self::Counts => "the counts of a directory are wrong",
            Self::Root => "there is no root directory",
            Self::Number => "its inode id could be allocated again",
            Self::InlineMissing => "a small file and its row disagree whether it has bytes",
            Self::InlineStray => "bytes of a small file belong to no file",
            Self::InlineSize => "a small file has another size than its row says",
            Self::XattrStray => "an extended attribute belongs to no file",
            Self::XattrFlag => "its row is wrong about which extended attributes exist",
            Self::XattrNames => "the list of its extended attributes is wrong",
            Self::TagStray => "a row of a tag belongs to no tag",
            Self::TagMissing => "a tag has no row",
            Self::TagHint => "the row of a tag does not lead to the file",
            Self::Moved => "the row that leads to it since it moved is missing or wrong",
            Self::OrphanStray => "it has a name, and an orphan row that would remove it",
            Self::MarkStray => "it has a `writing` row and no content file",
            Self::ContentMissing => "its content file is missing",
            Self::ContentShort => "its content file is shorter than its row says",
            Self::ContentStray => "a content file belongs to no file",
            Self::ContentForeign => "a file among the content files is not one of Pelago's",
            Self::Index => "the search index is damaged, or lacks a name",
            Self::SecondFile => "a file that the volume has twice is damaged",
            Self::NextEmpty => "its bytes were not synced when the server ended, and are lost",
            Self::NextShorter => {
                "it is shorter than its row says: it was open, and its last bytes were not synced"
            }
        }
    }

    /// Returns whether it is a leftover of a crash, which only takes space and is no damage.
    #[must_use]
    pub const fn is_leftover(self) -> bool {
        matches!(self, Self::ContentStray | Self::ContentForeign | Self::MarkStray)
    }

    /// Returns whether the next start corrects it, as after each crash, and it is no damage.
    #[must_use]
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::NextEmpty | Self::NextShorter)
    }

    /// Returns a description of the next start's correction, for a person; `None` if it makes none.
    #[must_use]
    pub const fn next_start(self) -> Option<&'static str> {
        match self {
            Self::NextEmpty => Some("the next start makes it empty"),
            Self::NextShorter => Some("the next start takes the size of its content file"),
            _ => None,
        }
    }
}

/// One piece of damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The kind of damage.
    pub damage: Damage,
    /// The inode, if it is known.
    pub ino: Option<InodeId>,
    /// The key of the damaged row, or the path of a foreign file; empty if `ino` says all.
    pub key: Vec<u8>,
    /// The repair; `None` if there is none.
    pub repair: Option<Repair>,
}

impl Finding {
    /// Returns whether the damaged row is one of a name or an inode.
    pub(super) fn names_a_file(&self) -> bool {
        matches!(RowKind::of(&self.key), Some(RowKind::Name | RowKind::Inode))
    }
}

impl fmt::Display for Finding {
    /// Writes one line for a person, without the repair.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.damage.says())?;
        if let Some(ino) = self.ino {
            write!(f, " (inode {ino})")?;
        }
        match Key::parse(&self.key) {
            _ if self.key.is_empty() => Ok(()),
            _ if self.damage == Damage::SecondFile => write!(f, " ({})", self.key.escape_ascii()),
            Some(Key::Name { dir, name, .. }) => {
                write!(f, " (\"{}\" in directory {dir})", name.escape_ascii())
            }
            Some(Key::ParentPointer { ino, dir, name, .. }) => {
                write!(f, " (\"{}\" in directory {dir}, of inode {ino})", name.escape_ascii())
            }
            Some(Key::Tag { tag, ino, .. }) => write!(f, " (tag {tag} of inode {ino})"),
            Some(Key::Partition { dir, .. }) => write!(f, " (directory {dir})"),
            _ => write!(f, " (row {}", self.key.escape_ascii()).and_then(|()| {
                match key::reserved_name(&self.key) {
                    Some(name) => write!(f, ", \"{name}\" of a newer pelago)"),
                    None => f.write_str(")"),
                }
            }),
        }
    }
}

/// The repair of a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// Its effect, in a few words, for a person.
    pub says: &'static str,
    /// Rows that are written or deleted.
    pub(super) changes: Vec<Change>,
    /// The content file that is removed after that.
    pub(super) remove: Option<(InodeId, Generation)>,
}

impl Repair {
    pub(super) fn nothing(says: &'static str) -> Self {
        Self::rows(says, Vec::new())
    }

    pub(super) fn rows(says: &'static str, changes: Vec<Change>) -> Self {
        Self { says, changes, remove: None }
    }

    pub(super) fn delete(says: &'static str, key: &[u8]) -> Self {
        Self::rows(says, vec![Change::Delete(key.to_vec())])
    }

    pub(super) fn put(says: &'static str, key: Vec<u8>, value: Vec<u8>) -> Self {
        Self::rows(says, vec![Change::Put(key, value)])
    }
}
