//! Three offices of one volume, a machine with a volume of its own, and sshfs, at both ends of a
//! line.
//!
//! The first office and the `sshd` are at end a; all else is at end b, where the programs run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use serde_json::Value;

use crate::kit::process::{end_all, output, run_step, spawn_step, wait_until};
use crate::kit::report::{failed, text};
use crate::kit::slow_link::SlowLink;
use crate::rivals::peers::{SSHD, prepare_sshd, sshfs_words, unmount_below, until};

/// The folders of Pelago: one of a machine without offices, and of this office one of its own, one
/// of the first office, and one of the first office in which the third one writes.
pub(super) const PELAGO: [&str; 4] = ["machine", "own", "office", "third"];
/// The line while all is set up: fast, so that nothing waits.
const SET_UP: &str = "delay=100";
/// The options with which sshfs asks its server at each call.
const NO_CACHE: [&str; 2] =
    ["-odir_cache=no,entry_timeout=0,attr_timeout=0,negative_timeout=0", "-odirect_io"];
/// An office at an end, with the port at which it listens.
const FIRST: Office = Office { name: "first", end: "a", port: 7440 };
const BERLIN: Office = Office { name: "berlin", end: "b", port: 7441 };
const ROME: Office = Office { name: "rome", end: "b", port: 7442 };
const MACHINE: Office = Office { name: "machine", end: "b", port: 7443 };

/// The silence after which a connection is given up, with a margin.
const GONE_MS: u64 = 12_000;
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(200);

struct Office {
    name: &'static str,
    end: &'static str,
    port: u16,
}

/// A folder that is measured.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// The same folder by the mount that makes the files which are new to it.
    pub(super) other: PathBuf,
}

/// All file systems. On drop their mounts and processes end.
pub(super) struct Offices {
    pelago: PathBuf,
    logs: PathBuf,
    folder: PathBuf,
    sshd: Option<Child>,
    // Dropped last: the processes go before their namespaces.
    link: SlowLink,
}

impl Offices {
    /// Starts all of Pelago, and these mounts of sshfs, with all folders.
    pub(super) fn start(
        pelago: &Path,
        logs: &Path,
        folder: &Path,
        others: &[String],
    ) -> Result<Self, String> {
        let link = SlowLink::start(&SlowLink::build()?, &[SET_UP])?;
        let [pelago, logs, folder] = [pelago, logs, folder].map(Path::to_owned);
        let mut offices = Self { pelago, logs, folder, sshd: None, link };
        for office in [&FIRST, &MACHINE] {
            let listen = offices.address_of(office);
            offices.run(office, &["up", "volume", "--listen", &listen, "--detach"])?;
        }
        for office in [&BERLIN, &ROME] {
            offices.join(office)?;
        }
        until("the second office", || offices.knows_rome().unwrap_or(false))?;
        let folders = [(&FIRST, "office"), (&FIRST, "third"), (&BERLIN, "own")];
        for (office, name) in folders.into_iter().chain([(&MACHINE, "machine")]) {
            let path = offices.tree(office).join(name);
            fs::create_dir(&path).map_err(|why| failed(&path, &why))?;
        }
        if !others.is_empty() {
            offices.start_sshd()?;
        }
        for name in others {
            offices.mount_sshfs(name)?;
        }
        Ok(offices)
    }

    /// Changes the line, and waits for nothing.
    pub(super) fn shape(&mut self, words: &str) -> Result<(), String> {
        self.link.tell(words).map(drop)
    }

    /// Sets the default congestion control at both ends, and has the offices connect anew over this
    /// line: BBR believes the round trips of the last ten seconds, also if they were of another
    /// line.
    pub(super) fn connect_again(&mut self, algorithm: &str, line: &str) -> Result<(), String> {
        for end in ["a", "b"] {
            let mut set = self.link.command(end, "sysctl");
            output(set.args(["-qw", &format!("net.ipv4.tcp_congestion_control={algorithm}")]))?;
        }
        self.shape("cut=1")?;
        let is_away = || self.silence_ms().is_ok_and(|silence| silence >= GONE_MS);
        if !wait_until(PATIENCE, POLL, is_away) {
            return Err("the first office does not count as silent".to_owned());
        }
        self.shape(&format!("cut=0 {line}"))?;
        let folder = self.folder("office").path;
        until("the first office, after a cut", || fs::read_dir(&folder).is_ok())
    }

    /// Returns the bytes that the line has carried, both ways, with all headers.
    pub(super) fn carried(&mut self) -> Result<u64, String> {
        let counts = self.link.tell("counts")?;
        let ways = ["ab", "ba"].map(|way| counts[way]["forwarded"]["bytes"].as_u64());
        ways.into_iter().sum::<Option<u64>>().ok_or_else(|| format!("slowlink: {counts}"))
    }

    /// Makes a folder on the disk below, which goes with the measurement.
    pub(super) fn disk_below(&self, name: &str) -> Result<PathBuf, String> {
        let folder = self.folder.join(name);
        fs::create_dir(&folder).map_err(|why| failed(&folder, &why))?;
        Ok(folder)
    }

