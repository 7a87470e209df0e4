//! Runs programs on [`Files`]. Paths are looked up name by name, as the kernel does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use pelago_client::{self as client, ByteRange, FilePos, Files, NewNode, Xattr, errno};
use pelago_random::bytes_of;
use pelago_wire::{
    Attr, Code, Context, Cookie, Entry, Error, FileKind, Handle, Name, NewMode, OpenFlags, OpenId,
    SetAttr, WriteFlags,
};

use crate::op::{At, Op, Path, SCANS, SLOTS, Subject};
use crate::target::{FileAttr, FsTraits, Outcome, Target};

/// A file system that is reached through [`Files`], with the open files of one program.
pub struct FilesTarget {
    files: Files,
    context: Context,
    traits: FsTraits,
    slots: [Option<Slot>; SLOTS],
    scans: [Option<(Handle, Cookie)>; SCANS],
}

/// An open file.
#[derive(Debug, Clone, Copy)]
struct Slot {
    node: Handle,
    open: OpenId,
    /// Whether each write goes to the end.
    append: bool,
}

impl FilesTarget {
    /// Returns `files` as a target, with `context` as the caller. With `strict_times` a changed
    /// time must be newer.
    #[must_use]
    pub fn new(files: Files, context: Context, strict_times: bool) -> Self {
        let traits = FsTraits {
            counts_names: true,
            counts_dirs: true,
            strict_times,
            xattrs: true,
            unnamed: true,
            keeps_times_of_failures: true,
        };
        Self { files, context, traits, slots: [None; SLOTS], scans: [None; SCANS] }
    }

    /// Closes all open files, as the kernel does when a program exits.
    pub fn close_all(&mut self) {
        for slot in 0..SLOTS {
            if self.slots.get(slot).is_some_and(Option::is_some) {
                // A program that exits gets no error either.
                let _ignored = self.close(slot);
            }
        }
    }

    fn apply_to_names(&mut self, op: &Op) -> Result<Outcome, Error> {
        let files = self.files.clone();
        let context = self.context;
        Ok(match op {
            Op::Create { slot, at, mode, flags } => {
                let mode = NewMode::exactly(*mode);
                let made = files.create(&context, self.client_at(at)?, mode, *flags).wait()?;
                self.set_slot(*slot, made.entry.handle, made.open, *flags);
                attr_outcome(&made.entry)
            }
            Op::CreateUnnamed { slot, dir, mode, flags } => {
                let dir = self.find_dir(dir)?;
                let mode = NewMode::exactly(*mode);
                let made = files.create_unnamed(&context, dir, mode, *flags).wait()?;
                self.set_slot(*slot, made.entry.handle, made.open, *flags);
                attr_outcome(&made.entry)
            }
            Op::MakeDir { at, mode } => {
                let mode = NewMode::exactly(*mode);
                attr_outcome(&files.make_dir(&context, self.client_at(at)?, mode).wait()?)
            }
            Op::MakeNode { at, kind, mode } => {
                let node = NewNode { kind: *kind, mode: NewMode::exactly(*mode), rdev: 0 };
                attr_outcome(&files.make_node(&context, self.client_at(at)?, node).wait()?)
            }
            Op::Symlink { at, target } => {
                attr_outcome(&files.symlink(&context, self.client_at(at)?, target.clone()).wait()?)
            }
            Op::Link { from, at } => {
                let node = self.find(from)?.handle;
                attr_outcome(&files.link(&context, node, self.client_at(at)?).wait()?)
            }
            Op::LinkOpen { slot, at } => {
                let (node, _) = self.open(*slot)?;
                attr_outcome(&files.link(&context, node, self.client_at(at)?).wait()?)
            }
            Op::Unlink { at } => {
                files.unlink(&context, self.client_at(at)?).wait()?;
                Outcome::Done
            }
            Op::RemoveDir { at } => {
                files.remove_dir(&context, self.client_at(at)?).wait()?;
                Outcome::Done
            }
            Op::Rename { from, to, flags } => {
                let from = self.client_at(from)?;
                let to = self.client_at(to)?;
                files.rename(&context, from, to, *flags).wait()?;
                Outcome::Done
            }
            _ => return self.apply_to_open(op),
        })
    }

