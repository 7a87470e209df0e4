//! The check of the rows that belong to an inode beside its rnode (parent pointers, moved, orphan,
//! `writing`, inline, extended attributes), and of the few that belong to none.

use pelago_store::key::{self, Key, KeyRange, RowKind};
use pelago_store::rows::{
    AncestryRow, CachedReply, HighWater, Identity, IndexCommits, Inline, IntentRow, MirrorRow,
    Moved, NameRow, Orphan, ParentPointer, Promotions, RevocationRow, Row, SiteListRow, SiteRow,
    SiteTokensRow, StayRow, Writing, Xattr, XattrNames,
};
use pelago_store::table;
use pelago_wire::xattr::{ACL_ACCESS, ACL_DEFAULT};
use pelago_wire::{FileKind, InodeId, SessionRecord};

use super::window::{InodeFacts, Window};
use super::{Check, CheckError, Damage, Repair};

/// The kinds of rows that are checked here with their inode. Rnodes, names, partitions and tags
/// have checks of their own.
const BY_INODE: [RowKind; 7] = [
    RowKind::ParentPointer,
    RowKind::Moved,
    RowKind::Orphan,
    RowKind::Writing,
    RowKind::Inline,
    RowKind::Xattr,
    RowKind::XattrNames,
];

/// The bytes of a row, as the table has them.
#[derive(Clone, Copy)]
struct RawRow<'a> {
    key: &'a [u8],
    value: &'a [u8],
}

