//! The choice of the next extent to read, and of the one that is dropped for it.

use std::ops::Bound;
use std::time::Duration;

use super::cache::Load;
use super::client::Client;
use super::machine::Deliver;
use super::{ClientId, ExtentRead, Order, Policy, VersionId, policy};

/// Clients that are checked for a stall whenever an extent is dropped.
const LOOKS: usize = 64;

impl Deliver {
    /// Returns the next read for the driver; `None` if as many reads as possible are under way, or
    /// no client requests one. Files are served by deficit round robin, an extent for each client
    /// that requests one, and the clients of a file in turn.
    pub fn next_read(&mut self, now: Duration) -> Option<ExtentRead> {
        if self.reading >= self.options.reads {
            return None;
        }
        loop {
            let id = *self.turns.front()?;
            let extent_bytes = u64::from(self.options.extent_bytes);
            let file = self.files.get_mut(&id).filter(|file| !file.askers.is_empty());
            let Some(file) = file else {
                self.turns.pop_front();
                self.end_turn(id);
                continue;
            };
            if file.deficit < extent_bytes {
                file.deficit += extent_bytes * file.askers.len() as u64;
            }
            let asker = file.askers.pop_front().expect("the file has askers");
            let Some(extent) = self.wanted(asker) else { continue };
            let is_awaited = self.awaits(asker, extent);
            let evicted = match self.cache.len() >= self.options.extents {
                true => {
                    let (victim, worth) = self.victim(now)?;
                    // No extent that others still need is dropped for a read ahead: they would
                    // request it again, and in a small memory each for itself in the end. The
                    // client requests its extent again with its next block, and gets it once it
                    // waits.
                    let is_worse = worth >= self.worth(id, extent, now);
                    if !is_awaited && is_worse && self.options.policy == Policy::Relevance {
                        continue;
                    }
                    let (victim_file, victim_extent) = victim;
                    self.drop_extent(victim_file, victim_extent);
                    Some(victim)
                }
                false => None,
            };
            self.begin_read(id, extent, asker, now);
            if let Some(client) = self.clients.get_mut(&asker) {
                client.reads += 1;
            }
            self.ask(asker);
            let file = self.files.get_mut(&id)?;
            file.deficit -= extent_bytes;
            if file.deficit < extent_bytes {
                self.turns.rotate_left(1);
            }
            let (offset, len) = self.files.get(&id)?.geometry.extent_bytes(extent);
            return Some(ExtentRead { file: id, extent, offset, len, is_awaited, evicted });
        }
    }

    /// Records that an extent was read, and is in memory.
    pub fn read_done(&mut self, id: VersionId, extent: u32, now: Duration) {
        let Some((since, number)) = self.cache.end(id, extent) else { return };
        self.reading -= 1;
        self.reads.add(1.0, now.saturating_sub(since));
        let Some(file) = self.files.get_mut(&id) else {
            self.cache.remove(id, extent);
            return;
        };
        file.resident.insert(number, extent);
        for client_id in &file.clients {
            let Some(client) = self.clients.get_mut(client_id) else { continue };
            if policy::waits_for(&self.options, client, file, extent) {
                client.waits = false;
                self.woken.push_back(*client_id);
            }
        }
    }

    /// Records that an extent could not be read. Returns the clients that must be informed: those
    /// that take blocks in any order and lack a part of it, which continue without it; and those
    /// that take blocks in order and are at this extent. The latter can only leave: as long as they
    /// stay, it is read again.
    pub fn read_failed(&mut self, id: VersionId, extent: u32) -> Vec<ClientId> {
        let Some(cached) = self.cache.remove(id, extent) else { return Vec::new() };
        self.reading -= 1;
        debug_assert!(matches!(cached.state, Load::Reading { .. }), "a read has one end");
        let Some(file) = self.files.get_mut(&id) else { return Vec::new() };
        let ids: Vec<ClientId> = file.clients.iter().copied().collect();
        let mut named = Vec::new();
        for client_id in ids {
            let Some(client) = self.clients.get_mut(&client_id) else { continue };
            let geometry = file.geometry;
            let count = geometry.count(&client.missing, extent);
            let queued = client.queue.len();
            client.queue.retain(|block| geometry.extent_of(*block) != extent);
            match client.order {
                Order::Any if count > 0 || queued != client.queue.len() => {
                    let first = geometry.first_block(extent);
                    let blocks = first..(first + geometry.extent_blocks).min(geometry.blocks());
                    for block in blocks {
                        if client.missing.contains(block) {
                            file.take(client_id, client, block);
                        }
                    }
                    named.push(client_id);
                }
                Order::Ascending { .. } if client.next_in_order(&geometry) == Some(extent) => {
                    named.push(client_id);
                }
                _ => {}
            }
            client.supply -= geometry.count(&client.missing, extent);
            if client.waits {
                client.waits = false;
                self.woken.push_back(client_id);
            }
        }
        file.present.remove(extent);
        named
    }