    fn apply_to_open(&mut self, op: &Op) -> Result<Outcome, Error> {
        let files = self.files.clone();
        let context = self.context;
        Ok(match op {
            Op::Open { slot, path, flags } => {
                let handle = self.find(path)?.handle;
                let opened = files.open(&context, handle, *flags).wait()?;
                self.set_slot(*slot, handle, opened.open, *flags);
                Outcome::Attr(file_attr(&opened.attr))
            }
            Op::Flush { slot } => {
                files.flush(&context, self.open(*slot)?.1, None).wait()?;
                Outcome::Done
            }
            Op::Close { slot } => {
                self.close(*slot)?;
                Outcome::Done
            }
            Op::Write { slot, patch } => {
                let Slot { open, append, .. } = self.slot(*slot)?;
                let to = FilePos { open, offset: patch.offset };
                let bytes = bytes_of(patch.seed, patch.length);
                let flags = WriteFlags { append, ..WriteFlags::NONE };
                let written = files.write(&context, to, &bytes, flags).wait()?;
                Outcome::Written { bytes: written.bytes, size: written.size }
            }
            Op::Read { slot, offset, size } => {
                let open = self.open(*slot)?.1;
                let bytes = files.read(&context, open, *offset, *size).wait()?;
                Outcome::Bytes(bytes.into_bytes())
            }
            Op::Fsync { slot, data_only } => {
                files.fsync(&context, self.open(*slot)?.1, *data_only).wait()?;
                Outcome::Done
            }
            Op::FsyncDir { dir } => {
                files.fsync_dir(&context, self.find_dir(dir)?, None).wait()?;
                Outcome::Done
            }
            Op::Allocate { .. } | Op::Seek { .. } | Op::Copy { .. } => {
                return self.apply_to_ranges(op);
            }
            _ => return self.apply_to_attributes(op),
        })
    }

    fn apply_to_ranges(&mut self, op: &Op) -> Result<Outcome, Error> {
        let files = self.files.clone();
        let context = self.context;
        Ok(match op {
            Op::Allocate { slot, range, mode } => {
                let range = ByteRange { offset: range.offset, length: range.length };
                files.allocate(&context, self.open(*slot)?.1, range, *mode).wait()?;
                Outcome::Done
            }
            Op::Seek { slot, from } => {
                match files.seek(&context, self.open(*slot)?.1, *from).wait() {
                    Err(error) if error.code == Code::NoData => Outcome::Offset(None),
                    found => Outcome::Offset(Some(found?)),
                }
            }
            Op::Copy { from, range, to, to_offset } => {
                let from = self.open(*from)?.1;
                let to = self.open(*to)?.1;
                let from = FilePos { open: from, offset: range.offset };
                let to = FilePos { open: to, offset: *to_offset };
                let written = files.copy_range(&context, from, to, range.length).wait()?;
                Outcome::Written { bytes: written.bytes, size: written.size }
            }
            _ => return Err(Code::Bug.into()),
        })
    }

    fn apply_to_attributes(&mut self, op: &Op) -> Result<Outcome, Error> {
        let files = self.files.clone();
        let context = self.context;
        Ok(match op {
            Op::Truncate { node, size } => {
                self.set_attr(node, SetAttr { size: Some(*size), ..SetAttr::default() })?
            }
            Op::ChangeMode { node, mode } => {
                self.set_attr(node, SetAttr { mode: Some(*mode), ..SetAttr::default() })?
            }
            Op::SetTimes { node, atime, mtime } => {
                let set = SetAttr { atime: *atime, mtime: *mtime, ..SetAttr::default() };
                self.set_attr(node, set)?
            }
            Op::GetAttr { node } => {
                let (handle, _) = self.subject(node)?;
                Outcome::Attr(file_attr(&files.get_attr(&context, handle).wait()?))
            }
            Op::SetXattr { path, name, value, flags } => {
                let xattr = Xattr { name: name.clone(), value: value.clone(), kill_setgid: false };
                files.set_xattr(&context, self.find(path)?.handle, xattr, *flags).wait()?;
                Outcome::Done
            }
            Op::GetXattr { path, name } => {
                let node = self.find(path)?.handle;
                Outcome::Bytes(files.get_xattr(&context, node, name.clone()).wait()?)
            }
            Op::ListXattr { path } => {
                let names = files.list_xattr(&context, self.find(path)?.handle).wait()?;
                xattr_names(&names)
            }
            Op::RemoveXattr { path, name } => {
                files.remove_xattr(&context, self.find(path)?.handle, name.clone()).wait()?;
                Outcome::Done
            }
            _ => return self.query(op),
        })
    }

