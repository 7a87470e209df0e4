//! The simulation: a server, clients and programs on one thread at a time, on a network and clocks
//! of its own. A seed decides the next thread, the operations of the programs, and the faults.
//!
//! All of it is the product: sessions, leases, write-behind, the pool, the group commit. Only the
//! kernel, TLS and the engine of the table are not there. The operations of the programs must have
//! an order ([`linear`]), and all mounts must show the same at the end.
//!
//! Usage: `pelago-sim SEED [SEEDS [--first] [--guests | --sites]] [--mirrors]`. One seed prints
//! what it does.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

mod cables;
mod engine_thread;
mod faults;
mod grants;
mod history;
mod linear;
#[expect(unsafe_code, reason = "functions of the C library have no safe binding")]
mod original;
#[expect(unsafe_code, reason = "functions of the C library have no safe binding")]
mod ports;
mod programs;
mod register;
mod shares;
mod stale;
#[expect(unsafe_code, reason = "functions of the C library have no safe binding")]
mod system;
mod tap;
mod turns;
mod world;

/// The option of a process that runs one seed, and prints its counts.
const ONE: &str = "--one";
/// The number of seeds that meet each of [`EXPECTED`].
const TELLING_SEEDS: usize = 50;
const EXPECTED: [&str; 44] = [
    "answers without a lease",
    "appends",
    "changes of the policy",
    "creates",
    "critical sections",
    "ends",
    "failed operations",
    "guest creates",
    "guest listings",
    "guest locks",
    "guest looks",
    "guest lookups",
    "guest opens",
    "guest reads",
    "guest reads of made files",
    "guest reads of open files",
    "guest refusals",
    "guest unlinks",
    "guest writes",
    "guest writes to open files",
    "leases lost",
    "leases on bytes",
    "leases on names",
    "leases on nodes",
    "leases on what was changed",
    "listings",
    "listings of the owner",
    "locks",
    "locks of the owner",
    "looks",
    "lookups",
    "moves in",
    "moves out",
    "reads",
    "recalls answered",
    "recalls of everything",
    "recalls sent",
    "renames",
    "revocations",
    "second names",
    "sessions ended",
    "sessions that came back",
    "unlinks",
    "writes",
];
/// The counts that [`TELLING_SEEDS`] seeds with several sites meet.
const EXPECTED_OF_SITES: [&str; 17] = [
    "appends",
    "creates",
    "critical sections",
    "failed operations",
    "listings",
    "locks",
    "looks",
    "lookups",
    "reads",
    "site directories of another site",
    "site lookups of directories",
    "site paths that may be old",
    "site removed directories of another site",
    "site renames of directories",
    "site uses of directories",
    "unlinks",
    "writes",
];
/// The counts that [`TELLING_SEEDS`] seeds with mirrors meet.
const EXPECTED_OF_MIRRORS: [&str; 8] = [
    "mirror answer lost",
    "mirror killed primary",
    "mirror line cut",
    "mirror line stopped",
    "mirror power loss",
    "mirror promotions",
    "mirror resyncs",
    "mirror waits",
];
/// If this is set, a run tells of each switch of threads.
const SWITCHES: &str = "PELAGO_SIM_SWITCHES";
/// Ends with the first seed that fails.
const FIRST: &str = "--first";
/// Runs only the seeds that have guests.
const GUESTS: &str = "--guests";
/// Runs only the seeds that have several sites.
const SITES: &str = "--sites";
/// Runs each seed with a mirror that is promoted.
const MIRRORS: &str = "--mirrors";
/// A run takes less, also on a busy machine; one that takes more does not end.
const MOST_SECONDS: u32 = 180;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = arguments.iter().filter_map(|text| text.parse().ok()).collect();
    match numbers[..] {
        [seed] => {
            original::fix_addresses();
            let has = |option: &str| arguments.iter().any(|it| it == option);
            run_one(seed, !has(ONE), has(MIRRORS))
        }
        [seed, count] => {
            let has = |option: &str| arguments.iter().any(|it| it == option);
            let is_meant = |seed: &u64| {
                (!has(GUESTS) || world::has_guests(*seed))
                    && (!has(SITES) || world::has_sites(*seed))
            };
            let seeds: Vec<u64> = (seed..seed + count).filter(is_meant).collect();
            let mirrors = has(MIRRORS).then_some(MIRRORS);
            let expected = match mirrors {
                Some(_) if seeds.len() >= TELLING_SEEDS => EXPECTED_OF_MIRRORS.to_vec(),
                Some(_) => Vec::new(),
                None => expected(&seeds, has(GUESTS) || has(SITES)),
            };
            run_all(&seeds, mirrors, &expected, has(FIRST))
        }
        _ => {
            eprintln!("usage: pelago-sim SEED [SEEDS]");
            ExitCode::from(2)
        }
    }
}

/// Writes what is logged into the story of the run.
struct Story;

