//! Reads the whole contents of a directory.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use pelago_wire::Time;
use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::{self, Errno};

use crate::witness::WitnessError;

/// The attributes of one name.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) kind: FileType,
    pub(super) mode: u16,
    pub(super) links: u64,
    pub(super) size: u64,
    pub(super) mtime: Time,
    pub(super) ino: u64,
    pub(super) target: String,
}

/// Returns everything below `root`, by path.
pub(super) fn take(root: &OwnedFd) -> Result<BTreeMap<String, Entry>, WitnessError> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        let names = list(root, &dir).map_err(|source| dir_error(&dir, source))?;
        for name in names {
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let entry = stat(root, &path).map_err(|source| dir_error(&path, source))?;
            if entry.kind == FileType::Directory {
                dirs.push(path.clone());
            }
            all.insert(path, entry);
        }
    }
    Ok(all)
}

/// Returns all bytes of a file.
pub(super) fn read(root: &OwnedFd, path: &str) -> Result<Vec<u8>, WitnessError> {
    let read = || {
        let file = fs::openat(root, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut bytes = Vec::new();
        let mut chunk = vec![0; 1 << 20];
        loop {
            match io::read(&file, &mut chunk)? {
                0 => return Ok(bytes),
                more => bytes.extend_from_slice(chunk.get(..more).unwrap_or_default()),
            }
        }
    };
    read().map_err(|source| dir_error(path, source))
}

/// Returns an extended attribute; `None` if it does not exist.
pub(super) fn xattr(root: &OwnedFd, path: &str, name: &str) -> Option<Vec<u8>> {
    let file = fs::openat(root, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut value = vec![0; 4096];
    let length = fs::fgetxattr(file.as_fd(), name, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

fn list(root: &OwnedFd, dir: &str) -> Result<Vec<String>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let at = if dir.is_empty() { "." } else { dir };
    let mut names = Vec::new();
    for entry in Dir::new(fs::openat(root, at, flags, Mode::empty())?)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

fn stat(root: &OwnedFd, path: &str) -> Result<Entry, Errno> {
    let stat = fs::statat(root, path, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let target = match kind {
        FileType::Symlink => fs::readlinkat(root, path, Vec::new())?.to_string_lossy().into_owned(),
        _ => String::new(),
    };
    Ok(Entry {
        kind,
        mode: (stat.st_mode & 0o7777) as u16,
        links: stat.st_nlink as _,
        size: stat.st_size as u64,
        mtime: Time {
            seconds: stat.st_mtime,
            nanos: u32::try_from(stat.st_mtime_nsec).unwrap_or(u32::MAX),
        },
        ino: stat.st_ino,
        target,
    })
}

fn dir_error(path: &str, source: Errno) -> WitnessError {
    WitnessError::Dir { path: path.to_owned(), source }
}