    fn query(&mut self, op: &Op) -> Result<Outcome, Error> {
        let files = self.files.clone();
        let context = self.context;
        Ok(match op {
            Op::ReadLink { path } => {
                Outcome::Bytes(files.read_link(&context, self.find(path)?.handle).wait()?)
            }
            Op::Peek { path, offset, size } => {
                let flags = OpenFlags::READ;
                let open = files.open(&context, self.find(path)?.handle, flags).wait()?.open;
                let bytes = files.read(&context, open, *offset, *size).wait();
                files.flush(&context, open, None).wait()?;
                files.release(&context, open).wait()?;
                Outcome::Bytes(bytes?.into_bytes())
            }
            Op::Parent { dir } => {
                let dir = self.find_dir(dir)?;
                attr_outcome(&files.parent(&context, dir).wait()?)
            }
            Op::List { dir } => self.list(dir)?,
            Op::ScanStart { scan, dir } => {
                let dir = self.find_dir(dir)?;
                if let Some(scan) = self.scans.get_mut(*scan) {
                    *scan = Some((dir, Cookie::START));
                }
                Outcome::Done
            }
            Op::ScanNext { scan, entries } => {
                let Some(Some((dir, cookie))) = self.scans.get_mut(*scan) else {
                    return Err(Code::BadOpen.into());
                };
                let listing = files.list(&context, *dir, *cookie, None, *entries, false).wait()?;
                if let Some(last) = listing.entries.last() {
                    *cookie = last.cookie;
                }
                let names = listing.entries.into_iter().map(|entry| entry.name);
                Outcome::Page { names: names.collect(), end: listing.end }
            }
            Op::StatFs => {
                let stats = files.stat_fs(&context).wait()?;
                let sane = stats.free <= stats.blocks && stats.block_bytes > 0;
                if sane { Outcome::Done } else { Outcome::Broken(format!("{stats:?}")) }
            }
            _ => return Err(Code::Bug.into()),
        })
    }

    /// Lists in pages of a few entries, with attributes, and checks that each name has the inode
    /// and type of its entry.
    fn list(&self, dir: &Path) -> Result<Outcome, Error> {
        const PAGE: u32 = 5;
        let dir = self.find_dir(dir)?;
        let mut names = BTreeMap::new();
        let mut cookie = Cookie::START;
        loop {
            let listing = self.files.list(&self.context, dir, cookie, None, PAGE, true).wait()?;
            for entry in &listing.entries {
                if names.insert(entry.name.clone(), entry.kind).is_some() {
                    return Ok(Outcome::Broken(format!("{:?} is listed twice", entry.name)));
                }
                if entry.cookie < cookie {
                    return Ok(Outcome::Broken(format!("the cookie of {:?} falls", entry.name)));
                }
                let same = |more: Entry| {
                    (more.attr.ino, more.attr.kind, more.handle.ino)
                        == (entry.ino, entry.kind, entry.ino)
                };
                if !entry.entry.is_some_and(same) {
                    return Ok(Outcome::Broken(format!("attributes of {:?} differ", entry.name)));
                }
            }
            match listing.entries.last() {
                Some(last) => cookie = last.cookie,
                None if !listing.end => return Ok(Outcome::Broken("an empty page".to_owned())),
                None => {}
            }
            if listing.end {
                return Ok(Outcome::Names(names));
            }
        }
    }

