//! Mount points: directories that are empty and have no mount on them.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::io::Errno;

use super::error::MountError;
use crate::mountinfo::{self, Liveness};

/// An open directory that can be a mount point. It stays open because its path may lead elsewhere
/// by the time of the mount.
pub(super) struct Point {
    /// Path of the directory, absolute and without symbolic links.
    pub(super) path: PathBuf,
    pub(super) directory: OwnedFd,
}

impl Point {
    pub(super) fn named(path: &Path) -> Result<Self, MountError> {
        let resolved = mountinfo::resolve(path).map_err(|error| point_error(path, error))?;
        // Opening a mount that is dead or hangs could block.
        refuse_mounted(&resolved)?;
        // The path may be a symbolic link to the directory.
        let resolved = fs::canonicalize(&resolved).map_err(|error| point_error(path, error))?;
        refuse_mounted(&resolved)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, &resolved, flags, Mode::empty());
        Self::opened(opened.map_err(|error| point_error(path, error.into()))?)
    }

    pub(super) fn opened(directory: OwnedFd) -> Result<Self, MountError> {
        let path = fs::read_link(path_of(&directory)).map_err(MountError::Kernel)?;
        refuse_mounted(&path)?;
        let failed = |error: Errno| point_error(&path, error.into());
        for entry in Dir::read_from(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                return Err(MountError::PointNotEmpty(path));
            }
        }
        Ok(Self { path, directory })
    }
}

/// Returns a path that leads to an open file, wherever it is moved.
pub(super) fn path_of(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn refuse_mounted(point: &Path) -> Result<(), MountError> {
    let Some(mounted) = mountinfo::at(point).map_err(MountError::Kernel)? else { return Ok(()) };
    if mountinfo::probe(point) == Liveness::Dead {
        return Err(MountError::PointDead(point.to_owned()));
    }
    let source_name = mounted.source.to_string_lossy().into_owned();
    Err(MountError::PointBusy { point: point.to_owned(), source_name })
}

fn point_error(point: &Path, error: io::Error) -> MountError {
    match error.kind() {
        io::ErrorKind::NotFound => MountError::PointMissing(point.to_owned()),
        io::ErrorKind::NotADirectory => MountError::PointNotDirectory(point.to_owned()),
        io::ErrorKind::PermissionDenied => MountError::NoPermission(point.to_owned()),
        io::ErrorKind::NotConnected => MountError::PointDead(point.to_owned()),
        _ => MountError::Kernel(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn checked(path: &Path) -> Result<PathBuf, MountError> {
        Point::named(path).map(|point| point.path)
    }

    #[test]
    fn a_point_must_be_an_empty_directory() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("full/x")).unwrap();
        fs::create_dir(path("empty")).unwrap();
        File::create(path("file")).unwrap();
        assert!(matches!(checked(&path("none")), Err(MountError::PointMissing(_))));
        assert!(matches!(checked(&path("none/x")), Err(MountError::PointMissing(_))));
        assert!(matches!(checked(&path("file")), Err(MountError::PointNotDirectory(_))));
        assert!(matches!(checked(&path("file/x")), Err(MountError::PointNotDirectory(_))));
        assert!(matches!(checked(&path("full")), Err(MountError::PointNotEmpty(_))));
        let expected = fs::canonicalize(path("empty")).unwrap();
        assert_eq!(checked(&path("empty")).unwrap(), expected);
        std::os::unix::fs::symlink("empty", path("link")).unwrap();
        assert_eq!(checked(&path("link")).unwrap(), expected);
        assert!(matches!(checked(Path::new("/")), Err(MountError::PointBusy { .. })));
    }
}
