//! The costs of a mirror at level *local*: the same work on a volume with one and on one without,
//! in turn.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use super::sites::{LINE, Place, Sites};
use crate::kit::report::{failed, met};
use crate::kit::statistics::{median, quartiles};

/// The volume with a mirror, and the one without.
const VOLUMES: [&str; 2] = ["mirrored", "alone"];
const WRITTEN: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const CREATES: u32 = 10_000;
const SYNCS: u32 = 300;
const SYNCED: usize = 4_096;
/// Processor time in `/proc/PID/stat` counts in these parts of a second.
const TICKS: f64 = 100.0;

/// Something to measure.
struct Step {
    /// The word by which it is chosen.
    word: &'static str,
    name: &'static str,
    unit: &'static str,
    /// Does the work in an empty folder, and returns a figure in the unit.
    work: fn(&Path) -> io::Result<f64>,
    limit: Limit,
}

/// The limit of the ratio of the figure with a mirror to that without.
#[derive(Clone, Copy)]
enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

const STEPS: [Step; 3] = [
    Step {
        word: "write",
        name: "write 1 GiB and fsync",
        unit: "MB/s",
        work: write,
        limit: Limit::AtLeast(0.9),
    },
    Step { word: "create", name: "create", unit: "/s", work: create, limit: Limit::AtLeast(0.9) },
    Step {
        word: "sync",
        name: "write 4 KiB and fsync",
        unit: "ms",
        work: sync,
        limit: Limit::AtMost(1.1),
    },
];
/// The most bytes that the primary has written to its disk, for each byte of a program.
const DISK: f64 = 1.1;

/// What one step has taken.
#[derive(Clone, Copy)]
struct Taken {
    figure: f64,
    /// Milliseconds of processor time of the volume's process.
    cpu: f64,
    /// Bytes that this process has given to the disk.
    disk: f64,
}

/// Measures the step of this word, or all, in so many rounds; returns whether the limits are kept.
pub(super) fn measure(logs: &Path, rounds: u32, word: Option<&str>) -> Result<bool, String> {
    let chosen = |step: &&Step| word.is_none_or(|word| word == step.word);
    if !STEPS.iter().any(|step| chosen(&step)) {
        return Err("measures `write`, `create` or `sync`".to_owned());
    }
    let mut sites = Sites::start(logs, Place::MirrorInMemory, LINE)?;
    for volume in VOLUMES {
        sites.up(volume)?;
    }
    sites.mirror(VOLUMES[0])?;
    let mut is_good = true;
    for step in STEPS.iter().filter(chosen) {
        let mut pairs = Vec::new();
        // The first round of each step only warms up.
        for round in 0..=rounds {
            let mut taken = [None; 2];
            let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for at in order {
                taken[at] = Some(run(&sites, VOLUMES[at], step)?);
            }
            let [Some(mirrored), Some(alone)] = taken else { unreachable!("both were measured") };
            pairs.extend((round > 0).then_some([mirrored, alone]));
        }
        is_good &= report(step, &pairs);
    }
    Ok(is_good)
}

/// Does a step on a volume, and waits until all is at rest again.
fn run(sites: &Sites, volume: &str, step: &Step) -> Result<Taken, String> {
    let pid = sites.pid(volume)?;
    let folder = sites.files(volume).join("work");
    fs::create_dir(&folder).map_err(|why| failed(&folder, &why))?;
    rest(sites)?;
    let cpu_before = cpu(pid)?;
    let disk_before = written(pid)?;
    let figure = (step.work)(&folder).map_err(|why| failed(&folder, &why))?;
    let cpu = cpu(pid)? - cpu_before;
    // What is read for the mirror is copied to the disk only if somebody overwrites it meanwhile.
    rest(sites)?;
    let disk = written(pid)? - disk_before;
    fs::remove_dir_all(&folder).map_err(|why| failed(&folder, &why))?;
    rest(sites)?;
    Ok(Taken { figure, cpu, disk })
}

