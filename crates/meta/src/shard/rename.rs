//! Names that move.

use pelago_store::key;
use pelago_store::rows::{Moved, Row};
use pelago_wire::{
    Code, Context, Entry, Error, FileKind, Handle, Name, NewMode, RenameFlags, Reply, Time,
};

use super::acl::Rights;
use super::climb::{Climb, Climbed};
use super::lookup::later_than;
use super::txn::{DirEntryKey, Txn};
use super::{NewNode, Removed, Shard, State};
use crate::reply_cache::OpContext;
use crate::row_cache::{Node, RowLocation};

/// What a rename did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renamed {
    /// What moved, with its new hint.
    pub moved: Handle,
    /// What it replaced.
    pub replaced: Option<Removed>,
    /// What it changed places with, with its new hint.
    pub(crate) exchanged: Option<Entry>,
}

impl Renamed {
    /// What is answered.
    #[must_use]
    pub fn reply(&self) -> Reply {
        let replaced = self.replaced.map(|Removed { attr, .. }| {
            let handle = Handle::own(attr.ino);
            Entry { handle, attr }
        });
        Reply::Renamed { moved: self.moved, replaced: replaced.or(self.exchanged) }
    }
}

/// From where to where.
#[derive(Debug, Clone, Copy)]
pub struct Move<'a> {
    /// The directory it is in.
    pub from_dir: Handle,
    /// Its name there.
    pub from: &'a Name,
    /// The directory it goes to.
    pub to_dir: Handle,
    /// Its name there.
    pub to: &'a Name,
}

/// What came of trying to move a name under one hold of the lock.
#[expect(clippy::large_enum_variant, reason = "it is returned once, and memory for it costs more")]
enum Tried {
    Renamed(Renamed),
    /// It is a long way upwards.
    Far(Climb),
    /// A directory has moved since the way was gone.
    Outdated,
    /// It is somebody else's turn.
    Wait,
}

/// A mover whose way is outdated so often keeps others from moving directories for once.
const OUTDATED: u32 = 4;

impl Shard {
    /// Moves a name, as `renameat2` does. May go a long way upwards, outside of the shard's lock.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `NotEmpty`, `IsDirectory`, `NotDirectory`, `WouldLoop`; `Stale` for
    /// the directories.
    pub fn rename(
        &self,
        context: &Context,
        wanted: Move<'_>,
        flags: RenameFlags,
        asked: impl Into<OpContext>,
    ) -> Result<Renamed, Error> {
        let asked = asked.into();
        let (mut climbed, mut outdated) = (Vec::new(), 0);
        let mut alone = None;
        loop {
            let tried = self.try_rename((context, asked), wanted, flags, &climbed, alone.is_some());
            match tried? {
                Tried::Renamed(renamed) => return Ok(renamed),
                Tried::Far(climb) => climbed.push(self.climb(climb)?),
                Tried::Outdated => {
                    climbed.clear();
                    outdated += 1;
                    if outdated > OUTDATED && alone.is_none() {
                        // Others move directories faster than the way is gone.
                        alone = Some(self.movers.write());
                    }
                }
                Tried::Wait => drop(self.movers.read()),
            }
        }
    }

    /// The same for callers who serve others; `None`, and nothing is done, where it takes long.
    ///
    /// # Errors
    /// As [`Shard::rename`].
    pub fn rename_at_once(
        &self,
        context: &Context,
        wanted: Move<'_>,
        flags: RenameFlags,
        asked: impl Into<OpContext>,
    ) -> Result<Option<Renamed>, Error> {
        match self.try_rename((context, asked.into()), wanted, flags, &[], false)? {
            Tried::Renamed(renamed) => Ok(Some(renamed)),
            Tried::Far(_) | Tried::Outdated | Tried::Wait => Ok(None),
        }
    }

    fn try_rename(
        &self,
        (context, asked): (&Context, OpContext),
        wanted: Move<'_>,
        flags: RenameFlags,
        climbed: &[Climbed],
        alone: bool,
    ) -> Result<Tried, Error> {
        let mut state = self.lock();
        if climbed.iter().any(|climbed| climbed.is_outdated(&state)) {
            return Ok(Tried::Outdated);
        }
        let (from, node) = self.find_at(&mut state, wanted.from_dir, wanted.from)?;
        let target = match self.find_at(&mut state, wanted.to_dir, wanted.to) {
            Ok((_, target)) => Some(target),
            Err(error) if error.code == Code::NotFound => None,
            Err(error) => return Err(error),
        };
        let to = DirEntryKey {
            dir: wanted.to_dir.ino,
            hash: self.hasher.hash(wanted.to.as_bytes()),
            name: wanted.to.clone(),
        };
        let mut far = self.expect_no_loop(&mut state, (&from, &node), &to, climbed)?;
        if let (RenameFlags::Exchange, None, Some(target)) = (flags, far, &target) {
            far = self.expect_no_loop(&mut state, (&to, target), &from, climbed)?;
        }
        if let Some(climb) = far {
            return Ok(Tried::Far(climb));
        }
        let is_directory = |node: &Node| node.rnode.kind == FileKind::Directory;
        let moves_directory = is_directory(&node) || target.as_ref().is_some_and(is_directory);
        let _turn = match from.dir != to.dir && moves_directory && !alone {
            true => match self.movers.try_read() {
                None => return Ok(Tried::Wait),
                turn => turn,
            },
            false => None,
        };
        let renamed = match (flags, target) {
            (RenameFlags::NoReplace | RenameFlags::Whiteout { replace: false }, Some(_)) => {
                Err(Code::Exists.into())
            }
            (RenameFlags::Exchange, None) => Err(Code::NotFound.into()),
            (_, Some(target)) if target.rnode.ino == node.rnode.ino => {
                let moved = node.handle();
                Ok(Renamed { moved, replaced: None, exchanged: None })
            }
            (RenameFlags::Exchange, Some(target)) => {
                self.exchange(&mut state, (from, node), (to, target), asked)
            }
            (_, target) => {
                let whiteout = match flags.leaves_a_whiteout() {
                    true => Some(self.whiteout(&mut state, context, &from, asked.now)?),
                    false => None,
                };
                self.replace(&mut state, (from, node), (to, target), whiteout, asked)
            }
        };
        renamed.map(Tried::Renamed)
    }

