//! A large file of the other office: its first read beside one bare TCP connection over the same
//! line, with losses, on kernels whose default is Reno; a second read, and one after a small
//! change; and how long a change there waits meanwhile.

use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pelago_random::bytes_of;
use rustix::fs::getxattr;
use serde_json::{Value, json};

use super::Offices;
use crate::kit::iperf::IperfServer;
use crate::kit::process::{output, wait_until};
use crate::kit::report::{failed, met};
use crate::kit::statistics::{median, quantile_of};
use crate::rivals::Options;

const BYTES: usize = 64 << 20;
/// Bytes of a program's read or write.
const PIECE: usize = 1 << 20;
/// Bytes that change between two reads, and their place.
const CHANGED: usize = 64 << 10;
const CHANGED_AT: u64 = 40 << 20;
/// The time within which all of a file is copied on this office's disk.
const COPYING: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);
/// Rounds at each line.
const ROUNDS: u32 = 3;
/// The pause between two changes that are timed: their own requests must not fill the line.
const PAUSE: Duration = Duration::from_millis(300);

/// A line, and the goal on it.
struct Line {
    name: &'static str,
    words: &'static str,
    goal: Goal,
    round_trip: Duration,
    /// The part of the changes that the goal of changes is for. A packet that is lost comes again a
    /// round trip later at the earliest.
    changes: f64,
}

/// The least rate of a first read.
#[derive(Clone, Copy)]
enum Goal {
    /// This part of the rate of one TCP connection with BBR.
    OfTcp(f64),
    /// This part of the line's rate in Mbit/s.
    OfLine(f64, f64),
}

const LONG: Duration = Duration::from_millis(100);
const LINES: [Line; 4] = [
    Line {
        name: "100 ms, 100 Mbit/s",
        words: "queue=1500000 delay=50000 rate=12500000 loss=0",
        goal: Goal::OfTcp(0.9),
        round_trip: LONG,
        changes: 1.0,
    },
    Line {
        name: "with a loss of 0.1 %",
        words: "queue=1500000 delay=50000 rate=12500000 ab.loss=1000",
        goal: Goal::OfTcp(0.9),
        round_trip: LONG,
        changes: 0.9,
    },
    Line {
        name: "with a loss of 1 %",
        words: "queue=1500000 delay=50000 rate=12500000 ab.loss=10000",
        goal: Goal::OfTcp(0.9),
        round_trip: LONG,
        changes: 0.9,
    },
    Line {
        name: "30 ms, 8 Mbit/s",
        words: "queue=1500000 delay=15000 rate=1000000 loss=0",
        goal: Goal::OfLine(0.85, 8.0),
        round_trip: Duration::from_millis(30),
        changes: 1.0,
    },
];

/// A read, and what happened meanwhile.
struct Fetch {
    seconds: f64,
    /// The time of each change in the other office, in milliseconds.
    changes_ms: Vec<f64>,
}

/// Measures on each line, prints the figures, and returns whether the goals are met.
pub(super) fn measure(options: &Options, offices: &mut Offices) -> Result<(Value, bool), String> {
    let mut report = json!({});
    let mut good = true;
    let rounds = options.rounds.min(ROUNDS);
    for line in &LINES {
        // The offices ask for BBR themselves. A namespace takes no other default that is worse.
        offices.connect_again("reno", line.words)?;
        let (measured, is_good) = on_line(line, rounds, offices)?;
        report[line.name] = measured;
        good &= is_good;
    }
    offices.connect_again("bbr", "loss=0")?;
    Ok((report, good))
}

fn on_line(line: &Line, rounds: u32, offices: &mut Offices) -> Result<(Value, bool), String> {
    let mut rates = Vec::new();
    let mut of_tcp = Vec::new();
    let mut changes = Vec::new();
    for round in 0..rounds {
        let name = format!("fetch{round}");
        let there = offices.folder("office").other.join(&name);
        let here = offices.folder("office").path.join(&name);
        make(&there)?;
        let fetched = while_changing(offices, || read(&here))?;
        let rate = mbit(BYTES, fetched.seconds);
        let tcp = tcp_mbit(offices)?;
        rates.push(rate);
        of_tcp.push(rate / tcp);
        changes.extend(fetched.changes_ms);
        fs::remove_file(&there).map_err(|why| failed(&there, &why))?;
    }
    let [rate, of_tcp] = [rates, of_tcp].map(|figures| median(figures).unwrap_or(0.0));
    let change_ms = [0.5, line.changes, 1.0].map(|part| quantile_of(&changes, part));
    let (wanted, is_fast) = match line.goal {
        Goal::OfTcp(part) => (format!("{part} of TCP"), of_tcp >= part),
        Goal::OfLine(part, mbit) => (format!("{:.1} Mbit/s", part * mbit), rate >= part * mbit),
    };
    println!("{}: a file of 64 MiB of the other office, {rounds} rounds", line.name);
    println!(
        "  first read {rate:.1} Mbit/s, {of_tcp:.2} of one TCP connection with BBR, goal {wanted}: \
         {}",
        met(is_fast)
    );
    let most = 2.0 * line.round_trip.as_secs_f64() * 1e3 + 50.0;
    let [middle, change_ms, longest] = change_ms;
    println!(
        "  a change there, of what this office has seen, takes {middle:.0} ms meanwhile, {:.0} % \
         of {} at most {change_ms:.0}, goal {most:.0}: {}; the longest {longest:.0}",
        line.changes * 100.0,
        changes.len(),
        met(change_ms <= most)
    );
    let mut good = is_fast && change_ms <= most;
    let mut again = Value::Null;
    if line.words.contains("loss=0") {
        let (value, is_good) = again_and_after_a_change(offices)?;
        again = value;
        good &= is_good;
    }
    let report = json!({ "mbit": rate, "of_tcp": of_tcp, "change_ms": change_ms, "again": again });
    Ok((report, good))
}

