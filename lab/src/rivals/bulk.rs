//! A large file over a cable of 1 Gbit/s, beside what TCP alone moves over it.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::failed;
use super::namespaces::{Namespaces, Side};

/// The rate of the cable, as `tc` writes it.
pub(super) const RATE: &str = "1gbit";
/// The least share of TCP's rate that a file shall get.
const WANTED: f64 = 0.9;
/// Bytes of one call.
const CHUNK: usize = 1 << 20;
/// Seconds of a measurement of TCP.
const SECONDS: &str = "4";

/// The rates of one round, in MB/s.
struct Round {
    tcp_up: f64,
    tcp_down: f64,
    write: f64,
    read: f64,
}

/// Measures rounds in which TCP and the file alternate. Returns the object of `--json`, and whether
/// the goal is met.
pub(super) fn measure(
    namespaces: &Namespaces,
    point: &Path,
    (rounds, bytes): (u32, u64),
) -> Result<(Value, bool), String> {
    let mut server = namespaces.command(Side::Server, "iperf3");
    let mut server = namespaces.spawn("iperf3-server", server.args(["-s", "--forceflush"]))?;
    let rounds = (0..rounds).map(|round| one_round(namespaces, point, round, bytes));
    let measured: Result<Vec<Round>, String> = rounds.collect();
    end(&mut server);
    let rounds = measured?;
    let median = |figure: fn(&Round) -> f64| super::median(rounds.iter().map(figure));
    let rates = [
        ("TCP, to the server", median(|round| round.tcp_up)),
        ("write 1 file and fsync", median(|round| round.write)),
        ("TCP, from the server", median(|round| round.tcp_down)),
        ("read it cold", median(|round| round.read)),
    ];
    let ratios = [
        ("write of TCP", median(|round| round.write / round.tcp_up)),
        ("read of TCP", median(|round| round.read / round.tcp_down)),
    ];
    println!("bulk: {bytes} bytes over {RATE}, {} rounds, medians", rounds.len());
    rates.iter().for_each(|(what, rate)| println!("  {what:24} {rate:8.1} MB/s"));
    ratios.iter().for_each(|(what, ratio)| println!("  {what:24} {ratio:8.2} (goal {WANTED})"));
    let each = |rows: &[(&str, f64)]| -> Vec<Value> {
        rows.iter().map(|(what, value)| json!({ "what": what, "median": value })).collect()
    };
    let object = json!({ "bytes": bytes, "rates": each(&rates), "ratios": each(&ratios) });
    Ok((object, ratios.iter().all(|(_, ratio)| *ratio >= WANTED)))
}

fn one_round(
    namespaces: &Namespaces,
    point: &Path,
    round: u32,
    bytes: u64,
) -> Result<Round, String> {
    let path = point.join(format!("bulk{round}"));
    let tcp_up = tcp(namespaces, &[])?;
    let write = rate_of(bytes, || write(&path, bytes)).map_err(|why| failed(&path, &why))?;
    let tcp_down = tcp(namespaces, &["-R"])?;
    // The server's pages too: it is the same kernel.
    rustix::fs::sync();
    let drop_caches = Path::new("/proc/sys/vm/drop_caches");
    fs::write(drop_caches, "3").map_err(|why| failed(drop_caches, &why))?;
    let read = rate_of(bytes, || read(&path)).map_err(|why| failed(&path, &why))?;
    fs::remove_file(&path).map_err(|why| failed(&path, &why))?;
    Ok(Round { tcp_up, tcp_down, write, read })
}

/// Returns the MB/s that TCP moves.
fn tcp(namespaces: &Namespaces, direction: &[&str]) -> Result<f64, String> {
    let mut last = String::new();
    for _ in 0..20 {
        let mut client = namespaces.command(Side::Client, "iperf3");
        client.args(["-c", Side::Server.address(), "-t", SECONDS, "--json"]).args(direction);
        match namespaces.run("iperf3", &mut client) {
            Ok(said) => {
                let said: Value =
                    serde_json::from_str(&said).map_err(|why| format!("iperf3: {why}"))?;
                let bits = said["end"]["sum_received"]["bits_per_second"].as_f64();
                return bits.map(|bits| bits / 8e6).ok_or_else(|| "iperf3 has no sum".to_owned());
            }
            // The server listens a moment after its start.
            Err(why) => last = why,
        }
        thread::sleep(Duration::from_millis(200));
    }
    Err(last)
}

fn rate_of(bytes: u64, work: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(bytes as f64 / 1e6 / start.elapsed().as_secs_f64())
}

fn write(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let block: Vec<u8> = (0..CHUNK as u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    for _ in 0..bytes / CHUNK as u64 {
        file.write_all(&block)?;
    }
    file.sync_all()
}

fn read(path: &Path) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    let mut block = vec![0; CHUNK];
    while file.read(&mut block)? > 0 {}
    Ok(())
}

fn end(child: &mut Child) {
    // It may have ended.
    let _gone = child.kill();
    let _reaped = child.wait();
}