    /// Returns the extent that a client requests, and ends its request.
    fn wanted(&mut self, asker: ClientId) -> Option<u32> {
        let client = self.clients.get_mut(&asker)?;
        client.asks = false;
        let file = self.files.get(&client.file)?;
        policy::wanted(&self.options, client, file, self.reads.seconds_each())
    }

    /// Returns whether a client waits for an extent, or may: the next extent of a client that takes
    /// blocks in any order is not known.
    fn awaits(&self, asker: ClientId, extent: u32) -> bool {
        let Some(client) = self.clients.get(&asker) else { return false };
        let file = self.files.get(&client.file);
        client.waits
            && (!client.is_ordered
                || file.and_then(|file| client.next_in_order(&file.geometry)) == Some(extent))
    }

    fn begin_read(&mut self, id: VersionId, extent: u32, asker: ClientId, now: Duration) {
        self.reading += 1;
        let is_any_order =
            |client: &&Client| self.options.policy == Policy::Relevance && !client.is_ordered;
        let reader = self.clients.get(&asker).filter(is_any_order).map(|_| asker);
        self.cache.begin(id, extent, reader, now);
        let Some(file) = self.files.get_mut(&id) else { return };
        file.present.insert(extent);
        file.elsewhere.remove(extent);
        file.last_read = Some(extent);
        for client in &file.clients {
            if let Some(client) = self.clients.get_mut(client) {
                client.supply += file.geometry.count(&client.missing, extent);
            }
        }
    }

    /// Checks a few clients in turn for a stall. A client that stalls has no weight until it sends
    /// again, so that no extents stay in memory for it.
    fn look_for_stalls(&mut self, now: Duration) {
        let from = self.looked_at.take().map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.clients.range_mut((from, Bound::Unbounded));
        for (id, client) in behind.take(LOOKS) {
            self.looked_at = Some(*id);
            if !client.is_stalled && client.stalls(now) {
                client.is_stalled = true;
                if let Some(file) = self.files.get_mut(&client.file) {
                    file.reweigh(client);
                }
            }
        }
    }

    /// Returns the extent in memory with the least worth, and its worth.
    fn victim(&mut self, now: Duration) -> Option<((VersionId, u32), f64)> {
        self.look_for_stalls(now);
        let all = self.cache.resident().map(|(id, extent, cached)| {
            let reader = cached.reader.and_then(|id| self.clients.get(&id));
            let is_kept = reader.is_some_and(|client| !client.stalls(now));
            (is_kept, self.worth(id, extent, now), cached.used, id, extent)
        });
        let order = |a: &(bool, f64, u64, _, _), b: &(bool, f64, u64, _, _)| {
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
        };
        let (_, worth, _, id, extent) = all.min_by(order)?;
        Some(((id, extent), worth))
    }

    /// Returns the worth of an extent.
    fn worth(&self, id: VersionId, extent: u32, now: Duration) -> f64 {
        let seconds = |id, bytes| match self.clients.get(&id) {
            Some(client) => client.seconds(bytes, now).max(f64::MIN_POSITIVE),
            None => f64::INFINITY,
        };
        policy::worth(&self.options, extent, self.files.get(&id), seconds)
    }

    /// Drops an extent.
    fn drop_extent(&mut self, id: VersionId, extent: u32) {
        let Some(cached) = self.cache.remove(id, extent) else { return };
        let Some(file) = self.files.get_mut(&id) else { return };
        file.present.remove(extent);
        if let Load::Resident { number } = cached.state {
            file.resident.remove(&number);
        }
        for client in &file.clients {
            if let Some(client) = self.clients.get_mut(client) {
                client.supply -= file.geometry.count(&client.missing, extent);
            }
        }
    }

    fn end_turn(&mut self, id: VersionId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.is_in_turn = false;
            file.deficit = 0;
        }
    }
}
