//! Replies: each is a value that encodes itself, and each request gets exactly one.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use std::{fmt, io};

use pelago_trace::RequestSpan;

use crate::Errno;
use crate::attr::{Attr, Timestamp};
use crate::device::Backing;
use crate::ids::{FileId, NodeId};
use crate::reply_to::ReplyTo;

/// The body of a reply.
pub trait Encode {
    /// Calls `send` once with the encoded bytes.
    fn with_bytes(&self, send: &mut dyn FnMut(&[u8]));
}

/// The duty to reply to one request, now or later, from any thread. If it is dropped, the reply is
/// `EIO`, so that no program waits for ever.
///
/// If the caller is killed while it waits, its request is answered `EINTR`, and a later reply is
/// dropped. [`Reply::claim`] returns whether that has happened.
pub struct Reply<T: Encode + ?Sized> {
    pub(crate) unique: u64,
    /// `None` once the reply is sent, or the caller was killed.
    pub(crate) to: Option<ReplyTo>,
    /// The request was claimed: nothing else replies to it.
    pub(crate) is_claimed: bool,
    /// Ends with this, once the reply is sent.
    #[expect(dead_code, reason = "a guard")]
    pub(crate) span: RequestSpan,
    pub(crate) answer: PhantomData<fn(&T)>,
}

/// The inode that a name refers to (`fuse_entry_out`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The id by which the kernel refers to the inode from now on, after counting one lookup. Zero
    /// says that the name does not exist, for as long as `entry_ttl`.
    pub node: NodeId,
    /// Distinguishes inodes that have had the same node id.
    pub generation: u64,
    /// Lifetime of the name in the kernel's cache.
    pub entry_ttl: Duration,
    /// Lifetime of the attributes in the kernel's cache.
    pub attr_ttl: Duration,
    /// Attributes of the inode; ignored if the name does not exist.
    pub attr: Attr,
}

/// Attributes and their lifetime (`fuse_attr_out`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Lifetime of the attributes in the kernel's cache.
    pub ttl: Duration,
    /// Attributes of the inode.
    pub attr: Attr,
}

/// Attributes with the birth time, and their lifetime (`fuse_statx_out`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statx {
    /// Lifetime of the attributes in the kernel's cache.
    pub ttl: Duration,
    /// Attributes of the inode.
    pub attr: Attr,
    /// Birth time of the inode.
    pub birth: Timestamp,
}

/// An open file or directory (`fuse_open_out`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// The id by which the kernel refers to the open from now on.
    pub file: FileId,
    /// `FOPEN_*` of [`crate::protocol`].
    pub flags: u32,
    /// Backing id of a registered descriptor; then `flags` must have `FOPEN_PASSTHROUGH`.
    pub backing: Option<i32>,
}

/// A file that was created and opened (`fuse_entry_out`, `fuse_open_out`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// The new file.
    pub entry: Entry,
    /// The open of it.
    pub opened: Opened,
}

/// The number of bytes that were written or copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written(pub u32);

/// The offset at which data or a hole begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset(pub u64);

/// The value of an extended attribute, or the list of names of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Xattr {
    /// Size in bytes, which a request with size zero asks for.
    Size(u32),
    /// The whole value or list.
    Value(Vec<u8>),
}

/// Space and counts of a file system (`fuse_kstatfs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statfs {
    /// Blocks in total.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks that unprivileged users can use.
    pub available: u64,
    /// Inodes in total.
    pub files: u64,
    /// Free inodes.
    pub free_files: u64,
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Limit of the bytes of a name.
    pub name_bytes: u32,
}

impl<T: Encode + ?Sized> Reply<T> {
    /// Claims the request. Returns whether the caller still waits; if so, it waits until it gets
    /// this reply. An open or a lookup, which the kernel counts, may be counted here only after
    /// that.
    pub fn claim(&mut self) -> bool {
        if !self.is_claimed {
            self.is_claimed = self.to.as_ref().is_some_and(|to| to.claim(self.unique));
        }
        if !self.is_claimed {
            self.to = None;
        }
        self.is_claimed
    }

    /// Sends a successful reply.
    pub fn ok(mut self, answer: &T) {
        let Some(to) = self.claimed() else { return };
        answer.with_bytes(&mut |bytes| to.send(self.unique, None, bytes));
    }

    /// Sends the reply that the request failed.
    pub fn error(mut self, errno: Errno) {
        let Some(to) = self.claimed() else { return };
        to.send(self.unique, Some(errno), &[]);
    }

    /// Registers a descriptor with the kernel, for a reply with [`Opened::backing`].
    ///
    /// # Errors
    /// The errno of the ioctl.
    pub fn open_backing(&self, file: BorrowedFd<'_>) -> io::Result<Backing> {
        match &self.to {
            Some(to) => to.device().open_backing(file),
            None => Err(Errno::INTR.into()),
        }
    }

    /// Claims the request, and returns where the reply goes.
    fn claimed(&mut self) -> Option<ReplyTo> {
        if self.claim() { self.to.take() } else { None }
    }
}

impl Reply<[u8]> {
    /// Calls `fill` with memory for the bytes of this reply, or with `None` if there is none. Bytes
    /// in that memory are not copied.
    pub fn with_room<T>(&mut self, fill: impl FnOnce(Option<&mut [u8]>) -> T) -> T {
        match &mut self.to {
            Some(to) => to.with_room(self.unique, fill),
            None => fill(None),
        }
    }

    /// Sends a successful reply with the first bytes of the memory that [`Reply::with_room`] gave.
    pub fn ok_in_room(mut self, bytes: usize) {
        let Some(to) = self.claimed() else { return };
        to.send_room(self.unique, bytes);
    }
}

impl<T: Encode + ?Sized> Drop for Reply<T> {
    fn drop(&mut self) {
        // Sent already.
        if self.to.is_none() {
            return;
        }
        let Some(to) = self.claimed() else { return };
        tracing::warn!(
            unique = self.unique,
            "a request was dropped without a reply: its caller gets EIO"
        );
        to.send(self.unique, Some(Errno::IO), &[]);
    }
}

impl<T: Encode + ?Sized> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({})", self.unique)
    }
}
