//! A loss of power below a server: its volume is on `lossfs`, which keeps what was synced and drops
//! or tears the rest. The power fails before every sync, and at seeded moments between. What is
//! left can be served, is whole, keeps what was fsynced, and allocates no inode id twice.
//!
//! `PELAGO_LOSS_MOMENTS` is the number of seeded moments; `cargo xtask loss` sets it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pelago_lossfs::{Control, Fault, Model, Names, Operation, Random, Survival};
use pelago_server::{Options, Passthrough, PassthroughStatus};
use pelago_wire::{Code, Handle, Name, NewMode, Reply, Request, SetAttr};
use rustix::io::Errno;

use crate::harness::requests;
use crate::harness::rig::by_hand;
use history::{History, Instant};
use world::{Pace, Program, World, mounted, see};

mod history;
pub(crate) mod world;

/// Seeded moments, unless told otherwise.
const MOMENTS: usize = 60;
/// Operations of a program.
const STEPS: usize = 120;

/// What the file system was at one moment, and how far the program was.
struct Cut {
    model: Model,
    instant: Instant,
    survival: Survival,
    when: String,
}

/// Which moments are wanted.
#[derive(Clone, Copy)]
enum Wanted {
    /// Before every sync: nothing of the rest survives.
    Syncs,
    /// One in so many, with what survives drawn from this seed.
    OneIn(u64, u64),
}

/// Collects cuts from a file system from now on.
fn collect(control: &Control, pace: &Pace, wanted: Wanted, label: &str) -> Arc<Mutex<Vec<Cut>>> {
    let cuts = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&cuts);
    let pace = pace.clone();
    let label = label.to_owned();
    let mut random = Random(if let Wanted::OneIn(_, seed) = wanted { seed } else { 0 });
    let mut met = 0;
    control.watch(move |moment| {
        met += 1;
        let survival = match wanted {
            Wanted::Syncs if moment.is_sync() => Survival::Nothing,
            Wanted::OneIn(odds, _) if random.below(odds) == 0 => {
                let names = if random.coin() { Names::PerFolder } else { Names::Ordered };
                Survival::Some { seed: random.draw(), names }
            }
            _ => return,
        };
        let operation = moment.operation;
        let path = moment.path;
        let when = format!("{label}, request {met}: {operation:?} {path}, {survival:?}");
        let model = moment.model.clone();
        kept.lock().push(Cut { model, instant: pace.now(), survival, when });
    });
    cuts
}

/// Starts a server after the loss of power: the volume is whole, and keeps what was promised. With
/// `again`, the power fails again during the recovery.
fn prove(cut: &Cut, history: &History, again: Option<u64>) {
    let Some(disk) = mounted(cut.model.after_crash(cut.survival)) else { return };
    let when = &cut.when;
    let wanted = again.map(|seed| Wanted::OneIn(40, seed));
    let pace = Pace::default();
    let cuts = wanted.map(|wanted| collect(disk.lossfs.control(), &pace, wanted, when));
    let world = World::on(disk, by_hand(), when);
    let found = see(&world.server, when);
    history.expect(&found, cut.instant, when);
    let mut given = history.inos(cut.instant);
    given.extend(found.values().map(|(ino, _)| *ino));
    expect_new(&world, "new", &given, when);
    world.finish(when);
    for next in cuts.iter().flat_map(|cuts| cuts.lock().drain(..).collect::<Vec<_>>()) {
        prove_opens(&next, &given);
    }
}

/// After a second loss of power the volume is whole, and no inode id is allocated twice.
fn prove_opens(cut: &Cut, given: &BTreeSet<u64>) {
    let Some(disk) = mounted(cut.model.after_crash(cut.survival)) else { return };
    let world = World::on(disk, by_hand(), &cut.when);
    see(&world.server, &cut.when);
    expect_new(&world, "newer", given, &cut.when);
    world.finish(&cut.when);
}

/// A new file gets an id that no file had before.
fn expect_new(world: &World, name: &str, given: &BTreeSet<u64>, when: &str) {
    let (entry, open) = requests::create(&world.server, Handle::ROOT, name)
        .unwrap_or_else(|code| panic!("{when}: nothing can be created: {code:?}"));
    assert!(!given.contains(&entry.attr.ino.raw()), "{when}: an inode id is allocated twice");
    requests::write(&world.server, open, 0, &[7; 9_000]).unwrap();
    requests::close(&world.server, open).unwrap();
    requests::unlink(&world.server, Handle::ROOT, name).unwrap();
}

