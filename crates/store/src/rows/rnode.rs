//! The rnode: what is known of a file, directory or link besides its names and bytes.

use pelago_wire::{Attr, FileKind, Generation, InodeId, Time, limits};

use super::codec::{Reader, TIME_BYTES, Writer};
use super::{Body, Fault, Row};
use crate::key::RowKind;

/// What is known of a file. It says nothing of where it is kept, so that it moves as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rnode {
    /// Its number.
    pub ino: InodeId,
    /// What it is.
    pub kind: FileKind,
    /// Permission, setuid, setgid and sticky bits (07777).
    pub mode: u16,
    /// What else is kept of it.
    pub flags: RnodeFlags,
    /// Names it has; not kept up to date for directories, where the partitions count.
    pub links: u32,
    /// Owner, a number of the volume.
    pub uid: u32,
    /// Group, a number of the volume.
    pub gid: u32,
    /// Device number in the kernel's 32-bit encoding.
    pub rdev: u32,
    /// The content file that holds its bytes; `None` where it never had one.
    pub generation: Option<Generation>,
    /// Bytes, to [`limits::FILE_BYTES`]; nothing for directories, where the partitions count.
    pub size: u64,
    /// Units of 512 bytes on the medium.
    pub blocks: u64,
    /// Counts up with each change of bytes or attributes.
    pub version: u64,
    /// The directory whose quota it counts in.
    pub quota_root: InodeId,
    /// Last read.
    pub atime: Time,
    /// Last change of the bytes; of directories, where it is newer than their partitions'.
    pub mtime: Time,
    /// Last change of anything; of directories, where it is newer than their partitions'.
    pub ctime: Time,
    /// When it was made.
    pub btime: Time,
    /// When its last name was removed; zero while it has one.
    pub deleted_at: Time,
    /// What a symbolic link says, 1 to 4095 bytes; empty for all else.
    pub target: Vec<u8>,
}

/// What else is kept of a file, so that nothing is asked in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RnodeFlags {
    /// It has extended attributes ([`super::Xattr`]).
    pub has_xattrs: bool,
    /// It has an access control list among them that says more than its mode.
    pub has_acl: bool,
    /// It has a default access control list among them.
    pub has_default_acl: bool,
    /// Its bytes are in the content file of its generation.
    pub has_content: bool,
    /// Its bytes are in an [`super::Inline`] row.
    pub inline: bool,
    /// A [`super::Moved`] row says where it went.
    pub moved: bool,
}

impl Rnode {
    /// The attributes as `stat` shows them; of a directory, size and links are to be filled in
    /// from its partitions.
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
            changing: false,
        }
    }
}

impl Row<'_> for Rnode {
    const KIND: RowKind = RowKind::Inode;
}

impl Body<'_> for Rnode {
    fn bytes(&self) -> usize {
        FIXED_BYTES + self.target.len()
    }

    fn put(&self, out: &mut Writer) {
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
        out.u16(self.target.len() as u16);
        out.bytes(&self.target);
    }

    fn take(body: &mut Reader<'_>) -> Result<Self, Fault> {
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
            target: {
                let length = usize::from(body.u16()?);
                body.bytes(length)?.to_vec()
            },
        };
        row.check()?;
        Ok(row)
    }
}

impl Rnode {
    fn check(&self) -> Result<(), Fault> {
        if self.mode > 0o7777 {
            return Err(Fault::Field("mode"));
        }
        if self.size > limits::FILE_BYTES {
            return Err(Fault::Field("size"));
        }
        let expected = match self.kind {
            FileKind::Symlink => 1..=limits::TARGET_BYTES,
            _ => 0..=0,
        };
        if !expected.contains(&self.target.len()) {
            return Err(Fault::Field("target"));
        }
        Ok(())
    }
}

/// Bytes of an rnode without a target.
const FIXED_BYTES: usize = 8 + 1 + 1 + 2 + 5 * 4 + 4 * 8 + 5 * TIME_BYTES + 2;

const HAS_XATTRS: u8 = 1;
const HAS_ACL: u8 = 2;
const HAS_CONTENT: u8 = 4;
const INLINE: u8 = 8;
const MOVED: u8 = 16;
const HAS_DEFAULT_ACL: u8 = 32;
const KNOWN: u8 = HAS_XATTRS | HAS_ACL | HAS_CONTENT | INLINE | MOVED | HAS_DEFAULT_ACL;

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

    fn from_bits(bits: u8) -> Result<Self, Fault> {
        if bits & !KNOWN != 0 {
            return Err(Fault::Field("flags"));
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
