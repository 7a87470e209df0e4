//! The operations of a POSIX file system, as requests, and the table that describes each of them.
//!
//! One table describes all requests. Read-only volumes, replay, space and logs read it, and later
//! permissions and leases will, so that none of them keeps its own list of requests.

use crate::attr::{FileKind, NewMode, SetAttr};
use crate::description::{Effect, Right, Subjects};
use crate::flags::{AllocateMode, OpenFlags, RenameFlags, SeekFrom, WriteFlags, XattrFlags};
use crate::id::{Cookie, Handle, InodeId, OpenId};
use crate::lock::{FileLock, LockOwner};
use crate::name::Name;
use crate::search::Search;

/// A request to a server. [`crate::Context`] names the caller; [`crate::Bulk`] has the bytes to
/// write.
///
/// Each variant names its [`crate::Reply`], then its errors. Every request may also fail with
/// `Stale`, `NotDirectory` (a handle that must be a directory is none), `ReadOnly`, `NoSpace`,
/// `Io`, `Corrupt`, `Busy` or `Unavailable`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Looks a name up. Reply: `Entry`; `NotFound`.
    Lookup {
        /// The directory of the name.
        dir: Handle,
        /// The name in `dir`.
        name: Name,
    },
    /// Finds the parent directory. Reply: `Entry`; for the root the root itself.
    Parent {
        /// The directory whose parent is wanted.
        dir: Handle,
    },
    /// Finds a file by its inode number. Scans all names if no row tells where the file is. Reply:
    /// `Entry`.
    Find {
        /// The inode number.
        ino: InodeId,
    },
    /// Reads the attributes of a file. Reply: `Attr`.
    GetAttr {
        /// The file.
        node: Handle,
    },
    /// Changes attributes of a file. Reply: `Attr`.
    SetAttr {
        /// The file.
        node: Handle,
        /// The open file, if the program used a descriptor.
        open: Option<OpenId>,
        /// The attributes to change.
        set: SetAttr,
    },
    /// Creates a regular file and opens it. Reply: `Created`; `Exists` if the name exists: the
    /// client decides whether to open that file.
    Create {
        /// The directory that gets the name.
        dir: Handle,
        /// The new name.
        name: Name,
        /// The mode before the umask.
        mode: NewMode,
        /// How to open the new file.
        flags: OpenFlags,
        /// Names the open file in later requests of the session.
        open: OpenId,
    },
    /// Creates an unnamed regular file and opens it (`O_TMPFILE`). The file is removed at its last
    /// close, or when the server ends, unless [`Request::Link`] gives it a name first. Reply:
    /// `Created` with 0 links.
    CreateUnnamed {
        /// The directory that decides group and default access control list. It does not change.
        dir: Handle,
        /// The mode before the umask.
        mode: NewMode,
        /// How to open the new file.
        flags: OpenFlags,
        /// Names the open file in later requests of the session.
        open: OpenId,
    },
    /// Creates a directory. Reply: `Entry`; `Exists`.
    MakeDir {
        /// The directory that gets the name.
        dir: Handle,
        /// The new name.
        name: Name,
        /// The mode before the umask.
        mode: NewMode,
    },
    /// Creates a file of any type except directory and symbolic link, and does not open it. Reply:
    /// `Entry`; `Exists`, `Invalid`.
    MakeNode {
        /// The directory that gets the name.
        dir: Handle,
        /// The new name.
        name: Name,
        /// The type of the new file.
        kind: FileKind,
        /// The mode before the umask.
        mode: NewMode,
        /// Device number in the kernel's 32-bit encoding; 0 for other files.
        rdev: u32,
    },
    /// Creates a symbolic link. Reply: `Entry`; `Exists`, `NameTooLong`.
    Symlink {
        /// The directory that gets the name.
        dir: Handle,
        /// The new name.
        name: Name,
        /// The target, 1 to 4095 bytes without NUL.
        target: Vec<u8>,
    },
    /// Reads the target of a symbolic link. Reply: `Bytes`; `Invalid` for other files.
    ReadLink {
        /// The symbolic link.
        node: Handle,
    },
    /// Gives a file one more name, or a first name after [`Request::CreateUnnamed`]. Reply:
    /// `Entry`; `Exists`, `NotPermitted` for a directory, `TooManyLinks`, `NotFound` for a file
    /// whose last name was removed.
    Link {
        /// The file.
        node: Handle,
        /// The directory that gets the name.
        dir: Handle,
        /// The new name.
        name: Name,
    },
    /// Removes a name of a file that is not a directory. Reply: `Removed`; `NotFound`,
    /// `IsDirectory`.
    Unlink {
        /// The directory of the name.
        dir: Handle,
        /// The name to remove.
        name: Name,
    },
    /// Removes an empty directory. Reply: `Removed`; `NotFound`, `NotEmpty`.
    RemoveDir {
        /// The parent directory.
        dir: Handle,
        /// The name to remove.
        name: Name,
    },
    /// Renames a file. Reply: `Renamed`; `NotFound`, `Exists`, `NotEmpty`, `IsDirectory`,
    /// `WouldLoop`.
    Rename {
        /// The directory of the old name.
        from_dir: Handle,
        /// The old name.
        from: Name,
        /// The directory of the new name.
        to_dir: Handle,
        /// The new name.
        to: Name,
        /// What to do if the target exists.
        flags: RenameFlags,
    },
    /// Opens a regular file. Reply: `Opened`; `IsDirectory`, `TooManyOpen`, `Invalid` if the
    /// session has an open with this number.
    Open {
        /// The file.
        node: Handle,
        /// How to open the file.
        flags: OpenFlags,
        /// Names the open file in later requests of the session.
        open: OpenId,
    },
    /// Opens again, under its number, a file that the client has open and the server does not know
    /// as open: the server has started anew, or the session is another one. Nothing is truncated.
    /// An open of the same file that has this number already is the answer. Reply: `Opened`;
    /// `Stale` if the file is gone, `Invalid` if the number belongs to another file.
    Reopen {
        /// The file.
        node: Handle,
        /// How the file was opened; `truncate` and `kill_privileges` mean nothing.
        flags: OpenFlags,
        /// The number of the open.
        open: OpenId,
    },
    /// Commits the changes of an open file, because a descriptor was closed. May come several times
    /// for one open file. Reply: `Done`.
    Flush {
        /// The open file.
        open: OpenId,
        /// The process that closed the descriptor: its `fcntl` locks of the file end.
        owner: Option<LockOwner>,
    },
    /// Ends an open, because its last descriptor was closed. The locks of each owner that set its
    /// last one through this open end too: those of `flock`, and of an open file description.
    /// Reply: `Done`.
    Release {
        /// The open file.
        open: OpenId,
    },
    /// Finds a lock that keeps this one from being set (`F_GETLK`). Reply: `Lock`, with the
    /// conflicting lock that begins first; `BadOpen`, `Invalid`.
    GetLock {
        /// The open file.
        open: OpenId,
        /// Who would hold the lock.
        owner: LockOwner,
        /// The lock to test.
        lock: FileLock,
    },
    /// Sets or removes a lock. It replaces the owner's locks of its range. Reply: `Done`;
    /// `LockHeld`, `Deadlock`, `NoLocks`, `Interrupted`, `Invalid`, `BadOpen` also for an `fcntl`
    /// lock whose mode the open does not permit.
    SetLock {
        /// The open file.
        open: OpenId,
        /// Who is to hold the lock.
        owner: LockOwner,
        /// The lock to set.
        lock: FileLock,
        /// Wait until the lock is free; otherwise the request fails with `LockHeld`.
        wait: bool,
    },
    /// Sets again a lock that the client had when the server's last run ended, while the server
    /// waits for the sessions of that run. Reply: `Done`; `LockHeld` if the lock cannot be had
    /// again, also because that time is over, `Invalid`, `BadOpen`, `NoLocks`.
    ReclaimLock {
        /// The open through which the owner has set its last lock of the file.
        open: OpenId,
        /// Who held the lock.
        owner: LockOwner,
        /// The lock.
        lock: FileLock,
    },
    /// Makes the bytes of a file safe, and its attributes. Reply: `Done`.
    Fsync {
        /// The open file.
        open: OpenId,
        /// Times need not become safe (`fdatasync`).
        data_only: bool,
    },
    /// Makes the names of a directory safe. Reply: `Done`.
    FsyncDir {
        /// The directory to sync.
        dir: Handle,
        /// [`crate::Service::losses`] at the time of the open, or of the last report to this
        /// caller. Without it the caller gets only losses that were reported to no other caller.
        since: Option<u64>,
    },
    /// Reads bytes. Reply: `Data`, shorter only at the end of the file.
    Read {
        /// The open file.
        open: OpenId,
        /// Bytes from the start.
        offset: u64,
        /// Bytes to read, at most [`crate::limits::IO_BYTES`].
        size: u32,
    },
    /// Writes the bytes of [`crate::Bulk`]. Reply: `Written`.
    Write {
        /// The open file.
        open: OpenId,
        /// Bytes from the start of the file; ignored with `append`.
        offset: u64,
        /// How they are written.
        flags: WriteFlags,
    },
    /// Lists a directory. Reply: `Listed`.
    List {
        /// The directory to list.
        dir: Handle,
        /// The position after which the listing continues.
        after: Cookie,
        /// The name before a ranked position, if the caller knows it. The listing then continues
        /// exactly after that name, even if names with its hash were added or removed.
        behind: Option<Name>,
        /// Entries to return, at most [`crate::limits::LIST_ENTRIES`].
        entries: u32,
        /// Return the handle and the attributes of each entry too.
        attributes: bool,
    },
    /// Reads an extended attribute. Reply: `Bytes`; `NoXattr`.
    GetXattr {
        /// The file.
        node: Handle,
        /// The attribute's name, prefix included.
        name: Vec<u8>,
    },
    /// Lists extended attributes. Reply: `Bytes`, each name followed by a NUL.
    ListXattr {
        /// The file.
        node: Handle,
    },
    /// Sets an extended attribute. Reply: `Done`; `Exists`, `NoXattr`, `TooBig`, `NotSupported`;
    /// for access control lists also `Invalid`, and `AccessDenied` for a default list of a file
    /// that is not a directory.
    SetXattr {
        /// The file.
        node: Handle,
        /// The attribute's name, prefix included.
        name: Vec<u8>,
        /// The value, at most [`crate::limits::XATTR_VALUE_BYTES`].
        value: Vec<u8>,
        /// Whether the attribute must exist, or must not.
        flags: XattrFlags,
        /// Clear the setgid bit if the attribute is an access control list, because the caller is
        /// not in the file's group (`FUSE_SETXATTR_ACL_KILL_SGID`).
        kill_setgid: bool,
    },
    /// Removes an extended attribute. Reply: `Done`; `NoXattr`.
    RemoveXattr {
        /// The file.
        node: Handle,
        /// The attribute's name, prefix included.
        name: Vec<u8>,
    },
    /// Reads space and inodes of the volume. Reply: `Volume`.
    StatFs,
    /// Reserves or frees a range of an open file. Reply: `Done`; `NotSupported`.
    Allocate {
        /// The open file.
        open: OpenId,
        /// Bytes from the start.
        offset: u64,
        /// Bytes of the range.
        length: u64,
        /// What to do with the range.
        mode: AllocateMode,
    },
    /// Finds data or a hole. Reply: `Offset`; `NoData`, `NotSupported`.
    Seek {
        /// The open file.
        open: OpenId,
        /// Start and goal of the seek.
        from: SeekFrom,
    },
    /// Copies bytes between open files, within the server. Reply: `Written`; `NotSupported`.
    CopyRange {
        /// The open file to read from.
        from: OpenId,
        /// Bytes from the start of the source.
        from_offset: u64,
        /// The open file to write to.
        to: OpenId,
        /// Bytes from the start of the target.
        to_offset: u64,
        /// Bytes to copy.
        length: u64,
    },
    /// Finds the files in a directory and below it that a query means, and that the asker may
    /// read. Reply: `Found`; `Invalid` for a query that cannot be parsed.
    Search {
        /// The directory.
        dir: Handle,
        /// What is asked.
        search: Search,
    },
}

