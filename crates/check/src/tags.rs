//! The check of the rows of tags against the extended attributes that are tags.

use pelago_store::key::{self, Key, RowKind};
use pelago_store::rows::{Row, Tag, Xattr};
use pelago_store::table;
use pelago_wire::xattr::{TAG_PREFIX, tag_key};
use pelago_wire::{InodeId, NameHash};

use super::window::InodeFacts;
use super::{Check, CheckError, Damage, Repair};

impl Check<'_> {
    /// Checks that each row of a tag has its extended attribute, with this value.
    pub(super) fn tags(&mut self) -> Result<(), CheckError> {
        self.each(&key::all(RowKind::Tag), |check, key, _| {
            if check.tag_key_of(key)?.as_deref() != Some(key) {
                let repair = Repair::delete("remove the row", key);
                check.report_row(Damage::TagStray, key, Some(repair));
            }
            Ok(())
        })
    }

    /// Returns the key that the row of this tag should have; `None` if the file has no such tag.
    fn tag_key_of(&self, key: &[u8]) -> Result<Option<Vec<u8>>, table::Error> {
        let Some(Key::Tag { tag, ino, .. }) = Key::parse(key) else { return Ok(None) };
        let name = [TAG_PREFIX.as_bytes(), tag.as_bytes()].concat();
        let value = self.table.get(&key::xattr(ino, &name))?;
        let row = value.as_deref().and_then(|value| Xattr::decode(value).ok());
        Ok(row.map(|(_, row)| key::tag(tag, row.value, ino)))
    }

    /// Checks that an extended attribute that is a tag has its row, and that the row leads to the
    /// file.
    pub(super) fn tag(
        &mut self,
        facts: &InodeFacts,
        ino: InodeId,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), table::Error> {
        let Some(tag) = tag_key(name) else { return Ok(()) };
        let key = key::tag(tag, value, ino);
        let row = self.table.get(&key)?;
        let damage = match row.as_deref().map(Tag::decode) {
            // The server adds the missing rows.
            None if !self.tags_are_complete => return Ok(()),
            None => Damage::TagMissing,
            Some(Err(_)) => Damage::Row,
            Some(Ok((_, Tag { dir, hash }))) => match facts.place {
                Some(place) if place != (dir, hash) && !facts.moved => Damage::TagHint,
                _ => return Ok(()),
            },
        };
        let (dir, hash) = facts.place.unwrap_or((ino, NameHash(0)));
        let row = Tag { dir, hash }.encode(self.stamp);
        let repair = Repair::put("write the row again", key.clone(), row);
        self.report_row(damage, &key, Some(repair));
        Ok(())
    }
}
