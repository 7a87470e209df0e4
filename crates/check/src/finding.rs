//! What can be wrong with a volume, and what is done about it.

use std::fmt;

use pelago_store::key::{Key, RowKind};
use pelago_store::table::Change;
use pelago_wire::{Generation, InodeId};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Damage {
    /// A row cannot be read.
    Row,
    /// No row has such a key.
    Key,
    /// A name stands where its hash does not lead.
    NameHash,
    /// A name is in a directory that is not there.
    NameNowhere,
    /// A name leads to nothing.
    NameOfNothing,
    /// A name does not say what it leads to.
    NameKind,
    /// A name is missing among the names of its file.
    NameUnlisted,
    /// Among the names of a file is one that is not there.
    NameMissing,
    /// A file has two rows.
    Twice,
    /// The count of a file's names is wrong.
    Links,
    /// A file has no name and nobody removed it.
    Lost,
    /// A file without a name does not wait to be removed.
    Unburied,
    /// A directory is below itself.
    Loop,
    /// The counts of a directory are wrong.
    Counts,
    /// There is no root directory.
    Root,
    /// A file's number could be given out again.
    Number,
    /// The bytes of a small file are missing.
    InlineMissing,
    /// Bytes of a small file belong to no file.
    InlineStray,
    /// A small file has more or fewer bytes than its row says.
    InlineSize,
    /// An extended attribute belongs to no file.
    XattrStray,
    /// A row is wrong about extended attributes.
    XattrFlag,
    /// The list of a file's extended attributes is wrong.
    XattrNames,
    /// What leads to a file that moved is missing or wrong.
    Moved,
    /// A file that has a name waits to be removed.
    OrphanStray,
    /// A file without a content file is marked as being written.
    MarkStray,
    /// A content file is missing.
    ContentMissing,
    /// A content file is shorter than its row says.
    ContentShort,
    /// A content file belongs to no file.
    ContentStray,
    /// Among the content files is something that nobody here made.
    ContentForeign,
}

impl Damage {
    /// Its name in `--json`.
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
            Self::Moved => "moved",
            Self::OrphanStray => "orphan-stray",
            Self::MarkStray => "mark-stray",
            Self::ContentMissing => "content-missing",
            Self::ContentShort => "content-short",
            Self::ContentStray => "content-stray",
            Self::ContentForeign => "content-foreign",
        }
    }

    /// What is wrong, for a person.
    #[must_use]
    pub const fn says(self) -> &'static str {
        match self {
            Self::Row => "a row cannot be read",
            Self::Key => "no row has such a key",
            Self::NameHash => "a name stands where its hash does not lead",
            Self::NameNowhere => "a name is in a directory that is not there",
            Self::NameOfNothing => "a name leads to nothing",
            Self::NameKind => "a name does not say what it leads to",
            Self::NameUnlisted => "a name is missing among the names of its file",
            Self::NameMissing => "among the names of a file is one that is not there",
            Self::Twice => "a file has two rows",
            Self::Links => "the count of its names is wrong",
            Self::Lost => "it has no name",
            Self::Unburied => "it was removed and takes space",
            Self::Loop => "a directory is below itself",
            Self::Counts => "the counts of a directory are wrong",
            Self::Root => "there is no root directory",
            Self::Number => "its number could be given out again",
            Self::InlineMissing => "the bytes of a small file are missing",
            Self::InlineStray => "bytes of a small file belong to no file",
            Self::InlineSize => "a small file has another size than its row says",
            Self::XattrStray => "an extended attribute belongs to no file",
            Self::XattrFlag => "its row is wrong about extended attributes",
            Self::XattrNames => "the list of its extended attributes is wrong",
            Self::Moved => "what leads to it since it moved is missing or wrong",
            Self::OrphanStray => "it has a name and waits to be removed",
            Self::MarkStray => "it is marked as being written and has no content file",
            Self::ContentMissing => "its content file is missing",
            Self::ContentShort => "its content file is shorter than its row says",
            Self::ContentStray => "a content file belongs to no file",
            Self::ContentForeign => "a file among the content files is none of them",
        }
    }

    /// Whether it is no damage, only space taken: what a crash may leave.
    #[must_use]
    pub const fn is_leftover(self) -> bool {
        matches!(self, Self::ContentStray | Self::ContentForeign | Self::MarkStray)
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub damage: Damage,
    /// With which file, where that is known.
    pub ino: Option<InodeId>,
    /// With the row at which key, where it is about a row.
    pub key: Vec<u8>,
    /// What would be done about it.
    pub repair: Option<Repair>,
}

impl Finding {
    /// Whether it is about a row that names a file or holds its attributes.
    pub(super) fn names_a_file(&self) -> bool {
        matches!(RowKind::of(&self.key), Some(RowKind::Name | RowKind::Inode))
    }
}

impl fmt::Display for Finding {
    /// One line for a person, without what would be done about it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.damage.says())?;
        if let Some(ino) = self.ino {
            write!(f, " (inode {ino})")?;
        }
        match Key::parse(&self.key) {
            _ if self.key.is_empty() => Ok(()),
            Some(Key::Name { dir, name, .. }) => {
                write!(f, " (\"{}\" in directory {dir})", name.escape_ascii())
            }
            Some(Key::ParentPointer { ino, dir, name, .. }) => {
                write!(f, " (\"{}\" in directory {dir}, of inode {ino})", name.escape_ascii())
            }
            Some(Key::Partition { dir, .. }) => write!(f, " (directory {dir})"),
            _ => write!(f, " (row {})", self.key.escape_ascii()),
        }
    }
}

/// What is done about a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// In a few words, for a person.
    pub says: &'static str,
    /// Rows that are written.
    pub(super) changes: Vec<Change>,
    /// The content file that is removed behind that.
    pub(super) remove: Option<(InodeId, Generation)>,
}

impl Repair {
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
