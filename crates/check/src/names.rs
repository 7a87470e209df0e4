//! The names of all directories, and the counts of those.

use std::ops::ControlFlow;

use pelago_store::key::{self, Key, RowKind};
use pelago_store::rows::{NameRow, ParentPointer, Partition, Rnode, Row};
use pelago_store::table::{self, Change};
use pelago_wire::{FileKind, InodeId, Name, NameHash};

use super::rebuild::put;
use super::{Check, CheckError, Damage, Repair};

/// The directory whose names are being read.
struct Here {
    dir: InodeId,
    exists: bool,
    names: u64,
    directories: u64,
}

impl Check<'_> {
    /// Reads every name: whether its directory is there, whether it leads anywhere, and how many
    /// there are.
    pub(super) fn names(&mut self) -> Result<(), CheckError> {
        let (table, range) = (self.table, key::all(RowKind::Name));
        let mut here: Option<Here> = None;
        let mut wrong = None;
        table.scan(
            &range.from,
            &range.to,
            &mut |key, value| match self.name(&mut here, key, value) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    wrong = Some(error);
                    ControlFlow::Break(())
                }
            },
        )?;
        wrong.map_or(Ok(()), Err)?;
        self.leave(here)?;
        Ok(())
    }

    fn name(
        &mut self,
        here: &mut Option<Here>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), table::Error> {
        self.plan.checked.rows += 1;
        let Some((dir, hash, name)) = key::parse_name(key) else {
            self.found_at(Damage::Key, key, None);
            return Ok(());
        };
        if here.as_ref().is_none_or(|here| here.dir != dir) {
            self.leave(here.take())?;
        }
        let exists = match here {
            Some(here) => here.exists,
            None => self.is_directory(dir)?,
        };
        let here = here.get_or_insert(Here { dir, exists, names: 0, directories: 0 });
        here.names += 1;
        let Ok((_, row)) = NameRow::decode(value) else {
            // Where the names of a file have it, it comes back in the next round.
            let repair = Repair::delete("remove the name; its bytes are kept", key);
            self.found_at(Damage::Row, key, Some(repair));
            return Ok(());
        };
        here.directories += u64::from(row.kind() == FileKind::Directory);
        let (exists, spot) = (here.exists, Spot { key, dir, hash, name });
        if !exists {
            return self.nowhere(&spot, row);
        }
        if self.hasher.hash(name) != hash || Name::new(name).is_err() {
            let repair = self.rehash(&spot, &row)?;
            self.found_at(Damage::NameHash, key, repair);
            return Ok(());
        }
        match row {
            NameRow::Rnode(rnode) => self.rnode_here(&spot, &rnode),
            NameRow::Link { ino, kind } => self.link(&spot, ino, kind)?,
        }
        Ok(())
    }

    /// A name in a directory that is not there.
    fn nowhere(&mut self, spot: &Spot<'_>, row: NameRow) -> Result<(), table::Error> {
        let repair = match row {
            NameRow::Rnode(rnode) => {
                let moved = self.move_to_root(spot.key, rnode)?;
                Repair::rows("give it a name in the root directory", moved)
            }
            NameRow::Link { ino, .. } => spot.remove(ino),
        };
        self.found_at(Damage::NameNowhere, spot.key, Some(repair));
        Ok(())
    }

    /// What puts a name where its hash leads; under another name if it is none, or if another file
    /// has it.
    fn rehash(&self, spot: &Spot<'_>, row: &NameRow) -> Result<Option<Repair>, table::Error> {
        let hash = self.hasher.hash(spot.name);
        let to = key::name(spot.dir, hash, spot.name);
        let is_name = Name::new(spot.name).is_ok();
        if !is_name || (to != spot.key && self.table.get(&to)?.is_some()) {
            return match row {
                NameRow::Rnode(rnode) => {
                    let moved = self.move_to_root(spot.key, rnode.clone())?;
                    Ok(Some(Repair::rows("give it a name in the root directory", moved)))
                }
                NameRow::Link { ino, .. } => Ok(is_name.then(|| spot.remove(*ino))),
            };
        }
        let mut changes = vec![Change::Delete(spot.key.to_vec()), put(to, row.encode(self.stamp))];
        if let NameRow::Link { ino, .. } = row {
            changes.push(Change::Delete(spot.parent_pointer(*ino)));
            let there = key::parent_pointer(*ino, spot.dir, hash, spot.name);
            changes.push(put(there, ParentPointer.encode(self.stamp)));
        }
        Ok(Some(Repair::rows("put it where its hash leads", changes)))
    }

    /// A file in the row of its only name.
    fn rnode_here(&mut self, spot: &Spot<'_>, rnode: &Rnode) {
        if rnode.kind == FileKind::Directory {
            let mut changes = vec![put(key::inode(rnode.ino), rnode.encode(self.stamp))];
            let link = NameRow::Link { ino: rnode.ino, kind: rnode.kind };
            changes.push(put(spot.key.to_vec(), link.encode(self.stamp)));
            changes.push(put(spot.parent_pointer(rnode.ino), ParentPointer.encode(self.stamp)));
            let repair = Repair::rows("give the directory a row of its own", changes);
            self.found_at(Damage::NameKind, spot.key, Some(repair));
        } else if rnode.links != 1 {
            let row = NameRow::Rnode(Rnode { links: 1, ..rnode.clone() });
            let repair = Repair::put("count again", spot.key.to_vec(), row.encode(self.stamp));
            self.found(Damage::Links, rnode.ino, Some(repair));
        }
    }

    /// A name that refers to a row of its own.
    fn link(&mut self, spot: &Spot<'_>, ino: InodeId, kind: FileKind) -> Result<(), table::Error> {
        let value = self.table.get(&key::inode(ino))?;
        let rnode = match value.as_deref().map(Rnode::decode) {
            Some(Ok((_, rnode))) => rnode,
            // Said where the rows of files are read.
            Some(Err(_)) => return Ok(()),
            None => {
                let gone = vec![
                    Change::Delete(spot.key.to_vec()),
                    Change::Delete(spot.parent_pointer(ino)),
                ];
                let repair = Repair::rows("remove the name", gone);
                self.found_at(Damage::NameOfNothing, spot.key, Some(repair));
                return Ok(());
            }
        };
        if rnode.kind != kind {
            let row = NameRow::Link { ino, kind: rnode.kind }.encode(self.stamp);
            let repair = Repair::put("say what it leads to", spot.key.to_vec(), row);
            self.found_at(Damage::NameKind, spot.key, Some(repair));
        }
        let listed = spot.parent_pointer(ino);
        if self.table.get(&listed)?.is_none() {
            let repair =
                Repair::put("list it among the names", listed, ParentPointer.encode(self.stamp));
            self.found_at(Damage::NameUnlisted, spot.key, Some(repair));
        }
        Ok(())
    }

    /// All names of a directory were read: are there as many as it says?
    fn leave(&mut self, here: Option<Here>) -> Result<(), table::Error> {
        let Some(here) = here.filter(|here| here.exists) else { return Ok(()) };
        let key = key::partition(here.dir, 0);
        let value = self.table.get(&key)?;
        // A row that cannot be read is said where those rows are.
        let row = match value.as_deref().map(Partition::decode) {
            None => Partition::default(),
            Some(Ok((_, row))) => row,
            Some(Err(_)) => return Ok(()),
        };
        let right = (row.names, row.directories) == (here.names, here.directories);
        if !row.dirty && !right {
            let times = self.times_of(here.dir, &row)?;
            let row = Partition { names: here.names, directories: here.directories, ..times };
            let repair = Repair::put("count again", key.clone(), row.encode(self.stamp));
            self.found_at(Damage::Counts, &key, Some(repair));
        }
        Ok(())
    }

    /// A partition whose times are right: where the row was missing, those of the directory.
    fn times_of(&self, dir: InodeId, row: &Partition) -> Result<Partition, table::Error> {
        if *row != Partition::default() {
            return Ok(row.clone());
        }
        let value = self.table.get(&key::inode(dir))?;
        let rnode = value.as_deref().and_then(|value| Rnode::decode(value).ok());
        let mtime = rnode.map_or(self.now, |(_, rnode)| rnode.mtime);
        Ok(Partition { mtime, ctime: mtime, ..Partition::default() })
    }

    /// Reads the counts of all directories: those without names, and those that are not there.
    pub(super) fn partitions(&mut self) -> Result<(), CheckError> {
        let (table, range) = (self.table, key::all(RowKind::Partition));
        let mut wrong = None;
        table.scan(&range.from, &range.to, &mut |key, value| match self.partition(key, value) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                wrong = Some(error);
                ControlFlow::Break(())
            }
        })?;
        wrong.map_or(Ok(()), |error| Err(error.into()))
    }

    fn partition(&mut self, key: &[u8], value: &[u8]) -> Result<(), table::Error> {
        self.plan.checked.rows += 1;
        let Some(Key::Partition { dir, index: 0 }) = Key::parse(key) else {
            self.found_at(Damage::Key, key, None);
            return Ok(());
        };
        let Ok((_, row)) = Partition::decode(value) else {
            let times = self.times_of(dir, &Partition::default())?;
            let dirty = Partition { dirty: true, ..times }.encode(self.stamp);
            let repair = Repair::put("count again", key.to_vec(), dirty);
            self.found_at(Damage::Row, key, Some(repair));
            return Ok(());
        };
        if !self.is_directory(dir)? {
            let repair = Repair::delete("remove the counts", key);
            self.found_at(Damage::Counts, key, Some(repair));
        } else if row.names > 0 && !row.dirty && self.is_empty(dir)? {
            let row = Partition { names: 0, directories: 0, ..row }.encode(self.stamp);
            let repair = Repair::put("count again", key.to_vec(), row);
            self.found_at(Damage::Counts, key, Some(repair));
        }
        Ok(())
    }

    /// Whether there is a directory with this number, or a row that might be one and cannot be
    /// read.
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

/// A name and where it stands.
struct Spot<'k> {
    key: &'k [u8],
    dir: InodeId,
    hash: NameHash,
    name: &'k [u8],
}

impl Spot<'_> {
    /// What removes this name of a file that has a row of its own.
    fn remove(&self, ino: InodeId) -> Repair {
        let gone =
            vec![Change::Delete(self.key.to_vec()), Change::Delete(self.parent_pointer(ino))];
        Repair::rows("remove the name; a file without another gets one in the root directory", gone)
    }

    fn parent_pointer(&self, ino: InodeId) -> Vec<u8> {
        key::parent_pointer(ino, self.dir, self.hash, self.name)
    }
}
