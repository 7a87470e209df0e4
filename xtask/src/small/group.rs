//! A group of processes whose memory the kernel limits (cgroups, version 1).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// How long a killed process may take to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// A group, removed on drop.
pub(super) struct Group {
    pub(super) name: &'static str,
    folder: PathBuf,
}

impl Group {
    /// Makes a group of this many bytes.
    pub(super) fn new(name: &'static str, bytes: u64) -> Result<Self, String> {
        let mounts = read(Path::new("/proc/mounts"))?;
        let root = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|fields| {
            fields[2] == "cgroup" && fields[3].split(',').any(|option| option == "memory")
        });
        let root = root.ok_or("no cgroup (version 1) limits memory here")?[1].to_owned();
        let folder = Path::new(&root).join(format!("pelago-{}-{name}", std::process::id()));
        fs::create_dir(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        let group = Self { name, folder };
        let limit = group.folder.join("memory.limit_in_bytes");
        fs::write(&limit, bytes.to_string())
            .map_err(|why| format!("{}: {why}", limit.display()))?;
        Ok(group)
    }

    /// Returns a command that runs in the group.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", r#"echo $$ > "$0" && exec "$@""#]);
        command.arg(self.folder.join("cgroup.procs")).arg(program);
        command
    }

    fn pids(&self) -> Result<Vec<String>, String> {
        let text = read(&self.folder.join("cgroup.procs"))?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Returns the most memory that the process of the group had resident, in KiB.
    pub(super) fn most_resident(&self) -> Result<u64, String> {
        let pids = self.pids()?;
        let [pid] = &pids[..] else {
            return Err(format!("{} is not one process: {pids:?}", self.name));
        };
        let status = read(Path::new(&format!("/proc/{pid}/status")))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        kib.ok_or_else(|| format!("process {pid} has no VmHWM"))
    }

    /// Returns how many processes were killed because the group had no memory.
    pub(super) fn killed(&self) -> Result<u64, String> {
        let text = read(&self.folder.join("memory.oom_control"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        let count = line.and_then(|count| count.parse().ok());
        count.ok_or_else(|| "the kernel does not count killed processes".to_owned())
    }

    /// Kills what still runs in the group.
    pub(super) fn end(&self) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let pids = self.pids().unwrap_or_default();
            if pids.is_empty() {
                return;
            }
            let _killed = Command::new("kill").arg("-9").args(&pids).status();
            thread::sleep(Duration::from_millis(50));
        }
        println!("left behind: processes in {}", self.folder.display());
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(why) = fs::remove_dir(&self.folder) {
            println!("left behind: {}: {why}", self.folder.display());
        }
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))
}
