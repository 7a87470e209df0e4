//! Decoding of requests, opcode by opcode. A body may be longer than its layout: newer kernels
//! append fields.

use crate::attr::Timestamp;
use crate::bytes::Cursor;
use crate::ids::{FileId, LockOwner, NodeId};
use crate::init::Init;
use crate::operation::{
    CopyFileRange, Create, Fallocate, FileLock, FileLockKind, Flush, Forgets, Fsync, Getlk, Link,
    Lseek, Mkdir, Mknod, Open, Operation, Read, Readdir, Release, Rename, SetAttr, SetTime, Setlk,
    Setxattr, Symlink, Write,
};
use crate::request::{LayoutError, Layouts};

const FORGET: u32 = 2;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// Bytes of `fuse_forget_one`.
const FORGET_BYTES: u64 = 16;

/// In `getattr_flags`: `fh` is valid.
const GETATTR_FH: u32 = 1 << 0;
/// In `open_flags`.
const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// In `write_flags`.
const WRITE_CACHE: u32 = 1 << 0;
const WRITE_LOCKOWNER: u32 = 1 << 1;
const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// In `release_flags`.
const RELEASE_FLUSH: u32 = 1 << 0;
const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// In `lk_flags`.
const LK_FLOCK: u32 = 1 << 0;
/// In `fsync_flags`.
const FSYNC_DATA: u32 = 1 << 0;
/// In `setxattr_flags`.
const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// In `flags` of FUSE_INIT: `flags2` is valid.
const INIT_EXT: u32 = 1 << 30;

/// In `valid` of FUSE_SETATTR: which fields are valid.
const FATTR_MODE: u32 = 1 << 0;
const FATTR_UID: u32 = 1 << 1;
const FATTR_GID: u32 = 1 << 2;
const FATTR_SIZE: u32 = 1 << 3;
const FATTR_ATIME: u32 = 1 << 4;
const FATTR_MTIME: u32 = 1 << 5;
const FATTR_FH: u32 = 1 << 6;
const FATTR_ATIME_NOW: u32 = 1 << 7;
const FATTR_MTIME_NOW: u32 = 1 << 8;
const FATTR_CTIME: u32 = 1 << 10;
const FATTR_KILL_SUIDGID: u32 = 1 << 11;

impl<'a> Operation<'a> {
    /// Decodes the bytes between the header and the extensions.
    ///
    /// # Errors
    /// [`LayoutError`] if they break the layout of the opcode.
    pub fn decode(opcode: u32, body: &'a [u8], layouts: Layouts) -> Result<Self, LayoutError> {
        Self::read(opcode, &mut Cursor::new(body), layouts)
    }

    /// Decodes the body of a request.
    pub(crate) fn read(
        opcode: u32,
        body: &mut Cursor<'a>,
        layouts: Layouts,
    ) -> Result<Self, LayoutError> {
        Ok(match opcode {
            1 => Self::Lookup { name: body.name()? },
            FORGET => Self::Forget { lookups: body.u64()? },
            3 => get_attr(body)?,
            4 => Self::SetAttr(set_attr(body)?),
            5 => Self::Readlink,
            6 => Self::Symlink(Symlink { name: body.name()?, target: body.name()? }),
            8 => Self::Mknod(mknod(body)?),
            9 => Self::Mkdir(Mkdir { mode: body.u32()?, umask: body.u32()?, name: body.name()? }),
            10 => Self::Unlink { name: body.name()? },
            11 => Self::Rmdir { name: body.name()? },
            12 => Self::Rename(rename(body, false)?),
            13 => Self::Link(Link { node: NodeId(body.u64()?), name: body.name()? }),
            14 => Self::Open(open(body)?),
            15 => Self::Read(read(body)?),
            16 => Self::Write(write(body)?),
            17 => Self::Statfs,
            18 => Self::Release(release(body)?),
            20 => Self::Fsync(fsync(body)?),
            21 => Self::Setxattr(setxattr(body, layouts.setxattr_ext)?),
            22 => Self::Getxattr { size: xattr_size(body)?, name: body.name()? },
            23 => Self::Listxattr { size: xattr_size(body)? },
            24 => Self::Removexattr { name: body.name()? },
            25 => Self::Flush(flush(body)?),
            26 => Self::Init(init(body)?),
            27 => Self::Opendir { flags: open(body)?.flags },
            28 => Self::Readdir(readdir(body)?),
            29 => Self::Releasedir { file: release(body)?.file },
            30 => Self::Fsyncdir(fsync(body)?),
            31 => Self::Getlk(get_lock(body)?),
            32 => Self::Setlk(set_lock(body, false)?),
            33 => Self::Setlk(set_lock(body, true)?),
            34 => Self::Access { mask: access(body)? },
            35 => Self::Create(create(body)?),
            INTERRUPT => Self::Interrupt { unique: body.u64()? },
            38 => Self::Destroy,
            BATCH_FORGET => Self::BatchForget(forgets(body)?),
            43 => Self::Fallocate(fallocate(body)?),
            44 => Self::ReaddirPlus(readdir(body)?),
            45 => Self::Rename(rename(body, true)?),
            46 => Self::Lseek(lseek(body)?),
            47 => Self::CopyFileRange(copy_file_range(body)?),
            51 => Self::Tmpfile(create(body)?),
            52 => statx(body)?,
            other => Self::Other(other),
        })
    }

