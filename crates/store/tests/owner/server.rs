//! A server of a shared store without its requests, and the rows and names that it makes.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pelago_store::folder::Folder;
use pelago_store::owner::{
    Beat, Candidate, Claim, LockId, Look, OwnedTable, ProcessRecord, Taken, boot_id,
};
use pelago_store::table::fjall::{FjallTable, Options};
use pelago_store::table::{Batch, Error, Table};
use pelago_store::volume::{SharedOptions, Volume};

/// The name of the baton of a new store.
pub(crate) const FIRST_BATON: &str = "00000000.0000000000000000.0000000000000000";
/// The time after which an owner counts as dead in these tests.
pub(crate) const PATIENCE: Duration = Duration::from_millis(300);
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Returns what a server says of which nothing proves that it has ended.
pub(crate) fn record(inode: u64) -> ProcessRecord {
    let lock = LockId { device: 1, inode };
    let [key, address] = ["pelago1a", "pelago1a@host:1"].map(str::to_owned);
    ProcessRecord { key, address, boot: boot_id().unwrap(), lock }
}

pub(crate) fn options() -> Options {
    // Little memory means many seals, flushes and compactions.
    Options { memory_bytes: 8 << 20 }
}

/// A server that stands by.
pub(crate) struct Server {
    pub(crate) beat: Beat,
    pub(crate) candidate: Candidate,
}

impl Server {
    pub(crate) fn new(store: &Folder, inode: u64) -> Self {
        Self::with_record(store, record(inode))
    }

    pub(crate) fn with_record(store: &Folder, record: ProcessRecord) -> Self {
        let beat = Beat::begin(store, &record).unwrap();
        let candidate = Candidate::new(store, beat.process(), record);
        Self { beat, candidate: candidate.with_patience(PATIENCE) }
    }

    /// As [`Server::new`], on a store that has no space for a file that shows that it lives.
    pub(crate) fn new_without_space(store: &Folder, inode: u64) -> Self {
        let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
        let beat = Beat::begin(&Folder::open(elsewhere.path()).unwrap(), &record(inode)).unwrap();
        let candidate = Candidate::new(store, beat.process(), record(inode));
        Self { beat, candidate: candidate.with_patience(PATIENCE) }
    }

    /// Looks until the shard is free.
    pub(crate) fn wait(&mut self) -> Claim {
        let deadline = Instant::now() + DEADLINE;
        loop {
            assert!(Instant::now() < deadline, "the shard never gets free");
            match self.candidate.look().unwrap() {
                Look::Free(claim) => return claim,
                // The candidate looks at names, of which nothing tells that they have moved.
                Look::Owned(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Takes the shard, when it is free.
    pub(crate) fn take(&mut self) -> Taken {
        let deadline = Instant::now() + DEADLINE;
        loop {
            assert!(Instant::now() < deadline, "the shard is never taken");
            if let Some(taken) = self.wait().take().unwrap() {
                return taken;
            }
        }
    }

    /// Takes the shard and opens its table, which is ready.
    pub(crate) fn own(&mut self) -> Owned {
        Owned::begin(self.take())
    }
}

/// A shard with its table.
pub(crate) struct Owned {
    pub(crate) taken: Taken,
    pub(crate) engine: Arc<FjallTable>,
    pub(crate) table: OwnedTable,
}

impl Owned {
    /// Opens the table of a shard that was taken, which is ready then.
    pub(crate) fn begin(taken: Taken) -> Self {
        let engine = Arc::new(FjallTable::open_in(taken.folder(), options()).unwrap());
        let table = OwnedTable::new(Arc::clone(&engine) as Arc<dyn Table>, taken.baton());
        table.persist().unwrap();
        taken.mark_ready().unwrap();
        taken.remove_older().unwrap();
        Self { taken, engine, table }
    }

    /// Closes the table and gives the shard away.
    pub(crate) fn release(self) {
        self.engine.close().unwrap();
        self.taken.baton().release().unwrap();
    }
}

pub(crate) fn key(number: u64) -> Vec<u8> {
    format!("n{number:016x}").into_bytes()
}

pub(crate) fn put(table: &impl Table, number: u64) -> Result<(), Error> {
    let mut batch = Batch::new();
    batch.put(key(number), vec![number as u8; 3000]);
    table.write(&batch)
}

/// Returns the numbers in a table, which have no gap.
pub(crate) fn count(table: &impl Table) -> u64 {
    let mut count = 0;
    let mut visit = |row: &[u8], value: &[u8]| {
        count += 1;
        assert_eq!(row, key(count));
        assert_eq!(value, vec![count as u8; 3000]);
        ControlFlow::Continue(())
    };
    table.scan(b"n", b"o", &mut visit).unwrap();
    count
}

pub(crate) fn make(dir: &Path) -> Volume {
    Volume::open_or_create_shared(dir, SharedOptions::default()).unwrap()
}

/// Returns the names in the folder of the shard that are folders of runs.
pub(crate) fn runs(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir.join("shard/0")).unwrap();
    let mut names: Vec<_> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.len() == 25);
    names.sort();
    names
}

/// Returns the name of the baton.
pub(crate) fn baton(dir: &Path) -> String {
    let names = fs::read_dir(dir.join("shard/0")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut batons: Vec<_> = names.filter(|name| name.len() == FIRST_BATON.len()).collect();
    assert_eq!(batons.len(), 1, "{batons:?}");
    batons.remove(0)
}

/// Returns the turn of the baton.
pub(crate) fn turn(dir: &Path) -> u64 {
    u64::from_str_radix(&baton(dir)[26..], 16).unwrap()
}
