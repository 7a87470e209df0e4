//! New files, directories and links of every kind.

use pelago_store::rows::{Rnode, RnodeFlags};
use pelago_wire::{
    Code, Context, Entry, Error, FileKind, Handle, InodeId, Name, NewMode, Reply, Time, limits,
};

use super::acl::Rights;
use super::tx::Spot;
use super::{Shard, State};
use crate::answers::Asked;
use crate::cache::{Node, Place};

/// What is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewNode {
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
    pub(crate) fn file(mode: NewMode) -> Self {
        Self { kind: FileKind::Regular, mode, rdev: 0, target: Vec::new() }
    }

    /// A directory.
    #[must_use]
    pub(crate) fn directory(mode: NewMode) -> Self {
        Self { kind: FileKind::Directory, mode, rdev: 0, target: Vec::new() }
    }

    /// A symbolic link.
    #[must_use]
    pub(crate) fn symlink(target: Vec<u8>) -> Self {
        Self { kind: FileKind::Symlink, mode: NewMode::exactly(0o777), rdev: 0, target }
    }
}

const SETGID: u16 = 0o2000;

impl Shard {
    /// Makes a node under a free name. `hold`: it is held from birth, as [`Shard::hold`] does.
    ///
    /// # Errors
    /// `Exists`; `NameTooLong` for a target; `Stale`, `NotDirectory` for the directory.
    pub(crate) fn create(
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
        let spot =
            Spot { dir: dir.ino, hash: self.hasher.hash(name.as_bytes()), name: name.clone() };
        let mut state = self.lock();
        self.directory(&mut state, dir)?;
        if self.named(&mut state, spot.dir, spot.hash, name)?.is_some() {
            return Err(Code::Exists.into());
        }
        let parent = self.node(&mut state, Handle::own(dir.ino))?.rnode;
        let rights = self.rights_below(&parent, &new)?;
        let ino = self.take_id(&mut state)?;
        let node = Node {
            place: if new.kind == FileKind::Directory { Place::Own } else { spot.place() },
            rnode: new_rnode(ino, new, context, &parent, (&rights, now)),
        };
        let entry = self.put_new(&mut state, &spot, (node, &rights), Asked::by(context, now))?;
        if hold {
            self.holds.hold(ino, false);
        }
        Ok(entry)
    }

    fn put_new(
        &self,
        state: &mut State,
        spot: &Spot,
        (node, rights): (Node, &Rights),
        asked: Asked,
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
        self.finish_tx(state, tx)?;
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
