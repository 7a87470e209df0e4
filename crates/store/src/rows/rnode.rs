//! The rnode: the stored attributes of a file, directory or symbolic link.

use pelago_wire::{Attr, FileKind, Generation, InodeId, Time, limits};

use super::codec::{Reader, TIME_BYTES, Writer};
use super::error::DecodeError;
use super::row::{Body, Row};
use crate::key::RowKind;
use crate::volume::Owner;

/// The stored attributes of a file, without its names and bytes. A rename moves it unchanged: it
/// does not say which row holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rnode {
    /// The id of the file.
    pub ino: InodeId,
    /// The type of the file.
    pub kind: FileKind,
    /// Permission, setuid, setgid and sticky bits (07777).
    pub mode: u16,
    /// Marks of the other rows and files that belong to it.
    pub flags: RnodeFlags,
    /// The number of names. Not kept up to date for directories: partitions count those.
    pub links: u32,
    /// The owner, in the numbers of the volume.
    pub uid: u32,
    /// The group, in the numbers of the volume.
    pub gid: u32,
    /// The device number of a device, in the kernel's 32-bit encoding; 0 for other files.
    pub rdev: u32,
    /// The generation of the newest content file; `None` if there never was one.
    pub generation: Option<Generation>,
    /// The size in bytes, at most [`limits::FILE_BYTES`]. Not used for directories: partitions
    /// count their names.
    pub size: u64,
    /// Disk space that the bytes take, in units of 512 bytes.
    pub blocks: u64,
    /// The number of changes of bytes or attributes.
    pub version: u64,
    /// The directory whose quota includes the file.
    pub quota_root: InodeId,
    /// The time of the last read.
    pub atime: Time,
    /// The time of the last change of the bytes. For a directory the newest of this time and those
    /// of its partitions counts.
    pub mtime: Time,
    /// The time of the last change of bytes or attributes. For a directory as `mtime`.
    pub ctime: Time,
    /// The time of creation.
    pub btime: Time,
    /// The time when the last name was removed; zero while the file has a name, and before it gets
    /// its first.
    pub deleted_at: Time,
    /// The node at another site that has the bytes, which stay there; `None` if they are here. Only
    /// an ordinary file without inline bytes and content file has one.
    pub bytes_at: Option<InodeId>,
    /// The target of a symbolic link, 1 to 4095 bytes; empty for other files.
    pub target: Vec<u8>,
}

/// Marks of the other rows and files that belong to an rnode, so that no read looks for a row that
/// is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RnodeFlags {
    /// There are [`super::Xattr`] rows.
    pub has_xattrs: bool,
    /// One of them is an access ACL. An ACL that only repeats the mode is not stored.
    pub has_acl: bool,
    /// One of them is a default ACL.
    pub has_default_acl: bool,
    /// The bytes are in a content file.
    pub has_content: bool,
    /// The bytes are in an [`super::Inline`] row.
    pub inline: bool,
    /// There is a [`super::Moved`] row.
    pub moved: bool,
}

impl Rnode {
    /// Returns the root directory of a new volume.
    #[must_use]
    pub fn root(owner: Owner, now: Time) -> Self {
        Self {
            ino: InodeId::ROOT,
            kind: FileKind::Directory,
            mode: 0o755,
            flags: RnodeFlags::default(),
            links: 1,
            uid: owner.uid,
            gid: owner.gid,
            rdev: 0,
            generation: None,
            size: 0,
            blocks: 0,
            version: 1,
            quota_root: InodeId::ROOT,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            deleted_at: Time::default(),
            bytes_at: None,
            target: Vec::new(),
        }
    }

    /// Returns the attributes that `stat` shows. Size and links of a directory are left to the
    /// caller, who knows its partitions.
    #[must_use]
    pub const fn attr(&self) -> Attr {
        Attr {
            ino: self.ino,
            kind: self.kind,
            mode: self.mode,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            volatile: false,
            has_xattrs: self.flags.has_xattrs,
        }
    }
}

impl Row<'_> for Rnode {
    const KIND: RowKind = RowKind::Inode;
    const VERSION: u8 = 2;

    fn version(&self) -> u8 {
        self.body_version()
    }
}

