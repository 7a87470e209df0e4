//! The policy Relevance: the extent that is wanted most is read, and the one that is wanted least
//! is dropped.

use pelago_wire::limits;

use super::block_set::Share;
use super::cache::Cache;
use super::client::Client;
use super::file::File;

/// The number of extents in memory among which a client chooses: the oldest ones that it lacks.
const CHOICE: usize = 256;

/// Returns the next block of a client that takes them in any order: of the extent that it has
/// begun, otherwise of the extent in memory with the lowest score. That extent is dropped first,
/// and one that many clients want will be read again. So clients that are slower than the reads
/// come to have the same extents, and the extents that they lack in the end are read once for all
/// of them.
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

/// Returns whether the missing blocks of a client are so scattered that it may begin no further
/// chunk.
const fn is_limited(client: &Client) -> bool {
    client.missing.mixed() >= limits::DELIVERY_CLIENT_CHUNKS
}
