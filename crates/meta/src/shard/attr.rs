//! Attributes.

use pelago_store::key;
use pelago_store::rows::{Rnode, Row};
use pelago_wire::{
    Attr, Code, Entry, Error, FileKind, Handle, InodeId, Reply, SetAttr, SetTime, Time,
};

use super::Shard;
use super::commit::without_privileges;
use super::lookup::later_than;
use crate::reply_cache::OpContext;
use pelago_store::volume::{SHARD, SITE};

impl Shard {
    /// The attributes as they are now.
    ///
    /// # Errors
    /// `Stale`.
    pub fn attr(&self, handle: Handle) -> Result<Attr, Error> {
        self.holds.refresh(handle.ino);
        let mut state = self.lock();
        let node = self.node(&mut state, handle)?;
        self.attr_of(&state, &node.rnode)
    }

    /// What a handle leads to, with its newest hint.
    ///
    /// # Errors
    /// `Stale`.
    pub fn found(&self, handle: Handle) -> Result<Entry, Error> {
        self.holds.refresh(handle.ino);
        let mut state = self.lock();
        let node = self.node(&mut state, handle)?;
        self.entry(&state, &node)
    }

    /// Whether a number may be a file's: it was given out here.
    pub fn gave_out(&self, ino: InodeId) -> bool {
        (ino.site(), ino.shard()) == (SITE, SHARD) && ino.counter() < self.lock().ids.next()
    }

    /// What a symbolic link says.
    ///
    /// # Errors
    /// `Stale`; `Invalid` where it is none.
    pub fn read_link(&self, handle: Handle) -> Result<Vec<u8>, Error> {
        let node = self.node(&mut self.lock(), handle)?;
        match node.rnode.kind {
            FileKind::Symlink => Ok(node.rnode.target),
            _ => Err(Code::Invalid.into()),
        }
    }

    /// Changes attributes in the row; a size is the business of whoever has the bytes, and so are
    /// the times of a file that is held and has a [`super::Live`].
    ///
    /// # Errors
    /// `Stale`; `Invalid` for a mode or a time out of range.
    pub fn set_attr(
        &self,
        handle: Handle,
        set: &SetAttr,
        asked: impl Into<OpContext>,
    ) -> Result<Attr, Error> {
        check(set)?;
        let asked = asked.into();
        let now = asked.now;
        self.holds.refresh(handle.ino);
        let mut state = self.lock();
        let mut node = self.node(&mut state, handle)?;
        change(&mut node.rnode, set, now);
        node.rnode.version += 1;
        if set.atime.is_some() {
            self.holds.read_is_known(handle.ino);
        }
        let mut tx = self.begin_tx(&state, asked);
        if set.mode.is_some() {
            self.put_mode_in_list(&mut tx, &node.rnode)?;
        }
        let mtime = set.mtime.map(|time| at(time, now));
        let is_directory = node.rnode.kind == FileKind::Directory;
        if is_directory {
            self.directory(&mut state, handle)?;
        }
        let before = state.directories.get(handle.ino).map(|directory| directory.mtime);
        if let Some(mtime) = mtime
            && is_directory
            && let Some(directory) = state.directories.get_mut(handle.ino)
        {
            // The partition's time is the one that is shown.
            directory.mtime = mtime;
            let row = directory.row(directory.marked);
            tx.batch.put(key::partition(handle.ino, 0), row.encode(tx.stamp));
        }
        let attr = self.attr_of(&state, &node.rnode);
        if let Ok(attr) = attr {
            tx.answer(&Reply::Attr(attr));
        }
        tx.put_node(node);
        if let Err(error) = self.finish_txn(&mut state, tx) {
            if let (Some(before), Some(directory)) = (before, state.directories.get_mut(handle.ino))
            {
                directory.mtime = before;
            }
            return Err(error);
        }
        attr
    }
}

fn check(set: &SetAttr) -> Result<(), Error> {
    let nanos = |time: Option<SetTime>| match time {
        Some(SetTime::To(time)) => time.nanos,
        _ => 0,
    };
    let times = [nanos(set.atime), nanos(set.mtime), set.ctime.map_or(0, |time| time.nanos)];
    if set.mode.is_some_and(|mode| mode > 0o7777) || times.iter().any(|n| *n > 999_999_999) {
        return Err(Code::Invalid.into());
    }
    Ok(())
}

fn change(rnode: &mut Rnode, set: &SetAttr, now: Time) {
    let changes_owner = set.uid.is_some() || set.gid.is_some();
    // A new owner of a file loses the privileges of the old one, whoever gives it to them.
    if (set.kill_privileges || changes_owner) && rnode.kind != FileKind::Directory {
        rnode.mode = without_privileges(rnode.mode);
        if set.kill_setgid {
            rnode.mode &= !0o2000;
        }
    }
    if let Some(mode) = set.mode {
        rnode.mode = mode;
    }
    rnode.uid = set.uid.unwrap_or(rnode.uid);
    rnode.gid = set.gid.unwrap_or(rnode.gid);
    if let Some(time) = set.atime {
        rnode.atime = at(time, now);
    }
    if let Some(time) = set.mtime {
        rnode.mtime = at(time, now);
    }
    rnode.ctime = set.ctime.unwrap_or_else(|| later_than(rnode.ctime, now));
}

fn at(time: SetTime, now: Time) -> Time {
    match time {
        SetTime::Now => now,
        SetTime::To(time) => time,
    }
}
