//! One of several processes owns a shared store: what it called safe is in the table of the next
//! one, and what it writes after that is in none. The owner that is stopped or killed is this test
//! binary, started again.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use pelago_store::owner::{
    Beat, Candidate, Claim, Look, OwnedTable, OwnerError, ProcessRecord, Taken,
};
use pelago_store::table::fjall::FjallTable;
use pelago_store::table::{Batch, Error, Table, TableRead};
use pelago_store::volume::Volume;
use rustix::process::{Pid, Signal, kill_process};

use server::{
    DEADLINE, FIRST_BATON, Owned, PATIENCE, Server, baton, count, key, make, options, put, record,
    runs, turn,
};

mod bytes;
mod overtaking;
mod server;
mod stopping;

/// The environment variables that tell a process its store, its last step, and a full store.
const STORE: &str = "STORE_OWNER_FOLDER";
const STEP: &str = "STORE_OWNER_STEP";
const SMALL: &str = "STORE_OWNER_SMALL";

/// Writes and persists numbers until the shard is lost, and prints each that is safe. Run as a
/// test, it does nothing.
#[test]
fn own_until_fenced() {
    let (Ok(dir), Err(_)) = (std::env::var(STORE), std::env::var(STEP)) else { return };
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
    };
    assert!(matches!(error, Error::Fenced), "{error}");
    assert!(matches!(owned.table.reopen(), Err(Error::Fenced)));
    assert!(matches!(owned.table.get(&key(1)), Err(Error::Fenced)));
    assert!(owned.taken.baton().is_fenced());
    writeln!(out, "fenced").unwrap();
}