impl Check<'_> {
    /// Checks the rows that belong to the inodes of a window.
    pub(super) fn rows_by_inode(&mut self, window: &mut Window) -> Result<(), CheckError> {
        for kind in BY_INODE {
            let range = range_of(kind, window.low, window.high);
            self.each(&range, |check, key, value| check.row_by_inode(window, key, value))?;
        }
        Ok(())
    }

    /// Checks the rows that belong to no inode of this site: cached replies, sessions, sites,
    /// directories of other sites, changes of two sites, revocations, and those of the volume.
    pub(super) fn others(&mut self) -> Result<(), CheckError> {
        self.each(&key::all(RowKind::CachedReply), |check, key, value| {
            if Key::parse(key).is_none() || CachedReply::decode(value).is_err() {
                let repair = Repair::delete("remove the cached reply", key);
                check.report_row(Damage::Row, key, Some(repair));
            }
            Ok(())
        })?;
        self.each(&key::all(RowKind::Session), |check, key, value| {
            if Key::parse(key).is_none() || SessionRecord::decode(value).is_err() {
                let repair = Repair::delete("forget the session", key);
                check.report_row(Damage::Row, key, Some(repair));
            }
            Ok(())
        })?;
        self.each(&key::all(RowKind::Site), |check, key, value| {
            if Key::parse(key).is_none() || SiteRow::decode(value).is_err() {
                // No other row has the data of the site.
                check.report_row(Damage::Row, key, None);
            }
            Ok(())
        })?;
        self.each(&key::all(RowKind::Ancestry), |check, key, value| {
            let is_whole = match Key::parse(key) {
                Some(Key::Ancestry { ino }) => {
                    check.is_elsewhere(ino) && AncestryRow::decode(value).is_ok()
                }
                _ => false,
            };
            if !is_whole {
                // The next walk writes it again.
                let repair = Repair::delete("forget the directory of the other site", key);
                check.report_row(Damage::Row, key, Some(repair));
            }
            Ok(())
        })?;
        self.each(&key::all(RowKind::Stay), |check, key, value| {
            let is_whole = match Key::parse(key) {
                Some(Key::Stay { ino }) => {
                    !check.is_elsewhere(ino) && StayRow::decode(value).is_ok()
                }
                _ => false,
            };
            if !is_whole {
                // No other row says to which file of another site the bytes belong.
                check.report_row(Damage::Row, key, None);
            }
            Ok(())
        })?;
        self.each(&key::all(RowKind::Intent), |check, key, value| {
            if Key::parse(key).is_none() || IntentRow::decode(value).is_err() {
                // The directory stays as it is: with its name, or without one.
                let repair = Repair::delete("forget the change of two sites", key);
                check.report_row(Damage::Row, key, Some(repair));
            }
            Ok(())
        })?;
        self.each(&key::all(RowKind::Revocation), |check, key, value| {
            if Key::parse(key).is_none() || RevocationRow::decode(value).is_err() {
                // The key alone revokes the credential: the row stays.
                check.report_row(Damage::Row, key, None);
            }
            Ok(())
        })?;
        self.each(&key::all(RowKind::Volume), |check, key, value| {
            let whole = match Key::parse(key) {
                Some(Key::Volume { row: key::VolumeRow::Identity }) => true,
                Some(Key::Volume { row: key::VolumeRow::HighWater(_) }) => {
                    HighWater::decode(value).is_ok()
                }
                Some(Key::Volume { row: key::VolumeRow::SiteList }) => {
                    SiteListRow::decode(value).is_ok()
                }
                Some(Key::Volume { row: key::VolumeRow::SiteTokens(_) }) => {
                    SiteTokensRow::decode(value).is_ok()
                }
                Some(Key::Volume { row: key::VolumeRow::Promotions }) => {
                    Promotions::decode(value).is_ok()
                }
                Some(Key::Volume { row: key::VolumeRow::Mirror }) => {
                    MirrorRow::decode(value).is_ok()
                }
                _ => false,
            };
            if let Some(Key::Volume { row: key::VolumeRow::IndexCommits(_) }) = Key::parse(key) {
                if IndexCommits::decode(value).is_err() {
                    let repair = Repair::delete("build the search index again", key);
                    check.report_row(Damage::Row, key, Some(repair));
                }
                return Ok(());
            }
            if !whole {
                // `Damage::Number` writes a damaged high-water mark anew.
                check.report_row(Damage::Row, key, None);
            }
            Ok(())
        })?;
        self.identity()
    }

    /// Checks that the table belongs to the volume.
    fn identity(&mut self) -> Result<(), CheckError> {
        let key = key::volume_row(key::VolumeRow::Identity);
        let volume = self.volume;
        let value = self.table.get(&key)?;
        let found = value.as_deref().and_then(|value| Identity::decode(value).ok());
        match found {
            Some((_, identity)) if identity.volume == volume => Ok(()),
            Some((_, Identity { volume: found })) => {
                Err(CheckError::Foreign { found, wanted: volume })
            }
            None => {
                let row = Identity { volume }.encode(self.stamp);
                let repair = Repair::put("write the id of this volume", key.clone(), row);
                self.report_row(Damage::Row, &key, Some(repair));
                Ok(())
            }
        }
    }

    fn row_by_inode(
        &mut self,
        window: &mut Window,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), table::Error> {
        let Some(parsed) = Key::parse(key) else {
            self.report_row(Damage::Key, key, None);
            return Ok(());
        };
        let row = RawRow { key, value };
        match parsed {
            Key::ParentPointer { ino, dir, hash, name } => {
                let facts = window.inodes.get_mut(&ino);
                let name_key = key::name(dir, hash, name);
                return self.parent_pointer(facts, ino, dir, name_key, row);
            }
            Key::Moved { ino } => self.moved(window.inodes.get_mut(&ino), ino, row),
            Key::Orphan { ino } => self.orphan(window.inodes.get_mut(&ino), ino, row),
            Key::Writing { ino } => {
                return self.writing(window.inodes.get_mut(&ino), ino, row);
            }
            Key::Inline { ino } => {
                return self.inline(window.inodes.get_mut(&ino), ino, row);
            }
            Key::Xattr { ino, name } => {
                return self.xattr(window.inodes.get_mut(&ino), ino, name, row);
            }
            Key::XattrNames { ino } => {
                return self.xattr_names(window.inodes.get_mut(&ino), ino, row);
            }
            _ => self.report_row(Damage::Key, key, None),
        }
        Ok(())
    }

    /// Checks the parent pointer of a directory of another site, whose name is a row here.
    /// `dir` and `name_key`: the directory and the key of that row.
    fn pointer_to_other_site(
        &mut self,
        ino: InodeId,
        dir: InodeId,
        name_key: &[u8],
        key: &[u8],
    ) -> Result<(), table::Error> {
        let row = self.table.get(name_key)?;
        let leads = row.as_deref().and_then(|value| NameRow::decode(value).ok());
        let repair = match leads {
            Some((_, row)) if row.ino() == ino => return Ok(()),
            Some(_) => Repair::delete("remove the parent pointer", key),
            None if self.is_directory(dir)? => {
                let link = NameRow::Link { ino, kind: FileKind::Directory }.encode(self.stamp);
                Repair::put("restore the name", name_key.to_vec(), link)
            }
            None => Repair::rows(self.gives_a_name(), self.move_link(ino, name_key, key)?),
        };
        self.report_row(Damage::NameMissing, key, Some(repair));
        Ok(())
    }

    /// Checks a parent pointer: one of the names of an inode with a row of its own. `dir` and
    /// `name_key`: the directory and the key of the row of that name.
    fn parent_pointer(
        &mut self,
        facts: Option<&mut InodeFacts>,
        ino: InodeId,
        dir: InodeId,
        name_key: Vec<u8>,
        RawRow { key, value }: RawRow<'_>,
    ) -> Result<(), table::Error> {
        let Some(facts) = facts.filter(|facts| facts.place.is_none()) else {
            if self.is_elsewhere(ino) {
                return self.pointer_to_other_site(ino, dir, &name_key, key);
            }
            // An inode whose row cannot be read keeps its parent pointers until that is repaired.
            if self.table.get(&key::inode(ino))?.is_none() {
                let repair = Repair::delete("remove the parent pointer", key);
                self.report_row(Damage::NameMissing, key, Some(repair));
            }
            return Ok(());
        };
        if ParentPointer::decode(value).is_err() {
            let repair =
                Repair::put("write the row again", key.to_vec(), ParentPointer.encode(self.stamp));
            self.report_row(Damage::Row, key, Some(repair));
        }
        let row = self.table.get(&name_key)?;
        let leads = row.as_deref().map(|value| NameRow::decode(value).map(|(_, row)| row.ino()));
        match leads {
            Some(Ok(there)) if there == ino => facts.found.names += 1,
            Some(Ok(_)) => {
                let repair = Repair::delete("remove the parent pointer", key);
                self.report_row(Damage::NameMissing, key, Some(repair));
            }
            None | Some(Err(_)) if !self.is_directory(dir)? => {
                let repair = match self.has_sites && facts.kind == FileKind::Directory {
                    true => {
                        facts.found.names += 1;
                        Repair::rows(self.gives_a_name(), self.move_link(ino, &name_key, key)?)
                    }
                    false => Repair::delete("remove the parent pointer", key),
                };
                self.report_row(Damage::NameMissing, key, Some(repair));
            }
            None | Some(Err(_)) => {
                facts.found.names += 1;
                let link = NameRow::Link { ino, kind: facts.kind }.encode(self.stamp);
                let repair = Repair::put("restore the name", name_key, link);
                self.report_row(Damage::NameMissing, key, Some(repair));
            }
        }
        Ok(())
    }

    fn moved(
        &mut self,
        facts: Option<&mut InodeFacts>,
        ino: InodeId,
        RawRow { key, value }: RawRow<'_>,
    ) {
        let row = Moved::decode(value).map(|(_, moved)| (moved.dir, moved.hash));
        let Some(facts) = facts.filter(|facts| facts.place.is_some()) else {
            let repair = Repair::delete("remove it", key);
            self.report_row(Damage::Moved, key, Some(repair));
            return;
        };
        facts.found.moved = true;
        let place = facts.place;
        if row.ok() != place
            && let Some((dir, hash)) = place
        {
            let right = Moved { dir, hash }.encode(self.stamp);
            self.report_inode(
                Damage::Moved,
                ino,
                Some(Repair::put("correct it", key.to_vec(), right)),
            );
        }
    }

    fn orphan(
        &mut self,
        facts: Option<&mut InodeFacts>,
        ino: InodeId,
        RawRow { key, value }: RawRow<'_>,
    ) {
        let whole = Orphan::decode(value).is_ok();
        let Some(facts) = facts else {
            if !whole {
                // A content file that it named is then reported as stray.
                self.report_row(Damage::Row, key, Some(Repair::delete("remove it", key)));
            }
            return;
        };
        facts.found.orphan = true;
        let content = facts.content;
        if !whole {
            let right = Orphan { generation: content }.encode(self.stamp);
            self.report_inode(
                Damage::Row,
                ino,
                Some(Repair::put("correct it", key.to_vec(), right)),
            );
        }
    }

    fn writing(
        &mut self,
        facts: Option<&mut InodeFacts>,
        ino: InodeId,
        RawRow { key, value }: RawRow<'_>,
    ) -> Result<(), table::Error> {
        let generation = Writing::decode(value).ok().map(|(_, row)| row.generation);
        if let Some(facts) = facts
            && facts.content.is_some()
        {
            // The next start measures the file then.
            facts.found.writing = generation == facts.content;
            if generation != facts.content {
                let repair = Repair::delete("remove the `writing` row", key);
                self.report_inode(Damage::MarkStray, ino, Some(repair));
            }
        } else if self.table.get(&key::orphan(ino))?.is_none() {
            let repair = Repair::delete("remove the `writing` row", key);
            self.report_inode(Damage::MarkStray, ino, Some(repair));
        }
        Ok(())
    }

    fn inline(
        &mut self,
        facts: Option<&mut InodeFacts>,
        ino: InodeId,
        RawRow { key, value }: RawRow<'_>,
    ) -> Result<(), table::Error> {
        let bytes = Inline::decode(value).ok().map(|(_, row)| row.bytes.len());
        let Some(facts) = facts else {
            let repair = match bytes {
                Some(bytes) if self.adopt_stray => {
                    Repair::rows(self.gives_a_name(), self.adopt_inline(ino, bytes)?)
                }
                Some(_) => Repair::delete("remove them", key),
                None => Repair::delete("remove its bytes, which cannot be read", key),
            };
            self.report_inode(Damage::InlineStray, ino, Some(repair));
            return Ok(());
        };
        let Some(bytes) = bytes else {
            // If the rnode is flagged inline, this is reported as missing too; both repairs leave
            // an empty file.
            let repair = Repair::delete("remove its bytes, which cannot be read", key);
            self.report_inode(Damage::Row, ino, Some(repair));
            return Ok(());
        };
        if facts.content.is_some() || facts.kind != FileKind::Regular {
            let repair = Repair::delete("remove them", key);
            // Not reported as missing as well.
            facts.found.inline = facts.inline;
            self.report_inode(Damage::InlineStray, ino, Some(repair));
            return Ok(());
        }
        facts.found.inline = true;
        if facts.size != bytes as u64 {
            let facts = *facts;
            let says = "take the size of its bytes";
            let repair = self.rewrite(ino, &facts, says, |rnode| rnode.size = bytes as u64)?;
            self.report_inode(Damage::InlineSize, ino, repair);
        }
        Ok(())
    }

    fn xattr(
        &mut self,
        facts: Option<&mut InodeFacts>,
        ino: InodeId,
        name: &[u8],
        RawRow { key, value }: RawRow<'_>,
    ) -> Result<(), table::Error> {
        let Some(facts) = facts else { return self.stray_xattr(ino, key) };
        let Ok((_, row)) = Xattr::decode(value) else {
            self.report_row(Damage::Row, key, Some(Repair::delete("remove it", key)));
            return Ok(());
        };
        let found = &mut facts.found.xattrs;
        found.any = true;
        found.access |= name == ACL_ACCESS;
        found.default |= name == ACL_DEFAULT;
        if name != ACL_ACCESS && name != ACL_DEFAULT {
            facts.found.xattr_names.add(name);
        }
        self.tag(facts, ino, name, row.value)
    }

    fn xattr_names(
        &mut self,
        facts: Option<&mut InodeFacts>,
        ino: InodeId,
        RawRow { key, value }: RawRow<'_>,
    ) -> Result<(), table::Error> {
        let Some(facts) = facts else { return self.stray_xattr(ino, key) };
        match XattrNames::decode(value) {
            Ok((_, row)) => {
                let names = row.names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
                names.for_each(|name| facts.found.listed_xattr_names.add(name));
            }
            // The names are listed again by the repair of `Damage::XattrNames`.
            Err(_) => self.report_row(Damage::Row, key, Some(Repair::delete("remove it", key))),
        }
        Ok(())
    }

    /// Reports an extended attribute of no inode, unless the inode is an orphan whose removal is
    /// not over.
    fn stray_xattr(&mut self, ino: InodeId, key: &[u8]) -> Result<(), table::Error> {
        if self.table.get(&key::orphan(ino))?.is_none() {
            let repair = Repair::delete("remove it", key);
            self.report_inode(Damage::XattrStray, ino, Some(repair));
        }
        Ok(())
    }
}

/// Returns the keys of a kind of row for the inodes from `low` to `high`.
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
