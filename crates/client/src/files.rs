//! The file system as programs use it: one method for each request of the wire.

use pelago_wire::{
    AllocateMode, Attr, Buffer, Context, Cookie, DataPath, DirEntry, Entry, FileKind, Handle,
    InodeId, Name, NewMode, OpenFlags, OpenId, RenameFlags, SeekFrom, SetAttr, VolumeStats,
    XattrFlags,
};

use crate::pending::Pending;

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// Handle of the directory.
    pub dir: Handle,
    /// A name in that directory.
    pub name: Name,
}

impl At {
    /// Returns the name `name` in `dir`.
    #[must_use]
    pub const fn new(dir: Handle, name: Name) -> Self {
        Self { dir, name }
    }
}

/// A file to make with [`Files::make_node`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewNode {
    /// Any kind except directory and symbolic link.
    pub kind: FileKind,
    /// Permissions of the file, with the umask to apply.
    pub mode: NewMode,
    /// Device number; zero unless it is a device.
    pub rdev: u32,
}

/// An extended attribute to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xattr {
    /// Name with its prefix.
    pub name: Vec<u8>,
    /// New value.
    pub value: Vec<u8>,
    /// Whether an access control list clears the setgid bit: its caller is not in the file's group.
    pub kill_setgid: bool,
}

/// A range of bytes in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// A position in an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePos {
    /// Id of the open file.
    pub open: OpenId,
    /// Bytes from the start of the file.
    pub offset: u64,
}

/// A file that was created and opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The new file.
    pub entry: Entry,
    /// Id of the open.
    pub open: OpenId,
    /// How to reach its bytes.
    pub path: DataPath,
}

/// A file that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Id of the open.
    pub open: OpenId,
    /// Attributes after the open.
    pub attr: Attr,
    /// How to reach its bytes.
    pub path: DataPath,
}

/// A name that was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// Attributes of the inode; `links` counts the names it still has (zero for a directory).
    pub attr: Attr,
}

/// A name that was renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renamed {
    /// The renamed file, with its new hint.
    pub moved: Handle,
    /// The file it replaced, as in [`Removed`]; after an exchange the other file, with its new
    /// hint.
    pub replaced: Option<Entry>,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Bytes written; fewer than requested only if the disk is full.
    pub bytes: u64,
    /// Size of the file after the write.
    pub size: u64,
}

/// A page of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Entries in the order of their cookies.
    pub entries: Vec<DirEntry>,
    /// Whether these are the last.
    pub end: bool,
}

/// A file system. Each method is the request of [`pelago_wire::Request`] with its name, whose
/// documentation says what the fields mean and which errors to expect.
///
/// A method returns soon. If an operation must wait for a disk or for other clients, another thread
/// completes it later, and bytes that were borrowed for the call are copied.
pub trait Files: Send + Sync {
    /// Returns the file that a name refers to.
    fn lookup(&self, context: &Context, at: At) -> Pending<Entry>;

    /// Returns the parent of a directory; that of the root is the root.
    fn parent(&self, context: &Context, dir: Handle) -> Pending<Entry>;

    /// Returns the file with this inode id; that may scan all names.
    fn find(&self, context: &Context, ino: InodeId) -> Pending<Entry>;

    /// Returns attributes.
    fn get_attr(&self, context: &Context, node: Handle) -> Pending<Attr>;

    /// Changes attributes; `open` is given if a program did it through a descriptor.
    fn set_attr(
        &self,
        context: &Context,
        node: Handle,
        open: Option<OpenId>,
        set: SetAttr,
    ) -> Pending<Attr>;

    /// Creates a regular file and opens it.
    fn create(
        &self,
        context: &Context,
        at: At,
        mode: NewMode,
        flags: OpenFlags,
    ) -> Pending<Created>;

    /// Creates an unnamed regular file that inherits from `dir`, and opens it.
    fn create_unnamed(
        &self,
        context: &Context,
        dir: Handle,
        mode: NewMode,
        flags: OpenFlags,
    ) -> Pending<Created>;

    /// Makes a directory.
    fn make_dir(&self, context: &Context, at: At, mode: NewMode) -> Pending<Entry>;

