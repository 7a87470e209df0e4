//! Runs programs on a directory, by system calls. On a file system that is known to be right they
//! test the model; on a mount of ours they test the path through the kernel.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path as FsPath;

use pelago_random::bytes_of;
use pelago_wire::{FileKind, Name, OpenFlags, RenameFlags, SetTime, Time, XattrFlags};
use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::{self, Errno};

use crate::op::{At, Op, Path, SCANS, SLOTS, Subject};
use crate::target::files::xattr_names;
use crate::target::{FileAttr, FsTraits, Outcome, Target};

mod ranges;
mod unnamed;

/// A directory of this machine, with the open files of one program. Symbolic links in paths are not
/// followed.
pub struct LocalTarget {
    root: OwnedFd,
    traits: FsTraits,
    slots: [Option<OwnedFd>; SLOTS],
    scans: [Option<Dir>; SCANS],
}

impl LocalTarget {
    /// Opens the directory `root`, which must be empty, and detects the traits of its file system.
    ///
    /// # Errors
    /// The error of opening or probing it.
    pub fn new(root: &FsPath) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(root, flags, Mode::empty())?;
        fs::fchmod(&root, Mode::from_raw_mode(0o755))?;
        let stat = fs::fstat(&root)?;
        let probe = fs::fsetxattr(&root, "user.probe", b"", fs::XattrFlags::empty());
        if probe.is_ok() {
            fs::fremovexattr(&root, "user.probe")?;
        }
        let counts_names = stat.st_size == 0 && has_size_of_names(&root)?;
        let traits = FsTraits {
            counts_names,
            counts_dirs: stat.st_nlink == 2,
            strict_times: false,
            xattrs: probe.is_ok(),
            unnamed: unnamed::are_supported(&root)?,
            // A file system that counts names is Pelago, or as strict.
            keeps_times_of_failures: counts_names,
        };
        Ok(Self { root, traits, slots: [const { None }; SLOTS], scans: [const { None }; SCANS] })
    }

    fn apply_to_names(&mut self, op: &Op) -> Result<Outcome, Errno> {
        match op {
            Op::Create { slot, at, mode, flags } => {
                let dir = self.dir(&at.dir)?;
                let how = open_flags(*flags) | OFlags::CREATE | OFlags::EXCL;
                let file = fs::openat(&dir, at.name.as_bytes(), how, bits(*mode))?;
                self.set_slot(*slot, file);
                self.set_mode(&dir, &at.name, *mode)
            }
            Op::MakeDir { at, mode } => {
                let dir = self.dir(&at.dir)?;
                fs::mkdirat(&dir, at.name.as_bytes(), bits(*mode))?;
                self.set_mode(&dir, &at.name, *mode)
            }
            Op::MakeNode { at, kind, mode } => {
                let dir = self.dir(&at.dir)?;
                fs::mknodat(&dir, at.name.as_bytes(), file_type(*kind), bits(*mode), 0)?;
                self.set_mode(&dir, &at.name, *mode)
            }
            Op::Symlink { at, target } => {
                let dir = self.dir(&at.dir)?;
                fs::symlinkat(target.as_slice(), &dir, at.name.as_bytes())?;
                show(&dir, &at.name)
            }
            Op::Link { from, at } => {
                let old = from.split().ok_or(Errno::PERM)?;
                let from = self.dir(&old.dir)?;
                let dir = self.dir(&at.dir)?;
                let old = old.name.as_bytes();
                let new = at.name.as_bytes();
                fs::linkat(&from, old, &dir, new, AtFlags::empty())?;
                show(&dir, &at.name)
            }
            Op::Unlink { at } => {
                fs::unlinkat(self.dir(&at.dir)?, at.name.as_bytes(), AtFlags::empty())?;
                Ok(Outcome::Done)
            }
            Op::RemoveDir { at } => {
                fs::unlinkat(self.dir(&at.dir)?, at.name.as_bytes(), AtFlags::REMOVEDIR)?;
                Ok(Outcome::Done)
            }
            Op::Rename { from, to, flags } => {
                let old = self.dir(&from.dir)?;
                let new = self.dir(&to.dir)?;
                let from = from.name.as_bytes();
                let to = to.name.as_bytes();
                fs::renameat_with(&old, from, &new, to, rename_flags(*flags))?;
                Ok(Outcome::Done)
            }
            Op::CreateUnnamed { .. } | Op::LinkOpen { .. } => self.apply_to_unnamed(op),
            _ => self.apply_to_open(op),
        }
    }

    fn apply_to_open(&mut self, op: &Op) -> Result<Outcome, Errno> {
        match op {
            Op::Open { slot, path, flags } => {
                let file = self.open_file(path, open_flags(*flags))?;
                let stat = fs::fstat(&file)?;
                self.set_slot(*slot, file);
                Ok(Outcome::Attr(file_attr(&stat)))
            }
            Op::Flush { slot } => {
                drop(io::dup(self.file(*slot)?)?);
                Ok(Outcome::Done)
            }
            Op::Close { slot } => {
                self.file(*slot)?;
                if let Some(slot) = self.slots.get_mut(*slot) {
                    *slot = None;
                }
                Ok(Outcome::Done)
            }
            Op::Write { slot, patch } => {
                let file = self.file(*slot)?;
                let bytes = bytes_of(patch.seed, patch.length);
                let mut done = 0;
                while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
                    done += io::pwrite(file, rest, patch.offset + done as u64)?;
                }
                let size = file_attr(&fs::fstat(file)?).size;
                Ok(Outcome::Written { bytes: done as u64, size })
            }
            Op::Read { slot, offset, size } => read(self.file(*slot)?, *offset, *size),
            Op::Fsync { slot, data_only: false } => {
                fs::fsync(self.file(*slot)?)?;
                Ok(Outcome::Done)
            }
            Op::Fsync { slot, data_only: true } => {
                fs::fdatasync(self.file(*slot)?)?;
                Ok(Outcome::Done)
            }
            Op::FsyncDir { dir } => {
                fs::fsync(self.readable_dir(dir)?)?;
                Ok(Outcome::Done)
            }
            Op::Allocate { .. } | Op::Seek { .. } | Op::Copy { .. } => self.apply_to_ranges(op),
            _ => self.apply_to_attributes(op),
        }
    }

    fn apply_to_attributes(&mut self, op: &Op) -> Result<Outcome, Errno> {
        match op {
            Op::Truncate { node: Subject::Path(path), size } => {
                let file = self.open_file(path, OFlags::WRONLY)?;
                fs::ftruncate(&file, *size)?;
                Ok(Outcome::Attr(file_attr(&fs::fstat(&file)?)))
            }
            Op::Truncate { node: Subject::Slot(slot), size } => {
                fs::ftruncate(self.file(*slot)?, *size)?;
                self.show_slot(*slot)
            }
            Op::ChangeMode { node: Subject::Path(path), mode } => {
                let (dir, name) = self.dir_and_name(path)?;
                fs::chmodat(&dir, name.as_c_str(), bits(*mode), AtFlags::empty())?;
                self.show_path(path)
            }
            Op::ChangeMode { node: Subject::Slot(slot), mode } => {
                fs::fchmod(self.file(*slot)?, bits(*mode))?;
                self.show_slot(*slot)
            }
            Op::SetTimes { node: Subject::Path(path), atime, mtime } => {
                let (dir, name) = self.dir_and_name(path)?;
                let times = timestamps(*atime, *mtime);
                fs::utimensat(&dir, name.as_c_str(), &times, AtFlags::SYMLINK_NOFOLLOW)?;
                self.show_path(path)
            }
            Op::SetTimes { node: Subject::Slot(slot), atime, mtime } => {
                fs::futimens(self.file(*slot)?, &timestamps(*atime, *mtime))?;
                self.show_slot(*slot)
            }
            Op::GetAttr { node: Subject::Path(path) } => self.show_path(path),
            Op::GetAttr { node: Subject::Slot(slot) } => self.show_slot(*slot),
            Op::SetXattr { path, name, value, flags } => {
                let node = self.readable(path)?;
                fs::fsetxattr(&node, name.as_slice(), value, xattr_flags(*flags))?;
                Ok(Outcome::Done)
            }
            Op::RemoveXattr { path, name } => {
                fs::fremovexattr(self.readable(path)?, name.as_slice())?;
                Ok(Outcome::Done)
            }
            _ => self.query(op),
        }
    }

    fn query(&mut self, op: &Op) -> Result<Outcome, Errno> {
        match op {
            Op::ReadLink { path } => {
                let at = path.split().ok_or(Errno::INVAL)?;
                let dir = self.dir(&at.dir)?;
                let target = fs::readlinkat(&dir, at.name.as_bytes(), Vec::new())?;
                Ok(Outcome::Bytes(target.into_bytes()))
            }
            Op::Peek { path, offset, size } => {
                let file = self.open_file(path, OFlags::RDONLY)?;
                read(file.as_fd(), *offset, *size)
            }
            Op::Parent { dir } => {
                let at = self.dir(dir)?;
                let above = if dir.0.is_empty() { "." } else { ".." };
                let stat = fs::statat(&at, above, AtFlags::SYMLINK_NOFOLLOW)?;
                Ok(Outcome::Attr(file_attr(&stat)))
            }
            Op::List { dir } => {
                let mut listing = Dir::new(self.readable_dir(dir)?)?;
                let (entries, _) = page(&mut listing, usize::MAX)?;
                let mut names = BTreeMap::new();
                for (name, kind) in entries {
                    if names.insert(name.clone(), kind).is_some() {
                        return Ok(Outcome::Broken(format!("{name:?} is listed twice")));
                    }
                }
                Ok(Outcome::Names(names))
            }
            Op::ScanStart { scan, dir } => {
                let listing = Dir::new(self.readable_dir(dir)?)?;
                if let Some(scan) = self.scans.get_mut(*scan) {
                    *scan = Some(listing);
                }
                Ok(Outcome::Done)
            }
            Op::ScanNext { scan, entries } => {
                let Some(Some(listing)) = self.scans.get_mut(*scan) else {
                    return Err(Errno::BADF);
                };
                let (entries, end) = page(listing, *entries as usize)?;
                let names = entries.into_iter().map(|(name, _)| name).collect();
                Ok(Outcome::Page { names, end })
            }
            Op::GetXattr { path, name } => {
                let node = self.readable(path)?;
                xattr_bytes(|buffer| fs::fgetxattr(&node, name.as_slice(), buffer))
                    .map(Outcome::Bytes)
            }
            Op::ListXattr { path } => {
                let node = self.readable(path)?;
                let list = xattr_bytes(|buffer| fs::flistxattr(&node, buffer))?;
                Ok(xattr_names(&list))
            }
            Op::StatFs => {
                let stats = fs::fstatvfs(&self.root)?;
                let sane = stats.f_bfree <= stats.f_blocks && stats.f_frsize > 0;
                Ok(if sane {
                    Outcome::Done
                } else {
                    Outcome::Broken("more is free than there is".to_owned())
                })
            }
            _ => Err(Errno::NOSYS),
        }
    }

    /// Sets the requested mode, which the umask may have reduced, and returns the attributes.
    fn set_mode(&self, dir: &OwnedFd, name: &Name, mode: u16) -> Result<Outcome, Errno> {
        fs::chmodat(dir, name.as_bytes(), bits(mode), AtFlags::empty())?;
        show(dir, name)
    }

    fn show_path(&self, path: &Path) -> Result<Outcome, Errno> {
        let (dir, name) = self.dir_and_name(path)?;
        let stat = fs::statat(&dir, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Outcome::Attr(file_attr(&stat)))
    }

    fn show_slot(&self, slot: usize) -> Result<Outcome, Errno> {
        Ok(Outcome::Attr(file_attr(&fs::fstat(self.file(slot)?)?)))
    }

    fn set_slot(&mut self, slot: usize, file: OwnedFd) {
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = Some(file);
        }
    }

    fn file(&self, slot: usize) -> Result<BorrowedFd<'_>, Errno> {
        let file = self.slots.get(slot).and_then(Option::as_ref);
        file.map(AsFd::as_fd).ok_or(Errno::BADF)
    }

    /// Opens a regular file; fails with `EISDIR` for a directory, also if it is opened for reading.
    fn open_file(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let (dir, name) = self.dir_and_name(path)?;
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = fs::openat(&dir, name.as_c_str(), flags, Mode::empty())?;
        let kind = FileType::from_raw_mode(fs::fstat(&file)?.st_mode);
        if kind == FileType::Directory { Err(Errno::ISDIR) } else { Ok(file) }
    }

    fn readable(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let (dir, name) = self.dir_and_name(path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        fs::openat(&dir, name.as_c_str(), flags, Mode::empty())
    }

    fn readable_dir(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::openat(self.dir(path)?, ".", flags, Mode::empty())
    }

    fn dir_and_name(&self, path: &Path) -> Result<(OwnedFd, CString), Errno> {
        let (dir, name) = match path.split() {
            Some(At { dir, name }) => (self.dir(&dir)?, name.as_bytes().to_vec()),
            None => (self.dir(path)?, b".".to_vec()),
        };
        Ok((dir, CString::new(name).map_err(|_| Errno::INVAL)?))
    }

    fn dir(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = io::dup(&self.root)?;
        for name in &path.0 {
            at = fs::openat(&at, name.as_bytes(), flags, Mode::empty())?;
        }
        Ok(at)
    }
}

