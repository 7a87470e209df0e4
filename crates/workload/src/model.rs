//! The reference model: a plain POSIX tree in memory that predicts the outcome of each operation.
//!
//! It stores the inputs (names, bytes, attributes that were set) and derives the rest. Users and
//! permissions are not part of it: programs run as one user with all rights. If several errors
//! apply at once, each of them is right.

use std::collections::{BTreeMap, BTreeSet};

use pelago_wire::{Code, FileKind, Name, SeekFrom};

use crate::op::{Op, Path, SCANS, SLOTS, Subject};
use crate::target::{FileAttr, FsTraits};

use scan::Scan;
use tree::{NodeId, Tree};

mod bytes;
mod names;
mod open;
mod ranges;
mod scan;
mod stamp;
mod tree;

pub(crate) use bytes::SparseBytes;

/// The expected outcome of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// The operation is impossible now and is skipped.
    Skip,
    /// It fails with one of these errors.
    Fails(Vec<Code>),
    /// It succeeds.
    Done,
    /// It succeeds and returns the attributes of this node.
    Attr(NodeRef),
    /// It writes this many bytes.
    Written {
        /// Bytes written.
        bytes: u64,
        /// The size of the file afterwards.
        size: u64,
    },
    /// It returns these bytes.
    Bytes(Vec<u8>),
    /// It returns these names.
    Names(BTreeMap<Name, FileKind>),
    /// It returns names that [`Model::observe_page`] accepts for this scan.
    Page(usize),
    /// It returns an offset that [`Model::check_offset`] accepts for this node.
    Found(NodeRef, SeekFrom),
    /// It returns these names of extended attributes.
    XattrNames(BTreeSet<Vec<u8>>),
}

/// A reference to a file or directory of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeRef(NodeId);

/// A POSIX file system in memory.
#[derive(Debug, Clone)]
pub struct Model {
    tree: Tree,
    slots: [Option<OpenFile>; SLOTS],
    scans: [Option<Scan>; SCANS],
    traits: FsTraits,
}

/// The reason for which an operation does not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    Skip,
    Fails(Vec<Code>),
}

impl Refusal {
    pub(crate) fn fails(code: Code) -> Self {
        Self::Fails(vec![code])
    }
}

#[derive(Debug, Clone, Copy)]
struct OpenFile {
    id: NodeId,
    read: bool,
    write: bool,
    append: bool,
    /// Whether bytes were written through it since the last flush.
    dirty: bool,
}

impl Model {
    /// Returns an empty directory on a file system with these traits.
    #[must_use]
    pub fn new(traits: FsTraits) -> Self {
        Self { tree: Tree::new(), slots: [None; SLOTS], scans: [const { None }; SCANS], traits }
    }

    /// Applies an operation and returns its expected outcome.
    pub fn apply(&mut self, op: &Op) -> Expected {
        let result = match op {
            Op::Create { .. }
            | Op::CreateUnnamed { .. }
            | Op::LinkOpen { .. }
            | Op::MakeDir { .. }
            | Op::MakeNode { .. }
            | Op::Symlink { .. }
            | Op::Link { .. }
            | Op::Unlink { .. }
            | Op::RemoveDir { .. }
            | Op::Rename { .. } => self.apply_to_names(op),
            Op::Open { .. }
            | Op::Flush { .. }
            | Op::Close { .. }
            | Op::Write { .. }
            | Op::Read { .. }
            | Op::Fsync { .. } => self.apply_to_open(op),
            Op::Allocate { .. } | Op::Seek { .. } | Op::Copy { .. } => self.apply_to_ranges(op),
            Op::Truncate { .. }
            | Op::ChangeMode { .. }
            | Op::SetTimes { .. }
            | Op::SetXattr { .. }
            | Op::GetXattr { .. }
            | Op::ListXattr { .. }
            | Op::RemoveXattr { .. } => self.apply_to_attributes(op),
            _ => self.query(op),
        };
        match result {
            Ok(expected) => expected,
            Err(Refusal::Skip) => Expected::Skip,
            Err(Refusal::Fails(codes)) => Expected::Fails(codes),
        }
    }

    /// Compares attributes that the file system returned with those of a node, and stores the inode
    /// number and times.
    ///
    /// # Errors
    /// A description of the difference.
    pub fn observe_attr(&mut self, node: NodeRef, found: &FileAttr) -> Result<(), String> {
        let id = node.0;
        let known = self.tree.node(id);
        let is_dir = self.tree.is_dir(id);
        expect_same("kind", known.kind(), found.kind)?;
        if known.kind() != FileKind::Symlink {
            expect_same("mode", format!("{:o}", known.mode), format!("{:o}", found.mode))?;
        }
        if !is_dir || self.traits.counts_dirs {
            expect_same("links", self.tree.links(id), found.links)?;
        }
        if !is_dir || self.traits.counts_names {
            expect_same("size", self.tree.size(id), found.size)?;
        }
        self.observe_ino(id, found.ino)?;
        let strict = self.traits.strict_times;
        let known = self.tree.node_mut(id);
        let was = known.mtime.observe(found.mtime, strict);
        was.map_err(|was| format!("mtime: expected {was:?}, found {:?}", found.mtime))?;
        let was = known.ctime.observe(found.ctime, strict);
        was.map_err(|was| format!("ctime: expected {was:?}, found {:?}", found.ctime))
    }

