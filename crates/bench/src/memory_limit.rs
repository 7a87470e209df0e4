//! A limit of the memory of programs, their pages of files included: a group of processes of the
//! kernel (cgroups, version 1).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

const MOUNTS: &str = "/proc/mounts";
/// Joins the group of the file `$1`, then runs the command that follows.
const JOIN: &str = r#"echo $$ > "$1" || exit; shift; exec "$@""#;

/// A group of processes with a memory limit.
#[derive(Debug)]
pub struct MemoryLimit {
    folder: PathBuf,
    /// True if the group is removed on drop.
    is_own: bool,
}

impl MemoryLimit {
    /// Makes a group with this many bytes; `number` tells the groups of this process apart.
    ///
    /// # Errors
    /// If the kernel has no such groups, or this user may not make one.
    pub fn new(number: usize, bytes: u64) -> io::Result<Self> {
        let mounts = fs::read_to_string(MOUNTS)?;
        let root = mounts.lines().find_map(memory_root).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "no cgroup (version 1) limits memory here")
        })?;
        let folder = root.join(format!("pelago-bench-{}-{number}", std::process::id()));
        fs::create_dir(&folder)?;
        let made = Self { folder, is_own: true };
        fs::write(made.folder.join("memory.limit_in_bytes"), bytes.to_string())?;
        Ok(made)
    }

    /// Returns the limit of a group that exists.
    #[must_use]
    pub fn of_group(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), is_own: false }
    }

    /// Returns the limit in bytes.
    ///
    /// # Errors
    /// If there is no such group.
    pub fn bytes(&self) -> io::Result<u64> {
        let text = fs::read_to_string(self.folder.join("memory.limit_in_bytes"))?;
        text.trim().parse().map_err(io::Error::other)
    }

    /// Returns a command whose program runs within the limit.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", JOIN, "sh"]).arg(self.folder.join("cgroup.procs")).arg(program);
        command
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        if self.is_own {
            // A program that failed may have left a process in it; an empty group is harmless.
            let _removed = fs::remove_dir(&self.folder);
        }
    }
}

/// Returns the mount point of the memory controller, if this line of the mounts has it.
fn memory_root(line: &str) -> Option<PathBuf> {
    let mut fields = line.split(' ').skip(1);
    let point = fields.next()?;
    let is_group = fields.next()? == "cgroup";
    let limits_memory = fields.next()?.split(',').any(|option| option == "memory");
    (is_group && limits_memory).then(|| PathBuf::from(point))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_controller_is_found_among_the_mounts() {
        let found = |line| memory_root(line).map(|root| root.display().to_string());
        let line = "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0";
        assert_eq!(found(line).as_deref(), Some("/sys/fs/cgroup/memory"));
        assert_eq!(found("cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0"), None);
        assert_eq!(found("cgroup2 /sys/fs/cgroup cgroup2 rw,memory_recursiveprot 0 0"), None);
        assert_eq!(found("memory"), None);
    }

    #[test]
    fn a_program_runs_within_the_limit_and_the_group_goes() {
        let limit = match MemoryLimit::new(7, 64 << 20) {
            Ok(limit) => limit,
            Err(why) => {
                println!("skipped: {why}");
                return;
            }
        };
        assert_eq!(limit.bytes().unwrap(), 64 << 20);
        let said = limit.command("cat").arg("/proc/self/cgroup").output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        let folder = limit.folder.clone();
        let name = folder.file_name().unwrap().to_str().unwrap();
        assert!(said.lines().any(|line| line.contains("memory") && line.ends_with(name)), "{said}");
        drop(limit);
        assert!(!folder.exists());
    }

    #[test]
    fn a_program_does_not_run_without_its_limit() {
        let limit = MemoryLimit::of_group(Path::new("/missing"));
        assert!(limit.bytes().is_err());
        assert!(!limit.command("true").output().unwrap().status.success());
    }
}
