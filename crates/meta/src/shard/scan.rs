//! What the workers do with a shard's state: counting directories again, learning their names, and
//! burying files that nobody names or holds any more.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use pelago_store::key::{self, Key, RowKind};
use pelago_store::rows::{CachedReply, NameRow, Partition, Rnode, Row};
use pelago_store::table::{Batch, Snapshot};
use pelago_wire::{Code, Error, Generation, Handle, InodeId, Reply};

use super::Shard;
use crate::directory::{Changes, Known};
use crate::name_filter::Filter;
use crate::reply_cache::{self, RequestKey};
use crate::row_cache::Node;
use pelago_store::report::{row_damaged, table_failed};

/// RowCache of counts that are looked at under one call.
const PARTITIONS: usize = 1024;

/// RowCache of names that are looked at under one call.
const NAMES: usize = 4096;

/// A scan of a directory's names that has begun.
pub struct Scan {
    /// The directory.
    pub dir: InodeId,
    /// The table as it was when it began; what happened since, the shard records.
    pub snapshot: Snapshot,
    /// Its count was lost in an unclean stop.
    pub uncounted: bool,
}

/// What a scan found.
#[derive(Debug, Default)]
pub struct Scanned {
    /// Names.
    pub names: u64,
    /// Of those, directories.
    pub directories: u64,
    /// All names, where they fit into memory.
    pub filter: Option<Filter>,
}

impl Shard {
    /// A directory in use whose names are to be scanned: one that was not counted again since an
    /// unclean stop, or else one whose filter fits into `room` bytes.
    #[must_use]
    pub fn next_to_scan(&self, room: u64) -> Option<InodeId> {
        let state = self.lock();
        let mut found = None;
        for (ino, directory) in state.directories.iter() {
            if !matches!(directory.filter, Known::Nothing) {
                continue;
            }
            if directory.uncounted {
                return Some(ino);
            }
            if found.is_none() && Filter::bytes_for(directory.names) < room {
                found = Some(ino);
            }
        }
        found
    }

    /// Directories from the key `from` on whose count was lost in an unclean stop, and the key to
    /// go on from: a number of rows is looked at. `None`: that were all.
    ///
    /// # Errors
    /// Where the table fails.
    pub fn uncounted(&self, from: &[u8]) -> Result<(Vec<InodeId>, Option<Vec<u8>>), Error> {
        let mut dirs = Vec::new();
        let (mut seen, mut more) = (0, None);
        let visited = self.table.scan(from, &key::all(RowKind::Partition).to, &mut |key, value| {
            if seen == PARTITIONS {
                more = Some(key.to_vec());
                return ControlFlow::Break(());
            }
            seen += 1;
            match (Key::parse(key), Partition::decode(value)) {
                (Some(Key::Partition { dir, .. }), Ok((_, row))) if row.dirty => dirs.push(dir),
                (_, Ok(_)) => {}
                // Who uses the directory is told.
                (_, Err(error)) => drop(row_damaged(key, error)),
            }
            ControlFlow::Continue(())
        });
        visited.map_err(|error| table_failed("looking for lost counts", &error))?;
        Ok((dirs, more))
    }

    /// The files with sought numbers that live under names, from the key `from` on, and the key to
    /// go on from: a number of rows is looked at. `None`: that were all. An empty key is before
    /// the first.
    ///
    /// # Errors
    /// Where the table fails.
    pub fn names_of_numbers(
        &self,
        from: &[u8],
        is_sought: &dyn Fn(InodeId) -> bool,
    ) -> Result<(Vec<Handle>, Option<Vec<u8>>), Error> {
        let range = key::all(RowKind::Name);
        let from = if from.is_empty() { &range.from } else { from };
        let mut found = Vec::new();
        let (mut seen, mut more) = (0, None);
        let visited = self.table.scan(from, &range.to, &mut |key, value| {
            if seen == NAMES {
                more = Some(key.to_vec());
                return ControlFlow::Break(());
            }
            seen += 1;
            match (key::parse_name(key), NameRow::decode(value)) {
                (Some((dir, hash, _)), Ok((_, NameRow::Rnode(rnode)))) => {
                    if is_sought(rnode.ino) {
                        found.push(Handle::at(rnode.ino, dir, hash));
                    }
                }
                (_, Ok(_)) => {}
                (_, Err(error)) => drop(row_damaged(key, error)),
            }
            ControlFlow::Continue(())
        });
        visited.map_err(|error| table_failed("looking for a file", &error))?;
        Ok((found, more))
    }

    /// Begins a scan: from now on the shard records which names come and go. `None`: there is
    /// nothing to scan any more.
    ///
    /// # Errors
    /// Where the table fails.
    pub fn begin_scan(&self, dir: InodeId) -> Result<Option<Scan>, Error> {
        let mut state = self.lock();
        match self.directory(&mut state, Handle::own(dir)) {
            Err(error) if error.code == Code::Stale => return Ok(None),
            known => known?,
        }
        let Some(directory) = state.directories.get_mut(dir) else { return Ok(None) };
        if !matches!(directory.filter, Known::Nothing) {
            return Ok(None);
        }
        let snapshot = self.table.snapshot().map_err(|error| table_failed("looking", &error))?;
        directory.filter = Known::Scanning(Changes::default());
        Ok(Some(Scan { dir, snapshot, uncounted: directory.uncounted }))
    }

