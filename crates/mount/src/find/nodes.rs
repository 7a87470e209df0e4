//! Hidden files and folders that the kernel refers to, by inode number.
//!
//! No server has them. Each gets a number of the site that no server has, and keeps it until the
//! kernel has sent FORGET for all its lookups, as real inodes do. Numbers are not used again: the
//! kernel never uses the inode of a folder again that a rename has replaced.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use pelago_fuse::Errno;
use pelago_wire::{Attr, FileKind, InodeId, Time, limits};

use super::hidden::{Hidden, HiddenName};

/// The bits of a number below those of its site.
const SITE_BITS: u32 = 48;
/// Estimated memory of a node besides its text.
const NODE_BYTES: usize = 256;

/// A hidden file or folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// The control file or the folder of queries of a directory.
    Hidden(HiddenName),
    /// The folder of a query.
    Folder(Folder),
    /// A link of such a folder to a file that was found.
    Link {
        /// The folder.
        folder: InodeId,
        /// Its name there.
        name: Box<[u8]>,
        /// The number that programs see.
        shown: InodeId,
        /// The target of the link.
        target: Box<[u8]>,
    },
}

/// The folder of a query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Folder {
    /// The directory that is searched.
    pub(super) dir: InodeId,
    /// The folder that has it as an entry.
    pub(super) parent: InodeId,
    /// Its name there: two names may mean the same query, and a folder has one name.
    pub(super) name: Box<[u8]>,
    /// The canonical form of the query, which includes the queries of the folders above.
    pub(super) query: Arc<[u8]>,
    /// Folders of queries from `.find` down to this one, itself included.
    pub(super) depth: u32,
}

/// The nodes that the kernel knows.
#[derive(Default)]
pub(super) struct Nodes(Mutex<Table>);

#[derive(Default)]
struct Table {
    known: HashMap<InodeId, NodeEntry>,
    numbers: HashMap<Arc<Node>, InodeId>,
    last: u64,
    /// Bytes of all nodes, and of those that each user has looked up first.
    bytes: usize,
    by_user: HashMap<u32, usize>,
}

struct NodeEntry {
    node: Arc<Node>,
    /// The user that has looked it up first.
    user: u32,
    lookups: u64,
    since: Time,
}

impl Nodes {
    /// Counts one more lookup of a node by this user, and returns its attributes.
    ///
    /// # Errors
    /// `ENFILE` if this user's nodes would take more memory than is left for all users.
    pub(super) fn look_up(&self, node: Node, user: u32, now: Time) -> Result<Attr, Errno> {
        let mut table = self.0.lock();
        let table = &mut *table;
        if let Some(known) = table.numbers.get(&node).and_then(|number| table.known.get_mut(number))
        {
            known.lookups = known.lookups.saturating_add(1);
            return Ok(attr(table.numbers[&node], &node, known.since));
        }
        let bytes = node.bytes();
        let own = table.own(user).saturating_add(bytes);
        if own > table.left() || (table.last + 1) >> SITE_BITS != 0 {
            return Err(Errno::NFILE);
        }
        table.last += 1;
        let number = InodeId::from_raw(u64::from(InodeId::MOUNT_SITE) << SITE_BITS | table.last);
        let attr = attr(number, &node, now);
        let node = Arc::new(node);
        table.numbers.insert(Arc::clone(&node), number);
        table.known.insert(number, NodeEntry { node, user, lookups: 1, since: now });
        table.bytes += bytes;
        table.by_user.insert(user, own);
        Ok(attr)
    }

    /// Drops lookups that the kernel has forgotten.
    pub(super) fn forget(&self, number: InodeId, lookups: u64) {
        let mut table = self.0.lock();
        let table = &mut *table;
        let Some(known) = table.known.get_mut(&number) else { return };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups > 0 {
            return;
        }
        if let Some(NodeEntry { node, user, .. }) = table.known.remove(&number) {
            table.bytes -= node.bytes();
            match table.own(user) - node.bytes() {
                0 => table.by_user.remove(&user),
                left => table.by_user.insert(user, left),
            };
            if table.numbers.get(&node) == Some(&number) {
                table.numbers.remove(&node);
            }
        }
    }

    /// Forgets the node of a hidden name that a real file has got: if the name is looked up again
    /// as a hidden one, it gets a new node.
    pub(super) fn replaced(&self, name: HiddenName) {
        self.0.lock().numbers.remove(&Node::Hidden(name));
    }

    pub(super) fn get(&self, number: InodeId) -> Option<Arc<Node>> {
        self.0.lock().known.get(&number).map(|known| Arc::clone(&known.node))
    }

    pub(super) fn attr(&self, number: InodeId) -> Option<Attr> {
        let table = self.0.lock();
        table.known.get(&number).map(|known| attr(number, &known.node, known.since))
    }

    /// Returns whether half of the memory is in use that this user may have.
    pub(super) fn is_half_full(&self, user: u32) -> bool {
        let table = self.0.lock();
        table.own(user) > table.left() / 2 || table.bytes > limits::FIND_NODES_BYTES / 2
    }

    /// Returns the nodes that the kernel knows.
    pub(super) fn all(&self) -> Vec<(InodeId, Arc<Node>)> {
        let table = self.0.lock();
        table.known.iter().map(|(number, known)| (*number, Arc::clone(&known.node))).collect()
    }

    /// Returns how many nodes the kernel knows.
    pub(super) fn count(&self) -> usize {
        self.0.lock().known.len()
    }
}

impl Table {
    /// Returns the bytes of the nodes that a user has looked up first.
    fn own(&self, user: u32) -> usize {
        self.by_user.get(&user).copied().unwrap_or(0)
    }

