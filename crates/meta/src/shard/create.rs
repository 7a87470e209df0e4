//! New files, directories and links of every kind.

use pelago_store::key;
use pelago_store::rows::{Orphan, Rnode, RnodeFlags, Row};
use pelago_wire::{
    Code, Context, Entry, Error, FileKind, Handle, InodeId, Name, NewMode, Reply, Time, limits,
};

use super::acl::Rights;
use super::txn::DirEntryKey;
use super::{Shard, State};
use crate::reply_cache::OpContext;
use crate::row_cache::{Node, RowLocation};

/// What is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNode {
    /// What it shall be.
    pub kind: FileKind,
    /// Its mode.
    pub mode: NewMode,
    /// Device number, for devices.
    pub rdev: u32,
    /// What it says, for symbolic links.
    pub target: Vec<u8>,
}

impl NewNode {
    /// An ordinary file.
    #[must_use]
    pub fn file(mode: NewMode) -> Self {
        Self { kind: FileKind::Regular, mode, rdev: 0, target: Vec::new() }
    }

    /// A directory.
    #[must_use]
    pub fn directory(mode: NewMode) -> Self {
        Self { kind: FileKind::Directory, mode, rdev: 0, target: Vec::new() }
    }

    /// A symbolic link.
    #[must_use]
    pub fn symlink(target: Vec<u8>) -> Self {
        Self { kind: FileKind::Symlink, mode: NewMode::exactly(0o777), rdev: 0, target }
    }
}

const SETGID: u16 = 0o2000;

impl Shard {
    /// Makes a node under a free name. `hold`: it is held from birth, as [`Shard::hold`] does.
    ///
    /// # Errors
    /// `Exists`; `NameTooLong` for a target; `Stale`, `NotDirectory` for the directory.
    pub fn create(
        &self,
        context: &Context,
        dir: Handle,
        name: &Name,
        new: NewNode,
        hold: bool,
        now: Time,
    ) -> Result<Entry, Error> {
        if new.target.len() > limits::TARGET_BYTES {
            return Err(Code::NameTooLong.into());
        }
        if new.kind == FileKind::Symlink && (new.target.is_empty() || new.target.contains(&0)) {
            return Err(Code::Invalid.into());
        }
        let spot = DirEntryKey {
            dir: dir.ino,
            hash: self.hasher.hash(name.as_bytes()),
            name: name.clone(),
        };
        let mut state = self.lock();
        self.directory(&mut state, dir)?;
        if self.named(&mut state, spot.dir, spot.hash, name)?.is_some() {
            return Err(Code::Exists.into());
        }
        let place = if new.kind == FileKind::Directory { RowLocation::Own } else { spot.place() };
        let (rnode, rights) = self.rnode_below(&mut state, context, dir, new, now)?;
        let (ino, node) = (rnode.ino, Node { rnode, place });
        let entry =
            self.put_new(&mut state, &spot, (node, &rights), OpContext::by(context, now))?;
        if hold {
            self.holds.hold(ino, false);
        }
        Ok(entry)
    }

    /// Makes a file without a name, by the rules of a directory of which nothing changes. It is
    /// held from birth: [`Shard::link`] gives it a name, or it goes with its last holder.
    ///
    /// # Errors
    /// `Stale`, `NotDirectory` for the directory.
    pub fn create_unnamed(
        &self,
        context: &Context,
        dir: Handle,
        new: NewNode,
        now: Time,
    ) -> Result<Entry, Error> {
        let mut state = self.lock();
        self.directory(&mut state, dir)?;
        let (mut rnode, rights) = self.rnode_below(&mut state, context, dir, new, now)?;
        rnode.links = 0;
        let (ino, node) = (rnode.ino, Node { rnode, place: RowLocation::Own });
        let entry = Entry { handle: node.handle(), attr: node.rnode.attr() };
        let mut tx = self.begin_tx(&state, now);
        rights.put(&mut tx, ino);
        // Whoever starts after a crash removes it.
        let orphan = Orphan { generation: None };
        tx.batch.put(key::orphan(ino), orphan.encode(tx.stamp));
        tx.put_node(node);
        self.finish_txn(&mut state, tx)?;
        self.holds.hold(ino, true);
        Ok(entry)
    }

    /// A new node as it is in a directory, and the rights that it inherits there.
    pub(super) fn rnode_below(
        &self,
        state: &mut State,
        context: &Context,
        dir: Handle,
        new: NewNode,
        now: Time,
    ) -> Result<(Rnode, Rights), Error> {
        let parent = self.node(state, Handle::own(dir.ino))?.rnode;
        let rights = self.rights_below(&parent, &new)?;
        let ino = self.take_id(state)?;
        let rnode = new_rnode(ino, new, context, &parent, (&rights, now));
        Ok((rnode, rights))
    }

    fn put_new(
        &self,
        state: &mut State,
        spot: &DirEntryKey,
        (node, rights): (Node, &Rights),
        asked: OpContext,
    ) -> Result<Entry, Error> {
        let mut tx = self.begin_tx(state, asked);
        self.mark(state, &mut tx, spot.dir);
        tx.put_name(spot, &node);
        rights.put(&mut tx, node.rnode.ino);
        let (ino, handle, mut attr) = (node.rnode.ino, node.handle(), node.rnode.attr());
        if attr.kind == FileKind::Directory {
            attr.links = 2;
            tx.made_directory(ino, spot.dir);
            tx.put_node(node);
        } else {
            tx.remember_node(node);
        }
        let entry = Entry { handle, attr };
        tx.answer(&Reply::Entry(entry));
        self.finish_txn(state, tx)?;
        Ok(entry)
    }
}

fn new_rnode(
    ino: InodeId,
    new: NewNode,
    context: &Context,
    parent: &Rnode,
    (rights, now): (&Rights, Time),
) -> Rnode {
    // A setgid directory gives its group to what is made in it, and its bit to directories.
    let inherit = parent.mode & SETGID != 0;
    let is_directory = new.kind == FileKind::Directory;
    let mode = if inherit && is_directory { rights.mode | SETGID } else { rights.mode } & 0o7777;
    let size = new.target.len() as u64;
    let mut rnode = Rnode {
        ino,
        kind: new.kind,
        mode,
        flags: RnodeFlags::default(),
        links: 1,
        uid: context.uid,
        gid: if inherit { parent.gid } else { context.gid },
        rdev: new.rdev,
        generation: None,
        size,
        blocks: 0,
        version: 1,
        quota_root: parent.quota_root,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        deleted_at: Time::default(),
        target: new.target,
    };
    rights.flag(&mut rnode);
    rnode
}
