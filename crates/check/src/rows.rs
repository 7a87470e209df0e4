//! The rows that are kept by a file's number: each belongs to a file, and says what the file says.

use std::ops::ControlFlow;

use pelago_store::key::{self, Key, KeyRange, RowKind};
use pelago_store::rows::{
    CachedReply, HighWater, Identity, Inline, Moved, NameRow, Orphan, ParentPointer, Row, Writing,
    Xattr, XattrNames,
};
use pelago_store::table;
use pelago_wire::{FileKind, InodeId, NameHash};

use super::nodes::{Known, Window};
use super::{Check, CheckError, Damage, Repair};
use pelago_wire::xattr::{ACL_ACCESS, ACL_DEFAULT};

/// Kinds of rows that belong to a file.
const BY_NUMBER: [RowKind; 7] = [
    RowKind::ParentPointer,
    RowKind::Moved,
    RowKind::Orphan,
    RowKind::Writing,
    RowKind::Inline,
    RowKind::Xattr,
    RowKind::XattrNames,
];

impl Check<'_> {
    /// Reads what is kept of the files of a window.
    pub(super) fn by_number(&mut self, window: &mut Window) -> Result<(), CheckError> {
        for kind in BY_NUMBER {
            let range = range_of(kind, window.low, window.high);
            self.each(&range, |check, key, value| check.beside_row(window, key, value))?;
        }
        Ok(())
    }

    /// Reads the rows that belong to no file.
    pub(super) fn others(&mut self) -> Result<(), CheckError> {
        self.each(&key::all(RowKind::CachedReply), |check, key, value| {
            if Key::parse(key).is_none() || CachedReply::decode(value).is_err() {
                let repair = Repair::delete("forget the answer", key);
                check.found_at(Damage::Row, key, Some(repair));
            }
            Ok(())
        })?;
        self.each(&key::all(RowKind::Volume), |check, key, value| {
            let whole = match Key::parse(key) {
                Some(Key::Volume { row: key::VolumeRow::Identity }) => true,
                Some(Key::Volume { row: key::VolumeRow::HighWater(_) }) => {
                    HighWater::decode(value).is_ok()
                }
                _ => false,
            };
            if !whole {
                // Where it goes on is written anew, see `Damage::Number`.
                check.found_at(Damage::Row, key, None);
            }
            Ok(())
        })?;
        self.identity()
    }

    /// Whose table it is.
    fn identity(&mut self) -> Result<(), CheckError> {
        let (key, volume) = (key::volume_row(key::VolumeRow::Identity), self.volume);
        let value = self.table.get(&key)?;
        let found = value.as_deref().and_then(|value| Identity::decode(value).ok());
        match found {
            Some((_, identity)) if identity.volume == volume => Ok(()),
            Some((_, Identity { volume: found })) => {
                Err(CheckError::Foreign { found, wanted: volume })
            }
            None => {
                let row = Identity { volume }.encode(self.stamp);
                let repair = Repair::put("say whose it is", key.clone(), row);
                self.found_at(Damage::Row, &key, Some(repair));
                Ok(())
            }
        }
    }

    fn each(
        &mut self,
        range: &KeyRange,
        mut visit: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), table::Error>,
    ) -> Result<(), CheckError> {
        let table = self.table;
        let mut wrong = None;
        table.scan(&range.from, &range.to, &mut |key, value| {
            self.plan.checked.rows += 1;
            match visit(self, key, value) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    wrong = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        wrong.map_or(Ok(()), |error| Err(error.into()))
    }

    fn beside_row(
        &mut self,
        window: &mut Window,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), table::Error> {
        let Some(parsed) = Key::parse(key) else {
            self.found_at(Damage::Key, key, None);
            return Ok(());
        };
        match parsed {
            Key::ParentPointer { ino, dir, hash, name } => {
                let spot = (dir, hash, name);
                return self.listed(window.nodes.get_mut(&ino), ino, spot, (key, value));
            }
            Key::Moved { ino } => self.moved(window.nodes.get_mut(&ino), ino, (key, value)),
            Key::Orphan { ino } => self.orphan(window.nodes.get_mut(&ino), ino, (key, value)),
            Key::Writing { ino } => {
                return self.writing(window.nodes.get_mut(&ino), ino, (key, value));
            }
            Key::Inline { ino } => {
                return self.inline(window.nodes.get_mut(&ino), ino, (key, value));
            }
            Key::Xattr { ino, name } => {
                return self.xattr(window.nodes.get_mut(&ino), (ino, name), (key, value));
            }
            Key::XattrNames { ino } => {
                return self.xattr_names(window.nodes.get_mut(&ino), ino, (key, value));
            }
            _ => self.found_at(Damage::Key, key, None),
        }
        Ok(())
    }

    /// One of the names of a file, as they are listed with it.
    fn listed(
        &mut self,
        known: Option<&mut Known>,
        ino: InodeId,
        (dir, hash, name): (InodeId, NameHash, &[u8]),
        (key, value): (&[u8], &[u8]),
    ) -> Result<(), table::Error> {
        let Some(known) = known.filter(|known| known.place.is_none()) else {
            // Where the file's row cannot be read, its names are kept until that is decided.
            if self.table.get(&key::inode(ino))?.is_none() {
                let repair = Repair::delete("remove it from the list", key);
                self.found_at(Damage::NameMissing, key, Some(repair));
            }
            return Ok(());
        };
        if ParentPointer::decode(value).is_err() {
            let repair =
                Repair::put("write it anew", key.to_vec(), ParentPointer.encode(self.stamp));
            self.found_at(Damage::Row, key, Some(repair));
        }
        let name_key = key::name(dir, hash, name);
        let row = self.table.get(&name_key)?;
        let leads = row.as_deref().map(|value| NameRow::decode(value).map(|(_, row)| row.ino()));
        match leads {
            Some(Ok(there)) if there == ino => known.seen.names += 1,
            Some(Ok(_)) => {
                let repair = Repair::delete("remove it from the list", key);
                self.found_at(Damage::NameMissing, key, Some(repair));
            }
            None | Some(Err(_)) if !self.is_directory(dir)? => {
                let repair = Repair::delete("remove it from the list", key);
                self.found_at(Damage::NameMissing, key, Some(repair));
            }
            None | Some(Err(_)) => {
                known.seen.names += 1;
                let link = NameRow::Link { ino, kind: known.kind }.encode(self.stamp);
                let repair = Repair::put("put the name back", name_key, link);
                self.found_at(Damage::NameMissing, key, Some(repair));
            }
        }
        Ok(())
    }

    fn moved(&mut self, known: Option<&mut Known>, ino: InodeId, (key, value): (&[u8], &[u8])) {
        let row = Moved::decode(value).map(|(_, moved)| (moved.dir, moved.hash));
        let Some(known) = known.filter(|known| known.place.is_some()) else {
            let repair = Repair::delete("remove it", key);
            self.found_at(Damage::Moved, key, Some(repair));
            return;
        };
        known.seen.moved = true;
        let place = known.place;
        if row.ok() != place
            && let Some((dir, hash)) = place
        {
            let right = Moved { dir, hash }.encode(self.stamp);
            self.found(Damage::Moved, ino, Some(Repair::put("correct it", key.to_vec(), right)));
        }
    }

    fn orphan(&mut self, known: Option<&mut Known>, ino: InodeId, (key, value): (&[u8], &[u8])) {
        let whole = Orphan::decode(value).is_ok();
        let Some(known) = known else {
            if !whole {
                // A content file that it named is found without an owner then.
                self.found_at(Damage::Row, key, Some(Repair::delete("remove it", key)));
            }
            return;
        };
        known.seen.orphan = true;
        let content = known.content;
        if !whole {
            let right = Orphan { generation: content }.encode(self.stamp);
            self.found(Damage::Row, ino, Some(Repair::put("correct it", key.to_vec(), right)));
        }
    }

    fn writing(
        &mut self,
        known: Option<&mut Known>,
        ino: InodeId,
        (key, value): (&[u8], &[u8]),
    ) -> Result<(), table::Error> {
        let mark = Writing::decode(value).ok().map(|(_, mark)| mark.generation);
        if let Some(known) = known
            && known.content.is_some()
        {
            known.seen.writing = true;
            if mark != known.content {
                let repair = Repair::delete("remove the mark", key);
                self.found(Damage::MarkStray, ino, Some(repair));
            }
        } else if self.table.get(&key::orphan(ino))?.is_none() {
            let repair = Repair::delete("remove the mark", key);
            self.found(Damage::MarkStray, ino, Some(repair));
        }
        Ok(())
    }

    fn inline(
        &mut self,
        known: Option<&mut Known>,
        ino: InodeId,
        (key, value): (&[u8], &[u8]),
    ) -> Result<(), table::Error> {
        let bytes = Inline::decode(value).ok().map(|(_, row)| row.bytes.len());
        let Some(known) = known else {
            let repair = match bytes {
                Some(bytes) if self.adopt => Repair::rows(
                    "give it a name in the root directory",
                    self.adopt_inline(ino, bytes)?,
                ),
                _ => Repair::delete("remove them", key),
            };
            self.found(Damage::InlineStray, ino, Some(repair));
            return Ok(());
        };
        let Some(bytes) = bytes else {
            // Seen as missing too: both repairs leave an empty file.
            self.found(Damage::Row, ino, Some(Repair::delete("remove them", key)));
            return Ok(());
        };
        if known.content.is_some() || known.kind != FileKind::Regular {
            let repair = Repair::delete("remove them", key);
            known.seen.inline = known.inline;
            self.found(Damage::InlineStray, ino, Some(repair));
            return Ok(());
        }
        known.seen.inline = true;
        if known.size != bytes as u64 {
            let known = *known;
            let says = "take the size of its bytes";
            let repair = self.rewrite(ino, &known, says, |rnode| rnode.size = bytes as u64)?;
            self.found(Damage::InlineSize, ino, repair);
        }
        Ok(())
    }

    fn xattr(
        &mut self,
        known: Option<&mut Known>,
        (ino, name): (InodeId, &[u8]),
        (key, value): (&[u8], &[u8]),
    ) -> Result<(), table::Error> {
        let Some(known) = known else { return self.stray_xattr(ino, key) };
        if Xattr::decode(value).is_err() {
            self.found_at(Damage::Row, key, Some(Repair::delete("remove it", key)));
            return Ok(());
        }
        let seen = &mut known.seen.xattrs;
        seen.any = true;
        seen.access |= name == ACL_ACCESS;
        seen.default |= name == ACL_DEFAULT;
        if name != ACL_ACCESS && name != ACL_DEFAULT {
            known.seen.names_of_xattrs.add(name);
        }
        Ok(())
    }

    fn xattr_names(
        &mut self,
        known: Option<&mut Known>,
        ino: InodeId,
        (key, value): (&[u8], &[u8]),
    ) -> Result<(), table::Error> {
        let Some(known) = known else { return self.stray_xattr(ino, key) };
        match XattrNames::decode(value) {
            Ok((_, row)) => {
                let names = row.names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
                names.for_each(|name| known.seen.listed_xattrs.add(name));
            }
            // They are listed anew.
            Err(_) => self.found_at(Damage::Row, key, Some(Repair::delete("remove it", key))),
        }
        Ok(())
    }

    /// A file that waits to be removed may have left many.
    fn stray_xattr(&mut self, ino: InodeId, key: &[u8]) -> Result<(), table::Error> {
        if self.table.get(&key::orphan(ino))?.is_none() {
            let repair = Repair::delete("remove it", key);
            self.found(Damage::XattrStray, ino, Some(repair));
        }
        Ok(())
    }
}

/// The rows of a kind that is kept by number, of the numbers from `low` to `high`.
fn range_of(kind: RowKind, low: InodeId, high: InodeId) -> KeyRange {
    let at = |ino| match kind {
        RowKind::ParentPointer => key::parent_pointers_of(ino).from,
        RowKind::Moved => key::moved(ino),
        RowKind::Orphan => key::orphan(ino),
        RowKind::Writing => key::writing(ino),
        RowKind::Inline => key::inline(ino),
        RowKind::XattrNames => key::xattr_names(ino),
        _ => key::xattrs_of(ino).from,
    };
    let to = match high.raw().checked_add(1) {
        Some(next) => at(InodeId::from_raw(next)),
        None => key::all(kind).to,
    };
    KeyRange { from: at(low), to }
}
