//! One crowd at one server, and what the kernel counts meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::contender::{Contender, ours};
use super::disk::{Disk, failed, output};
use super::{DISK_RATE, RATE, SLOW_RATE, Scale};
use crate::group::Group;
use crate::mounted;

/// The seed of the file's bytes.
const FILE_SEED: &str = "1";
/// Clients of a crowd that compare hashes.
const SAMPLES: usize = 2;
/// Clients give up after the window and so many times what the slowest takes alone.
const SLOWDOWN_LIMIT: f64 = 5.0;

/// What all runs share: programs, and a disk with the file for both servers.
pub(super) struct Lab {
    pub(super) pelago: PathBuf,
    pub(super) crowd: PathBuf,
    pub(super) logs: PathBuf,
    pub(super) disk: Disk,
    pub(super) scale: Scale,
    /// The root of the file.
    root: String,
}

impl Lab {
    /// Makes the disk and writes the file twice: plain, and into a volume.
    pub(super) fn new(pelago: PathBuf, crowd: PathBuf, scale: Scale) -> Result<Self, String> {
        let disk = Disk::new(scale.file_bytes * 3 + (512 << 20))?;
        let logs = mounted::log_folder("circus")?;
        let mut lab = Self { pelago, crowd, logs, disk, scale, root: String::new() };
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

    /// Returns the folder that nginx serves.
    pub(super) fn plain(&self) -> PathBuf {
        self.disk.point.join("plain")
    }

    pub(super) fn volume(&self) -> PathBuf {
        self.disk.point.join("volume")
    }

    fn make(&self, path: &Path) -> Result<String, String> {
        let bytes = self.scale.file_bytes.to_string();
        let mut make = Command::new(&self.crowd);
        let root = output(make.arg("make").arg(path).args([&bytes, FILE_SEED]))?;
        Ok(root.trim().to_owned())
    }

    /// Runs a crowd of so many clients of each rate, and returns what it saw and what it cost.
    pub(super) fn measure(
        &self,
        contender: &Contender,
        clients: &[(f64, usize)],
        seed: usize,
    ) -> Result<Value, String> {
        self.disk.remount()?;
        let device = self.disk.numbers()?;
        let group = Group::with(
            "circus",
            &[
                ("memory", Some(("memory.limit_in_bytes", self.scale.group_bytes.to_string()))),
                (
                    "blkio",
                    Some(("blkio.throttle.read_bps_device", format!("{device} {DISK_RATE}"))),
                ),
                ("cpuacct", None),
            ],
        )?;
        let measured = self.measure_in(&group, contender, clients, seed);
        let killed = group.killed();
        group.end();
        let mut measured = measured?;
        measured["killed"] = json!(killed?);
        Ok(measured)
    }

    fn measure_in(
        &self,
        group: &Group,
        contender: &Contender,
        clients: &[(f64, usize)],
        seed: usize,
    ) -> Result<Value, String> {
        let server = contender.start(self, |program| group.command(program))?;
        let device = self.disk.numbers()?;
        let (read, cpu) = (read_bytes(group, &device)?, cpu_seconds(group)?);
        let slowest = clients.iter().map(|class| class.0).fold(RATE, f64::min).max(SLOW_RATE);
        let alone = self.scale.file_bytes as f64 / slowest;
        let limit = f64::from(self.scale.window) + SLOWDOWN_LIMIT * alone;
        let mut crowd = Command::new(&self.crowd);
        crowd.args(["get", &server.url]);
        crowd.args(contender.is_any_order.then_some("blocks"));
        crowd.args(clients.iter().map(|(rate, count)| format!("clients={rate}:{count}")));
        crowd.arg(format!("window={}", self.scale.window)).arg(format!("limit={limit}"));
        crowd.arg(format!("seed={seed}")).arg(format!("samples={SAMPLES}"));
        let seen = self.parsed(&output(&mut crowd)?)?;
        let (read, cpu) = (read_bytes(group, &device)? - read, cpu_seconds(group)? - cpu);
        drop(server);
        let sent = seen["bytes"].as_f64().unwrap_or_default();
        let pass = seen["pass_bytes"].as_f64().unwrap_or_default();
        let read = read as f64;
        Ok(json!({
            "crowd": seen,
            "read_mb": read / 1e6,
            "passes": read / self.scale.file_bytes as f64,
            "passes_of_fastest": read / pass.max(1.0),
            "cpu_s_per_gb": cpu / (sent / 1e9).max(f64::MIN_POSITIVE),
        }))
    }

    /// Parses what a crowd said, and checks the bytes of its samples.
    pub(super) fn parsed(&self, said: &str) -> Result<Value, String> {
        let seen: Value = serde_json::from_str(said).map_err(|why| format!("crowd: {why}"))?;
        let roots = seen["roots"].as_array().into_iter().flatten();
        match roots.into_iter().find(|root| *root != &self.root) {
            Some(root) => Err(format!("a client has other bytes: root {root}")),
            None => Ok(seen),
        }
    }
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
