//! `mirror network`: what a sync of level *network* takes, beside one of level *local*: alone, over
//! lines of several lengths, and behind another program that fills the line.
//!
//! All volumes, the relay and the mirror lie in memory, so that no disk is the limit. The relay is
//! at the site of the volume, as an edge machine is.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pelago_testbed::verdict;
use pelago_testbed::{VerbResult, arguments};
use rustix::fs::{XattrFlags, setxattr};

use super::sites::{LINE, Place, Sites};
use crate::kit::report::{failed, met, millis};
use crate::kit::statistics::{median, quantile_of, quartiles};

const VOLUME: &str = "volume";
const LEVEL: &str = "user.pelago.level";
const LEVELS: [&str; 2] = ["local", "network"];
/// Microseconds each way.
const DELAYS: [u32; 3] = [25_000, 50_000, 100_000];
const DEFAULT_ROUNDS: u32 = 9;
/// Syncs of a round, and the bytes before each.
const SYNCS: u32 = 100;
const SYNCED: usize = 4_096;
/// The most milliseconds by which a sync of level *network* is slower. The relay is on the same
/// machine: its round trip is in it.
const MORE: f64 = 1.0;
/// The most by which a longer line makes it slower.
const SPREAD: f64 = 0.05;
/// The seconds of `--lag`, and what a sync behind another program's bytes may take beyond.
const LAG: u32 = 2;
const BEHIND_MORE: f64 = 1.0;
const OTHERS: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const PAUSE: Duration = Duration::from_millis(100);

/// Measures, and prints each figure beside its limit.
pub(super) fn run(logs: &Path, words: &[String]) -> VerbResult {
    let rounds = arguments::count(words, DEFAULT_ROUNDS, "rounds")?;
    let mut sites = Sites::start(logs, Place::Memory, LINE)?;
    sites.start_relay()?;
    sites.up_with(VOLUME, &["--lag", &LAG.to_string()])?;
    sites.mirror(VOLUME)?;
    let files = sites.files(VOLUME);
    for level in LEVELS.into_iter().chain(["async"]) {
        let folder = files.join(level);
        fs::create_dir(&folder).map_err(|why| failed(&folder, &why))?;
        setxattr(&folder, LEVEL, level.as_bytes(), XattrFlags::empty())
            .map_err(|why| failed(&folder, &why.into()))?;
    }
    let alone = alone(&mut sites, &files, rounds)?;
    let behind = behind(&mut sites, &files)?;
    verdict(alone && behind)
}

/// Measures syncs that nothing else disturbs. Delays and levels take turns.
fn alone(sites: &mut Sites, files: &Path, rounds: u32) -> Result<bool, String> {
    let mut taken = [const { [const { Vec::new() }; 2] }; DELAYS.len()];
    // The first round only warms up.
    for round in 0..=rounds {
        for (of_delay, delay) in taken.iter_mut().zip(DELAYS) {
            sites.tell(&format!("delay={delay}"))?;
            for at in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                let folder = files.join(LEVELS[at]);
                let times = syncs(&folder).map_err(|why| failed(&folder, &why))?;
                of_delay[at].extend((round > 0).then_some(times));
            }
            sites.wait(VOLUME)?;
        }
    }
    println!("fsync of 4 KiB, {rounds} rounds of {SYNCS}");
    let mut is_good = true;
    for ([local, network], delay) in taken.iter().zip(DELAYS) {
        let more = quartiles(network.iter().zip(local).map(|(network, local)| network - local));
        let [local, network] = [local, network].map(|medians| quartiles(medians.clone())[1]);
        println!(
            "  {} ms each way: p50 local {local:.2} ms, network {network:.2} ms",
            delay / 1_000
        );
        let [lower, middle, upper] = more;
        is_good &= middle <= MORE;
        println!("    more: {middle:.2} ms ({lower:.2} to {upper:.2})  {}", met(middle <= MORE));
    }
    let [near, .., far] = &taken;
    let ratio = quartiles(far[1].iter().zip(&near[1]).map(|(far, near)| far / near));
    let [lower, middle, upper] = ratio;
    let is_met = middle <= 1.0 + SPREAD;
    println!("  from 25 to 100 ms: {middle:.2} times ({lower:.2} to {upper:.2})  {}", met(is_met));
    Ok(is_good && is_met)
}

/// Syncs a new file. Returns the median of the milliseconds.
fn syncs(folder: &Path) -> io::Result<f64> {
    let path = folder.join("log");
    let file = File::create(&path)?;
    let times = (0..SYNCS).map(|number| sync_at(&file, u64::from(number) * SYNCED as u64));
    let times = times.collect::<io::Result<Vec<f64>>>()?;
    fs::remove_file(&path)?;
    Ok(median(times).unwrap_or(f64::NAN))
}

/// Writes and syncs at an offset. Returns the milliseconds.
fn sync_at(file: &File, offset: u64) -> io::Result<f64> {
    let began = Instant::now();
    file.write_all_at(&[0x5a; SYNCED], offset)?;
    file.sync_data()?;
    Ok(millis(began.elapsed()))
}

/// Measures syncs while another program writes more than the line takes.
fn behind(sites: &mut Sites, files: &Path) -> Result<bool, String> {
    sites.tell(&LINE.join(" "))?;
    sites.wait(VOLUME)?;
    let large = files.join("async").join("large");
    let log = files.join("network").join("log");
    let is_over = AtomicBool::new(false);
    let times = thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let written = write(&large);
            is_over.store(true, Ordering::Release);
            written
        });
        let times = until_over(&log, &is_over).map_err(|why| failed(&log, &why))?;
        let written = writing.join().map_err(|_| "the writer has failed".to_owned())?;
        let seconds = written.map_err(|why| failed(&large, &why))?;
        println!("fsync of 4 KiB at network while 1 GiB is written beside it in {seconds:.0} s");
        Ok::<_, String>(times)
    })?;
    let [middle, most] = [0.5, 1.0].map(|part| quantile_of(&times, part));
    let limit = (f64::from(LAG) + BEHIND_MORE) * 1e3;
    let is_met = most <= limit;
    println!(
        "  {} syncs: p50 {middle:.0} ms, the longest {most:.0} ms  {}",
        times.len(),
        met(is_met)
    );
    sites.wait(VOLUME)?;
    Ok(is_met)
}

/// Writes a large file. Returns the seconds.
fn write(path: &PathBuf) -> io::Result<f64> {
    let began = Instant::now();
    let file = File::create(path)?;
    let bytes = vec![0x5a; MIB as usize];
    (0..OTHERS / MIB).try_for_each(|at| file.write_all_at(&bytes, at * MIB))?;
    Ok(began.elapsed().as_secs_f64())
}

/// Syncs again and again until the other program has ended. Returns the milliseconds of each.
fn until_over(path: &PathBuf, is_over: &AtomicBool) -> io::Result<Vec<f64>> {
    let file = File::create(path)?;
    let mut times = Vec::new();
    while !is_over.load(Ordering::Acquire) {
        times.push(sync_at(&file, times.len() as u64 * SYNCED as u64)?);
        thread::sleep(PAUSE);
    }
    Ok(times)
}
