//! The reference model: a plain POSIX tree in memory that says what each operation must answer.
//!
//! It keeps the inputs (names, bytes, attributes that were set) and derives the rest. Identities
//! and permission are not part of it: programs run as one user who may everything. Where several
//! errors apply at once, any of them is right.

use std::collections::{BTreeMap, BTreeSet};

use pelago_wire::{Code, FileKind, Name, SeekFrom};

use crate::op::{Op, Path, SCANS, SLOTS, Subject};
use crate::target::{FsTraits, Seen};

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

/// What an operation must answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// It makes no sense now and is not asked.
    Skip,
    /// One of these errors.
    Fails(Vec<Code>),
    /// It goes well.
    Done,
    /// It goes well and shows the attributes of this node.
    Attr(Node),
    /// So many bytes are written; the size of the file then.
    Written {
        /// Bytes taken.
        bytes: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// These bytes.
    Bytes(Vec<u8>),
    /// These names.
    Names(BTreeMap<Name, FileKind>),
    /// Names that this listing under way may show now.
    Page(usize),
    /// The next data or hole in this node, as [`Model::see_offset`] knows it.
    Found(Node, SeekFrom),
    /// These names of extended attributes.
    XattrNames(BTreeSet<Vec<u8>>),
}

/// A file or directory of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node(NodeId);

/// A POSIX file system in memory.
#[derive(Debug, Clone)]
pub struct Model {
    tree: Tree,
    slots: [Option<Open>; SLOTS],
    scans: [Option<Scan>; SCANS],
    traits: FsTraits,
}

/// Why an operation is over before it has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    Skip,
    Fails(Vec<Code>),
}

impl Stop {
    pub(crate) fn fails(code: Code) -> Self {
        Self::Fails(vec![code])
    }
}

#[derive(Debug, Clone, Copy)]
struct Open {
    id: NodeId,
    read: bool,
    write: bool,
    append: bool,
    /// Bytes were written through it and not committed by a flush since.
    dirty: bool,
}

impl Model {
    /// An empty directory on a file system with these traits.
    #[must_use]
    pub fn new(traits: FsTraits) -> Self {
        Self { tree: Tree::new(), slots: [None; SLOTS], scans: [const { None }; SCANS], traits }
    }

    /// Carries out an operation and says what it must answer.
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
            _ => self.look(op),
        };
        match result {
            Ok(expected) => expected,
            Err(Stop::Skip) => Expected::Skip,
            Err(Stop::Fails(codes)) => Expected::Fails(codes),
        }
    }

    /// Compares attributes that the file system showed with those of a node, and remembers number
    /// and times.
    ///
    /// # Errors
    /// What differs.
    pub fn see(&mut self, node: Node, seen: &Seen) -> Result<(), String> {
        let id = node.0;
        let known = self.tree.node(id);
        let is_dir = self.tree.is_dir(id);
        expect_same("kind", known.kind(), seen.kind)?;
        if known.kind() != FileKind::Symlink {
            expect_same("mode", format!("{:o}", known.mode), format!("{:o}", seen.mode))?;
        }
        if !is_dir || self.traits.counts_dirs {
            expect_same("links", self.tree.links(id), seen.links)?;
        }
        if !is_dir || self.traits.counts_names {
            expect_same("size", self.tree.size(id), seen.size)?;
        }
        self.see_ino(id, seen.ino)?;
        let strict = self.traits.strict_times;
        let known = self.tree.node_mut(id);
        let was = known.mtime.see(seen.mtime, strict);
        was.map_err(|was| format!("mtime: expected {was:?}, found {:?}", seen.mtime))?;
        let was = known.ctime.see(seen.ctime, strict);
        was.map_err(|was| format!("ctime: expected {was:?}, found {:?}", seen.ctime))
    }

    /// Compares names that a listing under way showed.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn see_page(&mut self, scan: usize, names: &[Name], end: bool) -> Result<(), String> {
        match self.scans.get_mut(scan) {
            Some(Some(scan)) => scan.see(names, end),
            _ => Err("no such listing is under way".to_owned()),
        }
    }

    /// Operations that show the whole tree: apply and compare each.
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

    /// Paths that exist, with their kinds, for a generator to choose from.
    #[must_use]
    pub fn paths(&self) -> Vec<(Path, FileKind)> {
        let kind = |id| self.tree.node(id).kind();
        self.tree.walk().into_iter().map(|(path, id)| (path, kind(id))).collect()
    }

    /// The slots that hold an open file, and the size of each file.
    #[must_use]
    pub fn open_slots(&self) -> Vec<(usize, u64)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(slot, open)| Some((slot, self.tree.size(open.as_ref()?.id)))).collect()
    }

    fn look(&mut self, op: &Op) -> Result<Expected, Stop> {
        let tree = &self.tree;
        Ok(match op {
            Op::GetAttr { node } => Expected::Attr(Node(self.subject(node)?)),
            Op::ReadLink { path } => match &tree.node(tree.find(path)?).body {
                tree::Body::Symlink(target) => Expected::Bytes(target.clone()),
                _ => return Err(Stop::fails(Code::Invalid)),
            },
            Op::Peek { path, offset, size } => {
                let id = tree.find(path)?;
                let bytes = tree.bytes(id).ok_or_else(|| self.not_regular(id))?;
                Expected::Bytes(bytes.read(*offset, u64::from(*size)))
            }
            Op::Parent { dir } => Expected::Attr(Node(tree.parent(tree.find_dir(dir)?))),
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
                *self.scans.get_mut(*scan).ok_or(Stop::Skip)? = Some(new);
                Expected::Done
            }
            Op::ScanNext { scan, .. } => {
                let known = self.scans.get(*scan).and_then(Option::as_ref).ok_or(Stop::Skip)?;
                if known.is_at_end() || !tree.exists(known.dir) {
                    return Err(Stop::Skip);
                }
                Expected::Page(*scan)
            }
            Op::StatFs => Expected::Done,
            _ => return Err(Stop::Skip),
        })
    }

    fn see_ino(&mut self, id: NodeId, ino: u64) -> Result<(), String> {
        if let Some(known) = self.tree.node(id).ino {
            return expect_same("inode number", known, ino);
        }
        if let Some(other) = self.tree.ino_owner(ino) {
            return Err(format!("inode number {ino} is that of {other:?} too"));
        }
        self.tree.node_mut(id).ino = Some(ino);
        Ok(())
    }

    fn subject(&self, subject: &Subject) -> Result<NodeId, Stop> {
        match subject {
            Subject::Path(path) => self.tree.find(path),
            Subject::Slot(slot) => Ok(self.open(*slot)?.id),
        }
    }

    fn open(&self, slot: usize) -> Result<Open, Stop> {
        self.slots.get(slot).copied().flatten().ok_or(Stop::Skip)
    }

    /// Why `id` cannot be opened: a directory answers so, the rest is not asked.
    fn not_regular(&self, id: NodeId) -> Stop {
        if self.tree.is_dir(id) { Stop::fails(Code::IsDirectory) } else { Stop::Skip }
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