impl Target for LocalTarget {
    fn traits(&self) -> FsTraits {
        self.traits
    }

    fn apply(&mut self, op: &Op) -> Outcome {
        self.apply_to_names(op).unwrap_or_else(|errno| Outcome::Failed(errno.raw_os_error()))
    }
}

impl fmt::Debug for LocalTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTarget").field("root", &self.root).finish_non_exhaustive()
    }
}

fn has_size_of_names(root: &OwnedFd) -> Result<bool, Errno> {
    fs::mkdirat(root, "probe", Mode::RWXU)?;
    let size = fs::fstat(root)?.st_size;
    fs::unlinkat(root, "probe", AtFlags::REMOVEDIR)?;
    Ok(size == 1)
}

fn show(dir: &OwnedFd, name: &Name) -> Result<Outcome, Errno> {
    let stat = fs::statat(dir, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(Outcome::Attr(file_attr(&stat)))
}

fn read(file: BorrowedFd<'_>, offset: u64, size: u32) -> Result<Outcome, Errno> {
    let mut bytes = vec![0; size as usize];
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match io::pread(file, rest, offset + done as u64)? {
            0 => break,
            more => done += more,
        }
    }
    bytes.truncate(done);
    Ok(Outcome::Bytes(bytes))
}

/// Returns the next names without `.` and `..`, and whether they were the last.
fn page(listing: &mut Dir, entries: usize) -> Result<(Vec<(Name, FileKind)>, bool), Errno> {
    let mut found = Vec::new();
    while found.len() < entries {
        let Some(entry) = listing.read() else { return Ok((found, true)) };
        let entry = entry?;
        // Only `.` and `..` are not valid names.
        if let Ok(name) = Name::new(entry.file_name().to_bytes()) {
            found.push((name, kind_of(entry.file_type())));
        }
    }
    Ok((found, false))
}

