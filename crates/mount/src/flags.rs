//! Conversions of the flags of system calls.

use pelago_wire::{
    AllocateMode, Code, FileKind, NewMode, OpenFlags, RenameFlags, Whence, XattrFlags,
};
use rustix::fs::{
    FallocateFlags, FileType, OFlags, RenameFlags as RenameHow, XattrFlags as SetFlags,
};

/// `SEEK_DATA` and `SEEK_HOLE` of Linux; the kernel handles the other three itself.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Converts the flags of `open`. With `kill_privileges` a truncation clears setuid and setgid bits.
pub(crate) fn open(flags: i32, kill_privileges: bool) -> OpenFlags {
    let flags = oflags(flags);
    let access = flags & OFlags::RWMODE;
    OpenFlags {
        read: access != OFlags::WRONLY,
        write: access != OFlags::RDONLY,
        // Each WRITE has the flag of its moment: it can change while the file is open, and pages of
        // a mapping are written through the same open at offsets of their own. The kernel itself
        // refuses a copy into an open with `O_APPEND`.
        append: false,
        truncate: flags.contains(OFlags::TRUNC),
        sync: flags.intersects(OFlags::SYNC | OFlags::DSYNC),
        kill_privileges,
        no_atime: flags.contains(OFlags::NOATIME),
        strict_atime: false,
        passthrough: false,
    }
}

/// Returns whether an existing name is an error (`O_EXCL`).
pub(crate) fn is_exclusive(flags: i32) -> bool {
    oflags(flags).contains(OFlags::EXCL)
}

/// Returns whether reads and writes bypass the page cache (`O_DIRECT`).
pub(crate) fn is_direct(flags: i32) -> bool {
    oflags(flags).contains(OFlags::DIRECT)
}

/// Returns whether each write goes to the end of the file (`O_APPEND`).
pub(crate) fn appends(flags: i32) -> bool {
    oflags(flags).contains(OFlags::APPEND)
}

/// Converts the flags of `renameat2`.
pub(crate) fn rename(flags: u32) -> Result<RenameFlags, Code> {
    match RenameHow::from_bits_retain(flags) {
        none if none.is_empty() => Ok(RenameFlags::Replace),
        RenameHow::NOREPLACE => Ok(RenameFlags::NoReplace),
        RenameHow::EXCHANGE => Ok(RenameFlags::Exchange),
        RenameHow::WHITEOUT => Ok(RenameFlags::Whiteout { replace: true }),
        both if both == RenameHow::WHITEOUT | RenameHow::NOREPLACE => {
            Ok(RenameFlags::Whiteout { replace: false })
        }
        _ => Err(Code::Invalid),
    }
}

/// Converts the flags of `setxattr`.
pub(crate) fn xattr(flags: i32) -> Result<XattrFlags, Code> {
    match SetFlags::from_bits_retain(flags.cast_unsigned()) {
        none if none.is_empty() => Ok(XattrFlags::Any),
        SetFlags::CREATE => Ok(XattrFlags::Create),
        SetFlags::REPLACE => Ok(XattrFlags::Replace),
        _ => Err(Code::Invalid),
    }
}

/// Converts the mode of `fallocate`.
pub(crate) fn allocate(mode: i32) -> Result<AllocateMode, Code> {
    let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
    let keep_size = mode.contains(FallocateFlags::KEEP_SIZE);
    match mode - FallocateFlags::KEEP_SIZE {
        none if none.is_empty() => Ok(AllocateMode::Reserve { keep_size }),
        FallocateFlags::PUNCH_HOLE if keep_size => Ok(AllocateMode::PunchHole),
        FallocateFlags::ZERO_RANGE => Ok(AllocateMode::Zero { keep_size }),
        _ => Err(Code::NotSupported),
    }
}

/// Converts the `whence` of `lseek`.
pub(crate) fn whence(whence: i32) -> Result<Whence, Code> {
    match whence {
        SEEK_DATA => Ok(Whence::Data),
        SEEK_HOLE => Ok(Whence::Hole),
        _ => Err(Code::Invalid),
    }
}

/// Returns the file type in the mode of `mknod`.
pub(crate) fn kind(mode: u32) -> Result<FileKind, Code> {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Ok(FileKind::Regular),
        FileType::Fifo => Ok(FileKind::Fifo),
        FileType::Socket => Ok(FileKind::Socket),
        FileType::CharacterDevice => Ok(FileKind::CharDevice),
        FileType::BlockDevice => Ok(FileKind::BlockDevice),
        FileType::Directory | FileType::Symlink | FileType::Unknown => Err(Code::Invalid),
    }
}

/// Returns the permission, setuid, setgid and sticky bits of a mode.
pub(crate) fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).expect("twelve bits")
}

/// Returns the mode of a new file, with the umask to apply.
pub(crate) fn new_mode(mode: u32, umask: u32) -> NewMode {
    NewMode { mode: permissions(mode), umask: permissions(umask & 0o777) }
}

fn oflags(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_flags_are_those_of_linux() {
        let none = OpenFlags::default();
        assert_eq!(open(0, false), OpenFlags { read: true, ..none });
        assert_eq!(open(0o1, false), OpenFlags { write: true, ..none });
        let both = OpenFlags { read: true, write: true, ..none };
        assert_eq!(open(0o2, false), both);
        assert_eq!(open(0o2002, false), both);
        assert_eq!(open(0o10002, false), OpenFlags { sync: true, ..both });
        assert_eq!(open(0o4010002, false), OpenFlags { sync: true, ..both });
        assert_eq!(open(0o1_000_002, false), OpenFlags { no_atime: true, ..both });
        assert_eq!(open(0o1002, false), OpenFlags { truncate: true, ..both });
        let kill = OpenFlags { truncate: true, kill_privileges: true, ..both };
        assert_eq!(open(0o1002, true), kill);
        assert!(is_exclusive(0o302) && !is_exclusive(0o102));
    }

    #[test]
    fn unknown_flags_are_refused() {
        assert_eq!(xattr(3), Err(Code::Invalid));
        assert_eq!(xattr(2), Ok(XattrFlags::Replace));
        assert_eq!(allocate(2), Err(Code::NotSupported));
        assert_eq!(allocate(3), Ok(AllocateMode::PunchHole));
        assert_eq!(allocate(0x11), Ok(AllocateMode::Zero { keep_size: true }));
        assert_eq!(allocate(8), Err(Code::NotSupported));
        assert_eq!(whence(0), Err(Code::Invalid));
        assert_eq!(kind(0o040_755), Err(Code::Invalid));
        assert_eq!(kind(0o010_644), Ok(FileKind::Fifo));
        let never = RenameHow::WHITEOUT | RenameHow::EXCHANGE;
        assert_eq!(rename(never.bits()), Err(Code::Invalid));
    }
}
