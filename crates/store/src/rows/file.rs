//! Rows about the bytes and attributes of a file.

use pelago_wire::{Generation, InodeId, NameHash, limits};
use xxhash_rust::xxh3::xxh3_64;

use super::codec::{Reader, Writer};
use super::{Body, CHECKSUM_BYTES, Fault, Row, RowError};
use crate::key::RowKind;

/// That a content file is open for writing, or its bytes are not known to be safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Writing {
    /// The directory where the rnode was last seen; the file itself where it is under no name.
    pub dir: InodeId,
    /// The hash of the name it was seen under; zero where it is under no name.
    pub hash: NameHash,
    /// The content file.
    pub generation: Generation,
}

impl Row<'_> for Writing {
    const KIND: RowKind = RowKind::Writing;
}

impl Body<'_> for Writing {
    fn bytes(&self) -> usize {
        20
    }

    fn put(&self, out: &mut Writer) {
        out.ino(self.dir);
        out.hash(self.hash);
        out.generation(Some(self.generation));
    }

    fn take(body: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(Self {
            dir: body.ino()?,
            hash: body.hash()?,
            generation: body.generation()?.ok_or(Fault::Field("generation"))?,
        })
    }
}

/// That a file has no name, or its content is not yet removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orphan {
    /// The content file to remove; `None` where there is none.
    pub generation: Option<Generation>,
}

impl Row<'_> for Orphan {
    const KIND: RowKind = RowKind::Orphan;
}

impl Body<'_> for Orphan {
    fn bytes(&self) -> usize {
        4
    }

    fn put(&self, out: &mut Writer) {
        out.generation(self.generation);
    }

    fn take(body: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(Self { generation: body.generation()? })
    }
}

/// The bytes of a small file. They carry a checksum of their own, the one that a content file's
/// bytes would have, because a row's is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inline<'a> {
    /// The bytes, to [`limits::INLINE_BYTES`].
    pub bytes: &'a [u8],
}

impl Inline<'_> {
    /// The bytes that a value holds, in the memory that it has.
    ///
    /// # Errors
    /// As [`Row::decode`].
    pub fn into_bytes(mut value: Vec<u8>) -> Result<Vec<u8>, RowError> {
        let (_, row) = Inline::decode(&value)?;
        let length = row.bytes.len();
        // They are the last of it but for the row's checksum.
        value.truncate(value.len() - CHECKSUM_BYTES);
        value.drain(..value.len() - length);
        Ok(value)
    }
}

impl<'a> Row<'a> for Inline<'a> {
    const KIND: RowKind = RowKind::Inline;
}

impl<'a> Body<'a> for Inline<'a> {
    fn bytes(&self) -> usize {
        8 + self.bytes.len()
    }

    fn put(&self, out: &mut Writer) {
        assert!(self.bytes.len() <= limits::INLINE_BYTES, "a larger file has a content file");
        out.u64(xxh3_64(self.bytes));
        out.bytes(self.bytes);
    }

    fn take(body: &mut Reader<'a>) -> Result<Self, Fault> {
        let sum = body.u64()?;
        let bytes = body.rest();
        if bytes.len() > limits::INLINE_BYTES {
            return Err(Fault::Length);
        }
        if xxh3_64(bytes) != sum {
            return Err(Fault::Checksum);
        }
        Ok(Self { bytes })
    }
}

/// An extended attribute's value; its name is in the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Xattr<'a> {
    /// The value, to [`limits::XATTR_VALUE_BYTES`].
    pub value: &'a [u8],
}

impl<'a> Row<'a> for Xattr<'a> {
    const KIND: RowKind = RowKind::Xattr;
}

impl<'a> Body<'a> for Xattr<'a> {
    fn bytes(&self) -> usize {
        self.value.len()
    }

    fn put(&self, out: &mut Writer) {
        assert!(self.value.len() <= limits::XATTR_VALUE_BYTES, "a value is checked when set");
        out.bytes(self.value);
    }

    fn take(body: &mut Reader<'a>) -> Result<Self, Fault> {
        let value = body.rest();
        if value.len() > limits::XATTR_VALUE_BYTES {
            return Err(Fault::Length);
        }
        Ok(Self { value })
    }
}

/// The names of a file's extended attributes, but for access control lists, of which the rnode
/// tells. So that whoever sets or lists some reads no values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XattrNames<'a> {
    /// Each with a NUL behind it; at least one, to [`limits::XATTR_LIST_BYTES`] in all.
    pub names: &'a [u8],
}

impl<'a> Row<'a> for XattrNames<'a> {
    const KIND: RowKind = RowKind::XattrNames;
}

impl<'a> Body<'a> for XattrNames<'a> {
    fn bytes(&self) -> usize {
        self.names.len()
    }

    fn put(&self, out: &mut Writer) {
        assert!(self.names.len() <= limits::XATTR_LIST_BYTES, "names are counted when set");
        out.bytes(self.names);
    }

    fn take(body: &mut Reader<'a>) -> Result<Self, Fault> {
        let names = body.rest();
        if names.len() > limits::XATTR_LIST_BYTES {
            return Err(Fault::Length);
        }
        let Some((0, each)) = names.split_last() else { return Err(Fault::Field("names")) };
        let good = |name: &[u8]| (1..=limits::XATTR_NAME_BYTES).contains(&name.len());
        if !each.split(|byte| *byte == 0).all(good) {
            return Err(Fault::Field("names"));
        }
        Ok(Self { names })
    }
}
