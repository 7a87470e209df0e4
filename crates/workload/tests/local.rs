//! Tests of the model: random programs on a plain directory of this machine must agree with it, on
//! any file system.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use pelago_workload::compare::{run_ops, run_program, shrink};
use pelago_workload::generate::program;
use pelago_workload::op::Op;
use pelago_workload::target::{FsTraits, LocalTarget, Outcome, Target};

const PROGRAMS: u64 = 200;
const STEPS: usize = 60;

/// Returns a directory on the disk of the build, not in memory.
fn new_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn a_plain_directory_agrees_with_the_model() {
    for seed in 0..PROGRAMS {
        let dir = new_dir();
        let mut target = LocalTarget::new(dir.path()).unwrap();
        if let Err(divergence) = run_program(seed, STEPS, &mut target) {
            let small = shrink(&program(seed, STEPS), |ops| {
                let dir = new_dir();
                run_ops(ops, &mut LocalTarget::new(dir.path()).unwrap()).is_err()
            });
            panic!("{divergence}\nshrunk: {small:#?}");
        }
    }
}

#[test]
fn long_programs_agree_with_the_model() {
    for seed in 1000..1010 {
        let dir = new_dir();
        let mut target = LocalTarget::new(dir.path()).unwrap();
        run_program(seed, 600, &mut target).unwrap_or_else(|divergence| panic!("{divergence}"));
    }
}

type Corruption = fn(&Op, &mut Outcome);

/// A file system that returns wrong outcomes of one kind.
struct CorruptTarget {
    inner: LocalTarget,
    corrupt: Corruption,
}

impl Target for CorruptTarget {
    fn traits(&self) -> FsTraits {
        self.inner.traits()
    }

    fn apply(&mut self, op: &Op) -> Outcome {
        let mut outcome = self.inner.apply(op);
        (self.corrupt)(op, &mut outcome);
        outcome
    }
}

/// Each kind of wrong outcome is detected by at least one of 40 programs.
#[test]
fn wrong_outcomes_are_detected() {
    let corruptions: [(&str, Corruption); 10] = [
        ("size", |_, outcome| edit_attr(outcome, |seen| seen.size += 1)),
        ("links", |_, outcome| edit_attr(outcome, |seen| seen.links += 1)),
        ("mtime", |_, outcome| edit_attr(outcome, |seen| seen.mtime.seconds = 7)),
        ("inode number", |_, outcome| edit_attr(outcome, |seen| seen.ino = 7)),
        ("bytes", |_, outcome| {
            if let Outcome::Bytes(bytes) = outcome
                && let Some(last) = bytes.last_mut()
            {
                *last ^= 1;
            }
        }),
        ("names", |_, outcome| {
            if let Outcome::Names(names) = outcome {
                names.pop_last();
            }
        }),
        ("error", |_, outcome| {
            if let Outcome::Failed(number) = outcome {
                *number = 5;
            }
        }),
        ("data offset", |_, outcome| {
            if let Outcome::Offset(Some(found)) = outcome {
                *found += 100_000;
            }
        }),
        ("copied length", |op, outcome| {
            if let (Op::Copy { .. }, Outcome::Written { bytes, .. }) = (op, outcome) {
                *bytes += 1;
            }
        }),
        ("success", |op, outcome| {
            if matches!(op, Op::Unlink { .. } | Op::Rename { .. }) && *outcome == Outcome::Done {
                *outcome = Outcome::Failed(2);
            }
        }),
    ];
    for (name, corrupt) in corruptions {
        let is_detected = (0..40).any(|seed| {
            let dir = new_dir();
            let mut target =
                CorruptTarget { inner: LocalTarget::new(dir.path()).unwrap(), corrupt };
            run_program(seed, STEPS, &mut target).is_err()
        });
        assert!(is_detected, "no program detects a wrong {name}");
    }
}

fn edit_attr(outcome: &mut Outcome, edit: impl FnOnce(&mut pelago_workload::target::FileAttr)) {
    if let Outcome::Attr(seen) = outcome
        && seen.kind == pelago_wire::FileKind::Regular
    {
        edit(seen);
    }
}