/// Runs a program and collects cuts. `None`: nothing can be mounted here.
fn run(seed: u64, wanted: Wanted, options: Options) -> Option<(Program, Vec<Cut>)> {
    let passes = options.passthrough == Passthrough::Always;
    let disk = mounted(Model::new())?;
    let mut program = Program::new(seed, passes);
    let label = format!("program {seed}");
    let cuts = collect(disk.lossfs.control(), &program.pace, wanted, &label);
    let world = World::on(disk, options, &label);
    let mut outside = 0;
    for _ in 0..STEPS {
        program.step(&world.server);
        outside += program.outside();
    }
    let can_pass = world.server.status().passthrough;
    if passes && can_pass != PassthroughStatus::Available {
        println!("{label}: no descriptors are handed out here: {can_pass:?}");
    }
    let given = passes && can_pass == PassthroughStatus::Available;
    assert_eq!(outside > 0, given, "{label}: writes past the server");
    world.server.stop().unwrap();
    world.lossfs.control().unwatch();
    drop(world);
    let cuts = std::mem::take(&mut *cuts.lock());
    Some((program, cuts))
}

/// Syncs in the background too.
fn busy() -> Options {
    Options { sync_interval: Duration::from_millis(2), workers: true, ..by_hand() }
}

/// Whoever asks is given descriptors of content files.
fn passing(options: Options) -> Options {
    Options { passthrough: Passthrough::Always, ..options }
}

#[test]
fn nothing_is_lost_at_any_sync() {
    for options in [by_hand(), passing(by_hand())] {
        let Some((program, cuts)) = run(1, Wanted::Syncs, options) else { return };
        println!("{} syncs", cuts.len());
        assert!(cuts.len() > 40);
        for cut in &cuts {
            prove(cut, &program.history, None);
        }
    }
}

#[test]
fn nothing_is_lost_between_syncs() {
    let moments = match std::env::var("PELAGO_LOSS_MOMENTS") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => MOMENTS,
    };
    let mut seed = 100;
    let mut proven = 0;
    while proven < moments {
        seed += 1;
        let options = if seed % 2 == 0 { busy() } else { by_hand() };
        let options = if seed % 3 == 0 { passing(options) } else { options };
        let Some((program, cuts)) = run(seed, Wanted::OneIn(20, seed), options) else { return };
        for cut in cuts.iter().take(moments - proven) {
            let again = (proven % 8 == 0).then_some(seed);
            prove(cut, &program.history, again);
            proven += 1;
        }
    }
    println!("{proven} moments of {} programs", seed - 100);
}

/// Found by a loss of power before the first sync of a program: the names of the folders above a
/// new volume, and of the engine's own, had never been synced.
#[test]
fn the_first_fsync_of_a_new_volume_counts() {
    let Some(disk) = mounted(Model::new()) else { return };
    let world = World::on(disk, by_hand(), "new");
    let (_, open) = requests::create(&world.server, Handle::ROOT, "a").unwrap();
    requests::write(&world.server, open, 0, b"kept").unwrap();
    requests::call(&world.server, Request::Fsync { open, data_only: false }, &[]).unwrap();
    let left = world.lossfs.control().cut(Survival::Nothing);
    let Some(disk) = mounted(left) else { return };
    let world = World::on(disk, by_hand(), "cut");
    let found: Vec<_> =
        see(&world.server, "cut").into_iter().map(|(path, (_, bytes))| (path, bytes)).collect();
    assert_eq!(found, [("a".to_owned(), Some(b"kept".to_vec()))]);
    world.finish("cut");
}

/// A content file changes once its `writing` row is done, and the row is safe only later. If the
/// bytes become safe first, the size of the content file counts from the first open on; whatever
/// survives, the bytes are old or new ones, and the volume is whole afterwards.
#[test]
fn bytes_may_be_safe_before_the_writing_row_that_announces_them() {
    let old = vec![1; 20_000];
    let new = [2; 7_000];
    for change in [Change::Shrink, Change::Grow, Change::Overwrite] {
        let Some(disk) = mounted(Model::new()) else { return };
        let world = World::on(disk, by_hand(), "new");
        requests::put(&world.server, Handle::ROOT, "a", &old).unwrap();
        // A clean stop leaves no `writing` row.
        world.server.stop().unwrap();
        let stopped = world.lossfs.control().cut(Survival::Nothing);
        drop(world);
        let Some(disk) = mounted(stopped) else { return };
        let world = World::on(disk, by_hand(), "again");
        change.make(&world.server, &new);
        let control = world.lossfs.control();
        let mut found_late = 0;
        for seed in 0..24 {
            let when = format!("{change:?}, {seed}");
            let left = control.cut(Survival::Some { seed, names: Names::Ordered });
            let Some(disk) = mounted(left) else { return };
            let cut = World::on(disk, by_hand(), &when);
            let (before, bytes, after) = read_by_first_open(&cut.server);
            found_late += usize::from(before != after);
            assert_eq!(bytes.len() as u64, after, "{when}");
            let old_size = old.len();
            let new_size = change.size(old.len());
            // A write may have grown the file by some of its blocks.
            let sizes = old_size.min(new_size)..=old_size.max(new_size);
            assert!(sizes.contains(&bytes.len()), "{when}: {} bytes", bytes.len());
            // Bytes behind the old ones may be a hole.
            let known = |byte: &u8| *byte == 1 || *byte == 2 || *byte == 0;
            assert!(bytes.iter().take(old.len()).all(|byte| *byte != 0), "{when}");
            assert!(bytes.iter().all(known), "{when}");
            cut.finish(&when);
        }
        let is_told_by_size = change != Change::Overwrite;
        assert_eq!(found_late > 0, is_told_by_size, "{change:?}: {found_late} of 24");
    }
}

