//! What one thread's part of the directory must be, as its log says.

use std::collections::{BTreeMap, BTreeSet};

use pelago_random::bytes_of;
use pelago_wire::Time;

use crate::model::SparseBytes;
use crate::witness::action::{Action, Change, NodeId};

/// What is seen of a file once it was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) size: u64,
    pub(super) mtime: Time,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    Symlink(String),
    File,
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) kind: Kind,
    /// Permission bits, once they were set; before, the umask has its say.
    pub(super) mode: Option<u16>,
    /// The time of the last change of bytes, where it is known.
    pub(super) mtime: Option<Time>,
    /// Changes that must be there.
    pub(super) settled: Vec<Change>,
    /// Changes that were answered, when (milliseconds), but neither closed nor fsynced.
    pub(super) pending: Vec<(u64, Change)>,
    pub(super) xattrs: BTreeMap<String, u64>,
}

/// Names, files and open files of one thread.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) names: BTreeMap<String, NodeId>,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) open: BTreeSet<NodeId>,
    pub(super) next: NodeId,
}

impl Node {
    const fn new(kind: Kind) -> Self {
        Self {
            kind,
            mode: None,
            mtime: None,
            settled: Vec::new(),
            pending: Vec::new(),
            xattrs: BTreeMap::new(),
        }
    }

    /// The bytes with the first `applied` of the pending changes.
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

impl State {
    /// An operation was answered at `at` (milliseconds). `None`: the log does not make sense.
    pub(super) fn apply(&mut self, action: &Action, at: u64) -> Option<()> {
        match action {
            Action::MakeDir { path } => {
                let id = self.add(Node::new(Kind::Directory));
                self.names.insert(path.clone(), id);
            }
            Action::Create { node, path } => {
                self.next = self.next.max(*node);
                let id = self.add(Node::new(Kind::File));
                self.names.insert(path.clone(), id);
                self.open.insert(id);
            }
            Action::Symlink { path, target } => {
                let id = self.add(Node::new(Kind::Symlink(target.clone())));
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
                let (one, other) = (self.id(from)?, self.id(to)?);
                self.names.insert(from.clone(), other);
                self.names.insert(to.clone(), one);
            }
            _ => self.apply_to_node(action, at)?,
        }
        Some(())
    }

    /// The stat of a path showed this.
    pub(super) fn see(&mut self, path: &str, sight: Sight) -> Option<()> {
        let id = self.id(path)?;
        if !self.open.contains(&id) {
            self.nodes.get_mut(&id)?.mtime = Some(sight.mtime);
        }
        Some(())
    }

    /// The time of what this action touches may be any.
    pub(super) fn doubt_time(&mut self, action: &Action) {
        let id = match action {
            Action::Change { node, .. } => Some(*node),
            Action::Chop { path, .. } | Action::SetTime { path, .. } => self.id(path),
            _ => None,
        };
        if let Some(node) = id.and_then(|id| self.nodes.get_mut(&id)) {
            node.mtime = None;
        }
    }

    /// Every open file was closed by a crash; what came of it is settled.
    pub(super) fn restart(&mut self) {
        self.open.clear();
        let named: BTreeSet<NodeId> = self.names.values().copied().collect();
        self.nodes.retain(|id, _| named.contains(id));
    }

    /// Of a file's pending changes the first `applied` are there, the last of them cut to `cut`
    /// bytes.
    pub(super) fn settle(&mut self, id: NodeId, applied: usize, cut: Option<usize>) -> Option<()> {
        let node = self.nodes.get_mut(&id)?;
        node.pending.truncate(applied);
        if let (Some(cut), Some((_, Change::Write { length, .. }))) = (cut, node.pending.last_mut())
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
            | Action::Chop { path, .. }
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
            Action::Chop { size, .. } => {
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