/// A request without its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// The operation.
    pub operation: Operation,
    /// What the request changes.
    pub effect: Effect,
    /// The inodes and open files that it names.
    pub subjects: Subjects,
    /// The right that it needs on each subject.
    pub right: Right,
}

/// The change consists of rows, so the reply can be stored in the same batch.
const ROWS: Effect = Effect::Change { replayed: true, grows: false };
const NEW_ROWS: Effect = Effect::Change { replayed: true, grows: true };
/// Space for bytes is checked later, when the number of blocks is known.
const BYTES: Effect = Effect::Change { replayed: false, grows: false };

/// The size and `mtime` of an open file are kept with the open file until its commit.
const fn attributes(open: Option<&OpenId>, set: &SetAttr) -> Effect {
    match open {
        None if set.size.is_none() && set.mtime.is_none() => ROWS,
        _ => BYTES,
    }
}

const fn opening(flags: OpenFlags) -> Effect {
    if flags.write || flags.truncate { BYTES } else { Effect::None }
}

const fn right_to(flags: OpenFlags) -> Right {
    if flags.write || flags.truncate { Right::Write } else { Right::Read }
}

const fn renaming(flags: RenameFlags) -> Effect {
    if flags.leaves_a_whiteout() { NEW_ROWS } else { ROWS }
}