    /// Returns whether the kernel waits for a reply to this opcode.
    pub(crate) const fn has_reply(opcode: u32) -> bool {
        !matches!(opcode, FORGET | INTERRUPT | BATCH_FORGET)
    }
}

impl Iterator for Forgets<'_> {
    type Item = (NodeId, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let mut cursor = Cursor::new(self.0);
        let next = (NodeId(cursor.u64().ok()?), cursor.u64().ok()?);
        self.0 = cursor.rest();
        Some(next)
    }
}

/// Decodes `fuse_init_in`, of which only the version is known if the major version is not ours. It
/// has `flags2` since 7.36 (Linux 5.17), which `INIT_EXT` says.
fn init(body: &mut Cursor<'_>) -> Result<Init, LayoutError> {
    let major = body.u32()?;
    let minor = body.u32()?;
    if major != crate::init::MAJOR {
        return Ok(Init { major, minor, max_readahead: 0, capabilities: 0 });
    }
    let max_readahead = body.u32()?;
    let flags = body.u32()?;
    let flags2 = if flags & INIT_EXT == 0 { 0 } else { body.u32()? };
    let capabilities = u64::from(flags2) << 32 | u64::from(flags);
    Ok(Init { major, minor, max_readahead, capabilities })
}

/// Decodes `fuse_batch_forget_in` and the array of `fuse_forget_one` after it.
fn forgets<'a>(body: &mut Cursor<'a>) -> Result<Forgets<'a>, LayoutError> {
    let count = u64::from(body.u32()?);
    body.skip::<4>()?;
    body.take(count * FORGET_BYTES).map(Forgets)
}

/// `fuse_getattr_in`.
fn get_attr<'a>(body: &mut Cursor<'_>) -> Result<Operation<'a>, LayoutError> {
    let flags = body.u32()?;
    body.skip::<4>()?;
    let file = FileId(body.u64()?);
    Ok(Operation::GetAttr { file: (flags & GETATTR_FH != 0).then_some(file) })
}

/// `fuse_statx_in`, which always asks for the same fields.
fn statx<'a>(body: &mut Cursor<'_>) -> Result<Operation<'a>, LayoutError> {
    body.skip::<24>()?;
    Ok(Operation::Statx)
}

/// `fuse_setattr_in`.
fn set_attr(body: &mut Cursor<'_>) -> Result<SetAttr, LayoutError> {
    let valid = body.u32()?;
    let has = |bit: u32| valid & bit != 0;
    body.skip::<4>()?;
    let file = FileId(body.u64()?);
    let size = body.u64()?;
    let _lock_owner = body.u64()?;
    let atime = body.i64()?;
    let mtime = body.i64()?;
    let ctime = body.i64()?;
    let atime_nanos = body.u32()?;
    let mtime_nanos = body.u32()?;
    let ctime_nanos = body.u32()?;
    let mode = body.u32()?;
    body.skip::<4>()?;
    let uid = body.u32()?;
    let gid = body.u32()?;
    body.skip::<4>()?;
    let time_to_set = |given: u32, now: u32, seconds: i64, nanos: u32| match () {
        () if has(now) => Ok(Some(SetTime::Now)),
        () if has(given) => timestamp(seconds, nanos).map(|time| Some(SetTime::To(time))),
        () => Ok(None),
    };
    Ok(SetAttr {
        mode: has(FATTR_MODE).then_some(mode),
        uid: has(FATTR_UID).then_some(uid),
        gid: has(FATTR_GID).then_some(gid),
        size: has(FATTR_SIZE).then_some(size),
        atime: time_to_set(FATTR_ATIME, FATTR_ATIME_NOW, atime, atime_nanos)?,
        mtime: time_to_set(FATTR_MTIME, FATTR_MTIME_NOW, mtime, mtime_nanos)?,
        ctime: has(FATTR_CTIME).then(|| timestamp(ctime, ctime_nanos)).transpose()?,
        file: has(FATTR_FH).then_some(file),
        kill_privileges: has(FATTR_KILL_SUIDGID),
    })
}

