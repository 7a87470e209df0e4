//! Answers: each is a value that knows its bytes, and each request is answered exactly once.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::Errno;
use crate::attr::{Attr, Timestamp};
use crate::device::{Backing, Device};
use crate::ids::{FileId, NodeId};

/// What stands behind the header of an answer.
pub trait Encode {
    /// Calls `send` once with the bytes.
    fn with_bytes(&self, send: &mut dyn FnMut(&[u8]));
}

/// The duty to answer one request, now or later, from any thread. Dropped without it, the answer is
/// `EIO`, so that no program waits for ever.
pub struct Reply<T: Encode + ?Sized> {
    pub(crate) unique: u64,
    /// `None` once it is answered.
    pub(crate) device: Option<Arc<Device>>,
    pub(crate) answer: PhantomData<fn(&T)>,
}

/// What a name leads to (`fuse_entry_out`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The kernel refers to it by this from now on, and counts one lookup of it; zero: there is no
    /// such name, and that holds for `entry_ttl`.
    pub node: NodeId,
    /// Tells nodes of one number apart.
    pub generation: u64,
    /// How long the name leads there.
    pub entry_ttl: Duration,
    /// How long the attributes hold.
    pub attr_ttl: Duration,
    /// Attributes; of an absent name nothing is looked at.
    pub attr: Attr,
}

/// Attributes and how long they hold (`fuse_attr_out`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// How long.
    pub ttl: Duration,
    /// The attributes.
    pub attr: Attr,
}

/// Attributes with the time of birth, and how long they hold (`fuse_statx_out`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statx {
    /// How long.
    pub ttl: Duration,
    /// The attributes.
    pub attr: Attr,
    /// When it was made.
    pub birth: Timestamp,
}

/// An open file or directory (`fuse_open_out`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// What the kernel calls it from now on.
    pub file: FileId,
    /// `FOPEN_*` of [`crate::protocol`].
    pub flags: u32,
    /// A registered descriptor; then `flags` must have `FOPEN_PASSTHROUGH`.
    pub backing: Option<i32>,
}

/// A file that was made and is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// The file.
    pub entry: Entry,
    /// The open file.
    pub opened: Opened,
}

/// How many bytes were written or copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written(pub u32);

/// Where data or a hole begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset(pub u64);

/// An extended attribute or the list of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Xattr {
    /// How large it is: what was asked with a size of zero.
    Size(u32),
    /// All of it.
    Value(Vec<u8>),
}

/// Space and counts (`fuse_kstatfs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statfs {
    /// All blocks.
    pub blocks: u64,
    /// Those that are free.
    pub free: u64,
    /// Those of them that anybody may have.
    pub available: u64,
    /// All files there can be.
    pub files: u64,
    /// How many more there can be.
    pub free_files: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// The most bytes of a name.
    pub name_bytes: u32,
}

impl<T: Encode + ?Sized> Reply<T> {
    /// Answers.
    pub fn ok(mut self, answer: &T) {
        let Some(device) = self.device.take() else { return };
        answer.with_bytes(&mut |bytes| send(&device, self.unique, None, bytes));
    }

    /// Answers that it failed.
    pub fn error(mut self, errno: Errno) {
        let Some(device) = self.device.take() else { return };
        send(&device, self.unique, Some(errno), &[]);
    }

    /// Makes a descriptor known to the kernel, for an answer with [`Opened::backing`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_backing(&self, file: BorrowedFd<'_>) -> io::Result<Backing> {
        self.device.as_ref().expect("an answer consumes the reply").open_backing(file)
    }
}

impl<T: Encode + ?Sized> Drop for Reply<T> {
    fn drop(&mut self) {
        let Some(device) = self.device.take() else { return };
        tracing::warn!(unique = self.unique, "a request was dropped without an answer");
        send(&device, self.unique, Some(Errno::IO), &[]);
    }
}

impl<T: Encode + ?Sized> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({})", self.unique)
    }
}

/// Where the request is gone, or the mount, nobody waits. Where the kernel takes no such answer, it
/// may take `EIO`.
pub(crate) fn send(device: &Device, unique: u64, errno: Option<Errno>, payload: &[u8]) {
    match device.answer(unique, errno, payload) {
        Ok(()) => {}
        Err(error @ (Errno::NOENT | Errno::NODEV | Errno::PERM)) => {
            tracing::debug!(%error, unique, "an answer came too late");
        }
        Err(error) => {
            let instead = device.answer(unique, Some(Errno::IO), &[]).is_ok();
            tracing::warn!(%error, unique, instead, "the kernel did not take an answer");
        }
    }
}
