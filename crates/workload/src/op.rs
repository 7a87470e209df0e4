//! The operations of a random program: what a program may do to a file system, by path and by open
//! file, as plain data that can be printed, dropped and run again.

use std::fmt;

use pelago_wire::{
    AllocateMode, FileKind, Name, OpenFlags, RenameFlags, SeekFrom, SetTime, XattrFlags,
};

/// Open files that a program can hold at a time.
pub const SLOTS: usize = 6;
/// Listings that a program can have under way at a time.
pub const SCANS: usize = 2;

/// Names from the top of the tree; empty for the top itself. No component is followed where it is a
/// symbolic link.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Path(pub Vec<Name>);

impl Path {
    /// The top of the tree.
    #[must_use]
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// The name `name` below this one.
    #[must_use]
    pub fn join(&self, name: &Name) -> Self {
        let mut names = self.0.clone();
        names.push(name.clone());
        Self(names)
    }

    /// Directory and name; `None` for the top.
    #[must_use]
    pub fn split(&self) -> Option<At> {
        let (name, dir) = self.0.split_last()?;
        Some(At { dir: Self(dir.to_vec()), name: name.clone() })
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("/");
        }
        self.0.iter().try_for_each(|name| write!(f, "/{}", short(name)))
    }
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    /// The directory.
    pub dir: Path,
    /// The name in it.
    pub name: Name,
}

impl At {
    /// The path of the name.
    #[must_use]
    pub fn path(&self) -> Path {
        self.dir.join(&self.name)
    }
}

impl fmt::Debug for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path().fmt(f)
    }
}

/// A file by its path or as one that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// What the path leads to.
    Path(Path),
    /// The open file of this slot.
    Slot(usize),
}

/// A range of bytes whose contents follow from a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patch {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Count of bytes.
    pub length: usize,
    /// What [`pelago_random::bytes_of`] makes them from.
    pub seed: u64,
}

/// A range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Count of bytes.
    pub length: u64,
}

impl Range {
    /// The first byte behind it.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// One operation. An operation on a slot or scan that is not in use, or on a kind of file for which
/// it is not meant, is skipped, so that a program from which operations were dropped still runs.
#[expect(missing_docs, reason = "the fields are the nouns of the sentence above them")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Makes a file that must not exist and opens it.
    Create { slot: usize, at: At, mode: u16, flags: OpenFlags },
    /// Makes a file without a name, by the rules of a directory, and opens it to write at least.
    CreateUnnamed { slot: usize, dir: Path, mode: u16, flags: OpenFlags },
    /// Makes a directory.
    MakeDir { at: At, mode: u16 },
    /// Makes a file, pipe or socket without opening it.
    MakeNode { at: At, kind: FileKind, mode: u16 },
    /// Makes a symbolic link.
    Symlink { at: At, target: Vec<u8> },
    /// Gives a file one more name.
    Link { from: Path, at: At },
    /// Gives an open file one more name, or its first.
    LinkOpen { slot: usize, at: At },
    /// Removes a name that is no directory's.
    Unlink { at: At },
    /// Removes an empty directory.
    RemoveDir { at: At },
    /// Moves a name.
    Rename { from: At, to: At, flags: RenameFlags },
    /// Opens a file that exists.
    Open { slot: usize, path: Path, flags: OpenFlags },
    /// Closes one of several descriptors of an open file.
    Flush { slot: usize },
    /// Closes an open file.
    Close { slot: usize },
    /// Writes; where the file is open to append, at its end.
    Write { slot: usize, patch: Patch },
    /// Reads from an open file.
    Read { slot: usize, offset: u64, size: u32 },
    /// Reserves or frees a range of an open file, of at least one byte.
    Allocate { slot: usize, range: Range, mode: AllocateMode },
    /// Looks for data or a hole in an open file.
    Seek { slot: usize, from: SeekFrom },
    /// Copies bytes between open files, at least one if there are any.
    Copy { from: usize, range: Range, to: usize, to_offset: u64 },
    /// Makes an open file's bytes safe.
    Fsync { slot: usize, data_only: bool },
    /// Makes a directory's names safe.
    FsyncDir { dir: Path },
    /// Sets the size.
    Truncate { node: Subject, size: u64 },
    /// Sets the permission bits.
    ChangeMode { node: Subject, mode: u16 },
    /// Sets the times of the last read and of the last change of bytes.
    SetTimes { node: Subject, atime: Option<SetTime>, mtime: Option<SetTime> },
    /// Attributes.
    GetAttr { node: Subject },
    /// What a symbolic link says.
    ReadLink { path: Path },
    /// Opens a file, reads from it, closes it.
    Peek { path: Path, offset: u64, size: u32 },
    /// The directory above.
    Parent { dir: Path },
    /// All names of a directory with their kinds.
    List { dir: Path },
    /// Begins a listing that goes on while the directory changes.
    ScanStart { scan: usize, dir: Path },
    /// The next names of that listing, about so many.
    ScanNext { scan: usize, entries: u32 },
    /// Sets an extended attribute.
    SetXattr { path: Path, name: Vec<u8>, value: Vec<u8>, flags: XattrFlags },
    /// The value of an extended attribute.
    GetXattr { path: Path, name: Vec<u8> },
    /// The names of all extended attributes in `user.`.
    ListXattr { path: Path },
    /// Removes an extended attribute.
    RemoveXattr { path: Path, name: Vec<u8> },
    /// Space and counts.
    StatFs,
}

