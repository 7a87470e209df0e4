//! The file system as everybody uses it: one method for each request of the wire.

use pelago_wire::{
    AllocateMode, Attr, Buffer, Context, Cookie, DataPath, DirEntry, Entry, FileKind, Handle,
    InodeId, Name, NewMode, OpenFlags, OpenId, RenameFlags, SeekFrom, SetAttr, VolumeStats,
    XattrFlags,
};

use crate::pending::Pending;

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// The directory.
    pub dir: Handle,
    /// The name in it.
    pub name: Name,
}

impl At {
    /// The name `name` in `dir`.
    #[must_use]
    pub const fn new(dir: Handle, name: Name) -> Self {
        Self { dir, name }
    }
}

/// What [`Files::make_node`] shall make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewNode {
    /// Any kind but directory and symbolic link.
    pub kind: FileKind,
    /// Its mode.
    pub mode: NewMode,
    /// Device number, for devices; else zero.
    pub rdev: u32,
}

/// An extended attribute that is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xattr {
    /// Its name, prefix included.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// Clear the setgid bit if it is an access control list: who sets it is not in the file's
    /// group.
    pub kill_setgid: bool,
}

/// A range of bytes in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes of the range.
    pub length: u64,
}

/// A place in an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePos {
    /// The open file.
    pub open: OpenId,
    /// Bytes from its start.
    pub offset: u64,
}

/// A file that was made and opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The file.
    pub entry: Entry,
    /// The open file.
    pub open: OpenId,
    /// How to reach its bytes.
    pub path: DataPath,
}

/// A file that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The open file.
    pub open: OpenId,
    /// Its attributes at that moment.
    pub attr: Attr,
    /// How to reach its bytes.
    pub path: DataPath,
}

/// A name that was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// What it led to; `links` are the names it still has (a directory: 0).
    pub attr: Attr,
}

/// A name that was moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renamed {
    /// What moved, with its new hint.
    pub moved: Handle,
    /// What it replaced, as [`Removed`] says it; after an exchange the other one, with its new
    /// hint.
    pub replaced: Option<Entry>,
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Bytes taken; fewer than were sent only where the medium is full.
    pub bytes: u64,
    /// The file's size then.
    pub size: u64,
}

/// A page of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// In the order of their cookies.
    pub entries: Vec<DirEntry>,
    /// Whether nothing comes behind them.
    pub end: bool,
}

/// A file system. Each method is the request of [`pelago_wire::Request`] with its name, which says
/// what the fields mean and which errors to expect.
///
/// A method returns soon; what must wait for a disk or for others is completed later by another
/// thread. Bytes that are borrowed for a call are copied where the answer comes later.
pub trait Files: Send + Sync {
    /// What a name leads to.
    fn lookup(&self, context: &Context, place: At) -> Pending<Entry>;

    /// The directory above; the root's is the root.
    fn parent(&self, context: &Context, dir: Handle) -> Pending<Entry>;

    /// The file with this number, wherever it is; that may take long.
    fn find(&self, context: &Context, ino: InodeId) -> Pending<Entry>;

    /// Attributes.
    fn get_attr(&self, context: &Context, node: Handle) -> Pending<Attr>;

    /// Changes attributes; `open` where a program did it through a descriptor.
    fn set_attr(
        &self,
        context: &Context,
        node: Handle,
        open: Option<OpenId>,
        set: SetAttr,
    ) -> Pending<Attr>;

    /// Makes an ordinary file and opens it.
    fn create(
        &self,
        context: &Context,
        place: At,
        mode: NewMode,
        flags: OpenFlags,
    ) -> Pending<Created>;

    /// Makes an ordinary file that has no name, by the rules of `dir`, and opens it.
    fn create_unnamed(
        &self,
        context: &Context,
        dir: Handle,
        mode: NewMode,
        flags: OpenFlags,
    ) -> Pending<Created>;

    /// Makes a directory.
    fn make_dir(&self, context: &Context, place: At, mode: NewMode) -> Pending<Entry>;

    /// Makes a file of any kind but directory and symbolic link, without opening it.
    fn make_node(&self, context: &Context, place: At, node: NewNode) -> Pending<Entry>;

