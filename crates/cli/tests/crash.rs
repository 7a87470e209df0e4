//! Crashes lose no acknowledged change. A witness in another process works on the mount and
//! logs acknowledged operations outside of it; the volume's process is killed at a random moment;
//! after the next `up` everything is there.
//!
//! Every other volume uses passthrough for all files.
//!
//! `PELAGO_CRASH_ROUNDS` sets the number of rounds, by default 20; `PELAGO_CRASH_SEED` repeats a
//! run.

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use pelago_random::Random;
use pelago_workload::witness;

use crate::harness::program::{run, until, wait};
use crate::harness::volume::{Volume, cannot_mount, passthrough_modes};
use crate::harness::witness::{start, work_if_told};

const ROUNDS: u64 = 20;
/// The longest time from the start of the witness to the kill.
const LONGEST: Duration = Duration::from_millis(1500);
/// Rounds on one volume; then a new one, so that its log stays short.
const ROUNDS_OF_A_VOLUME: u64 = 10;

/// Not a test of its own: the witness, as a process that the test below starts.
#[test]
fn as_witness() {
    work_if_told();
}

#[test]
fn nothing_that_was_answered_is_lost() {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let rounds = number("PELAGO_CRASH_ROUNDS").unwrap_or(ROUNDS);
    let seed = number("PELAGO_CRASH_SEED").unwrap_or(1);
    let mut random = Random::new(seed);
    let modes = passthrough_modes(&["auto", "always"]);
    let mut done = 0;
    while done < rounds {
        let mut volume = Volume::new();
        let turn = usize::try_from(done / ROUNDS_OF_A_VOLUME).unwrap();
        volume.passthrough = Some(modes[turn % modes.len()].clone());
        let log = volume.root.join("witness.log");
        for round in 0..ROUNDS_OF_A_VOLUME.min(rounds - done) {
            crash(&volume, &log, &mut random, seed * 1_000_000 + done + round);
        }
        volume.finish();
        done += ROUNDS_OF_A_VOLUME;
    }
}

fn crash(volume: &Volume, log: &Path, random: &mut Random, seed: u64) {
    let up = || volume.up(&[]).expect_success();
    up();
    let mut worker = start("crash", &volume.files(), log, seed);
    // This sleep does not wait for a condition: the moment of the crash is random.
    thread::sleep(LONGEST.mul_f64(random.below(1000) as f64 / 1000.0));
    until("the witness works", || log.metadata().is_ok_and(|meta| meta.len() > 0));
    volume.kill();
    assert_eq!(wait(&mut worker), Some(0), "seed {seed}: the witness failed");
    // Every other time the volume is checked as the crash has left it.
    if random.chance(50) {
        volume.check_whole();
    }
    up();
    let report = witness::verify(log, &volume.files()).unwrap();
    if !report.is_clean() {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("crash-{seed}"));
        keep(volume, log, &kept);
        panic!("seed {seed}: {report}\nthe log and the files are in {}", kept.display());
    }
    volume.run("unmount", &[]).expect_success();
    volume.check_whole();
}

/// Copies the volume and the log, to analyse a failure.
fn keep(volume: &Volume, log: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::copy(log, to.join("witness.log")).unwrap();
    let mut copy = Command::new("cp");
    run(copy.arg("-a").arg(volume.files()).arg(to));
}
