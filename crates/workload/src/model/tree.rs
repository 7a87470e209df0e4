//! The tree: nodes and their names. Link counts, sizes of directories and parents are derived from
//! the names.

use std::collections::BTreeMap;

use pelago_wire::{Code, FileKind, Name};

use crate::model::Refusal;
use crate::model::bytes::SparseBytes;
use crate::model::stamp::Stamp;
use crate::op::{At, Path};

/// The id of a node; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(u64);

/// The contents of a node, by file type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    Directory,
    Regular(SparseBytes),
    Symlink(Vec<u8>),
    Special(FileKind),
}

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) body: Body,
    pub(crate) mode: u16,
    pub(crate) mtime: Stamp,
    pub(crate) ctime: Stamp,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Whether it was created unnamed and has had no name yet.
    pub(crate) awaits_name: bool,
    /// Its inode number on the file system under test; `None` until observed.
    pub(crate) ino: Option<u64>,
}

impl Node {
    pub(crate) const fn kind(&self) -> FileKind {
        match &self.body {
            Body::Directory => FileKind::Directory,
            Body::Regular(_) => FileKind::Regular,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Special(kind) => *kind,
        }
    }

    /// Records a change of bytes, or of a directory's names.
    pub(crate) const fn change_bytes(&mut self) {
        self.mtime.change();
        self.ctime.change();
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Tree {
    nodes: BTreeMap<NodeId, Node>,
    names: BTreeMap<(NodeId, Name), NodeId>,
    next: u64,
}

impl Tree {
    pub(crate) const ROOT: NodeId = NodeId(0);

    pub(crate) fn new() -> Self {
        let mut tree = Self { nodes: BTreeMap::new(), names: BTreeMap::new(), next: 0 };
        tree.add(Body::Directory, 0o755);
        tree
    }

    /// Adds a node without a name.
    pub(crate) fn add(&mut self, body: Body, mode: u16) -> NodeId {
        let id = NodeId(self.next);
        self.next += 1;
        let node = Node {
            body,
            mode,
            mtime: Stamp::Unknown,
            ctime: Stamp::Unknown,
            xattrs: BTreeMap::new(),
            awaits_name: false,
            ino: None,
        };
        self.nodes.insert(id, node);
        id
    }

    pub(crate) fn forget(&mut self, id: NodeId) {
        self.nodes.remove(&id);
    }

    /// Sets the node of a name; the times of the directory change.
    pub(crate) fn set_name(&mut self, dir: NodeId, name: &Name, id: NodeId) {
        self.names.insert((dir, name.clone()), id);
        self.node_mut(dir).change_bytes();
    }

    pub(crate) fn remove_name(&mut self, dir: NodeId, name: &Name) {
        self.names.remove(&(dir, name.clone()));
        self.node_mut(dir).change_bytes();
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        self.nodes.get(&id).expect("a node exists as long as it has a name or is open")
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("a node exists as long as it has a name or is open")
    }

    pub(crate) fn bytes(&self, id: NodeId) -> Option<&SparseBytes> {
        match &self.node(id).body {
            Body::Regular(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn bytes_mut(&mut self, id: NodeId) -> Option<&mut SparseBytes> {
        match &mut self.node_mut(id).body {
            Body::Regular(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn exists(&self, id: NodeId) -> bool {
        self.nodes.contains_key(&id)
    }

    pub(crate) fn is_dir(&self, id: NodeId) -> bool {
        self.node(id).body == Body::Directory
    }

    /// Returns the names of a directory, sorted.
    pub(crate) fn children(&self, dir: NodeId) -> impl Iterator<Item = (&Name, NodeId)> {
        let lowest = Name::new(&[1]).expect("a byte that is neither NUL, slash nor dot is a name");
        self.names
            .range((dir, lowest)..)
            .take_while(move |((parent, _), _)| *parent == dir)
            .map(|((_, name), id)| (name, *id))
    }

    pub(crate) fn child(&self, dir: NodeId, name: &Name) -> Option<NodeId> {
        self.names.get(&(dir, name.clone())).copied()
    }

    pub(crate) fn parent(&self, dir: NodeId) -> NodeId {
        let found = self.names.iter().find(|(_, id)| **id == dir);
        found.map_or(Self::ROOT, |((parent, _), _)| *parent)
    }

    pub(crate) fn links(&self, id: NodeId) -> u64 {
        if self.is_dir(id) {
            let dirs = self.children(id).filter(|(_, child)| self.is_dir(*child)).count();
            return 2 + dirs as u64;
        }
        self.names.values().filter(|child| **child == id).count() as u64
    }

    pub(crate) fn size(&self, id: NodeId) -> u64 {
        match &self.node(id).body {
            Body::Directory => self.children(id).count() as u64,
            Body::Regular(bytes) => bytes.size(),
            Body::Symlink(target) => target.len() as u64,
            Body::Special(_) => 0,
        }
    }

    pub(crate) fn has_name(&self, id: NodeId) -> bool {
        id == Self::ROOT || self.names.values().any(|child| *child == id)
    }

    /// Returns the node that was observed with this inode number.
    pub(crate) fn ino_owner(&self, ino: u64) -> Option<NodeId> {
        self.nodes.iter().find(|(_, node)| node.ino == Some(ino)).map(|(id, _)| *id)
    }

    /// Returns whether `below` is `dir` or lies below it.
    pub(crate) fn is_within(&self, below: NodeId, dir: NodeId) -> bool {
        let mut at = below;
        loop {
            if at == dir {
                return true;
            }
            if at == Self::ROOT {
                return false;
            }
            at = self.parent(at);
        }
    }

    pub(crate) fn find(&self, path: &Path) -> Result<NodeId, Refusal> {
        let mut at = Self::ROOT;
        for name in &path.0 {
            if !self.is_dir(at) {
                return Err(Refusal::fails(Code::NotDirectory));
            }
            at = self.child(at, name).ok_or_else(|| Refusal::fails(Code::NotFound))?;
        }
        Ok(at)
    }

    pub(crate) fn find_dir(&self, path: &Path) -> Result<NodeId, Refusal> {
        let id = self.find(path)?;
        if self.is_dir(id) { Ok(id) } else { Err(Refusal::fails(Code::NotDirectory)) }
    }

    /// Returns the directory of a name that does not exist yet.
    pub(crate) fn find_free(&self, at: &At) -> Result<NodeId, Refusal> {
        let dir = self.find_dir(&at.dir)?;
        if self.child(dir, &at.name).is_some() {
            return Err(Refusal::fails(Code::Exists));
        }
        Ok(dir)
    }

    /// Returns the directory and the node of a name.
    pub(crate) fn find_name(&self, at: &At) -> Result<(NodeId, NodeId), Refusal> {
        let dir = self.find_dir(&at.dir)?;
        let id = self.child(dir, &at.name).ok_or_else(|| Refusal::fails(Code::NotFound))?;
        Ok((dir, id))
    }

    /// Returns every path with its node, parents before children.
    pub(crate) fn walk(&self) -> Vec<(Path, NodeId)> {
        let mut found = vec![(Path::root(), Self::ROOT)];
        let mut next = 0;
        while let Some((path, id)) = found.get(next).cloned() {
            next += 1;
            if self.is_dir(id) {
                found.extend(self.children(id).map(|(name, child)| (path.join(name), child)));
            }
        }
        found
    }
}
