//! RowCache that were used lately, so that warm operations do not ask the engine.
//!
//! The caches are part of a shard's state and change under its lock, after the batch that changed
//! the rows was written. What they hold is always what the table holds.

use std::mem::size_of;

use quick_cache::Weighter;
use quick_cache::unsync::Cache;

use pelago_store::rows::Rnode;
use pelago_wire::{FileKind, Handle, InodeId, Name, NameHash};

/// Where the row of a node stands.
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
    /// In `inodes`: a directory, a file that has or had several names, or one that has none left.
    Own,
}

/// A row and where it stands.
#[derive(Debug, Clone)]
pub struct Node {
    /// The row.
    pub rnode: Rnode,
    /// Where it stands.
    pub(crate) place: RowLocation,
}

impl Node {
    /// The handle whose hint is right now.
    #[must_use]
    pub fn handle(&self) -> Handle {
        match &self.place {
            RowLocation::Name { dir, hash, .. } => Handle::at(self.rnode.ino, *dir, *hash),
            RowLocation::Own => Handle::own(self.rnode.ino),
        }
    }
}

/// What a name leads to.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    /// The name: several may have one hash.
    pub(crate) name: Name,
    /// The file.
    pub(crate) ino: InodeId,
    /// What it is.
    pub(crate) kind: FileKind,
    /// Whether the rnode stands in the row of the name.
    pub(crate) here: bool,
}

/// The caches of one shard.
pub(crate) struct RowCache {
    nodes: Cache<InodeId, Node, Weight>,
    names: Cache<(InodeId, NameHash), Named, Weight>,
}

impl RowCache {
    /// Caches that together take about `bytes`.
    #[must_use]
    pub(crate) fn new(bytes: usize) -> Self {
        let (nodes, names) = (bytes / 3 * 2, bytes / 3);
        Self {
            nodes: Cache::with_weighter(nodes / NODE_BYTES, nodes as u64, Weight),
            names: Cache::with_weighter(names / NAMED_BYTES, names as u64, Weight),
        }
    }

    /// The node, where it is known.
    pub(crate) fn node(&self, ino: InodeId) -> Option<&Node> {
        self.nodes.get(&ino)
    }

    /// The node is now this.
    pub(crate) fn put_node(&mut self, node: Node) {
        self.nodes.insert(node.rnode.ino, node);
    }

    /// The node is gone.
    pub(crate) fn drop_node(&mut self, ino: InodeId) {
        self.nodes.remove(&ino);
    }

    /// What the name leads to, where that is known.
    pub(crate) fn named(&self, dir: InodeId, hash: NameHash, name: &Name) -> Option<&Named> {
        self.names.get(&(dir, hash)).filter(|named| named.name == *name)
    }

    /// The name leads to this now.
    pub(crate) fn put_named(&mut self, dir: InodeId, hash: NameHash, named: Named) {
        self.names.insert((dir, hash), named);
    }

    /// The name is gone.
    pub(crate) fn drop_named(&mut self, dir: InodeId, hash: NameHash) {
        self.names.remove(&(dir, hash));
    }

    /// Forgets everything: after the table was opened again.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.names.clear();
    }

    /// Bytes they take.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        self.nodes.weight() + self.names.weight()
    }
}

/// A node with the cache's own entry and the head of its name.
const NODE_BYTES: usize = size_of::<Node>() + 96;
/// A name with its head and the cache's own entry.
const NAMED_BYTES: usize = size_of::<Named>() + 96;

#[derive(Clone)]
struct Weight;

impl Weighter<InodeId, Node> for Weight {
    fn weight(&self, _: &InodeId, node: &Node) -> u64 {
        let name = match &node.place {
            RowLocation::Name { name, .. } => name.as_bytes().len(),
            RowLocation::Own => 0,
        };
        (NODE_BYTES + node.rnode.target.len() + name) as u64
    }
}

impl Weighter<(InodeId, NameHash), Named> for Weight {
    fn weight(&self, _: &(InodeId, NameHash), named: &Named) -> u64 {
        (NAMED_BYTES + named.name.as_bytes().len()) as u64
    }
}
