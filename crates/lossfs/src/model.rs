//! Files, directories and names, as programs see them and as they are on the disk. Does no I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use rustix::io::Errno;

use self::bytes::Bytes;
use self::extent::{BLOCK, Change};
use self::names::{Folder, NameChange, PendingNames};
use crate::random::Random;

mod bytes;
mod extent;
mod names;

/// Inode number of the root.
pub(crate) const ROOT: u64 = 1;

/// The changes of names that may survive without earlier ones. A change never survives without
/// those it builds upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// No change does: as with one journal for all names.
    Ordered,
    /// Changes of different directories are independent.
    PerFolder,
    /// Changes of different names are independent: worse than any file system with a journal.
    Any,
}

/// The part of the changes that were not synced that survives a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// Nothing survives.
    Nothing,
    /// A random part survives, the same for the same seed.
    Some {
        /// Seed of the choice.
        seed: u64,
        /// The changes of names that are independent.
        names: Names,
    },
}

/// A file system. A clone is cheap and independent.
///
/// Inodes that ever had a name are kept until the next [`Model::after_crash`].
#[derive(Debug, Clone)]
pub struct Model {
    nodes: BTreeMap<u64, Arc<Node>>,
    pending: PendingNames,
    next: u64,
    /// Limit of blocks, if there is one.
    limit: Option<u64>,
}

/// An inode.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) about: About,
    /// Attributes on the disk.
    stable: About,
    pub(crate) links: u32,
    opens: u32,
    /// The path at which it was created, by which tests select files.
    pub(crate) path: String,
    body: Body,
}

#[derive(Debug, Clone)]
enum Body {
    File(Bytes),
    Folder {
        live: Folder,
        stable: Folder,
    },
    /// A socket or pipe, which the kernel implements.
    Other,
}

/// The attributes of `stat` except sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) atime: SystemTime,
    pub(crate) mtime: SystemTime,
    pub(crate) ctime: SystemTime,
}

impl Node {
    fn new(about: About, body: Body, path: String) -> Self {
        Self { about, stable: about, links: 1, opens: 0, path, body }
    }

    pub(crate) fn size(&self) -> u64 {
        match &self.body {
            Body::File(bytes) => bytes.size(),
            Body::Folder { live, .. } => live.len() as u64,
            Body::Other => 0,
        }
    }

    pub(crate) fn blocks(&self) -> u64 {
        if let Body::File(bytes) = &self.body { bytes.blocks() } else { 0 }
    }

    pub(crate) fn is_folder(&self) -> bool {
        matches!(self.body, Body::Folder { .. })
    }

    fn bytes(&mut self) -> Result<&mut Bytes, Errno> {
        if let Body::File(bytes) = &mut self.body { Ok(bytes) } else { Err(Errno::ISDIR) }
    }

    fn names(&self) -> Result<&Folder, Errno> {
        if let Body::Folder { live, .. } = &self.body { Ok(live) } else { Err(Errno::NOTDIR) }
    }
}

/// The kinds of inodes that can be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Folder,
    Other,
}

impl Model {
    /// Returns an empty file system, whose root belongs to the present user.
    #[must_use]
    pub fn new() -> Self {
        let now = crate::clock::now();
        let uid = rustix::process::geteuid();
        let gid = rustix::process::getegid();
        let about = About {
            mode: 0o040_755,
            uid: uid.as_raw(),
            gid: gid.as_raw(),
            atime: now,
            mtime: now,
            ctime: now,
        };
        let body = Body::Folder { live: Folder::new(), stable: Folder::new() };
        let root = Node { links: 2, ..Node::new(about, body, String::new()) };
        let nodes = BTreeMap::from([(ROOT, Arc::new(root))]);
        Self { nodes, pending: PendingNames::default(), next: ROOT + 1, limit: None }
    }

    /// Returns the file system that is found after a power cut, all of it safe.
    #[must_use]
    pub fn after_crash(&self, survival: Survival) -> Self {
        let mut random = match survival {
            Survival::Nothing => None,
            Survival::Some { seed, .. } => Some(Random(seed)),
        };
        let changes = match (survival, &mut random) {
            (Survival::Some { names, .. }, Some(random)) => self.pending.some(names, random),
            _ => Vec::new(),
        };
        let mut left = Self { nodes: BTreeMap::new(), pending: PendingNames::default(), ..*self };
        let mut to_visit = vec![ROOT];
        while let Some(ino) = to_visit.pop() {
            if let Some(node) = left.nodes.get_mut(&ino) {
                Arc::make_mut(node).links += 1;
                continue;
            }
            let old = &self.nodes[&ino];
            let keeps_about = random.as_mut().is_some_and(Random::coin);
            let about = if keeps_about { old.about } else { old.stable };
            let body = match &old.body {
                Body::File(bytes) => Body::File(bytes.after_crash(random.as_mut())),
                Body::Other => Body::Other,
                Body::Folder { stable, .. } => {
                    let mut folder = stable.clone();
                    changes.iter().for_each(|change| change.apply(ino, &mut folder));
                    to_visit.extend(folder.values().copied());
                    Body::Folder { live: folder.clone(), stable: folder }
                }
            };
            left.nodes.insert(ino, Arc::new(Node::new(about, body, old.path.clone())));
        }
        left.count_folder_links();
        left
    }

