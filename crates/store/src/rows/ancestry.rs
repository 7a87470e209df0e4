//! Rows of directories of other sites that are ancestors of directories of this one.

use pelago_wire::{Attr, FileKind, InodeId, Name, Time, limits};

use super::codec::{Reader, TIME_BYTES, Writer};
use super::error::DecodeError;
use super::row::{Body, Row};
use crate::key::RowKind;

/// A directory of another site, as it was last seen. Its id is in the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AncestryRow {
    /// The directory above; `None` for the root, and if it is not known.
    pub parent: Option<InodeId>,
    /// The attributes.
    pub seen: SeenDir,
    /// The access control list.
    pub access: Access,
    /// The names in it that lead to own directories, and where each leads. Sorted by the bytes of
    /// the names; at most [`limits::ANCESTRY_NAMES`].
    pub names: Vec<(Name, InodeId)>,
}

/// The attributes of a directory of another site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenDir {
    /// Permission, setuid, setgid and sticky bits (07777).
    pub mode: u16,
    /// It may have extended attributes or access control lists.
    pub has_xattrs: bool,
    /// 2, and 1 more for each directory in it.
    pub links: u32,
    /// The owner, in the numbers of the volume.
    pub uid: u32,
    /// The group, in the numbers of the volume.
    pub gid: u32,
    /// The number of its names.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    /// The time of the last read.
    pub atime: Time,
    /// The time of the last change of its names.
    pub mtime: Time,
    /// The time of the last change of names or attributes.
    pub ctime: Time,
    /// The time of creation.
    pub btime: Time,
}

/// The access control list of a directory of another site.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Access {
    /// It was not asked for.
    #[default]
    Unknown,
    /// There is none: the mode decides.
    ModeOnly,
    /// The value of the extended attribute: 1 to [`limits::ACL_BYTES`] bytes.
    List(Vec<u8>),
}

impl SeenDir {
    /// Returns what is kept of the attributes of a directory.
    #[must_use]
    pub const fn of(attr: &Attr) -> Self {
        Self {
            mode: attr.mode & 0o7777,
            has_xattrs: attr.has_xattrs,
            links: attr.links,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            blocks: attr.blocks,
            atime: attr.atime,
            mtime: attr.mtime,
            ctime: attr.ctime,
            btime: attr.btime,
        }
    }

    /// Returns the attributes, which no cache may keep.
    #[must_use]
    pub const fn attr(&self, ino: InodeId) -> Attr {
        Attr {
            mode: self.mode,
            has_xattrs: self.has_xattrs,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            volatile: true,
            ..Attr::empty(ino, FileKind::Directory)
        }
    }
}

/// Bytes of a body without a list and without names.
const FIXED_BYTES: usize = 8 + 2 + 1 + 3 * 4 + 2 * 8 + 4 * TIME_BYTES + 2 + 2;

const HAS_XATTRS: u8 = 1;
const ACCESS_IS_KNOWN: u8 = 2;

impl Row<'_> for AncestryRow {
    const KIND: RowKind = RowKind::Ancestry;
}

impl Body<'_> for AncestryRow {
    fn body_bytes(&self) -> usize {
        let names = self.names.iter().map(|(name, _)| 1 + name.as_bytes().len() + 8);
        FIXED_BYTES + self.list().len() + names.sum::<usize>()
    }

    fn encode_body(&self, out: &mut Writer) {
        let Self { parent, seen, access, names } = self;
        let list = self.list();
        assert!(list.len() <= limits::ACL_BYTES, "a list is checked when it is recorded");
        assert!(names.len() <= limits::ANCESTRY_NAMES, "names are counted when recorded");
        let access_is_known = if *access == Access::Unknown { 0 } else { ACCESS_IS_KNOWN };
        out.u64(parent.map_or(0, InodeId::raw));
        out.u16(seen.mode);
        out.u8(if seen.has_xattrs { HAS_XATTRS } else { 0 } | access_is_known);
        out.u32(seen.links);
        out.u32(seen.uid);
        out.u32(seen.gid);
        out.u64(seen.size);
        out.u64(seen.blocks);
        for time in [seen.atime, seen.mtime, seen.ctime, seen.btime] {
            out.time(time);
        }
        out.u16(list.len() as u16);
        out.bytes(list);
        out.u16(names.len() as u16);
        for (name, ino) in names {
            out.u8(name.as_bytes().len() as u8);
            out.bytes(name.as_bytes());
            out.ino(*ino);
        }
    }

    fn decode_body(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let parent = Some(body.ino()?).filter(|ino| ino.raw() != 0);
        let mode = body.u16()?;
        let flags = body.u8()?;
        if mode > 0o7777 {
            return Err(DecodeError::Field("mode"));
        }
        if flags & !(HAS_XATTRS | ACCESS_IS_KNOWN) != 0 {
            return Err(DecodeError::Field("flags"));
        }
        let seen = SeenDir {
            mode,
            has_xattrs: flags & HAS_XATTRS != 0,
            links: body.u32()?,
            uid: body.u32()?,
            gid: body.u32()?,
            size: body.u64()?,
            blocks: body.u64()?,
            atime: body.time()?,
            mtime: body.time()?,
            ctime: body.time()?,
            btime: body.time()?,
        };
        let length = usize::from(body.u16()?);
        let list = body.bytes(length)?;
        let access = match (flags & ACCESS_IS_KNOWN != 0, list) {
            (false, []) => Access::Unknown,
            (true, []) => Access::ModeOnly,
            (true, list) if list.len() <= limits::ACL_BYTES => Access::List(list.to_vec()),
            _ => return Err(DecodeError::Field("access list")),
        };
        let count = usize::from(body.u16()?);
        if count > limits::ANCESTRY_NAMES {
            return Err(DecodeError::Length);
        }
        let mut names: Vec<(Name, InodeId)> = Vec::with_capacity(count);
        for _ in 0..count {
            let length = usize::from(body.u8()?);
            let name = Name::new(body.bytes(length)?).map_err(|_| DecodeError::Field("name"))?;
            if names.last().is_some_and(|(last, _)| last.as_bytes() >= name.as_bytes()) {
                return Err(DecodeError::Field("order of the names"));
            }
            names.push((name, body.ino()?));
        }
        Ok(Self { parent, seen, access, names })
    }
}

impl AncestryRow {
    fn list(&self) -> &[u8] {
        match &self.access {
            Access::List(list) => list,
            Access::Unknown | Access::ModeOnly => &[],
        }
    }
}
