//! Blocks that the driver has elsewhere, as in the page cache of the kernel. A client that takes
//! blocks in order gets them from there, so that their extents need no room in memory. The machine
//! makes room for a read ahead first, perhaps by dropping another extent; only then the driver
//! looks whether it has the extent elsewhere, and skips the read.

use std::time::Duration;

use pelago_wire::limits;

use super::block_set::BlockSet;
use super::machine::Deliver;
use super::{Block, ClientId, VersionId, policy};

impl Deliver {
    /// Returns the next block of a client that takes them in order, unless its extent is in memory;
    /// a read of it may be under way. [`Options::lent`](super::Options::lent) is not checked.
    #[must_use]
    pub fn next_absent(&self, id: ClientId) -> Option<Block> {
        let client = self.clients.get(&id).filter(|client| client.is_ordered)?;
        let file = self.files.get(&client.file)?;
        let number = client.first_missing()?;
        let extent = file.geometry.extent_of(number);
        if self.cache.is_resident(client.file, extent) {
            return None;
        }
        let (from, to) = client.range();
        Some(file.geometry.block(client.file, number, from, to))
    }

    /// Returns the number of blocks that a client has taken, and that its socket has not taken yet.
    #[must_use]
    pub fn lent(&self, id: ClientId) -> usize {
        self.clients.get(&id).map_or(0, |client| client.lent.len())
    }

    /// Gives a client the block that [`Deliver::next_absent`] has returned for it, whose bytes the
    /// driver has elsewhere. The driver sees to it that the client has fewer than
    /// [`Options::lent`](super::Options::lent) before.
    pub fn take_absent(&mut self, id: ClientId, block: &Block, now: Duration) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(file) = self.files.get_mut(&client.file) else { return };
        let Some(number) = client.first_missing() else { return };
        debug_assert_eq!(file.geometry.extent_of(number), block.extent, "the client has its turn");
        client.waits = false;
        client.reads = 0;
        client.cursor = number.into();
        file.take(id, client, number);
        client.lend(block.len, now);
    }

    /// Records that the driver has not read an extent, because it has it elsewhere. Only a read for
    /// which the client that requested it did not wait may be skipped
    /// ([`ExtentRead::is_awaited`]). Clients that wait for the extent by now are woken. The read
    /// does not count against the file's turn.
    ///
    /// [`ExtentRead::is_awaited`]: super::ExtentRead::is_awaited
    pub fn read_skipped(&mut self, id: VersionId, extent: u32) {
        if self.cache.remove(id, extent).is_none() {
            return;
        }
        self.reading -= 1;
        let Some(file) = self.files.get_mut(&id) else { return };
        file.present.remove(extent);
        file.deficit += u64::from(self.options.extent_bytes);
        if file.elsewhere.mixed() >= limits::DELIVERY_CLIENT_CHUNKS {
            // A set that is too scattered is cleared: the driver looks these extents up again.
            file.elsewhere = BlockSet::empty(file.geometry.extents());
        }
        file.elsewhere.insert(extent);
        for client_id in &file.clients {
            let Some(client) = self.clients.get_mut(client_id) else { continue };
            let blocks = file.geometry.count(&client.missing, extent);
            client.supply -= blocks;
            // The client has reached the extent while it was to be read, and the driver has it
            // elsewhere.
            let waits_for = policy::waits_for(&self.options, client, file, extent);
            if waits_for || client.waits && blocks > 0 {
                client.waits = false;
                self.woken.push_back(*client_id);
            }
        }
    }
}
