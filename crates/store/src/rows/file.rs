//! Rows about the bytes and extended attributes of a file.

use pelago_wire::{Generation, InodeId, NameHash, limits};
use xxhash_rust::xxh3::xxh3_64;

use super::codec::{Reader, Writer};
use super::error::{DecodeError, RowError};
use super::row::{Body, CHECKSUM_BYTES, Row};
use crate::key::RowKind;

/// A content file that is open for writing, or whose bytes may not be safe yet. After a crash its
/// size and times count, not those of the rnode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Writing {
    /// The directory whose name row last held the rnode. The inode of the file itself if a row of
    /// kind [`RowKind::Inode`] held it.
    pub dir: InodeId,
    /// The hash of that name; 0 if there was none.
    pub hash: NameHash,
    /// The generation of the content file.
    pub generation: Generation,
}

impl Row<'_> for Writing {
    const KIND: RowKind = RowKind::Writing;
}

impl Body<'_> for Writing {
    fn body_bytes(&self) -> usize {
        20
    }

    fn encode_body(&self, out: &mut Writer) {
        out.ino(self.dir);
        out.hash(self.hash);
        out.generation(Some(self.generation));
    }

    fn decode_body(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            dir: body.ino()?,
            hash: body.hash()?,
            generation: body.generation()?.ok_or(DecodeError::Field("generation"))?,
        })
    }
}

/// A file that has no name, or whose content is not removed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orphan {
    /// The generation of the content file to remove, if there is one.
    pub generation: Option<Generation>,
}

impl Row<'_> for Orphan {
    const KIND: RowKind = RowKind::Orphan;
}

impl Body<'_> for Orphan {
    fn body_bytes(&self) -> usize {
        4
    }

    fn encode_body(&self, out: &mut Writer) {
        out.generation(self.generation);
    }

    fn decode_body(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { generation: body.generation()? })
    }
}

/// The bytes of a small file. They have a checksum of 64 bits, because that of a row has only 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inline<'a> {
    /// The bytes, at most [`limits::INLINE_BYTES`].
    pub bytes: &'a [u8],
}

impl Inline<'_> {
    /// Decodes a value to the bytes of the file, in the memory of the value.
    ///
    /// # Errors
    /// As [`Row::decode`].
    pub fn decode_owned(mut value: Vec<u8>) -> Result<Vec<u8>, RowError> {
        let (_, row) = Inline::decode(&value)?;
        let length = row.bytes.len();
        // Only the checksum of the row follows the bytes.
        value.truncate(value.len() - CHECKSUM_BYTES);
        value.drain(..value.len() - length);
        Ok(value)
    }
}

impl<'a> Row<'a> for Inline<'a> {
    const KIND: RowKind = RowKind::Inline;
}

impl<'a> Body<'a> for Inline<'a> {
    fn body_bytes(&self) -> usize {
        8 + self.bytes.len()
    }

    fn encode_body(&self, out: &mut Writer) {
        assert!(self.bytes.len() <= limits::INLINE_BYTES, "a larger file has a content file");
        out.u64(xxh3_64(self.bytes));
        out.bytes(self.bytes);
    }

    fn decode_body(body: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let sum = body.u64()?;
        let bytes = body.rest();
        if bytes.len() > limits::INLINE_BYTES {
            return Err(DecodeError::Length);
        }
        if xxh3_64(bytes) != sum {
            return Err(DecodeError::Checksum);
        }
        Ok(Self { bytes })
    }
}

/// The value of an extended attribute. The key holds its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Xattr<'a> {
    /// The value, at most [`limits::XATTR_VALUE_BYTES`].
    pub value: &'a [u8],
}

impl<'a> Row<'a> for Xattr<'a> {
    const KIND: RowKind = RowKind::Xattr;
}

impl<'a> Body<'a> for Xattr<'a> {
    fn body_bytes(&self) -> usize {
        self.value.len()
    }

    fn encode_body(&self, out: &mut Writer) {
        assert!(self.value.len() <= limits::XATTR_VALUE_BYTES, "a value is checked when set");
        out.bytes(self.value);
    }

    fn decode_body(body: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let value = body.rest();
        if value.len() > limits::XATTR_VALUE_BYTES {
            return Err(DecodeError::Length);
        }
        Ok(Self { value })
    }
}

/// A tag of a file. The key has its key and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// The directory of the name whose row had the rnode when the tag was set, or a
    /// [`RowKind::Moved`] row leads from there. The inode of the file itself if a row of kind
    /// [`RowKind::Inode`] had it.
    pub dir: InodeId,
    /// The hash of that name; 0 if there was none.
    pub hash: NameHash,
}

impl Row<'_> for Tag {
    const KIND: RowKind = RowKind::Tag;
}

impl Body<'_> for Tag {
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

/// The names of a file's extended attributes, so that setting and listing them reads no values.
/// Access control lists are not among them: [`super::RnodeFlags`] says which there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XattrNames<'a> {
    /// At least one name, each followed by a NUL, at most [`limits::XATTR_LIST_BYTES`] in all.
    pub names: &'a [u8],
}

impl<'a> Row<'a> for XattrNames<'a> {
    const KIND: RowKind = RowKind::XattrNames;
}

impl<'a> Body<'a> for XattrNames<'a> {
    fn body_bytes(&self) -> usize {
        self.names.len()
    }

    fn encode_body(&self, out: &mut Writer) {
        assert!(self.names.len() <= limits::XATTR_LIST_BYTES, "names are counted when set");
        out.bytes(self.names);
    }

    fn decode_body(body: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let names = body.rest();
        if names.len() > limits::XATTR_LIST_BYTES {
            return Err(DecodeError::Length);
        }
        let Some((0, each)) = names.split_last() else { return Err(DecodeError::Field("names")) };
        let is_valid = |name: &[u8]| (1..=limits::XATTR_NAME_BYTES).contains(&name.len());
        if !each.split(|byte| *byte == 0).all(is_valid) {
            return Err(DecodeError::Field("names"));
        }
        Ok(Self { names })
    }
}