    /// Returns the bytes that are not in use.
    fn left(&self) -> usize {
        limits::FIND_NODES_BYTES.saturating_sub(self.bytes)
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nodes({})", self.count())
    }
}

impl Node {
    fn bytes(&self) -> usize {
        NODE_BYTES
            + match self {
                Self::Hidden(_) => 0,
                Self::Folder(folder) => folder.name.len() + folder.query.len(),
                Self::Link { name, target, .. } => name.len() + target.len(),
            }
    }
}

/// Returns the attributes of a node that was first looked up at `since`.
fn attr(number: InodeId, node: &Node, since: Time) -> Attr {
    let (ino, kind, mode, size) = match node {
        Node::Hidden(HiddenName { what: Hidden::Control, .. }) => {
            (number, FileKind::Regular, 0o666, 0)
        }
        Node::Hidden(HiddenName { what: Hidden::Queries, .. }) | Node::Folder(_) => {
            (number, FileKind::Directory, 0o555, 0)
        }
        Node::Link { target, .. } => (number, FileKind::Symlink, 0o777, target.len() as u64),
    };
    let links = if kind == FileKind::Directory { 2 } else { 1 };
    let [atime, mtime, ctime, btime] = [since; 4];
    Attr { mode, links, size, atime, mtime, ctime, btime, ..Attr::empty(ino, kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: u32 = 1000;
    const OTHER: u32 = 1001;
    const NOW: Time = Time { seconds: 5, nanos: 0 };

    fn hidden(dir: u64, what: Hidden) -> Node {
        Node::Hidden(HiddenName { dir: InodeId::from_raw(dir), what })
    }

    fn link(target: &[u8]) -> Node {
        let number = InodeId::from_raw(1);
        let name = b"x".as_slice().into();
        Node::Link { folder: number, name, shown: number, target: target.into() }
    }

    #[test]
    fn a_node_has_one_number_until_the_kernel_has_forgotten_it() {
        let nodes = Nodes::default();
        let first = nodes.look_up(hidden(7, Hidden::Control), USER, NOW).unwrap();
        assert_eq!(nodes.look_up(hidden(7, Hidden::Control), USER, NOW), Ok(first));
        assert!(first.ino.is_of_mount());
        assert_eq!((first.kind, first.mode, first.size), (FileKind::Regular, 0o666, 0));
        let folder = nodes.look_up(hidden(7, Hidden::Queries), USER, NOW).unwrap();
        assert_ne!(folder.ino, first.ino);
        assert_eq!((folder.kind, folder.mode), (FileKind::Directory, 0o555));
        nodes.forget(first.ino, 1);
        assert_eq!(nodes.attr(first.ino), Some(first));
        nodes.forget(first.ino, 1);
        assert_eq!((nodes.attr(first.ino), nodes.count()), (None, 1));
        nodes.forget(first.ino, 1);
        nodes.forget(folder.ino, 9);
        let table = nodes.0.lock();
        assert_eq!((table.known.len(), table.numbers.len(), table.bytes), (0, 0, 0));
    }

    #[test]
    fn a_name_that_was_replaced_leads_to_another_node() {
        let nodes = Nodes::default();
        let name = HiddenName { dir: InodeId::from_raw(7), what: Hidden::Queries };
        let first = nodes.look_up(Node::Hidden(name), USER, NOW).unwrap();
        nodes.replaced(name);
        let second = nodes.look_up(Node::Hidden(name), USER, NOW).unwrap();
        assert_ne!(first.ino, second.ino);
        nodes.forget(first.ino, 1);
        assert_eq!(nodes.look_up(Node::Hidden(name), USER, NOW), Ok(second));
        nodes.forget(second.ino, 2);
        assert_eq!(nodes.count(), 0);
    }

    #[test]
    fn memory_is_bounded_and_comes_back() {
        let nodes = Nodes::default();
        let mut numbers = Vec::new();
        let mut fill = |user: u32| loop {
            let text = vec![b'x'; 1000 + numbers.len()];
            match nodes.look_up(link(&text), user, NOW) {
                Ok(attr) => numbers.push(attr.ino),
                Err(error) => break (error, nodes.0.lock().own(user)),
            }
        };
        let (full, first) = fill(USER);
        assert_eq!(full, Errno::NFILE);
        let (full, second) = fill(OTHER);
        assert_eq!(full, Errno::NFILE);
        let half = limits::FIND_NODES_BYTES / 2;
        assert!(first > half * 6 / 7 && first <= half + 4096, "{first}");
        assert!(second > first / 3 && second <= first / 2 + 4096, "{first} and {second}");
        assert!(nodes.is_half_full(USER));
        numbers.into_iter().for_each(|number| nodes.forget(number, 1));
        assert!(nodes.look_up(link(b"x"), USER, NOW).is_ok() && !nodes.is_half_full(USER));
    }

    #[test]
    fn what_one_user_has_is_not_taken_from_another() {
        let nodes = Nodes::default();
        let mut number = 0;
        while nodes
            .look_up(link(&[&[b'x'; 1000][..], &u32::to_be_bytes(number)].concat()), USER, NOW)
            .is_ok()
        {
            number += 1;
        }
        let other = nodes.look_up(link(b"another"), OTHER, NOW).unwrap();
        assert!(!nodes.0.lock().by_user.is_empty());
        // One that is there costs nothing.
        assert_eq!(nodes.look_up(link(b"another"), USER, NOW), Ok(other));
        nodes.forget(other.ino, 2);
        assert_eq!(nodes.0.lock().own(OTHER), 0);
    }
}