impl Request {
    /// Returns the directory in which this request changes names; `None` if there are two.
    #[must_use]
    pub fn changed_dir(&self) -> Option<Handle> {
        match self {
            Self::Create { dir, .. }
            | Self::MakeDir { dir, .. }
            | Self::MakeNode { dir, .. }
            | Self::Symlink { dir, .. }
            | Self::Link { dir, .. }
            | Self::Unlink { dir, .. }
            | Self::RemoveDir { dir, .. } => Some(*dir),
            Self::Rename { from_dir, to_dir, .. } if from_dir.ino == to_dir.ino => Some(*to_dir),
            _ => None,
        }
    }

    /// Returns whether a session must not have this request carried out twice: it changes rows,
    /// bytes or what is open, or reports an error once. Such a request has a mutation number.
    #[must_use]
    pub const fn is_mutation(&self) -> bool {
        match self.describe().effect {
            Effect::Change { .. } | Effect::Commit => true,
            Effect::None => matches!(self, Self::Open { .. } | Self::FsyncDir { .. }),
        }
    }
}

macro_rules! operations {
    ($($name:ident { $($field:ident),* } = $says:literal,
        $effect:expr, $subjects:expr, $right:expr;)+) => {
        /// The operation of a request, without its arguments.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Operation {
            $(#[doc = concat!("[`Request::", stringify!($name), "`].")] $name,)+
        }

        impl Operation {
            /// Every operation, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the operation's name in logs and metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $says,)+ }
            }
        }

        impl Request {
            /// Returns the row of the table for this request.
            #[must_use]
            pub const fn describe(&self) -> Description {
                match self {
                    $(Self::$name { $($field,)* .. } => Description {
                        operation: Operation::$name,
                        effect: $effect,
                        subjects: $subjects,
                        right: $right,
                    },)+
                }
            }
        }
    };
}

