//! `contend --locks`: programs in many mounts lock files, while mounts and cables are stopped for
//! longer than a term, and the server is stopped and killed. No two programs hold a lock at the
//! same time, as the replies to their calls say ([`super::held`]).

use std::path::Path;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use pelago_random::Random;
use pelago_testbed::mounted::{self, Mounted};
use pelago_testbed::run_as::{RunAs, Way};
use rustix::process::{Pid, Signal, kill_process};

use super::cable::Cable;
use super::held;
use super::lane::{Ground, Lane};
use super::locker::Said;

/// The number of lanes that run at a time: their stops cost nothing, and their programs little.
const LANES: u64 = 8;
/// The server is stopped or killed once in this number of rounds of all lanes.
const SERVER_ROUNDS: u64 = 25;
/// The longest stop of the server, in milliseconds.
const SERVER_STOP: u64 = 12_000;

/// Runs the rounds, prints what happened, and returns the findings.
pub(super) fn run(pelago: &Path, rounds: u64, seed: u64) -> Result<Vec<String>, String> {
    let logs = mounted::log_folder("contend")?;
    let run_as = RunAs::default().by(&[Way::Own, Way::Unix]);
    let volume = Mounted::start(pelago, &logs, "contend-locks", &run_as)?;
    let said: Arc<Mutex<Said>> = Arc::default();
    let server = Arc::new(RwLock::new(()));
    let port = Arc::new(AtomicU16::new(volume.listening()?));
    let ground = Ground { volume: &volume, server, said: Arc::clone(&said), seed };
    let mut lanes = Vec::new();
    for number in 0..usize::try_from(LANES.min(rounds)).unwrap_or(1) {
        lanes.push(Lane::start(&ground, number, Cable::lay(&port)?)?);
    }
    let kills = work(&mut lanes, &ground, &port, rounds)?;
    lanes.iter_mut().try_for_each(Lane::end_programs)?;
    lanes.iter_mut().try_for_each(|lane| lane.unmount(&volume))?;
    drop(lanes);
    volume.finish()?;
    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
    let Said { held, computes, failed, unknown } = &mut *said;
    println!(
        "{rounds} rounds, {kills} stops and kills of the server: {} locks were held, {computes} \
         beside a stop; {failed} calls failed",
        held.len(),
    );
    let mut wrong = held::check(held);
    wrong.append(unknown);
    if held.is_empty() || *computes == 0 {
        wrong.push("nothing was locked, or no lock was held while a mount was stopped".to_owned());
    }
    Ok(wrong)
}

/// Runs this number of rounds on all lanes together. Returns the number of stops and kills of the
/// server.
fn work(
    lanes: &mut [Lane],
    ground: &Ground<'_>,
    port: &Arc<AtomicU16>,
    rounds: u64,
) -> Result<u64, String> {
    let begun = AtomicU64::new(0);
    let mut random = Random::new(ground.seed);
    thread::scope(|scope| {
        let lanes: Vec<_> = lanes
            .iter_mut()
            .map(|lane| {
                let begun = &begun;
                scope.spawn(move || -> Result<(), String> {
                    while begun.fetch_add(1, Ordering::Relaxed) < rounds {
                        lane.round()?;
                    }
                    Ok(())
                })
            })
            .collect();
        let mut kills = 0;
        while lanes.iter().any(|lane| !lane.is_finished()) {
            thread::sleep(Duration::from_millis(100));
            if begun.load(Ordering::Relaxed) / SERVER_ROUNDS > kills {
                kills += 1;
                break_server(ground, port, &mut random)?;
            }
        }
        let ended = lanes.into_iter().map(|lane| lane.join().map_err(|_| "a lane panicked"));
        ended.into_iter().try_for_each(|result| result?)?;
        Ok(kills)
    })
}

/// Stops the server for a while, or kills it and starts it again.
fn break_server(
    ground: &Ground<'_>,
    port: &Arc<AtomicU16>,
    random: &mut Random,
) -> Result<(), String> {
    let _no_other_fault = ground.server.write().unwrap_or_else(PoisonError::into_inner);
    let pid = i32::try_from(ground.volume.pid()?).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or("no process id")?;
    let signal = |signal| kill_process(pid, signal).map_err(|why| format!("{pid}: {why}"));
    if random.below(2) == 0 {
        signal(Signal::STOP)?;
        thread::sleep(Duration::from_millis(random.below(SERVER_STOP)));
        return signal(Signal::CONT);
    }
    signal(Signal::KILL)?;
    thread::sleep(Duration::from_millis(random.below(2_000)));
    ground.volume.serve_again()?;
    port.store(ground.volume.listening()?, Ordering::Relaxed);
    // The sessions of the last run come back.
    thread::sleep(Duration::from_secs(3));
    Ok(())
}