    /// Makes a file of any kind except directory and symbolic link, without opening it.
    fn make_node(&self, context: &Context, at: At, node: NewNode) -> Pending<Entry>;

    /// Makes a symbolic link to `target`: 1 to 4095 bytes without NUL.
    fn symlink(&self, context: &Context, at: At, target: Vec<u8>) -> Pending<Entry>;

    /// Returns the target of a symbolic link.
    fn read_link(&self, context: &Context, node: Handle) -> Pending<Vec<u8>>;

    /// Adds a name to a file.
    fn link(&self, context: &Context, node: Handle, at: At) -> Pending<Entry>;

    /// Removes a name of a file that is not a directory.
    fn unlink(&self, context: &Context, at: At) -> Pending<Removed>;

    /// Removes an empty directory.
    fn remove_dir(&self, context: &Context, at: At) -> Pending<Removed>;

    /// Renames a file.
    fn rename(&self, context: &Context, from: At, to: At, flags: RenameFlags) -> Pending<Renamed>;

    /// Opens a regular file.
    fn open(&self, context: &Context, node: Handle, flags: OpenFlags) -> Pending<Opened>;

    /// Commits written bytes after a descriptor was closed.
    fn flush(&self, context: &Context, open: OpenId) -> Pending<()>;

    /// Releases an open after its last descriptor was closed.
    fn release(&self, context: &Context, open: OpenId) -> Pending<()>;

    /// Makes written bytes safe; `data_only` may leave out times (`fdatasync`).
    fn fsync(&self, context: &Context, open: OpenId, data_only: bool) -> Pending<()>;

    /// Makes the changes of a directory safe. Fails with `Io` if acknowledged changes were lost:
    /// once for each descriptor if `since` is the number of losses that it was told of
    /// ([`Files::losses`]), else once.
    fn fsync_dir(&self, context: &Context, dir: Handle, since: Option<u64>) -> Pending<()>;

    /// Returns how often acknowledged changes were lost before they were safe.
    fn losses(&self) -> u64 {
        0
    }

    /// Reads `size` bytes from `offset`; fewer only at the end of the file.
    fn read(&self, context: &Context, open: OpenId, offset: u64, size: u32) -> Pending<Buffer>;

    /// Writes bytes at an offset, which is ignored if the file was opened to append.
    /// `kill_privileges` clears setuid and setgid bits.
    fn write(
        &self,
        context: &Context,
        to: FilePos,
        bytes: &[u8],
        kill_privileges: bool,
    ) -> Pending<Written>;

    /// Lists up to `entries` names after the cookie `after`, with attributes if `attributes` is
    /// set. If `after` is a ranked cookie, the listing continues after the name `behind`, if given.
    fn list(
        &self,
        context: &Context,
        dir: Handle,
        after: Cookie,
        behind: Option<Name>,
        entries: u32,
        attributes: bool,
    ) -> Pending<Listing>;

    /// Returns the value of an extended attribute; `name` has its prefix.
    fn get_xattr(&self, context: &Context, node: Handle, name: Vec<u8>) -> Pending<Vec<u8>>;

    /// Returns the names of all extended attributes, each followed by a NUL.
    fn list_xattr(&self, context: &Context, node: Handle) -> Pending<Vec<u8>>;

    /// Sets an extended attribute.
    fn set_xattr(
        &self,
        context: &Context,
        node: Handle,
        xattr: Xattr,
        flags: XattrFlags,
    ) -> Pending<()>;

    /// Removes an extended attribute; `name` has its prefix.
    fn remove_xattr(&self, context: &Context, node: Handle, name: Vec<u8>) -> Pending<()>;

    /// Returns space and counts of the volume.
    fn stat_fs(&self, context: &Context) -> Pending<VolumeStats>;

    /// Reserves or frees a range of an open file.
    fn allocate(
        &self,
        context: &Context,
        open: OpenId,
        range: ByteRange,
        mode: AllocateMode,
    ) -> Pending<()>;

    /// Returns the offset of the next data or hole.
    fn seek(&self, context: &Context, open: OpenId, from: SeekFrom) -> Pending<u64>;

    /// Copies up to `length` bytes within the server.
    fn copy_range(
        &self,
        context: &Context,
        from: FilePos,
        to: FilePos,
        length: u64,
    ) -> Pending<Written>;
}
