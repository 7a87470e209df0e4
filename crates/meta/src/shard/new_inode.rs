//! The attributes of a new file, directory or link.

use pelago_wire::{Code, Error, FileKind, NewMode, limits};

/// The attributes of a new inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInode {
    /// The kind.
    pub kind: FileKind,
    /// The mode, before the default access control list of the directory is applied.
    pub mode: NewMode,
    /// The device number; 0 for all but devices.
    pub rdev: u32,
    /// The target of a symbolic link, empty for others.
    pub target: Vec<u8>,
}

impl NewInode {
    /// Returns the attributes of a regular file.
    #[must_use]
    pub fn file(mode: NewMode) -> Self {
        Self { kind: FileKind::Regular, mode, rdev: 0, target: Vec::new() }
    }

    /// Returns the attributes of a directory.
    #[must_use]
    pub fn directory(mode: NewMode) -> Self {
        Self { kind: FileKind::Directory, mode, rdev: 0, target: Vec::new() }
    }

    /// Returns the attributes of a symbolic link.
    #[must_use]
    pub fn symlink(target: Vec<u8>) -> Self {
        Self { kind: FileKind::Symlink, mode: NewMode::exactly(0o777), rdev: 0, target }
    }

    /// Checks the target of a symbolic link.
    ///
    /// # Errors
    /// `NameTooLong`; `Invalid` if it is empty or contains a NUL.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.target.len() > limits::TARGET_BYTES {
            return Err(Code::NameTooLong.into());
        }
        if self.kind == FileKind::Symlink && (self.target.is_empty() || self.target.contains(&0)) {
            return Err(Code::Invalid.into());
        }
        Ok(())
    }
}
