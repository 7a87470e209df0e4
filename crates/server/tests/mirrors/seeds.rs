//! Mirrors that are promoted at some moment, after connections were lost and mirrors killed: each
//! has the program as it was at one moment, and all that was waited for.
//!
//! `PELAGO_MIRROR_SEEDS` is the number of seeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pelago_random::Random;

use super::pair::{Event, Fate, connect_to, keeper, start};
use super::program::{begin, promote, run, wait};

const SEEDS: u64 = 8;
/// One event in so many loses the connection.
const ODDS: u64 = 40;
/// The events after which the line may be cut for good.
const EVENTS: u64 = 1_500;
/// The time for which a program waits at once.
const PATIENCE: Duration = Duration::from_millis(40);

/// Loses connections, and kills the mirror between two of them, until the line is cut for good.
fn faults(seed: u64, is_on: &Arc<AtomicBool>) -> impl FnMut(Event<'_>) -> Fate + Send + 'static {
    let mut random = Random::new(seed);
    let mut left = random.below(EVENTS);
    let is_on = Arc::clone(is_on);
    move |event| {
        if !is_on.load(Ordering::Acquire) {
            return Fate::Arrives;
        }
        left = left.saturating_sub(1);
        let is_chosen = random.below(ODDS) == 0;
        match event {
            _ if left == 0 => Fate::IsLost,
            Event::Connects if random.chance(30) => Fate::KillsMirror,
            Event::Sends(_) if is_chosen && random.chance(50) => Fate::AnswerIsLost,
            Event::Sends(_) if is_chosen => Fate::IsLost,
            Event::Connects | Event::Sends(_) => Fate::Arrives,
        }
    }
}

fn suffer(seed: u64) {
    let when = format!("seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let mirrors = folder.path().join("mirrors");
    std::fs::create_dir(&mirrors).unwrap();
    let is_on: Arc<AtomicBool> = Arc::default();
    let keeper = keeper(&mirrors, Box::new(faults(seed, &is_on)));
    let server = start(&folder.path().join("volume"));
    let _traffic = connect_to(&server, &keeper, |_| {});
    let open = begin(&server);
    wait(&server);
    is_on.store(true, Ordering::Release);
    let mut random = Random::new(!seed);
    let mut waited_for = 0;
    run(&server, open, |step| {
        if random.chance(15) {
            let commit = server.next_commit().unwrap();
            if server.wait_for_mirror(commit, PATIENCE) == Ok(true) {
                waited_for = u64::from(step);
            }
        }
    });
    let (_, named) = promote(keeper.store.lock().take().unwrap(), &when);
    assert!(named >= waited_for, "{when}: the last name is {named}, waited for {waited_for}");
    server.stop().unwrap();
}

#[test]
fn a_mirror_that_is_promoted_has_one_moment_of_its_primary() {
    let seeds = std::env::var("PELAGO_MIRROR_SEEDS").ok().and_then(|text| text.parse().ok());
    (1..=seeds.unwrap_or(SEEDS)).for_each(suffer);
}