    /// Checks the names that a scan returned.
    ///
    /// # Errors
    /// A description of the wrong name.
    pub fn observe_page(&mut self, scan: usize, names: &[Name], end: bool) -> Result<(), String> {
        match self.scans.get_mut(scan) {
            Some(Some(scan)) => scan.observe(names, end),
            _ => Err("no such scan is in use".to_owned()),
        }
    }

    /// Returns operations that read the whole tree.
    #[must_use]
    pub fn inspection(&self) -> Vec<Op> {
        let mut ops = vec![Op::StatFs];
        for (path, id) in self.tree.walk() {
            ops.push(Op::GetAttr { node: Subject::Path(path.clone()) });
            match &self.tree.node(id).body {
                tree::Body::Directory => {
                    ops.push(Op::List { dir: path.clone() });
                    ops.push(Op::Parent { dir: path.clone() });
                }
                tree::Body::Symlink(_) => ops.push(Op::ReadLink { path: path.clone() }),
                tree::Body::Regular(bytes) => {
                    ops.extend(bytes.interesting().into_iter().map(|(offset, length)| {
                        let size = u32::try_from(length).unwrap_or(u32::MAX);
                        Op::Peek { path: path.clone(), offset, size }
                    }));
                }
                tree::Body::Special(_) => {}
            }
            ops.push(Op::ListXattr { path: path.clone() });
            let names = self.tree.node(id).xattrs.keys();
            ops.extend(names.map(|name| Op::GetXattr { path: path.clone(), name: name.clone() }));
        }
        let slots = 0..SLOTS;
        ops.extend(slots.map(|slot| Op::GetAttr { node: Subject::Slot(slot) }));
        ops
    }

    /// Returns the paths that exist, with their file types.
    #[must_use]
    pub fn paths(&self) -> Vec<(Path, FileKind)> {
        let kind = |id| self.tree.node(id).kind();
        self.tree.walk().into_iter().map(|(path, id)| (path, kind(id))).collect()
    }

    /// Returns the slots in use, with the size of each file.
    #[must_use]
    pub fn open_slots(&self) -> Vec<(usize, u64)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(slot, open)| Some((slot, self.tree.size(open.as_ref()?.id)))).collect()
    }

    fn query(&mut self, op: &Op) -> Result<Expected, Refusal> {
        let tree = &self.tree;
        Ok(match op {
            Op::GetAttr { node } => Expected::Attr(NodeRef(self.subject(node)?)),
            Op::ReadLink { path } => match &tree.node(tree.find(path)?).body {
                tree::Body::Symlink(target) => Expected::Bytes(target.clone()),
                _ => return Err(Refusal::fails(Code::Invalid)),
            },
            Op::Peek { path, offset, size } => {
                let id = tree.find(path)?;
                let bytes = tree.bytes(id).ok_or_else(|| self.not_regular(id))?;
                Expected::Bytes(bytes.read(*offset, u64::from(*size)))
            }
            Op::Parent { dir } => Expected::Attr(NodeRef(tree.parent(tree.find_dir(dir)?))),
            Op::List { dir } => {
                let children = tree.children(tree.find_dir(dir)?);
                let kinds = children.map(|(name, id)| (name.clone(), tree.node(id).kind()));
                Expected::Names(kinds.collect())
            }
            Op::FsyncDir { dir } => {
                tree.find_dir(dir)?;
                Expected::Done
            }
            Op::ScanStart { scan, dir } => {
                let id = tree.find_dir(dir)?;
                let names = tree.children(id).map(|(name, _)| name.clone());
                let new = Scan::new(id, names);
                *self.scans.get_mut(*scan).ok_or(Refusal::Skip)? = Some(new);
                Expected::Done
            }
            Op::ScanNext { scan, .. } => {
                let known = self.scans.get(*scan).and_then(Option::as_ref).ok_or(Refusal::Skip)?;
                if known.is_at_end() || !tree.exists(known.dir) {
                    return Err(Refusal::Skip);
                }
                Expected::Page(*scan)
            }
            Op::StatFs => Expected::Done,
            _ => return Err(Refusal::Skip),
        })
    }

    fn observe_ino(&mut self, id: NodeId, ino: u64) -> Result<(), String> {
        if let Some(known) = self.tree.node(id).ino {
            return expect_same("inode number", known, ino);
        }
        if let Some(other) = self.tree.ino_owner(ino) {
            return Err(format!("{other:?} has inode number {ino} too"));
        }
        self.tree.node_mut(id).ino = Some(ino);
        Ok(())
    }

    fn subject(&self, subject: &Subject) -> Result<NodeId, Refusal> {
        match subject {
            Subject::Path(path) => self.tree.find(path),
            Subject::Slot(slot) => Ok(self.open(*slot)?.id),
        }
    }

    fn open(&self, slot: usize) -> Result<OpenFile, Refusal> {
        self.slots.get(slot).copied().flatten().ok_or(Refusal::Skip)
    }

    /// Returns the refusal to open `id` as a file: a directory fails, other types are skipped.
    fn not_regular(&self, id: NodeId) -> Refusal {
        if self.tree.is_dir(id) { Refusal::fails(Code::IsDirectory) } else { Refusal::Skip }
    }
}

fn expect_same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    expected: T,
    found: T,
) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    Err(format!("{what}: expected {expected:?}, found {found:?}"))
}