impl Body<'_> for Rnode {
    fn body_bytes(&self) -> usize {
        let elsewhere = if self.bytes_at.is_some() { BYTES_AT_BYTES } else { 0 };
        FIXED_BYTES + elsewhere + self.target.len()
    }

    fn encode_body(&self, out: &mut Writer) {
        assert!(self.target.len() <= limits::TARGET_BYTES, "a link's target is checked when made");
        out.ino(self.ino);
        out.u8(self.kind.number());
        out.u8(self.flags.bits());
        out.u16(self.mode);
        out.u32(self.links);
        out.u32(self.uid);
        out.u32(self.gid);
        out.u32(self.rdev);
        out.generation(self.generation);
        out.u64(self.size);
        out.u64(self.blocks);
        out.u64(self.version);
        out.ino(self.quota_root);
        for time in [self.atime, self.mtime, self.ctime, self.btime, self.deleted_at] {
            out.time(time);
        }
        if let Some(node) = self.bytes_at {
            out.u16(node.site());
            out.ino(node);
        }
        out.u16(self.target.len() as u16);
        out.bytes(&self.target);
    }

    fn decode_body(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let row = Self {
            ino: body.ino()?,
            kind: body.kind()?,
            flags: RnodeFlags::from_bits(body.u8()?)?,
            mode: body.u16()?,
            links: body.u32()?,
            uid: body.u32()?,
            gid: body.u32()?,
            rdev: body.u32()?,
            generation: body.generation()?,
            size: body.u64()?,
            blocks: body.u64()?,
            version: body.u64()?,
            quota_root: body.ino()?,
            atime: body.time()?,
            mtime: body.time()?,
            ctime: body.time()?,
            btime: body.time()?,
            deleted_at: body.time()?,
            bytes_at: decode_bytes_at(body)?,
            target: {
                let length = usize::from(body.u16()?);
                body.bytes(length)?.to_vec()
            },
        };
        row.check()?;
        Ok(row)
    }
}

/// Decodes the node that has the bytes; body 1 has none.
fn decode_bytes_at(body: &mut Reader<'_>) -> Result<Option<InodeId>, DecodeError> {
    if body.version() < WITH_BYTES_AT {
        return Ok(None);
    }
    let site = body.u16()?;
    let node = body.ino()?;
    match node.site() == site {
        true => Ok(Some(node)),
        false => Err(DecodeError::Field("site of the bytes")),
    }
}

impl Rnode {
    /// Returns the version of the body: 2 only if the bytes are at another site, so that all other
    /// files can be read by earlier programs.
    pub(super) const fn body_version(&self) -> u8 {
        if self.bytes_at.is_some() { WITH_BYTES_AT } else { 1 }
    }

    fn check(&self) -> Result<(), DecodeError> {
        if self.mode > 0o7777 {
            return Err(DecodeError::Field("mode"));
        }
        if self.size > limits::FILE_BYTES {
            return Err(DecodeError::Field("size"));
        }
        let has_bytes_here = self.flags.has_content || self.flags.inline;
        if self.bytes_at.is_some() && (self.kind != FileKind::Regular || has_bytes_here) {
            return Err(DecodeError::Field("site of the bytes"));
        }
        let expected = match self.kind {
            FileKind::Symlink => 1..=limits::TARGET_BYTES,
            _ => 0..=0,
        };
        if !expected.contains(&self.target.len()) {
            return Err(DecodeError::Field("target"));
        }
        Ok(())
    }
}

/// Bytes of an encoded rnode without a target.
const FIXED_BYTES: usize = 8 + 1 + 1 + 2 + 5 * 4 + 4 * 8 + 5 * TIME_BYTES + 2;

/// Bytes of the node that has the bytes, and of its site.
const BYTES_AT_BYTES: usize = 2 + 8;

/// The version of the body that has them.
const WITH_BYTES_AT: u8 = 2;

const HAS_XATTRS: u8 = 1;
const HAS_ACL: u8 = 2;
const HAS_CONTENT: u8 = 4;
const INLINE: u8 = 8;
const MOVED: u8 = 16;
const HAS_DEFAULT_ACL: u8 = 32;
const ALL_FLAGS: u8 = HAS_XATTRS | HAS_ACL | HAS_CONTENT | INLINE | MOVED | HAS_DEFAULT_ACL;

impl RnodeFlags {
    fn bits(self) -> u8 {
        [
            (self.has_xattrs, HAS_XATTRS),
            (self.has_acl, HAS_ACL),
            (self.has_content, HAS_CONTENT),
            (self.inline, INLINE),
            (self.moved, MOVED),
            (self.has_default_acl, HAS_DEFAULT_ACL),
        ]
        .into_iter()
        .fold(0, |bits, (set, bit)| if set { bits | bit } else { bits })
    }

    fn from_bits(bits: u8) -> Result<Self, DecodeError> {
        if bits & !ALL_FLAGS != 0 {
            return Err(DecodeError::Field("flags"));
        }
        Ok(Self {
            has_xattrs: bits & HAS_XATTRS != 0,
            has_acl: bits & HAS_ACL != 0,
            has_default_acl: bits & HAS_DEFAULT_ACL != 0,
            has_content: bits & HAS_CONTENT != 0,
            inline: bits & INLINE != 0,
            moved: bits & MOVED != 0,
        })
    }
}
