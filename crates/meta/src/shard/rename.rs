//! Renames, exchanges of two names, and whiteouts.
//!
//! A rename is one attempt under the lock, unless it moves a directory to a parent far from the
//! root. Then the attempt returns a [`Climb`]; [`rename`] climbs without the lock and attempts
//! again, until no directory has moved in between.

use pelago_store::key;
use pelago_store::rows::Moved;
use pelago_wire::{
    Code, Context, Entry, Error, FileKind, Handle, Name, NewMode, RenameFlags, Reply,
};

use super::Shard;
use super::acl::Rights;
use super::climb::{self, Climb, Climbed};
use super::create::new_rnode_in;
use super::lookup::later_than;
use super::new_inode::NewInode;
use super::remove::{Removed, expect_empty, remove_directory, remove_file};
use super::txn::{DirEntryKey, Txn};
use crate::reply_cache::OpContext;
use crate::row_cache::{Node, RowLocation};

/// The result of a rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renamed {
    /// The node that moved, with its new hint.
    pub moved: Handle,
    /// The node that was replaced.
    pub replaced: Option<Removed>,
    /// The other node of an exchange, with its new hint.
    pub(crate) exchanged: Option<Entry>,
}

impl Shard {
    /// Renames a node, as `renameat2` does. May climb a long path up the tree, without the lock.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `NotEmpty`, `IsDirectory`, `NotDirectory`, `WouldLoop`; `Stale` for
    /// the directories.
    pub fn rename(
        &self,
        context: &Context,
        names: Move<'_>,
        flags: RenameFlags,
        op: impl Into<OpContext>,
    ) -> Result<Renamed, Error> {
        rename(self, context, names, flags, op.into())
    }

    /// Renames as [`Shard::rename`] does, for threads that must not wait. Returns `None` and does
    /// nothing if it would take long.
    ///
    /// # Errors
    /// As [`Shard::rename`].
    pub fn rename_at_once(
        &self,
        context: &Context,
        names: Move<'_>,
        flags: RenameFlags,
        op: impl Into<OpContext>,
    ) -> Result<Option<Renamed>, Error> {
        rename_at_once(self, context, names, flags, op.into())
    }
}

impl Renamed {
    /// Returns the reply to the request.
    #[must_use]
    pub fn reply(&self) -> Reply {
        let replaced = self.replaced.map(|Removed { attr, .. }| {
            let handle = Handle::own(attr.ino);
            Entry { handle, attr }
        });
        Reply::Renamed { moved: self.moved, replaced: replaced.or(self.exchanged) }
    }
}

/// The old and the new name of a rename.
#[derive(Debug, Clone, Copy)]
pub struct Move<'a> {
    /// The directory of the old name.
    pub from_dir: Handle,
    /// The old name.
    pub from: &'a Name,
    /// The directory of the new name.
    pub to_dir: Handle,
    /// The new name.
    pub to: &'a Name,
}

/// The arguments of an [`attempt`].
struct Wanted<'a> {
    context: &'a Context,
    from: DirEntryKey,
    to: DirEntryKey,
    flags: RenameFlags,
}

/// The result of one attempt under the lock.
#[expect(clippy::large_enum_variant, reason = "it is returned once, and memory for it costs more")]
enum Attempt {
    Renamed(Renamed),
    /// The new directory is far from the root: the rest of the path must be climbed first.
    TooFar(Climb),
    /// A directory has moved since the path was climbed.
    Outdated,
    /// Another rename has reserved all moves of directories.
    Reserved,
}

/// The most outdated climbs of a rename before it reserves all moves of directories.
const OUTDATED_CLIMBS: u32 = 4;

/// Renames a node. May climb a long path, without the shard's lock.
pub(super) fn rename(
    shard: &Shard,
    context: &Context,
    names: Move<'_>,
    flags: RenameFlags,
    op: OpContext,
) -> Result<Renamed, Error> {
    let mut climbed = Vec::new();
    let mut outdated = 0;
    let mut reservation = None;
    loop {
        let wanted = wanted(shard, context, names, flags);
        match attempt(shard.begin(op), wanted, &climbed, reservation.is_some())? {
            Attempt::Renamed(renamed) => return Ok(renamed),
            Attempt::TooFar(way) => climbed.push(climb::climb(shard, way)?),
            Attempt::Outdated => {
                climbed.clear();
                outdated += 1;
                if outdated > OUTDATED_CLIMBS && reservation.is_none() {
                    // Other renames move directories faster than this one climbs.
                    reservation = Some(shard.movers.write());
                }
            }
            Attempt::Reserved => drop(shard.movers.read()),
        }
    }
}

