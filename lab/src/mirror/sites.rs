//! The site of the volume, the site of its mirror, and the line between them.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pelago_testbed::mounted;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::kit::process::{memory_kib, output, run_step, wait_until};
use crate::kit::report::failed;
use crate::kit::slow_link::SlowLink;

/// The line of costs and comparisons.
pub(super) const LINE: &[&str] = &["delay=10000", "rate=12500000"];
/// The line while something is prepared.
const FREE: &str = "delay=0 rate=0";
const RELAY_PORT: u16 = 7443;
/// The longest time until the mirror has all.
const PATIENCE_SECONDS: u32 = 3_000;
const END: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// Two sites. Their drop ends their processes and removes their folders.
pub(super) struct Sites {
    pelago: PathBuf,
    logs: PathBuf,
    /// The folders of this side; the mirror's is below it or in memory.
    root: PathBuf,
    mirrors: PathBuf,
    link: SlowLink,
    /// The words of the line while something is measured.
    line: String,
    /// The line is free while a mirror gets its first copy.
    is_freed: bool,
    /// The folder of the relay, if there is one.
    relay: Option<PathBuf>,
    steps: Cell<u32>,
}

/// Where the folders of both sites lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// On the disk.
    Disk,
    /// The mirror's in memory (`/dev/shm`), so that the disk has the work of the primary alone.
    MirrorInMemory,
    /// All in memory, so that no disk is the limit.
    Memory,
}

impl Sites {
    /// Starts a line of these words, and the server of mirrors.
    pub(super) fn start(logs: &Path, place: Place, line: &[&str]) -> Result<Self, String> {
        let pelago = mounted::build()?;
        let link = SlowLink::start(&SlowLink::build()?, line)?;
        // A process can have several.
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("pelago-mirror-{}-{number}", std::process::id());
        let memory = Path::new("/dev/shm").join(&name);
        let root = match place {
            Place::Disk | Place::MirrorInMemory => std::env::temp_dir().join(&name),
            Place::Memory => memory.clone(),
        };
        let there = match place {
            Place::Disk | Place::Memory => root.join("there"),
            Place::MirrorInMemory => memory,
        };
        for folder in [&root, &there] {
            fs::create_dir_all(folder).map_err(|why| failed(folder, &why))?;
        }
        let mirrors = there.join("mirrors");
        let logs = logs.to_owned();
        let line = line.join(" ");
        let steps = Cell::new(0);
        let is_freed = place != Place::Memory;
        let sites = Self { pelago, logs, root, mirrors, link, line, is_freed, relay: None, steps };
        sites.keep()?;
        Ok(sites)
    }

    /// Changes the line.
    pub(super) fn tell(&mut self, words: &str) -> Result<(), String> {
        self.link.tell(words).map(drop)
    }

    /// Has the connections from the first site that begin from now on use a congestion control of
    /// TCP.
    pub(super) fn set_control(&self, name: &str) -> Result<(), String> {
        self.link.set_control("a", self.link.address("b"), name)
    }

    /// Starts a relay at the site of the volume, through which all volumes send that get a mirror
    /// from now on.
    pub(super) fn start_relay(&mut self) -> Result<(), String> {
        let folder = self.root.join("relay");
        let at = format!("{}:{RELAY_PORT}", self.link.address("a"));
        self.home(&["relay", shown(&folder), "--listen", &at, "--detach"])?;
        let key = self.home(&["key", "show", "-V", shown(&folder)])?;
        self.there(&["key", "allow", key.trim(), "-V", self.mirrors()])?;
        self.relay = Some(folder);
        Ok(())
    }

    /// Starts the server of mirrors.
    pub(super) fn keep(&self) -> Result<(), String> {
        let at = format!("{}:7442", self.link.address("b"));
        let serve = ["--mirrors", "--listen", &at, "--detach"];
        self.there(&[&["serve", self.mirrors()], &serve[..]].concat()).map(drop)
    }

    /// Makes a volume unless it is there, and mounts it.
    pub(super) fn up(&self, volume: &str) -> Result<(), String> {
        self.up_with(volume, &[])
    }

    /// Does the same with more options.
    pub(super) fn up_with(&self, volume: &str, options: &[&str]) -> Result<(), String> {
        let folder = self.volume(volume);
        let up = ["up", shown(&folder), "--detach", "--passthrough", "never"];
        self.home(&[&up, options].concat()).map(drop)
    }

    /// Gives a volume its mirror, and waits until that has all; the line is free meanwhile, unless
    /// the volumes lie in memory: these are empty then, and `--lag` counts by the rate of the last
    /// groups, which is to be that of the line.
    pub(super) fn mirror(&mut self, volume: &str) -> Result<(), String> {
        let folder = self.volume(volume);
        let key = self.home(&["key", "show", "-V", shown(&folder)])?;
        self.there(&["key", "allow", key.trim(), "-V", self.mirrors()])?;
        let key = self.there(&["key", "show", "-V", self.mirrors()])?;
        let peer = format!("{}@{}:7442", key.trim(), self.link.address("b"));
        if self.is_freed {
            self.link.tell(FREE)?;
        }
        let relay = self.relay_of(&folder)?;
        let mirror = ["site", "mirror", &peer, "-V", shown(&folder)];
        let through = relay.as_deref().map_or(vec![], |relay| vec!["--relay", relay]);
        self.home(&[&mirror[..], &through].concat())?;
        self.wait(volume)?;
        if relay.is_some() && !wait_until(END, POLL, || self.uses_relay(volume)) {
            return Err(format!("{volume} does not use its relay"));
        }
        let line = self.line.clone();
        self.tell(&line)
    }

