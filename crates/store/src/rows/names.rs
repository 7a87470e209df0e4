//! Rows about names: what one leads to, where a file went, and the partitions of directories.

use pelago_wire::{FileKind, InodeId, NameHash, Time};

use super::codec::{Reader, TIME_BYTES, Writer};
use super::{Body, Fault, Rnode, Row};
use crate::key::RowKind;

/// What a name leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameRow {
    /// The file itself: it never had another name, and is no directory.
    Rnode(Rnode),
    /// A directory, or a file that has or had several names: its rnode is in [`RowKind::Inode`].
    Link {
        /// Which one.
        ino: InodeId,
        /// What it is.
        kind: FileKind,
    },
}

impl NameRow {
    /// Which file it leads to.
    #[must_use]
    pub const fn ino(&self) -> InodeId {
        match self {
            Self::Rnode(rnode) => rnode.ino,
            Self::Link { ino, .. } => *ino,
        }
    }

    /// What it leads to.
    #[must_use]
    pub const fn kind(&self) -> FileKind {
        match self {
            Self::Rnode(rnode) => rnode.kind,
            Self::Link { kind, .. } => *kind,
        }
    }
}

impl Row<'_> for NameRow {
    const KIND: RowKind = RowKind::Name;
}

const TAG_RNODE: u8 = 1;
const TAG_LINK: u8 = 2;

impl Body<'_> for NameRow {
    fn bytes(&self) -> usize {
        match self {
            Self::Rnode(rnode) => 1 + rnode.bytes(),
            Self::Link { .. } => 10,
        }
    }

    fn put(&self, out: &mut Writer) {
        match self {
            Self::Rnode(rnode) => {
                out.u8(TAG_RNODE);
                rnode.put(out);
            }
            Self::Link { ino, kind } => {
                out.u8(TAG_LINK);
                out.ino(*ino);
                out.u8(kind.number());
            }
        }
    }

    fn take(body: &mut Reader<'_>) -> Result<Self, Fault> {
        match body.u8()? {
            TAG_RNODE => Rnode::take(body).map(Self::Rnode),
            TAG_LINK => Ok(Self::Link { ino: body.ino()?, kind: body.kind()? }),
            _ => Err(Fault::Field("tag")),
        }
    }
}

/// Where a file with one name went when it was renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// The directory it is in.
    pub dir: InodeId,
    /// The hash of its name there.
    pub hash: NameHash,
}

impl Row<'_> for Moved {
    const KIND: RowKind = RowKind::Moved;
}

impl Body<'_> for Moved {
    fn bytes(&self) -> usize {
        16
    }

    fn put(&self, out: &mut Writer) {
        out.ino(self.dir);
        out.hash(self.hash);
    }

    fn take(body: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(Self { dir: body.ino()?, hash: body.hash()? })
    }
}

/// That a file or directory has the name that the key says. There is nothing more to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ParentPointer;

impl Row<'_> for ParentPointer {
    const KIND: RowKind = RowKind::ParentPointer;
}

impl Body<'_> for ParentPointer {
    fn bytes(&self) -> usize {
        0
    }

    fn put(&self, _out: &mut Writer) {}

    fn take(_body: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(Self)
    }
}

/// Counts and times of one partition of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Partition {
    /// Names in it.
    pub names: u64,
    /// Of those, directories.
    pub directories: u64,
    /// Last change of its names.
    pub mtime: Time,
    /// Last change of its names, or of what a rename did to the directory.
    pub ctime: Time,
    /// Names changed since the counts were written: after an unclean stop they are counted again.
    pub dirty: bool,
    /// The split map, to [`MAP_BYTES`]; empty: the directory has this one partition (`r` = 0).
    pub map: Vec<u8>,
}

/// Bytes of a partition's split map, at the most.
pub const MAP_BYTES: usize = 1 << 14;

impl Row<'_> for Partition {
    const KIND: RowKind = RowKind::Partition;
}

const DIRTY: u8 = 1;

impl Body<'_> for Partition {
    fn bytes(&self) -> usize {
        16 + 2 * TIME_BYTES + 1 + 2 + self.map.len()
    }

    fn put(&self, out: &mut Writer) {
        assert!(self.map.len() <= MAP_BYTES, "a split map does not outgrow its limit");
        out.u64(self.names);
        out.u64(self.directories);
        out.time(self.mtime);
        out.time(self.ctime);
        out.u8(if self.dirty { DIRTY } else { 0 });
        out.u16(self.map.len() as u16);
        out.bytes(&self.map);
    }

    fn take(body: &mut Reader<'_>) -> Result<Self, Fault> {
        let (names, directories) = (body.u64()?, body.u64()?);
        if directories > names {
            return Err(Fault::Field("count of directories"));
        }
        let (mtime, ctime) = (body.time()?, body.time()?);
        let dirty = match body.u8()? {
            0 => false,
            DIRTY => true,
            _ => return Err(Fault::Field("flags")),
        };
        let length = usize::from(body.u16()?);
        if length > MAP_BYTES {
            return Err(Fault::Field("split map"));
        }
        Ok(Self { names, directories, mtime, ctime, dirty, map: body.bytes(length)?.to_vec() })
    }
}