    /// Makes a symbolic link that says `target`: 1 to 4095 bytes without NUL.
    fn symlink(&self, context: &Context, place: At, target: Vec<u8>) -> Pending<Entry>;

    /// What a symbolic link says.
    fn read_link(&self, context: &Context, node: Handle) -> Pending<Vec<u8>>;

    /// Gives a file one more name, or its first.
    fn link(&self, context: &Context, node: Handle, place: At) -> Pending<Entry>;

    /// Removes a name that is no directory's.
    fn unlink(&self, context: &Context, place: At) -> Pending<Removed>;

    /// Removes an empty directory.
    fn remove_dir(&self, context: &Context, place: At) -> Pending<Removed>;

    /// Moves a name.
    fn rename(&self, context: &Context, from: At, to: At, flags: RenameFlags) -> Pending<Renamed>;

    /// Opens an ordinary file.
    fn open(&self, context: &Context, node: Handle, flags: OpenFlags) -> Pending<Opened>;

    /// A descriptor was closed: what was written through it becomes visible and done.
    fn flush(&self, context: &Context, open: OpenId) -> Pending<()>;

    /// The last descriptor was closed.
    fn release(&self, context: &Context, open: OpenId) -> Pending<()>;

    /// Makes what was written safe; `data_only` leaves times alone that are not needed to find it.
    fn fsync(&self, context: &Context, open: OpenId, data_only: bool) -> Pending<()>;

    /// Makes the changes of a directory safe. Answers `Io` if some of those that were answered
    /// before are lost: once to each descriptor, with `since` the number of losses that it knows
    /// of ([`Files::losses`]), else once.
    fn fsync_dir(&self, context: &Context, dir: Handle, since: Option<u64>) -> Pending<()>;

    /// How often changes that were answered were lost before they were safe.
    fn losses(&self) -> u64 {
        0
    }

    /// Reads `size` bytes from `offset`; fewer only at the end of the file.
    fn read(&self, context: &Context, open: OpenId, offset: u64, size: u32) -> Pending<Buffer>;

    /// Writes bytes at `offset`, which is not looked at where the file was opened to append.
    /// `kill_privileges` clears setuid and setgid bits.
    fn write(
        &self,
        context: &Context,
        to: FilePos,
        bytes: &[u8],
        kill_privileges: bool,
    ) -> Pending<Written>;

    /// Lists up to `entries` names behind `after`, with attributes if wanted; behind the name
    /// `behind` if `after` is a ranked place that was behind it.
    fn list(
        &self,
        context: &Context,
        dir: Handle,
        after: Cookie,
        behind: Option<Name>,
        entries: u32,
        attributes: bool,
    ) -> Pending<Listing>;

    /// The value of an extended attribute; `name` with its prefix.
    fn get_xattr(&self, context: &Context, node: Handle, name: Vec<u8>) -> Pending<Vec<u8>>;

    /// The names of all extended attributes, each with a NUL behind it.
    fn list_xattr(&self, context: &Context, node: Handle) -> Pending<Vec<u8>>;

    /// Sets an extended attribute.
    fn set_xattr(
        &self,
        context: &Context,
        node: Handle,
        xattr: Xattr,
        flags: XattrFlags,
    ) -> Pending<()>;

    /// Removes an extended attribute; `name` with its prefix.
    fn remove_xattr(&self, context: &Context, node: Handle, name: Vec<u8>) -> Pending<()>;

    /// Space and counts of the volume.
    fn stat_fs(&self, context: &Context) -> Pending<VolumeStats>;

    /// Reserves or frees a range of an open file.
    fn allocate(
        &self,
        context: &Context,
        open: OpenId,
        range: ByteRange,
        mode: AllocateMode,
    ) -> Pending<()>;

    /// The offset of the next data or hole.
    fn seek(&self, context: &Context, open: OpenId, from: SeekFrom) -> Pending<u64>;

    /// Copies `length` bytes within the server.
    fn copy_range(
        &self,
        context: &Context,
        from: FilePos,
        to: FilePos,
        length: u64,
    ) -> Pending<Written>;
}
