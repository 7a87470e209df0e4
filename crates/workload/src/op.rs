//! The operations of a random program, on paths and open files, as plain data that can be printed,
//! dropped and run again.

use std::fmt;

use pelago_wire::{
    AllocateMode, FileKind, Name, OpenFlags, RenameFlags, SeekFrom, SetTime, XattrFlags,
};

/// Open files of a program at a time.
pub const SLOTS: usize = 6;
/// Directory listings of a program at a time.
pub const SCANS: usize = 2;

/// A path from the root of the tree; empty for the root. Symbolic links in it are not followed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Path(pub Vec<Name>);

impl Path {
    /// Returns the path of the root.
    #[must_use]
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// Returns the path of `name` in this directory.
    #[must_use]
    pub fn join(&self, name: &Name) -> Self {
        let mut names = self.0.clone();
        names.push(name.clone());
        Self(names)
    }

    /// Returns the directory and the name of a path; `None` for the root.
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
    /// Returns the path of the name.
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

/// A file, given by its path or by an open file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The file with this path.
    Path(Path),
    /// The open file in this slot.
    Slot(usize),
}

/// A range of bytes to write, with the seed of their values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patch {
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: usize,
    /// The seed for [`pelago_random::bytes_of`].
    pub seed: u64,
}

/// A range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

impl Range {
    /// Returns the offset of the first byte after the range.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// One operation. It is skipped if its slot or scan is not in use, or if the file has the wrong
/// type, so a program still runs after operations were dropped from it.
#[expect(missing_docs, reason = "the fields are the nouns of the sentence above them")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Creates a file that must not exist, and opens it.
    Create { slot: usize, at: At, mode: u16, flags: OpenFlags },
    /// Creates an unnamed file in a directory (`O_TMPFILE`), and opens it for writing or both.
    CreateUnnamed { slot: usize, dir: Path, mode: u16, flags: OpenFlags },
    /// Creates a directory.
    MakeDir { at: At, mode: u16 },
    /// Creates a file, pipe or socket without opening it.
    MakeNode { at: At, kind: FileKind, mode: u16 },
    /// Creates a symbolic link.
    Symlink { at: At, target: Vec<u8> },
    /// Adds a name to a file.
    Link { from: Path, at: At },
    /// Adds a name to an open file, also to an unnamed one.
    LinkOpen { slot: usize, at: At },
    /// Removes a name of a file that is not a directory.
    Unlink { at: At },
    /// Removes an empty directory.
    RemoveDir { at: At },
    /// Renames.
    Rename { from: At, to: At, flags: RenameFlags },
    /// Opens a file that exists.
    Open { slot: usize, path: Path, flags: OpenFlags },
    /// Closes one of several descriptors of an open file (FUSE's FLUSH).
    Flush { slot: usize },
    /// Closes an open file.
    Close { slot: usize },
    /// Writes; at the end if the file is open for appending.
    Write { slot: usize, patch: Patch },
    /// Reads from an open file.
    Read { slot: usize, offset: u64, size: u32 },
    /// Reserves, zeroes or punches a range of at least one byte (`fallocate`).
    Allocate { slot: usize, range: Range, mode: AllocateMode },
    /// Finds data or a hole in an open file (`lseek`).
    Seek { slot: usize, from: SeekFrom },
    /// Copies bytes between open files, at least one if there are any (`copy_file_range`).
    Copy { from: usize, range: Range, to: usize, to_offset: u64 },
    /// Makes the bytes of an open file safe.
    Fsync { slot: usize, data_only: bool },
    /// Makes the names of a directory safe.
    FsyncDir { dir: Path },
    /// Sets the size.
    Truncate { node: Subject, size: u64 },
    /// Sets the permission bits.
    ChangeMode { node: Subject, mode: u16 },
    /// Sets the access and modification times.
    SetTimes { node: Subject, atime: Option<SetTime>, mtime: Option<SetTime> },
    /// Reads the attributes.
    GetAttr { node: Subject },
    /// Reads the target of a symbolic link.
    ReadLink { path: Path },
    /// Opens a file, reads from it and closes it.
    Peek { path: Path, offset: u64, size: u32 },
    /// Looks up the parent directory.
    Parent { dir: Path },
    /// Lists all names of a directory with their types.
    List { dir: Path },
    /// Begins a listing that continues while the directory changes.
    ScanStart { scan: usize, dir: Path },
    /// Reads the next names of that listing, about this many.
    ScanNext { scan: usize, entries: u32 },
    /// Sets an extended attribute.
    SetXattr { path: Path, name: Vec<u8>, value: Vec<u8>, flags: XattrFlags },
    /// Reads an extended attribute.
    GetXattr { path: Path, name: Vec<u8> },
    /// Lists the extended attributes in `user.`.
    ListXattr { path: Path },
    /// Removes an extended attribute.
    RemoveXattr { path: Path, name: Vec<u8> },
    /// Reads the space and file counts of the file system.
    StatFs,
}

impl Op {
    /// Returns the files and directories whose attributes are compared after this operation.
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

/// Shortens a long name for printing.
fn short(name: &Name) -> String {
    let bytes = name.as_bytes();
    match bytes.get(..12) {
        Some(head) if bytes.len() > 24 => format!("{}…{}", head.escape_ascii(), bytes.len()),
        _ => bytes.escape_ascii().to_string(),
    }
}
