//! Clients that take blocks in order.

use super::cache::Cache;
use super::client::Client;
use super::file::File;

/// Returns the next block of a client, if it is in memory.
pub(super) fn pick(client: &mut Client, file: &File, cache: &Cache) -> Option<u32> {
    let block = client.first_missing()?;
    client.cursor = block.into();
    cache.is_resident(client.file, file.geometry.extent_of(block)).then_some(block)
}

/// Returns the first extent that is neither in memory nor being read nor elsewhere, within the next
/// `need` blocks of a client.
pub(super) fn wanted(client: &Client, file: &File, need: u32) -> Option<u32> {
    let geometry = &file.geometry;
    let mut found = 0;
    let mut at = client.first_missing()?;
    while found < need {
        let extent = geometry.extent_of(at);
        if !file.present.contains(extent) && !file.elsewhere.contains(extent) {
            return Some(extent);
        }
        found += geometry.count(&client.missing, extent);
        at = client.missing.next_from(geometry.first_block(extent + 1))?;
    }
    None
}