    /// Returns a command that runs at an end, `a` or `b`.
    pub(super) fn command(&self, end: &str, program: &str) -> Command {
        self.link.command(end, program)
    }

    /// Returns the address of an end.
    pub(super) fn address(&self, end: &str) -> &str {
        self.link.address(end)
    }

    /// Returns one of [`PELAGO`], or a mount of sshfs.
    pub(super) fn folder(&self, name: &str) -> Folder {
        let [at, other] = match name {
            "machine" => [&MACHINE; 2],
            "own" => [&BERLIN; 2],
            "office" => [&BERLIN, &FIRST],
            "third" => [&BERLIN, &ROME],
            _ => {
                let path = self.folder.join(name);
                return Folder { path, other: self.served(name) };
            }
        };
        Folder { path: self.tree(at).join(name), other: self.tree(other).join(name) }
    }

    /// Returns how many requests this office has sent to the others.
    pub(super) fn requests(&self) -> Result<u64, String> {
        let sites = self.sites()?;
        let sites = sites["sites"].as_array().into_iter().flatten();
        Ok(sites.filter_map(|site| site["requests"].as_u64()).sum())
    }

    /// Returns the milliseconds since this office has heard of the first one.
    pub(super) fn silence_ms(&self) -> Result<u64, String> {
        let sites = self.sites()?;
        let mut sites = sites["sites"].as_array().into_iter().flatten();
        let first = sites.find(|site| site["site"] == 0).ok_or("no first office")?;
        Ok(first["silent_ms"].as_u64().unwrap_or(0))
    }

    fn sites(&self) -> Result<Value, String> {
        let said = self.run(&BERLIN, &["site", "list", "-V", "volume", "--json"])?;
        serde_json::from_str(&said).map_err(|why| format!("pelago site list: {why}: {said}"))
    }

    fn knows_rome(&self) -> Result<bool, String> {
        let sites = self.sites()?;
        let mut sites = sites["sites"].as_array().into_iter().flatten();
        Ok(sites.any(|site| site["name"] == ROME.name && !text(site, "address").is_empty()))
    }

    fn join(&self, office: &Office) -> Result<(), String> {
        let ticket = self.run(&FIRST, &["site", "invite", office.name, "-V", "volume"])?;
        let listen = self.address_of(office);
        let join = ["join", ticket.trim(), "volume", "--listen", &listen, "--detach"];
        self.run(office, &join).map(drop)
    }

    fn address_of(&self, office: &Office) -> String {
        format!("{}:{}", self.link.address(office.end), office.port)
    }

    /// Returns the root of the tree, as this office has mounted it.
    fn tree(&self, office: &Office) -> PathBuf {
        self.folder.join(office.name).join("volume/files")
    }

    /// Runs Pelago at an office, with a home of its own, and returns what it printed.
    fn run(&self, office: &Office, words: &[&str]) -> Result<String, String> {
        let home = self.folder.join(office.name);
        fs::create_dir_all(&home).map_err(|why| failed(&home, &why))?;
        let mut command = self.link.command(office.end, &self.pelago.to_string_lossy());
        command.args(words).env("HOME", &home).env_remove("XDG_CONFIG_HOME");
        command.env_remove("PELAGO_KEY").current_dir(&home);
        run_step(&self.logs, &format!("{}-{}", office.name, words[0]), &mut command)
    }

    fn start_sshd(&mut self) -> Result<(), String> {
        let home = self.folder.join("ssh");
        fs::create_dir(&home).map_err(|why| failed(&home, &why))?;
        let config = prepare_sshd(&home, self.link.address("a"))?;
        let mut sshd = self.link.command("a", SSHD);
        sshd.arg("-D").arg("-f").arg(&config);
        self.sshd = Some(spawn_step(&self.logs, "sshd", &mut sshd)?);
        Ok(())
    }

    /// Returns the folder that `sshd` serves for a mount.
    fn served(&self, name: &str) -> PathBuf {
        self.folder.join("ssh").join(name)
    }

    fn mount_sshfs(&self, name: &str) -> Result<(), String> {
        let [served, point] = [self.served(name), self.folder.join(name)];
        for folder in [&served, &point] {
            fs::create_dir(folder).map_err(|why| failed(folder, &why))?;
        }
        let words = sshfs_words(&self.folder.join("ssh"), self.link.address("a"), &served);
        let mount = || {
            let mut mount: Command = self.link.command("b", "sshfs");
            mount.args(&words).arg(&point);
            if name != "sshfs" {
                mount.args(NO_CACHE);
            }
            run_step(&self.logs, "sshfs-mount", &mut mount).is_ok()
        };
        // The daemon listens a moment after its start.
        until(name, mount)
    }
}

impl Drop for Offices {
    fn drop(&mut self) {
        unmount_below(&self.folder);
        if let Some(mut sshd) = self.sshd.take() {
            // It may have ended.
            let _gone = sshd.kill();
            let _reaped = sshd.wait();
        }
        end_all(|| self.link.processes());
    }
}
