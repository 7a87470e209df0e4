//! Listings: pages of a directory in the order of its hashes.
//!
//! A page is read from a snapshot without the shard's lock, so that a long listing stops no other
//! operation. Attributes are filled in under the lock. If a batch was written in between, rows of
//! the page may be old, and the page is read again under the lock: an attribute that leaves a shard
//! is never older than the last answered change (I-4). The first key of this second read is known
//! by then, and it has no more rows than the page.
//!
//! Names whose hashes are equal in the bits of a cookie are distinguished by ranks ([`Cookie`]). A
//! client that continues after a ranked cookie sends the name that had this cookie, so that the
//! page begins after it; if only the rank is known, names are counted up to it.

use std::ops::ControlFlow;

use pelago_store::key;
use pelago_store::report::{row_damaged, table_failed};
use pelago_store::rows::{NameRow, Row};
use pelago_store::table::{self, Visitor};
use pelago_wire::{Code, Cookie, DirEntry, Error, Handle, InodeId, Name, NameHash, limits};

use super::Shard;
use super::locked::Locked;
use super::txn::DirEntryKey;
use crate::row_cache::{Named, Node};

/// A page to list.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// The directory.
    pub dir: Handle,
    /// The cookie after which the page begins.
    pub after: Cookie,
    /// The name that has the ranked cookie, if it is known.
    pub behind: Option<&'a Name>,
    /// The number of entries, clamped to 1 and [`limits::LIST_ENTRIES`].
    pub entries: usize,
    /// True if entries have handles and attributes.
    pub attributes: bool,
}

/// Entries, and whether the listing ends with them.
pub(crate) type Listed = (Vec<DirEntry>, bool);

struct Listing {
    hash: NameHash,
    name: Name,
    row: NameRow,
    cookie: Cookie,
}

/// The start of a page.
struct Start {
    /// The first key.
    from: Vec<u8>,
    /// The first bits of the hashes whose names are counted …
    prefix: u64,
    /// … and the number of these names before the first key; `None` until they are counted.
    before: Option<u64>,
}

impl Shard {
    /// Returns a page of a directory, without `.` and `..`, and whether the listing ends with it.
    ///
    /// # Errors
    /// `Stale`, `NotDirectory`; `TooBig` if more names share a hash than cookies can tell apart.
    pub fn list(&self, page: Page<'_>) -> Result<Listed, Error> {
        list(self, page)
    }
}

/// Lists a page of a directory, without `.` and `..`.
pub(super) fn list(shard: &Shard, page: Page<'_>) -> Result<Listed, Error> {
    let page = Page { entries: page.entries.clamp(1, limits::LIST_ENTRIES), ..page };
    let (snapshot, sequence) = {
        let mut locked = shard.lock();
        locked.load_directory(page.dir)?;
        let snapshot = shard.table.snapshot().map_err(|error| table_failed("listing", &error))?;
        (snapshot, locked.state.sequence)
    };
    let mut scan = |from: &[u8], to: &[u8], visit: &mut Visitor<'_>| {
        match snapshot.scan(from, to, visit) {
            // The table was opened again in between: its present rows will do as well.
            Err(table::Error::StaleSnapshot) => shard.table.scan(from, to, visit),
            scanned => scanned,
        }
    };
    let Some(mut start) = start(shard, page, &mut scan)? else { return Ok((Vec::new(), true)) };
    let (rows, end) = read_page(page, &mut start, true, &mut scan)?;
    if !page.attributes {
        return Ok((rows.iter().map(plain_entry).collect(), end));
    }
    for row in &rows {
        shard.open_inodes.refresh(row.row.ino());
    }
    let mut locked = shard.lock();
    if locked.state.sequence == sequence {
        return Ok((with_attributes(&mut locked, page.dir.ino, rows, sequence)?, end));
    }
    let sequence = locked.state.sequence;
    let mut scan =
        |from: &[u8], to: &[u8], visit: &mut Visitor<'_>| shard.table.scan(from, to, visit);
    let (rows, end) = read_page(page, &mut start, false, &mut scan)?;
    Ok((with_attributes(&mut locked, page.dir.ino, rows, sequence)?, end))
}

/// Returns the start of a page; `None` if no name can follow.
fn start(shard: &Shard, page: Page<'_>, scan: &mut Scan<'_>) -> Result<Option<Start>, Error> {
    let dir = page.dir.ino;
    let Some((first, rank)) = page.after.rank() else {
        let Some(first) = page.after.first_hash_behind() else { return Ok(None) };
        let prefix = first.prefix();
        let before = (NameHash::first_of(prefix) == first).then_some(0);
        return Ok(Some(Start { from: key::names_from(dir, first), prefix, before }));
    };
    let prefix = first.prefix();
    let known = page.behind.map(|name| (shard.hasher.hash(name.as_bytes()), name));
    if let Some((hash, name)) = known.filter(|(hash, _)| hash.prefix() == prefix) {
        let from = behind(key::name(dir, hash, name.as_bytes()));
        return Ok(Some(Start { from, prefix, before: Some(rank) }));
    }
    let from = key::names_from(dir, first);
    let (from, before) = skip(dir, from, prefix, rank, scan)?;
    Ok(Some(Start { from, prefix, before: Some(before) }))
}

/// Returns the entries of rows that were read when `sequence` was the last batch.
fn with_attributes(
    locked: &mut Locked<'_>,
    dir: InodeId,
    rows: Vec<Listing>,
    sequence: u64,
) -> Result<Vec<DirEntry>, Error> {
    assert!(
        locked.state.sequence == sequence,
        "I-4: a listing would show attributes from before a batch that was answered"
    );
    rows.into_iter().map(|row| full_entry(locked, dir, row)).collect()
}