    /// Returns the address of the relay, once it knows the key of a volume.
    fn relay_of(&self, folder: &Path) -> Result<Option<String>, String> {
        let Some(relay) = &self.relay else { return Ok(None) };
        let key = self.home(&["key", "show", "-V", shown(folder)])?;
        self.home(&["key", "allow", key.trim(), "-V", shown(relay)])?;
        let key = self.home(&["key", "show", "-V", shown(relay)])?;
        Ok(Some(format!("{}@{}:{RELAY_PORT}", key.trim(), self.link.address("a"))))
    }

    fn uses_relay(&self, volume: &str) -> bool {
        let status = self.home(&["status", "--json", shown(&self.volume(volume))]);
        let status = status.ok().and_then(|said| serde_json::from_str::<Value>(&said).ok());
        status.is_some_and(|status| status["mirror"]["relay"]["used"] == true)
    }

    /// Runs `pelago bench` at the site of the volumes; returns its object.
    pub(super) fn bench(&self, words: &[&str], volumes: &[String]) -> Result<Value, String> {
        let mut bench = self.link.command("a", shown(&self.pelago));
        bench.arg("bench").args(words).arg("--json");
        bench.args(volumes.iter().map(|volume| self.files(volume)));
        let said = output(&mut bench)?;
        serde_json::from_str(&said).map_err(|why| format!("bench: {why}: {said}"))
    }

    /// Waits until the mirror of a volume has all.
    pub(super) fn wait(&self, volume: &str) -> Result<(), String> {
        let files = self.files(volume);
        let patience = PATIENCE_SECONDS.to_string();
        let mut wait = self.link.command("a", shown(&self.pelago));
        wait.args(["wait", shown(&files), "--level", "remote", "--timeout", &patience]);
        output(&mut wait).map(drop)
    }

    /// Returns the bytes of packets that the line has carried, both ways together.
    pub(super) fn carried(&mut self) -> Result<u64, String> {
        let counts = self.link.tell("counts")?;
        let ways = ["ab", "ba"].map(|way| counts[way]["forwarded"]["bytes"].as_u64());
        ways.into_iter().sum::<Option<u64>>().ok_or_else(|| format!("no bytes in {counts}"))
    }

    /// Kills the process of a volume, and detaches its mount.
    pub(super) fn kill(&self, volume: &str) -> Result<(), String> {
        let pid = self.pid(volume)?;
        end(pid, Signal::KILL)?;
        // The guard of the mount may have been faster.
        let _gone = unmount(self.files(volume), UnmountFlags::DETACH);
        Ok(())
    }

    /// Kills the server of mirrors.
    pub(super) fn kill_keeper(&self) -> Result<(), String> {
        end(self.keeper()?, Signal::KILL)
    }

    /// Returns the process that serves a volume.
    pub(super) fn pid(&self, volume: &str) -> Result<u64, String> {
        pid_of(&self.home(&["status", "--json", shown(&self.volume(volume))])?)
    }

    /// Returns the process that keeps the mirrors.
    pub(super) fn keeper(&self) -> Result<u64, String> {
        pid_of(&self.there(&["status", "--json", self.mirrors()])?)
    }

    pub(super) fn files(&self, volume: &str) -> PathBuf {
        self.volume(volume).join("files")
    }

    fn volume(&self, volume: &str) -> PathBuf {
        self.root.join(volume)
    }

    fn mirrors(&self) -> &str {
        shown(&self.mirrors)
    }

    fn home(&self, words: &[&str]) -> Result<String, String> {
        self.typed("a", words)
    }

    fn there(&self, words: &[&str]) -> Result<String, String> {
        self.typed("b", words)
    }

    fn typed(&self, end: &str, words: &[&str]) -> Result<String, String> {
        self.steps.set(self.steps.get() + 1);
        let step = format!("{}-{}", self.steps.get(), words.first().unwrap_or(&""));
        let mut command: Command = self.link.command(end, shown(&self.pelago));
        run_step(&self.logs, &step, command.args(words))
    }
}

impl Drop for Sites {
    fn drop(&mut self) {
        for pid in self.link.processes() {
            // It may have ended.
            let _gone = kill_process(pid, Signal::KILL);
        }
        wait_until(END, POLL, || self.link.processes().is_empty());
        for volume in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let _not_mounted = unmount(volume.path().join("files"), UnmountFlags::DETACH);
        }
        for folder in [self.mirrors.parent(), Some(&*self.root)].into_iter().flatten() {
            if let Err(why) = fs::remove_dir_all(folder) {
                println!("left: {}", failed(folder, &why));
            }
        }
    }
}

/// Ends a process, and waits until it is gone.
fn end(pid: u64, signal: Signal) -> Result<(), String> {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let number = number.ok_or_else(|| format!("{pid} is no process"))?;
    kill_process(number, signal).map_err(|why| format!("process {pid}: {why}"))?;
    match wait_until(END, POLL, || memory_kib(pid, "VmRSS:").is_err()) {
        true => Ok(()),
        false => Err(format!("process {pid} does not end")),
    }
}

fn pid_of(status: &str) -> Result<u64, String> {
    let value: Value = serde_json::from_str(status).map_err(|why| format!("{why}: {status}"))?;
    value["pid"].as_u64().ok_or_else(|| format!("no process in {status}"))
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("its name is ours")
}
