//! The programs: the steps of each thread are fixed; the scheduler chooses their order.

use std::sync::Arc;

use pelago_wire::{Code, Error, Handle};
use shuttle::thread;

use crate::rig::Rig;

pub struct Program {
    pub name: &'static str,
    pub run: fn(),
}

pub const ALL: [Program; 4] = [
    Program { name: "one small file, written, renamed and removed", run: small_file },
    Program { name: "one file that outgrows the table while it is synced", run: growing_file },
    Program { name: "more content files than descriptors", run: few_descriptors },
    Program { name: "directories moved into each other", run: crossing_renames },
];

const ROOT: Handle = Handle::ROOT;

fn small_file() {
    let rig = Arc::new(Rig::new());
    let threads: [fn(&Rig); 4] = [
        |rig| {
            may_miss(rig.write_new(ROOT, "a", 10));
            may_miss(rig.append(ROOT, "a", 5));
        },
        |rig| {
            may_miss(rig.rename(ROOT, "a", ROOT, "b"));
            may_miss(rig.unlink(ROOT, "b"));
        },
        |rig| may_miss(rig.append(ROOT, "b", 20)),
        |rig| rig.group_commit(),
    ];
    run(&rig, threads);
    rig.check_at_rest(&[ROOT]);
}

fn growing_file() {
    let rig = Arc::new(Rig::new());
    rig.write_new(ROOT, "f", 10).expect("a new file");
    let threads: [fn(&Rig); 4] = [
        |rig| may_miss(rig.append(ROOT, "f", 100)),
        |rig| may_miss(rig.fsync(ROOT, "f")),
        |rig| {
            rig.group_commit();
            rig.write_back();
        },
        |rig| may_miss(rig.unlink(ROOT, "f")),
    ];
    run(&rig, threads);
    rig.check_at_rest(&[ROOT]);
}

fn few_descriptors() {
    let rig = Arc::new(Rig::new());
    for text in ["a", "b", "c"] {
        rig.write_new(ROOT, text, 100).expect("a new file");
    }
    let threads: [fn(&Rig); 4] = [
        |rig| may_miss(rig.append(ROOT, "a", 10)),
        |rig| may_miss(rig.append(ROOT, "b", 10)),
        |rig| may_miss(rig.fsync(ROOT, "c")),
        |rig| rig.write_back(),
    ];
    run(&rig, threads);
    rig.check_at_rest(&[ROOT]);
}

fn crossing_renames() {
    let rig = Arc::new(Rig::new());
    let a = rig.make_dir(ROOT, "a").expect("a");
    let b = rig.make_dir(ROOT, "b").expect("b");
    rig.make_dir(a, "x").expect("x");
    rig.make_dir(b, "y").expect("y");
    let threads: [Box<dyn Fn(&Rig) + Send + Sync>; 3] = [
        Box::new(move |rig| may_miss(rig.rename(ROOT, "a", b, "a"))),
        Box::new(move |rig| may_miss(rig.rename(ROOT, "b", a, "b"))),
        Box::new(move |rig| {
            may_miss(rig.rename(a, "x", b, "x"));
            rig.group_commit();
        }),
    ];
    run(&rig, threads);
    let in_root = rig.names(ROOT);
    assert_eq!(in_root.len(), 1, "I-11: exactly one of two crossing renames is carried out");
    rig.check_at_rest(&[ROOT, a, b]);
}

/// Runs each of these on a thread of the scheduler, and waits for all.
fn run<const N: usize, F: Fn(&Rig) + Send + Sync + 'static>(rig: &Arc<Rig>, threads: [F; N]) {
    let threads = threads.map(|work| {
        let rig = Arc::clone(rig);
        thread::spawn(move || work(&rig))
    });
    for thread in threads {
        thread.join().expect("a thread ends");
    }
}

/// Accepts that another thread was first, or has the descriptors, and no other failure.
#[track_caller]
fn may_miss(done: Result<(), Error>) {
    if let Err(error) = done {
        let missed =
            [Code::NotFound, Code::Stale, Code::Exists, Code::WouldLoop, Code::TooManyOpen];
        assert!(missed.contains(&error.code), "{error:?}");
    }
}
