//! One crowd at one server, and what the kernel counts meanwhile.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::contender::{Contender, ours};
use super::disk::{Disk, failed, output};
use super::lab::Lab;
use super::{DISK_RATE, RATE, SLOW_RATE, Scale};
use crate::group::Group;
use crate::mounted;

/// Bytes of the disk beside the files: a volume has a journal, and a reserve.
const SPARE_BYTES: u64 = 512 << 20;
/// Clients of a crowd that compare hashes.
const SAMPLES: usize = 2;
/// Clients give up after the window and so many times what the slowest takes alone.
const SLOWDOWN_LIMIT: f64 = 5.0;

/// Makes the disk and writes the file twice: plain, and into a volume.
pub(super) fn prepare(pelago: PathBuf, crowd: PathBuf, scale: Scale) -> Result<Lab, String> {
    let disk = Disk::new(scale.file_bytes * 3 + SPARE_BYTES)?;
    let logs = mounted::log_folder("circus")?;
    let mut lab = Lab { pelago, crowd, logs, disk, scale, root: String::new() };
    fs::create_dir(lab.plain()).map_err(|why| failed(&lab.plain(), &why))?;
    lab.root = lab.make(&lab.plain().join("file"))?;
    let server = ours(&lab, |program| Command::new(program), &["--http", "127.0.0.1:0"])?;
    let made = lab.make(&lab.volume().join("files/file"))?;
    drop(server);
    match made == lab.root {
        true => Ok(lab),
        false => Err("the same bytes have two roots".to_owned()),
    }
}

/// Runs a crowd of so many clients of each rate, and returns what it saw and what it cost.
pub(super) fn measure(
    lab: &Lab,
    contender: &Contender,
    clients: &[(f64, usize)],
    seed: usize,
) -> Result<Value, String> {
    lab.disk.remount()?;
    let device = lab.disk.numbers()?;
    let group = Group::with(
        "circus",
        &[
            ("memory", Some(("memory.limit_in_bytes", lab.scale.group_bytes.to_string()))),
            ("blkio", Some(("blkio.throttle.read_bps_device", format!("{device} {DISK_RATE}")))),
            ("cpuacct", None),
        ],
    )?;
    let measured = measure_in(lab, &group, contender, clients, seed);
    let killed = group.killed();
    group.end();
    let mut measured = measured?;
    measured["killed"] = json!(killed?);
    Ok(measured)
}

fn measure_in(
    lab: &Lab,
    group: &Group,
    contender: &Contender,
    clients: &[(f64, usize)],
    seed: usize,
) -> Result<Value, String> {
    let server = contender.start(lab, |program| group.command(program))?;
    let device = lab.disk.numbers()?;
    let (read, cpu) = (read_bytes(group, &device)?, cpu_seconds(group)?);
    let slowest = clients.iter().map(|class| class.0).fold(RATE, f64::min).max(SLOW_RATE);
    let alone = lab.scale.file_bytes as f64 / slowest;
    let limit = f64::from(lab.scale.window) + SLOWDOWN_LIMIT * alone;
    let mut crowd = Command::new(&lab.crowd);
    crowd.args(["get", &server.url]);
    crowd.args(contender.is_any_order.then_some("blocks"));
    crowd.args(clients.iter().map(|(rate, count)| format!("clients={rate}:{count}")));
    crowd.arg(format!("window={}", lab.scale.window)).arg(format!("limit={limit}"));
    crowd.arg(format!("seed={seed}")).arg(format!("samples={SAMPLES}"));
    let seen = lab.parsed(&output(&mut crowd)?)?;
    let (read, cpu) = (read_bytes(group, &device)? - read, cpu_seconds(group)? - cpu);
    drop(server);
    let sent = seen["bytes"].as_f64().unwrap_or_default();
    let pass = seen["pass_bytes"].as_f64().unwrap_or_default();
    let read = read as f64;
    Ok(json!({
        "crowd": seen,
        "read_mb": read / 1e6,
        "passes": read / lab.scale.file_bytes as f64,
        "passes_of_fastest": read / pass.max(1.0),
        "cpu_s_per_gb": cpu / (sent / 1e9).max(f64::MIN_POSITIVE),
    }))
}

/// Returns the bytes that the group has read from the disk.
fn read_bytes(group: &Group, device: &str) -> Result<u64, String> {
    let text = group.read("blkio", "blkio.throttle.io_service_bytes_recursive")?;
    let start = format!("{device} Read ");
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    // A device from which nothing was read has no line.
    line.map_or(Ok(0), |bytes| bytes.parse().map_err(|why| format!("blkio: {bytes}: {why}")))
}

/// Returns the processor time of the group.
fn cpu_seconds(group: &Group) -> Result<f64, String> {
    let text = group.read("cpuacct", "cpuacct.usage")?;
    let nanoseconds: f64 = text.trim().parse().map_err(|why| format!("cpuacct: {why}"))?;
    Ok(nanoseconds / 1e9)
}