/// Renames a node in one attempt. Returns `None` and does nothing if that is not enough.
pub(super) fn rename_at_once(
    shard: &Shard,
    context: &Context,
    names: Move<'_>,
    flags: RenameFlags,
    op: OpContext,
) -> Result<Option<Renamed>, Error> {
    let wanted = wanted(shard, context, names, flags);
    match attempt(shard.begin(op), wanted, &[], false)? {
        Attempt::Renamed(renamed) => Ok(Some(renamed)),
        Attempt::TooFar(_) | Attempt::Outdated | Attempt::Reserved => Ok(None),
    }
}

fn wanted<'a>(
    shard: &Shard,
    context: &'a Context,
    names: Move<'_>,
    flags: RenameFlags,
) -> Wanted<'a> {
    let from = shard.entry_key(names.from_dir.ino, names.from);
    let to = shard.entry_key(names.to_dir.ino, names.to);
    Wanted { context, from, to, flags }
}

/// Attempts a rename under the lock. `has_reservation`: true if this rename has locked
/// [`Shard::movers`] for writing.
fn attempt(
    mut txn: Txn<'_>,
    wanted: Wanted<'_>,
    climbed: &[Climbed],
    has_reservation: bool,
) -> Result<Attempt, Error> {
    if climbed.iter().any(|climbed| climbed.is_outdated(&txn.state)) {
        return Ok(Attempt::Outdated);
    }
    let Wanted { context, from, to, flags } = wanted;
    let node = txn.find_moving(&from)?;
    let target = match txn.find_entry(&to) {
        Ok(target) => Some(target),
        Err(error) if error.code == Code::NotFound => None,
        Err(error) if error.code == Code::Elsewhere => {
            return Err(not_over_a_directory_elsewhere(&node, flags).into());
        }
        Err(error) => return Err(error),
    };
    txn.expect(node.rnode.ino, target.as_ref().map(|target| target.rnode.ino))?;
    let mut way = climb::expect_no_loop(&mut txn, &from, &node, &to, climbed)?;
    if let (RenameFlags::Exchange, None, Some(target)) = (flags, way, &target) {
        way = climb::expect_no_loop(&mut txn, &to, target, &from, climbed)?;
    }
    if let Some(way) = way {
        return Ok(Attempt::TooFar(way));
    }
    let moves_directory = is_directory(&node) || target.as_ref().is_some_and(is_directory);
    let shard = txn.shard;
    let _mover = match from.dir != to.dir && moves_directory && !has_reservation {
        true => match shard.movers.try_read() {
            None => return Ok(Attempt::Reserved),
            mover => mover,
        },
        false => None,
    };
    let renamed = match (flags, target) {
        (RenameFlags::NoReplace | RenameFlags::Whiteout { replace: false }, Some(_)) => {
            return Err(Code::Exists.into());
        }
        (RenameFlags::Exchange, None) => return Err(Code::NotFound.into()),
        (_, Some(target)) if target.rnode.ino == node.rnode.ino => {
            let moved = node.handle();
            Renamed { moved, replaced: None, exchanged: None }
        }
        (RenameFlags::Exchange, Some(_)) if node.location == RowLocation::Elsewhere => {
            return Err(Code::Elsewhere.into());
        }
        (RenameFlags::Exchange, Some(target)) => exchange(&mut txn, &from, node, &to, target)?,
        (_, target) => {
            let whiteout = match flags.leaves_a_whiteout() {
                true => Some(whiteout(&mut txn, context, &from)?),
                false => None,
            };
            replace(&mut txn, &from, node, &to, target, whiteout)?
        }
    };
    txn.commit()?;
    Ok(Attempt::Renamed(renamed))
}

/// Returns the error for a rename to the name of a directory of another site.
fn not_over_a_directory_elsewhere(node: &Node, flags: RenameFlags) -> Code {
    match flags {
        RenameFlags::NoReplace | RenameFlags::Whiteout { replace: false } => Code::Exists,
        RenameFlags::Replace | RenameFlags::Whiteout { replace: true } if !is_directory(node) => {
            Code::IsDirectory
        }
        RenameFlags::Replace | RenameFlags::Whiteout { replace: true } | RenameFlags::Exchange => {
            Code::Elsewhere
        }
    }
}