/// A change of a file whose bytes are safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Shrink,
    Grow,
    Overwrite,
}

impl Change {
    fn make(self, server: &pelago_server::Server, new: &[u8]) {
        let node = requests::lookup(server, Handle::ROOT, "a").unwrap().handle;
        let open = world::open_to_write(server, node);
        match self {
            Self::Shrink => {
                let set = SetAttr { size: Some(5_000), ..SetAttr::default() };
                let request = Request::SetAttr { node, open: Some(open), set };
                requests::call(server, request, &[]).unwrap();
            }
            Self::Grow => requests::write(server, open, 20_000, new).unwrap(),
            Self::Overwrite => requests::write(server, open, 3_000, new).unwrap(),
        }
    }

    /// The size behind it.
    const fn size(self, before: usize) -> usize {
        match self {
            Self::Shrink => 5_000,
            Self::Grow => before + 7_000,
            Self::Overwrite => before,
        }
    }
}

/// Returns the size of the file "a" before it is opened, its bytes, and the size after that.
fn read_by_first_open(server: &pelago_server::Server) -> (u64, Vec<u8>, u64) {
    let size = || requests::lookup(server, Handle::ROOT, "a").unwrap().attr.size;
    let before = size();
    let node = requests::lookup(server, Handle::ROOT, "a").unwrap().handle;
    let open = world::open_to_write(server, node);
    let read = Request::Read { open, offset: 0, size: 1 << 20 };
    let Ok(Reply::Data(data)) = requests::call(server, read, &[]) else {
        panic!("it can be read");
    };
    let bytes = data.as_bytes().to_vec();
    requests::close(server, open).unwrap();
    (before, bytes, size())
}

/// After a clean stop the machine may lose power.
#[test]
fn a_clean_stop_makes_everything_safe() {
    for seed in [11, 12] {
        let Some(disk) = mounted(Model::new()) else { return };
        let when = format!("program {seed}, stopped");
        let world = World::on(disk, by_hand(), &when);
        let mut program = Program::new(seed, false);
        (0..STEPS).for_each(|_| program.step(&world.server));
        world.server.stop().unwrap();
        let left = world.lossfs.control().cut(Survival::Nothing);
        let Some(disk) = mounted(left) else { return };
        let world = World::on(disk, by_hand(), &when);
        assert!(world.server.status().started_clean, "{when}");
        assert!(see(&world.server, &when) == program.tree(), "{when}");
        world.finish(&when);
    }
}

/// A group commit failed without a request that waited for it. Its changes are lost, and `fsync` of
/// their directory returns the error, once. Other directories have lost nothing.
#[test]
fn fsync_of_a_directory_tells_once_of_changes_that_were_lost() {
    let Some(disk) = mounted(Model::new()) else { return };
    let options = Options { sync_interval: Duration::from_millis(2), ..by_hand() };
    let world = World::on(disk, options, "new");
    let server = &world.server;
    let make = |name: &str| {
        let name = Name::new(name.as_bytes()).unwrap();
        let mode = NewMode::exactly(0o755);
        match requests::call(server, Request::MakeDir { dir: Handle::ROOT, name, mode }, &[]) {
            Ok(Reply::Entry(entry)) => entry.handle,
            other => panic!("{other:?}"),
        }
    };
    let [hit, other] = ["hit", "other"].map(make);
    let sync = |dir| requests::call(server, Request::FsyncDir { dir, since: None }, &[]).map(drop);
    sync(Handle::ROOT).unwrap();
    let fault = Fault {
        on: Operation::Sync,
        within: ".jnl".to_owned(),
        after: 0,
        times: 1,
        error: Errno::IO,
    };
    world.lossfs.control().fail(fault);
    // The file may be lost before it is closed; then the close returns the error.
    let _closed = requests::put(server, hit, "lost", b"bytes");
    crate::harness::until("the name is lost", || {
        requests::lookup(server, hit, "lost").is_err_and(|code| code == Code::NotFound)
    });
    assert_eq!(sync(other), Ok(()));
    assert_eq!(sync(hit), Err(Code::Io));
    assert_eq!(sync(hit), Ok(()));
    requests::put(server, hit, "kept", b"bytes").unwrap();
    assert_eq!(sync(hit), Ok(()));
    world.finish("after the loss");
}
