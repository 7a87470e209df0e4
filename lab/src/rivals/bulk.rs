//! A large file over a cable of 1 Gbit/s, beside the rate of TCP alone over it.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::kit::iperf::IperfServer;
use crate::kit::namespaces::{Namespaces, Side};
use crate::kit::report::failed;
use crate::kit::statistics::median;

/// The rate of the cable, as `tc` writes it.
pub(super) const RATE: &str = "1gbit";
/// The least share of TCP's rate that a file is to get.
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
    rounds: u32,
    bytes: u64,
) -> Result<(Value, bool), String> {
    let mut iperf = namespaces.command(Side::Server, "iperf3");
    let iperf = namespaces.spawn("iperf3-server", iperf.args(["-s", "--forceflush"]))?;
    let link = Link { namespaces, server: IperfServer(iperf) };
    let rounds = (0..rounds).map(|round| link.round(point, round, bytes));
    let rounds = rounds.collect::<Result<Vec<Round>, String>>()?;
    let median = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure)).unwrap_or(0.0);
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

/// The cable, with a server of iperf3 at one end.
struct Link<'a> {
    namespaces: &'a Namespaces,
    server: IperfServer,
}

impl Link<'_> {
    fn round(&self, point: &Path, round: u32, bytes: u64) -> Result<Round, String> {
        let path = point.join(format!("bulk{round}"));
        let tcp_up = self.tcp(&[])?;
        let write = rate_of(bytes, || write(&path, bytes)).map_err(|why| failed(&path, &why))?;
        let tcp_down = self.tcp(&["-R"])?;
        // The server's pages too: it is the same kernel.
        rustix::fs::sync();
        let drop_caches = Path::new("/proc/sys/vm/drop_caches");
        fs::write(drop_caches, "3").map_err(|why| failed(drop_caches, &why))?;
        let read = rate_of(bytes, || read(&path)).map_err(|why| failed(&path, &why))?;
        fs::remove_file(&path).map_err(|why| failed(&path, &why))?;
        Ok(Round { tcp_up, tcp_down, write, read })
    }

    /// Returns the MB/s that TCP moves.
    fn tcp(&self, direction: &[&str]) -> Result<f64, String> {
        let bits = self.server.measure(|| {
            let mut client = self.namespaces.command(Side::Client, "iperf3");
            client.args(["-c", Side::Server.address(), "-t", SECONDS, "--json"]).args(direction);
            self.namespaces.run("iperf3", &mut client)
        })?;
        Ok(bits / 8e6)
    }
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