    /// Ends a scan: what it found, and what happened since it began, is what is known from now on.
    /// `None`: it came to nothing. Answers whether so much happened that the names are not known:
    /// to scan them again at once would end no better.
    pub fn end_scan(&self, dir: InodeId, scanned: Option<Scanned>) -> bool {
        let mut state = self.lock();
        let Some(directory) = state.directories.get_mut(dir) else { return false };
        let Known::Scanning(changes) = std::mem::replace(&mut directory.filter, Known::Nothing)
        else {
            return false;
        };
        let Some(scanned) = scanned else { return false };
        if let Some(filter) = scanned.filter.and_then(|filter| changes.filter_on(filter)) {
            directory.filter = Known::All(filter);
        }
        if directory.uncounted {
            (directory.names, directory.directories) =
                changes.count_on((scanned.names, scanned.directories));
            directory.uncounted = false;
            state.directories.marked(dir);
        }
        changes.were_too_many()
    }

    /// Bytes that the filters of all directories take. Where that is more than `limit`, the filters
    /// of the largest directories go until it is not.
    pub fn limit_filters(&self, limit: u64) -> u64 {
        let mut state = self.lock();
        let mut bytes = state.directories.filter_bytes();
        while bytes > limit {
            let sizes = state.directories.iter().filter_map(|(ino, directory)| {
                let Known::All(filter) = &directory.filter else { return None };
                Some((filter.bytes(), ino))
            });
            let Some((largest, ino)) = sizes.max() else { break };
            if let Some(directory) = state.directories.get_mut(ino) {
                directory.filter = Known::Nothing;
            }
            bytes = bytes.saturating_sub(largest as u64);
            if largest == 0 {
                break;
            }
        }
        bytes
    }

    /// Buries a file that has neither name nor holder: its rows go, but for the orphan row, which
    /// goes with [`Shard::forget_orphans`] once its content is gone too. From now on nobody can
    /// open it. Answers the batch behind which that is so, and the newest content file that its row
    /// knows; `None`, and nothing is done, where it is held or has a name.
    ///
    /// # Errors
    /// Where the table fails, or a row is damaged.
    pub fn bury(&self, ino: InodeId) -> Result<Option<(u64, Option<Generation>)>, Error> {
        let (mut sequence, generation, mut more) = {
            let mut state = self.lock();
            if self.holds.has(ino) {
                return Ok(None);
            }
            let mut batch = Batch::new();
            let (generation, more) = match self.stored_rnode(ino)? {
                Some(rnode) if rnode.links > 0 => return Ok(None),
                Some(rnode) => {
                    let more = self.drop_all(&mut batch, &rnode)?;
                    (rnode.generation, more)
                }
                // Its rows went with its last name, but for extended attributes where those are
                // many.
                None => (None, self.has_xattrs.load(Ordering::Acquire)),
            };
            batch.allow_reserve();
            self.write(&mut state, batch)?;
            state.rows.drop_node(ino);
            (state.sequence, generation, more)
        };
        while more {
            let mut state = self.lock();
            let mut batch = Batch::new();
            batch.allow_reserve();
            more = self.drop_some_xattrs(&mut batch, ino, self.stamp(&state))?;
            self.write(&mut state, batch)?;
            sequence = state.sequence;
        }
        Ok(Some((sequence, generation)))
    }

    /// The content files of these buried files are gone for good: nothing is left to say of them.
    ///
    /// # Errors
    /// Where the table fails.
    pub fn forget_orphans(&self, inos: &[InodeId]) -> Result<(), Error> {
        let mut state = self.lock();
        let mut batch = Batch::new();
        batch.allow_reserve();
        for ino in inos {
            batch.delete(key::orphan(*ino));
            batch.delete(key::writing(*ino));
        }
        self.write(&mut state, batch)
    }

    /// The row of a file, and where it stands.
    ///
    /// # Errors
    /// `Stale`; where the table fails.
    pub fn stored(&self, handle: Handle) -> Result<Node, Error> {
        self.node(&mut self.lock(), handle)
    }

    /// These files are not being written, and their bytes are safe.
    ///
    /// # Errors
    /// Where the table fails.
    pub fn forget_marks(&self, inos: &[InodeId]) -> Result<(), Error> {
        let mut state = self.lock();
        let mut batch = Batch::new();
        batch.allow_reserve();
        for ino in inos {
            batch.delete(key::writing(*ino));
        }
        self.write(&mut state, batch)
    }

    /// What was answered to a request, where that is remembered.
    ///
    /// # Errors
    /// Where the table fails, or the row is damaged.
    pub fn answered(&self, request_key: &RequestKey) -> Result<Option<Reply>, Error> {
        let key = request_key.key();
        let Some(value) = self.get(&key)? else { return Ok(None) };
        let (_, row) = CachedReply::decode(&value).map_err(|error| row_damaged(&key, error))?;
        let reply = reply_cache::decode(row.reply).ok_or_else(|| {
            tracing::error!(key = %key.escape_ascii(), "a remembered answer makes no sense");
            Code::Corrupt
        })?;
        Ok(Some(reply))
    }

    /// Answers whether extended attributes are left.
    fn drop_all(&self, batch: &mut Batch, rnode: &Rnode) -> Result<bool, Error> {
        batch.delete(key::inode(rnode.ino));
        if rnode.flags.inline {
            batch.delete(key::inline(rnode.ino));
        }
        if rnode.flags.moved {
            batch.delete(key::moved(rnode.ino));
        }
        match rnode.flags.has_xattrs {
            true => self.drop_xattrs(batch, rnode),
            false => Ok(false),
        }
    }
}
