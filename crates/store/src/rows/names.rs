//! Rows about names: what a name refers to, forwarding and parent pointers, and the partitions of
//! directories.

use pelago_wire::{FileKind, InodeId, NameHash, Time};

use super::codec::{Reader, TIME_BYTES, Writer};
use super::error::DecodeError;
use super::rnode::Rnode;
use super::row::{Body, Row};
use crate::key::RowKind;

/// The row of a name: the file that it refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameRow {
    /// A file that never had another name and is no directory. Its rnode is in this row.
    Rnode(Rnode),
    /// A directory, or a file that has or had several names. Its rnode is a row of kind
    /// [`RowKind::Inode`].
    Link {
        /// The file.
        ino: InodeId,
        /// The type of the file, which `readdir` reports.
        kind: FileKind,
    },
}

impl NameRow {
    /// Returns the inode that the name refers to.
    #[must_use]
    pub const fn ino(&self) -> InodeId {
        match self {
            Self::Rnode(rnode) => rnode.ino,
            Self::Link { ino, .. } => *ino,
        }
    }

    /// Returns the type of the file that the name refers to.
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
    const VERSION: u8 = Rnode::VERSION;

    fn version(&self) -> u8 {
        match self {
            Self::Rnode(rnode) => rnode.body_version(),
            Self::Link { .. } => 1,
        }
    }
}

const TAG_RNODE: u8 = 1;
const TAG_LINK: u8 = 2;

impl Body<'_> for NameRow {
    fn body_bytes(&self) -> usize {
        match self {
            Self::Rnode(rnode) => 1 + rnode.body_bytes(),
            Self::Link { .. } => 10,
        }
    }

    fn encode_body(&self, out: &mut Writer) {
        match self {
            Self::Rnode(rnode) => {
                out.u8(TAG_RNODE);
                rnode.encode_body(out);
            }
            Self::Link { ino, kind } => {
                out.u8(TAG_LINK);
                out.ino(*ino);
                out.u8(kind.number());
            }
        }
    }

    fn decode_body(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match body.u8()? {
            TAG_RNODE => Rnode::decode_body(body).map(Self::Rnode),
            TAG_LINK if body.version() == 1 => {
                Ok(Self::Link { ino: body.ino()?, kind: body.kind()? })
            }
            _ => Err(DecodeError::Field("tag")),
        }
    }
}

/// The forwarding pointer of a file with one name: where a rename moved its rnode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// The directory that has the name.
    pub dir: InodeId,
    /// The hash of the name.
    pub hash: NameHash,
}

impl Row<'_> for Moved {
    const KIND: RowKind = RowKind::Moved;
}

impl Body<'_> for Moved {
    fn body_bytes(&self) -> usize {
        16
    }

    fn encode_body(&self, out: &mut Writer) {
        out.ino(self.dir);
        out.hash(self.hash);
    }

    fn decode_body(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { dir: body.ino()?, hash: body.hash()? })
    }
}

/// A name of a file whose rnode is a [`RowKind::Inode`] row. The key says everything; the value has
/// no fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ParentPointer;

impl Row<'_> for ParentPointer {
    const KIND: RowKind = RowKind::ParentPointer;
}

impl Body<'_> for ParentPointer {
    fn body_bytes(&self) -> usize {
        0
    }

    fn encode_body(&self, _out: &mut Writer) {}

    fn decode_body(_body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self)
    }
}

/// Counts and times of a partition of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Partition {
    /// Names in the partition.
    pub names: u64,
    /// Directories among them; at most `names`.
    pub directories: u64,
    /// The time of the last change of a name.
    pub mtime: Time,
    /// The time of the last change of a name, or of the last rename of the directory itself.
    pub ctime: Time,
    /// True if names changed since the counts were written: after a crash they are counted again.
    pub dirty: bool,
    /// The split map, at most [`SPLIT_MAP_BYTES`]. Empty if this is the only partition of the
    /// directory.
    pub split_map: Vec<u8>,
}

/// Greatest length of a split map, in bytes.
pub const SPLIT_MAP_BYTES: usize = 1 << 14;

impl Row<'_> for Partition {
    const KIND: RowKind = RowKind::Partition;
}

const DIRTY: u8 = 1;

impl Body<'_> for Partition {
    fn body_bytes(&self) -> usize {
        16 + 2 * TIME_BYTES + 1 + 2 + self.split_map.len()
    }

    fn encode_body(&self, out: &mut Writer) {
        assert!(self.split_map.len() <= SPLIT_MAP_BYTES, "a split map does not outgrow its limit");
        out.u64(self.names);
        out.u64(self.directories);
        out.time(self.mtime);
        out.time(self.ctime);
        out.u8(if self.dirty { DIRTY } else { 0 });
        out.u16(self.split_map.len() as u16);
        out.bytes(&self.split_map);
    }

    fn decode_body(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let names = body.u64()?;
        let directories = body.u64()?;
        if directories > names {
            return Err(DecodeError::Field("count of directories"));
        }
        let mtime = body.time()?;
        let ctime = body.time()?;
        let dirty = match body.u8()? {
            0 => false,
            DIRTY => true,
            _ => return Err(DecodeError::Field("flags")),
        };
        let length = usize::from(body.u16()?);
        if length > SPLIT_MAP_BYTES {
            return Err(DecodeError::Field("split map"));
        }
        Ok(Self {
            names,
            directories,
            mtime,
            ctime,
            dirty,
            split_map: body.bytes(length)?.to_vec(),
        })
    }
}
