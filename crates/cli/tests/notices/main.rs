//! Kills of a process while one of its threads notifies the kernel that a name or pages are no
//! longer valid. The thread waits in the kernel for a lock, and the program that holds the lock
//! waits for the same process. The guard of the mount must free both; if it was killed too, the
//! next command must.
//!
//! The server is killed, the process of a far mount, a guard, and both at once, with SIGKILL and
//! with SIGABRT, while programs change names and pages of one directory in both mounts. After that
//! the process and all programs end, the same command serves again, and a guard that comes late
//! leaves the new mount alone.
//!
//! `PELAGO_NOTICE_ROUNDS` sets the number of kills. By default there are 12 in `cargo xtask test`:
//! six by the device, with SIGKILL, and six by the ring, with SIGABRT. `PELAGO_NOTICE_SEED` repeats
//! a run.

use pelago_random::Random;
use rustix::process::{Signal, geteuid};

use crate::harness::volume::cannot_mount;
use crate::notices::rounds::{Round, Victim};
use crate::notices::world::World;

mod dead;
mod guard;
mod processes;
mod rounds;
mod work;
mod world;

/// Rounds in which each victim meets one signal.
const ROUNDS: u64 = Victim::ALL.len() as u64;
/// Kills on one volume; then a new one, so that its log stays short.
const ROUNDS_OF_A_VOLUME: u64 = 24;

/// Not a test of its own: a program that works in a mount, as a process that the tests start.
#[test]
fn as_program() {
    work::work_if_told();
}

#[test]
fn a_kill_at_a_notice_leaves_nothing_that_cannot_be_killed() {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let rounds = number("PELAGO_NOTICE_ROUNDS").unwrap_or(ROUNDS);
    let mut random = Random::new(number("PELAGO_NOTICE_SEED").unwrap_or(1));
    let mut seen = rounds::Seen::default();
    let by_ring = std::env::var_os("PELAGO_FUSE_RING").is_some();
    let signals = match by_ring {
        true => [Signal::ABORT, Signal::KILL],
        false => [Signal::KILL, Signal::ABORT],
    };
    let mut done = 0;
    while done < rounds {
        let mut world = World::new();
        if let Some(reason) = world.has_no_guard() {
            // Root has one on each machine.
            assert!(!geteuid().is_root(), "{reason}");
            println!("skipped: not here: {reason}");
            return;
        }
        for round in done..rounds.min(done + ROUNDS_OF_A_VOLUME) {
            let turn = usize::try_from(round).unwrap();
            let victim = Victim::ALL[turn % Victim::ALL.len()];
            let signal = signals[turn / Victim::ALL.len() % signals.len()];
            Round { number: round, victim, signal }.run(&mut world, &mut random, &mut seen);
        }
        world.finish();
        done += ROUNDS_OF_A_VOLUME;
    }
    println!("{seen}");
    assert!(seen.at_a_notice > 0, "no kill came at a notice");
}
