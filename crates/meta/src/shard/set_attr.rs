//! Changes of attributes.

use pelago_store::key;
use pelago_store::rows::Rnode;
use pelago_wire::{Attr, Code, Error, FileKind, Handle, Reply, SetAttr, SetTime, Time};

use super::Shard;
use super::file_bytes::without_privileges;
use super::lookup::later_than;
use super::txn::Txn;
use crate::reply_cache::OpContext;

impl Shard {
    /// Changes attributes in the row. The caller itself changes a size, and the times of an open
    /// file that has [`LiveAttrs`](crate::shard::LiveAttrs).
    ///
    /// # Errors
    /// `Stale`; `Invalid` for a mode or a time out of range.
    pub fn set_attr(
        &self,
        handle: Handle,
        set: &SetAttr,
        op: impl Into<OpContext>,
    ) -> Result<Attr, Error> {
        check(set)?;
        self.open_inodes.refresh(handle.ino);
        let mut txn = self.begin(op);
        let attr = set_attr(&mut txn, handle, set)?;
        txn.commit()?;
        Ok(attr)
    }
}

/// Checks values that have a range.
///
/// # Errors
/// `Invalid` for a mode or a time out of range.
pub(super) fn check(set: &SetAttr) -> Result<(), Error> {
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

/// Changes attributes in the row, except a size. Returns all attributes after the change.
///
/// # Errors
/// `Stale`; `Corrupt` if the file's access control list is damaged.
pub(super) fn set_attr(txn: &mut Txn<'_>, handle: Handle, set: &SetAttr) -> Result<Attr, Error> {
    let mut node = txn.node(handle)?;
    let now = txn.now;
    change(&mut node.rnode, set, now);
    node.rnode.version += 1;
    if set.atime.is_some() {
        txn.shard.open_inodes.read_time_is_known(handle.ino);
    }
    if set.mode.is_some() {
        super::acl::follow_mode(txn, &node.rnode)?;
    }
    let is_directory = node.rnode.kind == FileKind::Directory;
    if is_directory {
        txn.load_directory(handle)?;
    }
    let mut attr = txn.attr_of(&node.rnode)?;
    if let Some(mtime) = set.mtime.filter(|_| is_directory).map(|time| at(time, now)) {
        set_directory_mtime(txn, handle, mtime);
        attr.mtime = mtime;
    }
    txn.store_reply(&Reply::Attr(attr));
    txn.put_node(node);
    Ok(attr)
}

/// Sets the modification time of a directory in its partition, which has the time that `stat`
/// shows.
fn set_directory_mtime(txn: &mut Txn<'_>, dir: Handle, mtime: Time) {
    let Some(directory) = txn.state.directories.get(dir.ino) else { return };
    let mut row = directory.row(directory.is_dirty_in_table);
    row.mtime = mtime;
    txn.put(key::partition(dir.ino, 0), &row);
    txn.set_directory_mtime(dir.ino, mtime);
}

fn change(rnode: &mut Rnode, set: &SetAttr, now: Time) {
    let changes_owner = set.uid.is_some() || set.gid.is_some();
    // The setuid and setgid bits grant rights of the old owner, so any change of the owner clears
    // them.
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