    fn replace(
        &self,
        state: &mut State,
        (from, mut node): (DirEntryKey, Node),
        (to, target): (DirEntryKey, Option<Node>),
        whiteout: Option<(Node, Rights)>,
        asked: OpContext,
    ) -> Result<Renamed, Error> {
        let mut tx = self.begin_tx(state, asked);
        self.mark(state, &mut tx, from.dir);
        self.mark(state, &mut tx, to.dir);
        let replaced = match target {
            None => None,
            Some(target) => Some(self.drop_target(state, &mut tx, &to, &node, target)?),
        };
        tx.drop_name(&from, &node, whiteout.is_some());
        touch(&tx, &mut node);
        let moved = move_node(&mut tx, node, &from, &to);
        if let Some((whiteout, rights)) = whiteout {
            rights.put(&mut tx, whiteout.rnode.ino);
            tx.put_name(&from, &whiteout);
            tx.remember_node(whiteout);
        }
        let renamed = Renamed { moved, replaced, exchanged: None };
        tx.answer(&renamed.reply());
        self.finish_txn(state, tx)?;
        Ok(renamed)
    }

    /// A new whiteout for a name, made by the rules of its directory.
    fn whiteout(
        &self,
        state: &mut State,
        context: &Context,
        from: &DirEntryKey,
        now: Time,
    ) -> Result<(Node, Rights), Error> {
        let (kind, mode) = (FileKind::CharDevice, NewMode::exactly(0));
        let new = NewNode { kind, mode, rdev: 0, target: Vec::new() };
        let (rnode, rights) = self.rnode_below(state, context, Handle::own(from.dir), new, now)?;
        Ok((Node { rnode, place: from.place() }, rights))
    }

    fn drop_target(
        &self,
        state: &State,
        tx: &mut Txn,
        to: &DirEntryKey,
        node: &Node,
        target: Node,
    ) -> Result<Removed, Error> {
        let is_directory = |node: &Node| node.rnode.kind == FileKind::Directory;
        match (is_directory(node), is_directory(&target)) {
            (true, false) => Err(Code::NotDirectory.into()),
            (false, true) => Err(Code::IsDirectory.into()),
            (false, false) => self.drop_file(state, tx, to, target, true),
            (true, true) => {
                self.expect_empty(state, target.rnode.ino)?;
                self.drop_directory(state, tx, to, target, true)
            }
        }
    }

    fn exchange(
        &self,
        state: &mut State,
        (from, mut node): (DirEntryKey, Node),
        (to, mut target): (DirEntryKey, Node),
        asked: OpContext,
    ) -> Result<Renamed, Error> {
        let mut tx = self.begin_tx(state, asked);
        self.mark(state, &mut tx, from.dir);
        self.mark(state, &mut tx, to.dir);
        tx.drop_name(&from, &node, true);
        tx.drop_name(&to, &target, true);
        touch(&tx, &mut node);
        touch(&tx, &mut target);
        let moved = move_node(&mut tx, node, &from, &to);
        let attr = self.attr_of(state, &target.rnode)?;
        let handle = move_node(&mut tx, target, &to, &from);
        let exchanged = Some(Entry { handle, attr });
        let renamed = Renamed { moved, replaced: None, exchanged };
        tx.answer(&renamed.reply());
        self.finish_txn(state, tx)?;
        Ok(renamed)
    }
}

/// A node changes its name now.
fn touch(tx: &Txn, node: &mut Node) {
    node.rnode.ctime = later_than(node.rnode.ctime, tx.now);
    node.rnode.version += 1;
}

/// Puts a node whose old name was dropped under its new one.
fn move_node(tx: &mut Txn, mut node: Node, from: &DirEntryKey, to: &DirEntryKey) -> Handle {
    let ino = node.rnode.ino;
    if node.place != RowLocation::Own {
        node.place = to.place();
        node.rnode.flags.moved = true;
        let moved = Moved { dir: to.dir, hash: to.hash };
        tx.batch.put(key::moved(ino), moved.encode(tx.stamp));
        tx.put_name(to, &node);
        let handle = node.handle();
        tx.remember_node(node);
        return handle;
    }
    if node.rnode.kind == FileKind::Directory && from.dir != to.dir {
        tx.moved_directory(ino, to.dir);
    }
    tx.put_name(to, &node);
    let handle = node.handle();
    tx.put_node(node);
    handle
}