/// Moves a node to a free name, or to that of another node, which loses it. A whiteout takes the
/// old name.
fn replace(
    txn: &mut Txn<'_>,
    from: &DirEntryKey,
    mut node: Node,
    to: &DirEntryKey,
    target: Option<Node>,
    whiteout: Option<(Node, Rights)>,
) -> Result<Renamed, Error> {
    txn.flag_dirty(from.dir);
    txn.flag_dirty(to.dir);
    let replaced = match target {
        None => None,
        Some(target) => Some(remove_target(txn, to, &node, target)?),
    };
    txn.remove_name(from, &node, whiteout.is_some());
    touch(txn, &mut node);
    let moved = move_node(txn, node, from, to);
    if let Some((whiteout, rights)) = whiteout {
        rights.put(txn, whiteout.rnode.ino);
        txn.put_name(from, &whiteout);
        txn.cache_node(whiteout);
    }
    let renamed = Renamed { moved, replaced, exchanged: None };
    txn.store_reply(&renamed.reply());
    Ok(renamed)
}

/// Returns a new whiteout for a name, with the rights that it inherits in its directory.
fn whiteout(
    txn: &mut Txn<'_>,
    context: &Context,
    from: &DirEntryKey,
) -> Result<(Node, Rights), Error> {
    let kind = FileKind::CharDevice;
    let mode = NewMode::exactly(0);
    let new = NewInode { kind, mode, rdev: 0, target: Vec::new() };
    let (rnode, rights) = new_rnode_in(txn, context, from.dir, new)?;
    Ok((Node { rnode, location: from.location() }, rights))
}

/// Removes the node that has the new name of a rename.
fn remove_target(
    txn: &mut Txn<'_>,
    to: &DirEntryKey,
    node: &Node,
    target: Node,
) -> Result<Removed, Error> {
    match (is_directory(node), is_directory(&target)) {
        (true, false) => Err(Code::NotDirectory.into()),
        (false, true) => Err(Code::IsDirectory.into()),
        (false, false) => remove_file(txn, to, target, true),
        (true, true) => {
            expect_empty(txn, target.rnode.ino)?;
            remove_directory(txn, to, target, true)
        }
    }
}

/// Exchanges the names of two nodes.
fn exchange(
    txn: &mut Txn<'_>,
    from: &DirEntryKey,
    mut node: Node,
    to: &DirEntryKey,
    mut target: Node,
) -> Result<Renamed, Error> {
    txn.flag_dirty(from.dir);
    txn.flag_dirty(to.dir);
    txn.remove_name(from, &node, true);
    txn.remove_name(to, &target, true);
    touch(txn, &mut node);
    touch(txn, &mut target);
    let moved = move_node(txn, node, from, to);
    let attr = txn.attr_of(&target.rnode)?;
    let handle = move_node(txn, target, to, from);
    let exchanged = Some(Entry { handle, attr });
    let renamed = Renamed { moved, replaced: None, exchanged };
    txn.store_reply(&renamed.reply());
    Ok(renamed)
}

fn is_directory(node: &Node) -> bool {
    node.rnode.kind == FileKind::Directory
}

/// Sets the `ctime` of a node to the time of the rename.
fn touch(txn: &Txn<'_>, node: &mut Node) {
    node.rnode.ctime = later_than(node.rnode.ctime, txn.now);
    node.rnode.version += 1;
}

/// Adds the new name of a node whose old name was removed.
fn move_node(txn: &mut Txn<'_>, mut node: Node, from: &DirEntryKey, to: &DirEntryKey) -> Handle {
    let ino = node.rnode.ino;
    if matches!(node.location, RowLocation::Name { .. }) {
        node.location = to.location();
        node.rnode.flags.moved = true;
        txn.put(key::moved(ino), &Moved { dir: to.dir, hash: to.hash });
        txn.put_name(to, &node);
        let handle = node.handle();
        txn.cache_node(node);
        return handle;
    }
    if is_directory(&node) && from.dir != to.dir {
        txn.move_directory(ino, to.dir);
    }
    txn.put_name(to, &node);
    let handle = node.handle();
    if node.location == RowLocation::Own {
        txn.put_node(node);
    }
    handle
}
