//! The decisions that depend on the policy.

use super::cache::Cache;
use super::client::Client;
use super::file::File;
use super::{ClientId, Options, Order, Policy, circus, ordered, relevance, scores};

/// Returns whether a client takes its blocks in order with these options.
pub(super) const fn is_ordered(options: &Options, order: Order) -> bool {
    matches!(options.policy, Policy::Sequential) || matches!(order, Order::Ascending { .. })
}

/// Sets the position at which a client begins.
pub(super) fn join(options: &Options, client: &mut Client, file: &File) {
    if let Policy::Circus(_) = options.policy
        && !client.is_ordered
    {
        circus::join(client, file);
    }
}

/// Gives a client its next block, if that is in memory.
pub(super) fn take(
    options: &Options,
    id: ClientId,
    client: &mut Client,
    file: &mut File,
    cache: &Cache,
) -> Option<u32> {
    let block = match &options.policy {
        _ if client.is_ordered => ordered::pick(client, file, cache)?,
        Policy::Circus(circus) => {
            circus::refill(id, client, file, circus, options.queue);
            let block = circus::pick(client, file, cache)?;
            client.queue.pop_front();
            return Some(block);
        }
        Policy::Relevance | Policy::Sequential => relevance::pick(client, file, cache)?,
    };
    file.take(id, client, block);
    Some(block)
}

/// Returns whether a client requests a read. `read_seconds` is the time of a read.
pub(super) fn is_short(options: &Options, client: &Client, file: &File, read_seconds: f64) -> bool {
    let need = need(options, client, read_seconds);
    if client.reads > need {
        return false;
    }
    match options.policy {
        _ if client.is_ordered => ordered::wanted(client, file, need).is_some(),
        Policy::Circus(_) => circus::wanted(client, file).is_some(),
        Policy::Relevance | Policy::Sequential => relevance::is_short(client, file, need),
    }
}

/// Returns the extent that a client requests.
pub(super) fn wanted(
    options: &Options,
    client: &Client,
    file: &File,
    read_seconds: f64,
) -> Option<u32> {
    match options.policy {
        _ if client.is_ordered => {
            ordered::wanted(client, file, need(options, client, read_seconds))
        }
        Policy::Circus(_) => circus::wanted(client, file),
        Policy::Relevance | Policy::Sequential => {
            let is_short = relevance::is_short(client, file, need(options, client, read_seconds));
            is_short.then(|| relevance::wanted(client, file)).flatten()
        }
    }
}

/// Returns whether a client that waits can continue because of an extent.
pub(super) fn waits_for(options: &Options, client: &Client, file: &File, extent: u32) -> bool {
    client.waits
        && match options.policy {
            _ if client.is_ordered => client.next_in_order(&file.geometry) == Some(extent),
            Policy::Circus(_) => {
                let next = client.queue.front().map(|block| file.geometry.extent_of(*block));
                next == Some(extent)
            }
            Policy::Relevance | Policy::Sequential => relevance::can_take(client, file, extent),
        }
}

/// Returns the worth of an extent in memory: the extent with the least worth is dropped. The worth
/// is the weight of all clients that lack a part of the extent, and the inverse of the seconds
/// until the nearest reader in order comes. Further readers do not count: otherwise the extents of
/// the last readers would always be dropped, and each of them would read alone. `seconds` returns
/// the time in which a client takes a number of bytes.
pub(super) fn worth(
    options: &Options,
    extent: u32,
    file: Option<&File>,
    seconds: impl Fn(ClientId, f64) -> f64,
) -> f64 {
    let Some(file) = file else { return -1.0 };
    if options.policy != Policy::Relevance {
        return 0.0;
    }
    let nearest = file.readers.range(..(extent + 1, ClientId(0))).next_back();
    let soon = nearest.map_or(0.0, |(at, id)| {
        // A reader that is there is in the middle of it.
        let extents = f64::from(extent - at).max(0.5);
        1.0 / seconds(*id, extents * f64::from(options.extent_bytes))
    });
    scores::fraction(file.scores.of(extent)) + soon
}

/// Returns the number of blocks that should be in memory for a client: those that it takes during a
/// read, and a few more.
fn need(options: &Options, client: &Client, read_seconds: f64) -> u32 {
    let blocks = client.rate.per_second() * read_seconds / f64::from(options.block_bytes);
    let memory = options.extents as f64 * f64::from(options.extent_bytes / options.block_bytes);
    // Half of the memory is below 2³² blocks of a file; a cast saturates.
    (f64::from(options.queue) + blocks).min(memory / 2.0).max(1.0) as u32
}
