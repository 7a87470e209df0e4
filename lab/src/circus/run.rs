//! One crowd at one server, and the disk reads and processor time that the kernel counts meanwhile.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::Command;

use pelago_testbed::mounted;
use serde_json::{Value, json};

use super::contender::{Contender, ours};
use super::disk::Disk;
use super::lab::{LARGE, Lab, Roots, SMALL};
use super::load::{Load, LoadKind};
use super::{DISK_RATE, Scale};
use crate::kit::group::Group;
use crate::kit::process::output;
use crate::kit::report::failed;

/// Bytes of the disk beside the files: a volume has a journal, and a reserve.
const SPARE_BYTES: u64 = 512 << 20;
/// Clients of a crowd that compare hashes.
const SAMPLES: usize = 2;
/// Clients give up after the window and this multiple of the time that the slowest takes alone.
const SLOWDOWN_LIMIT: f64 = 5.0;

/// Makes the disk and writes the large file and the small ones twice: plain, and into a volume.
pub(super) fn prepare(
    pelago: PathBuf,
    crowd: PathBuf,
    scale: Scale,
    small_files: usize,
) -> Result<Lab, String> {
    let bytes = scale.file_bytes + scale.small_bytes() * small_files as u64;
    let disk = Disk::new(bytes * 2 + SPARE_BYTES + scale.file_bytes)?;
    let logs = mounted::log_folder("circus")?;
    let mut lab = Lab { pelago, crowd, logs, disk, scale, small_files, roots: Roots::default() };
    fs::create_dir(lab.plain()).map_err(|why| failed(&lab.plain(), &why))?;
    lab.roots = lab.make(&lab.plain())?;
    let server = ours(&lab, |program| Command::new(program), &["--http", "127.0.0.1:0"])?;
    let roots = lab.make(&lab.volume().join("files"))?;
    drop(server);
    match roots == lab.roots {
        true => Ok(lab),
        false => Err("the same bytes have two roots".to_owned()),
    }
}

/// Runs a crowd, and returns its report with the costs of the server.
pub(super) fn measure(
    lab: &Lab,
    contender: &Contender,
    load: &Load,
    seed: usize,
) -> Result<Value, String> {
    lab.disk.remount()?;
    let device = lab.disk.numbers()?;
    let is_cached = load.kind == LoadKind::Cached;
    let memory = load.memory_bytes(&lab.scale);
    let throttle = ("blkio.throttle.read_bps_device", format!("{device} {DISK_RATE}"));
    let group = Group::with(
        "circus",
        &[
            ("memory", Some(("memory.limit_in_bytes", memory.to_string()))),
            ("blkio", (!is_cached).then_some(throttle)),
            ("cpuacct", None),
        ],
    )?;
    let measured = measure_in(lab, &group, contender, load, seed);
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
    load: &Load,
    seed: usize,
) -> Result<Value, String> {
    let server = contender.start(lab, |program| group.command(program))?;
    let device = lab.disk.numbers()?;
    let size = load.file_bytes(&lab.scale);
    let window = load.window(&lab.scale);
    let (path, root) = match load.kind {
        LoadKind::Files => (SMALL, &lab.roots.small),
        LoadKind::Equal | LoadKind::Mixed | LoadKind::Cached => (LARGE, &lab.roots.large),
    };
    let url = server.url_of(path);
    if load.kind == LoadKind::Cached {
        warm(lab, contender)?;
    }
    let read = read_bytes(group, &device)?;
    let cpu = cpu_seconds(group)?;
    let alone = size as f64 / load.slowest();
    let limit = f64::from(window) + SLOWDOWN_LIMIT * alone;
    let mut crowd = Command::new(&lab.crowd);
    crowd.args(["get", &url]);
    crowd.args(contender.is_any_order.then_some("blocks"));
    crowd.args(load.clients.iter().map(|it| format!("clients={}:{}", it.rate, it.count)));
    crowd.args((load.files() > 1).then(|| format!("files={}", load.files())));
    crowd.arg(format!("window={window}")).arg(format!("limit={limit}"));
    crowd.arg(format!("seed={seed}")).arg(format!("samples={SAMPLES}"));
    let seen = lab.parsed(&output(&mut crowd)?, root)?;
    let read = read_bytes(group, &device)? - read;
    let cpu = cpu_seconds(group)? - cpu;
    drop(server);
    let sent = seen["bytes"].as_f64().unwrap_or_default();
    let pass = seen["pass_bytes"].as_f64().unwrap_or_default();
    let read = read as f64;
    Ok(json!({
        "crowd": seen,
        "read_mb": read / 1e6,
        "passes": read / (size * load.files() as u64) as f64,
        "passes_of_fastest": read / pass.max(1.0),
        "cpu_s_per_gb": cpu / (sent / 1e9).max(f64::MIN_POSITIVE),
    }))
}

/// Reads the large file once, so that it is in the page cache.
fn warm(lab: &Lab, contender: &Contender) -> Result<(), String> {
    let folder = if contender.is_ours() { lab.volume().join("files") } else { lab.plain() };
    let path = folder.join(LARGE);
    let read = File::open(&path).and_then(|mut file| io::copy(&mut file, &mut io::sink()));
    read.map(drop).map_err(|why| failed(&path, &why))
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