    /// Limits the space to `blocks` of 4 KiB; used blocks stay.
    pub fn set_limit(&mut self, blocks: Option<u64>) {
        self.limit = blocks;
    }

    /// Returns used blocks and all blocks.
    #[must_use]
    pub fn space(&self) -> (u64, u64) {
        let lives = |node: &&Arc<Node>| node.links > 0 || node.opens > 0;
        let used = self.nodes.values().filter(lives).map(|node| node.blocks()).sum();
        (used, self.limit.unwrap_or(UNLIMITED))
    }

    pub(crate) fn node(&self, ino: u64) -> Result<&Node, Errno> {
        self.nodes.get(&ino).map(|node| &**node).ok_or(Errno::NOENT)
    }

    fn node_mut(&mut self, ino: u64) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&ino).map(Arc::make_mut).ok_or(Errno::NOENT)
    }

    pub(crate) fn lookup(&self, dir: u64, name: &[u8]) -> Result<u64, Errno> {
        self.node(dir)?.names()?.get(name).copied().ok_or(Errno::NOENT)
    }

    pub(crate) fn list(&self, dir: u64) -> Result<Vec<(u64, Vec<u8>)>, Errno> {
        let names = self.node(dir)?.names()?;
        Ok(names.iter().map(|(name, ino)| (*ino, name.clone())).collect())
    }

    pub(crate) fn make(
        &mut self,
        dir: u64,
        name: &[u8],
        kind: Kind,
        about: About,
    ) -> Result<u64, Errno> {
        let parent = self.node(dir)?;
        if parent.names()?.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let path = format!("{}/{}", parent.path, String::from_utf8_lossy(name));
        let body = match kind {
            Kind::File => Body::File(Bytes::default()),
            Kind::Folder => Body::Folder { live: Folder::new(), stable: Folder::new() },
            Kind::Other => Body::Other,
        };
        let ino = self.next;
        self.next += 1;
        let mut node = Node::new(about, body, path);
        if kind == Kind::Folder {
            node.links = 2;
            self.node_mut(dir)?.links += 1;
        }
        self.nodes.insert(ino, Arc::new(node));
        self.change(vec![(dir, name.to_vec(), Some(ino))], about.ctime)?;
        Ok(ino)
    }

    pub(crate) fn link(
        &mut self,
        ino: u64,
        dir: u64,
        name: &[u8],
        now: SystemTime,
    ) -> Result<(), Errno> {
        if self.lookup(dir, name).is_ok() {
            return Err(Errno::EXIST);
        }
        self.node_mut(ino)?.links += 1;
        self.change(vec![(dir, name.to_vec(), Some(ino))], now)
    }

    /// Removes a name; `folder` says that it must be an empty directory.
    pub(crate) fn remove(
        &mut self,
        dir: u64,
        name: &[u8],
        folder: bool,
        now: SystemTime,
    ) -> Result<(), Errno> {
        let ino = self.lookup(dir, name)?;
        self.may_go(ino, folder)?;
        self.lose_name(dir, ino)?;
        self.change(vec![(dir, name.to_vec(), None)], now)
    }

    /// Renames a file, and replaces the file at the new name.
    pub(crate) fn rename(
        &mut self,
        from_dir: u64,
        from_name: &[u8],
        to_dir: u64,
        to_name: &[u8],
        now: SystemTime,
    ) -> Result<(), Errno> {
        let ino = self.lookup(from_dir, from_name)?;
        let is_folder = self.node(ino)?.is_folder();
        match self.lookup(to_dir, to_name) {
            Ok(same) if same == ino => return Ok(()),
            Ok(old) => {
                self.may_go(old, is_folder)?;
                self.lose_name(to_dir, old)?;
            }
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        if is_folder {
            self.node_mut(from_dir)?.links -= 1;
            self.node_mut(to_dir)?.links += 1;
        }
        let sets =
            vec![(from_dir, from_name.to_vec(), None), (to_dir, to_name.to_vec(), Some(ino))];
        self.change(sets, now)
    }

    pub(crate) fn read(&mut self, ino: u64, at: u64, length: u64) -> Result<Vec<u8>, Errno> {
        match &self.node(ino)?.body {
            Body::File(bytes) => Ok(bytes.read(at, length)),
            _ => Err(Errno::ISDIR),
        }
    }

    pub(crate) fn write(
        &mut self,
        ino: u64,
        at: u64,
        bytes: &[u8],
        now: SystemTime,
    ) -> Result<(), Errno> {
        self.apply(ino, Change::Write { at, bytes: bytes.into() }, now)
    }

    pub(crate) fn resize(&mut self, ino: u64, size: u64, now: SystemTime) -> Result<(), Errno> {
        self.apply(ino, Change::Resize(size), now)
    }

    pub(crate) fn reserve(
        &mut self,
        ino: u64,
        range: Range<u64>,
        keep_size: bool,
        now: SystemTime,
    ) -> Result<(), Errno> {
        self.apply(ino, Change::Reserve { from: range.start, to: range.end, keep_size }, now)
    }

    /// Zeroes a range, as far as it is before the end.
    pub(crate) fn zero(
        &mut self,
        ino: u64,
        range: Range<u64>,
        now: SystemTime,
    ) -> Result<(), Errno> {
        self.apply(ino, Change::Zero { from: range.start, to: range.end }, now)
    }

    pub(crate) fn set_about(
        &mut self,
        ino: u64,
        set: impl FnOnce(&mut About),
    ) -> Result<(), Errno> {
        set(&mut self.node_mut(ino)?.about);
        Ok(())
    }

    pub(crate) fn open(&mut self, ino: u64) -> Result<(), Errno> {
        self.node_mut(ino)?.opens += 1;
        Ok(())
    }

    pub(crate) fn close(&mut self, ino: u64) -> Result<(), Errno> {
        let node = self.node_mut(ino)?;
        node.opens = node.opens.saturating_sub(1);
        Ok(())
    }

    /// Makes bytes and attributes of a file safe.
    pub(crate) fn sync(&mut self, ino: u64) -> Result<(), Errno> {
        let node = self.node_mut(ino)?;
        node.stable = node.about;
        node.bytes()?.sync();
        Ok(())
    }

    /// Fails while a file is synced.
    pub(crate) fn fail_to_sync(&mut self, ino: u64) -> Result<(), Errno> {
        self.node_mut(ino)?.bytes()?.fail_to_sync();
        Ok(())
    }

    /// Makes the names in a directory safe, with all earlier changes that they build upon.
    pub(crate) fn sync_names(&mut self, dir: u64) -> Result<(), Errno> {
        let node = self.node_mut(dir)?;
        node.stable = node.about;
        let taken = self.pending.take(dir);
        let dirs: BTreeSet<u64> =
            taken.iter().flat_map(|change| change.sets.iter().map(|(dir, ..)| *dir)).collect();
        for dir in dirs {
            if let Body::Folder { stable, .. } = &mut self.node_mut(dir)?.body {
                taken.iter().for_each(|change| change.apply(dir, stable));
            }
        }
        Ok(())
    }

    fn apply(&mut self, ino: u64, change: Change, now: SystemTime) -> Result<(), Errno> {
        let wants = self.node_mut(ino)?.bytes()?.wants(&change);
        if wants > 0 && self.limit.is_some() {
            let (used, all) = self.space();
            if used + wants > all {
                return Err(Errno::NOSPC);
            }
        }
        let node = self.node_mut(ino)?;
        node.bytes()?.apply(change);
        node.about = About { mtime: now, ctime: now, ..node.about };
        Ok(())
    }

    fn change(
        &mut self,
        sets: Vec<(u64, Vec<u8>, Option<u64>)>,
        now: SystemTime,
    ) -> Result<(), Errno> {
        let change = NameChange { sets };
        for (dir, ..) in &change.sets {
            let node = self.node_mut(*dir)?;
            node.about = About { mtime: now, ctime: now, ..node.about };
            if let Body::Folder { live, .. } = &mut node.body {
                change.apply(*dir, live);
            }
        }
        self.pending.push(change);
        Ok(())
    }

    fn may_go(&self, ino: u64, folder: bool) -> Result<(), Errno> {
        match (self.node(ino)?.names(), folder) {
            (Ok(names), true) if names.is_empty() => Ok(()),
            (Ok(_), true) => Err(Errno::NOTEMPTY),
            (Ok(_), false) => Err(Errno::ISDIR),
            (Err(_), true) => Err(Errno::NOTDIR),
            (Err(_), false) => Ok(()),
        }
    }

    fn lose_name(&mut self, dir: u64, ino: u64) -> Result<(), Errno> {
        let node = self.node_mut(ino)?;
        if !node.is_folder() {
            node.links -= 1;
            return Ok(());
        }
        node.links = 0;
        self.node_mut(dir)?.links -= 1;
        Ok(())
    }

    fn count_folder_links(&mut self) {
        let is_folder = |ino: &u64| self.nodes.get(ino).is_some_and(|node| node.is_folder());
        let counts: Vec<(u64, u32)> = self
            .nodes
            .iter()
            .filter_map(|(ino, node)| {
                let below = node.names().ok()?.values().filter(|ino| is_folder(ino)).count();
                Some((*ino, 2 + u32::try_from(below).unwrap_or(0)))
            })
            .collect();
        for (ino, links) in counts {
            if let Some(node) = self.nodes.get_mut(&ino) {
                Arc::make_mut(node).links = links;
            }
        }
    }
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

/// Bytes of a block.
pub(crate) const BLOCK_BYTES: u64 = BLOCK;
/// Blocks that `statfs` shows if there is no limit: 4 GiB.
const UNLIMITED: u64 = 1 << 20;

#[cfg(test)]
mod tests;
