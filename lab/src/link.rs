//! `link`: the properties of the slow link beside the measurements of ping and iperf3.
//!
//! The tests of `slowlink` count packets; here durations and rates are measured, so a busy machine
//! can miss the bounds.

use std::path::Path;
use std::process::Stdio;

use pelago_testbed::{VerbResult, arguments, machine, mounted, tools, verdict};

use crate::kit::iperf::IperfServer;
use crate::kit::process::output;
use crate::kit::report::met;
use crate::kit::slow_link::SlowLink;
use crate::kit::statistics::median;

/// The most by which a measured time or rate may differ from its setting, as a part of it.
const TOLERANCE: f64 = 0.1;
/// The share of a packet of 1,500 bytes that TCP with timestamps carries.
const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;
/// Milliseconds each way.
const DELAYS_MS: [u32; 3] = [15, 50, 100];
/// Losses each way, in packets of a million.
const LOSSES: [u32; 2] = [10_000, 100_000];
/// Echoes that are sent through each loss.
const ECHOES: u32 = 500;
const RATES_MBIT: [u32; 3] = [8, 45, 100];
/// A link never carries more than its rate, so that one good measurement shows it.
const RATE_TRIES: u32 = 3;
const IPERF_SECONDS: &str = "5";
/// Standard deviations within which the losses of a run are expected.
const DEVIATIONS: f64 = 5.0;

/// Measures, prints a line for each setting, and fails if one is out of bounds.
pub(crate) fn run(words: &[String]) -> VerbResult {
    arguments::none(words)?;
    if !machine::is_root() {
        return Err("needs root, for network namespaces".to_owned());
    }
    let logs = mounted::log_folder("link")?;
    tools::install_packages(&["iproute2", "iputils-ping", "iperf3"], &logs)?;
    let program = SlowLink::build()?;
    let mut good = true;
    for delay in DELAYS_MS {
        good &= delay_is_right(&program, delay)?;
    }
    for loss in LOSSES {
        good &= loss_is_right(&program, loss)?;
    }
    for rate in RATES_MBIT {
        good &= rate_is_right(&program, rate)?;
    }
    verdict(good)
}

/// Prints a line; returns whether the figure is within the bounds.
fn compare(what: &str, set: f64, measured: f64, most: f64) -> bool {
    let is_good = (measured - set).abs() <= most;
    let word = met(is_good);
    println!("  {what:34} set {set:9.2}  measured {measured:9.2}  within {most:.2}  {word}");
    is_good
}

fn delay_is_right(program: &Path, delay_ms: u32) -> Result<bool, String> {
    let link = SlowLink::start(program, &[&format!("delay={}", delay_ms * 1000)])?;
    let said = ping(&link, &["-c", "51", "-i", "0.02"])?;
    let time = |line: &str| line.split_once("time=")?.1.split(' ').next()?.parse().ok();
    // The mean would be that of the other programs of a busy machine.
    let median = median(said.lines().filter_map(time));
    let median = median.ok_or_else(|| format!("ping says no times: {said}"))?;
    let round_trip = f64::from(delay_ms) * 2.0;
    Ok(compare("round trip, ms, median", round_trip, median, round_trip * TOLERANCE))
}

/// An echo comes back if neither direction loses it; each missing one is counted by the link.
fn loss_is_right(program: &Path, loss: u32) -> Result<bool, String> {
    let mut link = SlowLink::start(program, &["delay=1000", &format!("loss={loss}"), "seed=11"])?;
    let said = ping(&link, &["-c", &ECHOES.to_string(), "-i", "0.002", "-W", "2"])?;
    let received = said
        .lines()
        .find_map(|line| line.split(", ").nth(1)?.strip_suffix(" received")?.parse::<u32>().ok());
    let received = received.ok_or_else(|| format!("ping says no packets: {said}"))?;
    let counts = link.tell("counts")?;
    let lost = ["ab", "ba"].map(|way| counts[way]["lost"]["packets"].as_u64().unwrap_or_default());
    let missing = f64::from(ECHOES - received);
    let counted = lost.iter().sum::<u64>() as f64;
    let is_counted = compare(&format!("echoes missing, of {ECHOES}"), counted, missing, 0.0);
    let back = 1.0 - f64::from(loss) / 1e6;
    let share = 1.0 - back * back;
    let deviation = (f64::from(ECHOES) * share * (1.0 - share)).sqrt();
    let expected = f64::from(ECHOES) * share;
    let what = format!("lost of {ECHOES}, {} % each way", f64::from(loss) / 1e4);
    Ok(compare(&what, expected, missing, DEVIATIONS * deviation) && is_counted)
}

/// Measures the rate, again if a busy machine may have been in the way.
fn rate_is_right(program: &Path, mbit: u32) -> Result<bool, String> {
    for _ in 1..RATE_TRIES {
        if measure_rate(program, mbit)? {
            return Ok(true);
        }
    }
    measure_rate(program, mbit)
}

fn measure_rate(program: &Path, mbit: u32) -> Result<bool, String> {
    let rate = format!("rate={}", mbit * 125_000);
    let link = SlowLink::start(program, &["delay=10000", &rate])?;
    let mut command = link.command("a", "iperf3");
    command.arg("-s").stdout(Stdio::null());
    // Dropped before the link.
    let server = IperfServer(command.spawn().map_err(|why| format!("iperf3: {why}"))?);
    let bits = server.measure(|| {
        let mut client = link.command("b", "iperf3");
        client.args(["-c", link.address("a"), "-t", IPERF_SECONDS, "-O", "2", "--json"]);
        output(&mut client)
    })?;
    let set = f64::from(mbit) * PAYLOAD_SHARE;
    Ok(compare("payload, Mbit/s", set, bits / 1e6, set * TOLERANCE))
}

fn ping(link: &SlowLink, arguments: &[&str]) -> Result<String, String> {
    let mut command = link.command("a", "ping");
    command.args(arguments).arg(link.address("b"));
    output(&mut command)
}
