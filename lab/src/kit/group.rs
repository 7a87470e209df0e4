//! A group of processes whose use of resources the kernel limits and counts (cgroups, version 1).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::process::memory_kib;
use super::report::failed;

/// How long a killed process may take to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Joins the groups whose files come before `--`, then runs the command that follows it.
const JOIN: &str =
    r#"while [ "$1" != -- ]; do echo $$ > "$1" || exit; shift; done; shift; exec "$@""#;

/// A group, removed on drop.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    /// A folder for each controller.
    folders: Vec<(&'static str, PathBuf)>,
}

/// A controller, and the file and the value that limit something, if it limits anything.
pub(crate) type Limit<'a> = (&'static str, Option<(&'a str, String)>);

impl Group {
    /// Makes a group of this many bytes of memory.
    pub(crate) fn new(name: &'static str, bytes: u64) -> Result<Self, String> {
        Self::with(name, &[("memory", Some(("memory.limit_in_bytes", bytes.to_string())))])
    }

    /// Makes a group with these limits.
    pub(crate) fn with(name: &'static str, limits: &[Limit<'_>]) -> Result<Self, String> {
        let mut group = Self { name, folders: Vec::new() };
        for (controller, limit) in limits {
            let folder = format!("pelago-{}-{name}", std::process::id());
            let folder = root_of(controller)?.join(folder);
            fs::create_dir(&folder).map_err(|why| failed(&folder, &why))?;
            group.folders.push((controller, folder.clone()));
            if let Some((file, value)) = limit {
                let file = folder.join(file);
                fs::write(&file, value).map_err(|why| failed(&file, &why))?;
            }
        }
        Ok(group)
    }

    /// Returns a command that runs in the group.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", JOIN, "sh"]);
        command.args(self.folders.iter().map(|(_, folder)| folder.join("cgroup.procs")));
        command.arg("--").arg(program);
        command
    }

    /// Returns the same command, run in the group.
    pub(crate) fn wrap(&self, command: &Command) -> Command {
        let mut wrapped = self.command(Path::new(command.get_program()));
        wrapped.args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            wrapped.current_dir(folder);
        }
        wrapped
    }

    /// Returns the folder of a controller.
    pub(crate) fn folder(&self, controller: &str) -> Result<&Path, String> {
        let folder = self.folders.iter().find(|(name, _)| *name == controller);
        let (_, folder) = folder.ok_or_else(|| format!("{} has no {controller}", self.name))?;
        Ok(folder)
    }

    /// Returns the text of a file of a controller.
    pub(crate) fn read(&self, controller: &str, file: &str) -> Result<String, String> {
        read(&self.folder(controller)?.join(file))
    }

    fn pids(&self) -> Result<Vec<String>, String> {
        let text = match self.folders.first() {
            Some((controller, _)) => self.read(controller, "cgroup.procs")?,
            None => String::new(),
        };
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Returns the most memory that the largest process of the group had resident, in KiB: a mount
    /// has a small guard beside it.
    pub(crate) fn most_resident(&self) -> Result<u64, String> {
        let mut most = None;
        for pid in self.pids()? {
            let pid = pid.parse().map_err(|why| format!("{}: {pid}: {why}", self.name))?;
            most = most.max(Some(memory_kib(pid, "VmHWM:")?));
        }
        most.ok_or_else(|| format!("{} has no process", self.name))
    }

    /// Returns the number of processes that were killed because the group had no memory.
    pub(crate) fn killed(&self) -> Result<u64, String> {
        let text = self.read("memory", "memory.oom_control")?;
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        let count = line.and_then(|count| count.parse().ok());
        count.ok_or_else(|| "the kernel does not count killed processes".to_owned())
    }

    /// Kills the processes of the group.
    pub(crate) fn end(&self) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let pids = self.pids().unwrap_or_default();
            if pids.is_empty() {
                return;
            }
            let _killed = Command::new("kill").arg("-9").args(&pids).status();
            thread::sleep(Duration::from_millis(50));
        }
        println!("left behind: processes in the group {}", self.name);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (_, folder) in &self.folders {
            if let Err(why) = fs::remove_dir(folder) {
                println!("left behind: {}: {why}", folder.display());
            }
        }
    }
}

/// Returns the mount point of a controller.
fn root_of(controller: &str) -> Result<PathBuf, String> {
    let mounts = read(Path::new("/proc/mounts"))?;
    let root = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|fields| {
        fields[2] == "cgroup" && fields[3].split(',').any(|option| option == controller)
    });
    let root = root.ok_or_else(|| format!("no cgroup (version 1) has {controller} here"))?;
    Ok(PathBuf::from(root[1]))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|why| failed(path, &why))
}
