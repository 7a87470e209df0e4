//! The first step of a run: makes sure that the table is this volume's, and finds the epoch and the
//! first id.

use std::ops::ControlFlow;

use pelago_store::key::{self, VolumeRow};
use pelago_store::rows::{HighWater, Identity, Rnode, Row, RowError, SiteRow, Stamp};
use pelago_store::table::{self, Batch, Table};
use pelago_store::volume::{Owner, VolumeId};
use pelago_wire::{InodeId, ShardId, Time};

/// Where a shard continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The epoch of this run, from 1.
    pub epoch: u32,
    /// The first counter that no inode has had.
    pub next_id: u64,
}

/// What a new table begins with.
#[derive(Debug, Clone, Default)]
pub struct FirstRows {
    /// The owner of the root directory.
    pub owner: Owner,
    /// The other sites that the volume has, with their numbers.
    pub sites: Vec<(u16, SiteRow)>,
}

/// Why a table cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// The table failed.
    #[error(transparent)]
    Table(#[from] table::Error),
    /// The table belongs to another volume.
    #[error("the table belongs to volume {found}, not to {wanted}")]
    Foreign {
        /// The volume that it belongs to.
        found: VolumeId,
        /// The volume that was started.
        wanted: VolumeId,
    },
    /// There are rows, but none that names their volume.
    #[error("the table has rows, but none that names its volume; run `pelago check`")]
    NoIdentity,
    /// A row that is needed to start cannot be read.
    #[error(
        "the row of the volume's identity or of its high-water mark is damaged; run `pelago check`"
    )]
    Damaged(#[from] RowError),
    /// A row that is needed to start is missing.
    #[error("the row of the high-water mark of inode ids is missing; run `pelago check`")]
    NoHighWater,
    /// The epoch has no next value.
    #[error("the volume was started 2³² times, which is the limit")]
    Epochs,
}

/// Makes sure that the table is this volume's, and begins a new run; a table without any row gets
/// its first ones. Writes one batch. Every later batch that survives a crash does so together with
/// this one, so that no two runs share an epoch.
///
/// # Errors
/// [`RecoverError`]; nothing was written then.
pub fn begin(
    table: &dyn Table,
    volume: VolumeId,
    shard: ShardId,
    first: &FirstRows,
    now: Time,
) -> Result<Start, RecoverError> {
    let Some(value) = table.get(&key::volume_row(VolumeRow::Identity))? else {
        return make(table, volume, shard, first, now);
    };
    let (_, identity) = Identity::decode(&value)?;
    if identity.volume != volume {
        return Err(RecoverError::Foreign { found: identity.volume, wanted: volume });
    }
    let value = table.get(&key::high_water(shard.shard))?.ok_or(RecoverError::NoHighWater)?;
    let (stamp, high_water) = HighWater::decode(&value)?;
    let epoch = stamp.epoch.checked_add(1).ok_or(RecoverError::Epochs)?;
    let mut batch = Batch::new();
    // On a full disk nothing could be removed without it.
    batch.allow_reserve();
    batch.put(key::high_water(shard.shard), high_water.encode(Stamp { epoch, sequence: 0 }));
    table.write(&batch)?;
    Ok(Start { epoch, next_id: high_water.next })
}

/// Writes the first rows of a volume.
fn make(
    table: &dyn Table,
    volume: VolumeId,
    shard: ShardId,
    first: &FirstRows,
    now: Time,
) -> Result<Start, RecoverError> {
    let mut empty = true;
    table.scan(&[], &[], &mut |_, _| {
        empty = false;
        ControlFlow::Break(())
    })?;
    if !empty {
        return Err(RecoverError::NoIdentity);
    }
    let stamp = Stamp { epoch: 1, sequence: 0 };
    let next_id = InodeId::ROOT.counter() + 1;
    let mut batch = Batch::new();
    batch.allow_reserve();
    batch.put(key::volume_row(VolumeRow::Identity), Identity { volume }.encode(stamp));
    batch.put(key::high_water(shard.shard), HighWater { next: next_id }.encode(stamp));
    // The root of the tree is a row of the site that has founded the volume.
    if shard.site == InodeId::ROOT.site() {
        batch.put(key::inode(InodeId::ROOT), Rnode::root(first.owner, now).encode(stamp));
    }
    for (site, row) in &first.sites {
        batch.put(key::site(*site), row.encode(stamp));
    }
    table.write(&batch)?;
    table.persist()?;
    Ok(Start { epoch: stamp.epoch, next_id })
}