fn xattr_bytes(ask: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; pelago_wire::limits::XATTR_VALUE_BYTES];
    let length = ask(&mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

fn bits(mode: u16) -> Mode {
    Mode::from_raw_mode(u32::from(mode))
}

fn open_flags(flags: OpenFlags) -> OFlags {
    let mut how = match (flags.read, flags.write) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    };
    how.set(OFlags::APPEND, flags.append);
    how.set(OFlags::TRUNC, flags.truncate);
    how.set(OFlags::SYNC, flags.sync);
    how | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

const fn rename_flags(flags: RenameFlags) -> fs::RenameFlags {
    match flags {
        RenameFlags::Replace => fs::RenameFlags::empty(),
        RenameFlags::NoReplace => fs::RenameFlags::NOREPLACE,
        RenameFlags::Exchange => fs::RenameFlags::EXCHANGE,
        RenameFlags::Whiteout { replace: true } => fs::RenameFlags::WHITEOUT,
        RenameFlags::Whiteout { replace: false } => {
            fs::RenameFlags::WHITEOUT.union(fs::RenameFlags::NOREPLACE)
        }
    }
}

const fn xattr_flags(flags: XattrFlags) -> fs::XattrFlags {
    match flags {
        XattrFlags::Any => fs::XattrFlags::empty(),
        XattrFlags::Create => fs::XattrFlags::CREATE,
        XattrFlags::Replace => fs::XattrFlags::REPLACE,
    }
}

fn timestamps(atime: Option<SetTime>, mtime: Option<SetTime>) -> Timestamps {
    let spec = |time| match time {
        None => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
        Some(SetTime::To(Time { seconds, nanos })) => {
            Timespec { tv_sec: seconds, tv_nsec: nanos.into() }
        }
    };
    Timestamps { last_access: spec(atime), last_modification: spec(mtime) }
}

const fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

const fn kind_of(file_type: FileType) -> FileKind {
    match file_type {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::RegularFile | FileType::Unknown => FileKind::Regular,
    }
}

fn file_attr(stat: &Stat) -> FileAttr {
    FileAttr {
        ino: stat.st_ino,
        kind: kind_of(FileType::from_raw_mode(stat.st_mode)),
        mode: (stat.st_mode & 0o1777) as u16,
        links: stat.st_nlink as _,
        size: stat.st_size as u64,
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
    }
}

/// Returns a time. The type of `nanos` depends on the backend of rustix.
fn time(seconds: i64, nanos: impl TryInto<u32>) -> Time {
    let nanos = nanos.try_into().ok();
    Time { seconds, nanos: nanos.expect("the kernel returns less than 10⁹ nanoseconds") }
}
