//! What a new file, directory or link is to be.

use pelago_wire::{Code, Error, FileKind, NewMode, limits};

/// What to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInode {
    /// The kind.
    pub kind: FileKind,
    /// The mode, before a default access control list of the directory.
    pub mode: NewMode,
    /// The device number; 0 for all but devices.
    pub rdev: u32,
    /// The target of a symbolic link, empty for others.
    pub target: Vec<u8>,
}

impl NewInode {
    /// Returns an ordinary file.
    #[must_use]
    pub fn file(mode: NewMode) -> Self {
        Self { kind: FileKind::Regular, mode, rdev: 0, target: Vec::new() }
    }

    /// Returns a directory.
    #[must_use]
    pub fn directory(mode: NewMode) -> Self {
        Self { kind: FileKind::Directory, mode, rdev: 0, target: Vec::new() }
    }

    /// Returns a symbolic link.
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
