//! The parts of the description of a request: its effect and its subjects.

use crate::id::{Handle, InodeId, OpenId};

/// The kind of change that a request makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Changes nothing.
    None,
    /// Changes no name, attribute or byte, and must not be done twice: it opens a file, or reports
    /// an error once.
    Once,
    /// Commits what earlier requests changed. A read-only volume accepts it, because files are
    /// closed there too.
    Commit,
    /// Changes names, attributes or bytes. A read-only volume refuses it.
    Change {
        /// The reply is stored with the change, and a repeated request gets the stored reply.
        replayed: bool,
        /// New rows or a new file take space, so a full volume refuses the request.
        grows: bool,
    },
}

impl Effect {
    /// Returns whether the request changes rows, with or without a new open file. A write of bytes
    /// may need more space than is free, and its refusal says nothing about rows.
    #[must_use]
    pub const fn writes_rows(self) -> bool {
        matches!(self, Self::Change { replayed, grows } if replayed || grows)
    }
}

/// The files that a request names: at most two inodes and two open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subjects {
    inodes: [Option<InodeId>; 2],
    opens: [Option<OpenId>; 2],
    is_held: bool,
}

impl Subjects {
    pub(crate) const NONE: Self = Self { inodes: [None; 2], opens: [None; 2], is_held: false };

    pub(crate) const fn inode(node: &Handle) -> Self {
        Self { inodes: [Some(node.ino), None], ..Self::NONE }
    }

    /// Returns the subjects of a request that uses one file by its handle, as a kernel does that
    /// has the file in its cache without an open.
    pub(crate) const fn held(node: &Handle) -> Self {
        Self { is_held: true, ..Self::inode(node) }
    }

    pub(crate) const fn inodes(one: &Handle, other: &Handle) -> Self {
        Self { inodes: [Some(one.ino), Some(other.ino)], ..Self::NONE }
    }

    pub(crate) const fn open(open: &OpenId) -> Self {
        Self { opens: [Some(*open), None], ..Self::NONE }
    }

    pub(crate) const fn opens(one: &OpenId, other: &OpenId) -> Self {
        Self { opens: [Some(*one), Some(*other)], ..Self::NONE }
    }

    /// Returns the inodes that the request names.
    pub fn each_inode(&self) -> impl Iterator<Item = InodeId> + use<> {
        self.inodes.into_iter().flatten()
    }

    /// Returns the file that the request uses by its handle, as a kernel does that has the file in
    /// its cache without an open. A file that has lost its last name a moment ago is brought back.
    ///
    /// Attributes of a removed file are answered from memory; a symbolic link is not brought back;
    /// and the kernel itself refuses to link a file without a name. None of these has such a file.
    #[must_use]
    pub const fn held_node(&self) -> Option<InodeId> {
        if self.is_held { self.inodes[0] } else { None }
    }

    /// Returns the open files that the request names.
    pub fn each_open(&self) -> impl Iterator<Item = OpenId> + use<> {
        self.opens.into_iter().flatten()
    }
}