/// `fuse_mknod_in`.
fn mknod<'a>(body: &mut Cursor<'a>) -> Result<Mknod<'a>, LayoutError> {
    let mode = body.u32()?;
    let rdev = body.u32()?;
    let umask = body.u32()?;
    body.skip::<4>()?;
    Ok(Mknod { name: body.name()?, mode, umask, rdev })
}

/// `fuse_rename_in`, or `fuse_rename2_in`.
fn rename<'a>(body: &mut Cursor<'a>, has_flags: bool) -> Result<Rename<'a>, LayoutError> {
    let to_dir = NodeId(body.u64()?);
    let flags = if has_flags { body.u32()? } else { 0 };
    if has_flags {
        body.skip::<4>()?;
    }
    Ok(Rename { name: body.name()?, to_dir, to_name: body.name()?, flags })
}

/// `fuse_open_in`.
fn open(body: &mut Cursor<'_>) -> Result<Open, LayoutError> {
    let flags = body.i32()?;
    let open_flags = body.u32()?;
    Ok(Open { flags, kill_privileges: open_flags & OPEN_KILL_SUIDGID != 0 })
}

/// `fuse_create_in`.
fn create<'a>(body: &mut Cursor<'a>) -> Result<Create<'a>, LayoutError> {
    let flags = body.i32()?;
    let mode = body.u32()?;
    let umask = body.u32()?;
    let open_flags = body.u32()?;
    let kill_privileges = open_flags & OPEN_KILL_SUIDGID != 0;
    Ok(Create { name: body.name()?, flags, mode, umask, kill_privileges })
}

/// `fuse_read_in`. Its lock owner would matter for mandatory locks only, which no file system here
/// has.
fn read(body: &mut Cursor<'_>) -> Result<Read, LayoutError> {
    let file = FileId(body.u64()?);
    let offset = body.u64()?;
    let size = body.u32()?;
    body.skip::<20>()?;
    Ok(Read { file, offset, size })
}

/// `fuse_read_in` too.
fn readdir(body: &mut Cursor<'_>) -> Result<Readdir, LayoutError> {
    let Read { file, offset, size } = read(body)?;
    Ok(Readdir { file, offset, size })
}

/// `fuse_write_in`.
fn write<'a>(body: &mut Cursor<'a>) -> Result<Write<'a>, LayoutError> {
    let file = FileId(body.u64()?);
    let offset = body.u64()?;
    let size = body.u32()?;
    let write_flags = body.u32()?;
    let owner = LockOwner(body.u64()?);
    let flags = body.i32()?;
    body.skip::<4>()?;
    Ok(Write {
        file,
        offset,
        data: body.take(u64::from(size))?,
        kill_privileges: write_flags & WRITE_KILL_SUIDGID != 0,
        from_cache: write_flags & WRITE_CACHE != 0,
        owner: (write_flags & WRITE_LOCKOWNER != 0).then_some(owner),
        flags,
    })
}

/// `fuse_flush_in`.
fn flush(body: &mut Cursor<'_>) -> Result<Flush, LayoutError> {
    let file = FileId(body.u64()?);
    body.skip::<8>()?;
    Ok(Flush { file, owner: LockOwner(body.u64()?) })
}

/// `fuse_release_in`.
fn release(body: &mut Cursor<'_>) -> Result<Release, LayoutError> {
    let file = FileId(body.u64()?);
    let flags = body.i32()?;
    let release_flags = body.u32()?;
    let owner = LockOwner(body.u64()?);
    let flush = release_flags & RELEASE_FLUSH != 0;
    let flock_owner = (release_flags & RELEASE_FLOCK_UNLOCK != 0).then_some(owner);
    Ok(Release { file, flags, flush, flock_owner })
}

