//! The time, the bytes on the line and the memory of a comparison.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use pelago_random::bytes_of;

use super::sites::{LINE, Place, Sites};
use crate::kit::process::memory_kib;
use crate::kit::report::{failed, met};

const VOLUME: &str = "volume";
/// Files of one folder.
const FOLDER: u64 = 1_000;
const MIB: usize = 1 << 20;
/// Limits: seconds and megabytes for a million files, megabytes for a large one, and MiB of memory.
const FILES_SECONDS: f64 = 20.0;
const FILES_MB: f64 = 10.0;
const LARGE_MB: f64 = 3.0;
const MEMORY_MIB: u64 = 64;
/// Has the kernel forget the peak of a process's memory (`/proc/PID/clear_refs`).
const FORGET_PEAK: &str = "5";

/// Compares a volume of so many small files with its mirror, of which none has changed. Returns
/// whether the limits are kept.
pub(super) fn of_files(logs: &Path, files: u64) -> Result<bool, String> {
    let mut sites = Sites::start(logs, Place::Disk, LINE)?;
    sites.up(VOLUME)?;
    make_files(&sites.files(VOLUME), files)?;
    sites.mirror(VOLUME)?;
    println!("{files} files, of which none has changed");
    let restart = restart(&mut sites)?;
    let meeting = meet(&mut sites, || Ok(()))?;
    Ok(restart.is_within(FILES_SECONDS, FILES_MB) & meeting.is_within(FILES_SECONDS, FILES_MB))
}

/// Compares a volume with one file of so many MiB, of which one has changed.
pub(super) fn of_large(logs: &Path, mib: u64) -> Result<bool, String> {
    let mut sites = Sites::start(logs, Place::Disk, LINE)?;
    sites.up(VOLUME)?;
    let path = sites.files(VOLUME).join("large");
    let change = |number: u64, seed: u64| -> Result<(), String> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|why| failed(&path, &why))?;
        let written = file.write_all_at(&bytes_of(seed, MIB), number * MIB as u64);
        written.and_then(|()| file.sync_all()).map_err(|why| failed(&path, &why))
    };
    let made = File::create(&path).and_then(|file| {
        let mut numbers = 0..mib;
        numbers.try_for_each(|at| file.write_all_at(&bytes_of(at, MIB), at * MIB as u64))?;
        file.sync_all()
    });
    made.map_err(|why| failed(&path, &why))?;
    sites.mirror(VOLUME)?;
    println!("a file of {mib} MiB, of which one has changed");
    let meeting = meet(&mut sites, || change(mib / 2, mib))?;
    Ok(meeting.is_within(f64::INFINITY, LARGE_MB))
}

/// What a comparison has taken.
struct Taken {
    what: &'static str,
    seconds: f64,
    bytes: u64,
    /// KiB by which the memory of the primary grew.
    grown: Option<u64>,
}

impl Taken {
    /// Prints the figures; returns whether the limits are kept.
    fn is_within(&self, seconds: f64, megabytes: f64) -> bool {
        let sent = self.bytes as f64 / 1e6;
        let grown = self.grown.map(|kib| kib / 1024);
        let is_met = self.seconds <= seconds
            && sent <= megabytes
            && grown.is_none_or(|mib| mib <= MEMORY_MIB);
        let grown = grown.map_or(String::new(), |mib| format!(", {mib} MiB more memory"));
        let Self { what, seconds, .. } = self;
        println!("  {what:28} {seconds:6.1} s, {sent:7.2} MB on the line{grown}  {}", met(is_met));
        is_met
    }
}

/// Kills the primary and starts it again, while the server of the mirror goes on.
fn restart(sites: &mut Sites) -> Result<Taken, String> {
    sites.kill(VOLUME)?;
    let before = sites.carried()?;
    sites.up(VOLUME)?;
    let began = Instant::now();
    sites.wait(VOLUME)?;
    let seconds = began.elapsed().as_secs_f64();
    let bytes = sites.carried()? - before;
    Ok(Taken { what: "after a crash, from mounted", seconds, bytes, grown: None })
}

/// Kills the server of the mirror, makes a change, kills the primary too, and has both meet.
fn meet(sites: &mut Sites, change: impl FnOnce() -> Result<(), String>) -> Result<Taken, String> {
    sites.kill_keeper()?;
    change()?;
    sites.kill(VOLUME)?;
    sites.up(VOLUME)?;
    let pid = sites.pid(VOLUME)?;
    let resident = memory_kib(pid, "VmRSS:")?;
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, FORGET_PEAK).map_err(|why| failed(Path::new(&path), &why))?;
    let before = sites.carried()?;
    sites.keep()?;
    let began = Instant::now();
    sites.wait(VOLUME)?;
    let seconds = began.elapsed().as_secs_f64();
    let bytes = sites.carried()? - before;
    let peak = memory_kib(pid, "VmHWM:")?;
    let there = memory_kib(sites.keeper()?, "VmHWM:")? / 1024;
    println!("  the primary had {} MiB; the mirror has {there} MiB at most", resident / 1024);
    let grown = Some(peak.saturating_sub(resident));
    Ok(Taken { what: "from the mirror's return", seconds, bytes, grown })
}

/// Makes files of ten bytes.
fn make_files(root: &Path, files: u64) -> Result<(), String> {
    for number in 0..files {
        let folder = root.join((number / FOLDER).to_string());
        if number % FOLDER == 0 {
            fs::create_dir(&folder).map_err(|why| failed(&folder, &why))?;
        }
        let path = folder.join(format!("some-file-{number}"));
        fs::write(&path, format!("{number:010}")).map_err(|why| failed(&path, &why))?;
    }
    Ok(())
}
