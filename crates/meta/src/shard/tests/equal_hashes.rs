//! Names with equal hashes: each comes once, in pages of any size, and a listing of them visits
//! about as many rows as it returns.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use pelago_store::table::{self, Pressure, Snapshot, Usage, Visitor};
use pelago_wire::{DirEntry, ShardId, limits};

use super::*;

/// Names of one directory: more than a page may have.
const MANY: usize = 3_500;

/// A table that counts the rows that scans visit.
struct Counted {
    table: FakeTable,
    visited: Arc<AtomicUsize>,
}

/// A snapshot of it.
struct CountedSnapshot {
    snapshot: Snapshot,
    visited: Arc<AtomicUsize>,
}

impl TableRead for CountedSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, table::Error> {
        self.snapshot.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visitor<'_>) -> Result<(), table::Error> {
        self.snapshot.scan(from, to, &mut |key, value| {
            self.visited.fetch_add(1, Ordering::Relaxed);
            visit(key, value)
        })
    }
}

impl TableRead for Counted {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, table::Error> {
        self.table.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visitor<'_>) -> Result<(), table::Error> {
        self.table.scan(from, to, &mut |key, value| {
            self.visited.fetch_add(1, Ordering::Relaxed);
            visit(key, value)
        })
    }
}

impl Table for Counted {
    fn snapshot(&self) -> Result<Snapshot, table::Error> {
        let snapshot = self.table.snapshot()?;
        let visited = Arc::clone(&self.visited);
        Ok(Box::new(CountedSnapshot { snapshot, visited }))
    }

    fn write(&self, batch: &Batch) -> Result<(), table::Error> {
        self.table.write(batch)
    }

    fn persist(&self) -> Result<(), table::Error> {
        self.table.persist()
    }

    fn ingest(
        &self,
        rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Result<(), table::Error> {
        self.table.ingest(rows)
    }

    fn pressure(&self) -> Pressure {
        self.table.pressure()
    }

    fn reopen(&self) -> Result<bool, table::Error> {
        self.table.reopen()
    }

    fn has_failed_sync(&self) -> bool {
        self.table.has_failed_sync()
    }

    fn usage(&self) -> Usage {
        self.table.usage()
    }
}

/// A shard whose hashes have few bits, with many names in the root.
struct Scene {
    table: FakeTable,
    shard: Shard,
    visited: Arc<AtomicUsize>,
    names: BTreeSet<String>,
    bits: u32,
}

impl Scene {
    fn new(bits: u32) -> Self {
        let table = Rig::new().table;
        let (shard, visited) = Self::shard(&table, 1, bits);
        let names: BTreeSet<_> = (0..MANY).map(|number| format!("name{number}")).collect();
        for text in &names {
            let new = NewInode::file(NewMode::exactly(0o644));
            shard.create(&CALLER, ROOT, &name(text), new, at(110)).unwrap();
        }
        Self { table, shard, visited, names, bits }
    }

    fn shard(table: &FakeTable, epoch: u32, bits: u32) -> (Shard, Arc<AtomicUsize>) {
        let visited = Arc::new(AtomicUsize::new(0));
        let counted = Counted { table: table.clone(), visited: Arc::clone(&visited) };
        let shard = Shard::new(Parts {
            id: ShardId::FIRST,
            table: Arc::new(counted),
            hasher: NameHasher::truncated(7, bits),
            durability: Arc::new(Durability::default()),
            epoch,
            next_id: 10_000 * u64::from(epoch),
            cache_bytes: 1 << 20,
            started: at(500),
        });
        (shard, visited)
    }

    fn restarted(&self) -> Self {
        let (shard, visited) = Self::shard(&self.table, 2, self.bits);
        let table = self.table.clone();
        let names = self.names.clone();
        Self { table, shard, visited, names, bits: self.bits }
    }

    fn page(&self, after: Cookie, behind: Option<&Name>, entries: usize) -> (Vec<DirEntry>, bool) {
        let page =
            Page { dir: ROOT, after, behind, entries, attributes: entries.is_multiple_of(2) };
        self.shard.list(page).unwrap()
    }