    fn set_attr(&self, node: &Subject, set: SetAttr) -> Result<Outcome, Error> {
        let (handle, open) = self.subject(node)?;
        let attr = self.files.set_attr(&self.context, handle, open, set).wait()?;
        Ok(Outcome::Attr(file_attr(&attr)))
    }

    fn close(&mut self, slot: usize) -> Result<(), Error> {
        let (_, open) = self.open(slot)?;
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = None;
        }
        let flushed = self.files.flush(&self.context, open, None).wait();
        self.files.release(&self.context, open).wait()?;
        flushed
    }

    fn set_slot(&mut self, slot: usize, node: Handle, open: OpenId, flags: OpenFlags) {
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = Some(Slot { node, open, append: flags.append });
        }
    }

    fn slot(&self, slot: usize) -> Result<Slot, Error> {
        self.slots.get(slot).copied().flatten().ok_or_else(|| Code::BadOpen.into())
    }

    fn open(&self, slot: usize) -> Result<(Handle, OpenId), Error> {
        self.slot(slot).map(|slot| (slot.node, slot.open))
    }

    fn subject(&self, subject: &Subject) -> Result<(Handle, Option<OpenId>), Error> {
        match subject {
            Subject::Path(path) => Ok((self.find(path)?.handle, None)),
            Subject::Slot(slot) => self.open(*slot).map(|(handle, open)| (handle, Some(open))),
        }
    }

    fn client_at(&self, at: &At) -> Result<client::At, Error> {
        Ok(client::At::new(self.find_dir(&at.dir)?, at.name.clone()))
    }

    fn find_dir(&self, path: &Path) -> Result<Handle, Error> {
        let found = self.find(path)?;
        if found.kind == FileKind::Directory {
            return Ok(found.handle);
        }
        Err(Code::NotDirectory.into())
    }

    fn find(&self, path: &Path) -> Result<Found, Error> {
        let mut found = Found { handle: Handle::ROOT, kind: FileKind::Directory };
        for name in &path.0 {
            found = self.step(found, name)?;
        }
        Ok(found)
    }

    /// Looks up one name. The kernel sends no lookup for a parent that is not a directory.
    fn step(&self, dir: Found, name: &Name) -> Result<Found, Error> {
        if dir.kind != FileKind::Directory {
            return Err(Code::NotDirectory.into());
        }
        let client_at = client::At::new(dir.handle, name.clone());
        let entry = self.files.lookup(&self.context, client_at).wait()?;
        Ok(Found { handle: entry.handle, kind: entry.attr.kind })
    }
}

impl Target for FilesTarget {
    fn traits(&self) -> FsTraits {
        self.traits
    }

    fn apply(&mut self, op: &Op) -> Outcome {
        self.apply_to_names(op)
            .unwrap_or_else(|error| Outcome::Failed(errno::of(error.code).raw_os_error()))
    }
}

impl Drop for FilesTarget {
    fn drop(&mut self) {
        self.close_all();
    }
}

impl fmt::Debug for FilesTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilesTarget").field("slots", &self.slots).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
struct Found {
    handle: Handle,
    kind: FileKind,
}

fn attr_outcome(entry: &Entry) -> Outcome {
    if entry.handle.ino != entry.attr.ino {
        return Outcome::Broken(format!("handle and attributes disagree: {entry:?}"));
    }
    Outcome::Attr(file_attr(&entry.attr))
}

fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: attr.ino.raw(),
        kind: attr.kind,
        mode: attr.mode,
        links: u64::from(attr.links),
        size: attr.size,
        mtime: attr.mtime,
        ctime: attr.ctime,
    }
}

pub(super) fn xattr_names(list: &[u8]) -> Outcome {
    let names = list.split(|byte| *byte == 0).filter(|name| name.starts_with(b"user."));
    Outcome::XattrNames(names.map(<[u8]>::to_vec).collect::<BTreeSet<_>>())
}
