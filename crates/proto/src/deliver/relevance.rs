//! The policy Relevance: what is wanted most is read, and what is wanted least is dropped.

use pelago_wire::limits;

use super::block_set::Share;
use super::cache::Cache;
use super::client::Client;
use super::file::File;

/// Extents in memory among which a client chooses: the oldest that are of use to it.
const CHOICE: usize = 256;

/// Returns the next block of a client that takes them in any order: of the extent that it began,
/// else of the one in memory that has the lowest score. That one is dropped first, and what many
/// want will be read again. Clients that are slower than the reads thus come to have the same
/// extents, so what they lack in the end is read once for all of them.
pub(super) fn pick(client: &mut Client, file: &File, cache: &Cache) -> Option<u32> {
    let is_of_use = |extent: &u32| can_take(client, file, *extent);
    let current = client.current.filter(is_of_use);
    let current = current.filter(|extent| cache.is_resident(client.file, *extent));
    let extent = current.or_else(|| {
        let useful = file.resident.values().copied().filter(is_of_use).take(CHOICE);
        useful.min_by_key(|extent| {
            (file.scores.of(*extent), file.geometry.count(&client.missing, *extent))
        })
    });
    client.current = extent;
    let first = file.geometry.first_block(extent?);
    client.missing.next_from(first)
}

/// Returns whether fewer blocks are in memory or being read for a client than it needs.
pub(super) fn is_short(client: &Client, file: &File, need: u32) -> bool {
    let supply = match is_limited(client) {
        false => client.supply,
        true => {
            let present = file.present.runs().flat_map(|run| run.first..run.first + run.count);
            let useful = present.filter(|extent| can_take(client, file, *extent));
            useful.map(|extent| file.geometry.count(&client.missing, extent)).sum()
        }
    };
    supply < need && supply < client.missing.len()
}

/// Returns the extent of the highest score among those that a client lacks.
pub(super) fn wanted(client: &Client, file: &File) -> Option<u32> {
    let only_mixed = is_limited(client);
    file.scores.best(&client.missing, &file.present, file.last_read, only_mixed)
}

/// Returns whether a client lacks a part of an extent, and may take it.
pub(super) fn can_take(client: &Client, file: &File, extent: u32) -> bool {
    let first = file.geometry.first_block(extent);
    file.geometry.part(&client.missing, extent) != 0
        && (!is_limited(client)
            || client.missing.share((first / limits::DELIVERY_CHUNK_BLOCKS) as usize)
                == Share::Some)
}

/// Returns whether what a client lacks is so scattered that it may begin no further chunk.
const fn is_limited(client: &Client) -> bool {
    client.missing.mixed() >= limits::DELIVERY_CLIENT_CHUNKS
}