/// Measures how many bytes a second read moves, and one after a small change.
fn again_and_after_a_change(offices: &mut Offices) -> Result<(Value, bool), String> {
    let there = offices.folder("office").other.join("again");
    let here = offices.folder("office").path.join("again");
    make(&there)?;
    read(&here)?;
    wait_for_copies(&here)?;
    let before = offices.carried()?;
    read(&here)?;
    let second = offices.carried()? - before;
    let file = File::options().write(true).open(&there).map_err(|why| failed(&there, &why))?;
    file.write_all_at(&[7; CHANGED], CHANGED_AT).map_err(|why| failed(&there, &why))?;
    drop(file);
    let before = offices.carried()?;
    read(&here)?;
    let changed = offices.carried()? - before;
    fs::remove_file(&there).map_err(|why| failed(&there, &why))?;
    // Heartbeats are among them.
    let good = [second < 64 << 10, changed < 2 << 20];
    println!("  {second} bytes cross the line for a second read, goal 0: {}", met(good[0]));
    println!("  {changed} bytes cross it after a change of 64 KiB, goal 2 MiB: {}", met(good[1]));
    let report = json!({ "second_bytes": second, "changed_bytes": changed });
    Ok((report, good == [true; 2]))
}

/// Makes a file whose bytes cannot be compressed.
fn make(path: &Path) -> Result<(), String> {
    let write = || {
        let mut file = File::create(path)?;
        for piece in 0..BYTES / PIECE {
            file.write_all(&bytes_of(piece as u64, PIECE))?;
        }
        file.sync_all()
    };
    write().map_err(|why| failed(path, &why))
}

/// Reads a file to its end, and returns the seconds.
fn read(path: &Path) -> Result<f64, String> {
    let read = || {
        let began = Instant::now();
        let mut file = File::open(path)?;
        let mut piece = vec![0; PIECE];
        while file.read(&mut piece)? > 0 {}
        Ok(began.elapsed().as_secs_f64())
    };
    read().map_err(|why| failed(path, &why))
}

/// Runs a read while the mode of a small file is changed in the other office again and again, which
/// this office has looked at before each change.
fn while_changing(
    offices: &Offices,
    read: impl FnOnce() -> Result<f64, String>,
) -> Result<Fetch, String> {
    let there = offices.folder("office").other.join("watched");
    let here = offices.folder("office").path.join("watched");
    fs::write(&there, "watched").map_err(|why| failed(&there, &why))?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let changing = scope.spawn(|| {
            let mut times = Vec::new();
            for turn in 0_u32.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                fs::metadata(&here).map_err(|why| failed(&here, &why))?;
                let began = Instant::now();
                let mode = Permissions::from_mode(0o600 + turn % 2 * 0o44);
                fs::set_permissions(&there, mode).map_err(|why| failed(&there, &why))?;
                times.push(began.elapsed().as_secs_f64() * 1e3);
                thread::sleep(PAUSE);
            }
            Ok::<_, String>(times)
        });
        let seconds = read();
        is_over.store(true, Ordering::Relaxed);
        let changes_ms = changing.join().map_err(|_| "the changes have panicked".to_owned())??;
        Ok(Fetch { seconds: seconds?, changes_ms })
    })
}

/// Waits until all of the file is copied on this office's disk: a copy counts a second after it was
/// fetched.
fn wait_for_copies(path: &Path) -> Result<(), String> {
    let is_copied = || {
        let mut value = [0; 256];
        let size = getxattr(path, "user.pelago.sites", &mut value);
        let text = size.map(|size| String::from_utf8_lossy(&value[..size]).into_owned());
        text.is_ok_and(|text| text.contains(&format!("copied={BYTES}")))
    };
    match wait_until(COPYING, POLL, is_copied) {
        true => Ok(()),
        false => Err(format!("{}: it is not copied as a whole", path.display())),
    }
}

/// Returns the rate of one connection from the other office with BBR.
fn tcp_mbit(offices: &Offices) -> Result<f64, String> {
    let mut server = offices.command("a", "iperf3");
    server.args(["-s", "-1"]).stdout(Stdio::null());
    let server = IperfServer(server.spawn().map_err(|why| format!("iperf3: {why}"))?);
    let bits = server.measure(|| {
        let mut client = offices.command("b", "iperf3");
        client.args(["-c", offices.address("a"), "-R", "-C", "bbr", "-n", "64M", "--json"]);
        output(&mut client)
    })?;
    Ok(bits / 1e6)
}

fn mbit(bytes: usize, seconds: f64) -> f64 {
    bytes as f64 * 8.0 / 1e6 / seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_in_megabits() {
        assert!((mbit(1 << 20, 8.388_608) - 1.0).abs() < 1e-9);
    }
}
