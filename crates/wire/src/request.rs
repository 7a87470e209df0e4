//! The operations of a POSIX file system, as requests.

use crate::attr::{FileKind, NewMode, SetAttr, Time};
use crate::audit::AuditPlace;
use crate::flags::{
    AllocateMode, OpenFlags, PlaceFlags, RenameFlags, SeekFrom, WriteFlags, XattrFlags,
};
use crate::id::{Cookie, Handle, InodeId, OpenId, SessionId};
use crate::level::Level;
use crate::lock::{FileLock, LockOwner};
use crate::name::Name;
use crate::search::{Search, Tags};
use crate::site_token::SiteToken;

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
        /// The flags of the open.
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
        /// The flags of the open.
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
        /// The treatment of an existing target.
        flags: RenameFlags,
    },
    /// Opens a regular file. Reply: `Opened`; `IsDirectory`, `TooManyOpen`, `Invalid` if the
    /// session has an open with this number.
    Open {
        /// The file.
        node: Handle,
        /// The flags of the open.
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
        /// The flags of the open; `truncate` and `kill_privileges` have no effect.
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
        /// The owner that would hold the lock.
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
        /// The owner that is to hold the lock.
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
        /// The owner that held the lock.
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
    /// Makes the bytes of a file and its attributes safe at a level, whatever the level of the file
    /// is. Reply: `Done`; `NotSupported` if the volume has no mirror or relay for that level, or
    /// the bytes of the file are at another site than its home and the level is later than `Local`.
    FsyncAt {
        /// The open file.
        open: OpenId,
        /// The level.
        level: Level,
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
        /// The flags of the write.
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
        /// The condition: the attribute must exist, or must not.
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
        /// The operation on the range.
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
    /// Finds the files in a directory and below it that a query means, and that the asker may read.
    /// Reply: `Found`; `Invalid` for a query that cannot be parsed.
    Search {
        /// The directory.
        dir: Handle,
        /// The search.
        search: Search,
    },
    /// Finds the keys of tags, or the values of one key, that files in a directory and below it
    /// have, and that the asker may read. Reply: `Tagged`; `Busy` until each tag has its row,
    /// `Invalid` for what is no key.
    Tags {
        /// The directory.
        dir: Handle,
        /// The request for tags.
        tags: Tags,
    },
    /// Adds a chain of credentials to the session of a guest, which has the rights of all its
    /// chains from then on. An attached chain is attached again without effect. Reply: `Bytes`,
    /// empty if the chain is attached, else the reason for the person; `AccessDenied` without a
    /// reason, and in a session of no guest.
    Attach {
        /// The texts, from the one of a root of the volume to the one for the guest's key.
        chain: Vec<Vec<u8>>,
    },
    /// Takes a credential back, for ever. The guests that came with it have no session when this is
    /// answered, and it is answered once the revocation is safe. Reply: `Done`; `AccessDenied` if
    /// the sentence is signed neither by a root of the volume, nor by the guest that has signed the
    /// credential; `Invalid` if it is none; `NoSpace` if too many are revoked.
    Revoke {
        /// The signed sentence, as `docs/protocol.md` specifies it.
        sentence: Vec<u8>,
        /// The text of the credential; nothing if it is not known, or for a key. A guest proves by
        /// it that it has signed the credential, and the server learns its end.
        chain: Vec<Vec<u8>>,
    },
    /// Asks for a credential for a file or directory that this session of a guest has made: all
    /// rights to it for the key of the guest, for as long as the chain holds by which the guest may
    /// create there. Reply: `Issued`; `AccessDenied` if the session has not made it in this run of
    /// the server, may not create there any more, or the credential was taken back; `Invalid` if it
    /// is neither a file nor a directory, or if that chain has conditions of another form or no
    /// room; `NotSupported` if the server has no licence to issue credentials; `NoSpace` after
    /// [`limits::ISSUED_CREDENTIALS`](crate::limits::ISSUED_CREDENTIALS) of a session.
    Issue {
        /// The file or directory.
        node: Handle,
    },
    /// Asks which guests have which rights to a node, and what denies the others. A guest is told
    /// of itself; one that may audit the node, and any other session, of all guests that are
    /// connected, page by page, or of the holder of a chain. Reply: `Access`; `Invalid` for what is
    /// no chain, `AccessDenied` for a chain if the guest may not audit the node.
    Access {
        /// The node.
        node: Handle,
        /// The texts of the credentials of the guest that is asked about; nothing for all guests
        /// that are connected.
        chain: Vec<Vec<u8>>,
        /// The last session of the page before; 0 for the first one.
        after: SessionId,
    },
    /// Asks for the lines of the audit log about what was done in a directory and below it, page by
    /// page. A guest is told of those about nodes in directories which it may audit now; any other
    /// session, and a guest who may audit the whole volume, of all lines for the root directory.
    /// Reply: `Audited`; `NotDirectory`, and `NotSupported` if the server keeps no such log.
    Audited {
        /// The directory.
        dir: Handle,
        /// The place from which the page goes on; [`AuditPlace::START`] for the first one.
        after: AuditPlace,
    },
    /// Looks a name up, or finds the parent directory, for the server of another site: the answer
    /// leads on to a directory whose home is elsewhere, too. Reply: `Stepped`; as
    /// [`Request::Lookup`] and [`Request::Parent`], and `AccessDenied` in a session of no site.
    Step {
        /// The directory. To find its parent, it may be one whose home is at the asking site.
        dir: Handle,
        /// The name; `None` for the parent directory.
        to: Option<Name>,
    },
    /// Gives a name to a directory that the asking site has made, and whose rows are safe there.
    /// Reply: `Done`, once that is safe, and also for a directory that has a name here; `Exists`,
    /// `Invalid` if the asking site is not the home of the directory, and `AccessDenied` in a
    /// session of no site. `Busy` in place of an error while an earlier session of the site may
    /// still carry the same request out.
    AddDir {
        /// The directory that gets the name.
        dir: Handle,
        /// The new name.
        name: Name,
        /// The directory that was made.
        made: InodeId,
    },
    /// Removes the name of a directory that the asking site is removing, and has closed. Reply:
    /// `Done`, once that is safe; `NotFound` if the name does not lead to the directory, `Busy` and
    /// `AccessDenied` as for [`Request::AddDir`].
    DropDir {
        /// The directory that has the name.
        dir: Handle,
        /// The name.
        name: Name,
        /// The directory that is being removed.
        removed: InodeId,
    },
    /// Removes an empty directory whose name is at the asking site. It is closed, and its name is
    /// asked to be removed, before this is answered. Reply: `Removed`; `NotEmpty`, `Busy` if it is
    /// being made or removed, and `AccessDenied` in a session of no site.
    RemoveNamedDir {
        /// The directory.
        dir: Handle,
        /// The directory of the asking site that has the name.
        parent: InodeId,
        /// The name.
        name: Name,
    },
    /// Says where the server of the asking site can be reached. Reply: `Done`, once that is safe;
    /// `Invalid` for what is no address, `AccessDenied` in a session of no site.
    SiteAddress {
        /// `HOST:PORT`, or nothing if it cannot be reached.
        address: Vec<u8>,
    },
    /// Passes on the list of the volume's sites, which the server of the first one has signed.
    /// Reply: `Done`, once that is safe, and also for one that is known; `Invalid` if it is no list
    /// of this volume by that server, or contradicts what is known; `Stale` if it is older than the
    /// known one, `AccessDenied` in a session of no site.
    SiteList {
        /// The text: at most [`SITE_LIST_BYTES`](crate::limits::SITE_LIST_BYTES).
        text: Vec<u8>,
    },
    /// Says that the asking site leaves the volume: it is the home of nothing any more. Reply:
    /// `Done`, once that is safe; `NotSupported` at another site than the first one, `AccessDenied`
    /// in a session of no site.
    LeaveSite,
    /// Asks the first site for the charter of the volume, if it is not the one with this version,
    /// and for the hash of all revocations. Reply: `Charter`; `NotSupported` at another site than
    /// the first one, `AccessDenied` in a session of no site.
    Charter {
        /// The version that the asking site has; 0 for none.
        known: u64,
    },
    /// Asks the first site for a page of its revocations: those in the parts that differ from the
    /// asking site's, in the order of what they take back. The first one asks another site so after
    /// its start. Reply: `Revoked`; `Invalid` for a wrong number of hashes, and as for
    /// [`Request::Charter`].
    Revoked {
        /// The hash of each part that the asking site has, one after another: 256 of 16 bytes.
        parts: Vec<u8>,
        /// The last one of the page before.
        after: Option<[u8; 32]>,
    },
    /// Passes on to the first site a revocation that the asking one has made. Reply: `Unreached`,
    /// once it is in force at each site that can be reached; `Invalid` if it is none, or one of a
    /// root of the first site, `NoSpace`, `Busy` beyond [`PASSES`](crate::limits::PASSES), and as
    /// for [`Request::Charter`].
    PassRevocation {
        /// The signed sentence: at most [`REVOCATION_BYTES`](crate::limits::REVOCATION_BYTES).
        sentence: Vec<u8>,
        /// The second, since 1970, from which the credential is void in any case; 0 if it has no
        /// end.
        end: u64,
    },
    /// Says to another site that the charter or the revocations of the first one have changed.
    /// Reply: `Done`, once that site has asked, and no guest there uses what has ended;
    /// `AccessDenied` in a session that is not the first site's.
    CharterChanged,
    /// Says that the bytes of a file are at the asking site, in a node there that has no name, and
    /// what the file is with them. Reply: `Attr`, also if that is known; `Exists` if the file has
    /// got other bytes since, and `Stale` if it is gone, each once that is safe; `Busy` if it may
    /// come back, or a program of the server's machine reads it without requests; `NotSupported` in
    /// a shared store, `AccessDenied` in a session of no site.
    SetBytes {
        /// The file.
        node: Handle,
        /// The node of the asking site.
        at: InodeId,
        /// The size in bytes.
        size: u64,
        /// The time of the last change of the bytes.
        mtime: Time,
        /// The `mtime` that the file had, empty, when the first of the bytes was written.
        since: Time,
        /// What is said.
        flags: PlaceFlags,
    },
    /// Asks for the bytes of a file of the asking site, which are in this node: from now on nothing
    /// is written into it. Reply: `Attr` of the node, once that is safe, with the `mtime` zero if
    /// the asking site was told of all that was written; `Busy` if a change is under way; `Stale`
    /// if it does not have the bytes of the file, `AccessDenied` in a session of no site.
    GiveBytes {
        /// The node.
        node: Handle,
        /// The file.
        file: InodeId,
    },
    /// Says that the bytes of a file of the asking site, which are in this node, are not needed any
    /// more: it is removed. Reply: `Done`, also if there is no such node; `AccessDenied` in a
    /// session of no site.
    DropBytes {
        /// The node.
        node: Handle,
        /// The file.
        file: InodeId,
    },
    /// Reads the clock of a site's server, and the version of its program. Reply: `Clock`;
    /// `AccessDenied` in a session of no site.
    Clock,
    /// Hashes blocks of an open file, each of [`limits::FETCH_BLOCK_BYTES`]: a site that has older
    /// copies of them fetches those that have changed. Reply: `Hashes`, with fewer of them at the
    /// end of the file; `Invalid` if no block begins at the offset, or too many are asked for;
    /// `Busy` while the file is open for writing; `Elsewhere` if its bytes are at another site;
    /// `AccessDenied` in a session of no site.
    ///
    /// [`limits::FETCH_BLOCK_BYTES`]: crate::limits::FETCH_BLOCK_BYTES
    Hashes {
        /// The open.
        open: OpenId,
        /// The offset of the first block.
        offset: u64,
        /// The number of blocks: at most [`crate::limits::HASHED_BLOCKS`].
        blocks: u32,
    },
    /// Asks for the next token of the asking site: what is shown there from then on, an older copy
    /// of its folder does not have. Reply: `Token`, once that is safe; the same one again until the
    /// asking site has shown it, or has said that it keeps it. `Stale` if the token is an older one
    /// than was given last, or the folder that is asked is older; `AccessDenied` in a session of no
    /// site.
    RenewToken {
        /// The last one that the asking site has.
        token: SiteToken,
    },
    /// Says that a token is safe at the asking site: no earlier one is taken from now on. Reply:
    /// `Done`, also if there is a newer one; `AccessDenied` in a session of no site.
    KeepToken {
        /// The token.
        token: SiteToken,
    },
    /// Lists the servers of the shared store: the one that answers, then the others in the order of
    /// their keys. Reply: `Servers`; `NotSupported` if the volume lies on none.
    Servers,
}

impl Request {
    /// Calls `each` with each handle that the request names.
    pub fn each_handle_mut(&mut self, each: &mut dyn FnMut(&mut Handle)) {
        match self {
            Self::Lookup { dir, .. }
            | Self::Parent { dir }
            | Self::Create { dir, .. }
            | Self::CreateUnnamed { dir, .. }
            | Self::MakeDir { dir, .. }
            | Self::MakeNode { dir, .. }
            | Self::Symlink { dir, .. }
            | Self::Unlink { dir, .. }
            | Self::RemoveDir { dir, .. }
            | Self::FsyncDir { dir, .. }
            | Self::List { dir, .. }
            | Self::Search { dir, .. }
            | Self::Tags { dir, .. }
            | Self::Audited { dir, .. }
            | Self::Step { dir, .. }
            | Self::AddDir { dir, .. }
            | Self::DropDir { dir, .. }
            | Self::RemoveNamedDir { dir, .. } => each(dir),
            Self::GetAttr { node }
            | Self::SetAttr { node, .. }
            | Self::ReadLink { node }
            | Self::Open { node, .. }
            | Self::Reopen { node, .. }
            | Self::GetXattr { node, .. }
            | Self::ListXattr { node }
            | Self::SetXattr { node, .. }
            | Self::RemoveXattr { node, .. }
            | Self::Issue { node }
            | Self::Access { node, .. }
            | Self::SetBytes { node, .. }
            | Self::GiveBytes { node, .. }
            | Self::DropBytes { node, .. } => each(node),
            Self::Link { node, dir, .. } => {
                each(node);
                each(dir);
            }
            Self::Rename { from_dir, to_dir, .. } => {
                each(from_dir);
                each(to_dir);
            }
            Self::Find { .. }
            | Self::Flush { .. }
            | Self::Release { .. }
            | Self::Fsync { .. }
            | Self::FsyncAt { .. }
            | Self::Read { .. }
            | Self::Write { .. }
            | Self::StatFs
            | Self::Allocate { .. }
            | Self::Seek { .. }
            | Self::CopyRange { .. }
            | Self::GetLock { .. }
            | Self::SetLock { .. }
            | Self::ReclaimLock { .. }
            | Self::Attach { .. }
            | Self::Revoke { .. }
            | Self::SiteAddress { .. }
            | Self::SiteList { .. }
            | Self::LeaveSite
            | Self::Charter { .. }
            | Self::Revoked { .. }
            | Self::PassRevocation { .. }
            | Self::CharterChanged
            | Self::Clock
            | Self::Hashes { .. }
            | Self::RenewToken { .. }
            | Self::KeepToken { .. }
            | Self::Servers => {}
        }
    }

    /// Returns the owner of locks that the request names.
    pub const fn lock_owner_mut(&mut self) -> Option<&mut LockOwner> {
        match self {
            Self::GetLock { owner, .. }
            | Self::SetLock { owner, .. }
            | Self::ReclaimLock { owner, .. } => Some(owner),
            Self::Flush { owner, .. } => owner.as_mut(),
            Self::Create { .. }
            | Self::CreateUnnamed { .. }
            | Self::Open { .. }
            | Self::Reopen { .. }
            | Self::Release { .. }
            | Self::Fsync { .. }
            | Self::FsyncAt { .. }
            | Self::Read { .. }
            | Self::Write { .. }
            | Self::Allocate { .. }
            | Self::Seek { .. }
            | Self::SetAttr { .. }
            | Self::CopyRange { .. }
            | Self::Lookup { .. }
            | Self::Parent { .. }
            | Self::Find { .. }
            | Self::GetAttr { .. }
            | Self::MakeDir { .. }
            | Self::MakeNode { .. }
            | Self::Symlink { .. }
            | Self::ReadLink { .. }
            | Self::Link { .. }
            | Self::Unlink { .. }
            | Self::RemoveDir { .. }
            | Self::Rename { .. }
            | Self::FsyncDir { .. }
            | Self::List { .. }
            | Self::GetXattr { .. }
            | Self::ListXattr { .. }
            | Self::SetXattr { .. }
            | Self::RemoveXattr { .. }
            | Self::StatFs
            | Self::Search { .. }
            | Self::Tags { .. }
            | Self::Attach { .. }
            | Self::Revoke { .. }
            | Self::Issue { .. }
            | Self::Access { .. }
            | Self::Audited { .. }
            | Self::Step { .. }
            | Self::AddDir { .. }
            | Self::DropDir { .. }
            | Self::RemoveNamedDir { .. }
            | Self::SiteAddress { .. }
            | Self::SiteList { .. }
            | Self::LeaveSite
            | Self::Charter { .. }
            | Self::Revoked { .. }
            | Self::PassRevocation { .. }
            | Self::CharterChanged
            | Self::SetBytes { .. }
            | Self::GiveBytes { .. }
            | Self::DropBytes { .. }
            | Self::Clock
            | Self::Hashes { .. }
            | Self::RenewToken { .. }
            | Self::KeepToken { .. }
            | Self::Servers => None,
        }
    }

    /// Calls `each` with each open that the request names or makes.
    pub fn each_open_mut(&mut self, each: &mut dyn FnMut(&mut OpenId)) {
        match self {
            Self::Create { open, .. }
            | Self::CreateUnnamed { open, .. }
            | Self::Open { open, .. }
            | Self::Reopen { open, .. }
            | Self::Flush { open, .. }
            | Self::Release { open }
            | Self::GetLock { open, .. }
            | Self::SetLock { open, .. }
            | Self::ReclaimLock { open, .. }
            | Self::Fsync { open, .. }
            | Self::FsyncAt { open, .. }
            | Self::Read { open, .. }
            | Self::Write { open, .. }
            | Self::Allocate { open, .. }
            | Self::Seek { open, .. }
            | Self::Hashes { open, .. } => each(open),
            Self::SetAttr { open, .. } => open.iter_mut().for_each(each),
            Self::CopyRange { from, to, .. } => {
                each(from);
                each(to);
            }
            Self::Lookup { .. }
            | Self::Parent { .. }
            | Self::Find { .. }
            | Self::GetAttr { .. }
            | Self::MakeDir { .. }
            | Self::MakeNode { .. }
            | Self::Symlink { .. }
            | Self::ReadLink { .. }
            | Self::Link { .. }
            | Self::Unlink { .. }
            | Self::RemoveDir { .. }
            | Self::Rename { .. }
            | Self::FsyncDir { .. }
            | Self::List { .. }
            | Self::GetXattr { .. }
            | Self::ListXattr { .. }
            | Self::SetXattr { .. }
            | Self::RemoveXattr { .. }
            | Self::StatFs
            | Self::Search { .. }
            | Self::Tags { .. }
            | Self::Attach { .. }
            | Self::Revoke { .. }
            | Self::Issue { .. }
            | Self::Access { .. }
            | Self::Audited { .. }
            | Self::Step { .. }
            | Self::AddDir { .. }
            | Self::DropDir { .. }
            | Self::RemoveNamedDir { .. }
            | Self::SiteAddress { .. }
            | Self::SiteList { .. }
            | Self::LeaveSite
            | Self::Charter { .. }
            | Self::Revoked { .. }
            | Self::PassRevocation { .. }
            | Self::CharterChanged
            | Self::SetBytes { .. }
            | Self::GiveBytes { .. }
            | Self::DropBytes { .. }
            | Self::Clock
            | Self::RenewToken { .. }
            | Self::KeepToken { .. }
            | Self::Servers => {}
        }
    }
}