fn full_entry(locked: &mut Locked<'_>, dir: InodeId, row: Listing) -> Result<DirEntry, Error> {
    let mut listed = plain_entry(&row);
    let Listing { hash, name, row, .. } = row;
    let named = Named {
        name: name.clone(),
        ino: row.ino(),
        kind: row.kind(),
        is_embedded: matches!(row, NameRow::Rnode(_)),
    };
    let key = DirEntryKey { dir, hash, name };
    let node = match row {
        NameRow::Rnode(rnode) => {
            let node = Node { rnode, location: key.into_location() };
            locked.state.rows.put_node(node.clone());
            node
        }
        NameRow::Link { .. } => match locked.node_named(&key, &named) {
            // Its attributes are at its home site.
            Err(error) if error.code == Code::Elsewhere => return Ok(listed),
            found => found?,
        },
    };
    locked.state.rows.put_named(dir, hash, named);
    listed.entry = Some(locked.entry_of(&node)?);
    Ok(listed)
}

type Scan<'a> = dyn FnMut(&[u8], &[u8], &mut Visitor<'_>) -> Result<(), table::Error> + 'a;

/// Returns the rows of a page, and whether the listing ends with them. The names before the page
/// are counted only if `may_count`.
fn read_page(
    page: Page<'_>,
    start: &mut Start,
    may_count: bool,
    scan: &mut Scan<'_>,
) -> Result<(Vec<Listing>, bool), Error> {
    let to = key::names_of_dir(page.dir.ino).to;
    let mut rows: Vec<Listing> = Vec::with_capacity(page.entries.min(64));
    let mut next = None;
    let mut fault = None;
    let visited = scan(&start.from, &to, &mut |key, value| {
        if rows.len() >= page.entries {
            next = key::parse_name(key).map(|(_, hash, _)| hash);
            fault = next.is_none().then(|| Code::Corrupt.into());
            return ControlFlow::Break(());
        }
        match read_row(key, value) {
            Ok(row) => {
                rows.push(row);
                ControlFlow::Continue(())
            }
            Err(error) => {
                fault = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    visited.map_err(|error| table_failed("listing", &error))?;
    if let Some(error) = fault {
        return Err(error);
    }
    let begins_within = rows.first().is_some_and(|row| row.hash.prefix() == start.prefix);
    if start.before.is_none() && begins_within && may_count {
        let first = key::names_from(page.dir.ino, NameHash::first_of(start.prefix));
        start.before = Some(count(&first, &start.from, scan)?);
    }
    rank(&mut rows, next, start)?;
    Ok((rows, next.is_none()))
}

/// Sets ranked cookies for names whose neighbour would have the same cookie. `next` is the hash
/// after the page.
fn rank(rows: &mut [Listing], next: Option<NameHash>, start: &Start) -> Result<(), Error> {
    let mut prefix = start.prefix;
    let mut rank = start.before.unwrap_or(0);
    for index in 0..rows.len() {
        let hash = rows[index].hash;
        if hash.prefix() != prefix {
            prefix = hash.prefix();
            rank = 0;
        }
        rank += 1;
        let following = rows.get(index + 1).map(|row| row.hash).or(next);
        if following.is_some_and(|other| Cookie::of(other) == Cookie::of(hash)) {
            rows[index].cookie = Cookie::ranked(hash, rank).ok_or(Code::TooBig)?;
        }
    }
    Ok(())
}

/// Skips `rank` names with a prefix. Returns the key after them, and their number: fewer if the
/// prefix has no more names.
fn skip(
    dir: InodeId,
    from: Vec<u8>,
    prefix: u64,
    rank: u64,
    scan: &mut Scan<'_>,
) -> Result<(Vec<u8>, u64), Error> {
    let to = key::names_of_dir(dir).to;
    let mut last = None;
    let mut passed = 0;
    let visited = scan(&from, &to, &mut |key, _| {
        let within = key::parse_name(key).is_some_and(|(_, hash, _)| hash.prefix() == prefix);
        if passed == rank || !within {
            return ControlFlow::Break(());
        }
        passed += 1;
        last = Some(key.to_vec());
        ControlFlow::Continue(())
    });
    visited.map_err(|error| table_failed("listing", &error))?;
    Ok((last.map_or(from, behind), passed))
}

/// Counts the rows of a range.
fn count(from: &[u8], to: &[u8], scan: &mut Scan<'_>) -> Result<u64, Error> {
    let mut rows = 0;
    let visited = scan(from, to, &mut |_, _| {
        rows += 1;
        ControlFlow::Continue(())
    });
    visited.map_err(|error| table_failed("listing", &error))?;
    Ok(rows)
}

/// Returns the least key that is greater than this one.
fn behind(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

fn read_row(key: &[u8], value: &[u8]) -> Result<Listing, Error> {
    let (_, hash, bytes) = key::parse_name(key).ok_or(Code::Corrupt)?;
    let name = Name::new(bytes).map_err(|_| Code::Corrupt)?;
    let (_, row) = NameRow::decode(value).map_err(|error| row_damaged(key, error))?;
    Ok(Listing { hash, name, row, cookie: Cookie::of(hash) })
}

fn plain_entry(row: &Listing) -> DirEntry {
    DirEntry {
        name: row.name.clone(),
        ino: row.row.ino(),
        kind: row.row.kind(),
        cookie: row.cookie,
        entry: None,
    }
}
