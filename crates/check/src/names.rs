//! The check of the names of all directories, and of the directories' counts of them.

use std::ops::ControlFlow;

use pelago_store::key::{self, Key, RowKind};
use pelago_store::rows::{NameRow, ParentPointer, Partition, Rnode, Row};
use pelago_store::table::{self, Change};
use pelago_wire::{FileKind, InodeId, Name, NameHash};

use super::rebuild::put;
use super::{Check, CheckError, Damage, Repair};

/// The directory whose names are being read, and how many were read.
struct DirTotals {
    dir: InodeId,
    exists: bool,
    names: u64,
    directories: u64,
}

impl Check<'_> {
    /// Checks every name: that its directory and its inode exist, and that counts are right.
    pub(super) fn names(&mut self) -> Result<(), CheckError> {
        let mut totals: Option<DirTotals> = None;
        self.each(&key::all(RowKind::Name), |check, key, value| {
            check.name(&mut totals, key, value)
        })?;
        self.compare_counts(totals)?;
        Ok(())
    }

    fn name(
        &mut self,
        totals: &mut Option<DirTotals>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), table::Error> {
        let Some((dir, hash, name)) = key::parse_name(key) else {
            self.report_row(Damage::Key, key, None);
            return Ok(());
        };
        if totals.as_ref().is_none_or(|totals| totals.dir != dir) {
            self.compare_counts(totals.take())?;
        }
        let exists = match totals {
            Some(totals) => totals.exists,
            None => self.is_directory(dir)?,
        };
        let totals = totals.get_or_insert(DirTotals { dir, exists, names: 0, directories: 0 });
        totals.names += 1;
        let Ok((_, row)) = NameRow::decode(value) else {
            // If the inode has a row of its own, the next round restores the name from the inode's
            // parent pointer.
            let repair = Repair::delete("remove the name; its bytes are kept", key);
            self.report_row(Damage::Row, key, Some(repair));
            return Ok(());
        };
        totals.directories += u64::from(row.kind() == FileKind::Directory);
        let exists = totals.exists;
        let entry = NameEntry { key, dir, hash, name };
        if !exists {
            return self.without_directory(&entry, row);
        }
        if self.hasher.hash(name) != hash || Name::new(name).is_err() {
            let repair = self.rehash(&entry, &row)?;
            self.report_row(Damage::NameHash, key, repair);
            return Ok(());
        }
        match row {
            NameRow::Rnode(rnode) => self.rnode_of_name(&entry, &rnode),
            NameRow::Link { ino, kind } => self.link(&entry, ino, kind)?,
        }
        Ok(())
    }

    /// Reports a name in a directory that does not exist.
    fn without_directory(
        &mut self,
        entry: &NameEntry<'_>,
        row: NameRow,
    ) -> Result<(), table::Error> {
        let repair = match row {
            NameRow::Rnode(rnode) => {
                let moved = self.move_lost(entry.key, rnode)?;
                Repair::rows(self.gives_a_name(), moved)
            }
            // Without any name it would count as one that has its name at another site.
            NameRow::Link { ino, kind: FileKind::Directory } if self.has_sites => {
                let moved = self.move_link(ino, entry.key, &entry.parent_pointer(ino))?;
                Repair::rows(self.gives_a_name(), moved)
            }
            NameRow::Link { ino, .. } => entry.remove(ino),
        };
        self.report_row(Damage::NameNowhere, entry.key, Some(repair));
        Ok(())
    }

    /// Returns the repair that stores a name under the right hash. The file gets another name if
    /// this one is invalid, or if another file has it.
    fn rehash(&self, entry: &NameEntry<'_>, row: &NameRow) -> Result<Option<Repair>, table::Error> {
        let hash = self.hasher.hash(entry.name);
        let to = key::name(entry.dir, hash, entry.name);
        let is_name = Name::new(entry.name).is_ok();
        if !is_name || (to != entry.key && self.table.get(&to)?.is_some()) {
            return match row {
                NameRow::Rnode(rnode) => {
                    let moved = self.move_lost(entry.key, rnode.clone())?;
                    Ok(Some(Repair::rows(self.gives_a_name(), moved)))
                }
                NameRow::Link { ino, .. } => Ok(is_name.then(|| entry.remove(*ino))),
            };
        }
        let mut changes = vec![Change::Delete(entry.key.to_vec()), put(to, row.encode(self.stamp))];
        if let NameRow::Link { ino, .. } = row {
            changes.push(Change::Delete(entry.parent_pointer(*ino)));
            let there = key::parent_pointer(*ino, entry.dir, hash, entry.name);
            changes.push(put(there, ParentPointer.encode(self.stamp)));
        }
        Ok(Some(Repair::rows("store it under the right hash", changes)))
    }

    /// Checks an rnode in the row of its only name.
    fn rnode_of_name(&mut self, entry: &NameEntry<'_>, rnode: &Rnode) {
        if rnode.kind == FileKind::Directory {
            let mut changes = vec![put(key::inode(rnode.ino), rnode.encode(self.stamp))];
            let link = NameRow::Link { ino: rnode.ino, kind: rnode.kind };
            changes.push(put(entry.key.to_vec(), link.encode(self.stamp)));
            changes.push(put(entry.parent_pointer(rnode.ino), ParentPointer.encode(self.stamp)));
            let repair = Repair::rows("give the directory a row of its own", changes);
            self.report_row(Damage::NameKind, entry.key, Some(repair));
        } else if rnode.links != 1 {
            let row = NameRow::Rnode(Rnode { links: 1, ..rnode.clone() });
            let repair = Repair::put("count again", entry.key.to_vec(), row.encode(self.stamp));
            self.report_inode(Damage::Links, rnode.ino, Some(repair));
        }
    }

    /// Checks a name that refers to an inode with a row of its own.
    fn link(
        &mut self,
        entry: &NameEntry<'_>,
        ino: InodeId,
        kind: FileKind,
    ) -> Result<(), table::Error> {
        let value = self.table.get(&key::inode(ino))?;
        let rnode = match value.as_deref().map(Rnode::decode) {
            Some(Ok((_, rnode))) => rnode,
            // The check of the inodes reports it.
            Some(Err(_)) => return Ok(()),
            None if self.is_elsewhere(ino) && kind == FileKind::Directory => {
                let listed = entry.parent_pointer(ino);
                if self.table.get(&listed)?.is_none() {
                    let row = ParentPointer.encode(self.stamp);
                    let repair = Repair::put("add the parent pointer", listed, row);
                    self.report_row(Damage::NameUnlisted, entry.key, Some(repair));
                }
                return Ok(());
            }
            None => {
                let gone = vec![
                    Change::Delete(entry.key.to_vec()),
                    Change::Delete(entry.parent_pointer(ino)),
                ];
                let repair = Repair::rows("remove the name", gone);
                self.report_row(Damage::NameOfNothing, entry.key, Some(repair));
                return Ok(());
            }
        };
        if rnode.kind != kind {
            let row = NameRow::Link { ino, kind: rnode.kind }.encode(self.stamp);
            let repair = Repair::put("correct the type", entry.key.to_vec(), row);
            self.report_row(Damage::NameKind, entry.key, Some(repair));
        }
        let listed = entry.parent_pointer(ino);
        if self.table.get(&listed)?.is_none() {
            let repair =
                Repair::put("add the parent pointer", listed, ParentPointer.encode(self.stamp));
            self.report_row(Damage::NameUnlisted, entry.key, Some(repair));
        }
        Ok(())
    }

    /// Compares the counts of a directory whose names were all read.
    fn compare_counts(&mut self, totals: Option<DirTotals>) -> Result<(), table::Error> {
        let Some(totals) = totals.filter(|totals| totals.exists) else { return Ok(()) };
        let key = key::partition(totals.dir, 0);
        let value = self.table.get(&key)?;
        // `partitions` reports a row that cannot be read.
        let row = match value.as_deref().map(Partition::decode) {
            None => Partition::default(),
            Some(Ok((_, row))) => row,
            Some(Err(_)) => return Ok(()),
        };
        let right = (row.names, row.directories) == (totals.names, totals.directories);
        if !row.dirty && !right {
            let times = self.times_of(totals.dir, &row)?;
            let row = Partition { names: totals.names, directories: totals.directories, ..times };
            let repair = Repair::put("count again", key.clone(), row.encode(self.stamp));
            self.report_row(Damage::Counts, &key, Some(repair));
        }
        Ok(())
    }

    /// Returns a partition with the right times: those of the directory if its row was missing.
    fn times_of(&self, dir: InodeId, row: &Partition) -> Result<Partition, table::Error> {
        if *row != Partition::default() {
            return Ok(row.clone());
        }
        let value = self.table.get(&key::inode(dir))?;
        let rnode = value.as_deref().and_then(|value| Rnode::decode(value).ok());
        let mtime = rnode.map_or(self.now, |(_, rnode)| rnode.mtime);
        Ok(Partition { mtime, ctime: mtime, ..Partition::default() })
    }

    /// Checks the counts of directories without names, and of directories that do not exist.
    pub(super) fn partitions(&mut self) -> Result<(), CheckError> {
        self.each(&key::all(RowKind::Partition), Self::partition)
    }

    fn partition(&mut self, key: &[u8], value: &[u8]) -> Result<(), table::Error> {
        let Some(Key::Partition { dir, index: 0 }) = Key::parse(key) else {
            self.report_row(Damage::Key, key, None);
            return Ok(());
        };
        let Ok((_, row)) = Partition::decode(value) else {
            let times = self.times_of(dir, &Partition::default())?;
            let dirty = Partition { dirty: true, ..times }.encode(self.stamp);
            let repair = Repair::put("count again", key.to_vec(), dirty);
            self.report_row(Damage::Row, key, Some(repair));
            return Ok(());
        };
        if !self.is_directory(dir)? {
            let repair = Repair::delete("remove the counts", key);
            self.report_row(Damage::Counts, key, Some(repair));
        } else if row.names > 0 && !row.dirty && self.is_empty(dir)? {
            let row = Partition { names: 0, directories: 0, ..row }.encode(self.stamp);
            let repair = Repair::put("count again", key.to_vec(), row);
            self.report_row(Damage::Counts, key, Some(repair));
        }
        Ok(())
    }

    /// Returns whether a directory with this id exists. A row that cannot be read counts as one.
    pub(super) fn is_directory(&self, ino: InodeId) -> Result<bool, table::Error> {
        let value = self.table.get(&key::inode(ino))?;
        Ok(match value.as_deref().map(Rnode::decode) {
            None => false,
            Some(Err(_)) => true,
            Some(Ok((_, rnode))) => rnode.kind == FileKind::Directory,
        })
    }

    fn is_empty(&self, dir: InodeId) -> Result<bool, table::Error> {
        let range = key::names_of_dir(dir);
        let mut empty = true;
        self.table.scan(&range.from, &range.to, &mut |_, _| {
            empty = false;
            ControlFlow::Break(())
        })?;
        Ok(empty)
    }
}

/// A name and the row that has it.
struct NameEntry<'k> {
    key: &'k [u8],
    dir: InodeId,
    hash: NameHash,
    name: &'k [u8],
}

impl NameEntry<'_> {
    /// Returns the repair that removes this name of an inode with a row of its own.
    fn remove(&self, ino: InodeId) -> Repair {
        let gone =
            vec![Change::Delete(self.key.to_vec()), Change::Delete(self.parent_pointer(ino))];
        Repair::rows(
            "remove the name; a file without another name gets one, as all that is lost",
            gone,
        )
    }

    fn parent_pointer(&self, ino: InodeId) -> Vec<u8> {
        key::parent_pointer(ino, self.dir, self.hash, self.name)
    }
}