impl Op {
    /// The files and directories whose attributes this operation may change, or must leave alone.
    #[must_use]
    pub fn subjects(&self) -> Vec<Subject> {
        let mut paths = Vec::new();
        let mut slots = Vec::new();
        match self {
            Self::Create { at, slot, .. } | Self::LinkOpen { at, slot } => {
                paths.extend([at.path(), at.dir.clone()]);
                slots.push(*slot);
            }
            Self::CreateUnnamed { slot, dir, .. } => {
                paths.push(dir.clone());
                slots.push(*slot);
            }
            Self::MakeDir { at, .. }
            | Self::MakeNode { at, .. }
            | Self::Symlink { at, .. }
            | Self::Unlink { at }
            | Self::RemoveDir { at } => paths.extend([at.path(), at.dir.clone()]),
            Self::Link { from, at } => {
                paths.extend([from.clone(), at.path(), at.dir.clone()]);
            }
            Self::Rename { from, to, .. } => {
                paths.extend([from.path(), from.dir.clone(), to.path(), to.dir.clone()]);
            }
            Self::Open { slot, .. }
            | Self::Flush { slot }
            | Self::Close { slot }
            | Self::Write { slot, .. }
            | Self::Read { slot, .. }
            | Self::Allocate { slot, .. }
            | Self::Seek { slot, .. }
            | Self::Fsync { slot, .. } => slots.push(*slot),
            Self::Copy { from, to, .. } => slots.extend([*from, *to]),
            Self::Truncate { node, .. }
            | Self::ChangeMode { node, .. }
            | Self::SetTimes { node, .. } => return vec![node.clone()],
            Self::SetXattr { path, .. }
            | Self::RemoveXattr { path, .. }
            | Self::Peek { path, .. } => paths.push(path.clone()),
            _ => {}
        }
        let paths = paths.into_iter().map(Subject::Path);
        paths.chain(slots.into_iter().map(Subject::Slot)).collect()
    }
}

/// Long names are cut: a program is printed for people.
fn short(name: &Name) -> String {
    let bytes = name.as_bytes();
    match bytes.get(..12) {
        Some(head) if bytes.len() > 24 => format!("{}…{}", head.escape_ascii(), bytes.len()),
        _ => bytes.escape_ascii().to_string(),
    }
}