    /// Lists from a cookie to the end as a client does; `exactly`: it says the names it is behind.
    fn list(&self, from: Cookie, entries: usize, exactly: bool) -> Vec<DirEntry> {
        let mut listed: Vec<DirEntry> = Vec::new();
        let mut after = from;
        let mut behind: Option<Name> = None;
        loop {
            let (page, end) = self.page(after, behind.as_ref().filter(|_| exactly), entries);
            assert!(page.len() <= entries, "{} entries in a page of {entries}", page.len());
            let Some(last) = page.last() else { return listed };
            after = last.cookie;
            behind = Some(last.name.clone());
            listed.extend(page);
            assert!(listed.len() <= MANY, "a listing that does not end");
            if end {
                return listed;
            }
        }
    }
}

fn texts(entries: &[DirEntry]) -> Vec<String> {
    entries.iter().map(|entry| entry.name.to_string()).collect()
}

/// Bits of the hashes: all names equal, a few hashes, some that share a prefix only, all different.
const BITS: [u32; 5] = [0, 1, 6, 12, 64];

#[test]
fn each_name_comes_once_and_the_rows_visited_are_linear() {
    for bits in BITS {
        let scene = Scene::new(bits);
        for entries in [7, 128, limits::LIST_ENTRIES] {
            let before = scene.visited.load(Ordering::Relaxed);
            let listed = texts(&scene.list(Cookie::START, entries, true));
            let visited = scene.visited.load(Ordering::Relaxed) - before;
            let set: BTreeSet<String> = listed.iter().cloned().collect();
            assert_eq!(listed.len(), MANY, "bits {bits}, {entries} entries");
            assert_eq!(set, scene.names, "bits {bits}, {entries} entries");
            // Each page reads one row behind it.
            let pages = MANY.div_ceil(entries);
            assert!(visited <= MANY + 2 * pages, "bits {bits}: {visited} rows, {pages} pages");
        }
    }
}

/// A client that says no names gets every name once too, and the same cookies.
#[test]
fn cookies_alone_lead_to_the_same_names() {
    for bits in BITS {
        let scene = Scene::new(bits);
        let exact = scene.list(Cookie::START, 100, true);
        let counted = scene.list(Cookie::START, 100, false);
        assert_eq!(texts(&counted), texts(&exact), "bits {bits}");
        let cookies = |listed: &[DirEntry]| -> Vec<Cookie> {
            listed.iter().map(|entry| entry.cookie).collect()
        };
        assert_eq!(cookies(&counted), cookies(&exact), "bits {bits}");
        let distinct: BTreeSet<Cookie> = cookies(&exact).into_iter().collect();
        assert_eq!(distinct.len(), MANY, "bits {bits}: two names have one cookie");
    }
}

/// `telldir`, a restart, `seekdir`.
#[test]
fn a_cookie_is_valid_after_a_restart() {
    for bits in BITS {
        let scene = Scene::new(bits);
        let listed = scene.list(Cookie::START, 100, true);
        let again = scene.restarted();
        for index in (0..MANY).step_by(313) {
            let behind = again.list(listed[index].cookie, 500, true);
            assert_eq!(texts(&behind), texts(&listed[index + 1..]), "bits {bits}, {index}");
        }
    }
}

/// A directory is emptied while it is listed, as `rm -r` does: names before the cookie are removed,
/// and none behind it is skipped.
#[test]
fn removed_names_do_not_move_a_cookie_that_comes_with_its_name() {
    for bits in BITS {
        let scene = Scene::new(bits);
        let mut after = Cookie::START;
        let mut behind = None::<Name>;
        let mut seen = 0;
        loop {
            let (page, end) = scene.page(after, behind.as_ref(), 64);
            for entry in &page {
                scene.shard.unlink(ROOT, &entry.name, at(130)).unwrap();
            }
            seen += page.len();
            if let Some(last) = page.last() {
                after = last.cookie;
                behind = Some(last.name.clone());
            }
            if end {
                break;
            }
        }
        assert_eq!(seen, MANY, "bits {bits}");
        assert!(scene.list(Cookie::START, 100, true).is_empty(), "bits {bits}");
    }
}

/// The cookie of a name whose hash is unique follows from the hash: nothing else moves it.
#[test]
fn a_cookie_of_a_unique_hash_never_moves() {
    let scene = Scene::new(64);
    let listed = scene.list(Cookie::START, 100, true);
    assert!(listed.iter().all(|entry| entry.cookie.rank().is_none()));
    for entry in listed.iter().step_by(2) {
        scene.shard.unlink(ROOT, &entry.name, at(130)).unwrap();
    }
    for index in (0..MANY).step_by(501) {
        let behind = texts(&scene.list(listed[index].cookie, 100, false));
        let left = listed.iter().enumerate().skip(index + 1).filter(|(at, _)| at % 2 == 1);
        let left: Vec<_> = left.map(|(_, entry)| entry.name.to_string()).collect();
        assert_eq!(behind, left);
    }
}

/// A cookie that was never given, or to a directory with fewer names, gets a page or an error.
#[test]
fn any_cookie_is_answered() {
    let scene = Scene::new(1);
    for offset in [3 << 61, (3 << 61) + 1, (3 << 61) | limits::EQUAL_NAMES, u64::MAX >> 1, u64::MAX]
    {
        for behind in [None, Some(name("name7")), Some(name("other"))] {
            let behind = behind.as_ref();
            let page =
                Page { dir: ROOT, after: Cookie(offset), behind, entries: 10, attributes: false };
            match scene.shard.list(page) {
                Ok((entries, _)) => assert!(entries.len() <= 10),
                // Behind the highest rank.
                Err(error) => assert_eq!(error.code, Code::TooBig),
            }
        }
    }
}
