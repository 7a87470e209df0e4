//! Listings: pages of a directory in the order of its hashes.
//!
//! A page is read from a snapshot without the shard's lock, so that a long listing stops nobody.
//! Attributes are filled in under the lock. Where a batch was written in between, rows of the
//! page may be old; then the page is read again under the lock: an attribute that leaves a shard is
//! never older than the last change it answered.

use std::ops::ControlFlow;

use pelago_store::key;
use pelago_store::rows::{NameRow, Row};
use pelago_store::table::{self, Visit};
use pelago_wire::{Code, Cookie, DirEntry, Error, Handle, InodeId, Name, NameHash, limits};

use super::{Shard, State, damaged, failed};
use crate::cache::{Named, Node, Place};

/// What a listing asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page {
    /// The directory.
    pub dir: Handle,
    /// Behind which place to go on.
    pub after: Cookie,
    /// Entries wanted; a few more come where names share a cookie.
    pub entries: usize,
    /// Whether handles and attributes are wanted too.
    pub attributes: bool,
}

/// Entries, and whether nothing comes behind them.
pub(crate) type Listed = (Vec<DirEntry>, bool);

struct Listing {
    hash: NameHash,
    name: Name,
    row: NameRow,
}

impl Shard {
    /// A page of a directory, without `.` and `..`.
    ///
    /// # Errors
    /// `Stale`, `NotDirectory`.
    pub(crate) fn list(&self, page: Page) -> Result<Listed, Error> {
        let page = Page { entries: page.entries.clamp(1, limits::LIST_ENTRIES), ..page };
        let (snapshot, sequence) = {
            let mut state = self.lock();
            self.directory(&mut state, page.dir)?;
            let snapshot = self.table.snapshot().map_err(|error| failed("listing", &error))?;
            (snapshot, state.sequence)
        };
        let mut scan =
            |from: &[u8], to: &[u8], visit: &mut Visitor<'_>| snapshot.scan(from, to, visit);
        let (rows, end) = read_page(page, &mut scan)?;
        if !page.attributes {
            return Ok((rows.iter().map(plain_entry).collect(), end));
        }
        for row in &rows {
            self.holds.refresh(row.row.ino());
        }
        let mut state = self.lock();
        if state.sequence == sequence {
            return Ok((self.with_attributes(&mut state, page.dir.ino, rows)?, end));
        }
        let mut scan =
            |from: &[u8], to: &[u8], visit: &mut Visitor<'_>| self.table.scan(from, to, visit);
        let (rows, end) = read_page(page, &mut scan)?;
        Ok((self.with_attributes(&mut state, page.dir.ino, rows)?, end))
    }

    fn with_attributes(
        &self,
        state: &mut State,
        dir: InodeId,
        rows: Vec<Listing>,
    ) -> Result<Vec<DirEntry>, Error> {
        rows.into_iter().map(|row| self.full_entry(state, dir, row)).collect()
    }

    fn full_entry(&self, state: &mut State, dir: InodeId, row: Listing) -> Result<DirEntry, Error> {
        let mut listed = plain_entry(&row);
        let Listing { hash, name, row } = row;
        let named = Named {
            name: name.clone(),
            ino: row.ino(),
            kind: row.kind(),
            here: matches!(row, NameRow::Rnode(_)),
        };
        let node = match row {
            NameRow::Rnode(rnode) => {
                let node = Node { rnode, place: Place::Name { dir, hash, name } };
                state.rows.put_node(node.clone());
                node
            }
            NameRow::Link { .. } => self.node_of(state, dir, hash, &named)?,
        };
        state.rows.put_named(dir, hash, named);
        listed.entry = Some(self.entry(state, &node)?);
        Ok(listed)
    }
}

type Visitor<'a> = dyn FnMut(&[u8], &[u8]) -> Visit + 'a;
type Scan<'a> = dyn FnMut(&[u8], &[u8], &mut Visitor<'_>) -> Result<(), table::Error> + 'a;

/// The rows of a page, and whether nothing comes behind them.
fn read_page(page: Page, scan: &mut Scan<'_>) -> Result<(Vec<Listing>, bool), Error> {
    let Some(first) = page.after.first_hash_behind() else { return Ok((Vec::new(), true)) };
    let from = key::names_from(page.dir.ino, first);
    let to = key::names_of_dir(page.dir.ino).to;
    let mut rows: Vec<Listing> = Vec::with_capacity(page.entries.min(64));
    let (mut end, mut fault) = (true, None);
    let visited = scan(&from, &to, &mut |key, value| match read_row(key, value) {
        Ok(row) => {
            let goes_on = rows.last().is_some_and(|last| same_cookie(last, &row));
            if rows.len() >= page.entries && !goes_on {
                end = false;
                return ControlFlow::Break(());
            }
            rows.push(row);
            ControlFlow::Continue(())
        }
        Err(error) => {
            fault = Some(error);
            ControlFlow::Break(())
        }
    });
    visited.map_err(|error| failed("listing", &error))?;
    fault.map_or(Ok((rows, end)), Err)
}

fn read_row(key: &[u8], value: &[u8]) -> Result<Listing, Error> {
    let (_, hash, bytes) = key::parse_name(key).ok_or(Code::Corrupt)?;
    let name = Name::new(bytes).map_err(|_| Code::Corrupt)?;
    let (_, row) = NameRow::decode(value).map_err(|error| damaged(key, error))?;
    Ok(Listing { hash, name, row })
}

fn same_cookie(one: &Listing, other: &Listing) -> bool {
    Cookie::of(one.hash) == Cookie::of(other.hash)
}

fn plain_entry(row: &Listing) -> DirEntry {
    DirEntry {
        name: row.name.clone(),
        ino: row.row.ino(),
        kind: row.row.kind(),
        cookie: Cookie::of(row.hash),
        entry: None,
    }
}
