//! Removes what is left of files that have neither name nor holder.
//!
//! Each goes through three steps, and a crash between any two of them loses nothing that is still
//! wanted and keeps nothing for ever:
//!
//! 1. its rows go, so that nobody can open it any more, but for its orphan row;
//! 2. once that is safe, its content file goes: had the name come back after a crash, so would the
//!    bytes;
//! 3. once the removal is safe, the orphan row goes.

use std::collections::{HashSet, VecDeque};
use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pelago_store::content::ContentStore;
use pelago_store::key::{self, Key, RowKind};
use pelago_store::rows::{Orphan, Row};
use pelago_store::table::SharedTable;
use pelago_wire::{Code, Error, Generation, InodeId};

use super::{Next, Piece, Worker};
use pelago_data::OpenFiles;
use pelago_meta::durability::Durability;
use pelago_meta::shard::Shard;
use pelago_store::report::content_failed;
use pelago_store::report::{row_damaged, table_failed};

/// Files that are worked off in one piece of work.
const AT_ONCE: usize = 64;
/// Files that are between two steps, at the most.
pub(crate) const UNDER_WAY: usize = 1 << 16;
/// How often it looks whether rows that went are safe.
const SAFE_INTERVAL: Duration = Duration::from_millis(100);
/// How long orphan rows wait for their removal to be safe: one sync serves many.
const SYNC_INTERVAL: Duration = Duration::from_secs(5);

/// The worker `orphans`.
pub(crate) struct RemoveOrphans {
    shard: Arc<Shard>,
    durability: Arc<Durability>,
    table: SharedTable,
    content: Arc<ContentStore>,
    opens: Arc<OpenFiles>,
    /// Between the first step and the second, with the batch of the first.
    buried: VecDeque<(u64, InodeId, Option<Generation>)>,
    /// Between the second step and the third.
    removed: Vec<Orphaned>,
    /// When the first of those came.
    since: Instant,
    /// Both, so that they are not begun again.
    under_way: HashSet<InodeId>,
    /// Where the next look begins; empty: at the first orphan.
    from: Vec<u8>,
    /// All orphans were seen since the notify rang.
    seen_all: bool,
    /// [`Durability::invalidations`] as it was when they were looked at last.
    invalidations: u64,
}

type Orphaned = (InodeId, Option<Generation>);

impl RemoveOrphans {
    /// A worker over these rows and content files.
    #[must_use]
    pub(crate) fn new(
        shard: Arc<Shard>,
        durability: Arc<Durability>,
        table: SharedTable,
        content: Arc<ContentStore>,
        opens: Arc<OpenFiles>,
    ) -> Self {
        Self {
            shard,
            durability,
            table,
            content,
            opens,
            buried: VecDeque::new(),
            removed: Vec::new(),
            since: Instant::now(),
            under_way: HashSet::new(),
            from: Vec::new(),
            seen_all: false,
            invalidations: 0,
        }
    }

    /// The next orphans that are not under way.
    fn next(&mut self) -> Result<Vec<Orphaned>, Error> {
        let range = key::all(RowKind::Orphan);
        let from = if self.from.is_empty() { range.from } else { mem::take(&mut self.from) };
        let mut orphans = Vec::new();
        let mut more = None;
        let visited = self.table.scan(&from, &range.to, &mut |key, value| {
            let Some(Key::Orphan { ino }) = Key::parse(key) else {
                return ControlFlow::Continue(());
            };
            if self.under_way.contains(&ino) {
                return ControlFlow::Continue(());
            }
            if orphans.len() == AT_ONCE {
                more = Some(key.to_vec());
                return ControlFlow::Break(());
            }
            match Orphan::decode(value) {
                Ok((_, orphan)) => orphans.push((ino, orphan.generation)),
                // It stays: `check` decides.
                Err(error) => drop(row_damaged(key, error)),
            }
            ControlFlow::Continue(())
        });
        visited.map_err(|error| table_failed("looking for orphans", &error))?;
        self.from = more.unwrap_or_default();
        self.seen_all = self.from.is_empty();
        Ok(orphans)
    }

    fn bury_some(&mut self) -> Result<(), Error> {
        if self.seen_all || self.under_way.len() >= UNDER_WAY {
            return Ok(());
        }
        for (ino, generation) in self.next()? {
            let buried = match self.shard.bury(ino) {
                // It stays for `check`, and keeps nobody behind it from going.
                Err(error) if error.code == Code::Corrupt => continue,
                buried => buried?,
            };
            if let Some((sequence, newest)) = buried {
                // It may have got its content file after it was seen here.
                let generation = newest.or(generation);
                self.buried.push_back((sequence, ino, generation));
                self.under_way.insert(ino);
            }
        }
        Ok(())
    }

    fn remove_some(&mut self) -> Result<u64, Error> {
        let safe = self.durability.safe();
        // Looked at behind it: what is safe now may have been done behind what was lost.
        if self.begin_again_in_doubt() {
            return Ok(0);
        }
        let mut items = 0;
        while items < AT_ONCE as u64
            && let Some((sequence, ino, generation)) = self.buried.front().copied()
            && sequence <= safe
        {
            if let Some(generation) = generation {
                self.opens.forget_content(ino);
                let removed = self.content.remove(ino, generation);
                removed.map_err(|error| content_failed(&error))?;
            }
            if self.removed.is_empty() {
                self.since = Instant::now();
            }
            self.buried.pop_front();
            self.removed.push((ino, generation));
            items += 1;
        }
        Ok(items)
    }

    /// Rows that went may be there again: which of them have to go is looked at once more.
    fn begin_again_in_doubt(&mut self) -> bool {
        let invalidations = self.durability.invalidations();
        if mem::replace(&mut self.invalidations, invalidations) == invalidations {
            return false;
        }
        for (_, ino, _) in self.buried.drain(..) {
            self.under_way.remove(&ino);
        }
        self.from.clear();
        self.seen_all = false;
        true
    }

    /// Forgets what was removed, where that is due.
    fn forget_some(&mut self) -> Result<(), Error> {
        let due = self.since.elapsed() >= SYNC_INTERVAL || self.under_way.len() >= UNDER_WAY;
        if self.removed.is_empty() || !due {
            return Ok(());
        }
        let files = |(ino, generation): &Orphaned| generation.map(|number| (*ino, number));
        let files: Vec<_> = self.removed.iter().filter_map(files).collect();
        self.opens.sync_contents(&files)?;
        let inos: Vec<_> = self.removed.iter().map(|(ino, _)| *ino).collect();
        for some in inos.chunks(AT_ONCE) {
            self.shard.forget_orphans(some)?;
        }
        for ino in inos {
            self.under_way.remove(&ino);
        }
        self.removed.clear();
        Ok(())
    }
}

impl Worker for RemoveOrphans {
    fn notified(&mut self) {
        self.seen_all = false;
        // What it rang for may be behind.
        self.from.clear();
    }

    fn work(&mut self) -> Result<Piece, Error> {
        self.bury_some()?;
        let items = self.remove_some()?;
        self.forget_some()?;
        let next = if !self.seen_all && self.under_way.len() < UNDER_WAY || items > 0 {
            Next::Again
        } else if !self.buried.is_empty() {
            Next::After(SAFE_INTERVAL)
        } else if !self.removed.is_empty() {
            Next::After(SYNC_INTERVAL)
        } else {
            Next::Notified
        };
        Ok(Piece { items, next })
    }
}
