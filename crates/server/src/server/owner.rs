//! The start of a server that owns the volume of a shared store.

use std::sync::Arc;

use pelago_data::Passthrough;
use pelago_store::content::ContentStore;
use pelago_store::owner::OwnedTable;
use pelago_store::reserve::Reserve;
use pelago_store::table::SharedTable;
use pelago_store::volume::Volume;
use pelago_wire::limits;

use super::table_opening::open_table;
use super::{OpenVolume, Options, Parts, Server, StartError};
use crate::memory::MEMORY_BYTES;
use crate::ownership::Ownership;

impl Server {
    /// Serves the volume of a shared store, of whose shard this process has taken the ownership.
    ///
    /// # Errors
    /// [`StartError`].
    pub(crate) fn start_owner(
        mut volume: Volume,
        ownership: Arc<Ownership>,
        options: Options,
    ) -> Result<Self, StartError> {
        let taken = ownership.taken();
        let options = Options {
            inline_bytes: volume.inline_bytes() as u32,
            // A kernel that writes by passthrough would go on after another server owns the files.
            passthrough: Passthrough::Never,
            ..options
        };
        let (file, path) = volume.open_reserve()?;
        let reserve = Arc::new(Reserve::open(file, path, limits::RESERVE_BYTES)?);
        let table = open_table(taken.folder(), volume.dir(), &reserve, &options)?;
        volume.confirm_seed(&*table)?;
        let mut content = ContentStore::open_unchanged(volume.content())?.shared();
        if options.memory_bytes < MEMORY_BYTES {
            content = content.without_readahead();
        }
        let owned = OwnedTable::new(Arc::clone(&table) as SharedTable, taken.baton());
        let parts = Parts {
            table: Arc::new(owned),
            content: Arc::new(content),
            volume: volume.id(),
            shard: volume.shard_id(),
            hasher: volume.hasher(),
        };
        let open = OpenVolume { table, volume, ownership: Some(ownership) };
        Self::start_with(parts, options, Some(reserve), Some(open), None)
    }
}
