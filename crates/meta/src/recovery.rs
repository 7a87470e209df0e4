//! The first step of a run: the check that the table belongs to the volume, and the new epoch and
//! first inode id.

use std::ops::ControlFlow;

use pelago_store::key::{self, VolumeRow};
use pelago_store::rows::{HighWater, Identity, Rnode, Row, RowError, SiteRow, Stamp};
use pelago_store::table::{self, Batch, Table};
use pelago_store::volume::{Owner, VolumeId};
use pelago_wire::{InodeId, ShardId, Time};

/// The values with which a shard continues in a new run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The epoch of this run, at least 1.
    pub epoch: u32,
    /// The first counter that no inode was given.
    pub next_id: u64,
}

/// The first rows of a new table.
#[derive(Debug, Clone, Default)]
pub struct FirstRows {
    /// The owner of the root directory.
    pub owner: Owner,
    /// The other sites of the volume, by their numbers.
    pub sites: Vec<(u16, SiteRow)>,
}

/// An error that prevents a run with a table.
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
    /// The table has rows, but no row with the identity of its volume.
    #[error("the table has rows, but none that names its volume; run `pelago check`")]
    NoIdentity,
    /// A row that a start needs cannot be read.
    #[error(
        "the row of the volume's identity or of its high-water mark is damaged; run `pelago check`"
    )]
    Damaged(#[from] RowError),
    /// A row that a start needs is missing.
    #[error("the row of the high-water mark of inode ids is missing; run `pelago check`")]
    NoHighWater,
    /// The epoch has no next value.
    #[error("the volume was started 2³² times, which is the limit")]
    Epochs,
}

/// Checks that the table belongs to this volume, and begins a new run. Writes the first rows into
/// an empty table. Writes one batch; if a later batch survives a crash, this one does too, so that
/// no two runs share an epoch.
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
    // A server must start on a full disk, so that files can be removed.
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