/// `fuse_lk_in` of FUSE_GETLK, which is never about `flock`.
fn get_lock(body: &mut Cursor<'_>) -> Result<Getlk, LayoutError> {
    let Setlk { file, owner, lock, .. } = set_lock(body, false)?;
    Ok(Getlk { file, owner, lock })
}

/// `fuse_lk_in`.
fn set_lock(body: &mut Cursor<'_>, wait: bool) -> Result<Setlk, LayoutError> {
    let file = FileId(body.u64()?);
    let owner = LockOwner(body.u64()?);
    let start = body.u64()?;
    let end = body.u64()?;
    let kind = match body.u32()? {
        0 => FileLockKind::Read,
        1 => FileLockKind::Write,
        2 => FileLockKind::Unlock,
        _ => return Err(LayoutError::Lock),
    };
    if end < start || i64::try_from(end).is_err() {
        return Err(LayoutError::Lock);
    }
    let pid = body.u32()?;
    let lk_flags = body.u32()?;
    body.skip::<4>()?;
    let lock = FileLock { kind, start, end, pid };
    Ok(Setlk { file, owner, lock, is_flock: lk_flags & LK_FLOCK != 0, wait })
}

/// `fuse_fsync_in`.
fn fsync(body: &mut Cursor<'_>) -> Result<Fsync, LayoutError> {
    let file = FileId(body.u64()?);
    let flags = body.u32()?;
    body.skip::<4>()?;
    Ok(Fsync { file, data_only: flags & FSYNC_DATA != 0 })
}

/// `fuse_setxattr_in`, whose second half is there if `FUSE_SETXATTR_EXT` was negotiated (7.33,
/// Linux 5.13).
fn setxattr<'a>(body: &mut Cursor<'a>, is_extended: bool) -> Result<Setxattr<'a>, LayoutError> {
    let size = body.u32()?;
    let flags = body.i32()?;
    let setxattr_flags = if is_extended { body.u32()? } else { 0 };
    if is_extended {
        body.skip::<4>()?;
    }
    let kill_setgid = setxattr_flags & SETXATTR_ACL_KILL_SGID != 0;
    Ok(Setxattr { name: body.name()?, value: body.take(u64::from(size))?, flags, kill_setgid })
}

/// `fuse_getxattr_in`.
fn xattr_size(body: &mut Cursor<'_>) -> Result<u32, LayoutError> {
    let size = body.u32()?;
    body.skip::<4>()?;
    Ok(size)
}

/// `fuse_access_in`.
fn access(body: &mut Cursor<'_>) -> Result<u32, LayoutError> {
    let mask = body.u32()?;
    body.skip::<4>()?;
    Ok(mask)
}

/// `fuse_fallocate_in`.
fn fallocate(body: &mut Cursor<'_>) -> Result<Fallocate, LayoutError> {
    let file = FileId(body.u64()?);
    let offset = body.u64()?;
    let length = body.u64()?;
    let mode = body.i32()?;
    body.skip::<4>()?;
    Ok(Fallocate { file, offset, length, mode })
}

/// `fuse_lseek_in`.
fn lseek(body: &mut Cursor<'_>) -> Result<Lseek, LayoutError> {
    let file = FileId(body.u64()?);
    let offset = body.u64()?;
    let whence = body.i32()?;
    body.skip::<4>()?;
    Ok(Lseek { file, offset, whence })
}

/// `fuse_copy_file_range_in`.
fn copy_file_range(body: &mut Cursor<'_>) -> Result<CopyFileRange, LayoutError> {
    Ok(CopyFileRange {
        from: FileId(body.u64()?),
        from_offset: body.u64()?,
        to_node: NodeId(body.u64()?),
        to: FileId(body.u64()?),
        to_offset: body.u64()?,
        length: body.u64()?,
        flags: body.u64()?,
    })
}

const fn timestamp(seconds: i64, nanos: u32) -> Result<Timestamp, LayoutError> {
    if nanos >= 1_000_000_000 { Err(LayoutError::Time) } else { Ok(Timestamp { seconds, nanos }) }
}
