//! The expected state of the directory part of one thread, as the log gives it.

use std::collections::{BTreeMap, BTreeSet};

use pelago_random::bytes_of;
use pelago_wire::Time;

use crate::model::SparseBytes;
use crate::witness::action::{Action, Change, NodeId};

/// Attributes that a stat returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StatResult {
    pub(super) size: u64,
    pub(super) mtime: Time,
}

/// The type of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeKind {
    Directory,
    Symlink(String),
    File,
}

/// The expected state of one file or directory.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    /// Permission bits; `None` until they were set, because the umask is unknown.
    pub(super) mode: Option<u16>,
    /// The mtime; `None` if unknown.
    pub(super) mtime: Option<Time>,
    /// Changes that must have survived.
    pub(super) settled: Vec<Change>,
    /// Acknowledged changes since the last fsync or close, with their times in milliseconds.
    pub(super) pending: Vec<(u64, Change)>,
    pub(super) xattrs: BTreeMap<String, u64>,
}

/// The pending changes of a file that a crash has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept {
    /// The number of changes, from the first one.
    pub(super) applied: usize,
    /// The bytes of the last one, if only a part of it has survived.
    pub(super) cut: Option<usize>,
}

/// The expected names, files and open files of one thread.
#[derive(Debug, Clone, Default)]
pub(super) struct ThreadState {
    pub(super) names: BTreeMap<String, NodeId>,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) open: BTreeSet<NodeId>,
    pub(super) next: NodeId,
}

impl Node {
    const fn new(kind: NodeKind) -> Self {
        Self {
            kind,
            mode: None,
            mtime: None,
            settled: Vec::new(),
            pending: Vec::new(),
            xattrs: BTreeMap::new(),
        }
    }

    /// Returns the bytes after the first `applied` of the pending changes.
    pub(super) fn bytes(&self, applied: usize) -> SparseBytes {
        let mut bytes = SparseBytes::default();
        let pending = self.pending.iter().map(|(_, change)| change).take(applied);
        for change in self.settled.iter().chain(pending) {
            change.apply(&mut bytes);
        }
        bytes
    }

    fn settle(&mut self) {
        self.settled.extend(self.pending.drain(..).map(|(_, change)| change));
    }
}

impl Change {
    pub(super) fn apply(&self, bytes: &mut SparseBytes) {
        match *self {
            Self::Write { offset, length, seed } => bytes.write(offset, &bytes_of(seed, length)),
            Self::Resize(size) => bytes.truncate(size),
        }
    }
}

impl ThreadState {
    /// Applies an operation acknowledged at `at` (milliseconds). Returns `None` if it contradicts
    /// the state.
    pub(super) fn apply(&mut self, action: &Action, at: u64) -> Option<()> {
        match action {
            Action::MakeDir { path } => {
                let id = self.add(Node::new(NodeKind::Directory));
                self.names.insert(path.clone(), id);
            }
            Action::Create { node, path } => {
                self.next = self.next.max(*node);
                let id = self.add(Node::new(NodeKind::File));
                self.names.insert(path.clone(), id);
                self.open.insert(id);
            }
            Action::Symlink { path, target } => {
                let id = self.add(Node::new(NodeKind::Symlink(target.clone())));
                self.names.insert(path.clone(), id);
            }
            Action::Link { from, to } => {
                let id = self.id(from)?;
                self.names.insert(to.clone(), id);
            }
            Action::Unlink { path } | Action::RemoveDir { path } => {
                self.names.remove(path)?;
            }
            Action::Rename { from, to } => self.rename(from, to)?,
            Action::Exchange { from, to } => {
                let one = self.id(from)?;
                let other = self.id(to)?;
                self.names.insert(from.clone(), other);
                self.names.insert(to.clone(), one);
            }
            _ => self.apply_to_node(action, at)?,
        }
        Some(())
    }

    /// Stores the result of a stat. Returns `None` if the path does not exist.
    pub(super) fn observe(&mut self, path: &str, stat: StatResult) -> Option<()> {
        let id = self.id(path)?;
        if !self.open.contains(&id) {
            self.nodes.get_mut(&id)?.mtime = Some(stat.mtime);
        }
        Some(())
    }

    /// Forgets the mtime of the file that this action changes.
    pub(super) fn forget_time(&mut self, action: &Action) {
        let id = match action {
            Action::Change { node, .. } => Some(*node),
            Action::Truncate { path, .. } | Action::SetTime { path, .. } => self.id(path),
            _ => None,
        };
        if let Some(node) = id.and_then(|id| self.nodes.get_mut(&id)) {
            node.mtime = None;
        }
    }

    /// Closes every file, as a crash does.
    pub(super) fn restart(&mut self) {
        self.open.clear();
        let named: BTreeSet<NodeId> = self.names.values().copied().collect();
        self.nodes.retain(|id, _| named.contains(id));
    }

    /// Settles which of a file's pending changes have survived.
    pub(super) fn settle(&mut self, id: NodeId, kept: Kept) -> Option<()> {
        let node = self.nodes.get_mut(&id)?;
        node.pending.truncate(kept.applied);
        if let (Some(cut), Some((_, Change::Write { length, .. }))) =
            (kept.cut, node.pending.last_mut())
        {
            *length = cut;
        }
        node.settle();
        node.mtime = None;
        Some(())
    }

    pub(super) fn id(&self, path: &str) -> Option<NodeId> {
        self.names.get(path).copied()
    }

    pub(super) fn node(&self, path: &str) -> Option<&Node> {
        self.nodes.get(&self.id(path)?)
    }

    pub(super) fn links(&self, id: NodeId) -> u64 {
        self.names.values().filter(|other| **other == id).count() as u64
    }

    fn apply_to_node(&mut self, action: &Action, at: u64) -> Option<()> {
        let id = match action {
            Action::Open { path }
            | Action::Truncate { path, .. }
            | Action::ChangeMode { path, .. }
            | Action::SetTime { path, .. }
            | Action::SetXattr { path, .. } => self.id(path)?,
            Action::Change { node, .. } | Action::Fsync { node } | Action::Close { node } => *node,
            _ => return Some(()),
        };
        let node = self.nodes.get_mut(&id)?;
        match action {
            Action::Open { .. } => {
                self.open.insert(id);
            }
            Action::Change { change, .. } => {
                node.pending.push((at, *change));
                node.mtime = None;
            }
            Action::Fsync { .. } => node.settle(),
            Action::Close { .. } => {
                node.settle();
                self.open.remove(&id);
            }
            Action::Truncate { size, .. } => {
                node.settled.push(Change::Resize(*size));
                node.mtime = None;
            }
            Action::ChangeMode { mode, .. } => node.mode = Some(*mode),
            Action::SetTime { mtime, .. } => node.mtime = Some(*mtime),
            Action::SetXattr { name, seed, .. } => {
                node.xattrs.insert(name.clone(), *seed);
            }
            _ => {}
        }
        Some(())
    }

    fn add(&mut self, node: Node) -> NodeId {
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, node);
        id
    }

    fn rename(&mut self, from: &str, to: &str) -> Option<()> {
        let id = self.names.remove(from)?;
        self.names.insert(to.to_owned(), id);
        let below = format!("{from}/");
        let range = self.names.range(below.clone()..);
        let moved: Vec<String> = range
            .map(|(path, _)| path.clone())
            .take_while(|path| path.starts_with(&below))
            .collect();
        for path in moved {
            let id = self.names.remove(&path)?;
            self.names.insert(format!("{to}/{}", path.get(below.len()..)?), id);
        }
        Some(())
    }
}
