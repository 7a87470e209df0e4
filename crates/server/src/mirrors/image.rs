//! The open folder of a mirror: rows, content files and the files beside the table.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelago_store::content::ContentStore;
use pelago_store::key::{self, Key, RowKind, VolumeRow};
use pelago_store::reserve::Reserve;
use pelago_store::rows::{
    HighWater, Identity, MirrorRole, MirrorRow, Promotion, Promotions, Row, SiteTokensRow, Stamp,
    stamp_of,
};
use pelago_store::table::fjall::{FjallTable, Options};
use pelago_store::table::{self, Batch, Table as _, TableRead as _, Visitor};
use pelago_store::volume::{HashSeed, ReplacedFile, Volume, VolumeError, VolumeId, replace_file};
use pelago_wire::limits;
use pelago_wire::mirror::VolumeFile;

use super::error::MirrorError;

/// The number of inode ids that a promotion skips: more than the old primary may allocate before it
/// learns of the promotion.
const IDS_LEFT_OUT: u64 = 1 << 30;
/// The number of epochs that a promotion skips, for the same reason.
const EPOCHS_LEFT_OUT: u32 = 1 << 16;

/// The reigns that the promotion of a primary which was replaced, and adopted, skips. The primary
/// that has replaced it has such ids and epochs already, and so has each that has followed that.
const ADOPTED_LEFT_OUT: u64 = 16;

/// Rows that are deleted together.
const GONE_ROWS: usize = 10_000;

/// An open mirror.
pub(super) struct Image {
    pub(super) volume: Volume,
    pub(super) table: Arc<FjallTable>,
    pub(super) content: Arc<ContentStore>,
}

impl Image {
    /// Checks that the disk has room to carry out the group in the spool. Otherwise the group would
    /// be safe, but neither it nor any later group could be carried out.
    pub(super) fn expect_room(&self, bytes: u64) -> Result<(), MirrorError> {
        let disk = self.content.statfs()?;
        let available = disk.available.saturating_mul(disk.block_bytes.into());
        match available >= bytes.saturating_add(limits::RESERVE_BYTES) {
            true => Ok(()),
            false => Err(MirrorError::NoRoom { path: self.volume.dir().into(), bytes }),
        }
    }

    /// Creates the folder of a mirror, which must be missing.
    pub(super) fn create(dir: &Path, format: &[u8], seed: &[u8]) -> Result<Self, MirrorError> {
        Self::over(Volume::create_mirror(dir, format, seed)?)
    }

