//! What the kernel is told without having asked.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::io::Errno;

use crate::device::Device;
use crate::encode::{inval_entry, inval_inode, number, prune};
use crate::ids::NodeId;

/// `FUSE_NOTIFY_INVAL_INODE`.
const INVAL_INODE: i32 = 2;
/// `FUSE_NOTIFY_INVAL_ENTRY`.
const INVAL_ENTRY: i32 = 3;
/// `FUSE_NOTIFY_PRUNE`.
const PRUNE: i32 = 9;

/// Tells the kernel what it does not see by itself. Each method says which locks the kernel takes:
/// told from the thread of a request that holds one of them, it waits for itself.
#[derive(Debug, Clone)]
pub struct Notifier(pub(crate) Arc<Device>);

impl Notifier {
    /// Attributes of a node are old; with `offset` at or above zero its pages too, `length` bytes
    /// of them or all behind (zero). With a negative offset no lock is waited for.
    ///
    /// # Errors
    /// The kernel's; `ENOENT` where it does not know the node.
    pub fn inval_inode(&self, node: NodeId, offset: i64, length: i64) -> io::Result<()> {
        Ok(self.0.notify(INVAL_INODE, &[&inval_inode(node, offset, length)])?)
    }

    /// A name may lead elsewhere. Takes the directory's lock.
    ///
    /// # Errors
    /// The kernel's; `ENOENT` where it does not know the name.
    pub fn inval_entry(&self, dir: NodeId, name: &OsStr) -> io::Result<()> {
        let name = name.as_bytes();
        let length = u32::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?;
        Ok(self.0.notify(INVAL_ENTRY, &[&inval_entry(dir, length), name, b"\0"])?)
    }

    /// Nodes that nothing but the kernel's cache of names refers to are forgotten; the others stay.
    /// It takes no lock of a directory or of pages.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` of a kernel before 6.18, which does not know the question.
    pub fn prune(&self, nodes: &[NodeId]) -> io::Result<()> {
        let count = u32::try_from(nodes.len()).map_err(|_| Errno::INVAL)?;
        let nodes: Vec<u8> = nodes.iter().flat_map(|node| number(*node)).collect();
        Ok(self.0.notify(PRUNE, &[&prune(count), &nodes])?)
    }
}
