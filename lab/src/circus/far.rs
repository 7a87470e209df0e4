//! One client at the end of a long link of 45 Mbit/s, with and without loss.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::FAR;
use super::contender::ours;
use super::lab::{LARGE, Lab};
use crate::kit::process::output;
use crate::kit::slow_link::SlowLink;

/// The link of the paper: a T3 with a round trip of 75 ms.
const DELAY: &str = "delay=37500";
const T3: &str = "rate=5625000";
/// Packets of a million that are lost each way.
const LOSSES: [u32; 2] = [0, 100_000];
const CONGESTION_CONTROL: &str = "bbr";
/// The most that loss may multiply the time; the paper's was ten times as long.
const WANTED: f64 = 2.0;
const PORT: u16 = 8080;

/// Downloads the file in any order through each loss, prints both times, and returns them.
pub(super) fn measure(lab: &Lab) -> Result<Value, String> {
    let program = SlowLink::build()?;
    let mut times = Vec::new();
    for loss in LOSSES {
        println!("{FAR}: loss {loss} ppm ...");
        times.push(download(lab, &program, loss)?);
    }
    let seconds = |row: &Value| row["seconds"].as_f64().unwrap_or(f64::NAN);
    let [whole, lossy] = [0, 1].map(|at| times.get(at).map_or(f64::NAN, seconds));
    let ratio = lossy / whole;
    let mib = lab.scale.file_bytes >> 20;
    println!("{FAR}: one client, {mib} MiB in any order, T3, 75 ms, {CONGESTION_CONTROL}");
    println!("  without loss {whole:.1} s, with 10 % loss each way {lossy:.1} s");
    println!("  ratio {ratio:.2} (goal {WANTED}; the paper 10)");
    Ok(json!({ "rows": times, "ratio": ratio }))
}

fn download(lab: &Lab, program: &Path, loss: u32) -> Result<Value, String> {
    lab.disk.remount()?;
    let mut link = SlowLink::start(program, &[DELAY, T3, &format!("loss={loss}")])?;
    for end in ["a", "b"] {
        let setting = format!("net.ipv4.tcp_congestion_control={CONGESTION_CONTROL}");
        output(link.command(end, "sysctl").args(["-qw", &setting]))?;
    }
    let address = format!("{}:{PORT}", link.address("a"));
    let wrap = |program: &Path| -> Command { link.command("a", &program.to_string_lossy()) };
    let server = ours(lab, wrap, &["--http", &address, "--http-public"])?;
    let mut crowd = link.command("b", &lab.crowd.to_string_lossy());
    crowd.args(["get", &server.url_of(LARGE), "blocks", "clients=0:1"]);
    let seen = output(&mut crowd).and_then(|said| lab.parsed(&said, &lab.roots.large));
    drop(server);
    let seen = seen?;
    let counts = link.tell("counts")?;
    if seen["finished"] != 1 {
        return Err(format!("the download failed: {}", seen["failures"]));
    }
    Ok(json!({
        "loss_ppm": loss,
        "seconds": seen["download_seconds"]["mean"],
        "counts": counts,
    }))
}
