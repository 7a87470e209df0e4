//! Removes what is left of files that have neither name nor holder: rows first, so that nobody can
//! open them any more, then the content file, and the orphan row once the removal is safe.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pelago_store::content::Content;
use pelago_store::key::{self, Key, Kind};
use pelago_store::rows::{Orphan, Row};
use pelago_store::table::SharedTable;
use pelago_wire::{Error, Generation, InodeId};

use super::{Next, Piece, Worker, content_failed};
use crate::shard::{Shard, damaged, failed};

/// Files that are worked off in one piece of work.
const AT_ONCE: usize = 64;
/// Files whose orphan rows wait for their removal to be safe, at the most.
const REMOVED: usize = 1 << 16;
/// How long those wait, so that one sync serves many.
const SYNC_INTERVAL: Duration = Duration::from_secs(5);

/// The worker `reap`.
pub struct Reap {
    shard: Arc<Shard>,
    table: SharedTable,
    content: Arc<Content>,
    /// Content removed, orphan row still there.
    removed: HashSet<InodeId>,
    /// When the first of them came.
    since: Instant,
    /// Where the next look begins; empty: at the first orphan.
    from: Vec<u8>,
}

impl Reap {
    /// A worker over these rows and content files.
    #[must_use]
    pub fn new(shard: Arc<Shard>, table: SharedTable, content: Arc<Content>) -> Self {
        Self {
            shard,
            table,
            content,
            removed: HashSet::new(),
            since: Instant::now(),
            from: Vec::new(),
        }
    }

    /// The next orphans that were not seen yet; none: all have been looked at.
    fn next(&mut self) -> Result<Vec<(InodeId, Option<Generation>)>, Error> {
        let range = key::all(Kind::Orphan);
        let from = if self.from.is_empty() { range.from } else { std::mem::take(&mut self.from) };
        let mut orphans = Vec::new();
        let mut more = None;
        let visited = self.table.scan(&from, &range.to, &mut |key, value| {
            let Some(Key::Orphan(ino)) = Key::parse(key) else { return ControlFlow::Continue(()) };
            if self.removed.contains(&ino) {
                return ControlFlow::Continue(());
            }
            if orphans.len() == AT_ONCE {
                more = Some(key.to_vec());
                return ControlFlow::Break(());
            }
            match Orphan::decode(value) {
                Ok((_, orphan)) => orphans.push((ino, orphan.generation)),
                // It stays: `check` decides.
                Err(error) => drop(damaged(key, error)),
            }
            ControlFlow::Continue(())
        });
        visited.map_err(|error| failed("looking for orphans", &error))?;
        self.from = more.unwrap_or_default();
        Ok(orphans)
    }

    /// What was removed is safe from now on.
    fn settle(&mut self) -> Result<(), Error> {
        self.content.sync_all().map_err(|error| content_failed(&error))?;
        let inos: Vec<_> = self.removed.iter().copied().collect();
        for some in inos.chunks(AT_ONCE) {
            self.shard.forget_orphans(some)?;
        }
        self.removed.clear();
        Ok(())
    }
}

impl Worker for Reap {
    fn work(&mut self) -> Result<Piece, Error> {
        let mut items = 0;
        let orphans = if self.removed.len() < REMOVED { self.next()? } else { Vec::new() };
        for (ino, generation) in orphans {
            if !self.shard.bury(ino)? {
                continue;
            }
            if let Some(generation) = generation {
                let removed = self.content.remove(ino, generation);
                removed.map_err(|error| content_failed(&error))?;
            }
            if self.removed.is_empty() {
                self.since = Instant::now();
            }
            self.removed.insert(ino);
            items += 1;
        }
        if !self.from.is_empty() && self.removed.len() < REMOVED {
            return Ok(Piece { items, next: Next::Again });
        }
        if self.removed.is_empty() {
            return Ok(Piece { items, next: Next::Rung });
        }
        let waited = self.since.elapsed();
        if waited < SYNC_INTERVAL && self.removed.len() < REMOVED {
            return Ok(Piece { items, next: Next::After(SYNC_INTERVAL - waited) });
        }
        self.settle()?;
        Ok(Piece { items, next: Next::Rung })
    }
}