operations! {
    Lookup { dir } = "lookup", Effect::None, Subjects::inode(dir), Right::Search;
    Parent { dir } = "parent", Effect::None, Subjects::inode(dir), Right::Search;
    Find { ino } = "find", Effect::None, Subjects::inode(&Handle::own(*ino)), Right::None;
    GetAttr { node } = "getattr", Effect::None, Subjects::inode(node), Right::None;
    SetAttr { node, open, set } = "setattr",
        attributes(open.as_ref(), set), Subjects::inode(node), Right::Own;
    Create { dir } = "create", NEW_ROWS, Subjects::inode(dir), Right::Write;
    CreateUnnamed { dir } = "tmpfile", NEW_ROWS, Subjects::inode(dir), Right::Write;
    MakeDir { dir } = "mkdir", NEW_ROWS, Subjects::inode(dir), Right::Write;
    MakeNode { dir } = "mknod", NEW_ROWS, Subjects::inode(dir), Right::Write;
    Symlink { dir } = "symlink", NEW_ROWS, Subjects::inode(dir), Right::Write;
    ReadLink { node } = "readlink", Effect::None, Subjects::inode(node), Right::None;
    Link { node, dir } = "link", NEW_ROWS, Subjects::inodes(node, dir), Right::Write;
    Unlink { dir } = "unlink", ROWS, Subjects::inode(dir), Right::Write;
    RemoveDir { dir } = "rmdir", ROWS, Subjects::inode(dir), Right::Write;
    Rename { from_dir, to_dir, flags } = "rename",
        renaming(*flags), Subjects::inodes(from_dir, to_dir), Right::Write;
    Open { node, flags } = "open", opening(*flags), Subjects::inode(node), right_to(*flags);
    Reopen { node, flags } = "reopen", Effect::None, Subjects::inode(node), right_to(*flags);
    Flush { open } = "flush", Effect::Commit, Subjects::open(open), Right::None;
    Release { open } = "release", Effect::Commit, Subjects::open(open), Right::None;
    GetLock { open } = "getlk", Effect::None, Subjects::open(open), Right::None;
    SetLock { open } = "setlk", Effect::None, Subjects::open(open), Right::None;
    ReclaimLock { open } = "reclaimlk", Effect::None, Subjects::open(open), Right::None;
    Fsync { open } = "fsync", Effect::Commit, Subjects::open(open), Right::None;
    FsyncDir { dir } = "fsyncdir", Effect::None, Subjects::inode(dir), Right::None;
    Read { open } = "read", Effect::None, Subjects::open(open), Right::Read;
    Write { open } = "write", BYTES, Subjects::open(open), Right::Write;
    List { dir } = "readdir", Effect::None, Subjects::inode(dir), Right::Read;
    GetXattr { node } = "getxattr", Effect::None, Subjects::inode(node), Right::Read;
    ListXattr { node } = "listxattr", Effect::None, Subjects::inode(node), Right::None;
    SetXattr { node } = "setxattr", NEW_ROWS, Subjects::inode(node), Right::Write;
    RemoveXattr { node } = "removexattr", ROWS, Subjects::inode(node), Right::Write;
    StatFs {} = "statfs", Effect::None, Subjects::NONE, Right::None;
    Allocate { open } = "fallocate", BYTES, Subjects::open(open), Right::Write;
    Seek { open } = "lseek", Effect::None, Subjects::open(open), Right::Read;
    CopyRange { from, to } = "copy_file_range", BYTES, Subjects::opens(from, to), Right::Write;
    Search { dir } = "search", Effect::None, Subjects::inode(dir), Right::Search;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::attr::{NewMode, SetTime};
    use crate::name::Name;

    const NODE: Handle = Handle::own(InodeId::ROOT);
    const OPEN: OpenId = OpenId(7);

    fn set_attr(open: Option<OpenId>, set: SetAttr) -> Effect {
        Request::SetAttr { node: NODE, open, set }.describe().effect
    }

    #[test]
    fn each_operation_has_a_name_of_its_own() {
        let names: BTreeSet<_> = Operation::ALL.iter().map(|operation| operation.name()).collect();
        assert_eq!(names.len(), Operation::ALL.len());
    }

    /// The number of an open is the client's, so that it means the same in every run.
    #[test]
    fn a_create_is_replayed_and_an_open_is_not() {
        let name = Name::new(b"a").unwrap();
        let mode = NewMode::exactly(0o644);
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let create = Request::Create { dir: NODE, name, mode, flags, open: OPEN }.describe();
        assert_eq!(create.effect, Effect::Change { replayed: true, grows: true });
        let open = Request::Open { node: NODE, flags, open: OPEN }.describe();
        assert_eq!(open.effect, Effect::Change { replayed: false, grows: false });
        let again = Request::Reopen { node: NODE, flags, open: OPEN };
        assert_eq!((again.describe().effect, again.is_mutation()), (Effect::None, false));
    }

    #[test]
    fn attributes_of_bytes_are_not_replayed() {
        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        assert_eq!(set_attr(None, mode), ROWS);
        assert_eq!(set_attr(Some(OPEN), mode), BYTES);
        assert_eq!(set_attr(None, SetAttr { size: Some(0), ..mode }), BYTES);
        assert_eq!(set_attr(None, SetAttr { mtime: Some(SetTime::Now), ..mode }), BYTES);
    }

    #[test]
    fn an_open_changes_what_it_may_write() {
        let open = |flags| Request::Open { node: NODE, flags, open: OPEN }.describe();
        let read = OpenFlags { read: true, ..OpenFlags::default() };
        assert_eq!((open(read).effect, open(read).right), (Effect::None, Right::Read));
        let truncate = OpenFlags { truncate: true, ..read };
        assert_eq!((open(truncate).effect, open(truncate).right), (BYTES, Right::Write));
    }

    /// A whiteout is a new file, so it takes space; a plain rename only moves a name.
    #[test]
    fn a_rename_grows_by_a_whiteout_only() {
        assert_eq!(renaming(RenameFlags::Replace), ROWS);
        assert_eq!(renaming(RenameFlags::Whiteout { replace: true }), NEW_ROWS);
    }

    #[test]
    fn subjects_are_what_the_request_names() {
        let copy = Request::CopyRange {
            from: OPEN,
            from_offset: 0,
            to: OpenId(8),
            to_offset: 0,
            length: 1,
        };
        let subjects = copy.describe().subjects;
        assert_eq!(subjects.each_open().collect::<Vec<_>>(), [OPEN, OpenId(8)]);
        assert_eq!(subjects.each_inode().count(), 0);
        assert_eq!(Request::StatFs.describe().subjects, Subjects::NONE);
    }
}