/// Waits until the mirror has all, and the disk too.
fn rest(sites: &Sites) -> Result<(), String> {
    sites.wait(VOLUMES[0])?;
    rustix::fs::sync();
    Ok(())
}

fn report(step: &Step, pairs: &[[Taken; 2]]) -> bool {
    let Step { word, name, unit, limit, .. } = step;
    let ratio = quartiles(pairs.iter().map(|[mirrored, alone]| mirrored.figure / alone.figure));
    let of = |at: usize, figure: fn(&Taken) -> f64| {
        median(pairs.iter().map(|pair| figure(&pair[at]))).unwrap_or(f64::NAN)
    };
    let is_met = match *limit {
        Limit::AtLeast(least) => ratio[1] >= least,
        Limit::AtMost(most) => ratio[1] <= most,
    };
    let [mirrored, alone] = [0, 1].map(|at| of(at, |taken| taken.figure));
    println!("{name}, {} rounds", pairs.len());
    println!("  with a mirror {mirrored:.2} {unit}, without {alone:.2} {unit}");
    let [lower, middle, upper] = ratio;
    println!("  ratio {middle:.2} ({lower:.2} to {upper:.2})  {}", met(is_met));
    let [mirrored, alone] = [0, 1].map(|at| of(at, |taken| taken.cpu));
    println!("  processor time of the server: {mirrored:.0} ms, {alone:.0} ms");
    let [mirrored, alone] = [0, 1].map(|at| of(at, |taken| taken.disk) / MIB as f64);
    let is_little = *word != STEPS[0].word || mirrored * MIB as f64 <= DISK * WRITTEN as f64;
    let verdict = if *word == STEPS[0].word { met(is_little) } else { "" };
    println!("  bytes to the disk: {mirrored:.1} MiB, {alone:.1} MiB  {verdict}");
    is_met && is_little
}

/// Returns megabytes a second.
fn write(folder: &Path) -> io::Result<f64> {
    let bytes = vec![0x5a; MIB as usize];
    let began = Instant::now();
    let file = File::create(folder.join("large"))?;
    (0..WRITTEN / MIB).try_for_each(|at| file.write_all_at(&bytes, at * MIB))?;
    file.sync_all()?;
    Ok(WRITTEN as f64 / 1e6 / began.elapsed().as_secs_f64())
}

/// Returns files a second.
fn create(folder: &Path) -> io::Result<f64> {
    let began = Instant::now();
    (0..CREATES).try_for_each(|number| File::create(folder.join(number.to_string())).map(drop))?;
    Ok(f64::from(CREATES) / began.elapsed().as_secs_f64())
}

/// Returns the median of the milliseconds.
fn sync(folder: &Path) -> io::Result<f64> {
    let file = File::create(folder.join("log"))?;
    let times: io::Result<Vec<f64>> = (0..SYNCS)
        .map(|number| {
            let began = Instant::now();
            file.write_all_at(&[0x5a; SYNCED], u64::from(number) * SYNCED as u64)?;
            file.sync_all()?;
            Ok(began.elapsed().as_secs_f64() * 1e3)
        })
        .collect();
    Ok(median(times?).unwrap_or(f64::NAN))
}

/// Returns the milliseconds of processor time that a process has used.
fn cpu(pid: u64) -> Result<f64, String> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).map_err(|why| format!("{path}: {why}"))?;
    // The name in brackets may have blanks.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    let sum = ticks(11).zip(ticks(12)).map(|(user, system)| user + system);
    sum.map(|ticks| ticks / TICKS * 1e3).ok_or_else(|| format!("{path} has no times"))
}

/// Returns the bytes that a process has given to disks.
fn written(pid: u64) -> Result<f64, String> {
    let path = format!("/proc/{pid}/io");
    let io = fs::read_to_string(&path).map_err(|why| format!("{path}: {why}"))?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|bytes| bytes.parse().ok()).ok_or_else(|| format!("{path} has no bytes"))
}
