//! A cache of recently used rows, so that most operations do not read the engine.
//!
//! The caches are part of a shard's state and change under its lock, after the batch that changed
//! the rows was written. Their rows always equal those of the table.

use std::mem::size_of;

use quick_cache::Weighter;
use quick_cache::unsync::Cache;

use pelago_store::rows::Rnode;
use pelago_wire::{FileKind, Handle, InodeId, Name, NameHash};

/// The location of a node's rnode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RowLocation {
    /// In the row of its only name.
    Name {
        /// The directory.
        dir: InodeId,
        /// The hash of the name.
        hash: NameHash,
        /// The name.
        name: Name,
    },
    /// In a row of its own: a directory, a file that has or had several names, or a file without a
    /// name.
    Own,
    /// At another site: a directory whose name only is here.
    Elsewhere,
}

/// A node: its rnode, and the location of that.
#[derive(Debug, Clone)]
pub struct Node {
    /// The rnode.
    pub rnode: Rnode,
    /// Its location.
    pub(crate) location: RowLocation,
}

impl Node {
    /// Returns the handle with the newest hint.
    #[must_use]
    pub fn handle(&self) -> Handle {
        match &self.location {
            RowLocation::Name { dir, hash, .. } => Handle::at(self.rnode.ino, *dir, *hash),
            RowLocation::Own | RowLocation::Elsewhere => Handle::own(self.rnode.ino),
        }
    }
}

/// The target of a name: an inode, and whether its rnode is in the row of the name.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    /// The name, because several may have one hash.
    pub(crate) name: Name,
    /// The inode.
    pub(crate) ino: InodeId,
    /// The kind of the inode.
    pub(crate) kind: FileKind,
    /// True if the rnode is in the row of the name.
    pub(crate) is_embedded: bool,
}

/// The caches of one shard.
pub(crate) struct RowCache {
    nodes: Cache<InodeId, Node, Weight>,
    names: Cache<(InodeId, NameHash), Named, Weight>,
}

impl RowCache {
    /// Returns caches that together take about `bytes` bytes.
    #[must_use]
    pub(crate) fn new(bytes: usize) -> Self {
        let nodes = bytes / 3 * 2;
        let names = bytes / 3;
        Self {
            nodes: Cache::with_weighter(nodes / NODE_BYTES, nodes as u64, Weight),
            names: Cache::with_weighter(names / NAMED_BYTES, names as u64, Weight),
        }
    }

    /// Returns a node, if it is cached.
    pub(crate) fn node(&self, ino: InodeId) -> Option<&Node> {
        self.nodes.get(&ino)
    }

    /// Adds or replaces a node.
    pub(crate) fn put_node(&mut self, node: Node) {
        self.nodes.insert(node.rnode.ino, node);
    }

    /// Removes a node that was deleted.
    pub(crate) fn remove_node(&mut self, ino: InodeId) {
        self.nodes.remove(&ino);
    }

    /// Returns the target of a name, if it is cached.
    pub(crate) fn named(&self, dir: InodeId, hash: NameHash, name: &Name) -> Option<&Named> {
        self.names.get(&(dir, hash)).filter(|named| named.name == *name)
    }

    /// Adds or replaces the target of a name.
    pub(crate) fn put_named(&mut self, dir: InodeId, hash: NameHash, named: Named) {
        self.names.insert((dir, hash), named);
    }

    /// Removes a name that was deleted.
    pub(crate) fn remove_named(&mut self, dir: InodeId, hash: NameHash) {
        self.names.remove(&(dir, hash));
    }

    /// Removes all rows, after the table was opened again.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.names.clear();
    }

    /// Returns the bytes of memory that the caches take.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        self.nodes.weight() + self.names.weight()
    }
}

/// Bytes of a node with the cache's entry and the header of its name.
const NODE_BYTES: usize = size_of::<Node>() + 96;
/// Bytes of a name with its header and the cache's entry.
const NAMED_BYTES: usize = size_of::<Named>() + 96;

#[derive(Clone)]
struct Weight;

impl Weighter<InodeId, Node> for Weight {
    fn weight(&self, _: &InodeId, node: &Node) -> u64 {
        let name = match &node.location {
            RowLocation::Name { name, .. } => name.as_bytes().len(),
            RowLocation::Own | RowLocation::Elsewhere => 0,
        };
        (NODE_BYTES + node.rnode.target.len() + name) as u64
    }
}

impl Weighter<(InodeId, NameHash), Named> for Weight {
    fn weight(&self, _: &(InodeId, NameHash), named: &Named) -> u64 {
        (NAMED_BYTES + named.name.as_bytes().len()) as u64
    }
}