    /// Opens the mirror of a volume; `None` if there is none.
    pub(super) fn open(dir: &Path, volume: VolumeId) -> Result<Option<Self>, MirrorError> {
        match Volume::open_mirror(dir) {
            Ok(opened) if opened.id() != volume => {
                Err(MirrorError::OtherVolume { path: dir.into(), found: opened.id() })
            }
            Ok(opened) => Self::over(opened).map(Some),
            Err(VolumeError::Missing { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn over(mut volume: Volume) -> Result<Self, MirrorError> {
        let reserve = {
            let (file, path) = volume.open_reserve()?;
            Arc::new(Reserve::open(file, path, limits::RESERVE_BYTES)?)
        };
        let path = volume.dir().to_path_buf();
        let options = Options { memory_bytes: limits::MIRROR_TABLE_BYTES };
        let opened = match FjallTable::open_in(volume.table(), options) {
            Err(table::Error::NoSpace) if reserve.release()? => {
                FjallTable::open_in(volume.table(), options)
            }
            opened => opened,
        };
        let table = opened.map_err(|source| MirrorError::Table { path, source })?;
        table.set_reserve(reserve);
        volume.confirm_seed(&table)?;
        if let Err(error) = volume.mend() {
            // The next open tries again.
            tracing::warn!(%error, "the second files of a mirror are not as they should be");
        }
        let content = ContentStore::open_in(volume.content())?;
        // A promotion leaves it unclean, so that the first start counts all names again.
        volume.mark_unclean()?;
        Ok(Self { volume, table: Arc::new(table), content: Arc::new(content) })
    }

    /// Closes the table. Returns the volume, which is still locked.
    pub(super) fn close(self) -> Result<Volume, MirrorError> {
        let closed = self.table.close();
        closed.map_err(|source| self.table_failed(source))?;
        let Self { volume, table, content } = self;
        drop(table);
        drop(content);
        Ok(volume)
    }

    /// Returns the path of the folder.
    pub(super) fn path(&self) -> PathBuf {
        self.volume.dir().to_path_buf()
    }

    /// Returns the row that says what the folder is; `None` before it has a state of the volume.
    pub(super) fn row(&self) -> Result<Option<MirrorRow>, MirrorError> {
        let Some(value) = self.get(&key::volume_row(VolumeRow::Mirror))? else { return Ok(None) };
        let decoded = MirrorRow::decode(&value).map_err(|source| self.row_damaged(source))?;
        Ok(Some(decoded.1))
    }

    /// Returns the row that says what the folder is, which must exist.
    pub(super) fn known_row(&self) -> Result<MirrorRow, MirrorError> {
        self.row()?.ok_or_else(|| MirrorError::NoRow { path: self.path(), row: "mirror" })
    }

    /// Checks that a copy has the rows that every volume needs.
    pub(super) fn check(&self) -> Result<(), MirrorError> {
        let no_row = |row| MirrorError::NoRow { path: self.path(), row };
        let value = self.get(&key::volume_row(VolumeRow::Identity))?;
        let value = value.ok_or_else(|| no_row("identity"))?;
        let identity = Identity::decode(&value).map_err(|source| self.row_damaged(source))?.1;
        if identity.volume != self.volume.id() {
            let found = identity.volume;
            return Err(MirrorError::OtherVolume { path: self.path(), found });
        }
        self.high_water().map(drop)
    }

    /// Returns whether these bytes are the seed of the names of this volume.
    pub(super) fn has_seed(&self, bytes: &[u8]) -> bool {
        HashSeed::decode(bytes).is_ok_and(|seed| seed.hasher() == self.volume.hasher())
    }

    /// Replaces a file beside the table, on stable storage.
    pub(super) fn take_file(
        &mut self,
        file: VolumeFile,
        bytes: Option<&[u8]>,
    ) -> Result<(), MirrorError> {
        match (file, bytes) {
            (VolumeFile::Format, Some(bytes)) => self.volume.take_format(bytes)?,
            (VolumeFile::Seed, Some(bytes)) if self.has_seed(bytes) => {}
            (VolumeFile::Format | VolumeFile::Seed, _) => {
                return Err(MirrorError::Unfit("the format or the seed of another volume"));
            }
            (VolumeFile::Policy, bytes) => {
                replace_file(self.volume.folder(), ReplacedFile::Policy, bytes)?;
            }
            (VolumeFile::Clients, bytes) => {
                replace_file(self.volume.folder(), ReplacedFile::Clients, bytes)?;
            }
            (VolumeFile::Keys, bytes) => {
                replace_file(self.volume.folder(), ReplacedFile::Keys, bytes)?;
            }
        }
        Ok(())
    }

    /// Writes rows, all or none.
    pub(super) fn write(&self, batch: &Batch) -> Result<(), MirrorError> {
        self.table.write(batch).map_err(|source| self.table_failed(source))
    }

    /// Makes all rows safe.
    pub(super) fn persist(&self) -> Result<(), MirrorError> {
        self.table.persist().map_err(|source| self.table_failed(source))
    }

    /// Calls `visit` with the rows of a range of keys, in their order.
    pub(super) fn scan(
        &self,
        from: &[u8],
        until: &[u8],
        visit: &mut Visitor<'_>,
    ) -> Result<(), MirrorError> {
        self.table.scan(from, until, visit).map_err(|source| self.table_failed(source))
    }

    /// Returns the value of a row.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MirrorError> {
        self.table.get(key).map_err(|source| self.table_failed(source))
    }

    /// Returns the rows that make a primary of a mirror with this row.
    ///
    /// # Errors
    /// [`MirrorError::Ids`] if it can never be one; if the table fails, or lacks a row.
    pub(super) fn as_primary(&self, row: &MirrorRow) -> Result<PrimaryRows, MirrorError> {
        let no_ids = || MirrorError::Ids { path: self.path() };
        let left_out = match row.role {
            MirrorRole::Adopted => ADOPTED_LEFT_OUT,
            MirrorRole::Mirror | MirrorRole::Primary | MirrorRole::Replaced => 1,
        };
        let reign = row.reign.checked_add(left_out).ok_or_else(no_ids)?;
        let HighWaterRow { stamp, high_water } = self.high_water()?;
        let next = high_water.next + left_out * IDS_LEFT_OUT;
        if next > 1 << 36 {
            return Err(no_ids());
        }
        let epochs = left_out as u32 * EPOCHS_LEFT_OUT;
        let epoch = stamp.epoch.checked_add(epochs).ok_or_else(no_ids)?;
        let mut promotions = self.promotions()?;
        promotions.add(Promotion { reign, epoch, last: self.last_stamp()? });
        let stamp = Stamp { epoch, sequence: 0 };
        let row = MirrorRow { role: MirrorRole::Primary, reign, ..MirrorRow::first() };
        let mut batch = Batch::new();
        batch.allow_reserve();
        batch.put(key::volume_row(VolumeRow::Mirror), row.encode(stamp));
        batch.put(key::volume_row(VolumeRow::Promotions), promotions.encode(stamp));
        let shard = self.volume.shard_id().shard;
        batch.put(key::high_water(shard), HighWater { next }.encode(stamp));
        for site in self.sites_with_tokens()? {
            // A mirror is always behind. It leaves numbers out, so no other site is to refuse it.
            let row = key::volume_row(VolumeRow::SiteTokens(site));
            batch.put(row, SiteTokensRow::LOST.encode(stamp));
        }
        Ok(PrimaryRows { reign, batch })
    }

    /// Writes rows, all or none, on stable storage.
    pub(super) fn write_safely(&self, batch: &Batch) -> Result<(), MirrorError> {
        self.write(batch)?;
        self.persist()
    }

    /// Makes the rows those of a primary that was replaced and waits to become a mirror, on stable
    /// storage. Sessions and their replies belong to a history that has ended. Returns its reign.
    ///
    /// # Errors
    /// [`MirrorError::IsMirror`], [`MirrorError::HasStays`]; the table's.
    pub(super) fn make_adopted(&self) -> Result<u64, MirrorError> {
        let row = self.own_row()?;
        self.delete_all(RowKind::CachedReply)?;
        self.delete_all(RowKind::Session)?;
        self.delete_all(RowKind::Ancestry)?;
        let reign = row.reign;
        // A state of no run: the primary compares it.
        let row = MirrorRow { role: MirrorRole::Adopted, reign, number: 1, ..MirrorRow::first() };
        let mut batch = Batch::new();
        batch.put(key::volume_row(VolumeRow::Mirror), row.encode(Stamp::default()));
        self.write(&batch)?;
        self.persist()?;
        Ok(reign)
    }

    /// Returns the row of a folder that was a primary.
    ///
    /// # Errors
    /// [`MirrorError::IsMirror`], [`MirrorError::HasStays`]; the table's.
    pub(super) fn own_row(&self) -> Result<MirrorRow, MirrorError> {
        let row = self.row()?.unwrap_or_else(MirrorRow::first);
        if row.role == MirrorRole::Mirror {
            return Err(MirrorError::IsMirror { path: self.path() });
        }
        let stays = key::all(RowKind::Stay);
        let mut has_stays = false;
        self.scan(&stays.from, &stays.to, &mut |_, _| {
            has_stays = true;
            ControlFlow::Break(())
        })?;
        match has_stays {
            true => Err(MirrorError::HasStays { path: self.path() }),
            false => Ok(row),
        }
    }

    fn delete_all(&self, kind: RowKind) -> Result<(), MirrorError> {
        let range = key::all(kind);
        loop {
            let mut batch = Batch::new();
            let mut count = 0;
            self.scan(&range.from, &range.to, &mut |row_key, _| {
                batch.delete(row_key.to_vec());
                count += 1;
                if count < GONE_ROWS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            if count == 0 {
                return Ok(());
            }
            self.write(&batch)?;
        }
    }

    /// Returns the promotions in the history of the volume.
    pub(super) fn promotions(&self) -> Result<Promotions, MirrorError> {
        match self.get(&key::volume_row(VolumeRow::Promotions))? {
            None => Ok(Promotions::default()),
            Some(value) => match Promotions::decode(&value) {
                Ok((_, promotions)) => Ok(promotions),
                Err(source) => Err(self.row_damaged(source)),
            },
        }
    }

    /// Returns the newest stamp of all rows.
    fn last_stamp(&self) -> Result<Stamp, MirrorError> {
        let mut last = Stamp::default();
        self.scan(&[], &[], &mut |row_key, value| {
            if key::is_mirrored(row_key) {
                last = last.max(stamp_of(value).unwrap_or_default());
            }
            ControlFlow::Continue(())
        })?;
        Ok(last)
    }

    /// Returns the sites with which this volume has tokens.
    fn sites_with_tokens(&self) -> Result<Vec<u16>, MirrorError> {
        let mut sites = Vec::new();
        let range = key::all(RowKind::Volume);
        self.scan(&range.from, &range.to, &mut |row_key, _| {
            if let Some(Key::Volume { row: VolumeRow::SiteTokens(site) }) = Key::parse(row_key) {
                sites.push(site);
            }
            ControlFlow::Continue(())
        })?;
        Ok(sites)
    }

    fn high_water(&self) -> Result<HighWaterRow, MirrorError> {
        let value = self.get(&key::high_water(self.volume.shard_id().shard))?;
        let no_row = || MirrorError::NoRow { path: self.path(), row: "high-water mark" };
        let value = value.ok_or_else(no_row)?;
        match HighWater::decode(&value) {
            Ok((stamp, high_water)) => Ok(HighWaterRow { stamp, high_water }),
            Err(source) => Err(self.row_damaged(source)),
        }
    }

    fn table_failed(&self, source: table::Error) -> MirrorError {
        MirrorError::Table { path: self.path(), source }
    }

    fn row_damaged(&self, source: pelago_store::rows::RowError) -> MirrorError {
        MirrorError::Damaged { path: self.path(), source }
    }
}

/// The rows that make a primary of a mirror.
pub(super) struct PrimaryRows {
    /// The new reign.
    pub(super) reign: u64,
    pub(super) batch: Batch,
}

/// The row of the high-water mark, and its stamp.
struct HighWaterRow {
    stamp: Stamp,
    high_water: HighWater,
}
