//! The policy Circus: clients follow a region that moves round and round the file.
//!
//! Cursors count blocks and do not wrap, so that "behind" and "ahead" are comparisons. The region
//! slides: it ends after the block of the client that moves it.

use super::Circus;
use super::ClientId;
use super::cache::Cache;
use super::client::Client;
use super::file::File;

/// Sets the cursor of a new client to that of the file.
pub(super) fn join(client: &mut Client, file: &File) {
    client.cursor = if file.clients.is_empty() { 0 } else { file.cursor };
}

/// Returns the first block in a client's queue, if it is in memory.
pub(super) fn pick(client: &Client, file: &File, cache: &Cache) -> Option<u32> {
    let block = *client.queue.front()?;
    cache.is_resident(client.file, file.geometry.extent_of(block)).then_some(block)
}

/// Returns the first extent of a client's queue that is neither in memory nor being read.
pub(super) fn wanted(client: &Client, file: &File) -> Option<u32> {
    let extents = client.queue.iter().map(|block| file.geometry.extent_of(*block));
    extents.into_iter().find(|extent| !file.present.contains(*extent))
}

/// Chooses blocks until the queue of a client is full.
pub(super) fn refill(
    id: ClientId,
    client: &mut Client,
    file: &mut File,
    circus: &Circus,
    queue: u32,
) {
    let blocks = u64::from(file.geometry.blocks());
    let block_bytes = f64::from(file.geometry.block_bytes);
    let region = (circus.region_bytes as f64 / block_bytes).max(1.0);
    let leap = (region * circus.leapfront).max(1.0) as u64;
    let region = region as u64;
    while client.queue.len() < queue as usize && !client.missing.is_empty() {
        let received = blocks - u64::from(client.missing.len());
        let is_independent = received as f64 >= circus.threshold * blocks as f64;
        if !is_independent {
            client.cursor = client.cursor.max(file.cursor);
        }
        let Some(at) = next_in_circle(client, blocks) else { return };
        if !is_independent && at >= file.cursor + leap {
            file.cursor = (at + 1).saturating_sub(region).max(file.cursor);
        }
        client.cursor = at + 1;
        let block = u32::try_from(at % blocks).expect("a file has fewer than 2³² blocks");
        file.take(id, client, block);
        client.queue.push_back(block);
    }
}

/// Returns the first block that a client lacks from its cursor on, counted as the cursor is.
fn next_in_circle(client: &Client, blocks: u64) -> Option<u64> {
    let lap = client.cursor / blocks * blocks;
    let within = u32::try_from(client.cursor % blocks).ok()?;
    match client.missing.next_from(within) {
        Some(block) => Some(lap + u64::from(block)),
        None => Some(lap + blocks + u64::from(client.missing.next_from(0)?)),
    }
}
