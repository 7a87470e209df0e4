//! One of several processes owns a shared store: what it called safe is in the table of the next
//! one, and what it writes after that is in none. The owner that is stopped or killed is this test
//! binary, started again.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pelago_store::folder::Folder;
use pelago_store::owner::{
    Beat, Candidate, Claim, LockId, Look, OwnedTable, ServerSays, Taken, boot_id,
};
use pelago_store::table::fjall::{FjallTable, Options};
use pelago_store::table::{Batch, Error, Table, TableRead};
use pelago_store::volume::{SharedOptions, Volume};
use rustix::process::{Pid, Signal, kill_process};

/// The environment variables that tell an owner its store and what it does.
const STORE: &str = "STORE_OWNER_FOLDER";
const PAUSES: &str = "STORE_OWNER_PAUSES";
/// The time after which an owner counts as dead in these tests.
const PATIENCE: Duration = Duration::from_millis(300);
const DEADLINE: Duration = Duration::from_secs(60);

/// Returns what a server says of which nothing proves that it has ended.
fn says(inode: u64) -> ServerSays {
    let lock = LockId { device: 1, inode };
    let [key, address] = ["pelago1a", "pelago1a@host:1"].map(str::to_owned);
    ServerSays { key, address, boot: boot_id().unwrap(), lock }
}

fn options() -> Options {
    // Little memory means many seals, flushes and compactions.
    Options { memory_bytes: 8 << 20 }
}

/// A server that stands by.
struct Server {
    beat: Beat,
    candidate: Candidate,
}

impl Server {
    fn new(store: &Folder, inode: u64) -> Self {
        let beat = Beat::begin(store, &says(inode)).unwrap();
        let candidate = Candidate::new(store, beat.process(), says(inode));
        Self { beat, candidate: candidate.with_patience(PATIENCE) }
    }