/// An owner in a process of its own.
struct Process {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Process {
    fn start(dir: &Path, test: &str, variable: &str, value: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(STORE, dir)
            .env(variable, value)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// Reads until the process says `line`.
    fn wait_for(&mut self, wanted: &str) {
        for _ in 0..100 {
            let mut line = String::new();
            assert_ne!(self.out.read_line(&mut line).unwrap(), 0, "the process has ended");
            if line.trim_end().ends_with(wanted) {
                return;
            }
        }
        panic!("it never says {wanted}");
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
        let mut process = Process::start(
            temp.path(),
            "own_until_fenced",
            "STORE_OWNER_ROUND",
            &round.to_string(),
        );
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
    let candidate = Candidate::new(make(dir).folder(), taker.beat.process(), record(999));
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
    Owned::begin(taken)
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
    assert!(matches!(two.candidate.look().unwrap(), Look::Owned(Some(it)) if it == record(1)));
    owned.release();
    one.beat.end();
    let Look::Free(claim) = two.candidate.look().unwrap() else { panic!("it is released") };
    drop(claim);
    let owned = two.own();
    assert_eq!(count(&owned.table), 1, "a clean stop makes all safe");
    assert_eq!(owned.taken.baton().epoch(), 2);
}

#[test]
fn of_several_takers_one_wins() {
    let temp = tempfile::tempdir().unwrap();
    let volume = make(temp.path());
    for round in 0..20_u32 {
        let mut servers: Vec<_> =
            (0..4).map(|number| Server::new(volume.folder(), number)).collect();
        let claims: Vec<Claim> = servers.iter_mut().map(Server::wait).collect();
        let barrier = Barrier::new(claims.len());
        let taken: Vec<Option<Taken>> = thread::scope(|scope| {
            let start = |claim: Claim| {
                let take = || {
                    barrier.wait();
                    claim.take().unwrap()
                };
                let builder = thread::Builder::new().name("taker".to_owned());
                builder.spawn_scoped(scope, take).unwrap()
            };
            let takers: Vec<_> = claims.into_iter().map(start).collect();
            takers.into_iter().map(|taker| taker.join().unwrap()).collect()
        });
        let mut winners = taken.into_iter().flatten();
        let baton = winners.next().unwrap().baton();
        assert!(winners.next().is_none(), "round {round}");
        assert_eq!(baton.epoch(), round + 1);
        baton.release().unwrap();
        servers.iter().for_each(|server| server.beat.end());
    }
}

/// The owner has moved after the taker looked: the taker takes nothing.
#[test]
fn an_owner_that_moves_after_the_look_keeps_the_shard() {
    let temp = tempfile::tempdir().unwrap();
    let volume = make(temp.path());
    let mut owner = Server::new(volume.folder(), 1);
    let owned = owner.own();
    let mut taker = Server::new(volume.folder(), 2);
    let claim = taker.wait();
    owner.beat.renew().unwrap();
    assert!(claim.take().unwrap().is_none(), "it beats");
    owner.beat.renew().unwrap();
    owned.table.persist().unwrap();
    // Without a beat that moves, the baton alone says so; but the beat is taken away by then.
    let claim = taker.wait();
    owned.table.persist().unwrap();
    assert!(claim.take().unwrap().is_none(), "its baton moves");
    owned.table.persist().unwrap();
    assert!(matches!(owner.beat.renew(), Err(OwnerError::Fenced)), "it was taken for dead");
    assert!(matches!(owner.beat.renew(), Err(OwnerError::Fenced)), "for ever");
    assert!(!owner.beat.is_fresh());
}

#[test]
fn a_shard_is_free_only_when_its_owner_is_dead() {
    let temp = tempfile::tempdir().unwrap();
    let volume = make(temp.path());
    let mut owner = Server::new(volume.folder(), 1);
    let owned = owner.own();
    let mut taker = Server::new(volume.folder(), 2);
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE * 4 {
        let look = taker.candidate.look().unwrap();
        assert!(matches!(look, Look::Owned(Some(it)) if it == record(1)));
        owner.beat.renew().unwrap();
        assert!(owner.beat.is_fresh());
        thread::sleep(PATIENCE / 10); // A beat is a matter of time.
    }
    let begin = Instant::now();
    let claim = taker.wait();
    assert!(begin.elapsed() >= PATIENCE, "the same names for the whole time");
    let taken = claim.take().unwrap().unwrap();
    assert_eq!(taken.baton().process(), taker.beat.process());
    assert!(matches!(owned.table.persist(), Err(Error::Fenced)));
    assert!(matches!(owner.beat.renew(), Err(OwnerError::Fenced)));
    // Without a file in `alive/` the wait is the same.
    taker.beat.end();
    let begin = Instant::now();
    let mut third = Server::new(volume.folder(), 3);
    assert!(matches!(third.candidate.look().unwrap(), Look::Owned(None)));
    third.take();
    assert!(begin.elapsed() >= PATIENCE);
}

/// The lock of its folder proves that the last run of this server has ended.
#[test]
fn a_server_that_starts_again_need_not_wait() {
    let temp = tempfile::tempdir().unwrap();
    let volume = make(temp.path());
    let mut before = Server::new(volume.folder(), 1);
    let owned = before.own();
    put(&owned.table, 1).unwrap();
    owned.table.persist().unwrap();
    let beat = Beat::begin(volume.folder(), &record(1)).unwrap();
    let mut again = Candidate::new(volume.folder(), beat.process(), record(1));
    let Look::Free(claim) = again.look().unwrap() else { panic!("its process has ended") };
    let taken = claim.take().unwrap().unwrap();
    assert_eq!(taken.baton().epoch(), 2, "an epoch of its own");
    let table = FjallTable::open_in(taken.folder(), options()).unwrap();
    assert_eq!(count(&table), 1);
    assert!(matches!(owned.table.persist(), Err(Error::Fenced)));
    // On another machine the same numbers prove nothing.
    let elsewhere = ProcessRecord { boot: "another".to_owned(), ..record(1) };
    let beat = Beat::begin(volume.folder(), &elsewhere).unwrap();
    let mut twin = Candidate::new(volume.folder(), beat.process(), elsewhere);
    assert!(matches!(twin.look().unwrap(), Look::Owned(Some(_))));
}

/// Makes a store whose table has the row 1, with an owner that is gone.
fn make_with_a_row(dir: &Path) -> Volume {
    let volume = make(dir);
    let owned = Server::new(volume.folder(), 1).own();
    put(&owned.table, 1).unwrap();
    owned.table.persist().unwrap();
    volume
}

/// Takes the shard as a new server; returns the numbers in its table.
fn taken_over(volume: &Volume) -> u64 {
    let owned = Server::new(volume.folder(), 1000).own();
    count(&owned.table)
}

/// A taker dies while it takes. It leaves names, made by hand here, that mean nothing.
#[test]
fn a_taker_that_dies_while_it_takes_leaves_the_last_ready_table() {
    for step in 0..5 {
        let temp = tempfile::tempdir().unwrap();
        let volume = make_with_a_row(temp.path());
        let shard = temp.path().join("shard/0");
        let run = "00000002.00000000000000ab";
        if step >= 1 {
            fs::rename(shard.join(baton(temp.path())), shard.join(format!("{run}.{:016x}", 0)))
                .unwrap();
        }
        if step >= 2 {
            fs::DirBuilder::new().mode(0o700).create(shard.join(run)).unwrap();
        }
        if step >= 3 {
            fs::create_dir(shard.join(run).join("engine")).unwrap();
            fs::write(shard.join(run).join("flushed"), "half").unwrap();
        }
        if step >= 4 {
            let alive = temp.path().join("alive");
            let beat = fs::read_dir(&alive).unwrap().next().unwrap().unwrap().path();
            fs::rename(beat, alive.join("taken.00000000000000ab.00000000000000cd")).unwrap();
        }
        assert_eq!(taken_over(&volume), 1, "step {step}");
        assert_eq!(runs(temp.path()).len(), 1, "step {step}: what is older is removed");
    }
}

/// A taker that [`a_taker_that_is_killed_at_any_step_leaves_a_table`] kills. Run as a test, it does
/// nothing.
#[test]
fn take_and_wait() {
    let (Ok(dir), Ok(step)) = (std::env::var(STORE), std::env::var(STEP)) else { return };
    let step: u32 = step.parse().unwrap();
    let volume = make(Path::new(&dir));
    let taken = Server::new(volume.folder(), 50).take();
    let engine = (step >= 1).then(|| FjallTable::open_in(taken.folder(), options()).unwrap());
    let table = engine.map(|engine| OwnedTable::new(Arc::new(engine), taken.baton()));
    if let Some(table) = table.as_ref().filter(|_| step >= 2) {
        put(table, 2).unwrap();
        table.persist().unwrap();
    }
    if step >= 3 {
        taken.mark_ready().unwrap();
    }
    if step >= 4 {
        taken.remove_older().unwrap();
    }
    println!("step {step}");
    // It is killed here.
    thread::sleep(DEADLINE);
}

#[test]
fn a_taker_that_is_killed_at_any_step_leaves_a_table() {
    for step in 0..5_u32 {
        let temp = tempfile::tempdir().unwrap();
        let volume = make_with_a_row(temp.path());
        let mut process = Process::start(temp.path(), "take_and_wait", STEP, &step.to_string());
        process.wait_for(&format!("step {step}"));
        process.signal(Signal::KILL);
        let _ended = process.child.wait().unwrap();
        let expected = if step < 3 { 1 } else { 2 };
        assert_eq!(taken_over(&volume), expected, "step {step}");
        assert_eq!(runs(temp.path()).len(), 1, "step {step}");
    }
}

#[test]
fn only_a_store_that_was_never_ready_has_an_empty_table() {
    let temp = tempfile::tempdir().unwrap();
    let volume = make(temp.path());
    let _dies = Server::new(volume.folder(), 1).take();
    let _dies = Server::new(volume.folder(), 2).take();
    assert_eq!(taken_over(&volume), 0, "no table was ever ready");
    for run in runs(temp.path()) {
        fs::remove_dir_all(temp.path().join("shard/0").join(run)).unwrap();
    }
    let refused = Server::new(volume.folder(), 3).wait().take();
    assert!(matches!(refused, Err(OwnerError::Corrupt { .. })), "{refused:?}");
    assert!(runs(temp.path()).is_empty(), "no empty table in its place");
    // Bytes of files without a table are no new store either.
    let temp = tempfile::tempdir().unwrap();
    let volume = make(temp.path());
    let folder = temp.path().join("content/ab");
    fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
    fs::write(folder.join("00010000000002ab.00000001"), "bytes").unwrap();
    let refused = Server::new(volume.folder(), 3).wait().take();
    assert!(matches!(refused, Err(OwnerError::Corrupt { .. })), "{refused:?}");
}

#[test]
fn a_taker_shares_sorted_runs_with_the_owner_before_and_nothing_else() {
    let temp = tempfile::tempdir().unwrap();
    let volume = make(temp.path());
    let owned = Server::new(volume.folder(), 1).own();
    for number in 1..=2000 {
        put(&owned.table, number).unwrap();
        if number.is_multiple_of(100) {
            owned.table.persist().unwrap();
        }
    }
    owned.table.persist().unwrap();
    let before = temp.path().join("shard/0").join(&runs(temp.path())[0]);
    let taken = Server::new(volume.folder(), 2).take();
    let mut shared = 0;
    let mut folders = vec![taken.folder().path().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let own = fs::metadata(&path).unwrap();
            if own.is_dir() {
                folders.push(path);
                continue;
            }
            let below = path.strip_prefix(taken.folder().path()).unwrap();
            let is_run = below.parent().is_some_and(|parent| parent.ends_with("tables"));
            let other = fs::metadata(before.join(below)).map(|other| other.ino());
            // The engine of the owner may have removed a run since, and made others.
            let is_shared = other.is_ok_and(|other| other == own.ino());
            assert!(is_run || !is_shared, "{}", below.display());
            shared += u32::from(is_shared);
        }
    }
    assert!(shared > 0, "no run was shared: the test tests nothing");
    // The engine of the owner before goes on, and closes: it compacts, renames and removes.
    for number in 2001..=3000 {
        put(&*owned.engine, number).unwrap();
    }
    owned.engine.close().unwrap();
    let table = FjallTable::open_in(taken.folder(), options()).unwrap();
    assert_eq!(count(&table), 2000);
}

/// Renames over a network may be done though their answer was lost, and a store may be away.
#[test]
fn a_rename_whose_answer_was_lost_is_no_loss_and_a_store_that_is_away_is_waited_for() {
    let temp = tempfile::tempdir().unwrap();
    let volume = make(temp.path());
    let mut server = Server::new(volume.folder(), 1);
    let owned = server.own();
    let shard = temp.path().join("shard/0");
    let now = baton(temp.path());
    let turn = turn(temp.path());
    let named = |turn: u64| format!("{}.{turn:016x}", &now[..25]);
    fs::rename(shard.join(&now), shard.join(named(turn + 1))).unwrap();
    owned.table.persist().unwrap();
    assert_eq!(self::turn(temp.path()), turn + 2, "only another rename proves it");
    // The store has lost its power, and the last renames.
    fs::rename(shard.join(named(turn + 2)), shard.join(named(turn))).unwrap();
    owned.table.persist().unwrap();
    assert_eq!(self::turn(temp.path()), turn + 1);
    // The same for a beat.
    let alive = temp.path().join("alive");
    let beat = |number: u64| alive.join(format!("{}.{number:016x}", server.beat.process()));
    fs::rename(beat(0), beat(1)).unwrap();
    server.beat.renew().unwrap();
    assert!(beat(2).exists());
    // A rename that fails with another error is tried again, until the server stops.
    let next = shard.join(named(turn + 2));
    fs::create_dir(&next).unwrap();
    thread::scope(|scope| {
        let persist = || owned.table.persist();
        let waiting = thread::Builder::new().name("persist".to_owned());
        let waiting = waiting.spawn_scoped(scope, persist).unwrap();
        thread::sleep(Duration::from_millis(250)); // Time for the first tries.
        assert!(!waiting.is_finished());
        fs::remove_dir(&next).unwrap();
        waiting.join().unwrap().unwrap();
    });
    fs::create_dir(shard.join(named(turn + 3))).unwrap();
    owned.taken.baton().stop();
    assert!(matches!(owned.table.persist(), Err(Error::Io { .. })));
    assert!(!owned.taken.baton().is_fenced(), "it may still be ours");
}

#[test]
fn a_baton_that_is_removed_or_doubled_by_hand_is_found() {
    let temp = tempfile::tempdir().unwrap();
    let volume = make(temp.path());
    let owned = Server::new(volume.folder(), 1).own();
    let told = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&told);
    owned.taken.baton().on_fenced(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let shard = temp.path().join("shard/0");
    let name = baton(temp.path());
    let mut other = Server::new(volume.folder(), 2);
    fs::write(shard.join(FIRST_BATON), "").unwrap();
    assert!(matches!(other.candidate.look(), Err(OwnerError::Corrupt { .. })));
    for name in [&name[..], FIRST_BATON] {
        fs::remove_file(shard.join(name)).unwrap();
    }
    assert!(matches!(other.candidate.look(), Err(OwnerError::Corrupt { .. })));
    for _ in 0..2 {
        assert!(matches!(owned.table.persist(), Err(Error::Fenced)));
    }
    assert_eq!(told.load(Ordering::SeqCst), 1, "once");
    let late = Arc::clone(&told);
    owned.taken.baton().on_fenced(move || {
        late.fetch_add(1, Ordering::SeqCst);
    });
    assert_eq!(told.load(Ordering::SeqCst), 2, "at once, if it was lost before");
}

#[test]
fn folders_of_older_runs_go_only_when_a_newer_one_is_ready() {
    let temp = tempfile::tempdir().unwrap();
    let volume = make_with_a_row(temp.path());
    let one = Server::new(volume.folder(), 2).take();
    one.remove_older().unwrap();
    assert_eq!(runs(temp.path()).len(), 2, "it is not ready");
    let two = Server::new(volume.folder(), 3).own();
    assert_eq!(runs(temp.path()).len(), 1);
    assert!(one.mark_ready().is_err(), "its folder is gone, and its baton");
    let three = Server::new(volume.folder(), 4).take();
    assert!(matches!(two.taken.remove_older(), Err(OwnerError::Fenced)));
    assert_eq!(runs(temp.path()).len(), 2);
    assert!(three.folder().path().exists());
}

/// See [`a_full_store_keeps_its_table_and_gives_the_baton_on`]. Run as a test, it does nothing.
#[test]
fn take_over_on_a_full_store() {
    let Ok(dir) = std::env::var(SMALL) else { return };
    let dir = Path::new(&dir);
    let volume = make(dir);
    let owned = Server::new(volume.folder(), 1).own();
    for number in 1..=500 {
        put(&owned.table, number).unwrap();
    }
    owned.table.persist().unwrap();
    let mut filler = fs::File::create(dir.join("filler")).unwrap();
    let filled = (0..10_000).find(|_| filler.write_all(&[1; 4096]).is_err());
    assert!(filled.is_some(), "the file system is not small");
    let kept = runs(dir);
    for attempt in 0..3 {
        let mut taker = Server::new_without_space(volume.folder(), 2);
        let error = taker.wait().take().unwrap_err();
        assert!(error.is_no_space(), "attempt {attempt}: {error:?}");
        assert_eq!(runs(dir), kept, "no half folder");
        assert_eq!(baton(dir)[9..25], "0".repeat(16), "no process has it");
    }
    drop(filler);
    fs::remove_file(dir.join("filler")).unwrap();
    assert_eq!(taken_over(&volume), 500);
}

#[test]
fn a_full_store_keeps_its_table_and_gives_the_baton_on() {
    let folder = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=20m none \"$STORE_OWNER_SMALL\"";
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
        command.env(SMALL, folder.path()).stdin(Stdio::null());
        command
    };
    let able = unshare().arg(mount).stderr(Stdio::null()).status();
    if !able.is_ok_and(|status| status.success()) {
        println!("skipped: no file system can be mounted in a namespace here");
        return;
    }
    let mut command = unshare();
    command.arg(format!("{mount} && exec \"$0\" \"$@\""));
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", "take_over_on_a_full_store", "--nocapture", "--test-threads=1"]);
    assert!(command.status().unwrap().success(), "see the output above");
}
