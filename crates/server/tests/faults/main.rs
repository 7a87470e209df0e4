//! Calls that fail below a server, one at a time: the n-th call of a kind on a class of files fails
//! once, or from there on; then the power fails.

use pelago_lossfs::{Call, Failure, Injection, Operation, Random, Survival};
use pelago_server::Step;
use pelago_wire::{Handle, Request, XattrFlags};
use rustix::io::Errno;

use case::Case;
use run::Outcome;
use stage::FaultyDisk;
use sweep::Choice;

mod belief;
mod case;
mod program;
mod run;
mod stage;
mod sweep;

/// Chooses what is run: `all SEED PART OF [WITHIN]`, `counts SEED`, a case as a failure prints it,
/// or nothing for a sample. `WITHIN`: only cases whose line has this in it.
const CHOICE: &str = "PELAGO_LOSS_ERRORS";

#[test]
fn no_call_that_fails_breaks_a_promise() {
    if stage::old_volume().is_none() {
        return;
    }
    let chosen = std::env::var(CHOICE).unwrap_or_default();
    if chosen.contains(',') && !chosen.contains(' ') {
        let case: Case = chosen.parse().unwrap();
        assert_eq!(run::run(&case, true), Outcome::Kept, "{case}");
        return;
    }
    let mut words = chosen.split_whitespace();
    let (seed, choice) = match words.next() {
        None => (1, Choice::Sample),
        Some("counts") => return sweep::print_counts(number(words.next())).unwrap(),
        Some(_) => {
            let seed = number(words.next());
            let [part, of] = [(); 2].map(|()| number(words.next()) as usize);
            (seed, Choice::All { part, of })
        }
    };
    let report = sweep::run(seed, choice, words.next().unwrap_or_default()).unwrap();
    if !matches!(choice, Choice::All { part: 1.., .. }) {
        println!("never met: {}", report.never_met().join(", "));
    }
    println!("{} kept, {} not reached", report.kept, report.not_reached);
    assert!(report.kept > 0);
    assert!(report.broken.is_empty(), "{CHOICE} repeats a case:\n{}", report.broken.join("\n"));
}

/// The engine syncs its journal by a descriptor of its own before it writes a sorted run. If that
/// fails, the engine stops and reports it to no caller: acknowledged changes may be lost, and later
/// replies must not rely on them.
#[test]
fn a_sync_that_failed_for_the_engine_alone_is_a_failed_sync() {
    let Some((model, _)) = stage::old_volume() else { return };
    let Some(disk) = FaultyDisk::mount(model.clone()) else { return };
    let stage = disk.serve().map_err(|failed| failed.0).unwrap();
    stage.count();
    let call = Call { operation: Operation::Sync, class: "journal", ours: false };
    let failure = Failure::Error(Errno::IO);
    let control = stage.lossfs.control().clone();
    let (entry, open) = stage.create(Handle::ROOT, "filled").unwrap();
    stage.close(open).unwrap();
    stage.step(Step::Commit);
    let nth = control.counts().get(&call).map_or(1, |count| count + 1);
    control.inject(Some(Injection { call, nth, lasting: false, failure }));
    // Until the table begins a new memtable, and the engine writes the old one.
    let mut random = Random(1);
    let fill = |name: u64, random: &mut Random| {
        let value = (0..60_000).map(|_| random.draw() as u8).collect();
        let name = format!("user.{name}").into_bytes();
        let flags = XattrFlags::Any;
        let node = entry.handle;
        let request = Request::SetXattr { node, name, value, flags, kill_setgid: false };
        stage.call(request, &[])
    };
    for name in 0..60 {
        let _until_it_stops = fill(name, &mut random);
    }
    crate::harness::until("the engine's sync fails", || control.injected() > 0);
    crate::harness::until("the engine stops", || fill(0, &mut random).is_err());
    stage.step(Step::Commit);
    let (_, open) = stage.create(Handle::ROOT, "kept").unwrap();
    stage.write(open, 0, b"bytes").unwrap();
    stage.call(Request::Fsync { open, data_only: false }, &[]).unwrap();
    let left = control.model().after_crash(Survival::Nothing);
    stage.abandon();
    let stage = FaultyDisk::mount(left).unwrap().serve().map_err(|failed| failed.0).unwrap();
    assert!(stage.lookup(Handle::ROOT, "kept").unwrap().is_some());
}

fn number(word: Option<&str>) -> u64 {
    word.and_then(|word| word.parse().ok()).expect("a number")
}
