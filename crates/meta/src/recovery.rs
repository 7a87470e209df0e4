//! What happens before the first request: whose table it is, and where numbering goes on.

use std::ops::ControlFlow;

use pelago_store::key::{self, VolumeRow};
use pelago_store::rows::{HighWater, Identity, Rnode, Row, RowError, Stamp};
use pelago_store::table::{self, Batch, Table};
use pelago_store::volume::{Owner, SHARD, VolumeId};
use pelago_wire::{InodeId, Time};

/// Where a shard goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The epoch of this life.
    pub epoch: u32,
    /// The first counter that was never given to an inode.
    pub next_id: u64,
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
        /// Whose table it is.
        found: VolumeId,
        /// Whose it should be.
        wanted: VolumeId,
    },
    /// There are rows, but none that says whose they are.
    #[error("the table does not say whose it is")]
    NoIdentity,
    /// A row that is needed to start cannot be read.
    #[error("a row that says where the volume goes on is damaged")]
    Damaged(#[from] RowError),
    /// A row that is needed to start is missing.
    #[error("the row that says which numbers are used is missing")]
    NoHighWater,
    /// As many lives as a volume can have.
    #[error("the volume was started too often")]
    Epochs,
}

/// Makes sure that the table is this volume's and begins a new life in it; a table without any row
/// gets its first ones. Writes one batch: every later batch that survives a crash, survives with
/// it, so that no two lives share an epoch.
///
/// # Errors
/// [`RecoverError`]; nothing was written then.
pub fn begin(
    table: &dyn Table,
    volume: VolumeId,
    owner: Owner,
    now: Time,
) -> Result<Start, RecoverError> {
    let Some(value) = table.get(&key::volume_row(VolumeRow::Identity))? else {
        return make(table, volume, owner, now);
    };
    let (_, identity) = Identity::decode(&value)?;
    if identity.volume != volume {
        return Err(RecoverError::Foreign { found: identity.volume, wanted: volume });
    }
    let value = table.get(&key::high_water(SHARD))?.ok_or(RecoverError::NoHighWater)?;
    let (stamp, mark) = HighWater::decode(&value)?;
    let epoch = stamp.epoch.checked_add(1).ok_or(RecoverError::Epochs)?;
    let mut batch = Batch::new();
    // Without it nothing can be removed.
    batch.allow_reserve();
    batch.put(key::high_water(SHARD), mark.encode(Stamp { epoch, sequence: 0 }));
    table.write(&batch)?;
    Ok(Start { epoch, next_id: mark.next })
}

/// The first rows of a volume.
fn make(
    table: &dyn Table,
    volume: VolumeId,
    owner: Owner,
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
    batch.put(key::high_water(SHARD), HighWater { next: next_id }.encode(stamp));
    batch.put(key::inode(InodeId::ROOT), Rnode::root(owner, now).encode(stamp));
    table.write(&batch)?;
    table.persist()?;
    Ok(Start { epoch: stamp.epoch, next_id })
}