impl Write for Story {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        turns::tell(format_args!("{}", String::from_utf8_lossy(bytes).trim_end()));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn run_one(seed: u64, tells: bool, has_mirror: bool) -> ExitCode {
    if tells && std::env::var_os("PELAGO_SIM_LOG").is_some() {
        use tracing_subscriber::layer::SubscriberExt;
        use tracing_subscriber::util::SubscriberInitExt;
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).without_time();
        let layer = layer.with_writer(|| Story);
        tracing_subscriber::registry().with(layer).init();
    }
    if tells {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            print!("{}", turns::story());
            report(panic);
        }));
    }
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let dir = dir.expect("a folder");
    // Threads that take turns do so quickest on one processor.
    let mut processors = rustix::thread::CpuSet::new();
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    processors.set(usize::try_from(seed).unwrap_or(0) % all);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &processors) {
        eprintln!("not on one processor: {error}");
    }
    // SAFETY: it has no preconditions. A run that does not end is killed.
    #[expect(unsafe_code, reason = "an alarm")]
    unsafe {
        libc::alarm(MOST_SECONDS);
    }
    let run = if has_mirror { world::run_with_mirror } else { world::run };
    let report = run(seed, dir.path(), std::env::var_os(SWITCHES).is_some());
    if tells {
        print!("{}", turns::story());
    }
    for (what, count) in &report.counts {
        println!("{what}: {count}");
    }
    println!("switches: {}", turns::switches());
    println!("seconds: {}", report.time.as_secs());
    for wrong in &report.wrong {
        println!("WRONG: {wrong}");
    }
    let removed = dir.close();
    std::io::stdout().flush().expect("standard output");
    removed.expect("the folder can be removed");
    // Threads of servers that were killed wait for ever.
    let code = i32::from(!report.wrong.is_empty());
    #[expect(unsafe_code, reason = "an exit without destructors")]
    // SAFETY: it does not return.
    unsafe {
        libc::_exit(code)
    }
}

/// Returns what a run of these seeds meets, if it has enough of them.
fn expected(seeds: &[u64], is_of_one_kind: bool) -> Vec<&'static str> {
    let mut expected = Vec::new();
    if seeds.len() >= TELLING_SEEDS && !is_of_one_kind {
        expected.extend(EXPECTED.iter().chain(&faults::KINDS));
    }
    if seeds.iter().filter(|seed| world::has_sites(**seed)).count() >= TELLING_SEEDS {
        expected.extend(EXPECTED_OF_SITES.iter().chain(&faults::sites::SITE_KINDS));
    }
    expected
}

/// Runs seeds, as many at a time as there are processors, each with this option.
fn run_all(seeds: &[u64], option: Option<&str>, expected: &[&str], ends_early: bool) -> ExitCode {
    let has_failed = AtomicBool::new(false);
    let began = Instant::now();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let lanes = processors.min(seeds.len());
    let mut totals = BTreeMap::<String, u64>::new();
    let mut failed = Vec::new();
    let results = std::thread::scope(|scope| {
        let running: Vec<_> = (0..lanes)
            .map(|lane| {
                let seeds = seeds.iter().copied().skip(lane).step_by(lanes);
                let has_failed = &has_failed;
                let goes_on = move |_: &u64| !(ends_early && has_failed.load(Ordering::Relaxed));
                let run = move |seed| {
                    let (ok, text) = run_apart(seed, option);
                    has_failed.fetch_or(!ok, Ordering::Relaxed);
                    if !ok {
                        eprintln!("seed {seed} failed");
                    }
                    (seed, ok, text)
                };
                scope.spawn(move || seeds.take_while(goes_on).map(run).collect::<Vec<_>>())
            })
            .collect();
        running.into_iter().flat_map(|lane| lane.join().expect("a lane")).collect::<Vec<_>>()
    });
    for (seed, ok, text) in results {
        for line in text.lines() {
            if let Some((what, number)) = line.split_once(": ")
                && let Ok(number) = number.parse::<u64>()
            {
                *totals.entry(what.to_owned()).or_default() += number;
            }
        }
        if !ok {
            failed.push(seed);
            println!("seed {seed} failed:\n{text}");
        }
    }
    for (what, number) in &totals {
        println!("{what}: {number}");
    }
    let missing: Vec<_> = expected.iter().filter(|it| !totals.contains_key(**it)).collect();
    if !missing.is_empty() {
        println!("never met: {missing:?}");
    }
    println!("{} seeds, {} failed {failed:?}, {:.1?}", seeds.len(), failed.len(), began.elapsed());
    ExitCode::from(u8::from(!failed.is_empty() || !missing.is_empty()))
}

/// Runs one seed in a process of its own. Returns whether nothing was wrong, and its output.
fn run_apart(seed: u64, option: Option<&str>) -> (bool, String) {
    let own = std::env::current_exe().expect("a path");
    let mut command = Command::new(own);
    command.args([&seed.to_string(), ONE]).args(option).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a process");
    let mut text = String::new();
    let mut output = child.stdout.take().expect("its output");
    output.read_to_string(&mut text).expect("text");
    (child.wait().expect("its end").success(), text)
}