    /// Looks until the shard is free.
    fn wait(&mut self) -> Claim {
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
    fn take(&mut self) -> Taken {
        let deadline = Instant::now() + DEADLINE;
        loop {
            assert!(Instant::now() < deadline, "the shard is never taken");
            if let Some(taken) = self.wait().take().unwrap() {
                return taken;
            }
        }
    }

    /// Takes the shard and opens its table, which is ready.
    fn own(&mut self) -> Owned {
        let taken = self.take();
        let engine = Arc::new(FjallTable::open_in(taken.folder(), options()).unwrap());
        let table = OwnedTable::new(Arc::clone(&engine) as Arc<dyn Table>, taken.baton());
        table.persist().unwrap();
        taken.mark_ready().unwrap();
        taken.remove_older().unwrap();
        Owned { taken, engine, table }
    }
}

struct Owned {
    taken: Taken,
    engine: Arc<FjallTable>,
    table: OwnedTable,
}

impl Owned {
    /// Closes the table and gives the shard away.
    fn release(self) {
        self.engine.close().unwrap();
        self.taken.baton().release().unwrap();
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("n{number:016x}").into_bytes()
}

fn put(table: &impl Table, number: u64) -> Result<(), Error> {
    let mut batch = Batch::new();
    batch.put(key(number), vec![number as u8; 3000]);
    table.write(&batch)
}

/// Returns the numbers in a table, which have no gap.
fn count(table: &impl Table) -> u64 {
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

fn make(dir: &Path) -> Volume {
    Volume::open_or_create_shared(dir, SharedOptions::default()).unwrap()
}

/// Returns the names in the folder of the shard that are folders of runs.
fn runs(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir.join("shard/0")).unwrap();
    let mut names: Vec<_> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.len() == 25);
    names.sort();
    names
}

/// Writes and persists numbers until the shard is lost, and prints each that is safe. Run as a
/// test, it does nothing.
#[test]
fn own_until_fenced() {
    let (Ok(dir), Ok(pauses)) = (std::env::var(STORE), std::env::var(PAUSES)) else { return };
    let volume = make(Path::new(&dir));
    let mut server = Server::new(volume.folder(), 100);
    let owned = server.own();
    let mut number = count(&owned.table);
    let mut out = std::io::stdout().lock();
    writeln!(out, "owns {number}").unwrap();
    let error = loop {
        number += 1;
        let done = put(&owned.table, number).and_then(|()| match number.is_multiple_of(4) {
            true => owned.table.persist(),
            false => Ok(()),
        });
        match done {
            Ok(()) if number.is_multiple_of(4) => writeln!(out, "safe {number}").unwrap(),
            Ok(()) => {}
            Err(error) => break error,
        }
        if pauses == "beat" {
            server.beat.renew().unwrap();
        }
    };
    assert!(matches!(error, Error::Fenced), "{error}");
    assert!(matches!(owned.table.reopen(), Err(Error::Fenced)));
    assert!(matches!(owned.table.get(&key(1)), Err(Error::Fenced)));
    assert!(owned.taken.baton().is_lost());
    writeln!(out, "fenced").unwrap();
}

/// An owner in a process of its own.
struct Process {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Process {
    fn start(dir: &Path, pauses: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "own_until_fenced", "--nocapture", "--test-threads=1"])
            .env(STORE, dir)
            .env(PAUSES, pauses)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// Reads until a number of at least `until` is safe; returns that.
    fn safe(&mut self, until: u64) -> u64 {
        for _ in 0..1_000_000 {
            let mut line = String::new();
            assert_ne!(self.out.read_line(&mut line).unwrap(), 0, "the owner has ended");
            if let Some(number) = line.strip_prefix("safe ") {
                let number = number.trim().parse().unwrap();
                if number >= until {
                    return number;
                }
            }
        }
        panic!("the owner never gets there");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Reads to the end; returns the highest number that was safe, and whether it was fenced.
    fn end(mut self) -> (u64, bool) {
        let mut highest = 0;
        let mut is_fenced = false;
        let mut line = String::new();
        while self.out.read_line(&mut line).unwrap_or(0) > 0 {
            if let Some(number) = line.strip_prefix("safe ") {
                highest = number.trim().parse().unwrap();
            }
            is_fenced |= line.contains("fenced");
            line.clear();
        }
        let _ended = self.child.wait().unwrap();
        (highest, is_fenced)
    }
}

/// The owner is stopped at a random moment, or left busy without beats; it goes on after the taker
/// has written.
#[test]
fn what_an_owner_called_safe_is_there_and_nothing_later() {
    let temp = tempfile::tempdir().unwrap();
    let volume = make(temp.path());
    let mut last = 0;
    for round in 0..6_u64 {
        let is_stopped = round % 3 != 2;
        let mut process = Process::start(temp.path(), "none");
        // Random enough: the speed of the process differs in each run.
        let seen = process.safe(last + 1 + round * 113);
        if is_stopped {
            process.signal(Signal::STOP);
        }
        let mut taker = Server::new(volume.folder(), 200 + round);
        // An owner that is busy moves its baton, and lives: take it from it all the same.
        let owned = if is_stopped { taker.own() } else { take_by_force(&mut taker, temp.path()) };
        let before = count(&owned.table);
        assert!(before >= seen, "round {round}: {seen} was safe, {before} is there");
        let mut batch = Batch::new();
        batch.put(b"round".to_vec(), round.to_le_bytes().to_vec());
        owned.table.write(&batch).unwrap();
        owned.table.persist().unwrap();
        process.signal(Signal::CONT);
        let (safe, is_fenced) = process.end();
        assert!(is_fenced, "round {round}");
        assert!(before >= safe, "round {round}: {safe} was safe, {before} is there");
        assert_eq!(count(&owned.table), before, "round {round}: a late row");
        assert_eq!(owned.table.get(b"round").unwrap().unwrap(), round.to_le_bytes());
        assert_eq!(runs(temp.path()).len(), 1, "older folders are removed");
        owned.release();
        last = before;
    }
}

/// Takes the shard of an owner that lives, as a taker does whose clock is far too fast.
fn take_by_force(taker: &mut Server, dir: &Path) -> Owned {
    let candidate = Candidate::new(make(dir).folder(), taker.beat.process(), says(999));
    let mut impatient = candidate.with_patience(Duration::ZERO);
    let deadline = Instant::now() + DEADLINE;
    let taken = loop {
        assert!(Instant::now() < deadline, "the owner is always faster");
        if let Look::Free(claim) = impatient.look().unwrap()
            && let Some(taken) = claim.take().unwrap()
        {
            break taken;
        }
    };
    let engine = Arc::new(FjallTable::open_in(taken.folder(), options()).unwrap());
    let table = OwnedTable::new(Arc::clone(&engine) as Arc<dyn Table>, taken.baton());
    table.persist().unwrap();
    taken.mark_ready().unwrap();
    taken.remove_older().unwrap();
    Owned { taken, engine, table }
}

#[test]
fn a_new_store_has_an_empty_table_and_a_released_one_is_taken_at_once() {
    let temp = tempfile::tempdir().unwrap();
    let volume = make(temp.path());
    let mut one = Server::new(volume.folder(), 1);
    let owned = one.own();
    assert_eq!(count(&owned.table), 0);
    put(&owned.table, 1).unwrap();
    let mut two = Server::new(volume.folder(), 2);
    assert!(matches!(two.candidate.look().unwrap(), Look::Owned(Some(it)) if it == says(1)));
    owned.release();
    one.beat.end();
    let Look::Free(claim) = two.candidate.look().unwrap() else { panic!("it is released") };
    drop(claim);
    let owned = two.own();
    assert_eq!(count(&owned.table), 1, "a clean stop makes all safe");
    assert_eq!(owned.taken.baton().epoch(), 2);
}
