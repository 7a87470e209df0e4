//! Performs the operations of a run by system calls.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use pelago_random::bytes_of;
use pelago_wire::Time;
use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::{self, Errno};

use crate::witness::action::{Action, Change, NodeId};
use crate::witness::state::{StatResult, ThreadState};
use crate::witness::verify::xattr_value;

/// Performs the operations of one thread. Paths are relative to `root`.
#[derive(Debug)]
pub(super) struct Performer {
    root: OwnedFd,
    open: BTreeMap<NodeId, OwnedFd>,
}

impl Performer {
    pub(super) const fn new(root: OwnedFd) -> Self {
        Self { root, open: BTreeMap::new() }
    }

    /// Performs `action`; `state` is that before it.
    pub(super) fn perform(
        &mut self,
        action: &Action,
        state: &ThreadState,
    ) -> Result<Option<StatResult>, Errno> {
        let root = &self.root;
        match action {
            Action::MakeDir { path } => fs::mkdirat(root, path, Mode::from_raw_mode(0o755))?,
            Action::Create { node, path } => {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let file = fs::openat(root, path, flags, Mode::from_raw_mode(0o644))?;
                self.open.insert(*node, file);
            }
            Action::Open { path } => {
                let file = fs::openat(root, path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
                self.open.insert(state.id(path).ok_or(Errno::INVAL)?, file);
            }
            Action::Change { node, change } => change_bytes(self.file(*node)?, change)?,
            Action::Fsync { node } => fs::fsync(self.file(*node)?)?,
            Action::Close { node } => {
                let file = self.open.remove(node).ok_or(Errno::INVAL)?;
                close(file, root)?;
            }
            Action::Truncate { path, size } => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                let file = fs::openat(root, path, flags, Mode::empty())?;
                fs::ftruncate(&file, *size)?;
                close(file, root)?;
            }
            Action::Rename { from, to } => fs::renameat(root, from, root, to)?,
            Action::Exchange { from, to } => {
                fs::renameat_with(root, from, root, to, RenameFlags::EXCHANGE)?;
            }
            Action::Link { from, to } => fs::linkat(root, from, root, to, AtFlags::empty())?,
            Action::Symlink { path, target } => fs::symlinkat(target, root, path)?,
            Action::Unlink { path } => fs::unlinkat(root, path, AtFlags::empty())?,
            Action::RemoveDir { path } => fs::unlinkat(root, path, AtFlags::REMOVEDIR)?,
            _ => return self.attributes(action),
        }
        Ok(None)
    }

    fn attributes(&self, action: &Action) -> Result<Option<StatResult>, Errno> {
        let root = &self.root;
        match action {
            Action::ChangeMode { path, mode } => {
                let mode = Mode::from_raw_mode(u32::from(*mode));
                fs::chmodat(root, path, mode, AtFlags::empty())?;
            }
            Action::SetTime { path, mtime } => {
                let times = Timestamps {
                    last_access: Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
                    last_modification: Timespec {
                        tv_sec: mtime.seconds,
                        tv_nsec: mtime.nanos.into(),
                    },
                };
                fs::utimensat(root, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Action::SetXattr { path, name, seed } => {
                let file = fs::openat(root, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
                fs::fsetxattr(&file, name, &xattr_value(*seed), XattrFlags::empty())?;
            }
            Action::Stat { path } => {
                let stat = fs::statat(root, path, AtFlags::SYMLINK_NOFOLLOW)?;
                let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(u32::MAX);
                let mtime = Time { seconds: stat.st_mtime, nanos };
                return Ok(Some(StatResult { size: stat.st_size as u64, mtime }));
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(None)
    }

    fn file(&self, node: NodeId) -> Result<&OwnedFd, Errno> {
        self.open.get(&node).ok_or(Errno::INVAL)
    }
}

/// Closes a file, and checks that the file system is alive: the kernel ignores the error of a close
/// that a dead process cannot answer. `statfs` is never answered from the kernel's caches.
fn close(file: OwnedFd, root: &OwnedFd) -> Result<(), Errno> {
    drop(file);
    fs::fstatvfs(root).map(drop)
}

fn change_bytes(file: &OwnedFd, change: &Change) -> Result<(), Errno> {
    match *change {
        Change::Resize(size) => fs::ftruncate(file, size),
        Change::Write { offset, length, seed } => {
            let bytes = bytes_of(seed, length);
            let mut done = 0;
            while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
                match io::pwrite(file, rest, offset + done as u64)? {
                    0 => return Err(Errno::NOSPC),
                    more => done += more,
                }
            }
            Ok(())
        }
    }
}
