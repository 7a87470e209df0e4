//! Notices: messages to the kernel that answer no request.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::io::Errno;

use crate::device::Device;
use crate::encode::{inval_entry, inval_inode, node_id, prune};
use crate::ids::NodeId;

/// `FUSE_NOTIFY_INVAL_INODE`.
const INVAL_INODE: i32 = 2;
/// `FUSE_NOTIFY_INVAL_ENTRY`.
const INVAL_ENTRY: i32 = 3;
/// `FUSE_NOTIFY_INC_EPOCH`.
const INC_EPOCH: i32 = 8;
/// `FUSE_NOTIFY_PRUNE`.
const PRUNE: i32 = 9;

/// `FUSE_EXPIRE_ONLY`, a flag of `INVAL_ENTRY`.
const EXPIRE_ONLY: u32 = 1 << 0;

/// Sends notices. Each method says which locks the kernel takes. If a request holds one of them, a
/// notice from the thread that must reply to this request is a deadlock. A thread that waits for
/// such a lock is in state D and cannot be killed.
#[derive(Debug, Clone)]
pub struct Notifier(pub(crate) Arc<Device>);

impl Notifier {
    /// Invalidates the attributes of a node, and if `offset` is not negative also its pages:
    /// `length` bytes from `offset`, or all of them if `length` is zero. Waits for the locks of
    /// those pages; with a negative offset for no lock.
    ///
    /// # Errors
    /// The kernel's errno; `ENOENT` if it does not know the node.
    pub fn inval_inode(&self, node: NodeId, offset: i64, length: i64) -> io::Result<()> {
        Ok(self.0.notify(INVAL_INODE, &[&inval_inode(node, offset, length)])?)
    }

    /// Invalidates a name of a directory, and detaches what is mounted below it. Takes the
    /// directory's lock, which the kernel also holds while CREATE, UNLINK, RENAME and other changes
    /// of the directory wait for their reply.
    ///
    /// # Errors
    /// The kernel's errno; `ENOENT` if it does not know the name.
    pub fn inval_entry(&self, dir: NodeId, name: &OsStr) -> io::Result<()> {
        self.entry(dir, name, 0)
    }

    /// Ends the validity of a name of a directory: the kernel looks it up again before it uses it
    /// the next time, and detaches nothing that is mounted below it. Takes the directory's lock, as
    /// [`Notifier::inval_entry`] does. The reply to a lookup that is under way makes the name valid
    /// again, so this does not serve to take a name back.
    ///
    /// Linux before 6.2 ignores the flag and does what [`Notifier::inval_entry`] does; since 6.3
    /// the kernel offers [`Capabilities::HAS_EXPIRE_ONLY`](crate::init::Capabilities).
    ///
    /// # Errors
    /// The kernel's errno; `ENOENT` if it does not know the name.
    pub fn expire_entry(&self, dir: NodeId, name: &OsStr) -> io::Result<()> {
        self.entry(dir, name, EXPIRE_ONLY)
    }

    /// Invalidates all names of the mount: the kernel looks each of them up again before it uses it
    /// the next time. Takes no lock, so it may be sent from anywhere. Pages and attributes stay.
    ///
    /// A name gets the epoch from the start of its lookup, so one whose lookup is under way is
    /// invalid too. A name of READDIRPLUS gets the epoch in which it is installed. The kernel
    /// detaches what is mounted below a name that it finds invalid, also if the name still leads to
    /// the same node.
    ///
    /// # Errors
    /// The kernel's errno; `EINVAL` before Linux 6.16 (7.44), which does not know this notice.
    pub fn inc_epoch(&self) -> io::Result<()> {
        Ok(self.0.notify(INC_EPOCH, &[])?)
    }

    /// Asks the kernel to forget those of `nodes` that only its cache of names refers to. Takes no
    /// lock of a directory or of pages.
    ///
    /// # Errors
    /// The kernel's errno; `EINVAL` before Linux 6.18, which does not know this notice.
    pub fn prune(&self, nodes: &[NodeId]) -> io::Result<()> {
        let count = u32::try_from(nodes.len()).map_err(|_| Errno::INVAL)?;
        let nodes: Vec<u8> = nodes.iter().flat_map(|node| node_id(*node)).collect();
        Ok(self.0.notify(PRUNE, &[&prune(count), &nodes])?)
    }

    fn entry(&self, dir: NodeId, name: &OsStr, flags: u32) -> io::Result<()> {
        let name = name.as_bytes();
        let length = u32::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?;
        Ok(self.0.notify(INVAL_ENTRY, &[&inval_entry(dir, length, flags), name, b"\0"])?)
    }
}
